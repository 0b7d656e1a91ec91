"""Names of Python code objects compared in BPF: with the patterns of an attach point, with the name of an argument."""

from __future__ import annotations

import struct

from msgspec.structs import replace

from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.values import I1, I64, Number, Ptr
from pytrace.codegen.services.python import records
from pytrace.codegen.services.python.threads import Thread
from pytrace.core.probes.targets import PythonTarget
from pytrace.core.stacks.python_format import CALL_ROW, FILE, NAME, CallWord, Word

REFUSED, CHOSEN = 1, 2
"""Decisions about a code object; for an argument, the number of its variable is added to the second."""

_TEXT, _TEXT_SIZE = CALL_ROW, FILE + 8
_COUNT, _KIND, _INDEX, _PLACE, _STAR, _MARK, _FOUND = range(_TEXT + _TEXT_SIZE, _TEXT + _TEXT_SIZE + 56, 8)
"""Offsets in the work area, after the row: a text, its number of characters and the bytes of each; the character and
the place in the pattern that are compared, the place of the last star and what it took last; the result."""
WORK_SIZE = _FOUND + 8

_ANY, _END = 0x110000, 0x110001
"""Elements of a pattern that are no characters: any number of them; the end."""
_NO_STAR = (1 << 64) - 1
_STEPS = 1 << 18
"""Most comparisons of a text with a pattern: as many as they need at worst."""
_MOST_PARAMETERS = 255
_LENGTH, _FORM = 16, 32
"""Offsets in ``PyASCIIObject`` of ordinary builds."""
_VARIADIC, _VARIADIC_KEYWORDS = 2, 3
"""Bits of ``co_flags``: ``CO_VARARGS``, ``CO_VARKEYWORDS``."""


class CalledCode(Thread, frozen=True):
    """A thread whose state has a code object. *work* is the scratch offset of the work area."""

    work: int

    def inside(self, e: Emitter) -> CalledCode:
        """The same in the callback of a loop."""
        return replace(self, e=e)

    def place(self, offset: int) -> Ptr:
        """A place in the work area."""
        return self.e.area(self.work + offset)

    def number(self, offset: int) -> I64:
        """A number in the work area, which a callback may have changed."""
        return self.e.b.load(self.place(offset), again=True)

    def call_word(self, word: CallWord) -> I64:
        """A word of the process's second row."""
        return self.e.b.load(self.place(8 * word))

    def in_code(self, word: CallWord, bits: int = 64) -> I64:
        """A member of the code object."""
        b = self.e.b
        at = b.at_most(self.call_word(word), records.HEAD_SIZE - 8)
        return b.load(b.offset(self.area(records.STATE_HEAD), at), bits)


def matches(call: CalledCode, place: PythonTarget) -> Number:
    """:data:`CHOSEN` if the code object is one of the target's functions, else :data:`REFUSED`."""
    b = call.e.b
    result, on = b.register(), b.block()
    b.store(REFUSED, result)
    texts = ((Word.CODE_NAME, NAME, (place.function,)), (Word.CODE_FILE, FILE, place.files))
    for word, limit, patterns in texts:
        if "*" in patterns:
            continue
        fits = b.block()
        _load(call, records.in_head(b, call.area(0), word), limit)
        for pattern in patterns:
            b.jump_if(_glob(call, pattern), fits)
        b.jump(on)
        b.start(fits)
    b.store(CHOSEN, result)
    b.jump(on)
    b.start(on)
    return b.load(result)


def _load(call: CalledCode, address: I64, limit: int) -> None:
    """Read a string to the work area. Of one that is too long, there are no characters."""
    b = call.e.b
    kind, length, size, data = records.string(b, call.area(0), address, limit)
    whole = b.icmp("eq", b.mul(length, kind), size)
    failed = b.helper(helpers.PROBE_READ_USER, call.place(_TEXT), size, data)
    b.store(length, call.place(_COUNT))
    good = b.both(whole, b.icmp("eq", failed, 0))
    b.store(b.select(good, kind, 0), call.place(_KIND))


def _glob(call: CalledCode, pattern: str) -> I1:
    """Whether the text in the work area matches a pattern in which ``*`` stands for any characters.

    Each step compares one character. Where they differ, the last star takes one more.
    """
    e, b = call.e, call.e.b
    elements = [_ANY if character == "*" else ord(character) for character in pattern]
    shorter = [one for one, before in zip(elements, [0, *elements], strict=False) if one != _ANY or before != _ANY]
    table = e.module.constant(struct.pack(f"={len(shorter) + 1}I", *shorter, _END))
    for number, value in ((_INDEX, 0), (_PLACE, 0), (_STAR, _NO_STAR), (_MARK, 0)):
        b.store(value, call.place(number))
    last = len(shorter)
    e.loops.run(e.span, _STEPS, lambda inner, _index: _compare(call.inside(inner), table, last))
    place = call.number(_PLACE)
    ended = b.icmp("eq", place, last)
    if shorter[-1:] == [_ANY]:
        ended = b.either(ended, b.icmp("eq", place, last - 1))
    return b.both(b.icmp("uge", call.number(_INDEX), call.number(_COUNT)), ended)


def _compare(call: CalledCode, table: Ptr, last: int) -> None:
    b = call.e.b
    index, place = call.number(_INDEX), call.number(_PLACE)
    with b.when(b.icmp("uge", index, call.number(_COUNT))):
        b.ret(1)
    element = b.load(b.offset(table, b.op("shl", b.at_most(place, last), 2)), 32)
    with b.when(b.icmp("eq", element, _ANY)):
        b.store(place, call.place(_STAR))
        b.store(index, call.place(_MARK))
        b.store(b.add(place, 1), call.place(_PLACE))
        b.ret(0)
    with b.when(b.icmp("eq", element, _character(call, index, call.number(_KIND)))):
        b.store(b.add(index, 1), call.place(_INDEX))
        b.store(b.add(place, 1), call.place(_PLACE))
        b.ret(0)
    star = call.number(_STAR)
    with b.when(b.icmp("eq", star, _NO_STAR)):
        b.ret(1)
    next_ = b.add(call.number(_MARK), 1)
    b.store(next_, call.place(_MARK))
    b.store(next_, call.place(_INDEX))
    b.store(b.add(star, 1), call.place(_PLACE))


def _character(call: CalledCode, index: Number, kind: Number) -> I64:
    """A character of the text, by its number and the bytes of each (0: none is known)."""
    b = call.e.b
    offset = b.at_most(b.mul(index, kind), _TEXT_SIZE - 8)
    word = b.load(b.offset(call.place(_TEXT), offset), 32, align=1)
    bits = b.op("shl", b.op("and", kind, 7), 3)
    return b.select(b.icmp("eq", kind, 0), _END + 1, b.op("and", word, b.sub(b.op("shl", 1, bits), 1)))


def parameter(call: CalledCode, name: str) -> Number:
    """:data:`CHOSEN` plus the number of the parameter of a name; :data:`REFUSED` if the function has none."""
    e, b = call.e, call.e.b
    count = b.add(call.in_code(CallWord.CODE_ARGUMENTS, 32), call.in_code(CallWord.CODE_KEYWORDS, 32))
    flags = call.in_code(CallWord.CODE_FLAGS, 32)
    for bit in (_VARIADIC, _VARIADIC_KEYWORDS):
        count = b.add(count, b.op("and", b.op("lshr", flags, bit), 1))
    items = b.add(call.in_code(CallWord.CODE_LOCAL_NAMES), call.call_word(CallWord.TUPLE_ITEMS))
    b.store(items, call.place(_PLACE))
    b.store(REFUSED, call.place(_FOUND))
    text = name.encode()
    e.loops.run(
        e.span, b.at_most(count, _MOST_PARAMETERS),
        lambda inner, index: _compare_parameter(call.inside(inner), index, text),
    )  # fmt: skip
    return call.number(_FOUND)


def _compare_parameter(call: CalledCode, index: Number, text: bytes) -> None:
    b, area = call.e.b, call.place(_TEXT)
    item = call.user(b.add(call.number(_PLACE), b.op("shl", index, 3)))
    with b.when(b.icmp("ne", call.user(call.after_header(item, _LENGTH)), len(text))):
        b.ret(0)
    form = records.form(b, call.area(0), call.user(call.after_header(item, _FORM)))
    with b.when(b.icmp("eq", b.op("and", form, records.ASCII), 0)):
        b.ret(0)
    padded = text + bytes(-len(text) % 8)
    b.clear(area, len(padded))
    b.helper(helpers.PROBE_READ_USER, area, len(text), b.add(item, call.word(Word.ASCII_SIZE)))
    for offset in range(0, len(padded), 8):
        (word,) = struct.unpack_from("=q", padded, offset)
        with b.when(b.icmp("ne", b.load(b.offset(area, offset), again=True), word)):
            b.ret(0)
    b.store(b.add(index, CHOSEN), call.place(_FOUND))
    b.ret(1)
