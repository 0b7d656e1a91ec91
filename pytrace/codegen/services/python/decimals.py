"""Text of floating-point numbers as Python prints them, made in BPF: the fewest digits that are this number only.

The digits are found with integers only (R. Giulietti, "The Schubfach way to render doubles", 2020): the number and the
ends of what rounds to it are multiplied by a power of ten of 128 bits.
"""

from __future__ import annotations

import struct
from functools import cache

from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir.builder import Builder
from pytrace.codegen.ir.values import I1, I64, Number, Ptr, number_parameter, pointer_parameter

LONGEST = 24
"""Characters of the longest text: ``-2.2250738585072014e-308``."""
BUFFER = LONGEST + 8

_FUNCTION = "python_decimal"
_FRACTION, _EXPONENT, _BIAS = 52, 0x7FF, 1075
_HIDDEN = 1 << _FRACTION
_INFINITY = _EXPONENT << _FRACTION
_LEAST, _MOST = -292, 324
"""Powers of ten that the digits of a double need."""
_MOST_DIGITS = 17
_PLAIN_FROM, _PLAIN_TO = -3, 16
"""Places of the decimal point, counted from the first digit, with which there is no exponent (``float.__repr__``)."""
_DIGITS, _SCALE = 0, 8
"""Results of the function: a number of at most 17 digits, and the power of ten that it is multiplied by."""
_POINT, _LENGTH, _LAST = 16, 24, 32
"""Of the text without sign and exponent: digits after the point (0: it has none), its size with the point; and the
place of its last character."""
_STATE = 40


@cache
def _powers() -> bytes:
    """For each power of ten its highest 128 bits, rounded up: the high word, the low word."""
    words: list[int] = []
    for power in range(_LEAST, _MOST + 1):
        shift = 127 - (power * 1741647 >> 19)
        over, under = 10 ** max(power, 0) << max(shift, 0), 10 ** max(-power, 0) << max(-shift, 0)
        words += divmod(-(-over // under), 1 << 64)
    return struct.pack(f"={len(words)}Q", *words)


def text(e: Emitter, value: Number, buffer: int) -> I64:
    """Write the text of a double's bits to the scratch offset *buffer*, where :data:`BUFFER` zeros are; its size."""
    b, state, done, size = e.b, e.reserve(_STATE), e.b.block(), e.b.register()
    magnitude, negative = b.op("and", value, (1 << 63) - 1), b.op("lshr", value, 63)
    with b.when(b.icmp("ugt", magnitude, _INFINITY), likely=False):
        _characters(b, e.area(buffer), b"nan")
        b.store(3, size)
        b.jump(done)
    b.store(negative, size)
    with b.when(b.truth(negative)):
        _characters(b, e.area(buffer), b"-")
    with b.when(b.icmp("eq", magnitude, _INFINITY), likely=False):
        _characters(b, b.offset(e.area(buffer), negative), b"inf")
        b.store(b.add(negative, 3), size)
        b.jump(done)
    if all(function.name != _FUNCTION for function in e.module.functions):
        _decimal_function(e)
    b.call(_FUNCTION, [e.area(state)], [magnitude])
    point, plain = _lay_out(b, e.area(state), negative)
    b.store(b.add(b.load(e.area(state + _LAST)), 1), size)
    e.loops.run(e.span, LONGEST, lambda inner, index: _character(inner, index, state, buffer))
    with b.unless(plain):
        _exponent(b, e.area(buffer), b.sub(point, 1), size)
    b.jump(done)
    b.start(done)
    return b.load(size)


def _characters(b: Builder, place: Ptr, characters: bytes) -> None:
    for offset, character in enumerate(characters):
        b.store(character, b.offset(place, offset), 8)


def _lay_out(b: Builder, state: Ptr, negative: Number) -> tuple[I64, I1]:
    """Store what is written of the digits. Returns the place of the point after the first digit, and whether there is
    no exponent.
    """
    digits, scale = (b.load(b.offset(state, place), again=True) for place in (_DIGITS, _SCALE))
    count: Number = 1
    for power in range(1, _MOST_DIGITS):
        count = b.add(count, b.number(b.icmp("uge", digits, 10**power)))
    point = b.add(count, scale)
    plain = b.both(b.icmp("sge", point, _PLAIN_FROM), b.icmp("sle", point, _PLAIN_TO))
    # An integer is written with the zeros that its power of ten stands for, and one after the point.
    whole = b.both(plain, b.icmp("sge", scale, 0))
    zeros = b.select(whole, b.add(scale, 1), 0)
    for bit in (16, 8, 4, 2, 1):
        digits = b.mul(digits, b.select(b.truth(b.op("and", zeros, bit)), 10**bit, 1))
    after = b.select(whole, 1, b.select(plain, b.sub(0, scale), b.sub(count, 1)))
    held = b.add(count, zeros)
    held = b.select(b.icmp("sgt", held, after), held, b.add(after, 1))
    length = b.add(held, b.number(b.truth(after)))
    values = ((digits, _DIGITS), (after, _POINT), (length, _LENGTH), (b.sub(b.add(length, negative), 1), _LAST))
    for value, place in values:
        b.store(value, b.offset(state, place))
    return point, plain


def _character(e: Emitter, index: Number, state: int, buffer: int) -> None:
    """A digit or the point, from the last one on."""
    b = e.b
    rest, after, length, last = (b.load(e.area(state + place)) for place in (_DIGITS, _POINT, _LENGTH, _LAST))
    dot = b.both(b.icmp("eq", index, after), b.truth(after))
    character = b.select(dot, ord("."), b.add(b.op("urem", rest, 10), ord("0")))
    b.store(b.select(dot, rest, b.op("udiv", rest, 10)), e.area(state + _DIGITS))
    b.store(character, b.offset(e.area(buffer), b.at_most(b.sub(last, index), LONGEST)), 8)
    with b.when(b.icmp("uge", b.add(index, 1), length)):
        b.ret(1)


def _exponent(b: Builder, buffer: Ptr, exponent: Number, size: Ptr) -> None:
    below = b.icmp("slt", exponent, 0)
    magnitude = b.select(below, b.sub(0, exponent), exponent)
    place = b.offset(buffer, b.at_most(b.load(size), LONGEST))
    b.store(ord("e"), place, 8)
    b.store(b.select(below, ord("-"), ord("+")), b.offset(place, 1), 8)
    longer = b.number(b.icmp("uge", magnitude, 100))
    with b.when(b.truth(longer)):
        b.store(b.add(b.op("udiv", magnitude, 100), ord("0")), b.offset(place, 2), 8)
    end = b.offset(place, b.add(longer, 2))
    b.store(b.add(b.op("urem", b.op("udiv", magnitude, 10), 10), ord("0")), end, 8)
    b.store(b.add(b.op("urem", magnitude, 10), ord("0")), b.offset(end, 1), 8)
    b.store(b.add(b.load(size), b.add(longer, 4)), size)


# ---------------------------------------------------------------------------------------------- digits


def _decimal_function(e: Emitter) -> None:
    """``python_decimal(state, bits)``: digits and scale of a finite double that is not negative."""
    b = e.module.function(_FUNCTION, ("*state", "bits"), e.span)
    state, bits = pointer_parameter("state"), number_parameter("bits")
    for place in (_DIGITS, _SCALE):
        b.store(0, b.offset(state, place))
    with b.when(b.icmp("eq", bits, 0)):
        b.ret(0)
    exponent, fraction = b.op("and", b.op("lshr", bits, _FRACTION), _EXPONENT), b.op("and", bits, _HIDDEN - 1)
    normal = b.truth(exponent)
    value = b.select(normal, b.op("or", fraction, _HIDDEN), fraction)
    binary = b.select(normal, b.sub(exponent, _BIAS), 1 - _BIAS)
    # Below a power of two the next number is nearer.
    closer = b.number(b.both(b.icmp("eq", fraction, 0), b.icmp("ugt", exponent, 1)))
    # The ends of what rounds to a number round to it themselves if it is even.
    odd = b.op("and", value, 1)
    scale = b.op("ashr", b.sub(b.mul(binary, 1262611), b.mul(closer, 524031)), 22)
    shift = b.op("and", b.add(b.add(binary, b.op("ashr", b.mul(scale, -1741647), 19)), 1), 7)
    table = e.module.constant(_powers())
    row = b.offset(table, b.op("shl", b.at_most(b.sub(-_LEAST, scale), _MOST - _LEAST), 4))
    power = b.load(row), b.load(b.offset(row, 8))
    four = b.op("shl", value, 2)
    lower, exact, upper = (
        _product(b, power, b.op("shl", item, shift)) for item in (b.add(b.sub(four, 2), closer), four, b.add(four, 2))
    )
    lower, upper = b.add(lower, odd), b.sub(upper, odd)
    # One digit less if one number with that many is in between; otherwise the nearest with all digits.
    near, short = b.op("lshr", exact, 2), b.op("udiv", b.op("lshr", exact, 2), 10)
    under, over = b.icmp("ule", lower, b.mul(short, 40)), b.icmp("ule", b.add(b.mul(short, 40), 40), upper)
    shorter = b.both(b.icmp("uge", near, 10), b.differ(under, over))
    floor = b.op("shl", near, 2)
    below, above = b.icmp("ule", lower, floor), b.icmp("ule", b.add(floor, 4), upper)
    rest = b.add(b.op("and", exact, 3), b.op("and", near, 1))
    rounded = b.select(b.differ(below, above), b.number(above), b.number(b.icmp("ugt", rest, 2)))
    digits = b.select(shorter, b.add(short, b.number(over)), b.add(near, rounded))
    scale = b.add(scale, b.number(shorter))
    for zeros in (16, 8, 4, 2, 1):
        ends = b.icmp("eq", b.op("urem", digits, 10**zeros), 0)
        digits = b.select(ends, b.op("udiv", digits, 10**zeros), digits)
        scale = b.add(scale, b.select(ends, zeros, 0))
    b.store(digits, b.offset(state, _DIGITS))
    b.store(scale, b.offset(state, _SCALE))
    b.ret(0)


def _product(b: Builder, power: tuple[Number, Number], value: Number) -> I64:
    """The highest of three words of a product; its lowest bit is 1 if more than rounding is in the next word."""
    high, low = power
    carried = _high(b, low, value)
    next_ = b.add(b.mul(high, value), carried)
    carry = b.number(b.icmp("ult", next_, carried))
    top = b.add(_high(b, high, value), carry)
    return b.op("or", top, b.number(b.icmp("ugt", next_, 1)))


def _high(b: Builder, left: Number, right: Number) -> I64:
    """The high word of a product."""
    low = (1 << 32) - 1
    first, second = (b.op("and", left, low), b.op("lshr", left, 32)), (b.op("and", right, low), b.op("lshr", right, 32))
    # LLVM would take it for a product of 128 bits, which BPF does not have.
    middle = b.opaque(b.add(b.mul(first[1], second[0]), b.op("lshr", b.mul(first[0], second[0]), 32)))
    cross = b.add(b.mul(first[0], second[1]), b.op("and", middle, low))
    return b.add(b.mul(first[1], second[1]), b.add(b.op("lshr", middle, 32), b.op("lshr", cross, 32)))
