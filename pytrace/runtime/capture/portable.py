"""Decoded values as portable ones: a row for each type, see :mod:`pytrace.results.values`.

What decoded values look like stands in :mod:`pytrace.runtime.output.render.decoders`; :func:`as_it_is` is the form of
those that are portable already, so that whole tuples of them need not be taken apart.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import methodcaller
from typing import Any, TypeVar, cast

from pytrace.core import types
from pytrace.results.values import Counts, Series
from pytrace.runtime.capture.stack_traces import StackTraces
from pytrace.runtime.output.render import tseries
from pytrace.runtime.output.render.decoders import ByType, named_fields
from pytrace.runtime.output.render.text import TextForms

Form = Callable[[Any], Any]


class PortableForms(ByType[Form]):
    """Makes portable forms. *texts* gives those of what prints as a name."""

    def __init__(self, texts: TextForms, stacks: StackTraces) -> None:
        super().__init__()
        self.texts = texts
        self.stacks = stacks

    def _make(self, kind: types.Type) -> Form:
        return ROWS[type(kind)](self, kind)

    def form(self, kind: types.Type) -> Form:
        """The portable form of values of type *kind*."""
        return self.made(kind)


def plain(kind: types.Type) -> types.Type:
    """A type without what it refers to on this machine: the same for a script that was just compiled and a cached one.

    Members of structs are all there, and what pointers point to is not.
    """
    return types.from_data(types.to_data(kind))


def as_it_is(value: Any) -> Any:
    """The form of values that are portable as they are decoded."""
    return value


def _members(forms: list[Form]) -> Form:
    steps = tuple((index, form) for index, form in enumerate(forms) if form is not as_it_is)
    if not steps:
        return as_it_is
    if len(forms) == 2:
        first, second = forms
        return lambda value: (first(value[0]), second(value[1]))

    def convert(value: tuple[Any, ...]) -> tuple[Any, ...]:
        found = list(value)
        for index, form in steps:
            found[index] = form(found[index])
        return tuple(found)

    return convert


# ---------------------------------------------------------------------------------------------- rows


_text = methodcaller("decode", "utf-8", "surrogateescape")


def _same(_forms: PortableForms, _kind: types.Type) -> Form:
    return as_it_is


def _string(_forms: PortableForms, _kind: types.Type) -> Form:
    return _text


def _printed(forms: PortableForms, kind: types.Type) -> Form:
    text = forms.texts.form(kind)
    return lambda value: text(value).decode("utf-8", "surrogateescape")


def _array(forms: PortableForms, kind: types.Array) -> Form:
    element = forms.form(kind.element)
    return as_it_is if element is as_it_is else lambda value: tuple(map(element, value))


def _tuple(forms: PortableForms, kind: types.Tuple | types.Record) -> Form:
    return _members([forms.form(member) for member in kind.members])


def _struct(forms: PortableForms, kind: types.Struct) -> Form:
    return _members([forms.form(field.type) for field in named_fields(kind)])


def _stack(forms: PortableForms, kind: types.Stack) -> Form:
    return forms.stacks.form(kind)


def _extreme(_forms: PortableForms, _kind: types.Type) -> Form:
    return lambda value: value[0]


def _buckets(_forms: PortableForms, _kind: types.Type) -> Form:
    def convert(counts: tuple[int, ...]) -> Counts:
        return {number: count for number, count in enumerate(counts) if count}

    return convert


def _tseries(_forms: PortableForms, kind: types.TSeries) -> Form:
    def convert(intervals: tuple[tseries.Interval, ...]) -> Series:
        found = tseries.joined(kind, intervals)
        # A CPU that had nothing to count still has intervals that the others gave up long ago: they are not whole.
        least = max(found, default=0) - kind.count
        return {number: item for number, item in found.items() if number > least}

    return convert


_T = TypeVar("_T", bound=types.Type)
_Make = Callable[[PortableForms, types.Type], Form]


def _row(kind: type[_T], make: Callable[[PortableForms, _T], Form]) -> tuple[type[types.Type], _Make]:
    """A row of the table, whose function is only called with values of its own class."""
    return kind, cast(_Make, make)


ROWS: dict[type[types.Type], _Make] = dict((
    _row(types.Void, _same),
    _row(types.Bool, _same),
    _row(types.Int, _same),
    _row(types.Enum, _same),
    _row(types.Pointer, _same),
    _row(types.String, _string),
    _row(types.Buffer, _same),
    _row(types.Array, _array),
    _row(types.Tuple, _tuple),
    _row(types.Record, _tuple),
    _row(types.Struct, _struct),
    _row(types.Stack, _stack),
    _row(types.KSym, _printed),
    _row(types.USym, _printed),
    _row(types.Inet, _printed),
    _row(types.Mac, _printed),
    _row(types.Timestamp, _printed),
    _row(types.Username, _printed),
    _row(types.InterfaceName, _printed),
    _row(types.NetworkNamespace, _printed),
    _row(types.CgroupPath, _printed),
    _row(types.Count, _same),
    _row(types.Sum, _same),
    _row(types.Avg, _same),
    _row(types.Stats, _same),
    _row(types.Min, _extreme),
    _row(types.Max, _extreme),
    _row(types.Hist, _buckets),
    _row(types.LHist, _buckets),
    _row(types.TSeries, _tseries),
))
