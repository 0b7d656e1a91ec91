"""The value types that are no aggregations, and the table of all (:data:`KINDS`)."""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Never, TypeVar, cast

from pytrace.core import types
from pytrace.core.types import CHUNK_FRAMES, CHUNK_LINK, Array, Field, Record, Tuple, Type, truncated, wrapped
from pytrace.render import json
from pytrace.render.aggregations import Averages, Counters, Maxima, Minima, Statistics, Sums
from pytrace.render.histogram import LinearHistograms, LogHistograms
from pytrace.render.text import (
    Decode,
    Form,
    Memory,
    Value,
    Values,
    encoded,
    escaped,
    for_any,
    integer_code,
    joined_members,
    named_members,
)
from pytrace.render.tseries import TimeSeries
from pytrace.render.value_kind import (
    Held,
    MismatchError,
    Piece,
    Plain,
    Reduction,
    Result,
    Subtract,
    ValueKind,
    itself,
    merged_copies,
    numbers_change,
    same_or_mismatch,
    single,
)

if TYPE_CHECKING:
    from pytrace.render.forms import Decoders, JsonForms, PortableForms, TextForms
    from pytrace.render.names import ValueNames

T = TypeVar("T", bound=Type)
Made = TypeVar("Made")


def value_kind_of(type_: Type) -> ValueKind[Type]:
    """All that is made of the values of a type."""
    return KINDS[type(type_)](type_)


def with_div(form: Callable[[Value], Made], type_: Type, div: int) -> Callable[[Value], Made]:
    """*form* for values of a type that are divided by *div* first."""
    if div <= 1:
        return form
    change = for_any(value_kind_of(type_).divided(div))
    return lambda value: form(change(value))


def joined_types(first: Type, second: Type) -> Type:
    """The type of values of both (:meth:`ValueKind.union`).

    Raises:
        MismatchError: values of the two cannot stand in one map.
    """
    if first is second:
        return first
    if type(first) is not type(second):
        raise MismatchError
    return value_kind_of(first).union(second)


def _joined_all(first: Sequence[Type], second: Sequence[Type]) -> tuple[Type, ...]:
    same_or_mismatch(len(first), len(second))
    return tuple(map(joined_types, first, second))


# ---------------------------------------------------------------------------------------------- numbers


class Empty(ValueKind[types.Void]):
    """No value."""

    held = Held.MEMBERS

    def decode(self, decoders: Decoders) -> Decode:
        return lambda _memory, _offset: ()

    def text(self, forms: TextForms) -> Callable[[object], bytes]:
        return lambda _value: b"null"

    def json(self, forms: JsonForms) -> Callable[[object], bytes]:
        return lambda _value: b"null"


class Booleans(ValueKind[types.Bool]):
    """Truth values."""

    held = Held.BOOL
    number = True
    width = 5

    def code(self) -> str:
        return "?"

    def pieces(self) -> list[Piece]:
        return [Piece(0, self.type.size)]

    def text(self, forms: TextForms) -> Callable[[bool], bytes]:
        return lambda value: b"true" if value else b"false"

    def json(self, forms: JsonForms) -> Callable[[bool], bytes]:
        return self.text(forms.texts)


I = TypeVar("I", types.Int, types.Enum)


class _Integers(ValueKind[I]):
    held = Held.INTEGER
    number = True

    def code(self) -> str | None:
        return integer_code(self.type.width, self.type.signed) if self.type.size <= 8 else None

    def pieces(self) -> list[Piece]:
        return [Piece(0, self.type.size, True, self.type.signed)]

    def rank(self) -> Callable[[int], int]:
        return itself

    def json(self, forms: JsonForms) -> Callable[[int], bytes]:
        return json.number


class Integers(_Integers[types.Int]):
    """Integers; in per-CPU maps of plain numbers the copies are added."""

    def decode(self, decoders: Decoders) -> Decode:
        type_, order = self.type, sys.byteorder
        if type_.size <= 8:
            return super().decode(decoders)
        signed, size = type_.signed, type_.size
        return lambda memory, offset: int.from_bytes(memory[offset : offset + size], order, signed=signed)

    def merge(self, size: int, decoders: Decoders) -> Callable[[bytes], Value]:
        type_ = self.type
        if size <= max(8, type_.size):
            return super().merge(size, decoders)
        # A plain number in a per-CPU map: each copy takes 8 bytes.
        wrap = wrapped(type_.signed)
        one = struct.Struct("=" + integer_code(type_.width, type_.signed)).unpack_from
        return lambda data: wrap(sum(one(data, offset)[0] for offset in range(0, size, 8)))

    def reduction(self, size: int, decoders: Decoders) -> Reduction:
        if size <= max(8, self.type.size):
            return Reduction(self.type, size, itself)
        wide = types.INT64 if self.type.signed else types.UINT64
        pack = struct.Struct("=q" if self.type.signed else "=Q").pack
        return Reduction(wide, 8, merged_copies(self, size, 8, pack, decoders))

    def divided(self, div: int) -> Callable[[int], int]:
        return lambda value: truncated(value, div)

    def text(self, forms: TextForms) -> Callable[[int], bytes]:
        return lambda value: b"%d" % value

    def union(self, other: types.Int) -> Type:
        # Portable integers have any size: signed as soon as one is, and no value changes.
        return types.Int(max(self.type.width, other.width), self.type.signed or other.signed)

    def change(self) -> Subtract:
        return numbers_change

    def signed(self) -> Type:
        return types.INT64


class Enumerators(_Integers[types.Enum]):
    """Values of enumerations: their names, the numbers of values that have none."""

    def text(self, forms: TextForms) -> Callable[[int], bytes]:
        known: dict[int, bytes] = {}
        for name, value in self.type.members:
            known.setdefault(value, name.encode(errors="surrogateescape"))
        return lambda value: known.get(value) or b"%d" % value

    def union(self, other: types.Enum) -> Type:
        own = self.type
        same_or_mismatch(own.name, other.name)
        members = own.members
        if members != other.members:
            members = tuple(sorted({*members, *other.members}, key=lambda member: (member[1], member[0])))
        return types.Enum(own.name, max(own.width, other.width), own.signed or other.signed, members)


_NAN, _NEGATIVE_NAN = math.nan, math.copysign(math.nan, -1)


def one_nan(value: float) -> float:
    """The number; what is none is always the same object of its sign, so that keys with it are equal."""
    return value if not math.isnan(value) else _NAN if math.copysign(1, value) > 0 else _NEGATIVE_NAN


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


class Fractions(ValueKind[types.Float]):
    """Floating-point numbers: the shortest decimal number that is this one, and no other of its type."""

    held = Held.FLOAT

    def code(self) -> str:
        return "f" if self.type.size == 4 else "d"

    def text(self, forms: TextForms) -> Callable[[float], bytes]:
        return _shortest_of_4 if self.type.size == 4 else _shortest

    def json(self, forms: JsonForms) -> Callable[[float], bytes]:
        """A JSON number; a string for what JSON has no number for."""
        text = forms.texts.form(self.type)
        return lambda value: text(value) if math.isfinite(value) else b'"%s"' % text(value)

    def portable(self, forms: object) -> Callable[[float], float]:
        return one_nan

    def restored(self) -> Callable[[float], float]:
        return one_nan

    def union(self, other: types.Float) -> Type:
        # A double has each value of a float.
        return types.Float(max(self.type.width, other.width))


class Pointers(ValueKind[types.Pointer]):
    """Addresses."""

    held = Held.INTEGER
    width = 18

    def code(self) -> str:
        return "Q"

    def pieces(self) -> list[Piece]:
        return [Piece(0, self.type.size)]

    def text(self, forms: TextForms) -> Callable[[int], bytes]:
        return lambda value: b"0x%x" % value

    def json(self, forms: JsonForms) -> Callable[[int], bytes]:
        return json.number

    def union(self, other: types.Pointer) -> Type:
        return types.Pointer(types.VOID)


_MOST = 65536
"""Bytes of a file that are looked at."""


def file_number(path: str, word: int, one: int) -> int:
    """The number at word *word* (from 1) of a file such as those in ``/proc``, times *one*; 0 when there is none."""
    from decimal import Decimal, DecimalException  # few scripts need it

    try:
        with open(path, "rb") as file:
            words = file.read(_MOST).split()
        number = Decimal(words[word - 1].decode("ascii"))
        return int((number * one).to_integral_value())
    except (OSError, IndexError, UnicodeDecodeError, DecimalException, ValueError, OverflowError):
        return 0


def fixed_text(type_: types.Fixed) -> Callable[[int], bytes]:
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


class Decimals(ValueKind[types.Fixed]):
    """Decimal numbers, some of which are in files."""

    held = Held.INTEGER

    def code(self) -> str | None:
        return None if self.type.path else integer_code(8, self.type.signed)

    def decode(self, decoders: Decoders) -> Decode:
        type_ = self.type
        if not type_.path:
            return super().decode(decoders)
        return lambda _memory, _offset: file_number(type_.path, type_.word, type_.one)

    def pieces(self) -> list[Piece]:
        return [Piece(0, self.type.size, True, self.type.signed)]

    def rank(self) -> Callable[[int], int]:
        return itself

    def text(self, forms: TextForms) -> Callable[[int], bytes]:
        return fixed_text(self.type)

    def json(self, forms: JsonForms) -> Form:
        return forms.texts.form(self.type)

    def python(self) -> Callable[[int], float]:
        return self.type.number

    def union(self, other: types.Fixed) -> Type:
        same_or_mismatch((self.type.divisor, self.type.digits), (other.divisor, other.digits))
        return self.type if self.type.signed else other


# ---------------------------------------------------------------------------------------------- text and bytes


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


class Strings(ValueKind[types.String]):
    """Strings, as they are."""

    held = Held.TEXT
    traced = True

    def decode(self, decoders: Decoders) -> Decode:
        size, text = self.type.size, decoders.string(self.type)
        return lambda memory, offset: text(bytes(memory[offset : offset + size]))

    def pieces(self) -> list[Piece]:
        return [Piece(0, self.type.size, False, ends=True)]

    def text(self, forms: TextForms) -> Callable[[bytes], bytes]:
        return itself

    def json(self, forms: JsonForms) -> Callable[[bytes], bytes]:
        return json.quoted

    def portable(self, forms: object) -> Callable[[bytes], str]:
        return _text

    def restored(self) -> Callable[[str], bytes]:
        return encoded

    def union(self, other: types.String) -> Type:
        return self.type if self.type.capacity >= other.capacity else other


class Buffers(ValueKind[types.Buffer]):
    """Buffers, which start with their length; in JSON their bytes as signed numbers."""

    held = Held.BYTES

    def decode(self, decoders: Decoders) -> Decode:
        capacity = self.type.capacity
        length = struct.Struct("=I").unpack_from
        header = types.Buffer.header

        def decode(memory: Memory, offset: int) -> bytes:
            start = offset + header
            return bytes(memory[start : start + min(length(memory, offset)[0], capacity)])

        return decode

    def pieces(self) -> list[Piece]:
        """The bytes, then the length."""
        header = types.Buffer.header
        return [Piece(header, self.type.size - header, False), Piece(0, header)]

    def text(self, forms: TextForms) -> Callable[[bytes], bytes]:
        return escaped

    def json(self, forms: JsonForms) -> Callable[[bytes], bytes]:
        return lambda value: b"[%s]" % b",".join([b"%d" % item for item in struct.unpack(f"{len(value)}b", value)])

    def union(self, other: types.Buffer) -> Type:
        return self.type if self.type.capacity >= other.capacity else other


# ---------------------------------------------------------------------------------------------- members


class _Containers(ValueKind[T]):
    """Types with members, each by its own kind."""

    held = Held.MEMBERS

    def _types(self) -> Sequence[Type]:
        return types.member_types(self.type)

    def _names(self) -> Sequence[str]:
        raise NotImplementedError

    def divided(self, div: int) -> Callable[[Values], Values]:
        return _divided_members(self._types(), div)

    def text(self, forms: TextForms) -> Callable[[Never], bytes]:
        return named_members(self._names(), list(map(forms.form, self._types())), forms.comma, compact=forms.compact)

    def json(self, forms: JsonForms) -> Callable[[Never], bytes]:
        return json.named_members(self._names(), list(map(forms.form, self._types())))

    def portable(self, forms: PortableForms) -> Callable[[Values], Plain]:
        return portable_members([forms.form(member) for member in self._types()])

    def restored(self) -> Callable[[tuple[Plain, ...]], Values]:
        parts = [value_kind_of(member).restored() for member in self._types()]
        return lambda value: tuple([part(item) for part, item in zip(parts, value, strict=True)])


def portable_members(forms: Sequence[Callable[[Value], Plain]]) -> Callable[[Values], tuple[Plain, ...]]:
    """The portable form of members, each by its own form."""
    steps = tuple((index, form) for index, form in enumerate(forms) if form is not itself)
    if not steps:
        return itself
    if len(forms) == 2:
        first, second = forms
        return lambda value: (first(value[0]), second(value[1]))

    def convert(value: Values) -> tuple[Plain, ...]:
        items: list[Plain] = list(value)
        for index, form in steps:
            items[index] = form(value[index])
        return tuple(items)

    return convert


def _member_pieces(places: Iterable[tuple[Type, int]]) -> list[Piece] | None:
    """The pieces of members (type and offset) that compare one after another; None if one has none."""
    inner: list[Piece] = []
    for member, offset in places:
        parts = value_kind_of(member).pieces()
        if parts is None:
            return None
        inner += [piece.moved(offset) for piece in parts]
    return inner


def _divided_members(members: Sequence[Type], div: int) -> Callable[[Values], Values]:
    if not members:
        return itself
    parts = [for_any(value_kind_of(member).divided(div)) for member in members]
    return lambda value: tuple(part(item) for part, item in zip(parts, value, strict=True))


def _elements(element: Form) -> Callable[[Values], bytes]:
    return lambda value: b"[%s]" % b",".join([element(item) for item in value])


class Arrays(_Containers[Array]):
    """Arrays."""

    held = Held.ARRAY

    def _types(self) -> tuple[Type, ...]:
        return (self.type.element,) * self.type.count

    def _offsets(self) -> tuple[int, ...]:
        return tuple(self.type.element.size * index for index in range(self.type.count))

    def decode(self, decoders: Decoders) -> Decode:
        return decoders.members((self.type.element,) * self.type.count, self._offsets())

    def pieces(self) -> list[Piece] | None:
        return _member_pieces(zip(self._types(), self._offsets(), strict=True))

    def text(self, forms: TextForms) -> Callable[[Values], bytes]:
        return _elements(forms.form(self.type.element))

    def json(self, forms: JsonForms) -> Callable[[Values], bytes]:
        return _elements(forms.form(self.type.element))

    def portable(self, forms: PortableForms) -> Callable[[Values], Plain]:
        element = forms.form(self.type.element)
        return itself if element is itself else lambda value: tuple(map(element, value))

    def restored(self) -> Callable[[tuple[Plain, ...]], Values]:
        element = value_kind_of(self.type.element).restored()
        return lambda value: tuple([element(item) for item in value])

    def union(self, other: Array) -> Type:
        same_or_mismatch(self.type.count, other.count)
        return Array(joined_types(self.type.element, other.element), self.type.count)


M = TypeVar("M", Tuple, Record)


class _Tuples(_Containers[M]):
    def decode(self, decoders: Decoders) -> Decode:
        return decoders.members(self.type.members, self.type.offsets)

    def pieces(self) -> list[Piece] | None:
        return _member_pieces(zip(self.type.members, self.type.offsets, strict=True))

    def python(self) -> Callable[[tuple[object, ...]], Result]:
        if not any(isinstance(inner, types.Fixed) for inner in types.parts(self.type.members)):
            return itself
        parts = [value_kind_of(member).python() for member in self.type.members]
        return lambda value: tuple([part(item) for part, item in zip(parts, value, strict=True)])


class Tuples(_Tuples[Tuple]):
    """Tuples."""

    def text(self, forms: TextForms) -> Callable[[Values], bytes]:
        inner = joined_members([forms.form(member) for member in self.type.members], forms.comma)
        return lambda value: b"(%s)" % inner(value)

    def json(self, forms: JsonForms) -> Callable[[Values], bytes]:
        members = [forms.form(member) for member in self.type.members]
        return lambda value: b"[%s]" % b",".join([form(item) for form, item in zip(members, value, strict=True)])

    def described(self) -> str:
        return f"({', '.join(value_kind_of(member).described() for member in self.type.members)})"

    def union(self, other: Tuple) -> Type:
        return Tuple(_joined_all(self.type.members, other.members))


class Records(_Tuples[Record]):
    """Records."""

    def _names(self) -> list[str]:
        return list(map(types.shown_name, self.type.names))

    def described(self) -> str:
        pairs = zip(self.type.names, self.type.members, strict=True)
        return f"({', '.join(f'{name}={value_kind_of(member).described()}' for name, member in pairs)})"

    def union(self, other: Record) -> Type:
        same_or_mismatch(self.type.names, other.names)
        return Record(self.type.names, _joined_all(self.type.members, other.members))


def _bitfield(field: Field) -> Decode:
    # The bits may straddle the storage unit (packed structs), so read just the bytes that hold them.
    first, shift = divmod(field.bit_offset, 8)
    size = (shift + field.bit_size + 7) // 8
    if sys.byteorder == "big":
        shift = 8 * size - shift - field.bit_size
    mask = (1 << field.bit_size) - 1
    boolean = isinstance(field.type, types.Bool)
    signed = isinstance(field.type, types.Int | types.Enum) and field.type.signed
    sign = 1 << (field.bit_size - 1) if signed else 0
    start = field.offset + first
    order = sys.byteorder

    def decode(memory: Memory, offset: int) -> int:
        raw = int.from_bytes(memory[offset + start : offset + start + size], order) >> shift & mask
        return raw != 0 if boolean else (raw ^ sign) - sign

    return decode


class Structs(_Containers[types.Struct]):
    """Structs and unions, with anonymous members flattened."""

    def decode(self, decoders: Decoders) -> Decode:
        parts: list[tuple[Decode, int]] = []
        for field in types.named_fields(self.type):
            if field.bit_size:
                parts.append((_bitfield(field), 0))
            else:
                parts.append((decoders.decoder(field.type), field.offset))

        def decode(memory: Memory, offset: int) -> Values:
            return tuple(part(memory, offset + start) for part, start in parts)

        return decode

    def _names(self) -> list[str]:
        return [field.name for field in types.named_fields(self.type)]

    def described(self) -> str:
        return f"{self.type} with members {', '.join(self.type.names())}"

    def union(self, other: types.Struct) -> Type:
        first = self.type
        same_or_mismatch((first.kind, first.name, len(first.fields)), (other.kind, other.name, len(other.fields)))
        same_or_mismatch([field.name for field in first.fields], [field.name for field in other.fields])
        # Where members lie decides only how they were read; it stays as in the one that is greater in some order.
        base = max(first, other, key=_layout)
        kinds = [joined_types(one.type, two.type) for one, two in zip(first.fields, other.fields, strict=True)]
        fields = tuple(
            Field(field.name, type_, field.offset, field.bit_offset, field.bit_size)
            for field, type_ in zip(base.fields, kinds, strict=True)
        )
        return types.Struct(base.kind, base.name, base.size, fields, alignment=base.align)


def _layout(struct: types.Struct) -> tuple[int, int, list[tuple[int, int, int]]]:
    places = [(field.offset, field.bit_offset, field.bit_size) for field in struct.fields]
    return struct.size, struct.align, places


# ---------------------------------------------------------------------------------------------- stacks

MOST_FRAMES = 254
"""Frames of a stack that a byte can count, and one more: a truncated stack has a mark after its last frame."""


def _truncated_frames(frames: tuple[int, ...]) -> tuple[int, ...]:
    """The frames of a truncated stack, without the zeros in place of outer ones, and the mark after them."""
    end = len(frames)
    while end and not frames[end - 1]:
        end -= 1
    return (*frames[:end], types.TRUNCATED)


def chunked_stack(
    limit: int, chunk_of: Callable[[bytes], bytes | None]
) -> Callable[[Memory, int], tuple[int, tuple[int, ...], int]]:
    """A decoder of stacks whose frames are in chunks; those of chunks that were not stored are missing."""
    head = struct.Struct("=iI16s").unpack_from
    frames_of = struct.Struct(f"={CHUNK_FRAMES}Q").unpack_from

    def decode(memory: Memory, offset: int) -> tuple[int, tuple[int, ...], int]:
        count, process, key = head(memory, offset)
        if count < 0:
            return process, (), count
        more, left = count > limit, min(count, limit)
        frames: list[int] = []
        while left > 0:
            chunk = chunk_of(key)
            if chunk is None:
                more = True
                break
            own = (left - 1) % CHUNK_FRAMES + 1
            frames += frames_of(chunk, CHUNK_LINK)[:own]
            key, left = chunk[:CHUNK_LINK], left - own
        return process, _truncated_frames(tuple(frames)) if more else tuple(frames), 0

    return decode


class Stacks(ValueKind[types.Stack]):
    """Kernel and user stacks. Restored ones stay as they are: the names of snapshots print them."""

    held = Held.STACK
    traced = True
    durable = False

    def decode(self, decoders: Decoders) -> Decode:
        type_ = self.type
        if type_.chunked:
            return chunked_stack(type_.limit, decoders.chunk)
        head = struct.Struct("=iI").unpack_from
        start, limit = types.Stack.header, type_.limit
        one = struct.Struct("=i20sQ")  # struct bpf_stack_build_id, include/uapi/linux/bpf.h
        by_build_id = type_.mode is types.StackMode.BUILD_ID

        def decode(memory: Memory, offset: int) -> tuple[int, Values, int]:
            count, process = head(memory, offset)
            if count < 0:
                return process, (), count
            more, count = count > limit, min(count, limit)
            if by_build_id:
                data = bytes(memory[offset + start : offset + start + 32 * count])
                places: Values = tuple(one.iter_unpack(data))
                return process, (*places, (0, b"", types.TRUNCATED)) if more else places, 0
            frames = struct.unpack_from(f"={count}Q", memory, offset + start)
            return process, _truncated_frames(frames) if more else frames, 0

        return decode

    def pieces(self) -> list[Piece] | None:
        type_ = self.type
        if type_.chunked or type_.mode is types.StackMode.BUILD_ID or type_.limit > MOST_FRAMES:
            return None
        return [Piece(0, type_.size, False, False, type_.limit)]

    def text(self, forms: TextForms) -> Callable[[Never], bytes]:
        return forms.names.stack(self.type, forms.indent)

    def portable(self, forms: PortableForms) -> Callable[[Never], Plain]:
        return forms.stacks.form(self.type)

    def described(self) -> str:
        return f"{self.type}({self.type.mode.value})"

    def union(self, other: types.Stack) -> Type:
        same_or_mismatch((self.type.user, self.type.mode), (other.user, other.mode))
        return self.type if self.type.limit >= other.limit else other


# ---------------------------------------------------------------------------------------------- what prints as a name


class _Printed(ValueKind[T]):
    """Types whose values are texts in snapshots: what they print as."""

    held = Held.TEXT

    def portable(self, forms: PortableForms) -> Callable[[Value], str]:
        text = forms.texts.form(self.type)
        return lambda value: _text(text(value))

    def restored(self) -> Callable[[str], Value]:
        return encoded


class _Named(_Printed[T]):
    """Types whose texts the names of the run (or snapshot) have; numbers of 8 bytes unless a class says otherwise."""

    traced = True
    durable = False
    layout: ClassVar[str] = ""
    """Of several integers, for :mod:`struct`."""
    parts: ClassVar[tuple[Piece, ...]] = (Piece(0, 8),)

    def _names(self, names: ValueNames) -> Callable[[Never], bytes]:
        raise NotImplementedError

    def code(self) -> str | None:
        return None if self.layout else "Q"

    def decode(self, decoders: Decoders) -> Decode:
        return struct.Struct(self.layout).unpack_from if self.layout else super().decode(decoders)

    def pieces(self) -> list[Piece]:
        return list(self.parts)

    def text(self, forms: TextForms) -> Callable[[Never], bytes]:
        return self._names(forms.names)


class KernelSymbols(_Named[types.KSym]):
    """Kernel addresses."""

    width = 20

    def _names(self, names: ValueNames) -> Callable[[Never], bytes]:
        return names.kernel_symbol


class UserSymbols(_Named[types.USym]):
    """User addresses; the process comes first in the order."""

    width = 20
    layout = "=QI"
    parts = (Piece(8, 4), Piece(0, 8))

    def decode(self, decoders: Decoders) -> Decode:
        unpack = struct.Struct(self.layout).unpack_from

        def decode(memory: Memory, offset: int) -> tuple[int, int]:
            address, process = unpack(memory, offset)
            return process, address

        return decode

    def _names(self, names: ValueNames) -> Callable[[Never], bytes]:
        return names.user_symbol


class Usernames(_Named[types.Username]):
    """User ids."""

    width = 8

    def _names(self, names: ValueNames) -> Callable[[Never], bytes]:
        return names.user


class Interfaces(_Named[types.InterfaceName]):
    """Network interfaces."""

    width = 8

    def _names(self, names: ValueNames) -> Callable[[Never], bytes]:
        return names.interface


class Namespaces(_Named[types.NetworkNamespace]):
    """Network namespaces."""

    def _names(self, names: ValueNames) -> Callable[[Never], bytes]:
        return names.network_namespace


class Cgroups(_Named[types.CgroupPath]):
    """Control groups."""

    layout = "=QI"
    parts = (Piece(0, 8), Piece(8, 4))

    def _names(self, names: ValueNames) -> Callable[[Never], bytes]:
        return names.cgroup


class Times(_Named[types.Timestamp]):
    """Times by a format."""

    width = 8
    traced = False
    durable = True
    layout = "=QII"
    parts = (Piece(0, 8), Piece(8, 4), Piece(12, 4))

    def _names(self, names: ValueNames) -> Callable[[Never], bytes]:
        return names.timestamp


class NetworkAddresses(_Printed[types.Inet]):
    """Network addresses in the usual notation."""

    width = 15

    def decode(self, decoders: Decoders) -> Decode:
        unpack = struct.Struct("=I16s").unpack_from

        def decode(memory: Memory, offset: int) -> tuple[int, bytes]:
            family, address = unpack(memory, offset)
            return family, address[:4] if family == types.AF_INET else address

        return decode

    def pieces(self) -> list[Piece]:
        return [Piece(0, 4), Piece(4, 16, False)]

    def text(self, forms: TextForms) -> Callable[[tuple[int, bytes]], bytes]:
        import socket  # few scripts have addresses

        families = socket.AF_INET, socket.AF_INET6
        return lambda value: socket.inet_ntop(*value).encode() if value[0] in families else b""

    def restored(self) -> Callable[[str], Value]:
        import socket  # few scripts have addresses

        def restore(value: str) -> tuple[int, bytes]:
            if not value:
                return 0, b""
            family = socket.AF_INET6 if ":" in value else socket.AF_INET
            return family, socket.inet_pton(family, value)

        return restore


class HardwareAddresses(_Printed[types.Mac]):
    """Hardware addresses, upper case."""

    width = 17

    def decode(self, decoders: Decoders) -> Decode:
        return single("=6s")

    def pieces(self) -> list[Piece]:
        return [Piece(0, self.type.size, False)]

    def text(self, forms: TextForms) -> Callable[[bytes], bytes]:
        return lambda value: value.hex(":").upper().encode()

    def restored(self) -> Callable[[str], bytes]:
        return lambda value: bytes.fromhex(value.replace(":", ""))


class JoinedTexts(_Printed[types.Joined]):
    """Values that print as one text, with a separator or by a format."""

    width = 21

    def decode(self, decoders: Decoders) -> Decode:
        return decoders.members(self.type.members, self.type.offsets)

    def pieces(self) -> list[Piece] | None:
        return _member_pieces(zip(self.type.members, self.type.offsets, strict=True))

    def divided(self, div: int) -> Callable[[Values], Values]:
        return _divided_members(self.type.members, div)

    def text(self, forms: TextForms) -> Callable[[Values | bytes], bytes]:
        type_ = self.type
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

    def union(self, other: types.Joined) -> Type:
        # Values are texts already.
        if not (self.type.formatted and other.formatted):
            same_or_mismatch(self.type.separator, other.separator)
        return self.type if self.type.size >= other.size else other


# ---------------------------------------------------------------------------------------------- the table


def _row(type_: type[T], kind: type[ValueKind[T]]) -> tuple[type[Type], type[ValueKind[Type]]]:
    """A row of the table, whose kind is only made of types of its own class."""
    return type_, cast("type[ValueKind[Type]]", kind)


KINDS: dict[type[Type], type[ValueKind[Type]]] = dict((
    _row(types.Void, Empty),
    _row(types.Bool, Booleans),
    _row(types.Int, Integers),
    _row(types.Float, Fractions),
    _row(types.Enum, Enumerators),
    _row(types.Pointer, Pointers),
    _row(types.String, Strings),
    _row(types.Buffer, Buffers),
    _row(types.Array, Arrays),
    _row(types.Tuple, Tuples),
    _row(types.Record, Records),
    _row(types.Struct, Structs),
    _row(types.Stack, Stacks),
    _row(types.KSym, KernelSymbols),
    _row(types.USym, UserSymbols),
    _row(types.Inet, NetworkAddresses),
    _row(types.Mac, HardwareAddresses),
    _row(types.Timestamp, Times),
    _row(types.Username, Usernames),
    _row(types.InterfaceName, Interfaces),
    _row(types.NetworkNamespace, Namespaces),
    _row(types.CgroupPath, Cgroups),
    _row(types.Fixed, Decimals),
    _row(types.Joined, JoinedTexts),
    _row(types.Count, Counters),
    _row(types.Sum, Sums),
    _row(types.Avg, Averages),
    _row(types.Stats, Statistics),
    _row(types.Min, Minima),
    _row(types.Max, Maxima),
    _row(types.Hist, LogHistograms),
    _row(types.LHist, LinearHistograms),
    _row(types.TSeries, TimeSeries),
))  # fmt: skip
"""The class of each value type."""
