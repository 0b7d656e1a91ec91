"""Conversion of decoded values to portable ones (:mod:`pytrace.results.values`), and back.

:mod:`pytrace.render.decoders` describes decoded values. :func:`as_it_is` is the form of those that are portable
already, so that tuples of them are not rebuilt.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, Never, TypeAlias, TypeVar

from pytrace.core import types
from pytrace.render import histogram, tseries
from pytrace.render.decoders import Value as Decoded
from pytrace.render.decoders import Values

if TYPE_CHECKING:
    from pytrace.render.forms import PortableForms, Restored

Plain: TypeAlias = Any
"""A portable value, whose class depends on its type."""
Form: TypeAlias = Callable[[Decoded], Plain]
"""From the decoded form of a value to the portable one."""
Restore: TypeAlias = Callable[[Plain], Decoded]
"""From the portable form of a value to the decoded one; stacks stay as they are."""


class Held(Enum):
    """The forms of values in snapshots (:mod:`pytrace.results.values`)."""

    BOOL = "bool"
    INTEGER = "integer"
    FLOAT = "float"
    TEXT = "text"
    BYTES = "bytes"
    STACK = "stack"
    ARRAY = "array"
    MEMBERS = "members"
    """Tuples, records and structs."""
    PAIR = "total and count"
    COUNTS = "counts"
    SERIES = "series"


Counts: TypeAlias = dict[int, int]
Series: TypeAlias = dict[int, tuple[int, int]]

_T = TypeVar("_T")


def as_it_is(value: _T) -> _T:
    """The form of values that are portable as they are decoded."""
    return value


def members(forms: list[Form]) -> Callable[[Values], tuple[Plain, ...]]:
    """The form of members, each by its own form."""
    steps = tuple((index, form) for index, form in enumerate(forms) if form is not as_it_is)
    if not steps:
        return as_it_is
    if len(forms) == 2:
        first, second = forms
        return lambda value: (first(value[0]), second(value[1]))

    def convert(value: Values) -> tuple[Plain, ...]:
        items: list[Plain] = list(value)
        for index, form in steps:
            items[index] = form(value[index])
        return tuple(items)

    return convert


# ---------------------------------------------------------------------------------------------- rows


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


def same(_forms: object, _kind: types.Type) -> Callable[[_T], _T]:
    """For what is portable as it is decoded, or decoded as it is portable."""
    return as_it_is


def string(_forms: PortableForms, _kind: types.Type) -> Callable[[bytes], str]:
    """The form of strings."""
    return _text


def printed(forms: PortableForms, type_: types.Type) -> Form:
    """For what is portable as it prints."""
    text = forms.texts.form(type_)
    return lambda value: _text(text(value))


_NAN, _NEGATIVE_NAN = math.nan, math.copysign(math.nan, -1)


def fraction(_forms: object, _kind: types.Type) -> Callable[[float], float]:
    """The form of floating-point numbers, and back."""
    return one_nan


def one_nan(value: float) -> float:
    """The number; what is none is always the same object of its sign, so that keys with it are equal."""
    return value if not math.isnan(value) else _NAN if math.copysign(1, value) > 0 else _NEGATIVE_NAN


def array(forms: PortableForms, type_: types.Array) -> Callable[[Values], Plain]:
    """The form of arrays."""
    element = forms.form(type_.element)
    return as_it_is if element is as_it_is else lambda value: tuple(map(element, value))


def tuple_(forms: PortableForms, type_: types.Type) -> Callable[[Values], Plain]:
    """The form of tuples, records and structs."""
    return members(list(map(forms.form, types.member_types(type_))))


def stack(forms: PortableForms, type_: types.Stack) -> Callable[[Never], Plain]:
    """The form of stacks."""
    return forms.stacks.form(type_)


def extreme(_forms: PortableForms, _kind: types.Type) -> Callable[[tuple[int, int]], int]:
    """The form of least and greatest values."""
    return lambda value: value[0]


def buckets(_forms: PortableForms, _kind: types.Type) -> Callable[[tuple[int, ...]], Counts]:
    """The form of histograms, which are values of maps only."""

    def convert(counts: tuple[int, ...]) -> Counts:
        return {number: count for number, count in enumerate(counts) if count}

    return convert


def series(_forms: PortableForms, type_: types.TSeries) -> Callable[[tuple[tseries.Interval, ...]], Series]:
    """The form of time series, which are values of maps only."""
    def convert(intervals: tuple[tseries.Interval, ...]) -> Series:
        values = tseries.joined(type_, intervals)
        # A CPU that had nothing to count still has intervals that the others gave up long ago: they are not whole.
        least = max(values, default=0) - type_.count
        return {number: item for number, item in values.items() if number > least}

    return convert


# ---------------------------------------------------------------------------------------------- back to decoded values


def encoded(text: str) -> bytes:
    """Text as the bytes that it had on the machine of the run."""
    return text.encode("utf-8", "surrogateescape")


def restored_text(_restored: Restored, _kind: types.Type) -> Callable[[str], bytes]:
    """Texts."""
    return encoded


def restored_array(restored: Restored, type_: types.Array) -> Callable[[tuple[Plain, ...]], Decoded]:
    """Arrays."""
    element = restored.form(type_.element)
    return lambda value: tuple([element(item) for item in value])


def restored_members(restored: Restored, type_: types.Type) -> Callable[[tuple[Plain, ...]], Decoded]:
    """Tuples, records and structs."""
    parts = list(map(restored.form, types.member_types(type_)))
    return lambda value: tuple([part(item) for part, item in zip(parts, value, strict=True)])


def restored_inet(_restored: Restored, _kind: types.Type) -> Callable[[str], Decoded]:
    """Network addresses."""
    import socket

    def restore(value: str) -> tuple[int, bytes]:
        if not value:
            return 0, b""
        family = socket.AF_INET6 if ":" in value else socket.AF_INET
        return family, socket.inet_pton(family, value)

    return restore


def restored_mac(_restored: Restored, _kind: types.Type) -> Callable[[str], bytes]:
    """Hardware addresses."""
    return lambda value: bytes.fromhex(value.replace(":", ""))


def restored_extreme(_restored: Restored, _kind: types.Type) -> Callable[[int], Decoded]:
    """Least and greatest values."""
    return lambda value: (value, 1)


def restored_buckets(_restored: Restored, type_: types.Hist | types.LHist) -> Callable[[Counts], Decoded]:
    """Histograms."""
    return lambda value: tuple(histogram.all_buckets(type_, value))


def restored_series(_restored: Restored, _kind: types.Type) -> Callable[[Series], Decoded]:
    """Time series."""
    return lambda value: tuple((number + 1, item, meta) for number, (item, meta) in sorted(value.items()))
