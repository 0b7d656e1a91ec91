"""Comparisons with the values of process filters in the session data."""

from __future__ import annotations

from pytrace.codegen.emit import memory
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.emit.tasks import Task
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.ir_values import I1, Number, global_pointer
from pytrace.codegen.storage.data_sections import SESSION
from pytrace.core.options.process_filters import COMM


def is_any_of(e: Emitter, value: Number, offset: int, count: int) -> I1:
    """Whether *value* is one of the *count* numbers at the offset *offset* of the values."""
    same: Number = 0
    for number in range(count):
        candidate = e.b.load(e.session(SESSION.filters + offset + 8 * number))
        same = e.b.op("or", same, e.b.number(e.b.icmp("eq", value, candidate)))
    return e.b.truth(same)


def is_named(e: Emitter, task: Task, offset: int, count: int) -> I1:
    """Whether *task* has one of the *count* names at the offset *offset* of the values."""
    name = e.b.alloca(COMM)
    # Kernels before 6.3 do not clear the bytes after the NUL (strscpy).
    memory.zero(e, name, COMM, 8)
    task.name(name)
    low, high = e.b.load(name), e.b.load(e.b.offset(name, 8))
    different: Number | None = None
    for number in range(count):
        place = SESSION.filters + offset + COMM * number
        one = e.b.op("xor", low, e.b.load(e.session(place)))
        other = e.b.op("xor", high, e.b.load(e.session(place + 8)))
        differs = e.b.number(e.b.truth(e.b.op("or", one, other)))
        different = differs if different is None else e.b.op("and", different, differs)
    return e.b.icmp("eq", different or 0, 0)


def is_in_map(e: Emitter, number: Number, name: str) -> I1:
    """Whether the 32-bit *number* is a key of the map *name*."""
    e.b.store(number, e.cell, 32)
    missing = e.b.number(e.b.is_null(e.b.helper(helpers.MAP_LOOKUP_ELEM, global_pointer(name), e.cell)))
    return e.b.icmp("eq", missing, 0)
