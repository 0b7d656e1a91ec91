"""The text form of values of every type, at any nesting.

A form takes a decoded value (:mod:`pytrace.render.decoders`) and returns bytes: strings of traced programs are printed
as they are, in any encoding.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Never, TypeVar

from pytrace.core import types
from pytrace.core.types.builtin_types import truncated
from pytrace.render.decoders import Value, Values

if TYPE_CHECKING:
    from pytrace.render.forms import TextForms
    from pytrace.render.names import ValueNames

Form = Callable[[Value], bytes]

V = TypeVar("V")


class Bars(Enum):
    """How the bars of histograms are drawn."""

    SIGNS = "signs"
    """``@``, as bpftrace draws them."""
    COLOUR = "colour"
    """Eighths of block characters, in colour."""


def map_title(name: str, mark: str) -> str:
    """The name of a map, after what is said of its values (``estimate``, ``sample``), if anything is."""
    return f"{mark} {name}" if mark else name


def joined_members(forms: list[Form], comma: bytes) -> Callable[[Values], bytes]:
    """The texts of members with *comma* between them."""
    if len(forms) == 2:
        first, second = forms

        def pair(value: Values) -> bytes:
            return b"%s%s%s" % (first(value[0]), comma, second(value[1]))

        return pair
    return lambda value: comma.join([form(item) for form, item in zip(forms, value, strict=True)])


# ---------------------------------------------------------------------------------------------- buffers


_BYTES = tuple(bytes((code,)) if 32 <= code <= 126 else b"\\x%02x" % code for code in range(256))


def escaped(data: bytes) -> bytes:
    """``%r``: printable ASCII as it is, other bytes as ``\\xNN``."""
    if data.isascii() and data.decode().isprintable():
        return data
    return b"".join([_BYTES[code] for code in data])


def hex_escaped(data: bytes) -> bytes:
    """``%rx``: every byte as ``\\xNN``."""
    return b"".join([b"\\x%02x" % code for code in data])


def hex_spaced(data: bytes) -> bytes:
    """``%rh``: two hex digits for each byte, separated by spaces."""
    return data.hex(" ").encode()


# ---------------------------------------------------------------------------------------------- rows


def inet(value: tuple[int, bytes]) -> bytes:
    """An address in the usual notation."""
    import socket

    family, address = value
    if family not in (socket.AF_INET, socket.AF_INET6):
        return b""
    return socket.inet_ntop(family, address).encode()


def mac(value: bytes) -> bytes:
    """A hardware address, upper case."""
    return value.hex(":").upper().encode()


def always(form: Callable[[V], bytes]) -> Callable[[object, types.Type], Callable[[V], bytes]]:
    """For types of which all values have the same *form*."""
    return lambda _forms, _kind: form


def name(
    form: Callable[[ValueNames], Callable[[V], bytes]],
) -> Callable[[TextForms, types.Type], Callable[[V], bytes]]:
    """For values that print as a name."""
    return lambda forms, _kind: form(forms.names)


def void(_value: object) -> bytes:
    """The text of no value."""
    return b"null"


def boolean(value: bool) -> bytes:
    """``true`` or ``false``."""
    return b"true" if value else b"false"


def integer(value: int) -> bytes:
    """A decimal number."""
    return b"%d" % value


def fraction(_forms: TextForms, type_: types.Float) -> Callable[[float], bytes]:
    """The shortest decimal number that is this floating-point number, and no other of its type."""
    return _shortest_of_4 if type_.size == 4 else _shortest


def _shortest(value: float) -> bytes:
    if math.isnan(value):
        return b"-nan" if math.copysign(1, value) < 0 else b"nan"
    return repr(value).removesuffix(".0").encode()


def _shortest_of_4(value: float) -> bytes:
    if not math.isfinite(value):
        return _shortest(value)
    for digits in range(6, 9):
        text = f"{value:.{digits}g}"
        if struct.unpack("=f", struct.pack("=f", float(text)))[0] == value:
            return text.encode()
    return f"{value:.9g}".encode()


def pointer(value: int) -> bytes:
    """An address."""
    return b"0x%x" % value


def same(value: bytes) -> bytes:
    """A text as it is."""
    return value


def enum(_forms: TextForms, type_: types.Enum) -> Callable[[int], bytes]:
    """The name of an enumerator; the number of a value that is none."""
    known: dict[int, bytes] = {}
    for name, value in type_.members:
        known.setdefault(value, name.encode(errors="surrogateescape"))
    return lambda value: known.get(value) or b"%d" % value


def array(forms: TextForms, type_: types.Array) -> Callable[[Values], bytes]:
    """The form of arrays."""
    element = forms.form(type_.element)
    return lambda value: b"[%s]" % b",".join([element(item) for item in value])


def tuple_(forms: TextForms, type_: types.Tuple) -> Callable[[Values], bytes]:
    """The form of tuples."""
    inner = joined_members([forms.form(member) for member in type_.members], forms.comma)
    return lambda value: b"(%s)" % inner(value)


def _named(forms: TextForms, names: Sequence[str], kinds: Sequence[types.Type]) -> Callable[[Values], bytes]:
    if not names:
        return lambda _value: b"{}"
    equals, opening, closing = (b"=", b"{", b"}") if forms.compact else (b" = ", b"{ ", b" }")
    encoded = [name.encode(errors="surrogateescape") for name in names]
    parts = [(b".%s%s" % (name, equals), forms.form(member)) for name, member in zip(encoded, kinds, strict=True)]

    def text(value: Values) -> bytes:
        inner = forms.comma.join([label + form(item) for (label, form), item in zip(parts, value, strict=True)])
        return opening + inner + closing

    return text


def member_names(type_: types.Record | types.Struct) -> list[str]:
    """The names of members as they print."""
    if isinstance(type_, types.Struct):
        return [field.name for field in types.named_fields(type_)]
    return list(map(types.shown_name, type_.names))


def record(forms: TextForms, type_: types.Record | types.Struct) -> Callable[[Values], bytes]:
    """The form of records and structs."""
    return _named(forms, member_names(type_), types.member_types(type_))


def fixed(type_: types.Fixed) -> Callable[[int], bytes]:
    """Decimal numbers, which are rounded half away from zero."""
    one, half, divisor, digits = type_.one, type_.divisor, 2 * type_.divisor, type_.digits
    if not digits:
        return lambda value: b"%d" % type_.scaled(value)
    twice = 2 * one

    def text(value: int) -> bytes:
        if value >= 0:
            return b"%d.%0*d" % ((number := (value * twice + half) // divisor) // one, digits, number % one)
        number = (half - value * twice) // divisor
        return b"%s%d.%0*d" % (b"-" if number else b"", number // one, digits, number % one)

    return text


def fixed_form(_forms: TextForms, type_: types.Fixed) -> Callable[[int], bytes]:
    """The form of decimal numbers."""
    return fixed(type_)


def joined(forms: TextForms, type_: types.Joined) -> Callable[[Values | bytes], bytes]:
    """The form of values that print with a separator or by a format."""
    if type_.formatted and forms.formatted is not None:
        return forms.formatted(type_, forms)
    parts = [forms.form(member) for member in type_.members]
    separator = type_.separator.encode("utf-8", "surrogateescape")

    def text(value: Values | bytes) -> bytes:
        # In snapshots it is a text already.
        if isinstance(value, bytes):
            return value
        return separator.join([part(item) for part, item in zip(parts, value, strict=True)])

    return text


def stack(forms: TextForms, type_: types.Stack) -> Callable[[Never], bytes]:
    """The form of stacks."""
    return forms.names.stack(type_, forms.indent)


def average(value: tuple[int, int]) -> bytes:
    """An average, truncated."""
    return b"%d" % truncated(*value)


STATS = ("count", "average", "total")
"""Members of a stats value as it prints."""


def stats_members(value: tuple[int, int]) -> tuple[int, int, int]:
    """The members of a stats value, in the order of :data:`STATS`."""
    total, count = value
    return count, truncated(total, count), total


def stats(forms: TextForms, _kind: types.Type) -> Callable[[tuple[int, int]], bytes]:
    """The form of statistics."""
    record = _named(forms, STATS, [types.UINT64, types.INT64, types.INT64])
    return lambda value: record(stats_members(value))


def extreme(value: tuple[int, int]) -> bytes:
    """A least or greatest value."""
    return b"%d" % value[0]
