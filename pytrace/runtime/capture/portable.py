"""Decoded values as portable ones: a row for each type, see :mod:`pytrace.results.values`.

What decoded values look like stands in :mod:`pytrace.render.decoders`; :func:`as_it_is` is the form of
those that are portable already, so that whole tuples of them need not be taken apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Never, TypeAlias, TypeVar

from pytrace.core import types
from pytrace.render import tseries
from pytrace.render.decoders import ByType, Values, for_any, row
from pytrace.render.decoders import Value as Decoded
from pytrace.results.values import Counts, Portable, Series, Value

if TYPE_CHECKING:
    from pytrace.render.text import TextForms
    from pytrace.runtime.capture.stack_traces import StackTraces

Form: TypeAlias = Callable[[Decoded], Portable]
"""From the decoded form of a value to the portable one."""
AnyForm: TypeAlias = Callable[[Decoded], Value]
"""The same for values of maps, some of which are dictionaries."""

_T = TypeVar("_T")


class PortableForms(ByType[Form]):
    """Makes portable forms. *texts* gives those of what prints as a name."""

    def __init__(self, texts: TextForms, stacks: StackTraces) -> None:
        super().__init__()
        self.texts = texts
        self.stacks = stacks

    def _make(self, kind: types.Type) -> Form:
        return for_any(ROWS[type(kind)](self, kind))

    def form(self, kind: types.Type) -> Form:
        """The portable form of values of type *kind*, which may be keys and members of tuples."""
        return self.made(kind)

    def row_form(self, kind: types.Record) -> Callable[[Values], tuple[Portable, ...]]:
        """The portable form of rows, whose members are those of *kind*."""
        return _members([self.form(member) for member in kind.members])

    def value_form(self, kind: types.Type) -> AnyForm:
        """The portable form of values of maps."""
        make = DICTIONARIES.get(type(kind))
        return self.form(kind) if make is None else for_any(make(self, kind))


def plain(kind: types.Type) -> types.Type:
    """A type without what it refers to on this machine: the same for a script that was just compiled and a cached one.

    Members of structs are all there, and what pointers point to is not.
    """
    return types.from_data(types.to_data(kind))


def as_it_is(value: _T) -> _T:
    """The form of values that are portable as they are decoded."""
    return value


def _members(forms: list[Form]) -> Callable[[Values], tuple[Portable, ...]]:
    steps = tuple((index, form) for index, form in enumerate(forms) if form is not as_it_is)
    if not steps:
        return as_it_is
    if len(forms) == 2:
        first, second = forms
        return lambda value: (first(value[0]), second(value[1]))

    def convert(value: Values) -> tuple[Portable, ...]:
        found: list[Portable] = list(value)
        for index, form in steps:
            found[index] = form(value[index])
        return tuple(found)

    return convert


# ---------------------------------------------------------------------------------------------- rows


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


def _same(_forms: PortableForms, _kind: types.Type) -> Callable[[_T], _T]:
    return as_it_is


def _string(_forms: PortableForms, _kind: types.Type) -> Callable[[bytes], str]:
    return _text


def _printed(forms: PortableForms, kind: types.Type) -> Form:
    text = forms.texts.form(kind)
    return lambda value: _text(text(value))


def _array(forms: PortableForms, kind: types.Array) -> Callable[[Values], Portable]:
    element = forms.form(kind.element)
    return as_it_is if element is as_it_is else lambda value: tuple(map(element, value))


def _tuple(forms: PortableForms, kind: types.Tuple | types.Record) -> Callable[[Values], Portable]:
    return _members([forms.form(member) for member in kind.members])


def _struct(forms: PortableForms, kind: types.Struct) -> Callable[[Values], Portable]:
    return _members([forms.form(field.type) for field in types.named_fields(kind)])


def _stack(forms: PortableForms, kind: types.Stack) -> Callable[[Never], Portable]:
    return forms.stacks.form(kind)


def _extreme(_forms: PortableForms, _kind: types.Type) -> Callable[[tuple[int, int]], int]:
    return lambda value: value[0]


def _buckets(_forms: PortableForms, _kind: types.Type) -> Callable[[tuple[int, ...]], Counts]:
    def convert(counts: tuple[int, ...]) -> Counts:
        return {number: count for number, count in enumerate(counts) if count}

    return convert


def _tseries(_forms: PortableForms, kind: types.TSeries) -> Callable[[tuple[tseries.Interval, ...]], Series]:
    def convert(intervals: tuple[tseries.Interval, ...]) -> Series:
        found = tseries.joined(kind, intervals)
        # A CPU that had nothing to count still has intervals that the others gave up long ago: they are not whole.
        least = max(found, default=0) - kind.count
        return {number: item for number, item in found.items() if number > least}

    return convert


ROWS: dict[type[types.Type], Callable[[PortableForms, types.Type], Callable[[Never], Portable]]] = dict((
    row(types.Void, _same),
    row(types.Bool, _same),
    row(types.Int, _same),
    row(types.Enum, _same),
    row(types.Pointer, _same),
    row(types.String, _string),
    row(types.Buffer, _same),
    row(types.Array, _array),
    row(types.Tuple, _tuple),
    row(types.Record, _tuple),
    row(types.Struct, _struct),
    row(types.Stack, _stack),
    row(types.KSym, _printed),
    row(types.USym, _printed),
    row(types.Inet, _printed),
    row(types.Mac, _printed),
    row(types.Timestamp, _printed),
    row(types.Username, _printed),
    row(types.InterfaceName, _printed),
    row(types.NetworkNamespace, _printed),
    row(types.CgroupPath, _printed),
    row(types.Fixed, _same),
    row(types.Joined, _printed),
    row(types.Count, _same),
    row(types.Sum, _same),
    row(types.Avg, _same),
    row(types.Stats, _same),
    row(types.Min, _extreme),
    row(types.Max, _extreme),
))

DICTIONARIES: dict[type[types.Type], Callable[[PortableForms, types.Type], Callable[[Never], Value]]] = dict((
    row(types.Hist, _buckets),
    row(types.LHist, _buckets),
    row(types.TSeries, _tseries),
))
"""What is in maps only, and neither a key nor a member."""
