"""Snapshots of a run in files."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.core.options.run_options import RunOptions
from pytrace.results import file_form
from pytrace.results.snapshot import SnapshotData
from pytrace.runtime.session.services import saving
from pytrace.runtime.session.services.saving import Saving
from pytrace.runtime.session.services.service import EndOfRun


def written(snapshot: SnapshotData, path: str) -> None:
    Path(path).write_text(repr(snapshot.losses))


Writing = Callable[[SnapshotData, str], None]


@pytest.fixture
def writing(monkeypatch: pytest.MonkeyPatch) -> Callable[[Writing], None]:
    """Sets what writes snapshots to files."""

    def use(function: Writing) -> None:
        monkeypatch.setattr(file_form, "write", function)

    use(written)
    return use


class Clock:
    """Stands for :func:`time.monotonic`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(saving.time, "monotonic", lambda: self.now)


class Run:
    """A run whose snapshots are numbered; *said* are its warnings."""

    def __init__(self, options: RunOptions) -> None:
        self.taken = 0
        self.said: list[str] = []
        saving.check(options)
        self.saving = Saving(options, (), self.take, self.said.append)

    def finish(self) -> str:
        """Finish; gives the errors."""
        end = EndOfRun(print_maps=True)
        self.saving.finish(end)
        assert end.print_maps, "nothing was written in their place"
        return "; ".join(end.errors)

    def take(self) -> SnapshotData:
        self.taken += 1
        return SnapshotData((), losses={"lost": {"x": self.taken}})


def full(_snapshot: SnapshotData, path: str) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


def test_one_file_at_the_end(tmp_path: Path, writing: Callable[[Writing], None]) -> None:
    run = Run(RunOptions(save=str(tmp_path / "out")))
    run.saving.attached()
    run.saving.work(0)
    assert run.saving.pause(1.0) == 1.0
    assert os.listdir(tmp_path) == []
    assert run.finish() == ""
    assert (tmp_path / "out").read_text() == "{'lost': {'x': 1}}"
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("place", ["missing/out", "folder", "file/out"])
def test_what_cannot_be_written_is_told_before_the_run(tmp_path: Path, place: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(TraceError, match=f"{place}"):
        Run(RunOptions(save=str(tmp_path / place)))


def test_a_directory_that_cannot_be_made_is_told_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name in ("file", "file/folder"):
        with pytest.raises(TraceError, match="cannot be saved"):
            Run(RunOptions(save_every=(1.0, str(tmp_path / name))))


def test_a_file_every_so_often(
    tmp_path: Path, writing: Callable[[Writing], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "snapshots" / "today"
    clock = Clock(monkeypatch)
    run = Run(RunOptions(save=str(tmp_path / "out"), save_every=(10.0, str(folder))))
    clock.now = 150.0
    run.saving.attached()
    run.saving.work(0)
    assert run.saving.pause(60.0) == 10.0
    assert os.listdir(folder) == []
    stamps = iter(range(1_795_387_606_000_000_000, 1 << 62, 10_001_000_000))
    monkeypatch.setattr(saving.time, "time_ns", lambda: next(stamps))
    for clock.now in (159.9, 160.0, 160.1, 171.0, 195.0, 199.9):
        run.saving.work(0)
    assert run.taken == 3
    assert run.saving.pause(60.0) == pytest.approx(0.1)
    assert run.finish() == ""
    names = sorted(os.listdir(folder))
    moments = ("224646.000", "224656.001", "224706.002", "224716.003")
    assert names == [f"20261122T{moment}Z{file_form.SUFFIX}" for moment in moments]
    assert [(folder / name).read_text() for name in names] == [f"{{'lost': {{'x': {n}}}}}" for n in (1, 2, 3, 4)]
    assert (tmp_path / "out").read_text() == "{'lost': {'x': 4}}"


def test_a_full_disk_is_a_warning_told_once(
    tmp_path: Path, writing: Callable[[Writing], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    run = Run(RunOptions(save_every=(1.0, str(tmp_path))))
    run.saving.attached()
    monkeypatch.setattr(run.saving, "_dated", lambda: f"{tmp_path}/{clock.now}")
    writing(full)
    for clock.now in (101.0, 102.0):
        run.saving.work(0)
    assert run.said == [f"the snapshot '{tmp_path}/101.0' could not be saved: No space left on device; the run goes on"]
    assert os.listdir(tmp_path) == []
    writing(written)
    clock.now = 103.0
    run.saving.work(0)
    writing(full)
    clock.now = 104.0
    run.saving.work(0)
    assert len(run.said) == 2
    assert (run.taken, os.listdir(tmp_path)) == (4, ["103.0"])
    assert "No space left" in run.finish()


def test_the_last_one_that_fails_is_told(tmp_path: Path, writing: Callable[[Writing], None]) -> None:
    options = RunOptions(save=str(tmp_path / "out"))
    writing(full)
    run = Run(options)
    assert run.finish() == f"the snapshot '{tmp_path}/out' could not be saved: No space left on device"


def test_a_run_that_is_broken_off_tells_that_nothing_was_saved(
    tmp_path: Path, writing: Callable[[Writing], None]
) -> None:
    run = Run(RunOptions(save=str(tmp_path / "out")))
    run.saving.break_off()
    assert run.said == ["no snapshot was saved at the end because of the interrupt"]
    run.finish()
    run.saving.break_off()
    assert len(run.said) == 1
