"""Values of many keys at once: per-CPU copies are merged to one, as memory of the same type.

Very large maps have values that all CPUs share (``frontend/check/maps``): these stay as they are.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from pytrace.core import types
from pytrace.render.decoders import for_any
from pytrace.render.value_types import merging_of

if TYPE_CHECKING:
    from pytrace.render.decoders import Value
    from pytrace.render.forms import Decoders

_WORD = 8


class Reduction(msgspec.Struct, frozen=True):
    """Conversion of values of one type to one copy each, of type *type* and of *size* bytes.

    *one* takes values and returns their copies. *ranks* returns, for such copies, the numbers by which entries are
    sorted where these are not in the memory; *signed*: these are signed.
    """

    type: types.Type
    size: int
    one: Callable[[bytes], bytes]
    ranks: Callable[[bytes], array[int]] | None = None
    signed: bool = False


def reduction(type_: types.Type, size: int, decoders: Decoders) -> Reduction | None:
    """The reduction of values of a type that take *size* bytes each; None if they are merged singly, as time series."""
    if isinstance(type_, types.Hist | types.LHist):
        # The map has an entry for each bucket.
        type_ = types.Count()
    if isinstance(type_, types.Count | types.Sum):
        code = "=q" if type_.signed else "=Q"
        return Reduction(type_, _WORD, _merged(type_, size, _WORD, struct.Struct(code).pack, decoders))
    if isinstance(type_, types.Int) and size > max(_WORD, type_.size):
        wide = types.INT64 if type_.signed else types.UINT64
        pack = struct.Struct("=q" if type_.signed else "=Q").pack
        return Reduction(wide, _WORD, _merged(type_, size, _WORD, pack, decoders))
    if isinstance(type_, types.Avg | types.Stats):
        pair = struct.Struct("=qQ" if type_.signed else "=QQ").pack
        return _ranked(type_, size, for_any(lambda value: pair(*value)), decoders)
    if isinstance(type_, types.Min | types.Max):
        words, rank = struct.Struct("=QQ").pack, type_.rank
        return _ranked(type_, size, for_any(lambda value: words(rank(value[0]) * value[1], value[1])), decoders)
    return None if isinstance(type_, types.AGGREGATIONS) else Reduction(type_, size, _unchanged)


def _ranked(type_: types.Signed, size: int, pack: Callable[[Value], bytes], decoders: Decoders) -> Reduction:
    """The reduction of values of two words, which are sorted by a number that has to be computed."""
    decode, rank = decoders.decoder(type_), merging_of(type_).rank
    code, step = "q" if type_.signed else "Q", 2 * _WORD
    assert rank is not None

    def ranks(values: bytes) -> array[int]:
        return array(code, [_integer(rank(decode(values, offset))) for offset in range(0, len(values), step)])

    return Reduction(type_, step, _merged(type_, size, step, pack, decoders), ranks, type_.signed)


def _integer(value: Value) -> int:
    assert isinstance(value, int)
    return value


def _merged(
    type_: types.Type, size: int, copy_size: int, pack: Callable[[Value], bytes], decoders: Decoders
) -> Callable[[bytes], bytes]:
    """Merges values of *size* bytes to copies of *copy_size*, which *pack* encodes."""
    if size == copy_size:
        return _unchanged
    merge, split = merging_of(type_).merge(type_, size, decoders), struct.Struct(f"{size}s").iter_unpack
    return lambda values: b"".join([pack(merge(value)) for (value,) in split(values)])


def _unchanged(values: bytes) -> bytes:
    return values
