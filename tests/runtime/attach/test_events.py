"""pytrace.runtime.attach.events: which perf events are opened, for whom, and what refusals mean."""

from __future__ import annotations

import errno
import os
import struct
from typing import Any

import pytest

from pytrace.core.manifest import Target
from pytrace.core.probes.kinds import HARDWARE_EVENTS
from pytrace.core.probes.targets import CountedEventTarget, ProbeTarget, TimerTarget, WatchpointTarget
from pytrace.runtime.abi import perf
from pytrace.runtime.attach import base
from pytrace.runtime.attach.base import Attached, Attacher, Failure, Outcome
from pytrace.runtime.attach.events import ATTACHERS
from pytrace.runtime.attach.opened import Opened
from tests.support.attach_requests import Kernel, Requests, attached, catch, job, kernel, spec, target


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    monkeypatch.setattr(perf, "set_period", lambda _event, _period: None)
    return catch(monkeypatch)


def test_processor_events_are_counted_on_each_cpu(requests: Requests) -> None:
    row = next(item for item in HARDWARE_EVENTS if item.name == "cache-misses")
    place = CountedEventTarget("cache-misses", row.config, 5000)
    attached(spec("h", "hardware", (Target("hardware:cache-misses:5000", 0, place),)))
    assert [(pid, cpu) for _, pid, cpu in requests.events] == [(-1, cpu) for cpu in perf.online_cpus()]
    kind, _size, config, period = struct.unpack_from("=IIQQ", requests.events[0][0])
    assert (kind, config, period) == (perf.EventType.HARDWARE, 3, 5000)


def tasks() -> set[int]:
    """Threads of this process; some, of pools that have ended, may be about to end."""
    return {int(name) for name in os.listdir("/proc/self/task")}


@pytest.mark.parametrize(("follow", "threads_only"), [(False, True), (True, False)])
def test_events_of_a_process_are_inherited(requests: Requests, follow: bool, threads_only: bool) -> None:
    target = Target("hardware:instructions:1000", 0, CountedEventTarget("instructions", 1, 1000))
    before = tasks()
    own = os.getpid()
    attached(spec("h", "hardware", (target,)), pids=(own,), child=own if follow else None, follow=follow)
    assert before & tasks() <= {pid for _, pid, _ in requests.events} <= before
    flags = struct.unpack_from("=Q", requests.events[0][0], 40)[0]
    assert flags & perf.FLAG_INHERIT
    assert bool(flags & perf.FLAG_INHERIT_THREAD) == threads_only


def test_programs_look_for_the_descendants_of_a_running_process(requests: Requests) -> None:
    """Which of them have inherited an event cannot be told, and each must be counted once."""
    target = Target("hardware:instructions:1000", 0, CountedEventTarget("instructions", 1, 1000))
    attached(spec("h", "hardware", (target,)), pids=(os.getpid(),), follow=True)
    assert [(pid, cpu) for _, pid, cpu in requests.events] == [(-1, cpu) for cpu in perf.online_cpus()]
    assert not struct.unpack_from("=Q", requests.events[0][0], 40)[0] & perf.FLAG_INHERIT


def test_watchpoints_ask_for_a_breakpoint(requests: Requests) -> None:
    target = Target("watchpoint:0x1000:8:rw", 0, WatchpointTarget(0x1000, 8, "rw"))
    before = tasks()
    attached(spec("w", "watchpoint", (target,)), child=os.getpid())
    head = requests.events[0][0]
    assert struct.unpack_from("=I", head)[0] == perf.EventType.BREAKPOINT
    assert struct.unpack_from("=IQQ", head, 52) == (3, 0x1000, 8)
    assert before & tasks() <= {pid for _, pid, _ in requests.events} <= before


# ---------------------------------------------------------------------------------------------- one target


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    monkeypatch.setattr(perf, "max_sample_rate", lambda: 1000)
    return kernel(monkeypatch)


def single(attacher: Attacher, kind: str, place: ProbeTarget, **options: Any) -> Outcome:
    opened = Opened()
    (found,) = attacher(job(spec("p", kind, (target(place, 9),)), **options), opened)
    opened.close()
    return found


@pytest.mark.parametrize(
    ("timer", "period", "frequency"),
    [(TimerTarget(frequency=99), 99, True), (TimerTarget(period_ns=1_000_000), 1_000_000, False)],
)
def test_clocks_by_frequency_or_period(fake: Kernel, timer: TimerTarget, period: int, frequency: bool) -> None:
    attr = perf.EventAttr(perf.EventType.SOFTWARE, perf.SOFTWARE_CPU_CLOCK, period=period, frequency=frequency)
    assert isinstance(single(ATTACHERS["interval"], "interval", timer, pids=(7,)), Attached)
    assert fake.asked[0] == ("open_event", (attr,), {"cpu": 2}), "one CPU is enough, whatever the process"
    assert isinstance(single(ATTACHERS["profile"], "profile", timer), Attached)
    for pids in ((), (7, 8)):
        assert isinstance(single(ATTACHERS["profile"], "profile", timer, pids=pids), Attached), "CPUs are sampled"
    assert fake.options("open_event")[1:] == [{"cpu": 2}, {"cpu": 5}] * 3
    assert fake.arguments("open_event")[1:] == [(attr,)] * 6
    mean = 1e9 / 99 if frequency else 1e6
    phases = [length / mean for _, length in fake.arguments("set_period")]
    assert all(0.5 <= phase <= 1.5 for phase in phases)
    assert len(set(phases)) == len(phases) == 6


def clock(event: str, period: int) -> CountedEventTarget:
    return CountedEventTarget(event, {"cpu-clock": 0, "page-faults": 2, "task-clock": 1}[event], period)


@pytest.mark.parametrize("place", [TimerTarget(frequency=99), clock("cpu-clock", 10**6), clock("task-clock", 10**5)])
def test_threads_are_sampled_where_cpus_are_refused(
    fake: Kernel, place: TimerTarget | CountedEventTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = fake.answer("open_event")

    def of_threads(attr: perf.EventAttr, *, pid: int = -1, cpu: int = -1) -> int:
        if cpu != -1:
            raise PermissionError(errno.EACCES, "Permission denied")
        return int(answer(attr, pid=pid))

    monkeypatch.setattr(perf, "open_event", of_threads)
    monkeypatch.setattr(base, "threads", lambda pid: [pid, pid + 1])
    kind = "profile" if isinstance(place, TimerTarget) else "software"
    found = single(ATTACHERS[kind], kind, place, pids=(10, 20))
    assert isinstance(found, Attached)
    assert "samples threads, not CPUs (Permission denied)" in found.note
    assert fake.options("open_event") == [{"pid": pid} for pid in (10, 11, 20, 21)]
    assert fake.left_open == []
    assert fake.arguments("set_period") == []
    assert isinstance(single(ATTACHERS[kind], kind, place), Failure), "of all processes nothing else can be sampled"


@pytest.mark.parametrize("place", [clock("cpu-clock", 10**4), clock("page-faults", 10**6)])
def test_what_is_counted_or_very_short_stays_with_threads(
    fake: Kernel, place: CountedEventTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "threads", lambda pid: [pid])
    assert isinstance(single(ATTACHERS["software"], "software", place, pids=(10, 20)), Attached)
    assert fake.options("open_event") == [{"pid": 10}, {"pid": 20}]
    assert fake.arguments("set_period") == []


@pytest.mark.parametrize(
    ("attacher", "kind", "number"),
    [
        (ATTACHERS["software"], "software", perf.EventType.SOFTWARE),
        (ATTACHERS["hardware"], "hardware", perf.EventType.HARDWARE),
    ],
)
def test_events_that_are_counted(fake: Kernel, attacher: Attacher, kind: str, number: perf.EventType) -> None:
    assert isinstance(single(attacher, kind, CountedEventTarget("x", 3, 5000)), Attached)
    assert fake.arguments("open_event")[0] == (perf.EventAttr(number, 3, period=5000),)


def test_watchpoints_are_kept_by_address(fake: Kernel) -> None:
    opened = Opened()
    place = target(WatchpointTarget(0x1000, 8, "w"))
    ATTACHERS["watchpoint"](job(spec("w", "watchpoint", (place,))), opened)
    assert list(opened.watched) == [0x1000]
    assert [list(events.parts) for events in opened.on_cpus()] == [[2, 5]]
    assert len(fake.left_open) == 4
    opened.unwatch(0x1000)
    assert fake.left_open == []


@pytest.mark.parametrize("attacher", [ATTACHERS["interval"], ATTACHERS["profile"]])
@pytest.mark.parametrize(
    ("timer", "number", "reason", "limit"),
    [
        (TimerTarget(frequency=1001), errno.EINVAL, "the kernel samples at most 1000 times a second", True),
        (TimerTarget(frequency=1000), errno.EINVAL, "the kernel does not accept that event, period or address", False),
        (TimerTarget(period_ns=5), errno.EINVAL, "the kernel does not accept that event, period or address", False),
        (TimerTarget(frequency=1001), errno.EBUSY, "the CPU's counters are in use", True),
        (TimerTarget(frequency=9), errno.ENOSPC, "all hardware breakpoints of the CPU are in use", True),
        (TimerTarget(frequency=9), errno.EPERM, "perf_event_open() is refused to this process", False),
    ],
)
def test_refusals_in_words(
    fake: Kernel, attacher: Attacher, timer: TimerTarget, number: int, reason: str, limit: bool
) -> None:
    fake.errors["open_event"] = number
    found = single(attacher, "interval", timer)
    assert isinstance(found, Failure)
    assert (found.reason, found.limit) == (reason, limit)
    assert bool(found.hints) is ("at most" in reason or "refused" in reason)


def test_an_event_that_this_machine_does_not_have(fake: Kernel) -> None:
    fake.errors["open_event"] = errno.ENOENT
    found = single(ATTACHERS["hardware"], "hardware", CountedEventTarget("x", 3, 5000))
    assert isinstance(found, Failure)
    assert found.reason == "this machine's CPU or kernel does not support that event"
