"""Format strings of printf and its kin, compiled for the types of their arguments.

The result follows bpftrace, which formats through C++ streams, where that differs from C: a precision is ignored, so is
the space flag; the fill of the zero flag stands before the sign (``000-3``); ``%#x`` and ``%p`` of zero show ``0``;
without a length modifier numbers are cut to 32 bits.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from pytrace.base.fast_dataclass import dataclass, replace
from pytrace.base.lazy_regex import late
from pytrace.core import types
from pytrace.core.diagnostics import InternalError
from pytrace.runtime.output.render.decoders import integer_code
from pytrace.runtime.output.render.text import TextForms, escaped, hex_escaped, hex_spaced

_SPEC = late(
    rb"%(?P<flags>[-+ #0]*)(?P<width>\*|[0-9]+)?(?:\.(?:\*|[0-9]*))?(?P<length>hh|h|ll|l|j|z|t|L)?"
    rb"(?P<conversion>gr|rx|rh|r|[diouxXcpsn%eEfFgGaA])"
)


@dataclass(frozen=True, slots=True)
class Spec:
    """One conversion of a format string."""

    conversion: str
    flags: str = ""
    width: int = 0
    length: str = ""

    def padded(self, conversion: str) -> bytes:
        """The conversion of Python's bytes formatting that also does the width."""
        if not self.width:
            return f"%{conversion}".encode()
        return f"%{'-' if '-' in self.flags else ''}{self.width}{conversion}".encode()

    def pad(self, text: bytes) -> bytes:
        """*text* as wide as it has to be."""
        if "-" in self.flags:
            return text.ljust(self.width)
        return text.rjust(self.width, b"0" if "0" in self.flags else b" ")


def parse(layout: bytes) -> list[bytes | Spec]:
    """Literal texts and conversions of a format string, in order; ``%%`` is text."""
    parts: list[bytes | Spec] = []
    text, at = b"", 0
    for found in _SPEC.finditer(layout):
        text += layout[at : found.start()]
        at = found.end()
        conversion = found["conversion"].decode()
        if conversion == "%":
            text += b"%"
            continue
        width = found["width"]
        if text:
            parts.append(text)
        text = b""
        parts.append(
            Spec(
                conversion,
                found["flags"].decode(),
                int(width) if width and width != b"*" else 0,
                (found["length"] or b"").decode(),
            )
        )
    text += layout[at:]
    if text:
        parts.append(text)
    return parts


@dataclass(frozen=True, slots=True)
class Piece:
    """How one argument prints.

    *format* is the conversion of Python's bytes formatting. *layout* is how the argument is read from the event when
    the conversion decides that (numbers that are cut), None for the decoded form of its type. *render* turns the value
    into what *format* takes. *textual*: the result can hold bytes that JSON must escape.
    """

    format: bytes
    layout: str | None = None
    render: Callable[[Any], bytes] | None = None
    textual: bool = False


def compile_pieces(layout: bytes, kinds: tuple[types.Type, ...], forms: TextForms) -> list[bytes | Piece]:
    """The parts of a format string with its conversions compiled for arguments of types *kinds*."""
    parts = parse(layout)
    waiting = list(kinds)
    found: list[bytes | Piece] = []
    for part in parts:
        if isinstance(part, bytes):
            found.append(part)
        elif not waiting:
            raise InternalError(f"too few arguments for format {layout!r}")
        else:
            found.append(_ROWS.get(part.conversion, _refused)(part, waiting.pop(0), forms))
    if waiting:
        raise InternalError(f"too many arguments for format {layout!r}")
    return found


# ---------------------------------------------------------------------------------------------- numbers

_WIDTHS = {"hh": 1, "h": 2, "": 4, "L": 4, "l": 8, "ll": 8, "j": 8, "z": 8, "t": 8}
_FORMATS: dict[str, str] = {"d": "d", "i": "d", "u": "d", "o": "o", "x": "x", "X": "X"}


def _number_type(kind: types.Type) -> types.Int | None:
    if isinstance(kind, types.Int):
        return kind
    if isinstance(kind, types.Enum):
        return kind.integer
    if isinstance(kind, types.Pointer | types.KSym | types.Username | types.Count):
        return types.UINT64
    return types.UINT8 if isinstance(kind, types.Bool) else None


def _read(source: types.Int, width: int, signed: bool) -> tuple[str, int]:
    """How to read a number of type *source* as one of *width* bytes: layout, and a mask when that is not enough."""
    if width <= source.width:
        code, rest = integer_code(width, signed), source.width - width
        padding = f"{rest}x" if rest else ""
        return (code + padding if sys.byteorder == "little" else padding + code), 0
    mask = (1 << (8 * width)) - 1 if source.signed and not signed else 0
    return integer_code(source.width, source.signed), mask


def _number(spec: Spec, kind: types.Type, _forms: TextForms) -> Piece:
    source = _number_type(kind)
    if source is None or source.width > 8:
        return _refused(spec, kind, _forms)
    signed = spec.conversion in "di"
    layout, mask = _read(source, _WIDTHS[spec.length], signed)
    plain = _FORMATS[spec.conversion]
    if signed and "+" in spec.flags:
        plain = f"+{plain}"
    prefix = _PREFIXES.get(spec.conversion, b"") if "#" in spec.flags else b""
    fill = "0" in spec.flags and "-" not in spec.flags and spec.width > 0
    if not prefix and not mask and not (fill and signed):
        return Piece(_with_flags(spec, plain, fill), layout)
    whole = f"%{plain}".encode()

    def render(value: int) -> bytes:
        if mask:
            value &= mask
        text = whole % value
        return spec.pad(prefix + text if value else text)

    return Piece(b"%s", layout, render)


_PREFIXES = {"x": b"0x", "X": b"0X", "o": b"0"}


def _with_flags(spec: Spec, plain: str, fill: bool) -> bytes:
    sign, letter = plain[:-1], plain[-1]
    side = "-" if "-" in spec.flags else ("0" if fill else "")
    width = str(spec.width) if spec.width else ""
    return f"%{side if width else ''}{sign}{width}{letter}".encode()


def _character(spec: Spec, kind: types.Type, forms: TextForms) -> Piece:
    source = _number_type(kind)
    if source is None or source.width > 8:
        return _refused(spec, kind, forms)
    layout, _ = _read(source, 1, False)
    if spec.width:
        return Piece(b"%s", layout, lambda value: spec.pad(bytes((value,))), textual=True)
    return Piece(b"%c", layout, textual=True)


def _of_word(render: Callable[[int], bytes]) -> Callable[[Spec, types.Type, TextForms], Piece]:
    """A conversion that shows a number as an unsigned word."""

    def make(spec: Spec, kind: types.Type, forms: TextForms) -> Piece:
        source = _number_type(kind)
        if source is None or source.width > 8:
            return _refused(spec, kind, forms)
        layout, mask = _read(source, 8, False)
        everything = mask or (1 << 64) - 1
        return Piece(spec.padded("s"), layout, lambda value: render(value & everything))

    return make


def _address(value: int) -> bytes:
    return b"0x%x" % value if value else b"0"


# ---------------------------------------------------------------------------------------------- texts


def _string(spec: Spec, kind: types.Type, forms: TextForms) -> Piece:
    if isinstance(kind, types.Int) and kind.width <= 8:
        return Piece(spec.padded("d"), integer_code(kind.width, kind.signed))
    if isinstance(kind, types.String):
        return Piece(spec.padded("s"), textual=True)
    return Piece(spec.padded("s"), render=forms.form(kind), textual=True)


def _buffer(form: Callable[[bytes], bytes]) -> Callable[[Spec, types.Type, TextForms], Piece]:
    def piece(spec: Spec, kind: types.Type, forms: TextForms) -> Piece:
        if isinstance(kind, types.Buffer | types.String | types.Mac):
            return Piece(spec.padded("s"), render=form, textual=True)
        return _string(spec, kind, forms)

    return piece


def _refused(spec: Spec, kind: types.Type, _forms: TextForms) -> Piece:
    mark = f"!{{{kind} cannot print as %{spec.conversion}}}".encode()
    return Piece(b"%s", render=lambda _value: mark, textual=True)


def _gfp_flags(spec: Spec, kind: types.Type, forms: TextForms) -> Piece:
    from pytrace.runtime.output.render import gfp_flags  # few scripts need it

    return _of_word(gfp_flags.names)(spec, kind, forms)


_ROWS: dict[str, Callable[[Spec, types.Type, TextForms], Piece]] = {
    **dict.fromkeys(_FORMATS, _number),
    "c": _character,
    "p": _of_word(_address),
    "gr": _gfp_flags,
    "s": _string,
    "r": _buffer(escaped),
    "rx": _buffer(hex_escaped),
    "rh": _buffer(hex_spaced),
}


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
