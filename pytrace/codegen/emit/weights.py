"""The weight of a hit: how many hits it stands for, as others were left out (:mod:`pytrace.codegen.emit.map_uses`).

A sampled program has the weight that was in effect when it was hit. One that goes on with the value that a sampled one
stored has the weight of that value, which is in a second map with the same key.
"""

from __future__ import annotations

from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.module import SHARED
from pytrace.codegen.ir.values import I1, Number, Ptr, global_pointer


def symbol(name: str) -> str:
    """Name of the map with the weights of a map's values."""
    return f"weights_{name.removeprefix('@')}"


def scaled(e: Emitter, sample: Number) -> Number:
    """A sample times the weight of the hit."""
    if not e.program.weighted:
        return sample
    weight = e.b.load(e.weight)
    return weight if sample == 1 else e.b.mul(sample, weight)


def keep(e: Emitter, name: str, key: Ptr) -> None:
    """A value of the map is stored: store its weight as well."""
    if name in e.program.storing:
        with e.b.when(_sampling(e), likely=False):
            e.b.helper(helpers.MAP_UPDATE_ELEM, global_pointer(symbol(name)), key, e.weight, 0)


def take(e: Emitter, name: str, key: Ptr, *, delete: bool = False) -> None:
    """A value of the map is read or deleted: go on with its weight."""
    if name not in e.program.reading:
        return
    weights = global_pointer(symbol(name))
    with e.b.when(_sampling(e), likely=False):
        place = e.b.helper(helpers.MAP_LOOKUP_ELEM, weights, key)
        with e.b.unless(e.b.is_null(place)):
            e.b.store(e.b.load(place), e.weight)
            if delete:
                e.b.helper(helpers.MAP_DELETE_ELEM, weights, key)


def _sampling(e: Emitter) -> I1:
    """Whether a program of the run has been sampled."""
    return e.b.truth(e.b.load(e.b.offset(global_pointer(SHARED), e.script.layout.weights or 0)))
