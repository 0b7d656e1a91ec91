"""pytrace.runtime.attach.tracing: links of programs that were loaded for one place."""

from __future__ import annotations

import errno
import os

import pytest

from pytrace.core.diagnostics import InternalError
from pytrace.core.probes.targets import RawTracepointTarget, TypedFunctionTarget
from pytrace.runtime.abi.bpf import AttachType
from pytrace.runtime.abi.syscalls import ENOTSUPP
from pytrace.runtime.attach import tracing
from pytrace.runtime.attach.base import Attached, Failure
from pytrace.runtime.attach.opened import Opened
from tests.support.attach_requests import PROGRAM, Kernel, job, kernel, spec, target

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
    assert tracing.attach(job(program), opened) == [Attached(program, program.targets[0])]
    assert fake.asked == [("link_tracing", (PROGRAM, attach_type, 5), {})]
    assert opened.links == fake.opened
    opened.close()


@pytest.mark.parametrize(("cookie", "lacks"), [(0, ()), (5, ("tracing_cookie",))])
def test_the_older_way(fake: Kernel, cookie: int, lacks: tuple[str, ...]) -> None:
    program, opened = spec("p", "fentry", (target(FUNCTION, cookie),)), Opened()
    tracing.attach(job(program, lacks=lacks), opened)
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
    (found,) = tracing.attach(job(spec("p", "fentry", (target(FUNCTION),))), Opened())
    assert isinstance(found, Failure)
    assert reason in found.reason


def test_a_program_has_one_target(fake: Kernel) -> None:
    program = spec("p", "fentry", (target(FUNCTION), target(FUNCTION, 1)))
    with pytest.raises(InternalError, match="p: a tracing program is loaded for one target, not for many"):
        tracing.attach(job(program), Opened())
