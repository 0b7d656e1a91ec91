"""The table of providers, by probe kind."""

from __future__ import annotations

from pytrace.core.probes import kinds, perf_events
from pytrace.frontend.attach.providers import (
    functions,
    python_functions,
    sampled_events,
    special,
    tracepoints,
    trampolines,
    uprobes,
    usdt,
)
from pytrace.frontend.attach.providers.base import Provider

PROVIDERS: dict[str, Provider] = {
    kinds.BEGIN: special.Plain(),
    kinds.END: special.Plain(),
    kinds.SELF: special.Self(),
    kinds.TEST: special.Named(),
    kinds.BENCH: special.Named(),
    kinds.KPROBE: functions.KernelProbe(offsets=True),
    kinds.KRETPROBE: functions.KernelProbe(offsets=False),
    kinds.UPROBE: uprobes.UserProbe(offsets=True),
    kinds.URETPROBE: uprobes.UserProbe(offsets=False),
    kinds.USDT: usdt.Usdt(),
    kinds.PYTHON: python_functions.PythonFunction(),
    kinds.PYTHONRET: python_functions.PythonFunction(),
    kinds.TRACEPOINT: tracepoints.Tracepoint(),
    kinds.RAWTRACEPOINT: tracepoints.RawTracepoint(),
    kinds.FENTRY: trampolines.Trampoline(),
    kinds.FEXIT: trampolines.Trampoline(),
    kinds.PROFILE: sampled_events.Timer(),
    kinds.INTERVAL: sampled_events.Timer(),
    kinds.SOFTWARE: sampled_events.Counter(perf_events.SOFTWARE),
    kinds.HARDWARE: sampled_events.Counter(perf_events.HARDWARE, "perf_hardware"),
    kinds.WATCHPOINT: sampled_events.Watchpoint(),
    kinds.ITER: tracepoints.Iterator(),
}
"""Providers by the name of their probe kind; a test checks that there is one for each."""
