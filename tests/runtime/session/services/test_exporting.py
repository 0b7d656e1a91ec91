"""Formats of ``-f`` that are written from a snapshot at the end of a run."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.core.options.run_options import RunOptions
from pytrace.results.snapshot import SnapshotData
from pytrace.runtime.session.services.exporting import Export
from pytrace.runtime.session.services.saving import Saving
from pytrace.runtime.session.services.service import EndOfRun
from tests.support.snapshots import COUNT, STRING, map_data, snapshot, stack

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
