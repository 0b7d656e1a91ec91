"""Objects of Python as values of the script: strings, integers, floating-point numbers and their decimals."""

from __future__ import annotations

import struct
from functools import cache

from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.emit.program import Part
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.builder import Block, Builder
from pytrace.codegen.ir.values import I1, I64, Memory, Number, Ptr, number_parameter, pointer_parameter
from pytrace.codegen.walkers import python_threads
from pytrace.codegen.walkers.python_calls import CalledCode
from pytrace.core.diagnostics import InternalError
from pytrace.core.python_format import CallWord, Word
from pytrace.core.types import String

LONGEST = 24
"""Characters of the longest text: ``-2.2250738585072014e-308``."""
BUFFER = LONGEST + 8

_FUNCTION = "python_decimal"
_FRACTION_BITS, _EXPONENT, _BIAS = 52, 0x7FF, 1075
_HIDDEN = 1 << _FRACTION_BITS
_INFINITY = _EXPONENT << _FRACTION_BITS
_LEAST, _MOST = -292, 324
"""Powers of ten that the digits of a double need."""
_MOST_DECIMAL_DIGITS = 17
_PLAIN_FROM, _PLAIN_TO = -3, 16
"""Places of the decimal point, counted from the first digit, with which there is no exponent (``float.__repr__``)."""
_DIGITS_AT, _SCALE = 0, 8
"""Results of the function: a number of at most 17 digits, and the power of ten that it is multiplied by."""
_POINT, _LENGTH_AT, _LAST = 16, 24, 32
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


def _characters(b: Builder, place: Ptr, characters: bytes) -> None:
    for offset, character in enumerate(characters):
        b.store(character, b.offset(place, offset), 8)


def _lay_out(b: Builder, state: Ptr, negative: Number) -> None:
    """Store what is written of the digits."""
    digits, scale = (b.load(b.offset(state, place), again=True) for place in (_DIGITS_AT, _SCALE))
    count: Number = 1
    for power in range(1, _MOST_DECIMAL_DIGITS):
        count = b.add(count, b.number(b.icmp("uge", digits, 10**power)))
    # The verifier knows nothing of it then: else it follows each path to here through all that comes after.
    count = b.through(count, b.offset(state, _LAST))
    point = b.add(count, scale)
    plain = _is_plain(b, point)
    # An integer is written with the zeros that its power of ten stands for, and one after the point.
    whole = b.both(plain, b.icmp("sge", scale, 0))
    zeros = b.select(whole, b.add(scale, 1), 0)
    for bit in (16, 8, 4, 2, 1):
        digits = b.mul(digits, b.select(b.truth(b.op("and", zeros, bit)), 10**bit, 1))
    after = b.select(whole, 1, b.select(plain, b.sub(0, scale), b.sub(count, 1)))
    held = b.add(count, zeros)
    held = b.select(b.icmp("sgt", held, after), held, b.add(after, 1))
    length = b.add(held, b.number(b.truth(after)))
    last = b.sub(b.add(length, negative), 1)
    values = ((digits, _DIGITS_AT), (after, _POINT), (length, _LENGTH_AT), (last, _LAST), (point, _SCALE))
    for value, place in values:
        b.store(value, b.offset(state, place))


def _is_plain(b: Builder, point: Number) -> I1:
    """Whether there is no exponent, by the place of the point after the first digit."""
    return b.both(b.icmp("sge", point, _PLAIN_FROM), b.icmp("sle", point, _PLAIN_TO))


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


_TYPE, _TYPE_NAME, _TYPE_FLAGS = 8, 24, 168
"""Offsets in ``PyObject`` and ``PyTypeObject`` of ordinary builds, as those below: type, ``tp_name``, ``tp_flags``."""
_INTEGER, _BYTES, _STRING = 24, 27, 28
"""Bits of ``tp_flags``: ``Py_TPFLAGS_LONG_SUBCLASS`` …"""
_ORDER, _LAST_BASE = 344, 7
"""Offset of ``tp_mro`` in ``PyTypeObject``, the tuple of a type and its bases; in which place of it ``float`` may be
(of ``numpy.float64`` it is in place 5)."""
_FRACTION = 16
"""Offset in ``PyFloatObject`` of ordinary builds: the number."""
_SIZE, _DIGITS, _BYTES_DATA = 16, 24, 32
"""Offsets in objects with a size: ``ob_size`` (of integers since 3.12 ``lv_tag``), the first digit, the first byte."""
_DIGIT_BITS, _MOST_DIGITS = 30, 3
_TAG_SHIFT, _TAG_SIGN, _TAG_NEGATIVE = 3, 3, 2
"""Of ``lv_tag``: the number of digits is above its low bits, which are the sign."""
_DECIMALS = 20
"""Most digits of 64 bits."""
_FORM, _LENGTH = 32, 16
_STEPS = 1 << 20


def _unless_float(call: CalledCode, type_: Number, other: Block) -> None:
    """Jump unless a type is ``float`` or derived from it, for which types have no flag."""
    b, here = call.e.b, call.e.b.block()
    known = call.call_word(CallWord.FLOAT_TYPE)
    b.jump_if(b.icmp("eq", type_, known), here)
    bases = call.user(call.after_header(type_, _ORDER))
    count, items = call.user(call.after_header(bases, _SIZE)), b.add(bases, call.call_word(CallWord.TUPLE_ITEMS))
    for place in range(1, _LAST_BASE + 1):
        b.jump_if(b.icmp("ule", count, place), other)
        b.jump_if(b.icmp("eq", call.user(b.add(items, 8 * place)), known), here)
    b.jump(other)
    b.start(here)


def _has(call: CalledCode, flags: Number, bit: int) -> I1:
    b = call.e.b
    return b.icmp("ne", b.op("and", b.op("lshr", flags, bit), 1), 0)


def _digits(call: CalledCode, address: Number) -> tuple[I64, I1, I1]:
    """The low 64 bits of an integer's magnitude, whether it is negative, and whether it has more bits."""
    b = call.e.b
    size = call.user(call.after_header(address, _SIZE))
    by_size = b.truth(call.call_word(CallWord.SIGNED_SIZE))
    sign = b.number(b.icmp("eq", b.op("and", size, _TAG_SIGN), _TAG_NEGATIVE))
    below = b.icmp("slt", size, 0)
    negative = b.truth(b.select(by_size, b.number(below), sign))
    count = b.select(by_size, b.select(below, b.sub(0, size), size), b.op("lshr", size, _TAG_SHIFT))
    magnitude, high = b.register(), b.register()
    b.store(0, magnitude)
    b.store(0, high)
    for index in range(_MOST_DIGITS):
        with b.when(b.icmp("ugt", count, index)):
            digit = b.op("and", call.user(call.after_header(address, _DIGITS + 4 * index)), (1 << _DIGIT_BITS) - 1)
            b.store(b.op("or", b.load(magnitude), b.op("shl", digit, _DIGIT_BITS * index)), magnitude)
            if _DIGIT_BITS * (index + 1) > 64:
                b.store(b.op("lshr", digit, 64 - _DIGIT_BITS * index), high)
    more = b.either(b.icmp("ugt", count, _MOST_DIGITS), b.truth(b.load(high)))
    return b.load(magnitude), negative, more


class _Reader:
    """Writes texts of at most *capacity* bytes, with their NUL, at the scratch offset *out*, where zeros are.

    *cursor* is the scratch offset of two numbers: what has been read, and what has been written.
    """

    def __init__(self, call: CalledCode, out: int, cursor: int, capacity: int) -> None:
        self.call = call
        self.out = out
        self._read, self._written = cursor, cursor + 8
        self._capacity = capacity
        self._e, self._b = call.e, call.e.b

    def object(self, address: Number) -> None:
        """The text of an object."""
        b, call, done = self._b, self.call, self._b.block()
        type_ = call.user(call.after_header(address, _TYPE))
        flags = call.user(call.after_header(type_, _TYPE_FLAGS))
        with b.when(_has(call, flags, _STRING)):
            self.string(address)
            b.jump(done)
        with b.when(_has(call, flags, _BYTES)):
            self._copy(call.user(call.after_header(address, _SIZE)), call.after_header(address, _BYTES_DATA))
            b.jump(done)
        with b.when(b.icmp("eq", address, call.call_word(CallWord.NO_VALUE))):
            self._constant(b"None")
            b.jump(done)
        with b.when(_has(call, flags, _INTEGER)):
            self._integer(address, type_)
            b.jump(done)
        other = b.block()
        _unless_float(call, type_, other)
        self._fraction(call.user(call.after_header(address, _FRACTION)))
        b.jump(done)
        b.start(other)
        self._type_name(type_)
        b.jump(done)
        b.start(done)

    def string(self, address: Number) -> None:
        """The text of a string, as UTF-8."""
        b, call, data = self._b, self.call, self._b.register()
        length, word = (call.user(call.after_header(address, offset)) for offset in (_LENGTH, _FORM))
        form = python_threads.form(b, call.area(0), word)
        ascii_ = b.truth(b.op("and", form, python_threads.ASCII))
        sizes = call.word(Word.ASCII_SIZE), call.word(Word.COMPACT_SIZE)
        b.store(b.add(address, b.select(ascii_, *sizes)), data)
        with b.when(b.icmp("eq", b.op("and", form, python_threads.COMPACT), 0), likely=False):
            # An object of a subclass has a pointer to its characters.
            b.store(call.user(b.add(address, sizes[1])), data)
        plain, done = b.block(), b.block()
        b.jump_if(ascii_, plain, likely=True)
        kind = b.at_most(b.op("and", form, 7), 4)
        self._encode(length, kind, b.load(data))
        b.jump(done)
        b.start(plain)
        self._copy(length, b.load(data))
        b.jump(done)
        b.start(done)

    def _copy(self, length: Number, data: Number) -> None:
        """Bytes as they are."""
        b, room = self._b, self._capacity - 1
        self._e.count_cut(b.icmp("ugt", length, room))
        b.helper(helpers.PROBE_READ_USER, self._e.area(self.out), b.at_most(length, room), data)

    def _fraction(self, value: Number) -> None:
        buffer = self._e.reserve(BUFFER)
        self._e.memory.zero(self._e.area(buffer), BUFFER)
        self._take(buffer, Decimals(self._e).text(value, buffer), LONGEST)

    def _take(self, buffer: int, size: Number, longest: int) -> None:
        """A text of *size* bytes, at most *longest*, from the scratch offset *buffer*."""
        room = self._capacity - 1
        self._e.count_cut(self._b.icmp("ugt", size, room))
        for offset in range(min(room, longest)):
            character = self._b.load(self._e.area(buffer + offset), 8, again=True)
            self._b.store(character, self._e.area(self.out + offset), 8)

    def _constant(self, data: bytes) -> None:
        if len(data) >= self._capacity:
            self._e.counter("cut", self._e.program.index, 1)
        for offset, byte in enumerate(data[: self._capacity - 1]):
            self._b.store(byte, self._b.offset(self._e.area(self.out), offset), 8)

    def _type_name(self, type_: Number) -> None:
        """``<list>``."""
        b, area = self._b, self._e.area(self.out)
        if self._capacity < 4:
            return
        name = self.call.user(self.call.after_header(type_, _TYPE_NAME))
        result = b.helper(helpers.PROBE_READ_USER_STR, b.offset(area, 1), self._capacity - 2, name)
        with b.when(b.icmp("sgt", result, 0)):
            b.store(ord("<"), area, 8)
            b.store(ord(">"), b.offset(area, b.at_most(result, self._capacity - 2)), 8)

    # ------------------------------------------------------------------ integers

    def _integer(self, address: Number, type_: Number) -> None:
        b, call, done = self._b, self.call, self._b.block()
        magnitude, negative, more = _digits(call, address)
        with b.when(b.icmp("eq", type_, call.call_word(CallWord.BOOL_TYPE))):
            with b.when(b.truth(magnitude)):
                self._constant(b"True")
                b.jump(done)
            self._constant(b"False")
            b.jump(done)
        with b.when(more, likely=False):
            self._type_name(type_)
            b.jump(done)
        if self._capacity > _DECIMALS + 2:
            self._decimal(magnitude, b.number(negative))
        else:
            # Digits are written from the last one on, also those that do not fit.
            buffer = self._e.reserve(BUFFER)
            self._e.memory.zero(self._e.area(buffer), BUFFER)
            size = _Reader(call, buffer, self._read, BUFFER)._decimal(magnitude, b.number(negative))
            self._take(buffer, size, _DECIMALS + 1)
        b.jump(done)
        b.start(done)

    def _decimal(self, magnitude: Number, negative: Number) -> Number:
        """Digits from the last one on; of a negative number after the sign. Returns the size."""
        b, count = self._b, negative
        for power in range(1, _DECIMALS):
            limit = 10**power
            count = b.add(count, b.number(b.icmp("uge", magnitude, limit if limit < 1 << 63 else limit - (1 << 64))))
        b.store(magnitude, self._e.area(self._read))
        b.store(count, self._e.area(self._written))
        with b.when(b.truth(negative)):
            b.store(ord("-"), self._e.area(self.out), 8)
        self._e.loops.run(self._e.span, _DECIMALS, lambda inner, _index: self._inside(inner)._digit())
        return b.add(count, 1)

    def _inside(self, e: Emitter) -> _Reader:
        return _Reader(self.call.inside(e), self.out, self._read, self._capacity)

    def _digit(self) -> None:
        b, rest, place = self._b, self._e.area(self._read), self._e.area(self._written)
        value, offset = b.load(rest), b.at_most(b.load(place), _DECIMALS)
        b.store(b.add(b.op("urem", value, 10), ord("0")), b.offset(self._e.area(self.out), offset), 8)
        b.store(b.op("udiv", value, 10), rest)
        b.store(b.sub(offset, 1), place)
        with b.when(b.icmp("ult", value, 10)):
            b.ret(1)

    # ------------------------------------------------------------------ characters

    def _encode(self, length: Number, kind: Number, data: Number) -> None:
        """Characters of *kind* bytes each, in UTF-8."""
        b, arguments = self._b, self._e.reserve(24)
        for number, value in enumerate((length, kind, data)):
            b.store(value, self._e.area(arguments + 8 * number))
        b.store(0, self._e.area(self._read))
        b.store(0, self._e.area(self._written))
        self._e.loops.run(self._e.span, _STEPS, lambda inner, _index: self._inside(inner)._character(arguments))
        self._e.count_cut(b.icmp("ult", b.load(self._e.area(self._read), again=True), length))

    def _character(self, arguments: int) -> None:
        b, e = self._b, self._e
        length, kind, data = (b.load(e.area(arguments + 8 * number)) for number in range(3))
        index, written = b.load(e.area(self._read)), b.load(e.area(self._written))
        with b.when(b.icmp("uge", index, length)):
            b.ret(1)
        b.store(0, e.cell)
        b.helper(helpers.PROBE_READ_USER, e.cell, b.at_most(kind, 4), b.add(data, b.mul(index, kind)))
        character = b.load(e.cell, again=True)
        count = b.register()
        b.store(1, count)
        for limit in (0x80, 0x800, 0x10000):
            b.store(b.add(b.load(count), b.number(b.icmp("uge", character, limit))), count)
        size = b.load(count)
        with b.when(b.icmp("ugt", b.add(written, size), self._capacity - 1)):
            b.ret(1)
        self._write(character, size, written)
        b.store(b.add(index, 1), e.area(self._read))
        b.store(b.add(written, size), e.area(self._written))

    def _write(self, character: Number, size: Number, written: Number) -> None:
        """One character of *size* bytes: the bits of the first byte say how many follow."""
        b, done = self._b, self._b.block()
        for bytes_, mark in ((1, 0), (2, 0xC0), (3, 0xE0), (4, 0xF0)):
            if bytes_ > self._capacity:
                continue
            with b.when(b.icmp("eq", size, bytes_)):
                place = b.offset(self._e.area(self.out), b.at_most(written, self._capacity - bytes_))
                b.store(b.op("or", b.op("lshr", character, 6 * (bytes_ - 1)), mark), place, 8)
                for offset in range(1, bytes_):
                    bits = b.op("and", b.op("lshr", character, 6 * (bytes_ - 1 - offset)), 0x3F)
                    b.store(b.op("or", bits, 0x80), b.offset(place, offset), 8)
                b.jump(done)
        b.jump(done)
        b.start(done)


class Decimals(Part):
    """Writes floating-point numbers as text."""

    def text(self, value: Number, buffer: int) -> I64:
        """Write the text of a double's bits to the scratch offset *buffer*, where :data:`BUFFER` zeros are; its
        size.
        """
        b, state, done, size = self.b, self.e.reserve(_STATE), self.b.block(), self.b.register()
        magnitude, negative = b.op("and", value, (1 << 63) - 1), b.op("lshr", value, 63)
        with b.when(b.icmp("ugt", magnitude, _INFINITY), likely=False):
            _characters(b, self.e.area(buffer), b"nan")
            b.store(3, size)
            b.jump(done)
        b.store(negative, size)
        with b.when(b.truth(negative)):
            _characters(b, self.e.area(buffer), b"-")
        with b.when(b.icmp("eq", magnitude, _INFINITY), likely=False):
            _characters(b, b.offset(self.e.area(buffer), negative), b"inf")
            b.store(b.add(negative, 3), size)
            b.jump(done)
        if all(function.name != _FUNCTION for function in self.module.functions):
            self._decimal_function()
        b.call(_FUNCTION, [self.e.area(state)], [magnitude])
        _lay_out(b, self.e.area(state), negative)
        self.e.loops.run(self.e.span, LONGEST, lambda inner, index: Decimals(inner)._character(index, state, buffer))
        b.store(b.add(b.load(self.e.area(state + _LAST), again=True), 1), size)
        point = b.load(self.e.area(state + _SCALE), again=True)
        with b.unless(_is_plain(b, point)):
            _exponent(b, self.e.area(buffer), b.sub(point, 1), size)
        b.jump(done)
        b.start(done)
        return b.load(size)

    def _character(self, index: Number, state: int, buffer: int) -> None:
        """A digit or the point, from the last one on."""
        b = self.b
        rest, after, length, last = (
            b.load(self.e.area(state + place)) for place in (_DIGITS_AT, _POINT, _LENGTH_AT, _LAST)
        )
        dot = b.both(b.icmp("eq", index, after), b.truth(after))
        character = b.select(dot, ord("."), b.add(b.op("urem", rest, 10), ord("0")))
        b.store(b.select(dot, rest, b.op("udiv", rest, 10)), self.e.area(state + _DIGITS_AT))
        b.store(character, b.offset(self.e.area(buffer), b.at_most(b.sub(last, index), LONGEST)), 8)
        with b.when(b.icmp("uge", b.add(index, 1), length)):
            b.ret(1)

    # ---------------------------------------------------------------------------------------------- digits

    def _decimal_function(self) -> None:
        """``python_decimal(state, bits)``: digits and scale of a finite double that is not negative."""
        b = self.module.function(_FUNCTION, ("*state", "bits"), self.e.span)
        state, bits = pointer_parameter("state"), number_parameter("bits")
        for place in (_DIGITS_AT, _SCALE):
            b.store(0, b.offset(state, place))
        with b.when(b.icmp("eq", bits, 0)):
            b.ret(0)
        exponent, fraction = b.op("and", b.op("lshr", bits, _FRACTION_BITS), _EXPONENT), b.op("and", bits, _HIDDEN - 1)
        normal = b.truth(exponent)
        value = b.select(normal, b.op("or", fraction, _HIDDEN), fraction)
        binary = b.select(normal, b.sub(exponent, _BIAS), 1 - _BIAS)
        # Below a power of two the next number is nearer.
        closer = b.number(b.both(b.icmp("eq", fraction, 0), b.icmp("ugt", exponent, 1)))
        # The ends of what rounds to a number round to it themselves if it is even.
        odd = b.op("and", value, 1)
        scale = b.op("ashr", b.sub(b.mul(binary, 1262611), b.mul(closer, 524031)), 22)
        shift = b.op("and", b.add(b.add(binary, b.op("ashr", b.mul(scale, -1741647), 19)), 1), 7)
        table = self.module.constant(_powers())
        row = b.offset(table, b.op("shl", b.at_most(b.sub(-_LEAST, scale), _MOST - _LEAST), 4))
        power = b.load(row), b.load(b.offset(row, 8))
        four = b.op("shl", value, 2)
        lower, exact, upper = (
            _product(b, power, b.op("shl", item, shift))
            for item in (b.add(b.sub(four, 2), closer), four, b.add(four, 2))
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
        digits = b.through(digits, b.offset(state, _DIGITS_AT))
        scale = b.through(b.add(scale, b.number(shorter)), b.offset(state, _SCALE))
        for zeros in (16, 8, 4, 2, 1):
            ends = b.icmp("eq", b.op("urem", digits, 10**zeros), 0)
            digits = b.select(ends, b.op("udiv", digits, 10**zeros), digits)
            scale = b.add(scale, b.select(ends, zeros, 0))
        b.store(digits, b.offset(state, _DIGITS_AT))
        b.store(scale, b.offset(state, _SCALE))
        b.ret(0)


class PythonObjects(Part):
    """Reads objects of Python."""

    def of(self) -> CalledCode:
        """The call that the program is at."""
        call = self.program.python
        if call is None:
            raise InternalError("Python objects are read in probes of Python functions")
        return CalledCode(self.e, call.state, call.site, call.work)

    def function_name(self, type_: String) -> Memory:
        """The qualified name of the function that is traced."""
        reader = _Reader(self.of(), self.e.reserve(type_.size), self.e.reserve(16), type_.capacity)
        self.e.memory.zero(self.e.area(reader.out), type_.size)
        reader.string(python_threads.in_head(self.b, reader.call.area(0), Word.CODE_NAME))
        return Memory(self.e.area(reader.out), type_)

    def text(self, address: Number, type_: String) -> Memory:
        """The text of an object: of a string or bytes what it contains, of ``None``, bools and numbers what Python
        prints.

        Of others it is the name of the type in angle brackets; of no object it is empty.
        """
        reader = _Reader(self.of(), self.e.reserve(type_.size), self.e.reserve(16), type_.capacity)
        self.e.memory.zero(self.e.area(reader.out), type_.size)
        with self.b.when(self.b.truth(address)):
            reader.object(address)
        return Memory(self.e.area(reader.out), type_)

    def integer(self, address: Number) -> I64:
        """The low 64 bits of an integer; 0 for other objects."""
        call, b, result = self.of(), self.b, self.b.register()
        b.store(0, result)
        type_ = call.user(call.after_header(address, _TYPE))
        with b.when(_has(call, call.user(call.after_header(type_, _TYPE_FLAGS)), _INTEGER)):
            magnitude, negative, _ = _digits(call, address)
            b.store(b.select(negative, b.sub(0, magnitude), magnitude), result)
        return b.load(result)

    def fraction(self, address: Number) -> I64:
        """The bits of a float as a ``double``; 0 for other objects."""
        call, b, result, done = self.of(), self.b, self.b.register(), self.b.block()
        b.store(0, result)
        _unless_float(call, call.user(call.after_header(address, _TYPE)), done)
        b.store(call.user(call.after_header(address, _FRACTION)), result)
        b.jump(done)
        b.start(done)
        return b.load(result)
