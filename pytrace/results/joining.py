"""Joining values of one map and one key: a row for each type of value.

All rows are commutative and associative, so that any number of values joins to the same one in any order. Sums wrap at
64 bits as the kernel's do, which is what one sum of everything would have become.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeAlias, TypeVar, cast

import msgspec

from pytrace.core import types
from pytrace.core.types.builtin_types import wrapped
from pytrace.results.values import Counts, Pair, Portable, Series, Value

V = TypeVar("V")

Join: TypeAlias = Callable[[V, V], V]
"""Joins two portable values (:mod:`pytrace.results.values`) of one type, and changes neither."""

Absorb: TypeAlias = Callable[[dict[Portable, V], Mapping[Portable, V]], None]
"""Joins all entries of the second map to those of the first."""

Finish: TypeAlias = Callable[[dict[Portable, V]], None]


class Rule(msgspec.Struct, Generic[V], frozen=True):
    """How values of a type join."""

    join: Join[V]
    absorb: Absorb[V]
    """The same for whole maps: the function is chosen once and not for each key. The first map is changed, and must
    have been filled by this function alone; the values of the second are not."""
    finish: Finish[V]
    """To be called after the last ``absorb``."""


greater = cast("Join[Value]", max)
"""The greater of two values of one type, which compare."""


def joiner(type_: types.Type) -> Join[Value]:
    """How two values of a type join: aggregations as if one map had aggregated all, of others the greater one stays."""
    row = rule(type_)
    return greater if row is None else row.join


def rule(type_: types.Type) -> Rule[Value] | None:
    """How values of a type join; None for what is no aggregation."""
    make = ROWS.get(type(type_))
    return None if make is None else make(type_)


def _nothing(_into: object) -> None:
    """No value is left to finish."""


def _absorbing(join: Join[V]) -> Absorb[V]:
    def absorb(into: dict[Portable, V], entries: Mapping[Portable, V]) -> None:
        get = into.get
        for key, value in entries.items():
            known = get(key)
            into[key] = value if known is None else join(known, value)

    return absorb


# ---------------------------------------------------------------------------------------------- rows


def _add(first: int, second: int) -> int:
    return first + second


def _sum(signed: bool) -> Rule[int]:
    wrap = wrapped(signed)

    def finish(into: dict[Portable, int]) -> None:
        into.update({key: wrap(value) for key, value in into.items()})

    return Rule(lambda first, second: wrap(first + second), _absorbing(_add), finish)


def _add_pairs(first: Pair, second: Pair) -> Pair:
    return first[0] + second[0], first[1] + second[1]


def _pair(type_: types.Avg | types.Stats) -> Rule[Pair]:
    total, count = wrapped(type_.signed), wrapped(False)

    def join(first: Pair, second: Pair) -> Pair:
        return total(first[0] + second[0]), count(first[1] + second[1])

    def finish(into: dict[Portable, Pair]) -> None:
        into.update({key: (total(value[0]), count(value[1])) for key, value in into.items()})

    return Rule(join, _absorbing(_add_pairs), finish)


def _least(_type: types.Type) -> Rule[int]:
    return Rule(min, _absorbing(min), _nothing)


def _greatest(_type: types.Type) -> Rule[int]:
    return Rule(max, _absorbing(max), _nothing)


def _buckets(_type: types.Hist | types.LHist) -> Rule[Counts]:
    most = (1 << 64) - 1

    def add(into: Counts, counts: Counts) -> None:
        get = into.get
        for bucket, count in counts.items():
            into[bucket] = get(bucket, 0) + count

    def finish(into: dict[Portable, Counts]) -> None:
        for counts in into.values():
            if max(counts.values(), default=0) > most:
                counts.update({bucket: count & most for bucket, count in counts.items()})

    return _in_place(add, finish)


def _series(type_: types.TSeries) -> Rule[Series]:
    join = _intervals(type_)

    def add(into: Series, series: Series) -> None:
        for number, item in series.items():
            known = into.get(number)
            into[number] = item if known is None else join(known, item)

    def finish(into: dict[Portable, Series]) -> None:
        # Also what was in one snapshot only: of a signed and an unsigned series the signed one is taken.
        wrap = wrapped(type_.signed)
        for series in into.values():
            series.update({number: (wrap(value), meta) for number, (value, meta) in series.items()})

    return _in_place(add, finish if type_.reduce in ("avg", "sum") else _nothing)


def _in_place(
    add: Callable[[dict[int, V], dict[int, V]], None], finish: Finish[dict[int, V]]
) -> Rule[dict[int, V]]:
    """For values that are dictionaries: those of the first map are its own."""

    def join(first: dict[int, V], second: dict[int, V]) -> dict[int, V]:
        found: dict[Portable, dict[int, V]] = {None: dict(first)}
        add(found[None], second)
        finish(found)
        return found[None]

    def absorb(into: dict[Portable, dict[int, V]], entries: Mapping[Portable, dict[int, V]]) -> None:
        for key, value in entries.items():
            known = into.get(key)
            if known is None:
                into[key] = dict(value)
            else:
                add(known, value)

    return Rule(join, absorb, finish)


Interval: TypeAlias = Pair
"""Value and meta (:class:`pytrace.core.types.TSeries`)."""


def _intervals(type_: types.TSeries) -> Callable[[Interval, Interval], Interval]:
    """How what two runs have of one interval joins; the meta of all but the last value is a number of samples."""
    total, count = wrapped(type_.signed), wrapped(False)
    rows: dict[str, Callable[[Interval, Interval], Interval]] = {
        "avg": lambda first, second: (total(first[0] + second[0]), count(first[1] + second[1])),
        "sum": lambda first, second: (total(first[0] + second[0]), count(first[1] + second[1])),
        "min": lambda first, second: (min(first[0], second[0]), count(first[1] + second[1])),
        "max": lambda first, second: (max(first[0], second[0]), count(first[1] + second[1])),
        # The last sample, by its time; of samples at one time the greater.
        "": lambda first, second: max(first, second, key=lambda item: (item[1], item[0])),
    }
    return rows[type_.reduce]


_T = TypeVar("_T", bound=types.Type)
_Make = Callable[[types.Type], Rule[Value]]


def _row(kind: type[_T], make: Callable[[_T], Rule[V]]) -> tuple[type[types.Type], _Make]:
    """A row of the table, whose rules are only called with values of its own class."""
    return kind, cast(_Make, make)


ROWS: dict[type[types.Type], _Make] = dict((
    _row(types.Count, lambda _type: _sum(False)),
    _row(types.Sum, lambda type_: _sum(type_.signed)),
    _row(types.Avg, _pair),
    _row(types.Stats, _pair),
    _row(types.Min, _least),
    _row(types.Max, _greatest),
    _row(types.Hist, _buckets),
    _row(types.LHist, _buckets),
    _row(types.TSeries, _series),
))
"""The aggregations."""
