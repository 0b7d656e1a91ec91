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
from pytrace.frontend.attach.providers.base import Match, Provider, Scope
from pytrace.frontend.attach.providers.counters import Counter
from pytrace.frontend.attach.providers.functions import KernelProbe
from pytrace.frontend.attach.providers.iterators import Iterator
from pytrace.frontend.attach.providers.special import Named, Plain, Self
from pytrace.frontend.attach.providers.timers import Timer
from pytrace.frontend.attach.providers.tracepoints import RawTracepoint, Tracepoint
from pytrace.frontend.attach.providers.trampolines import Trampoline
from pytrace.frontend.attach.providers.uprobes import UserProbe
from pytrace.frontend.attach.providers.usdt import Usdt
from pytrace.frontend.attach.providers.watchpoints import Watchpoint

__all__ = ["PROVIDERS", "Match", "Provider", "Scope"]

PROVIDERS: dict[str, Provider] = {
    BEGIN: Plain(),
    END: Plain(),
    SELF: Self(),
    TEST: Named(),
    BENCH: Named(),
    KPROBE: KernelProbe(offsets=True),
    KRETPROBE: KernelProbe(offsets=False),
    UPROBE: UserProbe(offsets=True),
    URETPROBE: UserProbe(offsets=False),
    USDT: Usdt(),
    TRACEPOINT: Tracepoint(),
    RAWTRACEPOINT: RawTracepoint(),
    FENTRY: Trampoline(),
    FEXIT: Trampoline(),
    PROFILE: Timer(),
    INTERVAL: Timer(),
    SOFTWARE: Counter(perf_events.SOFTWARE),
    HARDWARE: Counter(perf_events.HARDWARE, "perf_hardware"),
    WATCHPOINT: Watchpoint(),
    ITER: Iterator(),
}

if list(PROVIDERS) != [row.name for row in PROBE_KINDS]:
    raise ValueError("probe table and providers differ")
