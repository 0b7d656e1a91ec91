"""pytrace.runtime.attach.base: what becomes of failures, halving of refused sets, and events of CPUs and threads."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from pytrace.core.manifest import Target
from pytrace.core.probes.targets import NoTarget, UserTarget
from pytrace.runtime.abi import perf
from pytrace.runtime.attach import base
from pytrace.runtime.attach.base import Attached, AttachOptions, CannotAttachError, Failure, Job
from pytrace.runtime.attach.opened import Opened
from tests.support.attach_requests import PROGRAM, Kernel, job, kernel, spec

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


def outcome(opened: Opened, error: BaseException | None, cause: BaseException | None = None) -> base.Outcome:
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

    return base.attempt(attach, job(PROBE), TARGETS[0], opened)


def test_what_was_opened_is_handed_over(opened: Opened) -> None:
    assert outcome(opened, None) == Attached(PROBE, TARGETS[0])
    assert len(opened.links) == 1
    os.fstat(opened.links[0])


def test_a_failure_leaves_nothing_open(opened: Opened) -> None:
    before = len(os.listdir("/proc/self/fd"))
    assert outcome(opened, CannotAttachError("why", hints=["do"], gone=True)) == Failure(
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
    assert isinstance(found, Failure)
    assert (found.reason, found.limit) == ("why", limit)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
@pytest.mark.parametrize("wrapped", [False, True])
def test_what_would_fail_for_all_targets_ends_the_run(opened: Opened, number: int, wrapped: bool) -> None:
    error = OSError(number, os.strerror(number))
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match=os.strerror(number)):
        outcome(opened, CannotAttachError("why") if wrapped else error, error if wrapped else None)
    assert len(os.listdir("/proc/self/fd")) == before


def test_one_by_one(opened: Opened) -> None:
    def attach(given: Job, target: Target, _own: Opened) -> Attached:
        if target.cookie % 2:
            raise CannotAttachError("odd")
        return Attached(given.spec, target)

    found = base.one_by_one(attach)(job(PROBE), opened)
    assert [isinstance(item, Attached) for item in found] == [True, False, True, False, True, False, True]


@pytest.mark.parametrize(
    ("failures", "message", "hints"),
    [
        ([Failure(TARGETS[0], "why", ("do",))], "cannot attach kprobe:a: why", 2),
        ([Failure(TARGETS[0], "why"), Failure(TARGETS[1], "x"), Failure(TARGETS[2], "y")],
         "cannot attach kprobe:a: why (and 2 more)", 1),
        # Going on without the probe would not help against a limit.
        ([Failure(TARGETS[0], "why", ("do",), limit=True)], "cannot attach kprobe:a: why", 1),
    ],
)  # fmt: skip
def test_the_error_for_all_failures(failures: list[Failure], message: str, hints: int) -> None:
    error = base.failure_error(failures)
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
    found = base.in_one_link(
        job(PROBE), TARGETS, link, lambda target, error: Failure(target, str(error.strerror)), opened
    )
    assert link.sets == sets
    assert len(opened.links) == len(sets)
    failed = [item for item in found if isinstance(item, Failure)]
    assert [item.target.probe[-1] for item in failed] == list(refused)
    assert {item.reason for item in failed} <= {"Invalid argument"}
    assert [item.target for item in found] == list(TARGETS)


def test_want_of_memory_is_not_the_fault_of_a_target(opened: Opened) -> None:
    link = Refusing("a", number=errno.ENOMEM)
    with pytest.raises(OSError, match="Cannot allocate memory"):
        base.in_one_link(job(PROBE), TARGETS, link, lambda target, _: Failure(target, "x"), opened)
    assert link.sets == []


# ---------------------------------------------------------------------------------------------- events

ATTR = perf.EventAttr(perf.EventType.SOFTWARE, 1, period=5)
PLACE = Target("profile:hz:9", 7, NoTarget())


@pytest.mark.parametrize(("tracepoint", "kept"), [(False, "events"), (True, "idle_events")])
def test_a_program_by_a_link(fake: Kernel, opened: Opened, tracepoint: bool, kept: str) -> None:
    event = fake.answer("event")()
    base.attach_event(job(PROBE), event, 42, opened, tracepoint=tracepoint)
    assert fake.arguments("link_perf_event") == [(PROGRAM, event, 42)]
    assert getattr(opened, kept) == [event]
    assert opened.events + opened.idle_events == [event]
    assert len(opened.links) == 1


def test_a_program_without_links(fake: Kernel, opened: Opened) -> None:
    event = fake.answer("event")()
    base.attach_event(job(PROBE, lacks=("perf_link",)), event, 42, opened, tracepoint=True)
    assert [name for name, _, _ in fake.asked[1:]] == ["set_bpf", "enable"]
    assert (fake.arguments("set_bpf"), fake.arguments("enable")) == ([(event, PROGRAM)], [(event,)])
    assert (opened.events, opened.idle_events, opened.links) == ([event], [], [])


def test_a_link_that_fails_leaves_the_event_to_its_owner(fake: Kernel, opened: Opened) -> None:
    fake.errors["link_perf_event"] = errno.EINVAL
    event = fake.answer("event")()
    with pytest.raises(OSError, match="Invalid argument"):
        base.attach_event(job(PROBE), event, 0, opened)
    assert opened.events == [event]


def test_an_event_of_each_cpu(fake: Kernel, opened: Opened) -> None:
    base.attach_event_everywhere(job(PROBE), ATTR, PLACE, opened, ())
    assert fake.options("open_event") == [{"cpu": 2}, {"cpu": 5}]
    assert fake.arguments("open_event") == [(ATTR,), (ATTR,)]
    assert [arguments[2] for arguments in fake.arguments("link_perf_event")] == [7, 7]


def test_an_event_of_any_cpu(fake: Kernel, opened: Opened) -> None:
    base.attach_event_on_cpus(job(PROBE), ATTR, PLACE, opened, one=True)
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
        base.attach_event_everywhere(job(PROBE), ATTR, PLACE, opened, ())
        assert fake.options("open_event") == [{"cpu": 5}]
    else:
        with pytest.raises(OSError, match="No such device"):
            base.attach_event_everywhere(job(PROBE), ATTR, PLACE, opened, ())


@pytest.mark.parametrize("follow", [False, True])
def test_an_event_of_each_thread(
    fake: Kernel, opened: Opened, follow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "threads", lambda pid: [pid, pid + 1])
    base.attach_event_everywhere(job(PROBE, follow=follow), ATTR, PLACE, opened, (100,))
    assert fake.options("open_event") == [{"pid": 100}, {"pid": 101}]
    assert {arguments[0] for arguments in fake.arguments("open_event")} == {ATTR.inheriting(threads_only=not follow)}


def test_a_thread_that_ends_meanwhile_is_passed_over(
    fake: Kernel, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "threads", lambda pid: [1, 2, 3])
    answer = fake.answer("open_event")

    def some(attr: perf.EventAttr, *, pid: int) -> int:
        if pid == 2:
            raise ProcessLookupError(errno.ESRCH, "No such process")
        return int(answer(attr, pid=pid))

    monkeypatch.setattr(perf, "open_event", some)
    base.attach_event_everywhere(job(PROBE), ATTR, PLACE, opened, (1,))
    assert fake.options("open_event") == [{"pid": 1}, {"pid": 3}]


def test_threads_of_a_process() -> None:
    assert os.getpid() in base.threads(os.getpid())
    assert base.threads(os.getpid()) == sorted(base.threads(os.getpid()))
    with pytest.raises(CannotAttachError, match=f"there is no process {1 << 22 | 1}"):
        base.threads(1 << 22 | 1)


def test_threads_of_a_process_that_ends_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(_path: str) -> list[str]:
        raise ProcessLookupError

    monkeypatch.setattr(os, "listdir", ended)
    with pytest.raises(CannotAttachError, match="there is no process 7"):
        base.threads(7)
