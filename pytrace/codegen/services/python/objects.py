"""Python objects as text and as numbers, read in BPF from the memory of the process (CPython 3.11 and later).

What an object is, its type says: subclasses of ``str``, ``int`` and ``bytes`` are read as these.
"""

from __future__ import annotations

from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.builder import Block
from pytrace.codegen.ir.values import I1, I64, Memory, Number
from pytrace.codegen.services.python import decimals, records
from pytrace.codegen.services.python.names import CalledCode
from pytrace.core.diagnostics import InternalError
from pytrace.core.stacks.python_format import CallWord, Word
from pytrace.core.types import String

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


def of(e: Emitter) -> CalledCode:
    """The call that the program is at."""
    call = e.program.python
    if call is None:
        raise InternalError("Python objects are read in probes of Python functions")
    return CalledCode(e, call.state, call.site, call.work)


def function_name(e: Emitter, type_: String) -> Memory:
    """The qualified name of the function that is traced."""
    reader = _Reader(of(e), e.reserve(type_.size), e.reserve(16), type_.capacity)
    e.memory.zero(e.area(reader.out), type_.size)
    reader.string(records.in_head(e.b, reader.call.area(0), Word.CODE_NAME))
    return Memory(e.area(reader.out), type_)


def text(e: Emitter, address: Number, type_: String) -> Memory:
    """The text of an object: of a string or bytes what it contains, of ``None``, bools and numbers what Python prints.

    Of others it is the name of the type in angle brackets; of no object it is empty.
    """
    reader = _Reader(of(e), e.reserve(type_.size), e.reserve(16), type_.capacity)
    e.memory.zero(e.area(reader.out), type_.size)
    with e.b.when(e.b.truth(address)):
        reader.object(address)
    return Memory(e.area(reader.out), type_)


def integer(e: Emitter, address: Number) -> I64:
    """The low 64 bits of an integer; 0 for other objects."""
    call, b, result = of(e), e.b, e.b.register()
    b.store(0, result)
    type_ = call.user(call.after_header(address, _TYPE))
    with b.when(_has(call, call.user(call.after_header(type_, _TYPE_FLAGS)), _INTEGER)):
        magnitude, negative, _ = _digits(call, address)
        b.store(b.select(negative, b.sub(0, magnitude), magnitude), result)
    return b.load(result)


def fraction(e: Emitter, address: Number) -> I64:
    """The bits of a float as a ``double``; 0 for other objects."""
    call, b, result, done = of(e), e.b, e.b.register(), e.b.block()
    b.store(0, result)
    _unless_float(call, call.user(call.after_header(address, _TYPE)), done)
    b.store(call.user(call.after_header(address, _FRACTION)), result)
    b.jump(done)
    b.start(done)
    return b.load(result)


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
        form = records.form(b, call.area(0), word)
        ascii_ = b.truth(b.op("and", form, records.ASCII))
        sizes = call.word(Word.ASCII_SIZE), call.word(Word.COMPACT_SIZE)
        b.store(b.add(address, b.select(ascii_, *sizes)), data)
        with b.when(b.icmp("eq", b.op("and", form, records.COMPACT), 0), likely=False):
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
        buffer = self._e.reserve(decimals.BUFFER)
        self._e.memory.zero(self._e.area(buffer), decimals.BUFFER)
        size = decimals.text(self._e, value, buffer)
        room = min(self._capacity - 1, decimals.LONGEST)
        self._e.count_cut(self._b.icmp("ugt", size, self._capacity - 1))
        for offset in range(room):
            character = self._b.load(self._e.area(buffer + offset), 8, again=True)
            self._b.store(character, self._e.area(self.out + offset), 8)

    def _constant(self, data: bytes) -> None:
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
        b.jump(done)
        b.start(done)

    def _decimal(self, magnitude: Number, negative: Number) -> None:
        """Digits from the last one on; of a negative number after the sign."""
        b, count = self._b, negative
        for power in range(1, _DECIMALS):
            limit = 10**power
            count = b.add(count, b.number(b.icmp("uge", magnitude, limit if limit < 1 << 63 else limit - (1 << 64))))
        b.store(magnitude, self._e.area(self._read))
        b.store(count, self._e.area(self._written))
        with b.when(b.truth(negative)):
            b.store(ord("-"), self._e.area(self.out), 8)
        self._e.loops.run(self._e.span, _DECIMALS, lambda inner, _index: self._inside(inner)._digit())

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
