"""The table of providers, by probe kind."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from pytrace.core.probes import perf_events
from pytrace.core.probes.kinds import (
    BEGIN,
    BENCH,
    END,
    FENTRY,
    FEXIT,
    HARDWARE,
    INTERVAL,
    ITER,
    KPROBE,
    KRETPROBE,
    PROBE_KINDS,
    PROFILE,
    RAWTRACEPOINT,
    SELF,
    SOFTWARE,
    TEST,
    TRACEPOINT,
    UPROBE,
    URETPROBE,
    USDT,
    WATCHPOINT,
)
from pytrace.frontend.attach.providers import (
    functions,
    sampled_events,
    special,
    tracepoints,
    trampolines,
    uprobes,
    usdt,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytrace.frontend.attach.providers.base import Provider

_MAKE: dict[str, Callable[[], Provider]] = {
    BEGIN: special.Plain,
    END: special.Plain,
    SELF: special.Self,
    TEST: special.Named,
    BENCH: special.Named,
    KPROBE: lambda: functions.KernelProbe(offsets=True),
    KRETPROBE: lambda: functions.KernelProbe(offsets=False),
    UPROBE: lambda: uprobes.UserProbe(offsets=True),
    URETPROBE: lambda: uprobes.UserProbe(offsets=False),
    USDT: usdt.Usdt,
    TRACEPOINT: tracepoints.Tracepoint,
    RAWTRACEPOINT: tracepoints.RawTracepoint,
    FENTRY: trampolines.Trampoline,
    FEXIT: trampolines.Trampoline,
    PROFILE: sampled_events.Timer,
    INTERVAL: sampled_events.Timer,
    SOFTWARE: lambda: sampled_events.Counter(perf_events.SOFTWARE),
    HARDWARE: lambda: sampled_events.Counter(perf_events.HARDWARE, "perf_hardware"),
    WATCHPOINT: sampled_events.Watchpoint,
    ITER: tracepoints.Iterator,
}
"""A script uses few kinds; the modules of the others need not run."""

if list(_MAKE) != [row.name for row in PROBE_KINDS]:
    raise ValueError("probe table and providers differ")


@cache
def provider_of(kind: str) -> Provider:
    """The provider of a probe kind, by its name."""
    return _MAKE[kind]()
