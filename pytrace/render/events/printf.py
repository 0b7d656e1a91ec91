"""Format strings of printf and its kin, compiled for the types of their arguments.

The result is that of C's printf, also for flags and precision; ``%p`` of zero shows ``0``, and ``*`` takes no value.
"""

from __future__ import annotations

import math
import struct
import sys
from typing import TYPE_CHECKING, Never

import msgspec
from msgspec.structs import replace

from pytrace.core import types
from pytrace.core.diagnostics import InternalError
from pytrace.render.text import Value, escaped, for_any, hex_escaped, hex_spaced, integer_code

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytrace.core.formats import Conversion
    from pytrace.render.forms import TextForms


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
    from pytrace.core.formats import parse  # a start does without it until something is printed

    waiting = list(kinds)
    pieces: list[bytes | Piece] = []
    for part in parse(layout).parts:
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
    from pytrace.render.events import gfp_flags  # few scripts need it

    return _of_word(gfp_flags.names)(conversion, type_, forms)


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
"""The compilation of each conversion of :data:`pytrace.core.formats.NAMES`."""


def escaping(piece: Piece, escape: Callable[[bytes], bytes]) -> Piece:
    """*piece* with its result passed through *escape*, width included."""
    if not piece.textual:
        return piece
    render, layout = piece.render, piece.format
    if layout == b"%s":
        return replace(piece, render=escape if render is None else lambda value: escape(render(value)))
    if render is None:
        return replace(piece, format=b"%s", render=lambda value: escape(layout % value))
    return replace(piece, format=b"%s", render=lambda value: escape(layout % render(value)))
