"""Equality of values in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pytrace.codegen.emit import floats, loops, memory
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir.values import I1, I64, TRUE, Memory, Number, Operand, Ptr
from pytrace.core.types import Float, Members, Record, String

FOLLOWED = 4096
"""Memory up to this size is compared by an inline loop, of which the verifier follows each iteration."""

UNROLLED = 64
"""Memory up to this size is compared without a loop."""

ONE_BY_ONE = 8
"""Maximum loads from each side that LLVM may keep in registers at the same time."""


def equal(e: Emitter, left: Operand, right: Operand) -> I1:
    """``i1``: two values of comparable types are equal."""
    if isinstance(left.type, Float):
        return floats.equal(e, left, right)
    if left.type.scalar:
        return e.b.icmp("eq", memory.number(e, left), memory.number(e, right))
    if isinstance(left.type, Members):
        return _members(e, left, right)
    # Strings are padded with NUL to their capacity, so whole words can be compared.
    first, second = e.place(left), e.place(right)
    return bytes_equal(e, first, second, min(left.type.size, right.type.size))


def _members(e: Emitter, left: Operand, right: Operand) -> I1:
    """Compare all scalars first, then the other members while equal, so that the verifier follows these only once."""
    pairs = list(_pairs(e, left, right))
    plain, others = ([pair for pair in pairs if pair[0].type.scalar is scalar] for scalar in (True, False))
    result = TRUE
    for one, other in plain:
        result = e.b.both(result, equal(e, one, other))
    if not others:
        return result
    equal_so_far, done = e.b.register(), e.b.block()
    e.b.store(0, equal_so_far)
    for one, other in others:
        e.b.jump_unless(result, done)
        result = equal(e, one, other)
    e.b.store(e.b.number(result), equal_so_far)
    e.b.jump(done)
    e.b.start(done)
    return e.b.truth(e.b.load(equal_so_far))


def _pairs(e: Emitter, left: Operand, right: Operand) -> Iterator[tuple[Operand, Operand]]:
    """Corresponding members; those of records by name."""
    names = left.type.names if isinstance(left.type, Record) else None
    for index in range(len(memory.members_of(left.type)[0])):
        other = right.type.names.index(names[index]) if names and isinstance(right.type, Record) else index
        yield memory.member_of(e, left, index), memory.member_of(e, right, other)


def bytes_equal(e: Emitter, left: Memory, right: Memory, size: int) -> I1:
    """``i1``: the first *size* bytes are equal."""
    align = min(left.align, right.align)
    if align < 8 and size > ONE_BY_ONE * align:
        left, right, align = _aligned(e, left, size), _aligned(e, right, size), 8
    if size > FOLLOWED:
        return _long_equal(e, left, right, size)
    if size > UNROLLED:
        return _words_equal(e, left.pointer, right.pointer, size)
    return e.b.icmp("eq", _difference(e, left.pointer, right.pointer, size, align), 0)


def _difference(e: Emitter, left: Ptr, right: Ptr, size: int, align: int) -> Number:
    """A word that is zero when *size* bytes are equal."""
    difference: Number = 0
    offset = 0
    while offset < size:
        step = min(align, 8)
        while step > size - offset:
            step //= 2
        one, other = e.b.load(e.b.offset(left, offset), 8 * step), e.b.load(e.b.offset(right, offset), 8 * step)
        difference = e.b.op("or", difference, e.b.op("xor", one, other))
        offset += step
    return difference


def _aligned(e: Emitter, value: Memory, size: int) -> Memory:
    if value.align >= 8:
        return value
    pointer = e.temporary(size)
    memory.copy(e, pointer, value.pointer, size, value.align)
    return Memory(pointer, value.type)


def _long_equal(e: Emitter, left: Memory, right: Memory, size: int) -> I1:
    """For sizes too large to verify iteration by iteration: both sides are copied to scratch memory, for a callback."""
    rounds = (size + UNROLLED - 1) // UNROLLED
    room = rounds * UNROLLED
    places = [e.reserve(room) for _ in (left, right)]
    for side, offset in zip((left, right), places, strict=True):
        memory.zero(e, e.area(offset + room - UNROLLED), UNROLLED)
        memory.copy(e, e.area(offset), side.pointer, size, side.align)
    differing = e.reserve(8)
    e.b.store(0, e.area(differing))

    def body(inner: Emitter, index: I64) -> None:
        distance = inner.b.mul(inner.b.at_most(index, rounds - 1), UNROLLED)
        one, other = (inner.b.offset(inner.area(offset), distance) for offset in places)
        difference = _difference(inner, one, other, UNROLLED, 8)
        with inner.b.when(inner.b.icmp("ne", difference, 0), likely=False):
            inner.b.store(1, inner.area(differing))
            loops.leave(inner)

    loops.run(e, e.span, rounds, body)
    return e.b.icmp("eq", e.b.load(e.area(differing)), 0)


def _words_equal(e: Emitter, left: Ptr, right: Ptr, size: int) -> I1:
    result = e.b.register()
    e.b.store(0, result)
    done = e.b.block()
    rest = size % UNROLLED
    if rest:
        # Compared before the loop: the verifier would follow code after it once for each exit of the loop.
        offset = size - rest
        ends = [Memory(e.b.offset(side, offset), String(rest)) for side in (left, right)]
        e.b.jump_unless(bytes_equal(e, ends[0], ends[1], rest), done)
    e.b.store(1, result)

    def step(index: I64, leave: Callable[[], None]) -> None:
        offset = e.b.mul(index, UNROLLED)
        one, other = e.b.offset(left, offset), e.b.offset(right, offset)
        with e.b.when(e.b.icmp("ne", _difference(e, one, other, UNROLLED, 8), 0), likely=False):
            e.b.store(0, result)
            leave()

    loops.counted(e, size // UNROLLED, step)
    e.b.jump(done)
    e.b.start(done)
    return e.b.truth(e.b.load(result))


