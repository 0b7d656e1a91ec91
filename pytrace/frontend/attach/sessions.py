"""Kprobe sessions: one program for entry and return of a function.

A kprobe and a kretprobe on the same functions each need a program, a link and a hook. With kprobe sessions (since 6.10,
``BPF_TRACE_KPROBE_SESSION``) one hook serves both: its program checks whether it runs at entry or return.

Kernels before 6.14 keep the state of running calls in a pool of two entries per CPU and function of the link, and skip
entry and return of a call when the pool is full. A function that sleeps exhausts the pool of a link on that function
alone; the pool of a link on many functions is large enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytrace.core.probes.kinds import KPROBE, KRETPROBE
from pytrace.core.probes.targets import KernelFunctionTarget
from pytrace.frontend.ast.typed_program import KPROBE_SESSION, SESSION_IS_RETURN, ProbeUnit

if TYPE_CHECKING:
    from collections.abc import Hashable

    from pytrace.frontend.attach.providers.base import Scope

ROOM = 16
"""Minimum number of functions of a link whose pool is large enough for concurrent calls."""


def pair(units: list[ProbeUnit], scope: Scope) -> list[ProbeUnit]:
    """The units; exactly one kprobe and one kretprobe on the same functions are marked as a session."""
    if not any(unit.kind.name == KRETPROBE for unit in units) or not _possible(scope):
        return units
    least = ROOM if _has_pool(scope) else 1
    entries, returns = _by_functions(units, KPROBE), _by_functions(units, KRETPROBE)
    replaced: dict[str, ProbeUnit] = {}
    for functions, entry_units in entries.items():
        left = returns.get(functions, [])
        if len(entry_units) == 1 and len(left) == 1 and len(entry_units[0].targets) >= least:
            entry, leaving = entry_units[0], left[0]
            replaced[entry.symbol] = replace(entry, multi=KPROBE_SESSION)
            replaced[leaving.symbol] = replace(leaving, multi=KPROBE_SESSION, part_of=entry.symbol)
    return [replaced.get(unit.symbol, unit) for unit in units]


def _possible(scope: Scope) -> bool:
    return scope.attaching and scope.feature(KPROBE_SESSION) and scope.kernel.function(SESSION_IS_RETURN) is not None


def _has_pool(scope: Scope) -> bool:
    probe = scope.kernel.struct("struct", "fprobe")
    return probe is not None and any(member.name == "rethook" for member in probe.fields)


def _by_functions(units: list[ProbeUnit], kind: str) -> dict[Hashable, list[ProbeUnit]]:
    """Units of a kind by their functions, if all targets are whole functions with names."""
    by_functions: dict[Hashable, list[ProbeUnit]] = {}
    for unit in units:
        if unit.kind.name != kind:
            continue
        places = tuple(target.of(KernelFunctionTarget) for target in unit.targets)
        if all(place.whole for place in places):
            # Ordered, as a program identifies its targets by index.
            by_functions.setdefault(places, []).append(unit)
    return by_functions
