"""Gates at the start of programs: ``--budget`` samples hits, ``--max-rate`` drops those that come too fast.

A sampled program runs for one of N hits, at random and independently of others, so that nothing periodic is favoured or
missed; N is its weight, data of the session (:class:`pytrace.core.manifest.Sampling`). As that is to cost little, it is
decided before the condition. The rate is limited after it: hits that a condition leaves out do not count.

The state of a limit is one number, the time at which the next hit is due (the "theoretical arrival time" of the generic
cell rate algorithm, ITU-T I.371): each hit that runs moves it on by the nanoseconds of a hit, and hits that come
earlier than that by more than a burst are dropped. Hits that are dropped only read it, so CPUs do not contend for it
where the rate is high. The session has written the numbers (:class:`pytrace.core.manifest.RateLimits`).
"""

from __future__ import annotations

from pytrace.codegen.emit import map_uses
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.emit.map_uses import gated
from pytrace.codegen.emit.program import Program, Script
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.module import SHARED, SHARED_SECTION
from pytrace.codegen.ir.values import global_pointer
from pytrace.core.manifest import HITS, RATE_LINE, WEIGHT, MapType, SampledUnit, Sampling

ATTEMPTS = 8
"""Attempts to take a hit while other CPUs take theirs; after that it is dropped."""

RANDOM = 1 << 32
"""Random numbers are less than this."""

_BURST, _DUE = 8, 16
"""Offsets of the numbers of a limit after the first one."""


def declare(script: Script) -> None:
    """Place the numbers of gates, if the script has any."""
    units = script.checked.units
    if (script.options.limited or script.checked.config.max_rate) and any(map(gated, units)):
        script.layout.limit_rates(1 + max(unit.index for unit in units))
    if not script.options.sampled or not any(map(gated, units)):
        return
    script.sampling = map_uses.sampling_plan(script.checked)
    script.layout.place_weights(len(units))
    for name in sorted(script.sampling.weighted):
        info = script.checked.maps[name]
        size = info.key.size if info.key is not None else 0
        # Elements that the session removes leave their weights behind.
        attributes = {"type": MapType.LRU_HASH, "key_size": max(size, 1), "value_size": 8}
        script.module.map(map_uses.weights_symbol(name), {**attributes, "max_entries": info.max_entries})


def prepare(program: Program) -> None:
    """Decide how a program is sampled, before its functions are emitted."""
    plan = program.script.sampling
    if plan is not None:
        program.sampled = program.index in plan.sampled
        program.storing, program.reading = plan.storing(program.index), plan.reading(program.index)


def sample(e: Emitter) -> None:
    """End the program for all but one of N hits, and set the weight of this one."""
    program, b = e.program, e.b
    if not program.sampled:
        if program.weighted:
            b.store(1, e.weight)
        return
    offset = (e.script.layout.weights or 0) + WEIGHT * (1 + program.index)
    weight = b.load(b.offset(global_pointer(SHARED), offset))
    b.store(weight, e.weight)
    e.counter(HITS, program.index)
    done = b.block()
    b.jump_if(b.icmp("eq", weight, 1), done, likely=True)
    random = b.op("and", b.helper(helpers.GET_PRANDOM_U32), RANDOM - 1)
    b.jump_if(b.icmp("ult", b.mul(random, weight), RANDOM), done)
    e.end()
    b.start(done)
    b.new_prologue()


def spec(script: Script) -> Sampling | None:
    """Location of the weights and what programs do with maps, for the manifest; None without sampling."""
    plan, offset = script.sampling, script.layout.weights
    if plan is None or offset is None:
        return None
    units = [
        SampledUnit(
            number in plan.sampled,
            bool(plan.reading(number)),
            tuple(sorted(uses.reads | (uses.deletes & plan.linked))),
            tuple(sorted(uses.writes)),
            tuple(sorted(uses.events)),
            tuple(sorted(plan.linked & (uses.reads | uses.writes | uses.deletes))),
        )
        for number, uses in enumerate(plan.uses)
    ]
    return Sampling(SHARED_SECTION, offset, tuple(units))


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
