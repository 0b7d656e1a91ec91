"""pytrace.runtime.attach.opened: who owns what was opened, and the order in which it is closed."""

from __future__ import annotations

import errno
import os
import random
import struct
import time
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from pytrace.runtime.abi import bpf, bpf_maps, perf
from pytrace.runtime.attach import opened
from pytrace.runtime.attach.opened import (
    NEVER,
    CpuEvents,
    MissReader,
    Opened,
    SamplingClock,
    link_misses,
    profile_misses,
)
from pytrace.runtime.host import tracefs
from tests.support.attach_requests import spec


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What is closed, in order."""
    order: list[object] = []
    monkeypatch.setattr(opened, "close_all", order.extend)
    monkeypatch.setattr(opened, "close_later", lambda items, _: order.extend(-item for item in items))
    return order


def filled(first: int, order: list[object]) -> Opened:
    made = Opened([first], [first + 1], [first + 2], traced={f"p{first}": f"program_{first}"})
    made.steps.append(lambda: order.append(f"step {first}"))
    return made


def assert_order(closed: list[object], *expected: object) -> None:
    places = [closed.index(item) for item in expected]
    assert places == sorted(places)


def test_programs_leave_before_their_events_go(closed: list[object]) -> None:
    made = filled(1, closed)
    made.steps.append(lambda: closed.append("last step"))
    made.close()
    assert_order(closed, 1, 2, "last step", "step 1")
    assert -3 in closed, "an idle event may go whenever there is time"
    made.close()
    assert len(closed) == 5, "only once"


def test_events_of_cpus(closed: list[object]) -> None:
    def attach(cpu: int, part: Opened) -> None:
        part.links.append(cpu)
        if cpu == 9:
            raise OSError("no such CPU")

    made = Opened()
    made.cpu_events.append(CpuEvents("profile:hz:1", attach))
    made.watchpoint(8).cpu_events.append(CpuEvents("watchpoint:8:8:w", attach))
    for cpu, events in enumerate(made.on_cpus(), 1):
        events.add(cpu)
        events.add(cpu)
        with pytest.raises(OSError, match="no such CPU"):
            events.add(9)
        events.drop(9)
    assert closed == [1, 9, 2, 9]
    whole = Opened()
    whole.take(made)
    assert made == Opened()
    whole.close()
    assert sorted(closed[4:], key=str) == [1, 2]


def test_taking_over(closed: list[object]) -> None:
    one, other = filled(1, closed), filled(11, closed)
    other.watchpoint(0x1000).links.append(21)
    one.watchpoint(0x1000).links.append(22)
    one.take(other)
    other.close()
    assert closed == []
    assert other == Opened()
    assert one.traced == {"p1": "program_1", "p11": "program_11"}
    assert sorted(one.watchpoint(0x1000).links) == [21, 22]
    one.close()
    assert len(closed) == 10
    for link in (1, 11, 21, 22):
        for event in (2, 12):
            assert_order(closed, link, event, "step 11", "step 1")


def test_watchpoints_go_one_by_one(closed: list[object]) -> None:
    made = Opened()
    for address in (0x10, 0x20):
        made.watchpoint(address).links.append(address)
        made.watchpoint(address).events.append(address + 1)
    made.unwatch(0x10)
    assert set(closed) == {0x10, 0x11}
    made.unwatch(0x10)
    made.unwatch(0x30)
    assert len(closed) == 2
    made.close()
    assert_order(closed, 0x20, 0x21)
    assert len(closed) == 4


def test_a_step_that_fails_leaves_no_descriptor(closed: list[object]) -> None:
    made = filled(1, closed)
    made.steps.append(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        made.close()
    assert set(closed) == {1, 2, -3}


# ---------------------------------------------------------------------------------------------- misses

PERF, MULTI = 7, 8


def perf_link(kind: int, missed: int) -> bytes:
    """``struct bpf_link_info`` of a perf event: type, then the type of the event at 16 and the misses at 48."""
    return struct.pack("=I12xI28xQ8x", PERF, kind, missed)


def multi_link(missed: int) -> bytes:
    return struct.pack("=I28xQ24x", MULTI, missed)


@pytest.mark.parametrize(
    ("data", "missed"),
    [
        (multi_link(5), 5),
        (perf_link(3, 6), 6),
        (perf_link(4, 7), 7),
        # A uprobe, an event, and a link of another kind have other things there.
        (perf_link(1, 8), 0),
        (perf_link(6, 8), 0),
        (struct.pack("=I60x", 2), 0),
    ],
)
def test_misses_of_a_link(data: bytes, missed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(data) == 64
    monkeypatch.setattr(bpf, "info", lambda descriptor, size: data[:size])
    assert link_misses(3) == missed


def test_misses_of_a_profile() -> None:
    text = "  p12_0                                                     7               0\n  p12_1   3   12\n\nbroken\n"
    assert profile_misses(text) == {"p12_0": 0, "p12_1": 12}


PROGRAMS = (
    spec("a", "kprobe", ()),
    spec("b", "kretprobe", ()),
    spec("c", "tracepoint", ()),
    spec("follow", "tracepoint", (), service=True),
)


class Loaded:
    """Stands for loaded programs; the number of a program is 100 more than its descriptor."""

    def __init__(self, *programs: Any) -> None:
        self.manifest = SimpleNamespace(programs=programs)
        self.symbols = [item.symbol for item in programs if not item.part_of]

    def program_fd(self, symbol: str) -> int:
        return self.symbols.index(symbol)


@pytest.fixture
def recursion(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """Misses by descriptor; what the kernel says of links is that they missed as many as their number is."""
    missed: dict[int, int] = {}
    monkeypatch.setattr(bpf, "prog_id", lambda descriptor: descriptor + 100)
    monkeypatch.setattr(bpf, "recursion_misses", lambda descriptor: missed.get(descriptor, 0))
    monkeypatch.setattr(opened, "link_misses", lambda link: link)
    monkeypatch.setattr(bpf, "link_info", lambda link: (0, 0, 100 + link % 10))
    return missed


def totals(opened: Opened, *programs: Any) -> dict[tuple[str, int], int]:
    loaded: Any = Loaded(*programs)
    return MissReader(loaded, opened).totals()


def test_programs_inside_themselves(recursion: dict[int, int]) -> None:
    recursion.update({0: 4, 2: 5, 3: 6})
    assert totals(Opened(), *PROGRAMS) == {("recursion", 0): 4, ("recursion", 2): 5}, "services do not matter"


def test_links_are_those_of_their_programs(recursion: dict[int, int]) -> None:
    assert totals(Opened(links=[10, 20, 31, 0]), *PROGRAMS) == {("missed", 0): 30, ("missed", 1): 31}


def test_links_of_other_probes_are_not_looked_at(recursion: dict[int, int]) -> None:
    assert totals(Opened(links=[10]), spec("c", "tracepoint", ())) == {}
    entry, leaving = spec("e", "uprobe", ()), spec("r", "kretprobe", (), part_of="e")
    assert totals(Opened(links=[10]), entry, leaving) == {}


def test_probes_made_through_tracefs(
    recursion: dict[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kprobe_profile").write_text("p1_0 10 3\np1_1 10 0\np1_2 10 4\np9_9 1 99\n")
    monkeypatch.setattr(tracefs, "root", lambda: str(tmp_path))
    opened = Opened(links=[20], traced={"p1_0": "a", "p1_1": "b", "p1_2": "a", "p1_3": "b"})
    assert totals(opened, *PROGRAMS) == {("missed", 0): 20 + 3 + 4}


# ---------------------------------------------------------------------------------------------- closing

def _descriptors(count: int) -> list[int]:
    return [os.open("/dev/null", os.O_RDONLY) for _ in range(count)]


def _open(descriptors: list[int]) -> list[int]:
    return [item for item in descriptors if os.path.exists(f"/proc/self/fd/{item}")]


@pytest.mark.parametrize("count", [0, 1, 2, 300])
def test_all_are_closed(count: int) -> None:
    descriptors = _descriptors(count)
    opened.close_all(descriptors)
    assert not _open(descriptors)


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_a_machine_that_gives_no_more_threads(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    start = Thread.start
    left = iter(range(threads))

    def refuse(thread: Thread) -> None:
        if next(left, None) is None:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(Thread, "start", refuse)
    descriptors = _descriptors(20)
    opened.close_all(descriptors)
    assert not _open(descriptors)


@pytest.mark.parametrize("count", [0, 1, 40])
def test_a_kernel_that_does_not_take_them(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: Any, **_options: Any) -> int:
        raise PermissionError

    monkeypatch.setattr(bpf_maps, "create", refuse)
    descriptors = _descriptors(count)
    opened.close_later(descriptors)
    assert not _open(descriptors)


def test_the_map_of_a_quick_end_is_made_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run gives up the privilege to make maps once its probes are attached."""
    handed: list[tuple[list[int], int | None]] = []
    monkeypatch.setattr(opened, "_holder", lambda entries: 70 + entries)
    monkeypatch.setattr(opened, "close_later", lambda events, holder: handed.append((list(events), holder)))
    monkeypatch.setattr(opened, "close_all", lambda _: None)
    made = Opened(idle_events=[5, 6])
    made.reserve()
    whole = Opened(idle_events=[])
    whole.reserve()
    assert whole.holder is None
    whole.take(made)
    assert made.holder is None
    whole.reserve()
    whole.close()
    assert handed == [([5, 6], 72)]


def test_a_program_is_detached_alone(closed: list[object]) -> None:
    made = filled(1, closed)
    made.programs = {"a": filled(10, closed), "b": filled(20, closed)}
    made.programs["b"].watchpoint(8).take(filled(30, closed))
    assert [part.links for part in made.parts()] == [[1], [10], [20]]
    made.detach("a")
    made.detach("a")
    assert closed == [10, 11, -12, "step 10"]
    made.unwatch(8)
    assert closed[4:] == [30, 31, -32, "step 30"]
    made.close()
    assert {1, 2, 20, 21, "step 1", "step 20"} <= set(closed)


# ---------------------------------------------------------------------------------------------- sampling clocks


@pytest.mark.parametrize("frequency", [1, 9, 49, 100, 997, 9999])
def test_periods_that_move_keep_the_mean(frequency: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the tracer comes late, by up to a period, and the part of a period is lost that a move restarts."""
    periods: list[int] = []
    monkeypatch.setattr(perf, "set_period", lambda _event, period: periods.append(period))
    mean = 1_000_000_000 // frequency
    chance = random.Random(frequency)
    now, samples = 5_000_000_000, 0
    clock = SamplingClock(3, mean, 150_000_000)
    clock.start(now)
    end = now + 200 * max(mean, 150_000_000)
    while now < end:
        armed, now = now, clock.due + chance.randrange(min(mean, 30_000_000))
        samples += (now - armed) // clock.period
        clock.move(now)
    assert abs(samples - (now - 5_000_000_000) / mean) <= 0.01 * samples + 2
    moved = [period / mean for period in periods[1:]]
    assert 0.4 <= min(moved) < 0.85, "shorter by many per cent"
    assert 1.15 < max(moved) <= 1.8
    assert len(set(periods)) > len(periods) * 0.9


def test_clocks_of_cpus_move_when_they_are_due(monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[int] = []
    monkeypatch.setattr(perf, "set_period", lambda event, _period: moved.append(event))

    def attach(cpu: int, part: Opened) -> None:
        part.events.append(os.open(os.devnull, os.O_RDONLY))

    events = CpuEvents("profile:hz:100", attach, mean=10_000_000)
    for cpu in (0, 1):
        events.add(cpu)
    first, second = (events.clocks[cpu].event for cpu in (0, 1))
    assert moved == [first, second]
    now = time.monotonic_ns() + 20_000_000
    events.clocks[1].due = now + 1_000_000_000
    due = events.move(now)
    assert moved[2:] == [first], "the other one is not due for long"
    assert due == events.clocks[0].due > now
    events.drop(0)
    assert list(events.clocks) == [1]
    assert events.move(now) == now + 1_000_000_000
    events.clocks[1].due = now + 10_000_000
    assert events.move(now) > now + 10_000_000
    assert moved[3:] == [second], "one that is nearly due moves along"
    events.drop(1)
    assert events.move(0) == NEVER


def test_a_clock_whose_cpu_is_offline_stops_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    refused: set[int] = set()
    moved: list[int] = []

    def set_period(event: int, _period: int) -> None:
        if event in refused:
            raise OSError(errno.ENODEV, "offline")
        moved.append(event)

    monkeypatch.setattr(perf, "set_period", set_period)

    def attach(cpu: int, part: Opened) -> None:
        part.events.append(os.open(os.devnull, os.O_RDONLY))

    events = CpuEvents("profile:hz:100", attach, mean=10_000_000)
    for cpu in (0, 1, 2):
        events.add(cpu)
    refused.add(events.clocks[0].event)
    for _ in range(2):
        moved.clear()
        for clock in events.clocks.values():
            clock.armed -= 1_000_000_000
        assert events.move(time.monotonic_ns() + 1_000_000_000) < NEVER
        assert moved == [events.clocks[1].event, events.clocks[2].event]
    events.drop(1)
    events.drop(2)
    assert events.move(0) == NEVER
    events.drop(0)
    monkeypatch.setattr(CpuEvents, "drop", lambda *_: None)
    refused.update(range(100))
    with pytest.raises(OSError, match="offline"):
        events.add(1)
    assert not events.clocks, "nothing is left of a clock that could not start"
