"""Snapshots of a run in files."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.core.options.run_options import RunOptions
from pytrace.results import file_form
from pytrace.results.snapshot import SnapshotData
from pytrace.runtime.session.services import saving
from pytrace.runtime.session.services.saving import Export, Saving
from pytrace.runtime.session.services.service import EndOfRun
from tests.support.snapshots import COUNT, STRING, map_data, snapshot, stack


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


# ---------------------------------------------------------------------------------------------- exporting

USTACK = types.Stack(True)
STACKS = map_data("@", USTACK, COUNT, {stack("f", "main"): 3})
NAMES = map_data("@names", STRING, COUNT, {"x": 1})


def export(path: Path | None, wanted: str = "folded", maps: tuple[Any, ...] = (STACKS,), rows: bool = False) -> Export:
    events = [SimpleNamespace(kind="printf"), *([SimpleNamespace(kind="row")] if rows else [])]
    manifest = SimpleNamespace(maps=maps, events=events)
    return Export(cast(Any, manifest), RunOptions(format=wanted, output=None if path is None else str(path)))


def test_the_file_is_written_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("old")
    made = export(path, "folded:stacks")
    assert path.read_text() == "old"
    said: list[str] = []
    assert made.write(snapshot(STACKS), said.append) == ""
    assert (path.read_text(), said, os.listdir(tmp_path)) == ("main;f 3\n", [], ["out"])
    assert made.written == [f"{path} (1 kB)"]


def test_standard_output(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert export(None).write(snapshot(STACKS), print) == ""
    assert capfdbinary.readouterr() == (b"main;f 3\n", b"")


def test_what_the_format_does_not_show_is_told_where_there_is_something(tmp_path: Path) -> None:
    said: list[str] = []
    made = export(tmp_path / "out", maps=(STACKS, NAMES))
    made.write(snapshot(STACKS, replace(NAMES, entries={})), said.append)
    assert said == []
    made.write(snapshot(STACKS, NAMES), said.append)
    assert said == ["format folded cannot show @names (numbers)"]


@pytest.mark.parametrize(
    ("maps", "rows", "message"),
    [
        ((NAMES,), False, r"format folded cannot show @names \(numbers\)"),
        ((), True, "format folded cannot show rows"),
        ((), False, "the script has no maps and no rows that could be written"),
    ],
)
def test_a_script_without_anything_to_show_is_refused_before_the_run(
    tmp_path: Path, maps: tuple[Any, ...], rows: bool, message: str
) -> None:
    with pytest.raises(TraceError, match=message):
        export(tmp_path / "out", maps=maps, rows=rows)


def test_what_cannot_be_written_is_refused_before_the_run(tmp_path: Path) -> None:
    for path in (tmp_path / "missing" / "out", tmp_path):
        with pytest.raises(TraceError, match="cannot write output to"):
            export(path)


def test_a_terminal_gets_no_binary_format(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "isatty", lambda _descriptor: True)
    with pytest.raises(TraceError, match="format pprof is nothing for a terminal") as found:
        export(None, "pprof")
    assert found.value.hints == ("-o FILE writes it to a file, for example -o profile.pb.gz",)
    export(None, "folded")
    export(tmp_path / "out", "pprof")


def test_what_fails_at_the_end_is_a_sentence(tmp_path: Path) -> None:
    sums = map_data("@", USTACK, types.Sum(), {stack("f"): -1})
    made = export(tmp_path / "out", maps=(sums,))
    assert made.write(snapshot(sums), print) == "format folded has no negative numbers, and @ has -1; format pprof has"
    assert not (tmp_path / "out").exists()
    if Path("/dev/full").exists():
        assert "No space left" in export(Path("/dev/full")).write(snapshot(STACKS), print)


@pytest.mark.parametrize(("value", "exported"), [(3, True), (-3, False)])
def test_maps_that_could_not_be_written_are_left_to_be_printed(tmp_path: Path, value: int, exported: bool) -> None:
    sums = map_data("@", USTACK, types.Sum(), {stack("f"): value})

    def take() -> SnapshotData:
        return snapshot(sums)

    made = Saving(RunOptions(format="folded"), [export(tmp_path / "out", maps=(sums,))], take, print)
    end = EndOfRun(print_maps=True)
    made.finish(end)
    assert (bool(end.errors), end.print_maps) == (not exported, not exported)
