"""Gates at the start of programs: ``--max-rate`` drops hits that come too fast.

The state of a limit is one number, the time at which the next hit is due (the "theoretical arrival time" of the generic
cell rate algorithm, ITU-T I.371): each hit that runs moves it on by the nanoseconds of a hit, and hits that come
earlier than that by more than a burst are dropped. Hits that are dropped only read it, so CPUs do not contend for it
where the rate is high. The session has written the numbers (:class:`pytrace.core.manifest.RateLimits`).
"""

from __future__ import annotations

from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.emit.program import Script
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.ir_values import global_pointer
from pytrace.codegen.ir.module import SHARED
from pytrace.core.manifest import RATE_LINE
from pytrace.core.probes.kinds import INTERVAL, ITER
from pytrace.frontend.ast.typed_program import ProbeUnit

ATTEMPTS = 8
"""Attempts to take a hit while other CPUs take theirs; after that it is dropped."""

_BURST, _DUE = 8, 16
"""Offsets of the numbers of a limit after the first one."""


def gated(unit: ProbeUnit) -> bool:
    """Whether hits of a unit may be left out: not those of programs that the tracer runs, and of its timers."""
    return not unit.kind.special and unit.kind.name not in (INTERVAL, ITER)


def declare(script: Script) -> None:
    """Place the numbers of gates, if the script has any."""
    units = script.checked.units
    if (script.options.limited or script.checked.config.max_rate) and any(map(gated, units)):
        script.layout.limit_rates(1 + max(unit.index for unit in units))


def limit(e: Emitter) -> None:
    """End the program if its block has run too often lately."""
    rates, unit, b = e.script.layout.rates, e.program.unit, e.b
    if rates is None or not gated(unit):
        return
    line = b.offset(global_pointer(SHARED), rates + RATE_LINE * unit.index)
    over, done = b.block(), b.block()
    each = b.load(line)
    b.jump_if(b.icmp("eq", each, 0), done)
    now = b.helper(helpers.KTIME_GET_NS)
    latest = b.add(now, b.load(b.offset(line, _BURST)))
    place = b.offset(line, _DUE)
    due = b.load(place)
    for _ in range(ATTEMPTS):
        b.jump_if(b.icmp("ugt", due, latest), over)
        start = b.select(b.icmp("ugt", due, now), due, now)
        previous = b.exchange_if(place, due, b.add(start, each))
        b.jump_if(b.icmp("eq", previous, due), done, likely=True)
        due = previous
    b.jump(over)
    b.start(over)
    e.counter("limited", e.program.index)
    e.end()
    b.start(done)
    b.new_prologue()
