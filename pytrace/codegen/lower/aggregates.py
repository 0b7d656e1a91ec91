"""Lowering of aggregations: adding a sample to this CPU's value, and merging the values of all CPUs."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from pytrace.codegen.emit import memory, weights
from pytrace.codegen.emit.bodies import called_functions
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.emit.program import Script
from pytrace.codegen.emit.storage import SESSION, USER_AREA, unit_area
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.values import I64, Number, Operand, Ptr, ordering
from pytrace.codegen.lower import map_access
from pytrace.codegen.lower.map_access import Key
from pytrace.core.diagnostics import InternalError
from pytrace.core.manifest import DIGEST
from pytrace.core.types import Avg, Count, Hist, LHist, Max, Min, Stats, Sum, TSeries, Type
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.nodes import walk
from pytrace.frontend.syntax.typed_program import MapInfo

ATTEMPTS = 8
"""Maximum attempts of an update of ``min`` or ``max``, each of which another program may interrupt."""


class Row(msgspec.Struct, frozen=True):
    """One aggregation.

    *update(e, kind, place, n)* adds sample *n*; *first(e, kind, place, n)* writes the value of one sample;
    *merge(e, kind, total, place)* adds one CPU's value to the ``[value, second]`` registers *total*; *result* returns
    the merged value.
    """

    update: Callable[[Emitter, Type, Ptr, Number], None]
    first: Callable[[Emitter, Type, Ptr, Number], None]
    merge: Callable[[Emitter, Type, tuple[Ptr, Ptr], Ptr], None] | None = None
    result: Callable[[Emitter, Type, tuple[Ptr, Ptr]], I64] | None = None


# ---------------------------------------------------------------------------------------------- rows


def _second(e: Emitter, place: Ptr) -> Ptr:
    return e.b.offset(place, 8)


def _add_to(e: Emitter, place: Ptr, by: Number) -> None:
    e.b.store(e.b.add(e.b.load(place), by), place)


def _add_sample(e: Emitter, place: Ptr, by: Number) -> None:
    """Add to a value; atomically if other CPUs add to it as well, or another program may interrupt on this CPU."""
    if e.contended:
        e.b.atomic_add(place, by)
    else:
        _add_to(e, place, by)


def _count_update(e: Emitter, _kind: Type, place: Ptr, _n: Number) -> None:
    _add_sample(e, place, weights.scaled(e, 1))


def _count_first(e: Emitter, _kind: Type, place: Ptr, _n: Number) -> None:
    e.b.store(weights.scaled(e, 1), place)


def _sum_update(e: Emitter, _kind: Type, place: Ptr, n: Number) -> None:
    _add_sample(e, place, weights.scaled(e, n))


def _sum_first(e: Emitter, _kind: Type, place: Ptr, n: Number) -> None:
    e.b.store(weights.scaled(e, n), place)


def _pair_update(e: Emitter, _kind: Type, place: Ptr, n: Number) -> None:
    _add_sample(e, place, weights.scaled(e, n))
    _add_sample(e, _second(e, place), weights.scaled(e, 1))


def _pair_first(e: Emitter, _kind: Type, place: Ptr, n: Number) -> None:
    e.b.store(weights.scaled(e, n), place)
    e.b.store(weights.scaled(e, 1), _second(e, place))


def _rank(e: Emitter, type_: Type, n: Number) -> I64:
    """Converts a sample to its rank, or a rank to its sample; see :class:`pytrace.core.types.Min`."""
    assert isinstance(type_, Min | Max)
    return e.b.op("xor", n, type_.mask)


def _extreme_update(e: Emitter, type_: Type, place: Ptr, n: Number) -> None:
    rank = _rank(e, type_, n)
    if e.contended:
        _raise_to(e, place, rank)
    else:
        with e.b.when(e.b.icmp("ugt", rank, e.b.load(place))):
            e.b.store(rank, place)
    e.b.store(1, _second(e, place))


def _raise_to(e: Emitter, place: Ptr, rank: Number) -> None:
    """Atomically raise a value to *rank*, if it is smaller.

    An attempt fails only if another program interrupted it and raised the value.
    """
    done = e.b.block()
    old = e.b.load(place)
    for _ in range(ATTEMPTS):
        e.b.jump_unless(e.b.icmp("ugt", rank, old), done)
        previous = e.b.exchange_if(place, old, rank)
        e.b.jump_if(e.b.icmp("eq", previous, old), done, likely=True)
        old = previous
    e.counter("collided", e.program.index)
    e.b.jump(done)
    e.b.start(done)


def _extreme_first(e: Emitter, type_: Type, place: Ptr, n: Number) -> None:
    e.b.store(_rank(e, type_, n), place)
    e.b.store(1, _second(e, place))


def _sum_merge(e: Emitter, _kind: Type, total: tuple[Ptr, Ptr], place: Ptr) -> None:
    _add_to(e, total[0], e.b.load(place))


def _pair_merge(e: Emitter, _kind: Type, total: tuple[Ptr, Ptr], place: Ptr) -> None:
    _add_to(e, total[0], e.b.load(place))
    _add_to(e, total[1], e.b.load(_second(e, place)))


def _extreme_merge(e: Emitter, _kind: Type, total: tuple[Ptr, Ptr], place: Ptr) -> None:
    rank, best = e.b.load(place), e.b.load(total[0])
    e.b.store(e.b.select(e.b.icmp("ugt", rank, best), rank, best), total[0])
    e.b.store(e.b.op("or", e.b.load(total[1]), e.b.load(_second(e, place))), total[1])


def _extreme_result(e: Emitter, type_: Type, total: tuple[Ptr, Ptr]) -> I64:
    return e.b.select(e.b.icmp("eq", e.b.load(total[1]), 0), 0, _rank(e, type_, e.b.load(total[0])))


def _plain_result(e: Emitter, _kind: Type, total: tuple[Ptr, Ptr]) -> I64:
    return e.b.load(total[0])


def _average(e: Emitter, type_: Type, total: tuple[Ptr, Ptr]) -> I64:
    value, count = e.b.load(total[0]), e.b.load(total[1])
    divisor = e.b.select(e.b.icmp("eq", count, 0), 1, count)
    assert isinstance(type_, Avg)
    if not type_.signed:
        return e.b.op("udiv", value, divisor)
    negative = e.b.icmp("slt", value, 0)
    size = e.b.op("udiv", e.b.select(negative, e.b.sub(0, value), value), divisor)
    return e.b.select(negative, e.b.sub(0, size), size)


ROWS: dict[type[Type], Row] = {
    Count: Row(_count_update, _count_first, _sum_merge, _plain_result),
    Sum: Row(_sum_update, _sum_first, _sum_merge, _plain_result),
    Avg: Row(_pair_update, _pair_first, _pair_merge, _average),
    Stats: Row(_pair_update, _pair_first, _pair_merge, _plain_result),
    Min: Row(_extreme_update, _extreme_first, _extreme_merge, _extreme_result),
    Max: Row(_extreme_update, _extreme_first, _extreme_merge, _extreme_result),
    Hist: Row(_count_update, _count_first),
    LHist: Row(_count_update, _count_first),
}


# ---------------------------------------------------------------------------------------------- buckets


def log2_bucket(e: Emitter, type_: Hist, n: Number, signed: bool) -> I64:
    """Bucket number of a value in a log2 histogram."""
    width = 1 << type_.bits
    zeros = e.b.leading_zeros(e.b.op("or", n, 1))
    power = e.b.sub(63 - type_.bits, zeros)
    low = e.b.op("and", e.b.op("lshr", n, e.b.op("and", power, 63)), width - 1)
    high = e.b.op("shl", e.b.add(power, 1), type_.bits)
    large = e.b.add(e.b.op("or", high, low), 1)
    small = e.b.icmp("ult", n, width)
    bucket = e.b.select(small, e.b.add(n, 1), large)
    if signed:
        bucket = e.b.select(e.b.icmp("slt", n, 0), 0, bucket)
    return bucket


def linear_bucket(e: Emitter, type_: LHist, n: Number, signed: bool) -> I64:
    """Bucket number of a value in a linear histogram."""
    inside = e.b.add(e.b.op("udiv", e.b.sub(n, type_.low), type_.step), 1)
    above = (type_.high - type_.low) // type_.step + 1
    bucket = e.b.select(e.b.icmp(ordering("gt", signed=signed), n, type_.high), above, inside)
    return e.b.select(e.b.icmp(ordering("lt", signed=signed), n, type_.low), 0, bucket)


def _series_bucket(e: Emitter, type_: TSeries) -> tuple[I64, I64, I64]:
    """Ring position, epoch and time of a sample taken now; intervals are aligned to wall-clock time (since 1970)."""
    now = e.b.add(e.b.helper(helpers.KTIME_GET_BOOT_NS), e.b.load(e.session(SESSION.wall)))
    number = e.b.op("udiv", now, type_.interval)
    return e.b.op("urem", number, type_.count), e.b.add(number, 1), now


def _series_update(e: Emitter, type_: TSeries, place: Ptr, n: Number, epoch: Number, now: Number) -> None:
    """Update one interval: ``epoch, value, meta``; an interval of another epoch is restarted."""
    value, meta = e.b.offset(place, 8), e.b.offset(place, 16)
    fresh = e.b.icmp("ne", e.b.load(place), epoch)
    again, start, done = e.b.block(), e.b.block(), e.b.block()
    e.b.branch(fresh, start, again)
    e.b.start(again)
    _SERIES[type_.reduce](e, type_, value, meta, n, now)
    e.b.jump(done)
    e.b.start(start)
    e.b.store(epoch, place)
    e.b.store(n, value)
    e.b.store(now if not type_.reduce else 1, meta)
    e.b.jump(done)
    e.b.start(done)


def _series_last(e: Emitter, _kind: TSeries, value: Ptr, meta: Ptr, n: Number, now: Number) -> None:
    e.b.store(n, value)
    e.b.store(now, meta)


def _series_add(e: Emitter, _kind: TSeries, value: Ptr, meta: Ptr, n: Number, _now: Number) -> None:
    _add_sample(e, value, n)
    _add_sample(e, meta, 1)


def _series_extreme(e: Emitter, type_: TSeries, value: Ptr, meta: Ptr, n: Number, _now: Number) -> None:
    old = e.b.load(value)
    predicate = ordering("lt" if type_.reduce == "min" else "gt", signed=type_.signed)
    e.b.store(e.b.select(e.b.icmp(predicate, n, old), n, old), value)
    _add_to(e, meta, 1)


_SERIES: dict[str, Callable[[Emitter, TSeries, Ptr, Ptr, Number, Number], None]] = {
    "": _series_last,
    "sum": _series_add,
    "avg": _series_add,
    "min": _series_extreme,
    "max": _series_extreme,
}


# ---------------------------------------------------------------------------------------------- update


def contended(script: Script, info: MapInfo) -> bool:
    """Whether a program that updates the map can be interrupted on its CPU by another one that also updates it.

    Programs that share a scratch area run one at a time on a CPU (see
    :mod:`pytrace.codegen.emit.storage`), except for those of user probes.
    """
    if not script.writers:
        for unit in script.checked.units:
            area = unit_area(unit)
            bodies = [unit.body, *(item.body for item in called_functions(script.checked, unit.body))]
            for node in (node for body in bodies for node in walk(body)):
                if isinstance(node, nodes.Assign) and isinstance(node.target, nodes.MapRef | nodes.MapIndex):
                    script.writers.setdefault(maps_name(node.target), set()).add(area)
    areas = script.writers.get(info.name, set())
    return len(areas) > 1 or USER_AREA in areas


def maps_name(node: nodes.MapRef | nodes.MapIndex) -> str:
    """Name of the map that a node refers to."""
    return node.name if isinstance(node, nodes.MapRef) else node.map.name


def assign(e: Emitter, target: nodes.Expr, call: nodes.Call | nodes.Identifier) -> None:
    """Assignment of an aggregation: ``@m = count()``."""
    info, keys = map_access.info_of(e, target)
    e.contended = info.shared or e.program.postponed or contended(e.script, info)
    sample: Number = 0
    signed = True
    if isinstance(call, nodes.Call) and call.args:
        argument = call.args[0]
        if not isinstance(argument, nodes.Expr):
            raise InternalError("an aggregation takes a value")
        sample = e.number(argument)
        signed = memory.is_signed(e.type(argument))
    if isinstance(info.value, TSeries):
        _assign_series(e, target, info, keys, sample)
    elif isinstance(info.value, Hist | LHist):
        bucket = (
            log2_bucket(e, info.value, sample, signed)
            if isinstance(info.value, Hist)
            else linear_bucket(e, info.value, sample, signed)
        )
        _assign_bucket(e, target, info, keys, bucket)
    else:
        _assign_value(e, target, info, keys, sample)


def _assign_value(e: Emitter, node: nodes.Expr, info: MapInfo, keys: tuple[nodes.Expr, ...], sample: Number) -> None:
    row = ROWS[type(info.value)]
    if info.key is None:
        map_access.mark_written(e, info)
        row.update(e, info.value, map_access.slot_value(e, info), sample)
        return
    _update_keyed(e, node, info, map_access.key_pointer(e, info, keys), info.value.size, sample)


def _update_keyed(e: Emitter, node: nodes.Expr, info: MapInfo, key: Key, size: int, sample: Number) -> None:
    """A look-up and an addition in place; the update helper is called only for a missing key."""
    row = ROWS[type(info.value)]
    place = map_access.lookup(e, info, key)

    def change(value: Ptr) -> None:
        row.update(e, info.value, value, sample)

    def insert() -> None:
        with e.temporaries():
            first = e.temporary(size)
            row.first(e, info.value, first, sample)
            map_access.insert(e, node, info, key, first, change)

    map_access.when_found(e, place, lambda: change(place), insert)


def _bucket_key(e: Emitter, info: MapInfo, keys: tuple[nodes.Expr, ...], bucket: Number) -> Key:
    if info.key is None:
        raise InternalError("no key")
    return with_bucket(e, info, map_access.key_operand(e, info.key, keys), bucket)


def with_bucket(e: Emitter, info: MapInfo, operand: Operand, bucket: Number) -> Key:
    """The BPF key of one bucket: the key, padded to 8 bytes, or its digest, and the bucket number."""
    if info.key is None:
        raise InternalError("no key")
    if info.name in e.script.layout.digested:
        key = map_access.digested(e, info, operand, DIGEST + map_access.BUCKET)
        e.b.store(bucket, e.b.offset(key.pointer, DIGEST))
        return key
    pointer = map_access.padded(e, info, operand, map_access.BUCKET)
    e.b.store(bucket, e.b.offset(pointer, map_access.padded_key(info)))
    return Key(pointer)


def _assign_bucket(e: Emitter, node: nodes.Expr, info: MapInfo, keys: tuple[nodes.Expr, ...], bucket: Number) -> None:
    if not isinstance(info.value, Hist | LHist):
        raise InternalError("no buckets")
    if info.key is None:
        map_access.mark_written(e, info)
        bounded = e.b.at_most(bucket, info.value.buckets - 1)
        place = e.b.offset(map_access.slot_value(e, info), e.b.op("shl", bounded, 3))
        _count_update(e, info.value, place, 1)
        return
    _update_keyed(e, node, info, _bucket_key(e, info, keys, bucket), 8, 1)


def _assign_series(e: Emitter, node: nodes.Expr, info: MapInfo, keys: tuple[nodes.Expr, ...], sample: Number) -> None:
    type_ = info.value
    if not isinstance(type_, TSeries):
        raise InternalError("no time series")
    position, epoch, now = _series_bucket(e, type_)
    if info.key is None:
        map_access.mark_written(e, info)
        bounded = e.b.at_most(position, type_.count - 1)
        place = e.b.offset(map_access.slot_value(e, info), e.b.mul(bounded, 24))
        _series_update(e, type_, place, sample, epoch, now)
        return
    key = _bucket_key(e, info, keys, position)
    place = map_access.lookup(e, info, key)

    def change(interval: Ptr) -> None:
        _series_update(e, type_, interval, sample, epoch, now)

    def insert() -> None:
        with e.temporaries():
            first = e.temporary(24)
            for offset, value in enumerate((epoch, sample, now if not type_.reduce else 1)):
                e.b.store(value, e.b.offset(first, 8 * offset))
            map_access.insert(e, node, info, key, first, change)

    map_access.when_found(e, place, lambda: change(place), insert)
