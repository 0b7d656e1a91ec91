"""Decoders of values, compiled from their types.

A decoder takes memory and an offset and gives a plain Python value that compares and sorts as the language does:

=========================== ==========================================================
type                        decoded form
=========================== ==========================================================
bool                        ``bool``
int, enum, pointer          ``int``
string                      ``bytes`` up to the first NUL; the trailer after a cut one
buffer                      ``bytes``
void, array, tuple, record  ``tuple`` of members
struct, union               ``tuple`` of named members, anonymous ones flattened
stack                       ``(process, frames, error)``: no frames and a negative errno when there is no stack
ksym, username, interface,  ``int``
network namespace
usym                        ``(process, address)``
inet                        ``(family, address bytes)``
mac                         ``bytes``
timestamp                   ``(nanoseconds, format index, clock)``
cgroup path                 ``(id, filter index)``
count, sum                  ``int``
avg, stats                  ``(total, count)``
min, max                    ``(value, set)``
hist, lhist                 ``tuple`` of counts
tseries                     ``tuple`` of ``(epoch, value, meta)``
=========================== ==========================================================
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from typing import Generic, Never, TypeAlias, TypeVar, cast

from pytrace.core import types

Memory = bytes | bytearray | memoryview
Value: TypeAlias = "int | bytes | tuple[Value, ...]"
"""A decoded value."""
Values: TypeAlias = "tuple[Value, ...]"
Decode = Callable[[Memory, int], Value]
Convert = Callable[[bytes], Value]

_CODES = {(1, True): "b", (2, True): "h", (4, True): "i", (8, True): "q",
          (1, False): "B", (2, False): "H", (4, False): "I", (8, False): "Q"}  # fmt: skip


def integer_code(width: int, signed: bool) -> str:
    """The :mod:`struct` code of an integer of 1, 2, 4 or 8 bytes."""
    return _CODES[width, signed]


Made = TypeVar("Made")
Maker = TypeVar("Maker")
_T = TypeVar("_T", bound=types.Type)


def row(
    kind: type[_T], make: Callable[[Maker, _T], Made]
) -> tuple[type[types.Type], Callable[[Maker, types.Type], Made]]:
    """A row of a table by types, whose function is only called with types of its own class."""
    return kind, cast("Callable[[Maker, types.Type], Made]", make)


def for_any(form: Callable[[Never], Made]) -> Callable[[Value], Made]:
    """*form* as it is called: with decoded values, which are those of its own type."""
    return cast("Callable[[Value], Made]", form)


class ByType(Generic[Made]):
    """What is made for a type by the row of its class, once."""

    def __init__(self) -> None:
        # By identity: different anonymous structs of a compiled script compare equal.
        self._made: dict[int, tuple[types.Type, Made]] = {}

    def made(self, kind: types.Type) -> Made:
        """What belongs to *kind*."""
        found = self._made.get(id(kind))
        if found is None:
            found = self._made[id(kind)] = (kind, self._make(kind))
        return found[1]

    def _make(self, kind: types.Type) -> Made:
        raise NotImplementedError


class Decoders(ByType[Decode]):
    """Makes decoders. *trailer* is what a string shows after its text when it was truncated (``str_trunc_trailer``).

    A string truncated when *max_strlen* bytes hold no NUL; a shorter one is an array of characters that is full.
    """

    def __init__(self, trailer: bytes = b"", max_strlen: int = 0) -> None:
        super().__init__()
        self.trailer = trailer
        self.max_strlen = max_strlen

    def _make(self, kind: types.Type) -> Decode:
        return ROWS[type(kind)](self, kind)

    def decoder(self, kind: types.Type) -> Decode:
        """The decoder of values of type *kind*."""
        return self.made(kind)

    def convert(self, kind: types.Type) -> tuple[str, Convert | None]:
        """How *kind* is read as one field of a :class:`struct.Struct`: code, and what remains to do with the result."""
        row = _SCALARS.get(type(kind))
        if row is not None and kind.size <= 8 and not (isinstance(kind, types.Fixed) and kind.path):
            return row(kind), None
        if isinstance(kind, types.String):
            return f"{kind.capacity}s", self.string(kind)
        decode = self.decoder(kind)
        return f"{kind.size}s", lambda data: decode(data, 0)

    def trailer_of(self, kind: types.String) -> bytes:
        """What is shown after a string of this type that has no NUL."""
        return self.trailer if kind.capacity >= self.max_strlen else b""

    def string(self, kind: types.String) -> Callable[[bytes], bytes]:
        """The text of a string's memory."""
        trailer = self.trailer_of(kind)

        def convert(data: bytes) -> bytes:
            text, end, _ = data.partition(b"\0")
            return text if end else text + trailer

        return convert

    def members(self, kinds: tuple[types.Type, ...], offsets: tuple[int, ...]) -> Decode:
        """A decoder of members that start at *offsets*, giving a tuple."""
        if not kinds:
            return lambda _memory, _offset: ()
        layout, at = ["="], 0
        converts: list[Convert | None] = []
        for kind, offset in zip(kinds, offsets, strict=True):
            code, convert = self.convert(kind)
            layout.append(f"{offset - at}x{code}" if offset != at else code)
            at = offset + kind.size
            converts.append(convert)
        unpack = struct.Struct("".join(layout)).unpack_from
        if not any(converts):
            return unpack
        if len(converts) == 1 and (only := converts[0]) is not None:
            return lambda memory, offset: (only(unpack(memory, offset)[0]),)
        steps = tuple((index, convert) for index, convert in enumerate(converts) if convert is not None)

        def decode(memory: Memory, offset: int) -> Values:
            found = list(unpack(memory, offset))
            for index, convert in steps:
                found[index] = convert(found[index])
            return tuple(found)

        return decode


# ---------------------------------------------------------------------------------------------- rows


def _bool(_kind: types.Type) -> str:
    return "?"


def _integer(kind: types.Type) -> str:
    assert isinstance(kind, types.Int | types.Enum)
    return integer_code(kind.width, kind.signed)


def _pointer(_kind: types.Type) -> str:
    return "Q"


def _fixed(kind: types.Type) -> str:
    assert isinstance(kind, types.Fixed)
    return integer_code(8, kind.signed)


_SCALARS: dict[type[types.Type], Callable[[types.Type], str]] = {
    types.Bool: _bool,
    types.Int: _integer,
    types.Enum: _integer,
    types.Pointer: _pointer,
    types.KSym: _pointer,
    types.Username: _pointer,
    types.InterfaceName: _pointer,
    types.NetworkNamespace: _pointer,
    types.Fixed: _fixed,
    types.Count: _pointer,
}


def _scalar(_decoders: Decoders, kind: types.Type) -> Decode:
    if isinstance(kind, types.Int) and kind.size > 8:
        signed, size = kind.signed, kind.size
        order = sys.byteorder
        return lambda memory, offset: int.from_bytes(memory[offset : offset + size], order, signed=signed)
    return _single("=" + _SCALARS[type(kind)](kind))


def _single(layout: str) -> Decode:
    unpack = struct.Struct(layout).unpack_from
    return lambda memory, offset: unpack(memory, offset)[0]


def _of_fixed(decoders: Decoders, kind: types.Fixed) -> Decode:
    if not kind.path:
        return _scalar(decoders, kind)
    from pytrace.render import file_numbers

    return file_numbers.decoder(kind)


def _void(_decoders: Decoders, _kind: types.Type) -> Decode:
    return lambda _memory, _offset: ()


def _string(decoders: Decoders, kind: types.String) -> Decode:
    size, string = kind.size, decoders.string(kind)
    return lambda memory, offset: string(bytes(memory[offset : offset + size]))


def _buffer(_decoders: Decoders, kind: types.Buffer) -> Decode:
    capacity = kind.capacity
    length = struct.Struct("=I").unpack_from
    header = types.Buffer.header

    def decode(memory: Memory, offset: int) -> bytes:
        start = offset + header
        return bytes(memory[start : start + min(length(memory, offset)[0], capacity)])

    return decode


def _array(decoders: Decoders, kind: types.Array) -> Decode:
    step = kind.element.size
    return decoders.members((kind.element,) * kind.count, tuple(step * index for index in range(kind.count)))


def _tuple(decoders: Decoders, kind: types.Members) -> Decode:
    return decoders.members(kind.members, kind.offsets)


def _bitfield(field: types.Field) -> Decode:
    # The bits may straddle the storage unit (packed structs), so read just the bytes that hold them.
    first, shift = divmod(field.bit_offset, 8)
    size = (shift + field.bit_size + 7) // 8
    if sys.byteorder == "big":
        shift = 8 * size - shift - field.bit_size
    mask = (1 << field.bit_size) - 1
    boolean = isinstance(field.type, types.Bool)
    whole = field.bit_size == 8 * field.type.size and isinstance(field.type, types.Int) and field.type.signed
    sign = 1 << (field.bit_size - 1) if whole else 0
    start = field.offset + first
    order = sys.byteorder

    def decode(memory: Memory, offset: int) -> int:
        raw = int.from_bytes(memory[offset + start : offset + start + size], order) >> shift & mask
        return raw != 0 if boolean else (raw ^ sign) - sign

    return decode


def _struct(decoders: Decoders, kind: types.Struct) -> Decode:
    parts: list[tuple[Decode, int]] = []
    for field in types.named_fields(kind):
        if field.bit_size:
            parts.append((_bitfield(field), 0))
        else:
            parts.append((decoders.decoder(field.type), field.offset))

    def decode(memory: Memory, offset: int) -> Values:
        return tuple(part(memory, offset + at) for part, at in parts)

    return decode


def _stack(_decoders: Decoders, kind: types.Stack) -> Decode:
    head = struct.Struct("=iI").unpack_from
    start, limit = types.Stack.header, kind.limit
    one = struct.Struct("=i20sQ")  # struct bpf_stack_build_id, include/uapi/linux/bpf.h
    by_build_id = kind.mode is types.StackMode.BUILD_ID

    def decode(memory: Memory, offset: int) -> tuple[int, Values, int]:
        count, process = head(memory, offset)
        if count < 0:
            return process, (), count
        count = min(count, limit)
        if by_build_id:
            data = bytes(memory[offset + start : offset + start + 32 * count])
            return process, tuple(one.iter_unpack(data)), 0
        return process, struct.unpack_from(f"={count}Q", memory, offset + start), 0

    return decode


def _usym(_decoders: Decoders, _kind: types.Type) -> Decode:
    unpack = struct.Struct("=QI").unpack_from

    def decode(memory: Memory, offset: int) -> tuple[int, int]:
        address, process = unpack(memory, offset)
        return process, address

    return decode


def _inet(_decoders: Decoders, _kind: types.Type) -> Decode:
    unpack = struct.Struct("=I16s").unpack_from

    def decode(memory: Memory, offset: int) -> tuple[int, bytes]:
        family, address = unpack(memory, offset)
        return family, address[:4] if family == types.AF_INET else address

    return decode


def _mac(_decoders: Decoders, _kind: types.Type) -> Decode:
    return _single("=6s")


def _fields(layout: str) -> Callable[[Decoders, types.Type], Decode]:
    unpack = struct.Struct(layout).unpack_from
    return lambda _decoders, _kind: unpack


def _signed64(kind: types.Sum | types.Avg | types.Stats) -> str:
    return "q" if kind.signed else "Q"


def _sum(_decoders: Decoders, kind: types.Sum) -> Decode:
    return _single("=" + _signed64(kind))


def _pair(_decoders: Decoders, kind: types.Avg | types.Stats) -> Decode:
    return struct.Struct(f"={_signed64(kind)}Q").unpack_from


def _buckets(_decoders: Decoders, kind: types.Hist | types.LHist) -> Decode:
    return struct.Struct(f"={kind.buckets}Q").unpack_from


def _extreme(_decoders: Decoders, kind: types.Min | types.Max) -> Decode:
    unpack, value = struct.Struct("=QQ").unpack_from, kind.value

    def decode(memory: Memory, offset: int) -> tuple[int, int]:
        rank, seen = unpack(memory, offset)
        return (value(rank), seen) if seen else (0, 0)

    return decode


def _tseries(_decoders: Decoders, kind: types.TSeries) -> Decode:
    size = kind.size
    one = struct.Struct(f"=Q{'q' if kind.signed else 'Q'}Q")
    return lambda memory, offset: tuple(one.iter_unpack(bytes(memory[offset : offset + size])))


ROWS: dict[type[types.Type], Callable[[Decoders, types.Type], Decode]] = dict((
    row(types.Void, _void),
    row(types.Bool, _scalar),
    row(types.Int, _scalar),
    row(types.Enum, _scalar),
    row(types.Pointer, _scalar),
    row(types.String, _string),
    row(types.Buffer, _buffer),
    row(types.Array, _array),
    row(types.Tuple, _tuple),
    row(types.Record, _tuple),
    row(types.Struct, _struct),
    row(types.Stack, _stack),
    row(types.KSym, _scalar),
    row(types.USym, _usym),
    row(types.Inet, _inet),
    row(types.Mac, _mac),
    row(types.Timestamp, _fields("=QII")),
    row(types.Username, _scalar),
    row(types.InterfaceName, _scalar),
    row(types.NetworkNamespace, _scalar),
    row(types.CgroupPath, _fields("=QI")),
    row(types.Fixed, _of_fixed),
    row(types.Joined, _tuple),
    row(types.Count, _scalar),
    row(types.Sum, _sum),
    row(types.Avg, _pair),
    row(types.Stats, _pair),
    row(types.Min, _extreme),
    row(types.Max, _extreme),
    row(types.Hist, _buckets),
    row(types.LHist, _buckets),
    row(types.TSeries, _tseries),
))
