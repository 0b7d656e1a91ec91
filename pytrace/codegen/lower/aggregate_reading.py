"""Lowering of reads of aggregations: merging the values of all CPUs, and operations on all buckets of a key."""

from __future__ import annotations

from collections.abc import Callable

from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.module import PERCPU
from pytrace.codegen.ir.values import I1, I64, Memory, Operand, Ptr, Scalar, global_pointer
from pytrace.codegen.lower import map_access
from pytrace.codegen.lower.aggregates import ROWS, with_bucket
from pytrace.codegen.lower.map_access import Key
from pytrace.core.diagnostics import InternalError
from pytrace.core.manifest import DIGEST, SLOT_FLAG
from pytrace.core.types import Hist, LHist, Stats, TSeries, Type
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import MapInfo


def read(e: Emitter, info: MapInfo, key: Key | None, type_: Type) -> Operand:
    """The value, merged over all CPUs if it is per-CPU: an integer, or one copy of stats."""
    row = ROWS[type(info.value)]
    if row.merge is None or row.result is None:
        raise InternalError(f"{info.value} cannot be read")
    total = (e.b.register(), e.b.register())
    for register in total:
        e.b.store(0, register)
    each_cpu(e, info, key, lambda place: row.merge and row.merge(e, info.value, total, place))
    if isinstance(type_, Stats):
        pointer = e.temporary(16)
        e.b.store(e.b.load(total[0]), pointer)
        e.b.store(e.b.load(total[1]), e.b.offset(pointer, 8))
        return Memory(pointer, type_)
    return Scalar(row.result(e, info.value, total), type_)


def each_cpu(e: Emitter, info: MapInfo, key: Key | None, visit: Callable[[Ptr], None]) -> None:
    """Emit *visit* for each CPU's value, or for the shared one; a missing key is skipped."""
    if key is not None and info.shared:
        _if_found(e, map_access.lookup(e, info, key), visit)
        return
    now = map_access.generation(e, info) if key is None else 0

    def one(cpu: I64, _leave: Callable[[], None]) -> None:
        if key is None:
            start = e.b.offset(global_pointer(PERCPU), e.b.mul(cpu, e.module.late("stride")))
            visit(e.b.offset(e.b.offset(start, e.script.layout.slots[info.name] + SLOT_FLAG), now))
            return
        place = e.b.helper(helpers.MAP_LOOKUP_PERCPU_ELEM, map_access.map_symbol(e, info), key.pointer, cpu)
        _if_found(e, place, visit)

    e.loops.counted(e.script.layout.copies if key is None else e.script.kernel.possible_cpus, one)


def _if_found(e: Emitter, place: Ptr, visit: Callable[[Ptr], None]) -> None:
    with e.b.unless(e.b.is_null(place), likely=False):
        visit(place)


def delete_buckets(e: Emitter, node: nodes.Node, info: MapInfo, operand: Operand) -> I1:
    """Delete all buckets of a key. Returns an ``i1``, true if the key had any."""
    def one(inner: Emitter, key: Ptr, place: Ptr) -> None:
        error = inner.b.helper(helpers.MAP_DELETE_ELEM, map_access.map_symbol(inner, info), key)
        deleted = inner.b.number(inner.b.icmp("eq", error, 0))
        inner.b.store(inner.b.op("or", inner.b.load(place), deleted), place)

    return _over_buckets(e, node, info, operand, one)


def has_buckets(e: Emitter, node: nodes.Node, info: MapInfo, operand: Operand) -> I1:
    """Whether a key has a bucket, as an ``i1``."""
    def one(inner: Emitter, key: Ptr, place: Ptr) -> None:
        bucket = inner.b.helper(helpers.MAP_LOOKUP_ELEM, map_access.map_symbol(inner, info), key)
        with inner.b.unless(inner.b.is_null(bucket)):
            inner.b.store(1, place)
            inner.loops.leave()

    return _over_buckets(e, node, info, operand, one)


def _over_buckets(
    e: Emitter, node: nodes.Node, info: MapInfo, operand: Operand, visit: Callable[[Emitter, Ptr, Ptr], None]
) -> I1:
    """Emit *visit* for each bucket, with its BPF key and the address of the result. Returns the result as an ``i1``."""
    type_ = info.value
    if not isinstance(type_, Hist | LHist | TSeries):
        raise InternalError("no buckets")
    count = type_.count if isinstance(type_, TSeries) else type_.buckets
    digested = info.name in e.script.layout.digested
    room = DIGEST if digested else map_access.padded_key(info)
    key_offset, result = e.reserve(room + map_access.BUCKET), e.reserve(8)
    e.memory.copy(e.area(key_offset), with_bucket(e, info, operand, 0).pointer, room + map_access.BUCKET)
    e.b.store(0, e.area(result))

    def one(inner: Emitter, index: I64) -> None:
        key, place = inner.area(key_offset), inner.area(result)
        inner.b.store(index, inner.b.offset(key, room))
        visit(inner, key, place)

    e.loops.run(node.span, count, one)
    return e.b.truth(e.b.load(e.area(result)))
