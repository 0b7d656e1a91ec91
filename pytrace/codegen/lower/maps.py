"""Lowering of map operations: aggregations, reading, assigning and changing entries, functions on maps."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import msgspec

from pytrace.base.dispatch import handles
from pytrace.codegen.emit import memory
from pytrace.codegen.emit.bodies import called_functions
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.emit.program import SESSION, USER_AREA, Part, Script, unit_area
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.module import PERCPU
from pytrace.codegen.ir.values import (
    I1,
    I64,
    AtomicOperation,
    Memory,
    Number,
    Operand,
    Ptr,
    Scalar,
    global_pointer,
    ordering,
)
from pytrace.codegen.lower import map_access
from pytrace.codegen.lower.map_access import Key, MapStorage
from pytrace.core.diagnostics import InternalError
from pytrace.core.manifest import DIGEST, SLOT_FLAG
from pytrace.core.types import Avg, Count, Hist, LHist, Max, Min, Stats, Sum, TSeries, Type
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.nodes import walk
from pytrace.frontend.syntax.typed_program import MapInfo

ATTEMPTS = 8
"""Maximum attempts of an update of ``min`` or ``max``, each of which another program may interrupt."""


class Row(msgspec.Struct, frozen=True):
    """One aggregation.

    *update(kind, place, n)* adds sample *n*; *first(kind, place, n)* writes the value of one sample;
    *merge(kind, total, place)* adds one CPU's value to the ``[value, second]`` registers *total*; *result* returns
    the merged value.
    """

    update: Callable[[Aggregates, Type, Ptr, Number], None]
    first: Callable[[Aggregates, Type, Ptr, Number], None]
    merge: Callable[[Aggregates, Type, tuple[Ptr, Ptr], Ptr], None] | None = None
    result: Callable[[Aggregates, Type, tuple[Ptr, Ptr]], I64] | None = None


# ---------------------------------------------------------------------------------------------- update


def contended(script: Script, info: MapInfo) -> bool:
    """Whether a program that updates the map can be interrupted on its CPU by another one that also updates it.

    Programs that share a scratch area run one at a time on a CPU (see
    :mod:`pytrace.codegen.emit.program`), except for those of user probes.
    """
    if not script.writers:
        for unit in script.checked.units:
            area = unit_area(unit)
            bodies = [unit.body, *(item.body for item in called_functions(script.checked, unit.body))]
            for node in (node for body in bodies for node in walk(body)):
                if isinstance(node, nodes.Assign) and isinstance(node.target, nodes.MapRef | nodes.MapIndex):
                    target = node.target if isinstance(node.target, nodes.MapRef) else node.target.map
                    script.writers.setdefault(target.name, set()).add(area)
    areas = script.writers.get(info.name, set())
    return len(areas) > 1 or USER_AREA in areas


ATOMIC: dict[str, AtomicOperation] = {"+": "add", "|": "or", "&": "and", "^": "xor"}
"""Operators with an atomic BPF instruction; ``-`` adds the negative number."""


def atomic(type_: Type) -> bool:
    """Whether a value can be modified atomically: BPF supports this only for 4 and 8 bytes."""
    return type_.size in (4, 8)


class Aggregates(Part):
    """Adds samples to aggregations, and merges the values of all CPUs."""

    def __init__(self, e: Emitter) -> None:
        super().__init__(e)
        self.storage = MapStorage(e)
        self.weights = self.storage.weights

    # ---------------------------------------------------------------------------------------------- rows

    def _second(self, place: Ptr) -> Ptr:
        return self.b.offset(place, 8)

    def _add_to(self, place: Ptr, by: Number) -> None:
        self.b.store(self.b.add(self.b.load(place), by), place)

    def _add_sample(self, place: Ptr, by: Number) -> None:
        """Add to a value; atomically if other CPUs add to it as well, or another program may interrupt on this CPU."""
        if self.e.contended:
            self.b.atomic_add(place, by)
        else:
            self._add_to(place, by)

    def _count_update(self, _kind: Type, place: Ptr, _n: Number) -> None:
        self._add_sample(place, self.weights.scaled(1))

    def _count_first(self, _kind: Type, place: Ptr, _n: Number) -> None:
        self.b.store(self.weights.scaled(1), place)

    def _sum_update(self, _kind: Type, place: Ptr, n: Number) -> None:
        self._add_sample(place, self.weights.scaled(n))

    def _sum_first(self, _kind: Type, place: Ptr, n: Number) -> None:
        self.b.store(self.weights.scaled(n), place)

    def _pair_update(self, _kind: Type, place: Ptr, n: Number) -> None:
        self._add_sample(place, self.weights.scaled(n))
        self._add_sample(self._second(place), self.weights.scaled(1))

    def _pair_first(self, _kind: Type, place: Ptr, n: Number) -> None:
        self.b.store(self.weights.scaled(n), place)
        self.b.store(self.weights.scaled(1), self._second(place))

    def _rank(self, type_: Type, n: Number) -> I64:
        """Converts a sample to its rank, or a rank to its sample; see :class:`pytrace.core.types.Min`."""
        assert isinstance(type_, Min | Max)
        return self.b.op("xor", n, type_.mask)

    def _extreme_update(self, type_: Type, place: Ptr, n: Number) -> None:
        rank = self._rank(type_, n)
        if self.e.contended:
            self._raise_to(place, rank)
        else:
            with self.b.when(self.b.icmp("ugt", rank, self.b.load(place))):
                self.b.store(rank, place)
        self.b.store(1, self._second(place))

    def _raise_to(self, place: Ptr, rank: Number) -> None:
        """Atomically raise a value to *rank*, if it is smaller.

        An attempt fails only if another program interrupted it and raised the value.
        """
        done = self.b.block()
        old = self.b.load(place)
        for _ in range(ATTEMPTS):
            self.b.jump_unless(self.b.icmp("ugt", rank, old), done)
            previous = self.b.exchange_if(place, old, rank)
            self.b.jump_if(self.b.icmp("eq", previous, old), done, likely=True)
            old = previous
        self.e.counter("collided", self.program.index)
        self.b.jump(done)
        self.b.start(done)

    def _extreme_first(self, type_: Type, place: Ptr, n: Number) -> None:
        self.b.store(self._rank(type_, n), place)
        self.b.store(1, self._second(place))

    def _sum_merge(self, _kind: Type, total: tuple[Ptr, Ptr], place: Ptr) -> None:
        self._add_to(total[0], self.b.load(place))

    def _pair_merge(self, _kind: Type, total: tuple[Ptr, Ptr], place: Ptr) -> None:
        self._add_to(total[0], self.b.load(place))
        self._add_to(total[1], self.b.load(self._second(place)))

    def _extreme_merge(self, _kind: Type, total: tuple[Ptr, Ptr], place: Ptr) -> None:
        rank, best = self.b.load(place), self.b.load(total[0])
        self.b.store(self.b.select(self.b.icmp("ugt", rank, best), rank, best), total[0])
        self.b.store(self.b.op("or", self.b.load(total[1]), self.b.load(self._second(place))), total[1])

    def _extreme_result(self, type_: Type, total: tuple[Ptr, Ptr]) -> I64:
        return self.b.select(self.b.icmp("eq", self.b.load(total[1]), 0), 0, self._rank(type_, self.b.load(total[0])))

    def _plain_result(self, _kind: Type, total: tuple[Ptr, Ptr]) -> I64:
        return self.b.load(total[0])

    def _average(self, type_: Type, total: tuple[Ptr, Ptr]) -> I64:
        value, count = self.b.load(total[0]), self.b.load(total[1])
        divisor = self.b.select(self.b.icmp("eq", count, 0), 1, count)
        assert isinstance(type_, Avg)
        if not type_.signed:
            return self.b.op("udiv", value, divisor)
        negative = self.b.icmp("slt", value, 0)
        size = self.b.op("udiv", self.b.select(negative, self.b.sub(0, value), value), divisor)
        return self.b.select(negative, self.b.sub(0, size), size)

    # ---------------------------------------------------------------------------------------------- buckets

    def log2_bucket(self, type_: Hist, n: Number, signed: bool) -> I64:
        """Bucket number of a value in a log2 histogram."""
        width = 1 << type_.bits
        zeros = self.b.leading_zeros(self.b.op("or", n, 1))
        power = self.b.sub(63 - type_.bits, zeros)
        low = self.b.op("and", self.b.op("lshr", n, self.b.op("and", power, 63)), width - 1)
        high = self.b.op("shl", self.b.add(power, 1), type_.bits)
        large = self.b.add(self.b.op("or", high, low), 1)
        small = self.b.icmp("ult", n, width)
        bucket = self.b.select(small, self.b.add(n, 1), large)
        if signed:
            bucket = self.b.select(self.b.icmp("slt", n, 0), 0, bucket)
        return bucket

    def linear_bucket(self, type_: LHist, n: Number, signed: bool) -> I64:
        """Bucket number of a value in a linear histogram."""
        inside = self.b.add(self.b.op("udiv", self.b.sub(n, type_.low), type_.step), 1)
        above = (type_.high - type_.low) // type_.step + 1
        bucket = self.b.select(self.b.icmp(ordering("gt", signed=signed), n, type_.high), above, inside)
        return self.b.select(self.b.icmp(ordering("lt", signed=signed), n, type_.low), 0, bucket)

    def _series_bucket(self, type_: TSeries) -> tuple[I64, I64, I64]:
        """Ring position, epoch and time of a sample taken now; intervals are aligned to wall-clock time (since
        1970).
        """
        now = self.b.add(self.b.helper(helpers.KTIME_GET_BOOT_NS), self.b.load(self.e.session(SESSION.wall)))
        number = self.b.op("udiv", now, type_.interval)
        return self.b.op("urem", number, type_.count), self.b.add(number, 1), now

    def _series_update(self, type_: TSeries, place: Ptr, n: Number, epoch: Number, now: Number) -> None:
        """Update one interval: ``epoch, value, meta``; an interval of another epoch is restarted."""
        value, meta = self.b.offset(place, 8), self.b.offset(place, 16)
        fresh = self.b.icmp("ne", self.b.load(place), epoch)
        again, start, done = self.b.block(), self.b.block(), self.b.block()
        self.b.branch(fresh, start, again)
        self.b.start(again)
        self._SERIES[type_.reduce](self, type_, value, meta, n, now)
        self.b.jump(done)
        self.b.start(start)
        self.b.store(epoch, place)
        self.b.store(n, value)
        self.b.store(now if not type_.reduce else 1, meta)
        self.b.jump(done)
        self.b.start(done)

    def _series_last(self, _kind: TSeries, value: Ptr, meta: Ptr, n: Number, now: Number) -> None:
        self.b.store(n, value)
        self.b.store(now, meta)

    def _series_add(self, _kind: TSeries, value: Ptr, meta: Ptr, n: Number, _now: Number) -> None:
        self._add_sample(value, n)
        self._add_sample(meta, 1)

    def _series_extreme(self, type_: TSeries, value: Ptr, meta: Ptr, n: Number, _now: Number) -> None:
        old = self.b.load(value)
        predicate = ordering("lt" if type_.reduce == "min" else "gt", signed=type_.signed)
        self.b.store(self.b.select(self.b.icmp(predicate, n, old), n, old), value)
        self._add_to(meta, 1)

    def assign(self, target: nodes.Expr, call: nodes.Call | nodes.Identifier) -> None:
        """Assignment of an aggregation: ``@m = count()``."""
        info, keys = self.storage.info_of(target)
        self.e.contended = info.shared or self.program.postponed or contended(self.script, info)
        sample: Number = 0
        signed = True
        if isinstance(call, nodes.Call) and call.args:
            argument = call.args[0]
            if not isinstance(argument, nodes.Expr):
                raise InternalError("an aggregation takes a value")
            sample = self.e.number(argument)
            signed = memory.is_signed(self.e.type(argument))
        if isinstance(info.value, TSeries):
            self._assign_series(target, info, keys, sample)
        elif isinstance(info.value, Hist | LHist):
            bucket = (
                self.log2_bucket(info.value, sample, signed)
                if isinstance(info.value, Hist)
                else self.linear_bucket(info.value, sample, signed)
            )
            self._assign_bucket(target, info, keys, bucket)
        elif info.key is None:
            self.storage.mark_written(info)
            self.ROWS[type(info.value)].update(self, info.value, self.storage.slot_value(info), sample)
        else:
            self._update_keyed(target, info, self.storage.key_pointer(info, keys), info.value.size, sample)

    def _update_keyed(self, node: nodes.Expr, info: MapInfo, key: Key, size: int, sample: Number) -> None:
        """A look-up and an addition in place; the update helper is called only for a missing key."""
        row = self.ROWS[type(info.value)]
        place = self.storage.lookup(info, key)

        def change(value: Ptr) -> None:
            row.update(self, info.value, value, sample)

        def insert() -> None:
            with self.e.temporaries():
                first = self.e.temporary(size)
                row.first(self, info.value, first, sample)
                self.storage.insert(node, info, key, first, change)

        self.storage.when_found(place, lambda: change(place), insert)

    def _bucket_key(self, info: MapInfo, keys: tuple[nodes.Expr, ...], bucket: Number) -> Key:
        if info.key is None:
            raise InternalError("no key")
        return self.with_bucket(info, self.storage.key_operand(keys), bucket)

    def with_bucket(self, info: MapInfo, operand: Operand, bucket: Number) -> Key:
        """The BPF key of one bucket: the key, padded to 8 bytes, or its digest, and the bucket number."""
        if info.key is None:
            raise InternalError("no key")
        if info.name in self.script.layout.digested:
            key = self.storage.digested(info, operand, DIGEST + map_access.BUCKET)
            self.b.store(bucket, self.b.offset(key.pointer, DIGEST))
            return key
        pointer = self.storage.padded(info, operand, map_access.BUCKET)
        self.b.store(bucket, self.b.offset(pointer, map_access.padded_key(info)))
        return Key(pointer)

    def _assign_bucket(self, node: nodes.Expr, info: MapInfo, keys: tuple[nodes.Expr, ...], bucket: Number) -> None:
        if not isinstance(info.value, Hist | LHist):
            raise InternalError("no buckets")
        if info.key is None:
            self.storage.mark_written(info)
            bounded = self.b.at_most(bucket, info.value.buckets - 1)
            place = self.b.offset(self.storage.slot_value(info), self.b.op("shl", bounded, 3))
            self._count_update(info.value, place, 1)
            return
        self._update_keyed(node, info, self._bucket_key(info, keys, bucket), 8, 1)

    def _assign_series(self, node: nodes.Expr, info: MapInfo, keys: tuple[nodes.Expr, ...], sample: Number) -> None:
        type_ = info.value
        if not isinstance(type_, TSeries):
            raise InternalError("no time series")
        position, epoch, now = self._series_bucket(type_)
        if info.key is None:
            self.storage.mark_written(info)
            bounded = self.b.at_most(position, type_.count - 1)
            place = self.b.offset(self.storage.slot_value(info), self.b.mul(bounded, 24))
            self._series_update(type_, place, sample, epoch, now)
            return
        key = self._bucket_key(info, keys, position)
        place = self.storage.lookup(info, key)

        def change(interval: Ptr) -> None:
            self._series_update(type_, interval, sample, epoch, now)

        def insert() -> None:
            with self.e.temporaries():
                first = self.e.temporary(24)
                for offset, value in enumerate((epoch, sample, now if not type_.reduce else 1)):
                    self.b.store(value, self.b.offset(first, 8 * offset))
                self.storage.insert(node, info, key, first, change)

        self.storage.when_found(place, lambda: change(place), insert)

    def read(self, info: MapInfo, key: Key | None, type_: Type) -> Operand:
        """The value, merged over all CPUs if it is per-CPU: an integer, or one copy of stats."""
        row = self.ROWS[type(info.value)]
        if row.merge is None or row.result is None:
            raise InternalError(f"{info.value} cannot be read")
        total = (self.b.register(), self.b.register())
        for register in total:
            self.b.store(0, register)
        self.each_cpu(info, key, lambda place: row.merge and row.merge(self, info.value, total, place))
        if isinstance(type_, Stats):
            pointer = self.e.temporary(16)
            self.b.store(self.b.load(total[0]), pointer)
            self.b.store(self.b.load(total[1]), self.b.offset(pointer, 8))
            return Memory(pointer, type_)
        return Scalar(row.result(self, info.value, total), type_)

    def each_cpu(self, info: MapInfo, key: Key | None, visit: Callable[[Ptr], None]) -> None:
        """Emit *visit* for each CPU's value, or for the shared one; a missing key is skipped."""
        if key is not None and info.shared:
            self._if_found(self.storage.lookup(info, key), visit)
            return
        now = self.storage.generation(info) if key is None else 0

        def one(cpu: I64, _leave: Callable[[], None]) -> None:
            if key is None:
                start = self.b.offset(global_pointer(PERCPU), self.b.mul(cpu, self.module.late("stride")))
                visit(self.b.offset(self.b.offset(start, self.script.layout.slots[info.name] + SLOT_FLAG), now))
                return
            place = self.b.helper(helpers.MAP_LOOKUP_PERCPU_ELEM, self.storage.map_symbol(info), key.pointer, cpu)
            self._if_found(place, visit)

        self.e.loops.counted(self.script.layout.copies if key is None else self.script.kernel.possible_cpus, one)

    def _if_found(self, place: Ptr, visit: Callable[[Ptr], None]) -> None:
        with self.b.unless(self.b.is_null(place), likely=False):
            visit(place)

    def delete_buckets(self, node: nodes.Node, info: MapInfo, operand: Operand) -> I1:
        """Delete all buckets of a key. Returns an ``i1``, true if the key had any."""

        def one(inner: Emitter, key: Ptr, place: Ptr) -> None:
            error = inner.b.helper(helpers.MAP_DELETE_ELEM, MapStorage(inner).map_symbol(info), key)
            deleted = inner.b.number(inner.b.icmp("eq", error, 0))
            inner.b.store(inner.b.op("or", inner.b.load(place), deleted), place)

        return self._over_buckets(node, info, operand, one)

    def has_buckets(self, node: nodes.Node, info: MapInfo, operand: Operand) -> I1:
        """Whether a key has a bucket, as an ``i1``."""

        def one(inner: Emitter, key: Ptr, place: Ptr) -> None:
            bucket = inner.b.helper(helpers.MAP_LOOKUP_ELEM, MapStorage(inner).map_symbol(info), key)
            with inner.b.unless(inner.b.is_null(bucket)):
                inner.b.store(1, place)
                inner.loops.leave()

        return self._over_buckets(node, info, operand, one)

    def _over_buckets(
        self, node: nodes.Node, info: MapInfo, operand: Operand, visit: Callable[[Emitter, Ptr, Ptr], None]
    ) -> I1:
        """Emit *visit* for each bucket, with its BPF key and the address of the result. Returns the result as an
        ``i1``.
        """
        type_ = info.value
        if not isinstance(type_, Hist | LHist | TSeries):
            raise InternalError("no buckets")
        count = type_.count if isinstance(type_, TSeries) else type_.buckets
        digested = info.name in self.script.layout.digested
        room = DIGEST if digested else map_access.padded_key(info)
        key_offset, result = self.e.reserve(room + map_access.BUCKET), self.e.reserve(8)
        self.e.memory.copy(
            self.e.area(key_offset), self.with_bucket(info, operand, 0).pointer, room + map_access.BUCKET
        )
        self.b.store(0, self.e.area(result))

        def one(inner: Emitter, index: I64) -> None:
            key, place = inner.area(key_offset), inner.area(result)
            inner.b.store(index, inner.b.offset(key, room))
            visit(inner, key, place)

        self.e.loops.run(node.span, count, one)
        return self.b.truth(self.b.load(self.e.area(result)))

    ROWS: ClassVar[Mapping[type[Type], Row]] = {
        Count: Row(_count_update, _count_first, _sum_merge, _plain_result),
        Sum: Row(_sum_update, _sum_first, _sum_merge, _plain_result),
        Avg: Row(_pair_update, _pair_first, _pair_merge, _average),
        Stats: Row(_pair_update, _pair_first, _pair_merge, _plain_result),
        Min: Row(_extreme_update, _extreme_first, _extreme_merge, _extreme_result),
        Max: Row(_extreme_update, _extreme_first, _extreme_merge, _extreme_result),
        Hist: Row(_count_update, _count_first),
        LHist: Row(_count_update, _count_first),
    }

    _SERIES: ClassVar[Mapping[str, Callable[..., None]]] = {
        "": _series_last,
        "sum": _series_add,
        "avg": _series_add,
        "min": _series_extreme,
        "max": _series_extreme,
    }


class Maps(Part):
    """Reads, assigns and changes entries; functions on maps."""

    def __init__(self, e: Emitter) -> None:
        super().__init__(e)
        self.aggregates = Aggregates(e)
        self.storage, self.weights = self.aggregates.storage, self.aggregates.weights

    @handles(nodes.MapRef, nodes.MapIndex)
    def read(self, node: nodes.MapRef | nodes.MapIndex) -> Operand:
        """The value of a map or of a map element."""
        info, keys = self.storage.info_of(node)
        if info.value.aggregate:
            key = self.storage.key_pointer(info, keys) if info.key is not None else None
            return self.aggregates.read(info, key, self.e.type(node))
        if info.key is None:
            pointer = self.storage.slot_value(info)
            return self.e.memory.load(pointer, info.value) if info.value.scalar else Memory(pointer, info.value)
        return self._element(node, info, keys)

    def _element(self, node: nodes.Expr, info: MapInfo, keys: Sequence[nodes.Expr]) -> Operand:
        """The value of an element, reused from an earlier read if this one repeats it."""
        earlier = self.program.repeated.get(node)
        if earlier is not None and earlier in self.e.reads:
            return Scalar(self.b.load(self.e.reads[earlier]), info.value)
        operand = self.storage.read_key(node, info, self.storage.key_pointer(info, keys))
        if node in self.program.read_again:
            register = self.e.reads[node] = self.b.register()
            self.b.store(self.e.memory.number(operand), register)
        return operand

    def address(self, node: nodes.Expr) -> Ptr:
        """``&@m`` and ``&@m[k]``: the value's address, null if the key is missing."""
        info, keys = self.storage.info_of(node)
        if info.key is None:
            return self.storage.slot_value(info)
        return self.storage.lookup(info, self.storage.key_pointer(info, keys))

    def assign(self, node: nodes.Expr, operand: Operand) -> None:
        """Assign a value to a map or element."""
        info, keys = self.storage.info_of(node)
        if info.key is None:
            if self.e.foreign.may_sleep() and not info.value.scalar:
                # Others would see half of the value while this program sleeps.
                operand = self.e.memory.copied(operand, info.value)
            self.e.memory.write(operand, self.storage.slot_value(info), info.value)
            self.storage.mark_written(info)
            return
        operand = self.e.memory.convert(operand, info.value) if info.value.scalar else operand
        self.storage.store_key(node, info, self.storage.key_pointer(info, keys), operand)

    def recompute(self, node: nodes.MapIndex, new: Callable[[Number], Operand]) -> None:
        """Replace the integer of a key by the result of *new*; the key is evaluated once."""
        info, keys = self.storage.info_of(node)
        key = self.storage.key_pointer(info, keys)
        old = self.e.memory.number(self.storage.read_key(node, info, key))
        self.storage.store_key(node, info, key, new(old))

    def step(self, node: nodes.Expr, by: Number, type_: Type, postfix: bool) -> Operand:
        """``++`` and ``--``, atomic so that no CPU's update is lost."""
        old = self.change(node, "+", by, type_)
        new = old if postfix else self.e.memory.fit(self.b.add(old, by), type_)
        return Scalar(new, type_)

    def change(self, node: nodes.Expr, operator: str, by: Number, type_: Type) -> Number:
        """Change a map's integer by an operator of :data:`ATOMIC`. Returns the old value."""
        info, keys = self.storage.info_of(node)

        def in_place(place: Ptr) -> Number:
            return self._change_in_place(place, operator, by, type_)

        if info.key is None:
            self.storage.mark_written(info)
            return in_place(self.storage.slot_value(info))
        key = self.storage.key_pointer(info, keys)
        self.weights.keep(info.name, key.pointer)
        place = self.storage.lookup(info, key)
        result = self.b.register()
        self.b.store(0, result)

        def insert_first() -> None:
            """A missing key counts as 0."""
            with self.e.temporaries():
                first = self.e.temporary(8)
                self.e.memory.store(first, self.e.memory.fit(0 if operator == "&" else by, info.value), info.value)
                self.storage.insert(node, info, key, first, lambda address: self.b.store(in_place(address), result))

        self.storage.when_found(
            place,
            lambda: self.b.store(in_place(place), result),
            insert_first,
        )
        return self.b.load(result)

    def _change_in_place(self, place: Ptr, operator: str, by: Number, type_: Type) -> Number:
        if atomic(type_):
            return self.b.fetch_bits(ATOMIC[operator], place, by, 8 * type_.size, memory.is_signed(type_))
        # Less than 4 bytes, or a bool, which an atomic addition could set to values other than 0 and 1.
        old = self.e.memory.load(place, type_).value
        self.e.memory.store(place, self.e.memory.fit(self.b.op(ATOMIC[operator], old, by), type_), type_)
        return old

    def delete(self, node: nodes.Node, info: MapInfo, keys: Sequence[nodes.Expr]) -> I1:
        """Delete an entry. Returns an ``i1``, true if it existed."""
        if info.key is None:
            return self._reset_slot(info)
        operand = self.storage.key_operand(keys)
        if map_access.bucketed(info.value):
            existed = self.aggregates.delete_buckets(node, info, operand)
            self._check_deleted(node, info, self.b.select(existed, 0, -errno.ENOENT))
            return existed
        which, key = self.storage.map_symbol(info), self.storage.key_of(info.key, operand, info.key.size)
        self.weights.take(info.name, key, delete=True)
        # Only 32 bits wide, like the result of an update (see map_access).
        error = self.b.fit(self.b.helper(helpers.MAP_DELETE_ELEM, which, key), 32, signed=True)
        self._check_deleted(node, info, error)
        return self.b.icmp("eq", error, 0)

    def _check_deleted(self, node: nodes.Node, info: MapInfo, code: Number) -> None:
        """Report a missing key if the script does not use the result; once for each location."""
        if node in self.checked.discarded:
            self.e.events.check_helper(node, "bpf_map_delete_elem", code, map_name=info.name, most=1)

    def _reset_slot(self, info: MapInfo) -> I1:
        if not info.value.aggregate:
            place = self.storage.slot(info)
            was = self.b.truth(self.b.load(place))
            self.e.memory.zero(place, SLOT_FLAG + info.value.size)
            return was
        result = self.b.register()
        self.b.store(0, result)
        now = self.storage.generation(info)

        def one(cpu: I64, _leave: Callable[[], None]) -> None:
            start = self.b.offset(global_pointer(PERCPU), self.b.mul(cpu, self.module.late("stride")))
            place = self.b.offset(self.b.offset(start, self.script.layout.slots[info.name]), now)
            self.b.store(self.b.op("or", self.b.load(result), self.b.load(place)), result)
            self.e.memory.zero(place, SLOT_FLAG + info.value.size)

        self.e.loops.counted(self.script.layout.copies, one)
        return self.b.truth(self.b.load(result))

    def has_key(self, node: nodes.Node, info: MapInfo, keys: Sequence[nodes.Expr]) -> I1:
        """``i1``: the key exists (for an unkeyed map: it has been written)."""
        if info.key is None:
            return self.b.truth(self.b.load(self.storage.slot(info)))
        if map_access.bucketed(info.value):
            return self.aggregates.has_buckets(node, info, self.storage.key_operand(keys))
        key = self.storage.key_pointer(info, keys)
        self.weights.take(info.name, key.pointer)
        pointer = self.storage.lookup(info, key)
        return self.b.truth(self.b.there(pointer))
