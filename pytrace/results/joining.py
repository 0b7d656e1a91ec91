"""Joining values of one map and one key: a row for each type of value.

All rows are commutative and associative, so that any number of values joins to the same one in any order. Sums wrap at
64 bits as the kernel's do, which is what one sum of everything would have become.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar, cast

from pytrace.base.fast_dataclass import dataclass
from pytrace.core import types
from pytrace.results.values import Counts, Portable, Series, Value

Join = Callable[[Any, Any], Any]
"""Joins two portable values (:mod:`pytrace.results.values`) of one type, and changes neither."""

Entries: TypeAlias = dict[Portable, Any]
Absorb = Callable[[Entries, Mapping[Portable, Any]], None]
"""Joins all entries of the second map to those of the first."""

Finish = Callable[[Entries], None]


@dataclass(frozen=True, slots=True)
class Rule:
    """How values of a type join."""

    join: Join
    absorb: Absorb
    """The same for whole maps: the function is chosen once and not for each key. The first map is changed, and must
    have been filled by this function alone; the values of the second are not."""
    finish: Finish
    """To be called after the last ``absorb``."""


def joiner(type_: types.Type) -> Callable[[Value, Value], Value]:
    """How two values of a type join: aggregations as if one map had aggregated all, of others the greater one stays."""
    row = rule(type_)
    return max if row is None else row.join


def rule(type_: types.Type) -> Rule | None:
    """How values of a type join; None for what is no aggregation."""
    make = ROWS.get(type(type_))
    return None if make is None else make(type_)


def wrapped(signed: bool) -> Callable[[int], int]:
    """What 64 bits hold of a number."""
    if signed:
        return lambda value: ((value + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)
    return lambda value: value & ((1 << 64) - 1)


def _nothing(_into: Entries) -> None:
    """No value is left to finish."""


def _absorbing(join: Join) -> Absorb:
    def absorb(into: Entries, entries: Mapping[Portable, Any]) -> None:
        get = into.get
        for key, value in entries.items():
            known = get(key)
            into[key] = value if known is None else join(known, value)

    return absorb


# ---------------------------------------------------------------------------------------------- rows


def _add(first: int, second: int) -> int:
    return first + second


def _sum(signed: bool) -> Rule:
    wrap = wrapped(signed)

    def finish(into: Entries) -> None:
        into.update({key: wrap(value) for key, value in into.items()})

    return Rule(lambda first, second: wrap(first + second), _absorbing(_add), finish)


def _add_pairs(first: tuple[int, int], second: tuple[int, int]) -> tuple[int, int]:
    return first[0] + second[0], first[1] + second[1]


def _pair(type_: types.Avg | types.Stats) -> Rule:
    total, count = wrapped(type_.signed), wrapped(False)

    def join(first: tuple[int, int], second: tuple[int, int]) -> tuple[int, int]:
        return total(first[0] + second[0]), count(first[1] + second[1])

    def finish(into: Entries) -> None:
        into.update({key: (total(value[0]), count(value[1])) for key, value in into.items()})

    return Rule(join, _absorbing(_add_pairs), finish)


def _least(_type: types.Type) -> Rule:
    return Rule(min, _absorbing(min), _nothing)


def _greatest(_type: types.Type) -> Rule:
    return Rule(max, _absorbing(max), _nothing)


def _buckets(_type: types.Hist | types.LHist) -> Rule:
    most = (1 << 64) - 1

    def add(into: Counts, counts: Counts) -> None:
        get = into.get
        for bucket, count in counts.items():
            into[bucket] = get(bucket, 0) + count

    def finish(into: Entries) -> None:
        for counts in into.values():
            if max(counts.values(), default=0) > most:
                counts.update({bucket: count & most for bucket, count in counts.items()})

    return _in_place(add, finish)


def _series(type_: types.TSeries) -> Rule:
    join = _intervals(type_)

    def add(into: Series, series: Series) -> None:
        for number, item in series.items():
            known = into.get(number)
            into[number] = item if known is None else join(known, item)

    def finish(into: Entries) -> None:
        # Also what was in one snapshot only: of a signed and an unsigned series the signed one is taken.
        wrap = wrapped(type_.signed)
        for series in into.values():
            series.update({number: (wrap(value), meta) for number, (value, meta) in series.items()})

    return _in_place(add, finish if type_.reduce in ("avg", "sum") else _nothing)


def _in_place(add: Callable[[Any, Any], None], finish: Finish) -> Rule:
    """For values that are dictionaries: those of the first map are its own."""

    def join(first: dict[int, Any], second: dict[int, Any]) -> dict[int, Any]:
        found = {None: dict(first)}
        add(found[None], second)
        finish(cast(Entries, found))
        return found[None]

    def absorb(into: Entries, entries: Mapping[Portable, Any]) -> None:
        for key, value in entries.items():
            known = into.get(key)
            if known is None:
                into[key] = dict(value)
            else:
                add(known, value)

    return Rule(join, absorb, finish)


Interval: TypeAlias = tuple[int, int]
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
_Make = Callable[[types.Type], Rule]


def _row(kind: type[_T], make: Callable[[_T], Rule]) -> tuple[type[types.Type], _Make]:
    """A row of the table, whose function is only called with values of its own class."""
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
