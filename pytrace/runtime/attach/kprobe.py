"""kprobe and kretprobe: multi links, perf events, or the tracefs interface, whichever the kernel has."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Sequence
from functools import cache

from pytrace.core.manifest import Target
from pytrace.core.probes.targets import KernelFunctionTarget
from pytrace.runtime.attach.base import (
    Attached,
    CannotAttachError,
    Failure,
    Job,
    Outcome,
    attach_event,
    attempt,
    in_one_link,
)
from pytrace.runtime.attach.opened import Opened
from pytrace.runtime.machine import bpf, perf, tracefs
from pytrace.runtime.machine.kernel_functions import Kallsyms
from pytrace.runtime.machine.syscalls import string_memory

_REASONS = {
    errno.ENOENT: "the kernel has no function of that name",
    errno.ESRCH: "the kernel has no function of that name that can be traced",
    errno.EINVAL: "the kernel does not allow a probe there (not traceable, on its blacklist, or not an instruction)",
    errno.EILSEQ: "the offset is not at the start of an instruction",
    errno.EADDRNOTAVAIL: "several functions have that name",
    errno.EOPNOTSUPP: "this kernel cannot probe that function",
    errno.EACCES: "no permission for a perf event, as in containers: use fentry, or several functions in one probe",
}


def attach(job: Job, opened: Opened) -> list[Outcome]:
    """Attach a kprobe or kretprobe program to all its targets."""
    if not job.multi:
        return [attempt(_attach_single, job, target, opened) for target in job.spec.targets]
    targets = job.spec.targets
    if all(_by_name(target.of(KernelFunctionTarget)) for target in targets):
        return in_one_link(job, targets, lambda some: _link_symbols(job, some), _explain, opened)
    return _attach_addresses(job, opened)


def _by_name(place: KernelFunctionTarget) -> bool:
    """Whether the kernel finds a function by its name alone."""
    return place.address is None and not place.module


def _link_symbols(job: Job, targets: Sequence[Target]) -> int:
    return bpf.link_kprobe_multi(
        job.program,
        symbols=[target.of(KernelFunctionTarget).function for target in targets],
        cookies=[target.cookie for target in targets],
        returns=job.returns,
        session=job.multi == "kprobe_session",
    )


def _attach_addresses(job: Job, opened: Opened) -> list[Outcome]:
    """The multi link takes names without their module, so functions of named modules go in by address."""
    found: dict[int, int] = {}
    outcomes: list[Outcome] = []
    known: list[Target] = []
    for target in job.spec.targets:
        try:
            found[target.cookie] = _address(target.of(KernelFunctionTarget))
            known.append(target)
        except CannotAttachError as error:
            outcomes.append(Failure(target, error.reason))

    def link(some: Sequence[Target]) -> int:
        return bpf.link_kprobe_multi(
            job.program,
            addresses=[found[target.cookie] for target in some],
            cookies=[target.cookie for target in some],
            returns=job.returns,
            session=job.multi == "kprobe_session",
        )

    return outcomes + (in_one_link(job, known, link, _explain, opened) if known else [])


def _address(place: KernelFunctionTarget) -> int:
    if place.address is not None:
        return place.address
    address = next(iter(_addresses(place.function, place.module)), 0)
    if not address:
        raise CannotAttachError(_REASONS[errno.ENOENT])
    return address


def _addresses(function: str, module: str) -> list[int]:
    """The addresses of all functions of that name, 0 where the kernel hides them."""
    tail = "" if module in {"", "vmlinux"} else rf"\t\[{re.escape(module)}\]"
    line = rf"(?m)^([0-9a-f]+) [tTwW] {re.escape(function)}{tail}$"
    return [int(found.group(1), 16) for found in re.finditer(line.encode(errors="surrogateescape"), _symbols().text)]


@cache
def _symbols() -> Kallsyms:
    return Kallsyms()


def _explain(target: Target, error: OSError) -> Failure:
    return Failure(target, _reason(error), _hints(target, error))


def _reason(error: OSError) -> str:
    return _REASONS.get(error.errno or 0, str(error.strerror))


def _hints(target: Target, error: OSError) -> tuple[str, ...]:
    """How to probe one of several functions of the same name: by its address."""
    if error.errno != errno.EADDRNOTAVAIL:
        return ()
    kind = target.probe.partition(":")[0]
    name = target.of(KernelFunctionTarget).function
    addresses = [found for found in _addresses(name, "") if found]
    if not addresses:
        return (f"probe one of them by its address in /proc/kallsyms, with --unsafe: {kind}:0xADDRESS",)
    shown = " or ".join(f"{kind}:{address:#x}" for address in addresses[:4])
    return (f"probe one of them by its address, with --unsafe: {shown}",)


def _attach_single(job: Job, target: Target, opened: Opened) -> Attached:
    place = target.of(KernelFunctionTarget)
    try:
        if job.options.has("perf_kprobe") and not (job.returns and _misses_untold(job)):
            event = _open(job, place)
        elif job.options.has("kprobe"):
            from pytrace.runtime.attach import legacy

            event = legacy.open_kprobe(_text(place), returns=job.returns, opened=opened, symbol=job.spec.symbol)
        else:
            raise CannotAttachError(
                "this kernel has no kprobes (CONFIG_KPROBES)",
                hints=("tracepoint, rawtracepoint and fentry probes need no kprobes; see --info",),
            )
        attach_event(job, event, target.cookie, opened)
    except OSError as error:
        raise CannotAttachError(_reason(error), hints=_hints(target, error)) from None
    return Attached(job.spec, target)


def _misses_untold(job: Job) -> bool:
    """Whether this kernel keeps to itself how many returns a perf kretprobe missed (before 6.7): tracefs tells it."""
    if not job.options.has("kprobe") or job.options.has("link_missed"):
        return False
    # Without CAP_DAC_OVERRIDE only root may write there.
    return os.access(f"{tracefs.root()}/kprobe_events", os.W_OK, effective_ids=True)


def _open(job: Job, place: KernelFunctionTarget) -> int:
    name = string_memory(place.function)
    by_address = not _by_name(place)
    config2 = _address(place) + place.offset if by_address else place.offset
    kind = perf.pmu_type("kprobe")
    if kind is None:
        raise CannotAttachError("this kernel has no perf kprobes")
    attr = perf.EventAttr(
        kind,
        config=perf.pmu_bit("kprobe", "retprobe") if job.returns else 0,
        config1=0 if by_address else name.address,
        config2=config2,
    )
    return perf.open_event(attr, cpu=perf.online_cpus()[0])


def _text(place: KernelFunctionTarget) -> str:
    """The probe's place as ``kprobe_events`` writes it."""
    if place.address is not None:
        return hex(place.address)
    module = f"{place.module}:" if place.module else ""
    return f"{module}{place.function}" + (f"+{place.offset}" if place.offset else "")
