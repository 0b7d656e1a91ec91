"""Equality of values in memory, and floating-point numbers.

BPF has no instructions for floating-point numbers: their bits are loaded, compared and converted. A register holds the
bits of a ``float`` or ``double`` (IEEE 754 binary32, binary64), zero-extended. Everything is computed on those of a
double without branches, so nothing of it multiplies the verifier's paths.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pytrace.codegen.emit import memory
from pytrace.codegen.emit.program import Part
from pytrace.codegen.ir.builder import Builder
from pytrace.codegen.ir.values import I1, I64, TRUE, Memory, Number, Operand, Order, Predicate, Ptr
from pytrace.core.types import Float, Int, Members, Record, String

if TYPE_CHECKING:
    from pytrace.codegen.emit.emitter import Emitter


FOLLOWED_BYTES = 4096
"""Memory up to this size is compared by an inline loop, of which the verifier follows each iteration."""

UNROLLED = 64
"""Memory up to this size is compared without a loop."""

_ONE_BY_ONE = 8
"""Maximum loads from each side that LLVM may keep in registers at the same time."""

_FRACTION = 52
_HIDDEN = 1 << _FRACTION
_EXPONENT = 0x7FF
_BIAS = 1023
_SIGN = -1 << 63
_INFINITY = _EXPONENT << _FRACTION
_MOST, _LEAST = (1 << 63) - 1, -1 << 63
_SIGNED: dict[Order, Predicate] = {"lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge"}


def bits_of(value: float) -> int:
    """The bits of a double, as a signed number."""
    return int(struct.unpack("=q", struct.pack("=d", value))[0])


def _widened(b: Builder, value: Number) -> I64:
    sign = b.op("shl", b.op("lshr", value, 31), 63)
    exponent, fraction = b.op("and", b.op("lshr", value, 23), 0xFF), b.op("and", value, 0x7FFFFF)
    plain = b.op("or", b.op("shl", b.add(exponent, _BIAS - 127), _FRACTION), b.op("shl", fraction, _FRACTION - 23))
    special = b.op("or", _INFINITY, b.op("shl", fraction, _FRACTION - 23))
    # A subnormal float is a normal double; the position of its highest bit is its exponent.
    highest = b.sub(63, b.leading_zeros(b.op("or", fraction, 1)))
    shifted = b.op("and", b.op("shl", fraction, b.op("and", b.sub(_FRACTION, highest), 63)), _HIDDEN - 1)
    small = b.op("or", b.op("shl", b.add(highest, _BIAS - 149), _FRACTION), shifted)
    small = b.select(b.icmp("eq", fraction, 0), 0, small)
    magnitude = b.select(b.icmp("eq", exponent, 0xFF), special, plain)
    magnitude = b.select(b.icmp("eq", exponent, 0), small, magnitude)
    return b.op("or", sign, magnitude)


def _ordered(b: Builder, value: Number) -> tuple[I1, Number]:
    """Whether a double is a number, and a signed integer that compares as it does."""
    magnitude = b.op("and", value, _MOST)
    # The zeros are equal.
    value = b.select(b.icmp("eq", magnitude, 0), 0, value)
    return b.icmp("ule", magnitude, _INFINITY), b.op("xor", value, b.op("lshr", b.op("ashr", value, 63), 1))


def _parts(b: Builder, value: Number) -> tuple[I1, I1, Number, Number]:
    """Of a double: is it negative, is it NaN, its exponent, its fraction with the highest bit."""
    exponent = b.op("and", b.op("lshr", value, _FRACTION), _EXPONENT)
    fraction = b.op("or", b.op("and", value, _HIDDEN - 1), _HIDDEN)
    nan = b.icmp("ugt", b.op("and", value, _MOST), _INFINITY)
    return b.icmp("slt", value, 0), nan, exponent, fraction


def _product(b: Builder, fraction: Number, factor: int) -> tuple[Number, Number]:
    """High and low word of a product of 53 by 62 bits."""
    upper, lower = b.op("lshr", fraction, 32), b.op("and", fraction, 0xFFFFFFFF)
    most, least = factor >> 32, factor & 0xFFFFFFFF
    low, middle, cross, high = b.mul(lower, least), b.mul(lower, most), b.mul(upper, least), b.mul(upper, most)
    total = b.add(b.op("lshr", low, 32), b.add(b.op("and", middle, 0xFFFFFFFF), b.op("and", cross, 0xFFFFFFFF)))
    word = b.op("or", b.op("shl", total, 32), b.op("and", low, 0xFFFFFFFF))
    rest = b.add(b.op("lshr", middle, 32), b.op("lshr", cross, 32))
    return b.add(b.add(high, rest), b.op("lshr", total, 32)), word


class Comparison(Part):
    """Compares values of comparable types."""

    def equal(self, left: Operand, right: Operand) -> I1:
        """``i1``: two values of comparable types are equal."""
        if isinstance(left.type, Float):
            return self.e.floats.equal(left, right)
        if left.type.scalar:
            return self.b.icmp("eq", self.e.memory.number(left), self.e.memory.number(right))
        if isinstance(left.type, Members):
            return self._members(left, right)
        # Strings are padded with NUL to their capacity, so whole words can be compared.
        first, second = self.e.place(left), self.e.place(right)
        return self.bytes_equal(first, second, min(left.type.size, right.type.size))

    def _members(self, left: Operand, right: Operand) -> I1:
        """Compare all scalars first, then the other members while equal, so that the verifier follows these only
        once.
        """
        pairs = list(self._pairs(left, right))
        plain, others = ([pair for pair in pairs if pair[0].type.scalar is scalar] for scalar in (True, False))
        result = TRUE
        for one, other in plain:
            result = self.b.both(result, self.equal(one, other))
        if not others:
            return result
        equal_so_far, done = self.b.register(), self.b.block()
        self.b.store(0, equal_so_far)
        for one, other in others:
            self.b.jump_unless(result, done)
            result = self.equal(one, other)
        self.b.store(self.b.number(result), equal_so_far)
        self.b.jump(done)
        self.b.start(done)
        return self.b.truth(self.b.load(equal_so_far))

    def _pairs(self, left: Operand, right: Operand) -> Iterator[tuple[Operand, Operand]]:
        """Corresponding members; those of records by name."""
        names = left.type.names if isinstance(left.type, Record) else None
        for index in range(len(memory.members_of(left.type)[0])):
            other = right.type.names.index(names[index]) if names and isinstance(right.type, Record) else index
            yield self.e.memory.member_of(left, index), self.e.memory.member_of(right, other)

    def bytes_equal(self, left: Memory, right: Memory, size: int) -> I1:
        """``i1``: the first *size* bytes are equal."""
        align = min(left.align, right.align)
        if align < 8 and size > _ONE_BY_ONE * align:
            left, right, align = self._aligned(left, size), self._aligned(right, size), 8
        if size > FOLLOWED_BYTES:
            return self._long_equal(left, right, size)
        if size > UNROLLED:
            return self._words_equal(left.pointer, right.pointer, size)
        return self.b.icmp("eq", self._difference(left.pointer, right.pointer, size, align), 0)

    def _difference(self, left: Ptr, right: Ptr, size: int, align: int) -> Number:
        """A word that is zero when *size* bytes are equal."""
        difference: Number = 0
        offset = 0
        while offset < size:
            step = min(align, 8)
            while step > size - offset:
                step //= 2
            one, other = (
                self.b.load(self.b.offset(left, offset), 8 * step),
                self.b.load(self.b.offset(right, offset), 8 * step),
            )
            difference = self.b.op("or", difference, self.b.op("xor", one, other))
            offset += step
        return difference

    def _aligned(self, value: Memory, size: int) -> Memory:
        if value.align >= 8:
            return value
        pointer = self.e.temporary(size)
        self.e.memory.copy(pointer, value.pointer, size, value.align)
        return Memory(pointer, value.type)

    def _long_equal(self, left: Memory, right: Memory, size: int) -> I1:
        """For sizes too large to verify iteration by iteration: both sides are copied to scratch memory, for a
        callback.
        """
        rounds = (size + UNROLLED - 1) // UNROLLED
        room = rounds * UNROLLED
        places = [self.e.reserve(room) for _ in (left, right)]
        for side, offset in zip((left, right), places, strict=True):
            self.e.memory.zero(self.e.area(offset + room - UNROLLED), UNROLLED)
            self.e.memory.copy(self.e.area(offset), side.pointer, size, side.align)
        differing = self.e.reserve(8)
        self.b.store(0, self.e.area(differing))

        def body(inner: Emitter, index: I64) -> None:
            distance = inner.b.mul(inner.b.at_most(index, rounds - 1), UNROLLED)
            one, other = (inner.b.offset(inner.area(offset), distance) for offset in places)
            difference = inner.comparison._difference(one, other, UNROLLED, 8)
            with inner.b.when(inner.b.icmp("ne", difference, 0), likely=False):
                inner.b.store(1, inner.area(differing))
                inner.loops.leave()

        self.e.loops.run(self.e.span, rounds, body)
        return self.b.icmp("eq", self.b.load(self.e.area(differing)), 0)

    def _words_equal(self, left: Ptr, right: Ptr, size: int) -> I1:
        result = self.b.register()
        self.b.store(0, result)
        done = self.b.block()
        rest = size % UNROLLED
        if rest:
            # Compared before the loop: the verifier would follow code after it once for each exit of the loop.
            offset = size - rest
            ends = [Memory(self.b.offset(side, offset), String(rest)) for side in (left, right)]
            self.b.jump_unless(self.bytes_equal(ends[0], ends[1], rest), done)
        self.b.store(1, result)

        def step(index: I64, leave: Callable[[], None]) -> None:
            offset = self.b.mul(index, UNROLLED)
            one, other = self.b.offset(left, offset), self.b.offset(right, offset)
            with self.b.when(self.b.icmp("ne", self._difference(one, other, UNROLLED, 8), 0), likely=False):
                self.b.store(0, result)
                leave()

        self.e.loops.counted(size // UNROLLED, step)
        self.b.jump(done)
        self.b.start(done)
        return self.b.truth(self.b.load(result))


class Floats(Part):
    """Computes with floating-point numbers."""

    def double(self, operand: Operand) -> Number:
        """The bits of a floating-point number as a double, which holds each ``float``."""
        value = self.e.memory.number(operand)
        return value if operand.type.size == 8 else _widened(self.b, value)

    def equal(self, left: Operand, right: Operand) -> I1:
        """``i1``: two numbers are equal; NaN is equal to nothing."""
        (number, one), (other, two) = _ordered(self.b, self.double(left)), _ordered(self.b, self.double(right))
        return self.b.both(self.b.both(number, other), self.b.icmp("eq", one, two))

    def compare(self, order: Order, left: Operand, right: Operand) -> I1:
        """``i1``: the order of two numbers; false with NaN."""
        (number, one), (other, two) = _ordered(self.b, self.double(left)), _ordered(self.b, self.double(right))
        return self.b.both(self.b.both(number, other), self.b.icmp(_SIGNED[order], one, two))

    def negated(self, operand: Operand) -> I64:
        """The bits of a number with the other sign, of the same type."""
        return self.b.op("xor", self.e.memory.number(operand), 1 << 31 if operand.type.size == 4 else _SIGN)

    def to_integer(self, operand: Operand, type_: Int) -> I64:
        """The number without its fraction; the nearest value of *type_* outside of its range, 0 for NaN."""
        b = self.b
        negative, nan, exponent, fraction = _parts(b, self.double(operand))
        left = b.op("shl", fraction, b.op("and", b.sub(exponent, _BIAS + _FRACTION), 63))
        right = b.op("lshr", fraction, b.op("and", b.sub(_BIAS + _FRACTION, exponent), 63))
        size = b.select(b.icmp("uge", exponent, _BIAS + _FRACTION), left, right)
        size = b.select(b.icmp("ult", exponent, _BIAS), 0, size)
        unsigned_word = type_.width == 8 and not type_.signed
        # From 2^63 on (2^64 for uint64) the shifts above have lost bits.
        large = b.icmp("uge", exponent, _BIAS + (64 if unsigned_word else 63))
        if unsigned_word:
            size = b.select(negative, 0, b.select(large, -1, size))
            return b.select(nan, 0, size)
        low, high = (_LEAST, _MOST) if type_.width == 8 else (type_.low, type_.high)
        signed = b.select(negative, b.sub(0, size), size)
        signed = b.select(large, b.select(negative, _LEAST, _MOST), signed)
        signed = b.select(b.icmp("sgt", signed, high), high, signed)
        signed = b.select(b.icmp("slt", signed, low), low, signed)
        return b.select(nan, 0, signed)

    def scaled(self, operand: Operand, factor: int) -> I64:
        """The number times *factor* (1 to 2^62) as the nearest int64, halves away from zero; saturated, 0 for NaN."""
        b = self.b
        negative, nan, exponent, fraction = _parts(b, self.double(operand))
        high, low = _product(b, fraction, factor)
        # The product times 2^(exponent - 1075): the binary point is moved to the right, or to the left and half added.
        up = b.sub(exponent, _BIAS + _FRACTION)
        raised = b.op("shl", low, b.op("and", up, 63))
        lost = b.either(
            b.either(b.icmp("ne", high, 0), b.icmp("sgt", up, 10)),
            b.icmp("ne", b.op("lshr", low, b.op("and", b.sub(63, up), 63)), 0),
        )
        down = b.sub(0, up)
        half = b.op("shl", 1, b.op("and", b.sub(down, 1), 63))
        near = b.add(low, half)
        carried = b.add(high, b.number(b.icmp("ult", near, low)))
        within = b.op("shl", carried, b.op("and", b.sub(64, down), 63))
        within = b.op("or", b.op("lshr", near, b.op("and", down, 63)), within)
        within = b.select(b.icmp("eq", down, 64), carried, within)
        wide = b.icmp("ne", b.op("lshr", carried, b.op("and", b.sub(down, 1), 63)), 0)
        beyond = b.op("lshr", b.add(high, half), b.op("and", down, 63))
        beyond = b.select(b.icmp("sgt", down, 120), 0, beyond)
        lowered = b.select(b.icmp("sle", down, 64), b.select(wide, _MOST, within), beyond)
        size = b.select(b.icmp("sge", up, 0), b.select(lost, _MOST, raised), lowered)
        size = b.select(b.icmp("eq", exponent, 0), 0, size)
        saturated = b.icmp("eq", size, _MOST)
        value = b.select(negative, b.select(saturated, _LEAST, b.sub(0, size)), size)
        return b.select(nan, 0, value)
