"""fentry, fexit and rawtracepoint: programs that were loaded for one place only need a link."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from pytrace.core.diagnostics import InternalError
from pytrace.core.probes.kinds import known_kind
from pytrace.runtime.abi import bpf
from pytrace.runtime.abi.syscalls import ENOTSUPP
from pytrace.runtime.attach.base import Attached, CannotAttachError, Job, one_by_one
from pytrace.runtime.load.loader import ATTACH_TYPES

if TYPE_CHECKING:
    from pytrace.core.manifest import Target
    from pytrace.runtime.attach.opened import Opened

_REASONS = {
    errno.ENOENT: "the function or tracepoint no longer exists in the kernel",
    errno.EBUSY: "something else that excludes BPF programs is already attached to this function",
    errno.E2BIG: "the kernel's limit of programs on this function is reached",
    ENOTSUPP: "this kernel cannot attach BPF programs to functions (no BPF trampolines)",
    errno.EOPNOTSUPP: "this kernel cannot attach BPF programs to functions (no BPF trampolines)",
}


def _attach(job: Job, target: Target, opened: Opened) -> Attached:
    if len(job.spec.targets) != 1:
        raise InternalError(f"{job.spec.symbol}: a tracing program is loaded for one target, not for many")
    kind = known_kind(job.spec.kind)
    try:
        if target.cookie and job.options.has("tracing_cookie"):
            link = bpf.link_tracing(job.program, ATTACH_TYPES[kind.attach_type], target.cookie)
        else:
            link = bpf.raw_tracepoint_open(job.program)
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, str(error.strerror))
        raise CannotAttachError(reason) from None
    opened.links.append(link)
    return Attached(job.spec, target)


attach = one_by_one(_attach)
