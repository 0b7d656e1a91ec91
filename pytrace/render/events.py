"""Events of the ring buffer, decoded and formatted by their layout; compiled once for each place that sends them.

Printing is the hot path of a tracer: millions of events go through here. So the work for each place is written out as
the source of a Python function and compiled, as ``collections.namedtuple`` does: one unpack of the fixed part by a
``struct.Struct``, one formatting operation, nothing that depends on the type of an argument.  Records come in runs of
equal length (:mod:`pytrace.runtime.output.ring`), which a fixed layout decodes by one iterator.

Format strings have the result of C's printf, also for flags and precision; ``%p`` of zero shows ``0``, and ``*`` takes
no value.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import repeat
from typing import TYPE_CHECKING, Any, Never, TypeVar

import msgspec

from pytrace.core import types
from pytrace.core.diagnostics import InternalError
from pytrace.core.event_layout import CUT, HEADER, RECORD_HEADER, WORD, EventLayout
from pytrace.core.types import String
from pytrace.render.text import Value, escaped, for_any, integer_code

if TYPE_CHECKING:
    from pytrace.core.text import Conversion
    from pytrace.render.forms import Decoders, TextForms
    from pytrace.render.tables import Table, TextTable


class Piece(msgspec.Struct, frozen=True):
    """The form of one argument.

    *format* is the conversion of Python's bytes formatting. *layout* is how the argument is read from the event when
    the conversion decides that (truncated numbers), None for the decoded form of its type. *render* turns the value
    into what *format* takes. *textual*: the result can hold bytes that JSON must escape.
    """

    format: bytes
    layout: str | None = None
    render: Callable[[Never], bytes] | None = None
    textual: bool = False


def compile_pieces(layout: bytes, kinds: tuple[types.Type, ...], forms: TextForms) -> list[bytes | Piece]:
    """The parts of a format string with its conversions compiled for arguments of types *kinds*."""
    from pytrace.core.text import parse_format  # a start does without it until something is printed

    waiting = list(kinds)
    pieces: list[bytes | Piece] = []
    for part in parse_format(layout).parts:
        if isinstance(part, bytes):
            pieces.append(part)
        elif not waiting:
            raise InternalError(f"too few arguments for format {layout!r}")
        else:
            pieces.append(ROWS.get(part.name, _refused)(part, waiting.pop(0), forms))
    if waiting:
        raise InternalError(f"too many arguments for format {layout!r}")
    return pieces


def of_values(type_: types.Joined, forms: TextForms) -> Callable[[Value], bytes]:
    """The text of decoded values, by the format of their ``sprintf``."""
    layout = type_.separator.encode("utf-8", "surrogateescape")
    pieces = compile_pieces(layout, type_.members, forms)
    shown = b"".join([piece.replace(b"%", b"%%") if isinstance(piece, bytes) else piece.format for piece in pieces])
    reads = [
        _of_value(piece, member)
        for piece, member in zip([item for item in pieces if isinstance(item, Piece)], type_.members, strict=True)
    ]

    def text(value: Value) -> bytes:
        # In snapshots it is a text already.
        if not isinstance(value, tuple):
            return _whole(value)
        return shown % tuple([read(item) for read, item in zip(reads, value, strict=True)])

    return text


def _of_value(piece: Piece, type_: types.Type) -> Callable[[Value], object]:
    """The text of a decoded value in a piece: the number as its conversion reads it, rendered."""
    render = for_any(piece.render) if piece.render is not None else None
    if piece.layout is None:
        return render or _same
    read, size = struct.Struct(f"={piece.layout}").unpack, type_.size

    def number(value: Value) -> object:
        if not isinstance(value, int):
            raise InternalError("a number of a format is none")
        data = value.to_bytes(size, sys.byteorder, signed=value < 0)
        converted = read(data)[0]
        return converted if render is None else render(converted)

    return number


def _same(value: Value) -> Value:
    return value


def _whole(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise InternalError("formatted text is its values or bytes")
    return value


def _padded(conversion: Conversion, plain: str) -> bytes:
    """The conversion *plain* of Python's bytes formatting that also does the width."""
    if not conversion.columns:
        return f"%{plain}".encode()
    return f"%{'-' if '-' in conversion.flags else ''}{conversion.columns}{plain}".encode()


# ---------------------------------------------------------------------------------------------- numbers

_WIDTHS = {"hh": 1, "h": 2, "": 4, "L": 4, "l": 8, "ll": 8, "j": 8, "z": 8, "t": 8}
_FORMATS: dict[str, str] = {"d": "d", "i": "d", "u": "d", "o": "o", "x": "x", "X": "X"}


def _number_type(type_: types.Type) -> types.Int | None:
    if isinstance(type_, types.Int):
        return type_
    if isinstance(type_, types.Enum):
        return type_.integer
    if isinstance(type_, types.Pointer | types.KSym | types.Username | types.Count):
        return types.UINT64
    return types.UINT8 if isinstance(type_, types.Bool) else None


def _read(source: types.Int, width: int, signed: bool) -> tuple[str, int]:
    """The layout that reads a number of type *source* as one of *width* bytes, and a mask where that is not enough."""
    if width <= source.width:
        code, rest = integer_code(width, signed), source.width - width
        padding = f"{rest}x" if rest else ""
        return (code + padding if sys.byteorder == "little" else padding + code), 0
    mask = (1 << (8 * width)) - 1 if source.signed and not signed else 0
    return integer_code(source.width, source.signed), mask


def _number(conversion: Conversion, type_: types.Type, _forms: TextForms) -> Piece:
    source = _number_type(type_)
    if source is None or source.width > 8:
        return _refused(conversion, type_, _forms)
    signed, letter = conversion.name in "di", _FORMATS[conversion.name]
    layout, mask = _read(source, _WIDTHS[conversion.length], signed)
    sign = next((mark for mark in "+ " if signed and mark in conversion.flags), "")
    marked = "#" in conversion.flags and letter != "d"
    digits, columns = conversion.digits, conversion.columns
    left = "-" in conversion.flags
    fill = "0" in conversion.flags and not left and digits is None
    if not marked and digits != 0:
        # Python formats as C does.
        side = ("-" if left else "0" if fill else "") if columns else ""
        precision = "" if digits is None else f".{digits}"
        plain = f"%{sign}{side}{columns or ''}{precision}{letter}".encode()
        return Piece(b"%s", layout, lambda value: plain % (value & mask)) if mask else Piece(plain, layout)
    digit, prefix_of = f"%{letter}".encode(), _PREFIXES.get(letter, b"") if marked else b""

    def render(value: int) -> bytes:
        if mask:
            value &= mask
        text = digit % abs(value) if value or digits != 0 else b""
        text = text.rjust(digits or 0, b"0")
        if marked and letter == "o" and not text.startswith(b"0"):
            text = b"0" + text
        prefix = b"-" if value < 0 else sign.encode() or (prefix_of if value else b"")
        if fill:
            text = text.rjust(columns - len(prefix), b"0")
        text = prefix + text
        return text.ljust(columns) if left else text.rjust(columns)

    return Piece(b"%s", layout, render)


_PREFIXES = {"x": b"0x", "X": b"0X"}


def _fraction(conversion: Conversion, type_: types.Type, forms: TextForms) -> Piece:
    """Python formats as C does, but fills in front of what is no number with zeros, and drops the sign of NaN."""
    if not isinstance(type_, types.Float):
        return _refused(conversion, type_, forms)
    flags, columns = conversion.flags, conversion.columns
    sign = next((mark for mark in "+ " if mark in flags), "") + ("#" if "#" in flags else "")
    side = "-" if "-" in flags else ""
    precision = "" if conversion.digits is None else f".{conversion.digits}"
    spaced = f"%{sign}{side if columns else ''}{columns or ''}{precision}{conversion.name}".encode()
    filled = f"%{sign}0{columns}{precision}{conversion.name}".encode() if "0" in flags and not side else spaced

    def render(value: float) -> bytes:
        if math.isfinite(value):
            return filled % value
        if math.isnan(value) and math.copysign(1, value) < 0:
            return (spaced % -math.inf).replace(b"inf", b"nan").replace(b"INF", b"NAN")
        return spaced % value

    return Piece(b"%s", render=render)


def _character(conversion: Conversion, type_: types.Type, forms: TextForms) -> Piece:
    source = _number_type(type_)
    if source is None or source.width > 8:
        return _refused(conversion, type_, forms)
    layout, _ = _read(source, 1, False)
    if forms.printable:
        character = forms.escaping(types.String(2), for_any(_character_text))
        return Piece(_padded(conversion, "s"), layout, character, textual=True)
    return Piece(_padded(conversion, "c"), layout, textual=True)


def _character_text(value: int) -> bytes:
    return bytes((value,))


def _of_word(render: Callable[[int], bytes]) -> Callable[[Conversion, types.Type, TextForms], Piece]:
    """A conversion that shows a number as an unsigned word."""

    def make(conversion: Conversion, type_: types.Type, forms: TextForms) -> Piece:
        source = _number_type(type_)
        if source is None or source.width > 8:
            return _refused(conversion, type_, forms)
        layout, mask = _read(source, 8, False)
        everything = mask or (1 << 64) - 1
        return Piece(_padded(conversion, "s"), layout, lambda value: render(value & everything))

    return make


def _address(value: int) -> bytes:
    return b"0x%x" % value if value else b"0"


# ---------------------------------------------------------------------------------------------- texts


def _string(conversion: Conversion, type_: types.Type, forms: TextForms) -> Piece:
    most = conversion.digits
    if isinstance(type_, types.Int) and type_.width <= 8 and most is None:
        return Piece(_padded(conversion, "d"), integer_code(type_.width, type_.signed))
    if isinstance(type_, types.String) and not forms.printable:
        return Piece(_padded(conversion, _precise(most)), textual=True)
    form = forms.form(type_)
    if isinstance(type_, types.String) and most is not None:
        # Before escapes are put in.
        return Piece(_padded(conversion, "s"), render=lambda value: form(value[:most]), textual=True)
    return Piece(_padded(conversion, _precise(most)), render=form, textual=True)


def _precise(most: int | None) -> str:
    return "s" if most is None else f".{most}s"


def _buffer(form: Callable[[bytes], bytes]) -> Callable[[Conversion, types.Type, TextForms], Piece]:
    def piece(conversion: Conversion, type_: types.Type, forms: TextForms) -> Piece:
        if isinstance(type_, types.Buffer | types.String | types.Mac):
            return Piece(_padded(conversion, _precise(conversion.digits)), render=form, textual=True)
        return _string(conversion, type_, forms)

    return piece


def _refused(conversion: Conversion, type_: types.Type, _forms: TextForms) -> Piece:
    mark = f"!{{{type_} cannot print as %{conversion.name}}}".encode()
    return Piece(b"%s", render=lambda _value: mark, textual=True)


def _gfp_flags(conversion: Conversion, type_: types.Type, forms: TextForms) -> Piece:
    from pytrace.render.names import gfp_names  # few scripts need it

    return _of_word(gfp_names)(conversion, type_, forms)


def hex_spaced(data: bytes) -> bytes:
    """``%rh``: two hex digits for each byte, separated by spaces."""
    return data.hex(" ").encode()


def hex_escaped(data: bytes) -> bytes:
    """``%rx``: every byte as ``\\xNN``."""
    return b"".join([b"\\x%02x" % code for code in data])


ROWS: dict[str, Callable[[Conversion, types.Type, TextForms], Piece]] = {
    **dict.fromkeys(_FORMATS, _number),
    **dict.fromkeys(("f", "F", "e", "E", "g", "G"), _fraction),
    "c": _character,
    "p": _of_word(_address),
    "gr": _gfp_flags,
    "s": _string,
    "r": _buffer(escaped),
    "rx": _buffer(hex_escaped),
    "rh": _buffer(hex_spaced),
}
"""The compilation of each conversion of :data:`pytrace.core.text.CONVERSION_NAMES`."""


# ---------------------------------------------------------------------------------------------- decoding


RunHandler = Callable[[bytes, int, int, int, int], None]
"""``handler(data, offset, length, stride, count)``: *count* events of *length* bytes in *data*, the first at *offset*,
each *stride* bytes after the one before.  An event starts with its header (id, tail length)."""

_V_co = TypeVar("_V_co", covariant=True)

_Unpacked = Iterator[tuple[int | bytes | bool, ...]]
"""Fixed parts of events, one after another."""

_LENGTH = CUT - 1

# A string ends at its first NUL; one of the greatest length without was truncated, and gets the trailer.
_INLINE_STRING = "(p[0] if (p := {0}.partition(NUL))[1] else {0} + TRAILER)"
_INLINE_ARRAY = "{0}.partition(NUL)[0]"


def each(handle: Callable[[bytes, int], None]) -> RunHandler:
    """A run handler that calls *handle* for every event."""

    def run(data: bytes, offset: int, _length: int, stride: int, count: int) -> None:
        for place in range(offset, offset + stride * count, stride):
            handle(data, place)

    return run


class Plan:
    """Source text of expressions that decode the arguments of one layout, and the names they use.

    *prefix* starts the names that differ from plan to plan, so that several can be in one function.
    """

    def __init__(
        self, layout: EventLayout, decoders: Decoders, pieces: list[Piece] | None = None, prefix: str = ""
    ) -> None:
        self.layout = layout
        self._prefix = prefix
        self.names: dict[str, object] = {"NUL": b"\0", "TRAILER": decoders.trailer, "CUT": CUT, "LENGTH": _LENGTH}
        self.codes: list[str] = []
        self.values: list[str] = []
        self._tail = 0
        self.steps: list[str] = []
        """Statements that take the tail apart, in argument order."""
        end = 0
        for index in range(len(layout.args)):
            start = layout.offsets[index] - HEADER
            if start != end:
                self.codes.append(f"{start - end}x")
            end = start + layout.slots.members[index].size
            self._argument(index, decoders, pieces[index] if pieces else Piece(b""))
        self.fixed = end

    def _argument(self, index: int, decoders: Decoders, piece: Piece) -> None:
        type_ = self.layout.args[index]
        value = f"{self._prefix}a{index}"
        if self.layout.tails[index]:
            self.codes.append("I")
            self.steps.append(f"start, end = end, end + ({value} & LENGTH)")
            text = f"data[start:end] + TRAILER if {value} & CUT else data[start:end]"
            self.steps.append(f"{value} = {text if isinstance(type_, String) else 'data[start:end]'}")
        elif piece.layout is not None:
            self.codes.append(piece.layout)
        else:
            code, convert = decoders.convert(type_)
            self.codes.append(code)
            if isinstance(type_, String):
                value = (_INLINE_STRING if decoders.trailer_of(type_) else _INLINE_ARRAY).format(value)
            elif convert is not None:
                self.names[f"{self._prefix}decode{index}"] = convert
                value = f"{self._prefix}decode{index}({value})"
        if piece.render is not None:
            self.names[f"{self._prefix}render{index}"] = piece.render
            value = f"{self._prefix}render{index}({value})"
        self.values.append(value)

    @property
    def arguments(self) -> str:
        """The raw values of the fixed part, as an unpacking target."""
        return "".join(f"{self._prefix}a{index}, " for index in range(len(self.layout.args)))

    def codes_of(self, before: int = HEADER, stride: int | None = None) -> str:
        """The fixed part after *before* bytes, padded to *stride*, as codes of ``struct``."""
        after = 0 if stride is None else stride - before - self.fixed
        if after < 0:
            raise InternalError(f"an event of {stride} bytes is too short for its layout")
        return f"{before}x{''.join(self.codes)}{f'{after}x' if after else ''}"

    def structure(self, before: int = HEADER, stride: int | None = None) -> struct.Struct:
        """The fixed part after *before* bytes, padded to *stride*."""
        return struct.Struct(f"={self.codes_of(before, stride)}")

    def compile(self, source: str, **names: object) -> Any:
        """The function ``made`` that *source* defines."""
        return _compiled(source, {**self.names, **names})


def _compiled(source: str, names: dict[str, object]) -> Any:
    """The function ``made`` that *source* defines with *names* as its globals; the caller knows its type."""
    exec(compile(source, "<event plan>", "exec"), names)
    return names["made"]


def reader(layout: EventLayout, decoders: Decoders) -> Callable[[bytes, int], _V_co]:
    """A function that returns the decoded arguments of an event as a tuple.

    The caller says what type that tuple has: it depends on what kind of event *layout* is of.
    """
    plan = Plan(layout, decoders)
    lines = [
        "def made(data, offset):",
        f"    {plan.arguments or '_ '}= UNPACK(data, offset)",
        f"    end = offset + {layout.fixed_size}",
        *(f"    {step}" for step in plan.steps),
        f"    return ({''.join(f'{value}, ' for value in plan.values)})",
    ]
    function: Callable[[bytes, int], _V_co] = plan.compile("\n".join(lines), UNPACK=plan.structure().unpack_from)
    return function


def formatter(
    layout: EventLayout, decoders: Decoders, parts: list[bytes | Piece]
) -> Callable[[bytes, int], bytes]:
    """A function that returns the formatted text of one event."""
    return Formatter(layout, decoders, parts).one


class Formatter:
    """Formatted texts of the events of one place in the script; what is not used is not compiled."""

    def __init__(self, layout: EventLayout, decoders: Decoders, parts: list[bytes | Piece]) -> None:
        self._layout = layout
        self._decoders = decoders
        self._pieces = [part for part in parts if isinstance(part, Piece)]
        self.text = b"".join(
            part.format if isinstance(part, Piece) else part.replace(b"%", b"%%") for part in parts
        )
        """The format of all arguments; without arguments still with doubled ``%``."""
        self.constant = None if self._pieces else self.text % ()
        """The text, when the events have no arguments."""
        self.fixed = not any(layout.tails)
        """True if all events have the same length."""
        self._by_stride: dict[int, Callable[[memoryview], _Unpacked]] = {}

    def plan(self, prefix: str = "") -> Plan:
        """The decoding of the arguments."""
        return Plan(self._layout, self._decoders, self._pieces, prefix)

    @cached_property
    def one(self) -> Callable[[bytes, int], bytes]:
        """``one(data, offset)``: the text of the event at *offset*."""
        return self._one("place", 0)

    @cached_property
    def listed(self) -> Callable[[bytes, int], bytes]:
        """``listed(data, place)``: the text of the event whose record starts at word *place*."""
        return self._one(f"{WORD} * place", RECORD_HEADER)

    def expression(self, values: Sequence[str], number: str = "") -> str:
        """The source of the expression that makes a text of decoded *values*, which are expressions too."""
        return f"FORMAT{number} % ({', '.join(values)},)" if self.constant is None else f"FORMAT{number}"

    def names(self, number: str = "") -> dict[str, object]:
        """The names that :meth:`expression` uses; *number* tells several formatters in one function apart."""
        return {f"FORMAT{number}": self.text if self.constant is None else self.constant}

    def _one(
        self, start: str, before: int, text: Callable[[Sequence[str]], str] | None = None
    ) -> Callable[[bytes, int], bytes]:
        """The text of an event that is *before* bytes after the place that the expression *start* tells.

        *text* takes the place of :meth:`expression`.
        """
        constant = self.constant
        if constant is not None:
            return lambda _data, _place: constant
        plan = self.plan()
        lines = [
            "def made(data, place):",
            f"    {plan.arguments}= UNPACK(data, {start})",
            *([f"    end = {start} + {before + self._layout.fixed_size}"] if plan.steps else []),
            *(f"    {step}" for step in plan.steps),
            f"    return {(text or self.expression)(plan.values)}",
        ]
        function: Callable[[bytes, int], bytes] = plan.compile(
            "\n".join(lines), UNPACK=plan.structure(before + HEADER).unpack_from, **self.names()
        )
        return function

    @cached_property
    def many(self) -> Callable[[bytes, Iterable[int]], list[bytes]]:
        """``many(data, offsets)``: the texts of the events at *offsets*."""
        if not self.fixed:
            return self._loop()
        if (constant := self.constant) is not None:
            return lambda _data, places: [constant for _ in places]
        texts, unpack = self._listing, self.plan().structure().unpack_from
        return lambda data, places: texts(map(unpack, repeat(data), places))

    def run(self, data: bytes, offset: int, stride: int, count: int) -> list[bytes]:
        """The texts of *count* events, *stride* bytes from each other."""
        if self.constant is not None:
            return [self.constant] * count
        if count == 1:
            return [self.one(data, offset)]
        if not self.fixed:
            return self.many(data, range(offset, offset + stride * count, stride))
        records = self._by_stride.get(stride)
        if records is None:
            records = self._by_stride[stride] = self.plan().structure(RECORD_HEADER + HEADER, stride).iter_unpack
        # From the header of the first record to the end of the last one.
        start = offset - RECORD_HEADER
        return self._listing(records(memoryview(data)[start : start + stride * count]))

    @cached_property
    def _listing(self) -> Callable[[_Unpacked], list[bytes]]:
        """The texts of unpacked events."""
        plan = self.plan()
        lines = [
            "def made(records):",
            f"    return [{self.expression(plan.values)} for {plan.arguments}in records]",
        ]
        function: Callable[[_Unpacked], list[bytes]] = plan.compile("\n".join(lines), **self.names())
        return function

    def _loop(self) -> Callable[[bytes, Iterable[int]], list[bytes]]:
        plan = self.plan()
        lines = [
            "def made(data, places):",
            "    found = []",
            "    for place in places:",
            f"        {plan.arguments}= UNPACK(data, place)",
            f"        end = place + {self._layout.fixed_size}",
            *(f"        {step}" for step in plan.steps),
            f"        found.append({self.expression(plan.values)})",
            "    return found",
        ]
        function: Callable[[bytes, Iterable[int]], list[bytes]] = plan.compile(
            "\n".join(lines), UNPACK=plan.structure().unpack_from, **self.names()
        )
        return function


class RowFormatter(Formatter):
    """Formatted rows of an aligned table; *pieces* have the formats of the values, their widths are the table's."""

    def __init__(
        self, layout: EventLayout, decoders: Decoders, pieces: list[bytes | Piece], table: TextTable
    ) -> None:
        super().__init__(layout, decoders, pieces)
        self.table = table

    def expression(self, values: Sequence[str], number: str = "") -> str:
        """A row in one operation; one whose length shows that a value does not fit is made anew."""
        table, inner, last, below = f"TABLE{number}", *self._split(values)
        row, width, end = f"({inner})", f"{table}.width", ""
        if last:
            row, width, end = f"({inner}(w := {last}))", f"{width} + len(w)", ", w"
        return f"(t if len(t := {table}.form % {row}) == {width} else {table}.wide(({inner}){end})){below}"

    def names(self, number: str = "") -> dict[str, object]:
        """The name that :meth:`expression` uses."""
        return {f"TABLE{number}": self.table}

    @cached_property
    def careful(self) -> Callable[[bytes, int], bytes]:
        """``careful(data, offset)``: the row of the event at *offset*, with its texts looked at one by one."""
        return self._one("place", 0, self._careful_expression)

    def _careful_expression(self, values: Sequence[str]) -> str:
        inner, last, below = self._split(values)
        return f"TABLE.careful(({inner}), {last or None}){below}"

    def _split(self, values: Sequence[str]) -> tuple[str, str, str]:
        """The values of aligned columns, as the inside of a tuple; that of an open column or nothing; what to add."""
        below = "".join(f" + {values[index]}" for index in self.table.below)
        values = [value for index, value in enumerate(values) if index not in self.table.below]
        aligned, last = (values[:-1], values[-1]) if self.table.open else (values, "")
        return "".join(f"{value}, " for value in aligned), last, below


def sequence_formatter(
    formatters: Sequence[Formatter], strides: Sequence[int]
) -> Callable[[bytes, int, int], list[bytes]]:
    """``format(data, offset, count)``: the texts of a sequence of events that is there *count* times, in order.

    *strides* are the bytes from each record of the sequence to the next one; all *formatters* are of fixed length.
    """
    names: dict[str, object] = {}
    codes, arguments, values = "=", "", []
    for number, (item, stride) in enumerate(zip(formatters, strides, strict=True)):
        plan = item.plan(f"e{number}")
        codes += plan.codes_of(RECORD_HEADER + HEADER, stride)
        arguments += plan.arguments
        names |= plan.names | item.names(str(number))
        values.append(item.expression(plan.values, str(number)))
    target = arguments or "_"
    lines = [
        "def made(records):",
        "    found = []",
        f"    for {target} in records:",
        f"        found += ({', '.join(values)},)",
        "    return found",
    ]
    function: Callable[[_Unpacked], list[bytes]] = _compiled("\n".join(lines), names)
    unpack, whole = struct.Struct(codes).iter_unpack, sum(strides)

    def run(data: bytes, offset: int, count: int) -> list[bytes]:
        start = offset - RECORD_HEADER
        return function(unpack(memoryview(data)[start : start + whole * count]))

    return run


class Texts:
    """The run handler of a place whose events each print one text; several places can be formatted together."""

    def __init__(
        self,
        formatter: Formatter,
        extend: Callable[[list[bytes]], None],
        *,
        quick: bool,
        table: Table | None = None,
    ) -> None:
        self.formatter = formatter
        self.extend = extend
        """Prints texts one after another."""
        self.quick = quick
        """True if no event takes long (symbols and stacks do), so that any number can be formatted together."""
        self.table = table
        """The table that the texts are rows of."""

    @property
    def careful(self) -> Callable[[bytes, int], bytes]:
        """``careful(data, offset)``: the text of one event that its table wants anew."""
        return self.formatter.careful if isinstance(self.formatter, RowFormatter) else self.formatter.one

    def __call__(self, data: bytes, offset: int, _length: int, stride: int, count: int) -> None:
        """Print a run of events."""
        texts = self.formatter.run(data, offset, stride, count)
        if self.table is not None:
            self.table.settle(texts, range(count), lambda index: self.careful(data, offset + index * stride))
        self.extend(texts)


class Tally:
    """The run handler of events that are only counted, by *add*."""

    def __init__(self, add: Callable[[int], None]) -> None:
        self.add = add

    def __call__(self, _data: bytes, _offset: int, _length: int, _stride: int, count: int) -> None:
        """Count a run of events."""
        self.add(count)
