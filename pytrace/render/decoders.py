"""Decoders of values, compiled from their types.

A decoder takes memory and an offset and returns a plain Python value that compares and sorts as the language does:

=========================== ==========================================================
type                        decoded form
=========================== ==========================================================
bool                        ``bool``
int, enum, pointer          ``int``
float                       ``float``
string                      ``bytes`` up to the first NUL; the trailer after a cut one
buffer                      ``bytes``
void, array, tuple, record  ``tuple`` of members
struct, union               ``tuple`` of named members, anonymous ones flattened
stack                       ``(process, frames, error)``: no frames and a negative errno when there is no stack; the
                            frame after the last one of a truncated stack is ``TRUNCATED``
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
from typing import TYPE_CHECKING, Never, TypeAlias, TypeVar, cast

from pytrace.core import types

if TYPE_CHECKING:
    from pytrace.render.forms import Decoders

Memory = bytes | bytearray | memoryview
Value: TypeAlias = "int | float | bytes | tuple[Value, ...]"
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


def for_any(form: Callable[[Never], Made]) -> Callable[[Value], Made]:
    """*form* as it is called: with decoded values, which are those of its own type."""
    return cast("Callable[[Value], Made]", form)


# ---------------------------------------------------------------------------------------------- rows


def bool_code(_kind: types.Type) -> str:
    """The code of truth values."""
    return "?"


def code_of_integer(type_: types.Type) -> str:
    """The code of integers and enumerations."""
    assert isinstance(type_, types.Int | types.Enum)
    return integer_code(type_.width, type_.signed)


def code_of_fraction(type_: types.Type) -> str:
    """The code of floating-point numbers."""
    return "f" if type_.size == 4 else "d"


def word_code(_kind: types.Type) -> str:
    """The code of what takes a word."""
    return "Q"


def fixed_code(type_: types.Type) -> str:
    """The code of decimal numbers."""
    assert isinstance(type_, types.Fixed)
    return integer_code(8, type_.signed)


def scalar(decoders: Decoders, type_: types.Type) -> Decode:
    """A decoder of what :mod:`struct` has a code for, and of integers of 16 bytes."""
    if isinstance(type_, types.Int) and type_.size > 8:
        signed, size = type_.signed, type_.size
        order = sys.byteorder
        return lambda memory, offset: int.from_bytes(memory[offset : offset + size], order, signed=signed)
    return _single("=" + decoders.code(type_))


def _single(layout: str) -> Decode:
    unpack = struct.Struct(layout).unpack_from
    return lambda memory, offset: unpack(memory, offset)[0]


def fixed(decoders: Decoders, type_: types.Fixed) -> Decode:
    """A decoder of decimal numbers, some of which are in files."""
    if not type_.path:
        return scalar(decoders, type_)
    return lambda _memory, _offset: file_number(type_.path, type_.word, type_.one)


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


def void(_decoders: Decoders, _kind: types.Type) -> Decode:
    """A decoder of no value."""
    return lambda _memory, _offset: ()


def string(decoders: Decoders, type_: types.String) -> Decode:
    """A decoder of strings."""
    size, text = type_.size, decoders.string(type_)
    return lambda memory, offset: text(bytes(memory[offset : offset + size]))


def buffer(_decoders: Decoders, type_: types.Buffer) -> Decode:
    """A decoder of buffers, which start with their length."""
    capacity = type_.capacity
    length = struct.Struct("=I").unpack_from
    header = types.Buffer.header

    def decode(memory: Memory, offset: int) -> bytes:
        start = offset + header
        return bytes(memory[start : start + min(length(memory, offset)[0], capacity)])

    return decode


def array(decoders: Decoders, type_: types.Array) -> Decode:
    """A decoder of arrays."""
    step = type_.element.size
    return decoders.members((type_.element,) * type_.count, tuple(step * index for index in range(type_.count)))


def members(decoders: Decoders, type_: types.Members) -> Decode:
    """A decoder of tuples, records and joined values."""
    return decoders.members(type_.members, type_.offsets)


def _bitfield(field: types.Field) -> Decode:
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


def struct_members(decoders: Decoders, type_: types.Struct) -> Decode:
    """A decoder of structs and unions."""
    parts: list[tuple[Decode, int]] = []
    for field in types.named_fields(type_):
        if field.bit_size:
            parts.append((_bitfield(field), 0))
        else:
            parts.append((decoders.decoder(field.type), field.offset))

    def decode(memory: Memory, offset: int) -> Values:
        return tuple(part(memory, offset + start) for part, start in parts)

    return decode


def truncated(frames: tuple[int, ...]) -> tuple[int, ...]:
    """The frames of a truncated stack, without the zeros in place of outer ones, and the mark after them."""
    end = len(frames)
    while end and not frames[end - 1]:
        end -= 1
    return (*frames[:end], types.TRUNCATED)


def chunked_stack(
    limit: int, chunk_of: Callable[[bytes], bytes | None]
) -> Callable[[Memory, int], tuple[int, tuple[int, ...], int]]:
    """A decoder of stacks whose frames are in chunks; those of chunks that were not stored are missing."""
    from pytrace.core.stacks.chunk_format import FRAMES, LINK  # few scripts have such stacks

    head = struct.Struct("=iI16s").unpack_from
    frames_of = struct.Struct(f"={FRAMES}Q").unpack_from

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
            own = (left - 1) % FRAMES + 1
            frames += frames_of(chunk, LINK)[:own]
            key, left = chunk[:LINK], left - own
        return process, truncated(tuple(frames)) if more else tuple(frames), 0

    return decode


def stack(decoders: Decoders, type_: types.Stack) -> Decode:
    """A decoder of stacks."""
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
        return process, truncated(frames) if more else frames, 0

    return decode


def usym(_decoders: Decoders, _kind: types.Type) -> Decode:
    """A decoder of user addresses."""
    unpack = struct.Struct("=QI").unpack_from

    def decode(memory: Memory, offset: int) -> tuple[int, int]:
        address, process = unpack(memory, offset)
        return process, address

    return decode


def inet(_decoders: Decoders, _kind: types.Type) -> Decode:
    """A decoder of network addresses."""
    unpack = struct.Struct("=I16s").unpack_from

    def decode(memory: Memory, offset: int) -> tuple[int, bytes]:
        family, address = unpack(memory, offset)
        return family, address[:4] if family == types.AF_INET else address

    return decode


def mac(_decoders: Decoders, _kind: types.Type) -> Decode:
    """A decoder of hardware addresses."""
    return _single("=6s")


def fields(layout: str) -> Callable[[Decoders, types.Type], Decode]:
    """A decoder of integers one after another, by a layout of :mod:`struct`."""
    unpack = struct.Struct(layout).unpack_from
    return lambda _decoders, _kind: unpack


def _signed64(type_: types.Sum | types.Avg | types.Stats) -> str:
    return "q" if type_.signed else "Q"


def sum_(_decoders: Decoders, type_: types.Sum) -> Decode:
    """A decoder of sums."""
    return _single("=" + _signed64(type_))


def pair(_decoders: Decoders, type_: types.Avg | types.Stats) -> Decode:
    """A decoder of totals with counts."""
    return struct.Struct(f"={_signed64(type_)}Q").unpack_from


def buckets(_decoders: Decoders, type_: types.Hist | types.LHist) -> Decode:
    """A decoder of histograms."""
    return struct.Struct(f"={type_.buckets}Q").unpack_from


def extreme(_decoders: Decoders, type_: types.Min | types.Max) -> Decode:
    """A decoder of least and greatest values."""
    unpack, value = struct.Struct("=QQ").unpack_from, type_.value

    def decode(memory: Memory, offset: int) -> tuple[int, int]:
        rank, seen = unpack(memory, offset)
        return (value(rank), seen) if seen else (0, 0)

    return decode


def series(_decoders: Decoders, type_: types.TSeries) -> Decode:
    """A decoder of time series."""
    size = type_.size
    one = struct.Struct(f"=Q{'q' if type_.signed else 'Q'}Q")
    return lambda memory, offset: tuple(one.iter_unpack(bytes(memory[offset : offset + size])))
