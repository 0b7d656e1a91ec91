"""Floating-point numbers, which BPF has no instructions for: their bits are loaded, compared and converted.

A register holds the bits of a ``float`` or ``double`` (IEEE 754 binary32, binary64), zero-extended. Everything is
computed on those of a double without branches, so nothing of it multiplies the verifier's paths.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from pytrace.codegen.emit import memory
from pytrace.codegen.ir.builder import Builder
from pytrace.codegen.ir.values import I1, I64, Number, Operand, Order, Predicate
from pytrace.core.types import Int

if TYPE_CHECKING:
    from pytrace.codegen.emit.emitter import Emitter
    from pytrace.codegen.ir.builder import Builder
    from pytrace.codegen.ir.values import Operand

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


def double(e: Emitter, operand: Operand) -> Number:
    """The bits of a floating-point number as a double, which holds each ``float``."""
    value = memory.number(e, operand)
    return value if operand.type.size == 8 else _widened(e.b, value)


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


def equal(e: Emitter, left: Operand, right: Operand) -> I1:
    """``i1``: two numbers are equal; NaN is equal to nothing."""
    (number, one), (other, two) = _ordered(e.b, double(e, left)), _ordered(e.b, double(e, right))
    return e.b.both(e.b.both(number, other), e.b.icmp("eq", one, two))


def compare(e: Emitter, order: Order, left: Operand, right: Operand) -> I1:
    """``i1``: the order of two numbers; false with NaN."""
    (number, one), (other, two) = _ordered(e.b, double(e, left)), _ordered(e.b, double(e, right))
    return e.b.both(e.b.both(number, other), e.b.icmp(_SIGNED[order], one, two))


def negated(e: Emitter, operand: Operand) -> I64:
    """The bits of a number with the other sign, of the same type."""
    return e.b.op("xor", memory.number(e, operand), 1 << 31 if operand.type.size == 4 else _SIGN)


def _parts(b: Builder, value: Number) -> tuple[I1, I1, Number, Number]:
    """Of a double: is it negative, is it NaN, its exponent, its fraction with the highest bit."""
    exponent = b.op("and", b.op("lshr", value, _FRACTION), _EXPONENT)
    fraction = b.op("or", b.op("and", value, _HIDDEN - 1), _HIDDEN)
    nan = b.icmp("ugt", b.op("and", value, _MOST), _INFINITY)
    return b.icmp("slt", value, 0), nan, exponent, fraction


def to_integer(e: Emitter, operand: Operand, type_: Int) -> I64:
    """The number without its fraction; the nearest value of *type_* outside of its range, 0 for NaN."""
    b = e.b
    negative, nan, exponent, fraction = _parts(b, double(e, operand))
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


def scaled(e: Emitter, operand: Operand, factor: int) -> I64:
    """The number times *factor* (1 to 2^62) as the nearest int64, halves away from zero; saturated, 0 for NaN."""
    b = e.b
    negative, nan, exponent, fraction = _parts(b, double(e, operand))
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


def _product(b: Builder, fraction: Number, factor: int) -> tuple[Number, Number]:
    """High and low word of a product of 53 by 62 bits."""
    upper, lower = b.op("lshr", fraction, 32), b.op("and", fraction, 0xFFFFFFFF)
    most, least = factor >> 32, factor & 0xFFFFFFFF
    low, middle, cross, high = b.mul(lower, least), b.mul(lower, most), b.mul(upper, least), b.mul(upper, most)
    total = b.add(b.op("lshr", low, 32), b.add(b.op("and", middle, 0xFFFFFFFF), b.op("and", cross, 0xFFFFFFFF)))
    word = b.op("or", b.op("shl", total, 32), b.op("and", low, 0xFFFFFFFF))
    rest = b.add(b.op("lshr", middle, 32), b.op("lshr", cross, 32))
    return b.add(b.add(high, rest), b.op("lshr", total, 32)), word

