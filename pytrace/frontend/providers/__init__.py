"""Providers by probe kind: the front end's half of the probe table."""

from __future__ import annotations

from pytrace.frontend.providers.base import Match, Provider, Scope
from pytrace.frontend.providers.counters import Counter
from pytrace.frontend.providers.functions import KernelProbe
from pytrace.frontend.providers.iterators import Iterator
from pytrace.frontend.providers.special import Named, Plain, Self
from pytrace.frontend.providers.timers import Timer
from pytrace.frontend.providers.tracepoints import RawTracepoint, Tracepoint
from pytrace.frontend.providers.trampolines import Trampoline
from pytrace.frontend.providers.uprobes import UserProbe
from pytrace.frontend.providers.usdt import Usdt
from pytrace.frontend.providers.watchpoints import Watchpoint
from pytrace.perf_events import HARDWARE, SOFTWARE
from pytrace.probes import PROBE_KINDS

__all__ = ["PROVIDERS", "Match", "Provider", "Scope"]

PROVIDERS: dict[str, Provider] = {
    "begin": Plain(),
    "end": Plain(),
    "self": Self(),
    "test": Named(),
    "bench": Named(),
    "kprobe": KernelProbe(offsets=True),
    "kretprobe": KernelProbe(offsets=False),
    "uprobe": UserProbe(offsets=True),
    "uretprobe": UserProbe(offsets=False),
    "usdt": Usdt(),
    "tracepoint": Tracepoint(),
    "rawtracepoint": RawTracepoint(),
    "fentry": Trampoline(),
    "fexit": Trampoline(),
    "profile": Timer(),
    "interval": Timer(),
    "software": Counter(SOFTWARE),
    "hardware": Counter(HARDWARE, "perf_hardware"),
    "watchpoint": Watchpoint(),
    "iter": Iterator(),
}

if list(PROVIDERS) != [row.name for row in PROBE_KINDS]:
    raise ValueError("probe table and providers differ")
