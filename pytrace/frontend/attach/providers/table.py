"""The table of providers, by probe kind."""

from __future__ import annotations

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
from pytrace.frontend.attach.providers.base import Provider

PROVIDERS: dict[str, Provider] = {
    BEGIN: special.Plain(),
    END: special.Plain(),
    SELF: special.Self(),
    TEST: special.Named(),
    BENCH: special.Named(),
    KPROBE: functions.KernelProbe(offsets=True),
    KRETPROBE: functions.KernelProbe(offsets=False),
    UPROBE: uprobes.UserProbe(offsets=True),
    URETPROBE: uprobes.UserProbe(offsets=False),
    USDT: usdt.Usdt(),
    TRACEPOINT: tracepoints.Tracepoint(),
    RAWTRACEPOINT: tracepoints.RawTracepoint(),
    FENTRY: trampolines.Trampoline(),
    FEXIT: trampolines.Trampoline(),
    PROFILE: sampled_events.Timer(),
    INTERVAL: sampled_events.Timer(),
    SOFTWARE: sampled_events.Counter(perf_events.SOFTWARE),
    HARDWARE: sampled_events.Counter(perf_events.HARDWARE, "perf_hardware"),
    WATCHPOINT: sampled_events.Watchpoint(),
    ITER: tracepoints.Iterator(),
}
"""Providers by the name of their probe kind; a test checks that there is one for each."""
