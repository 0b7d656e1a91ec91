"""Values of many keys at once: the copies of all CPUs become one, as memory of the same type.

What :mod:`pytrace.render.percpu_merge` does with one value is done here with the values of many keys, by
columns: one column has the same word of all of them. The two give the same (a test compares them).
"""

from __future__ import annotations

from array import array
from itertools import repeat
from operator import add
from typing import TYPE_CHECKING

import msgspec

from pytrace.core import types
from pytrace.core.types.builtin_types import truncated, wrapped
from pytrace.render.decoders import integer_code

if TYPE_CHECKING:
    from collections.abc import Callable

_WORD = 8


class Reduction(msgspec.Struct, frozen=True):
    """How values of one type become one copy each.

    *type* is that of the copy; *one* takes values and their number. *ranks* gives, from such copies, the numbers by
    which entries are ordered where these are not in the memory, and whether they are signed is *signed*.
    """

    type: types.Type
    size: int
    one: Callable[[bytes, int], bytes]
    ranks: Callable[[bytes], array[int]] | None = None
    signed: bool = False


def reduction(kind: types.Type, size: int) -> Reduction | None:
    """How values of type *kind* that take *size* bytes each are reduced; None for a type that is merged singly."""
    copies = size // _WORD
    if isinstance(kind, types.TSeries):
        return None
    if isinstance(kind, types.Count | types.Hist | types.LHist):
        return Reduction(types.UINT64, _WORD, _summing(copies, "Q"))
    if isinstance(kind, types.Sum):
        return Reduction(kind, _WORD, _summing(copies, "q" if kind.signed else "Q"))
    if isinstance(kind, types.Int) and size > max(_WORD, kind.size):
        return _numbers(kind, size)
    if isinstance(kind, types.Avg | types.Stats):
        return Reduction(kind, 2 * _WORD, _pairs(kind, copies), _averages(kind), kind.signed)
    if isinstance(kind, types.Min | types.Max):
        return Reduction(kind, 2 * _WORD, _extremes(copies), _extreme_values(kind), kind.signed)
    return Reduction(kind, size, _as_it_is)


def _as_it_is(values: bytes, _count: int) -> bytes:
    return values


def _columns(values: bytes, code: str, width: int) -> list[array[int]]:
    """The columns of rows of *width* words; those that are zero in all rows are left out: CPUs that did not run."""
    whole = array(code)
    whole.frombytes(values)
    nothing = array(code, bytes(len(values) // width))
    return [column for start in range(width) if (column := whole[start::width]) != nothing]


def _sum_of(columns: list[array[int]], code: str, count: int) -> array[int]:
    if not columns:
        return array(code, bytes(_WORD * count))
    if len(columns) == 1:
        return columns[0]
    try:
        if len(columns) == 2:
            return array(code, map(add, *columns))
        return array(code, map(sum, zip(*columns, strict=True)))
    except OverflowError:
        return array(code, map(wrapped(code == "q"), map(sum, zip(*columns, strict=True))))


def _summing(copies: int, code: str) -> Callable[[bytes, int], bytes]:
    if copies == 1:
        return _as_it_is
    return lambda values, count: _sum_of(_columns(values, code, copies), code, count).tobytes()


def _numbers(kind: types.Int, size: int) -> Reduction:
    """Plain numbers in a per-CPU map: each copy takes 8 bytes, of which the number is the first ones."""
    code, parts = integer_code(kind.width, kind.signed), _WORD // kind.width
    wide = "q" if kind.signed else "Q"

    def one(values: bytes, count: int) -> bytes:
        whole = array(code)
        whole.frombytes(values)
        step = size // kind.width
        columns = [array(wide, whole[start::step]) for start in range(0, step, parts)]
        return _sum_of(columns, wide, count).tobytes()

    return Reduction(types.INT64 if kind.signed else types.UINT64, _WORD, one)


def _interleaved(first: array[int], second: array[int]) -> bytes:
    made = bytearray(2 * _WORD * len(first))
    with memoryview(made) as whole, whole.cast("Q") as words:
        words[0::2] = memoryview(first).cast("B").cast("Q")
        words[1::2] = memoryview(second).cast("B").cast("Q")
    return bytes(made)


def _pairs(kind: types.Avg | types.Stats, copies: int) -> Callable[[bytes, int], bytes]:
    """Total and count, each of which is added."""
    if copies == 2:
        return _as_it_is
    code = "q" if kind.signed else "Q"

    def one(values: bytes, count: int) -> bytes:
        words = _split(values, "Q", 2)
        totals, counts = words[0].tobytes(), words[1].tobytes()
        width = copies // 2
        return _interleaved(
            _sum_of(_columns(totals, code, width), code, count), _sum_of(_columns(counts, "Q", width), "Q", count)
        )

    return one


def _split(values: bytes, code: str, width: int) -> list[array[int]]:
    whole = array(code)
    whole.frombytes(values)
    return [whole[start::width] for start in range(width)]


def _averages(kind: types.Avg | types.Stats) -> Callable[[bytes], array[int]]:
    code = "q" if kind.signed else "Q"

    def ranks(values: bytes) -> array[int]:
        counts = _split(values, "Q", 2)[1]
        return array(code, map(truncated, _split(values, code, 2)[0], counts))

    return ranks


def _extremes(copies: int) -> Callable[[bytes, int], bytes]:
    """The greatest rank, and 1 if any CPU has seen a value: one that has not has the least rank."""

    def one(values: bytes, count: int) -> bytes:
        words = _split(values, "Q", 2)
        width = copies // 2
        best, seen = (_columns(part.tobytes(), "Q", width) for part in words)
        greatest = _joined(best, count, max)
        return _interleaved(greatest, array("Q", map(bool, _joined(seen, count, max))))

    return one


def _joined(columns: list[array[int]], count: int, join: Callable[..., int]) -> array[int]:
    if not columns:
        return array("Q", repeat(0, count))
    return columns[0] if len(columns) == 1 else array("Q", map(join, *columns))


def _extreme_values(kind: types.Min | types.Max) -> Callable[[bytes], array[int]]:
    code = "q" if kind.signed else "Q"

    def ranks(values: bytes) -> array[int]:
        found, seen = _split(values, "Q", 2)
        value = kind.value
        return array(code, [value(rank) if known else 0 for rank, known in zip(found, seen, strict=True)])

    return ranks
