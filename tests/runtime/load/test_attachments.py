"""Attachments in general: one for each kind, links that are kept open, and what a refusal says."""

from __future__ import annotations

import errno
import os
import random
import signal
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from pytrace.core.manifest import Target
from pytrace.core.probe_kinds import PROBE_KINDS, SYSTEM_CALLS, NoTarget, TracepointTarget, UserTarget
from pytrace.runtime.load import attachments, probe_links
from pytrace.runtime.load import probe_links as opened_opened
from pytrace.runtime.load.attachments import ATTACHERS
from pytrace.runtime.load.probe_links import (
    NEVER_DUE,
    Attached,
    AttachOptions,
    CannotAttachError,
    CpuEvents,
    Job,
    MissReader,
    Opened,
    RefusedTarget,
    SamplingClock,
    link_misses,
    profile_misses,
)
from pytrace.runtime.machine import bpf, fingerprints, perf
from tests.support import attach_mutants
from tests.support.attach_requests import PROGRAM, Kernel, attached, job, kernel, spec
from tests.support.rows import each_row
from tests.support.waiting import open_descriptors

# ---------------------------------------------------------------------------------------------- attachments
# The table of attachers is complete; services of the script's programs attach first.


def test_every_probe_kind_that_attaches_has_an_attacher() -> None:
    assert set(ATTACHERS) == {row.name for row in PROBE_KINDS if not row.special}


@each_row("kind", ATTACHERS)
def test_attacher_exists(kind: str) -> None:
    assert callable(ATTACHERS[kind](kind))


def test_services_attach_first_and_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def note(job: Any, _opened: Any) -> list[Any]:
        order.append(job.spec.symbol)
        return [attachments.Attached(job.spec, target) for target in job.spec.targets]

    monkeypatch.setitem(ATTACHERS, "tracepoint", lambda _kind: note)
    event = (Target("tracepoint:sched:x", 0, TracepointTarget("sched", "x")),)
    done = attached(spec("script", "tracepoint", event), spec("fork", "tracepoint", event, service=True))
    assert order == ["fork", "script"]
    assert [item.spec.symbol for item in done.attached] == ["script"]


CALLS = [(Target(f"tracepoint:syscalls:{name}", 0, TracepointTarget("syscalls", name)),) for name in ("a", "b")]


@pytest.mark.parametrize("fails", [False, True])
def test_parts_of_a_program_for_system_calls_fare_like_it(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    def attach(job: Any, _opened: Any) -> list[Any]:
        made = attachments.RefusedTarget if fails else lambda target, _why: attachments.Attached(job.spec, target)
        return [made(target, "why") for target in job.spec.targets]

    monkeypatch.setitem(ATTACHERS, "tracepoint", lambda _kind: attach)
    owner = spec("owner", "tracepoint", CALLS[0], multi=SYSTEM_CALLS)
    part = spec("part", "tracepoint", CALLS[1], multi=SYSTEM_CALLS, part_of="owner")
    done = attached(owner, part, missing_probes="warn")
    found = [item.target for item in (done.failures if fails else done.attached)]
    assert found == [CALLS[0][0], CALLS[1][0]]
    assert not (done.attached if fails else done.failures)


# ---------------------------------------------------------------------------------------------- base
# pytrace.runtime.load.probe_links: what becomes of failures, halving of refused sets, and events of CPUs and threads.


TARGETS = tuple(Target(f"kprobe:{name}", number, NoTarget()) for number, name in enumerate("abcdefg"))
PROBE = spec("p", "kprobe", TARGETS)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return kernel(monkeypatch)


@pytest.fixture
def opened() -> Iterator[Opened]:
    made = Opened()
    yield made
    made.close()


# ---------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "user", "events"),
    [
        ({}, None, ()),
        ({"pids": (7, 8)}, 7, (7, 8)),
        ({"pids": (7,), "follow": True}, None, ()),
        ({"pids": (7,), "follow": True, "child": 7}, None, (7,)),
        ({"pids": (7,), "awaits": True}, 7, ()),
        ({"child": 7}, None, ()),
    ],
)
def test_which_process_the_kernel_filters_for(
    options: dict[str, Any], user: int | None, events: tuple[int, ...]
) -> None:
    made = AttachOptions(**options)
    assert (made.uprobe_pid, made.event_pids) == (user, events)


def test_features_must_be_there_and_wanted() -> None:
    made = AttachOptions(disabled=frozenset({"b"}), feature="ab".__contains__)
    assert [made.has(name) for name in "abc"] == [True, False, False]


@pytest.mark.parametrize(
    ("kind", "returns"), [("kprobe", False), ("kretprobe", True), ("uretprobe", True), ("usdt", False)]
)
def test_programs_that_run_at_the_return(kind: str, returns: bool) -> None:
    assert job(spec("p", kind, TARGETS)).returns is returns


def test_return_instructions_are_probed_as_they_are() -> None:
    leaving = Target("uretprobe:/app:main.work", 0, UserTarget("/app", 0x1009, symbol="main.work", leaving=9))
    assert not job(spec("p", "uretprobe", (leaving,))).returns


# ---------------------------------------------------------------------------------------------- failures


def outcome(opened: Opened, error: BaseException | None, cause: BaseException | None = None) -> probe_links.Outcome:
    """What becomes of an attacher that opens a descriptor and then fails."""

    def attach(given: Job, target: Target, own: Opened) -> Attached:
        own.links.append(os.open(os.devnull, os.O_RDONLY))
        if cause is not None:
            try:
                raise cause
            except OSError:
                assert error is not None
                raise error from None
        if error is not None:
            raise error
        return Attached(given.spec, target)

    return probe_links.attempt(attach, job(PROBE), TARGETS[0], opened)


def test_what_was_opened_is_handed_over(opened: Opened) -> None:
    assert outcome(opened, None) == Attached(PROBE, TARGETS[0])
    assert len(opened.links) == 1
    os.fstat(opened.links[0])


def test_a_failure_leaves_nothing_open(opened: Opened) -> None:
    before = len(open_descriptors())
    assert outcome(opened, CannotAttachError("why", hints=["do"], gone=True)) == RefusedTarget(
        TARGETS[0], "why", ("do",), gone=True
    )
    assert opened.links == []
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("error", "cause", "limit"),
    [
        (CannotAttachError("why"), None, False),
        (CannotAttachError("why", limit=True), None, True),
        (CannotAttachError("why"), OSError(errno.ENOSPC, "no space"), True),
        (CannotAttachError("why"), OSError(errno.EINVAL, "no"), False),
        (OSError(errno.EINVAL, "why"), None, False),
        (OSError(errno.EAGAIN, "why"), None, True),
        (OSError(errno.EDQUOT, "why"), None, True),
    ],
)
def test_limits_of_the_machine_are_told_apart(
    opened: Opened, error: Exception, cause: OSError | None, limit: bool
) -> None:
    found = outcome(opened, error, cause)
    assert isinstance(found, RefusedTarget)
    assert (found.reason, found.limit) == ("why", limit)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
@pytest.mark.parametrize("wrapped", [False, True])
def test_what_would_fail_for_all_targets_ends_the_run(opened: Opened, number: int, wrapped: bool) -> None:
    error = OSError(number, os.strerror(number))
    before = len(open_descriptors())
    with pytest.raises(OSError, match=os.strerror(number)):
        outcome(opened, CannotAttachError("why") if wrapped else error, error if wrapped else None)
    assert len(os.listdir("/proc/self/fd")) == before


def test_one_by_one(opened: Opened) -> None:
    def attach(given: Job, target: Target, _own: Opened) -> Attached:
        if target.cookie % 2:
            raise CannotAttachError("odd")
        return Attached(given.spec, target)

    found = probe_links.one_by_one(attach)(job(PROBE), opened)
    assert [isinstance(item, Attached) for item in found] == [True, False, True, False, True, False, True]


@pytest.mark.parametrize(
    ("failures", "message", "hints"),
    [
        ([RefusedTarget(TARGETS[0], "why", ("do",))], "cannot attach kprobe:a: why", 2),
        ([RefusedTarget(TARGETS[0], "why"), RefusedTarget(TARGETS[1], "x"), RefusedTarget(TARGETS[2], "y")],
         "cannot attach kprobe:a: why (and 2 more)", 1),
        # Going on without the probe would not help against a limit.
        ([RefusedTarget(TARGETS[0], "why", ("do",), limit=True)], "cannot attach kprobe:a: why", 1),
    ],
)  # fmt: skip
def test_the_error_for_all_failures(failures: list[RefusedTarget], message: str, hints: int) -> None:
    error = probe_links.failure_error(failures)
    assert error.message == message
    assert len(error.hints) == hints
    assert any("missing_probes" in hint for hint in error.hints) is not failures[0].limit


# ---------------------------------------------------------------------------------------------- one link


class Refusing:
    """A link that the kernel refuses when it has some targets."""

    def __init__(self, *refused: str, number: int = errno.EINVAL) -> None:
        self.refused, self.number = refused, number
        self.sets: list[str] = []

    def __call__(self, targets: Sequence[Target]) -> int:
        names = "".join(target.probe[-1] for target in targets)
        if set(self.refused) & set(names):
            raise OSError(self.number, os.strerror(self.number))
        self.sets.append(names)
        return os.open(os.devnull, os.O_RDONLY)


@pytest.mark.parametrize(
    ("refused", "sets"),
    [("", ["abcdefg"]), ("a", ["bc", "defg"]), ("dg", ["abc", "e", "f"]), ("abcdefg", [])],
)
def test_a_refused_set_is_halved(opened: Opened, refused: str, sets: list[str]) -> None:
    link = Refusing(*refused)
    found = probe_links.in_one_link(
        job(PROBE), TARGETS, link, lambda target, error: RefusedTarget(target, str(error.strerror)), opened
    )
    assert link.sets == sets
    assert len(opened.links) == len(sets)
    failed = [item for item in found if isinstance(item, RefusedTarget)]
    assert [item.target.probe[-1] for item in failed] == list(refused)
    assert {item.reason for item in failed} <= {"Invalid argument"}
    assert [item.target for item in found] == list(TARGETS)


def test_want_of_memory_is_not_the_fault_of_a_target(opened: Opened) -> None:
    link = Refusing("a", number=errno.ENOMEM)
    with pytest.raises(OSError, match="Cannot allocate memory"):
        probe_links.in_one_link(job(PROBE), TARGETS, link, lambda target, _: RefusedTarget(target, "x"), opened)
    assert link.sets == []


# ---------------------------------------------------------------------------------------------- events

ATTR = perf.EventAttr(perf.EventType.SOFTWARE, 1, period=5)
PLACE = Target("profile:hz:9", 7, NoTarget())


@pytest.mark.parametrize(("tracepoint", "kept"), [(False, "events"), (True, "idle_events")])
def test_a_program_by_a_link(fake: Kernel, opened: Opened, tracepoint: bool, kept: str) -> None:
    event = fake.answer("event")()
    probe_links.attach_event(job(PROBE), event, 42, opened, tracepoint=tracepoint)
    assert fake.arguments("link_perf_event") == [(PROGRAM, event, 42)]
    assert getattr(opened, kept) == [event]
    assert opened.events + opened.idle_events == [event]
    assert len(opened.links) == 1


def test_a_program_without_links(fake: Kernel, opened: Opened) -> None:
    event = fake.answer("event")()
    probe_links.attach_event(job(PROBE, lacks=("perf_link",)), event, 42, opened, tracepoint=True)
    assert [name for name, _, _ in fake.asked[1:]] == ["set_bpf"]
    assert fake.arguments("set_bpf") == [(event, PROGRAM)]
    assert (opened.events, opened.idle_events, opened.links) == ([event], [], [])


def test_a_link_that_fails_leaves_the_event_to_its_owner(fake: Kernel, opened: Opened) -> None:
    fake.errors["link_perf_event"] = errno.EINVAL
    event = fake.answer("event")()
    with pytest.raises(OSError, match="Invalid argument"):
        probe_links.attach_event(job(PROBE), event, 0, opened)
    assert opened.events == [event]


def test_an_event_of_each_cpu(fake: Kernel, opened: Opened) -> None:
    probe_links.attach_event_everywhere(job(PROBE), ATTR, PLACE, opened, ())
    assert fake.options("open_event") == [{"cpu": 2}, {"cpu": 5}]
    assert fake.arguments("open_event") == [(ATTR,), (ATTR,)]
    assert [arguments[2] for arguments in fake.arguments("link_perf_event")] == [7, 7]


def test_an_event_of_any_cpu(fake: Kernel, opened: Opened) -> None:
    probe_links.attach_event_on_cpus(job(PROBE), ATTR, PLACE, opened, one=True)
    assert fake.options("open_event") == [{"cpu": 2}]
    (events,) = opened.on_cpus()
    assert (events.probe, events.one, list(events.parts)) == (PLACE.probe, True, [2])


@pytest.mark.parametrize("gone", [True, False])
def test_a_cpu_that_goes_offline_meanwhile_is_passed_over(
    fake: Kernel, opened: Opened, gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, online = fake.answer("open_event"), [2, 5]

    def some(attr: perf.EventAttr, *, cpu: int) -> int:
        if cpu == 2:
            online[:] = [5] if gone else [2, 5]
            raise OSError(errno.ENODEV, "No such device")
        return int(answer(attr, cpu=cpu))

    monkeypatch.setattr(perf, "open_event", some)
    monkeypatch.setattr(perf, "online_cpus", lambda: list(online))
    if gone:
        probe_links.attach_event_everywhere(job(PROBE), ATTR, PLACE, opened, ())
        assert fake.options("open_event") == [{"cpu": 5}]
    else:
        with pytest.raises(OSError, match="No such device"):
            probe_links.attach_event_everywhere(job(PROBE), ATTR, PLACE, opened, ())


@pytest.mark.parametrize("follow", [False, True])
def test_an_event_of_each_thread(
    fake: Kernel, opened: Opened, follow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe_links, "threads", lambda pid: [pid, pid + 1])
    probe_links.attach_event_everywhere(job(PROBE, follow=follow), ATTR, PLACE, opened, (100,))
    assert fake.options("open_event") == [{"pid": 100}, {"pid": 101}]
    assert {arguments[0] for arguments in fake.arguments("open_event")} == {ATTR.inheriting(threads_only=not follow)}


def test_a_thread_that_ends_meanwhile_is_passed_over(
    fake: Kernel, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe_links, "threads", lambda pid: [1, 2, 3])
    answer = fake.answer("open_event")

    def some(attr: perf.EventAttr, *, pid: int) -> int:
        if pid == 2:
            raise ProcessLookupError(errno.ESRCH, "No such process")
        return int(answer(attr, pid=pid))

    monkeypatch.setattr(perf, "open_event", some)
    probe_links.attach_event_everywhere(job(PROBE), ATTR, PLACE, opened, (1,))
    assert fake.options("open_event") == [{"pid": 1}, {"pid": 3}]


def test_threads_of_a_process() -> None:
    found = probe_links.threads(os.getpid())
    assert os.getpid() in found
    assert found == sorted(found)
    with pytest.raises(CannotAttachError, match=f"there is no process {1 << 22 | 1}"):
        probe_links.threads(1 << 22 | 1)


def test_threads_of_a_process_that_ends_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(_path: str) -> list[str]:
        raise ProcessLookupError

    monkeypatch.setattr(os, "listdir", ended)
    with pytest.raises(CannotAttachError, match="there is no process 7"):
        probe_links.threads(7)


# ---------------------------------------------------------------------------------------------- opened
# pytrace.runtime.load.probe_links: who owns what was opened, and the order in which it is closed.


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What is closed, in order."""
    order: list[object] = []
    monkeypatch.setattr(opened_opened, "close_all", order.extend)
    monkeypatch.setattr(opened_opened, "close_later", lambda items, _: order.extend(-item for item in items))
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


def test_ctrl_c_while_they_are_closed(closed: list[object]) -> None:
    made = filled(1, closed)
    made.steps.append(lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        made.close()
    assert "step 1" in closed


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
    monkeypatch.setattr(opened_opened, "link_misses", lambda link: link)
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
    monkeypatch.setattr(fingerprints, "tracefs_root", lambda: str(tmp_path))
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
    opened_opened.close_all(descriptors)
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
    opened_opened.close_all(descriptors)
    assert not _open(descriptors)


@pytest.mark.parametrize("count", [0, 1, 40])
def test_a_kernel_that_does_not_take_them(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: Any, **_options: Any) -> int:
        raise PermissionError

    monkeypatch.setattr(bpf, "map_create", refuse)
    descriptors = _descriptors(count)
    opened_opened.close_later(descriptors)
    assert not _open(descriptors)


def test_the_map_of_a_quick_end_is_made_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run gives up the privilege to make maps once its probes are attached."""
    handed: list[tuple[list[int], int | None]] = []
    monkeypatch.setattr(opened_opened, "_event_holder", lambda entries: 70 + entries)
    monkeypatch.setattr(opened_opened, "close_later", lambda events, holder: handed.append((list(events), holder)))
    monkeypatch.setattr(opened_opened, "close_all", lambda _: None)
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
    assert events.move(0) == NEVER_DUE


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
        assert events.move(time.monotonic_ns() + 1_000_000_000) < NEVER_DUE
        assert moved == [events.clocks[1].event, events.clocks[2].event]
    events.drop(1)
    events.drop(2)
    assert events.move(0) == NEVER_DUE
    events.drop(0)
    monkeypatch.setattr(CpuEvents, "drop", lambda *_: None)
    refused.update(range(100))
    with pytest.raises(OSError, match="offline"):
        events.add(1)
    assert not events.clocks, "nothing is left of a clock that could not start"


def test_the_faults_that_tests_of_attachers_have_to_notice_are_of_today() -> None:
    """Running all of them takes an hour of the test machine: ``python -m tests.support.attach_mutants``."""
    assert not [name for name, mutant in attach_mutants.MUTANTS.items() if not attach_mutants.faulty(mutant)]
