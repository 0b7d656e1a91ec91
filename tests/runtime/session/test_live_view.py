"""The live view of a run, its heat maps, its heartbeat and requests for metrics."""

from __future__ import annotations

import os
import select
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import Manifest, MapSpec, SessionData
from pytrace.core.options import Address, Config, RunOptions
from pytrace.core.types import INT64, Count, Hist, Type
from pytrace.live.messages import Answer, Command, Lines, Message, Notice, Start, State
from pytrace.results import file_form
from pytrace.results.formats import report_page as page
from pytrace.results.formats import table
from pytrace.results.snapshot import SnapshotData
from pytrace.runtime.machine import clocks
from pytrace.runtime.session import live_view, metrics, services, watches
from pytrace.runtime.session.costs import Measured
from pytrace.runtime.session.live_view import LiveView
from pytrace.runtime.session.metrics import Metrics
from pytrace.runtime.session.services import EndOfRun, Heat
from pytrace.runtime.session.watches import Heartbeat
from tests.support import snapshots
from tests.support.patience import patience
from tests.support.waiting import until

# ---------------------------------------------------------------------------------------------- live view
# What a run sends to its live view, and does for it; the view is a list.


STORED = "was not reset: the script may read what it has stored there"


class FakeView:
    """A view that takes everything."""

    pid = 77

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
        assert count == live_view.SHOWN
        return self.take(), {"@x": 4}

    def clear(self, name: str) -> None:
        self.cleared.append(name)

    def measured(self) -> Measured:
        self.second += 1
        at = self.second * 1_000_000_000
        return Measured(at, at // 100, {0: (at // 50, 500 * self.second)})


def spec(name: str, value: Any) -> MapSpec:
    return MapSpec(name, name, "hash", INT64, value, 1)


class FakeInspector:
    """Answers a question at once."""

    pid = 78

    def __init__(self) -> None:
        self.asked: list[Command] = []

    def ask(self, command: Command) -> None:
        self.asked.append(command)

    def answers(self) -> list[Message]:
        return [Answer("files", command.pid, command.start, own=(79,)) for command in self.asked]


class Run:
    """A run with a live view; *printed*: whether its end prints the maps."""

    def __init__(self, *, printed: bool = True, inspector: FakeInspector | None = None) -> None:
        self.view, self.run = FakeView(), FakeRun()
        self.output = FakeOutput(self.view.calls)
        manifest = cast(Manifest, type("Fake", (), {"maps": [spec("@x", Count()), spec("@start", INT64)],
                                                            "config": Config(print_maps_on_exit=printed)}))
        options = RunOptions(script="tool.bt", parameters=("1",))
        self.service = LiveView(*cast(Any, (self.view, self.output, self.run, self.run, manifest, options, inspector)))
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
    assert 0 <= run.service.pause(1) <= live_view.LOOK_EVERY


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
    assert run.service.pause(1) < live_view.LOOK_EVERY
    assert run.run.cleared == []


def test_large_maps_are_read_less_often(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter((1.0, 1.5, 2.0, 2.5))
    monkeypatch.setattr(live_view.time, "thread_time", lambda: next(times))
    for number, interval in enumerate((5.0, 0.5 / live_view.SHARE)):
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
    # By their ends: before that is the second of each, which may not be the same.
    names = sorted(os.listdir(), key=lambda name: name.rpartition(".")[2])
    assert {notice.text for notice in run.notices()} == {f"written: {name}" for name in names}
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


def test_questions_go_to_the_process_that_answers_and_its_work_is_left_out() -> None:
    run = Run(inspector=FakeInspector())
    start = run.view.sent[0]
    assert isinstance(start, Start)
    assert (set(start.own), start.asks) == ({os.getpid(), 77, 78}, True)
    run.view.commands.put(Command("ask", "files", pid=5, start=6))
    run.work()
    assert Answer("files", 5, 6, own=(79,)) in run.work()
    assert 79 in run.service._own


def test_of_maps_that_are_not_printed_a_summary_stays() -> None:
    for printed in (True, False):
        end = EndOfRun(print_maps=True)
        Run(printed=printed).service.finish(end)
        said = [["@x"], ["rate", "total", "key"], ["0.1/s", "1", "a"]]
        assert [line.split() for line in end.found[1:]] == ([] if printed else said)


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
    monkeypatch.setattr(services.time, "monotonic", lambda: now)
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


# ---------------------------------------------------------------------------------------------- heartbeat
# The heartbeat: when the deadline moves on, and which gaps are noted.


PLACES = SessionData("session", 0, 8, 16, 24, 32, 40, 44, 48, 56, 72)
TICK = 4_000_000


class Beating:
    """A heartbeat with a clock of the test: *now* is the tick."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stack: ExitStack, seconds: float, *, embedded: bool) -> None:
        self.now = 1000
        self.memory = bytearray(128)
        monkeypatch.setattr(clocks, "tick_length", lambda: TICK)
        monkeypatch.setattr(clocks, "tick_count", lambda _length: self.now)
        loaded = cast(Any, SimpleNamespace(section=lambda _name: memoryview(self.memory)))
        self.heart = Heartbeat(loaded, PLACES, seconds, stack, embedded=embedded)

    @property
    def deadline(self) -> int:
        return int.from_bytes(self.memory[48:56], "little")


@pytest.fixture
def beating(monkeypatch: pytest.MonkeyPatch) -> Iterator[Beating]:
    with ExitStack() as stack:
        yield Beating(monkeypatch, stack, 2.0, embedded=False)


def test_a_beat_moves_the_deadline_on_and_no_other_value(beating: Beating) -> None:
    beating.heart.beat()
    assert beating.deadline == 1000 + 502, "two seconds, and what the clock may be behind"
    assert beating.memory == bytes(48) + beating.deadline.to_bytes(8, "little") + bytes(72)
    assert beating.heart.gaps() == []


def test_attaching_may_take_longer(beating: Beating) -> None:
    beating.heart.attaching()
    assert beating.deadline == 1000 + 502 + int(watches.ATTACHING * 250)


def test_a_late_beat_notes_the_gap_from_the_deadline_on(beating: Beating) -> None:
    beating.heart.beat()
    beating.now = beating.deadline
    beating.heart.beat()
    assert beating.heart.gaps() == [], "programs still run at the deadline"
    beating.now = beating.deadline + 250
    before = time.time_ns()
    beating.heart.beat()
    ((start, duration),) = beating.heart.gaps()
    assert duration == 1_000_000_000
    assert start == pytest.approx(before - duration, abs=500_000_000)
    assert beating.heart.gaps() == [], "each is told once"
    assert beating.deadline == beating.now + 502


def test_a_gap_that_nobody_has_noticed_is_over_when_it_is_asked_for(beating: Beating) -> None:
    beating.heart.beat()
    beating.now = beating.deadline + 250
    ((_, duration),) = beating.heart.gaps()
    assert duration == 1_000_000_000
    assert beating.deadline == beating.now + 502


def wait_for(condition: Any) -> bool:
    """Wait until *condition* holds; whether it does in time."""
    end = time.monotonic() + patience(5)
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return bool(condition())


def test_a_thread_beats_until_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        beating = Beating(monkeypatch, stack, 0.5, embedded=False)
        beating.heart.begin()
        first = beating.deadline
        beating.now += 1000
        assert wait_for(lambda: beating.deadline > first)
    beating.now += 1000
    last = beating.deadline
    time.sleep(0.3)
    assert beating.deadline == last


@pytest.mark.parametrize(("embedded", "beats"), [(False, False), (True, True)])
def test_a_run_whose_thread_does_not_return_is_stuck(
    embedded: bool, beats: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the run is another program's thread, that may wait for as long as it likes."""
    monkeypatch.setattr(watches, "IDLE", 0.2)
    with ExitStack() as stack:
        beating = Beating(monkeypatch, stack, 0.5, embedded=embedded)
        monkeypatch.setattr(watches.time, "clock_gettime_ns", lambda _clock: 7)
        beating.heart.begin()
        time.sleep(1.0)
        before = beating.deadline
        beating.now += 1000
        time.sleep(0.5)
        assert (beating.deadline > before) is beats
        monkeypatch.setattr(watches.time, "clock_gettime_ns", lambda _clock: 8)
        assert wait_for(lambda: beating.deadline > before)


def test_a_run_that_ends_has_no_thread_and_no_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Detaching may take long, and a map of calls that have begun would keep the one that the thread waits in."""
    with ExitStack() as stack:
        beating = Beating(monkeypatch, stack, 0.5, embedded=False)
        beating.heart.begin()
        beating.heart.stop()
        assert "pytrace-heartbeat" not in {thread.name for thread in threading.enumerate()}
        beating.now += 100_000
        beating.heart.beat()
        assert beating.deadline == watches.NEVER
        assert beating.heart.gaps() == []


def test_a_thread_that_cannot_be_started_is_not_waited_for(beating: Beating, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Thread, "start", full)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        beating.heart.begin()
    beating.heart.close()


# ---------------------------------------------------------------------------------------------- metrics
# Requests for metrics, and the session that answers them.


class MeasuredRun:
    """Stands for a session with one map."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.count = 0
        self.metrics = Metrics(Address("127.0.0.1", 0), Config(max_metric_series=2), self.take, self.told.append)
        self.metrics.begin()
        self.url = self.told[0].split()[-1]

    def take(self) -> SnapshotData:
        self.count += 1
        entries = {(f"k{number}"): self.count for number in range(3)}
        return snapshots.snapshot(snapshots.map_data("@x", snapshots.STRING, snapshots.COUNT, entries))

    def work(self) -> None:
        """As the session does."""
        (descriptor,) = self.metrics.descriptors
        select.select([descriptor], [], [], self.metrics.pause(0.05))
        self.metrics.work(0)


class Get(threading.Thread):
    """A request."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self.status, self.text = 0, ""
        self.start()

    def run(self) -> None:
        try:
            with urllib.request.urlopen(self._url, timeout=patience(20)) as answer:
                self.status, self.text = answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                self.status, self.text = error.code, error.read().decode()

    def over(self) -> bool:
        return not self.is_alive()


@pytest.fixture
def measured_run() -> Iterator[MeasuredRun]:
    made = MeasuredRun()
    yield made
    made.metrics.close()


def test_a_scrape(measured_run: MeasuredRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "FRESH", 0.0)
    for number in (1, 2):
        got = Get(measured_run.url)
        until(lambda got=got: measured_run.work() or got.over())  # type: ignore[misc]
        assert got.status == 200
        assert f'pytrace_x_total{{key="k0"}} {number}\n' in got.text
        assert 'pytrace_map_series_left_out{map="@x"} 1\n' in got.text
    assert measured_run.count == 2


def test_scrapes_within_a_second_get_the_same(measured_run: MeasuredRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "FRESH", 60.0)
    texts = set()
    for _ in range(3):
        got = Get(measured_run.url)
        until(lambda got=got: measured_run.work() or got.over())  # type: ignore[misc]
        texts.add(got.text)
    assert measured_run.count == 1
    assert len(texts) == 1
    assert len(measured_run.metrics._exposition._texts) == 1
    monkeypatch.setattr(metrics, "FRESH", 0.0)
    got = Get(measured_run.url)
    until(lambda: measured_run.work() or got.over())
    assert measured_run.count == 2


def test_scrapes_at_once_share_a_snapshot(measured_run: MeasuredRun) -> None:
    gets = [Get(measured_run.url) for _ in range(10)]
    until(lambda: len(measured_run.metrics._server._open) == 10)
    until(lambda: measured_run.work() or all(got.over() for got in gets))
    assert {got.status for got in gets} == {200}
    assert measured_run.count < 10


def test_other_paths_cost_no_snapshot(measured_run: MeasuredRun) -> None:
    for path, status in (("/", 200), ("/other", 404)):
        got = Get(measured_run.url.replace("/metrics", path))
        until(got.over)
        assert got.status == status
        assert "/metrics" in got.text
    assert measured_run.count == 0


def test_a_session_that_does_not_come_to_it(measured_run: MeasuredRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "PATIENCE", 0.05)
    got = Get(measured_run.url)
    until(got.over)
    assert (got.status, got.text) == (503, "no snapshot was taken within 0.05 seconds\n")


def test_a_request_that_waits_at_the_end_is_told(measured_run: MeasuredRun) -> None:
    got = Get(measured_run.url)
    until(lambda: measured_run.metrics._exchange._wanted is not None)
    measured_run.metrics.close()
    until(got.over)
    assert (got.status, got.text) == (503, "the run is over\n")


def test_what_goes_wrong_is_told_once(measured_run: MeasuredRun, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("bad label")

    monkeypatch.setattr(metrics.Exposition, "of", fail)
    for _ in range(2):
        got = Get(measured_run.url)
        until(lambda got=got: measured_run.work() or got.over())  # type: ignore[misc]
        assert got.status == 500
        assert "bad label" in got.text
        measured_run.work()
    assert measured_run.told[1:] == ["WARNING: metrics could not be served: ValueError: bad label\n"]


def test_a_map_that_has_no_metrics_is_a_message(measured_run: MeasuredRun, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise TraceError("negative counts")

    monkeypatch.setattr(metrics.Exposition, "of", fail)
    got = Get(measured_run.url)
    until(lambda: measured_run.work() or got.over())
    assert (got.status, got.text) == (500, "negative counts\n")
