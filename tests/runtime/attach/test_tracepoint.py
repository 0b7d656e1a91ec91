"""pytrace.runtime.attach.tracepoint: the event of a tracepoint's number, on one CPU."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from pytrace.core.diagnostics import InternalError
from pytrace.core.probes.targets import SYSTEM_CALLS, RawTracepointTarget, TracepointTarget, TypedFunctionTarget
from pytrace.runtime.abi import perf
from pytrace.runtime.abi.bpf import AttachType
from pytrace.runtime.abi.syscalls import ENOTSUPP
from pytrace.runtime.attach import tracepoint
from pytrace.runtime.attach.base import Attached, Failure
from pytrace.runtime.attach.opened import Opened
from pytrace.runtime.host import tracefs
from tests.support.attach_requests import PROGRAM, Kernel, job, kernel, spec, target

PLACE = target(TracepointTarget("sched", "exec"), 9)


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "events/sched/exec").mkdir(parents=True)
    (tmp_path / "events/sched/exec/id").write_text("321\n")
    monkeypatch.setattr(tracefs, "root", lambda: str(tmp_path))
    return tmp_path


def test_a_tracepoint_is_an_event_by_number(events: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake, opened = kernel(monkeypatch), Opened()
    program = spec("p", "tracepoint", (PLACE,))
    assert tracepoint.attach(job(program), opened) == [Attached(program, PLACE)]
    attr = perf.EventAttr(perf.EventType.TRACEPOINT, 321, period=1, flags=perf.FLAG_DISABLED)
    assert fake.asked[0] == ("open_event", (attr,), {"cpu": 2})
    assert fake.arguments("link_perf_event") == [(PROGRAM, opened.idle_events[0], 9)]
    opened.close()


def test_a_tracepoint_that_is_not_there(events: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = kernel(monkeypatch)
    missing = target(TracepointTarget("sched", "gone"))
    assert tracepoint.attach(job(spec("p", "tracepoint", (missing,))), Opened()) == [
        Failure(missing, "this kernel has no tracepoint sched:gone")
    ]
    assert fake.asked == []


CALLS = tuple(target(TracepointTarget("syscalls", f"sys_enter_{name}"), at) for at, name in enumerate(("read", "open")))


def test_system_calls_share_a_raw_tracepoint(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, opened = kernel(monkeypatch), Opened()
    program = spec("p", "tracepoint", CALLS, multi=SYSTEM_CALLS)
    assert tracepoint.attach(job(program), opened) == [Attached(program, item) for item in CALLS]
    assert fake.arguments("raw_tracepoint_open") == [(PROGRAM,)]
    assert len(opened.links) == 1
    opened.close()


def test_a_raw_tracepoint_that_the_kernel_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_program: int) -> int:
        raise OSError(errno.EPERM, "Operation not permitted")

    kernel(monkeypatch)
    monkeypatch.setattr(tracepoint.bpf, "raw_tracepoint_open", refuse)
    program = spec("p", "tracepoint", CALLS, multi=SYSTEM_CALLS)
    assert tracepoint.attach(job(program), Opened()) == [Failure(item, "Operation not permitted") for item in CALLS]


# ---------------------------------------------------------------------------------------------- tracing programs

FUNCTION = TypedFunctionTarget("f", "vmlinux")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return kernel(monkeypatch)


@pytest.mark.parametrize(
    ("kind", "attach_type"),
    [
        ("fentry", AttachType.TRACE_FENTRY),
        ("fexit", AttachType.TRACE_FEXIT),
        ("rawtracepoint", AttachType.TRACE_RAW_TP),
    ],
)
def test_a_cookie_needs_a_link_that_has_one(fake: Kernel, kind: str, attach_type: AttachType) -> None:
    place = RawTracepointTarget("e", "vmlinux") if kind == "rawtracepoint" else FUNCTION
    program, opened = spec("p", kind, (target(place, 5),)), Opened()
    assert tracepoint.attach_tracing(job(program), opened) == [Attached(program, program.targets[0])]
    assert fake.asked == [("link_tracing", (PROGRAM, attach_type, 5), {})]
    assert opened.links == fake.opened
    opened.close()


@pytest.mark.parametrize(("cookie", "lacks"), [(0, ()), (5, ("tracing_cookie",))])
def test_the_older_way(fake: Kernel, cookie: int, lacks: tuple[str, ...]) -> None:
    program, opened = spec("p", "fentry", (target(FUNCTION, cookie),)), Opened()
    tracepoint.attach_tracing(job(program, lacks=lacks), opened)
    assert fake.asked == [("raw_tracepoint_open", (PROGRAM,), {})]
    opened.close()


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ENOENT, "no longer exists"),
        (errno.EBUSY, "excludes BPF programs is already attached"),
        (errno.E2BIG, "limit of programs"),
        (ENOTSUPP, "no BPF trampolines"),
        (errno.EOPNOTSUPP, "no BPF trampolines"),
        (errno.EPERM, os.strerror(errno.EPERM)),
    ],
)
def test_refusals_in_words(fake: Kernel, number: int, reason: str) -> None:
    fake.errors["raw_tracepoint_open"] = number
    (found,) = tracepoint.attach_tracing(job(spec("p", "fentry", (target(FUNCTION),))), Opened())
    assert isinstance(found, Failure)
    assert reason in found.reason


def test_a_program_has_one_target(fake: Kernel) -> None:
    program = spec("p", "fentry", (target(FUNCTION), target(FUNCTION, 1)))
    with pytest.raises(InternalError, match="p: a tracing program is loaded for one target, not for many"):
        tracepoint.attach_tracing(job(program), Opened())
