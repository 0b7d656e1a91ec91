"""Providers by probe kind: the front end's half of the probe table."""

from __future__ import annotations

from pytrace.core.probes.kinds import PROBE_KINDS
from pytrace.core.probes.perf_events import HARDWARE, SOFTWARE
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
