"""The live view of a run, and its heat maps."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any, cast

import pytest
from msgspec.structs import replace

from pytrace.core.config import Config
from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import Manifest, MapSpec
from pytrace.core.options.run_options import RunOptions
from pytrace.core.types import INT64, Count, Hist, Type
from pytrace.live.messages import Command, Lines, Message, Notice, Start, State
from pytrace.results import file_form
from pytrace.results.formats import table
from pytrace.results.report import page
from pytrace.results.snapshot import SnapshotData
from pytrace.runtime.session import heat
from pytrace.runtime.session import live_view as module
from pytrace.runtime.session.costs import Measured
from pytrace.runtime.session.heat import Heat
from pytrace.runtime.session.live_view import LiveView
from pytrace.runtime.session.services import EndOfRun
from tests.support import snapshots
from tests.support.waiting import until

# ---------------------------------------------------------------------------------------------- live view
# What a run sends to its live view, and does for it; the view is a list.


STORED = "was not reset: the script may read what it has stored there"


class FakeView:
    """A view that takes everything."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.commands: SimpleQueue[Command] = SimpleQueue()
        self.states = self.lines = 0
        self.gone = False
        self.error, self.used, self.room = "", 0.0, True
        self.calls: list[str] = []

    def begin(self, start: Start) -> None:
        self.sent.append(start)

    def send(self, message: Message) -> None:
        self.sent.append(message)

    def flush(self) -> bool:
        return self.room

    def close(self) -> None:
        self.calls.append("close")


class FakeOutput:
    """The output of a run."""

    def __init__(self, calls: list[str]) -> None:
        self.covered = False
        self.text = b""
        self._calls = calls

    def take(self) -> tuple[bytes, int]:
        text, self.text = self.text, b""
        return text, 0

    def cover(self) -> None:
        self._calls.append("cover")
        self.covered = True

    def seen(self, count: int) -> None:
        self._calls.append(f"seen {count}")

    def uncover(self) -> None:
        self._calls.append("uncover")


class FakeRun:
    """Snapshots and costs of a run: a second between two measurements."""

    refused = ""

    def __init__(self) -> None:
        self.cleared: list[str] = []
        self.second = 0

    def take(self) -> SnapshotData:
        taken = snapshots.snapshot(snapshots.map_data("@x", snapshots.STRING, snapshots.COUNT, {"a": 1}))
        taken.losses = {"lost": {"a": 10 * self.second}, "unfinished": {"b": 9}}
        return taken

    def greatest(self, count: int) -> tuple[SnapshotData, dict[str, int]]:
        assert count == module.SHOWN
        return self.take(), {"@x": 4}

    def clear(self, name: str) -> None:
        self.cleared.append(name)

    def measured(self) -> Measured:
        self.second += 1
        at = self.second * 1_000_000_000
        return Measured(at, at // 100, {0: (at // 50, 500 * self.second)})


def spec(name: str, value: Any) -> MapSpec:
    return MapSpec(name, name, "hash", INT64, value, 1)


class Run:
    """A run with a live view."""

    def __init__(self) -> None:
        self.view, self.run = FakeView(), FakeRun()
        self.output = FakeOutput(self.view.calls)
        manifest = cast(Manifest, type("Fake", (), {"maps": [spec("@x", Count()), spec("@start", INT64)]}))
        options = RunOptions(script="tool.bt", parameters=("1",))
        self.service = LiveView(*cast(Any, (self.view, self.output, self.run, self.run, manifest, options)))
        self.service.begin()

    def work(self, *commands: str) -> list[Message]:
        """One turn of the loop, when it is time for the next one."""
        for command in commands:
            do, _, name = command.partition(" ")
            self.view.commands.put(Command(cast(Any, do), name))
        before = len(self.view.sent)
        self.service._next_look = self.service._next_lines = 0.0
        self.service.work(0)
        return self.view.sent[before:]

    def notices(self) -> list[Notice]:
        """What the view was told so far."""
        return [message for message in self.view.sent if isinstance(message, Notice)]


def without_viewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports without the bundled viewer."""
    row, settings = table.chosen("html", None)
    monkeypatch.setattr(page, "viewer", lambda: ["", "", ""])
    monkeypatch.setattr(table, "chosen", lambda *_words: (replace(row, prepare=None), settings))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    return Run()


def test_the_view_gets_states_and_lines(run: Run) -> None:
    assert isinstance(run.view.sent[0], Start)
    assert run.view.sent[0].title == "tool.bt 1"
    assert run.output.covered
    run.output.text = b"line\n"
    lines, state = run.work()
    assert lines == Lines(b"line\n")
    assert isinstance(state, State)
    assert state.others == {"@x": 4}
    meters = state.meters
    assert (meters.hits, meters.own, meters.programs) == (500, 0.01, 0.02)
    assert (meters.lost, meters.losing) == (10, 10)
    assert run.work() == [], "the view has not shown the last state"
    run.view.states = 1
    assert run.work() == [], "it is too early for another"
    assert 0 <= run.service.pause(1) <= module.LOOK_EVERY


def test_the_title_of_a_program_of_the_command_line_is_its_text(run: Run) -> None:
    run.service._options = RunOptions(script="-e", text="begin {\n  @ = 1 }")
    run.service.begin()
    run.service._options = RunOptions(script="-e", text="// requests\nbegin {  @ = 1 }")
    run.service.begin()
    assert [message.title for message in run.view.sent if isinstance(message, Start)] == [
        "tool.bt 1", "begin { @ = 1 }", "requests",
    ]  # fmt: skip


def test_nothing_is_taken_while_the_channel_is_full(run: Run) -> None:
    run.view.room = False
    assert run.work("clear @x") == []
    assert run.service.pause(1) < module.LOOK_EVERY
    assert run.run.cleared == []


def test_large_maps_are_read_less_often(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter((1.0, 1.5, 2.0, 2.5))
    monkeypatch.setattr(module.time, "thread_time", lambda: next(times))
    for number, interval in enumerate((5.0, 0.5 / module.SHARE)):
        run.view.states, run.service._next_state = number, 0.0
        (state,) = run.work()
        assert isinstance(state, State)
        assert state.meters.interval == interval, "the first one reads symbols, too"


def test_a_reset_is_of_one_map_or_of_all_that_may_be_emptied(run: Run) -> None:
    run.work()
    run.view.states = 1
    assert run.work("clear @x") == [Notice("@x was reset")]
    assert run.service.pause(1) == 0, "the map is emptied in the next turn"
    run.service.work(0)
    assert run.run.cleared == ["@x"]
    assert isinstance(run.work()[0], State), "the view is told at once"
    assert run.work("clear") == [Notice("@x was reset")]
    run.service.work(0)
    assert run.work("clear @start")[0] == Notice(f"@start {STORED}", error=True)
    assert run.work("clear @x @start")[0] == Notice(f"@x was reset; @start {STORED}")
    run.service.work(0)
    assert run.run.cleared == ["@x", "@x", "@x"]


def test_snapshots_and_reports_are_written_by_a_thread(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    without_viewer(monkeypatch)
    run.work("save", "report")
    until(lambda: run.work() is None or len(run.notices()) == 2)
    names = sorted(os.listdir())
    assert sorted(notice.text for notice in run.notices()) == [f"written: {name}" for name in names]
    assert [name.rpartition(".")[2] for name in names] == ["html", "pts"]
    assert file_form.read(names[1]).maps["@x"].entries == {"a": 1}


@pytest.mark.parametrize("do", ["save", "report"])
def test_a_file_that_cannot_be_written_is_reported(run: Run, monkeypatch: pytest.MonkeyPatch, do: str) -> None:
    without_viewer(monkeypatch)
    os.rmdir(os.getcwd())
    run.work(do)
    until(lambda: run.work() is None or run.notices())
    (notice,) = run.notices()
    assert notice.error
    assert "cannot be written: No such file or directory" in notice.text


def test_at_the_end_the_view_goes_before_anything_is_printed(run: Run) -> None:
    run.view.calls.clear()
    run.view.lines = 3
    run.service.stop()
    assert run.view.calls == ["close", "seen 3", "uncover"]
    end = EndOfRun(print_maps=True)
    run.service.finish(end)
    assert end.errors == []


def test_a_view_that_fails_ends_the_run_with_an_error(run: Run) -> None:
    assert not run.service.over
    run.view.gone, run.view.error = True, "signal 9"
    assert run.service.over
    run.service.break_off()
    end = EndOfRun(print_maps=True)
    run.service.finish(end)
    assert end.errors == ["the live view failed (signal 9), so the run was ended"]


# ---------------------------------------------------------------------------------------------- heat
# ``--heat``: when lines are printed.


class Renderer:
    def __init__(self) -> None:
        self.printed: list[tuple[Sequence[str], bool]] = []

    def print_heat(self, names: Sequence[str], *, rest: bool = False) -> None:
        self.printed.append((names, rest))


def manifest(kind: Type) -> Manifest:
    return Manifest((), (MapSpec("@h", "", "global", None, kind, 1),), (), (), Config())


def test_a_line_each_second_and_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(heat.time, "monotonic", lambda: now)
    renderer = Renderer()
    service = Heat(manifest(Hist()), cast(Any, renderer))
    assert service.pause(5.0) == 5.0
    service.begin()
    assert service.pause(5.0) == 1.0
    for now in (100.9, 101.0, 101.5, 104.2, 104.9, 105.0):  # noqa: B007 - the clock reads it
        service.work(0)
    assert renderer.printed == [(["@h"], False)] * 3, "what took too long leaves out lines"
    service.stop()
    assert renderer.printed[-1] == (["@h"], True)


def test_scripts_without_histograms() -> None:
    with pytest.raises(TraceError, match="--heat shows histograms, and the script has no map of them"):
        Heat(manifest(Count()), cast(Any, Renderer()))
