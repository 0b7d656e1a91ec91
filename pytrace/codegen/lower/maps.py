"""Lowering of map operations: reading, assigning and changing entries, and functions on maps."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

from pytrace.codegen.emit import memory, weights
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.module import PERCPU
from pytrace.codegen.ir.values import I1, I64, AtomicOperation, Memory, Number, Operand, Ptr, Scalar, global_pointer
from pytrace.codegen.lower import aggregate_reading, map_access
from pytrace.core.manifest import SLOT_FLAG
from pytrace.core.types import Type
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import MapInfo


def read(e: Emitter, node: nodes.MapRef | nodes.MapIndex) -> Operand:
    """The value of a map or of a map element."""
    info, keys = map_access.info_of(e, node)
    if info.value.aggregate:
        key = map_access.key_pointer(e, info, keys) if info.key is not None else None
        return aggregate_reading.read(e, info, key, e.type(node))
    if info.key is None:
        pointer = map_access.slot_value(e, info)
        return e.memory.load(pointer, info.value) if info.value.scalar else Memory(pointer, info.value)
    return _element(e, node, info, keys)


def _element(e: Emitter, node: nodes.Expr, info: MapInfo, keys: Sequence[nodes.Expr]) -> Operand:
    """The value of an element, reused from an earlier read if this one repeats it."""
    earlier = e.program.repeated.get(node)
    if earlier is not None and earlier in e.reads:
        return Scalar(e.b.load(e.reads[earlier]), info.value)
    operand = map_access.read_key(e, node, info, map_access.key_pointer(e, info, keys))
    if node in e.program.read_again:
        register = e.reads[node] = e.b.register()
        e.b.store(e.memory.number(operand), register)
    return operand


def address(e: Emitter, node: nodes.Expr) -> Ptr:
    """``&@m`` and ``&@m[k]``: the value's address, null if the key is missing."""
    info, keys = map_access.info_of(e, node)
    if info.key is None:
        return map_access.slot_value(e, info)
    return map_access.lookup(e, info, map_access.key_pointer(e, info, keys))


def assign(e: Emitter, node: nodes.Expr, operand: Operand) -> None:
    """Assign a value to a map or element."""
    info, keys = map_access.info_of(e, node)
    if info.key is None:
        if e.foreign.may_sleep() and not info.value.scalar:
            # Others would see half of the value while this program sleeps.
            operand = e.memory.copied(operand, info.value)
        e.memory.write(operand, map_access.slot_value(e, info), info.value)
        map_access.mark_written(e, info)
        return
    operand = e.memory.convert(operand, info.value) if info.value.scalar else operand
    map_access.store_key(e, node, info, map_access.key_pointer(e, info, keys), operand)


def recompute(e: Emitter, node: nodes.MapIndex, new: Callable[[Number], Operand]) -> None:
    """Replace the integer of a key by the result of *new*; the key is evaluated once."""
    info, keys = map_access.info_of(e, node)
    key = map_access.key_pointer(e, info, keys)
    old = e.memory.number(map_access.read_key(e, node, info, key))
    map_access.store_key(e, node, info, key, new(old))


ATOMIC: dict[str, AtomicOperation] = {"+": "add", "|": "or", "&": "and", "^": "xor"}
"""Operators with an atomic BPF instruction; ``-`` adds the negative number."""


def atomic(type_: Type) -> bool:
    """Whether a value can be modified atomically: BPF supports this only for 4 and 8 bytes."""
    return type_.size in (4, 8)


def step(e: Emitter, node: nodes.Expr, by: Number, type_: Type, postfix: bool) -> Operand:
    """``++`` and ``--``, atomic so that no CPU's update is lost."""
    old = change(e, node, "+", by, type_)
    new = old if postfix else e.memory.fit(e.b.add(old, by), type_)
    return Scalar(new, type_)


def change(e: Emitter, node: nodes.Expr, operator: str, by: Number, type_: Type) -> Number:
    """Change a map's integer by an operator of :data:`ATOMIC`. Returns the old value."""
    info, keys = map_access.info_of(e, node)

    def in_place(place: Ptr) -> Number:
        return _change_in_place(e, place, operator, by, type_)

    if info.key is None:
        map_access.mark_written(e, info)
        return in_place(map_access.slot_value(e, info))
    key = map_access.key_pointer(e, info, keys)
    weights.keep(e, info.name, key.pointer)
    place = map_access.lookup(e, info, key)
    result = e.b.register()
    e.b.store(0, result)

    def insert_first() -> None:
        """A missing key counts as 0."""
        with e.temporaries():
            first = e.temporary(8)
            e.memory.store(first, e.memory.fit(0 if operator == "&" else by, info.value), info.value)
            map_access.insert(e, node, info, key, first, lambda address: e.b.store(in_place(address), result))

    map_access.when_found(
        e,
        place,
        lambda: e.b.store(in_place(place), result),
        insert_first,
    )
    return e.b.load(result)


def _change_in_place(e: Emitter, place: Ptr, operator: str, by: Number, type_: Type) -> Number:
    if atomic(type_):
        return e.b.fetch_bits(ATOMIC[operator], place, by, 8 * type_.size, memory.is_signed(type_))
    # Less than 4 bytes, or a bool, which an atomic addition could set to values other than 0 and 1.
    old = e.memory.load(place, type_).value
    e.memory.store(place, e.memory.fit(e.b.op(ATOMIC[operator], old, by), type_), type_)
    return old


def delete(e: Emitter, node: nodes.Node, info: MapInfo, keys: Sequence[nodes.Expr]) -> I1:
    """Delete an entry. Returns an ``i1``, true if it existed."""
    if info.key is None:
        return _reset_slot(e, info)
    operand = map_access.key_operand(e, info.key, keys)
    if map_access.bucketed(info.value):
        existed = aggregate_reading.delete_buckets(e, node, info, operand)
        _check_deleted(e, node, info, e.b.select(existed, 0, -errno.ENOENT))
        return existed
    which, key = map_access.map_symbol(e, info), map_access.key_of(e, info.key, operand, info.key.size)
    weights.take(e, info.name, key, delete=True)
    # Only 32 bits wide, like the result of an update (see map_access).
    error = e.b.fit(e.b.helper(helpers.MAP_DELETE_ELEM, which, key), 32, signed=True)
    _check_deleted(e, node, info, error)
    return e.b.icmp("eq", error, 0)


def _check_deleted(e: Emitter, node: nodes.Node, info: MapInfo, code: Number) -> None:
    """Report a missing key if the script does not use the result; once for each location."""
    if node in e.checked.discarded:
        e.events.check_helper(node, "bpf_map_delete_elem", code, map_name=info.name, most=1)


def _reset_slot(e: Emitter, info: MapInfo) -> I1:
    if not info.value.aggregate:
        place = map_access.slot(e, info)
        was = e.b.truth(e.b.load(place))
        e.memory.zero(place, SLOT_FLAG + info.value.size)
        return was
    result = e.b.register()
    e.b.store(0, result)
    now = map_access.generation(e, info)

    def one(cpu: I64, _leave: Callable[[], None]) -> None:
        start = e.b.offset(global_pointer(PERCPU), e.b.mul(cpu, e.module.late("stride")))
        place = e.b.offset(e.b.offset(start, e.script.layout.slots[info.name]), now)
        e.b.store(e.b.op("or", e.b.load(result), e.b.load(place)), result)
        e.memory.zero(place, SLOT_FLAG + info.value.size)

    e.loops.counted(e.script.layout.copies, one)
    return e.b.truth(e.b.load(result))


def has_key(e: Emitter, node: nodes.Node, info: MapInfo, keys: Sequence[nodes.Expr]) -> I1:
    """``i1``: the key exists (for an unkeyed map: it has been written)."""
    if info.key is None:
        return e.b.truth(e.b.load(map_access.slot(e, info)))
    if map_access.bucketed(info.value):
        return aggregate_reading.has_buckets(e, node, info, map_access.key_operand(e, info.key, keys))
    key = map_access.key_pointer(e, info, keys)
    weights.take(e, info.name, key.pointer)
    pointer = map_access.lookup(e, info, key)
    return e.b.truth(e.b.there(pointer))
