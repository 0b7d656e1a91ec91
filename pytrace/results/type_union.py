"""One type for what two snapshots call the same, where their scripts or kernels differ a little.

What may differ is what portable values do not depend on: capacities of strings and buffers, limits of stacks, width and
sign of integers, members of enumerations, where members of structs lie. The larger one is taken, so that the order of
joining does not matter. What decides the meaning of values may not: the class of the type, the names and number of
members, the parameters of histograms and time series, the sort of stack.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from msgspec.structs import replace

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.core.types import Array, Field, Record, Tuple, Type


class MismatchError(Exception):
    """Two types that have nothing in common."""


def joined(first: Type, second: Type) -> Type:
    """The type of values of both.

    Raises:
        MismatchError: values of the two cannot stand in one map.
    """
    if first is second:
        return first
    if type(first) is not type(second):
        raise MismatchError
    union = ROWS.get(type(first))
    return first if union is None else union(first, second)


def held(expected: Type, given: Type) -> Type:
    """The type that values of type *given* have where *expected* was: width and sign of integers may be larger (kernels
    differ), all else is as expected.

    Raises:
        MismatchError: they are no such values.
    """
    return _held(expected, joined(expected, given))


def _held(expected: Type, both: Type) -> Type:
    match expected, both:
        case Tuple(), Tuple():
            return Tuple(tuple(map(_held, expected.members, both.members)))
        case Record(), Record():
            return Record(expected.names, tuple(map(_held, expected.members, both.members)))
        case Array(), Array():
            return Array(_held(expected.element, both.element), expected.count)
        case types.Int(), _:
            return both
    return expected


def common(subject: str, verb: str, pair: tuple[Type | None, Type | None], labels: tuple[str, str]) -> Type:
    """As :func:`joined`, with a message for users.

    Args:
        subject: a part of the snapshots, for the message.
        verb: the operation (``merged``).
        pair: the types; None is that of the keys of a map without keys.
        labels: names of the two snapshots for the message.

    Raises:
        TraceError: values of the two cannot stand in one map.
    """
    first, second = pair
    if first is not None and second is not None:
        with suppress(MismatchError):
            return joined(first, second)
    one, other = (f"{described(type_)} in {label}" for type_, label in zip(pair, labels, strict=True))
    raise TraceError(f"{subject} differ and cannot be {verb}: {one}, {other}")


def _same(first: object, second: object) -> None:
    if first != second:
        raise MismatchError


# ---------------------------------------------------------------------------------------------- rows


def _int(first: types.Int, second: types.Int) -> Type:
    # Portable integers have any size: signed as soon as one is, and no value changes.
    return types.Int(max(first.width, second.width), first.signed or second.signed)


def _float(first: types.Float, second: types.Float) -> Type:
    # A double has each value of a float.
    return types.Float(max(first.width, second.width))


def _enum(first: types.Enum, second: types.Enum) -> Type:
    _same(first.name, second.name)
    members = first.members
    if members != second.members:
        members = tuple(sorted({*members, *second.members}, key=lambda member: (member[1], member[0])))
    return types.Enum(first.name, max(first.width, second.width), first.signed or second.signed, members)


def _pointer(_first: types.Pointer, _second: types.Pointer) -> Type:
    return types.Pointer(types.VOID)


def _capacity(first: types.String | types.Buffer, second: types.String | types.Buffer) -> Type:
    return first if first.capacity >= second.capacity else second


def _array(first: types.Array, second: types.Array) -> Type:
    _same(first.count, second.count)
    return types.Array(joined(first.element, second.element), first.count)


def _all(first: tuple[Type, ...], second: tuple[Type, ...]) -> tuple[Type, ...]:
    _same(len(first), len(second))
    return tuple(joined(one, other) for one, other in zip(first, second, strict=True))


def _tuple(first: types.Tuple, second: types.Tuple) -> Type:
    return types.Tuple(_all(first.members, second.members))


def _record(first: types.Record, second: types.Record) -> Type:
    _same(first.names, second.names)
    return types.Record(first.names, _all(first.members, second.members))


def _struct(first: types.Struct, second: types.Struct) -> Type:
    _same((first.kind, first.name, len(first.fields)), (second.kind, second.name, len(second.fields)))
    _same([field.name for field in first.fields], [field.name for field in second.fields])
    # Where members lie decides only how they were read; it stays as in the one that is greater in some order.
    base = max(first, second, key=_layout)
    kinds = [joined(one.type, other.type) for one, other in zip(first.fields, second.fields, strict=True)]
    fields = tuple(
        Field(field.name, type_, field.offset, field.bit_offset, field.bit_size)
        for field, type_ in zip(base.fields, kinds, strict=True)
    )
    return types.Struct(base.kind, base.name, base.size, fields, alignment=base.align)


def _layout(struct: types.Struct) -> tuple[int, int, list[tuple[int, int, int]]]:
    places = [(field.offset, field.bit_offset, field.bit_size) for field in struct.fields]
    return struct.size, struct.align, places


def _stack(first: types.Stack, second: types.Stack) -> Type:
    _same((first.user, first.mode), (second.user, second.mode))
    return first if first.limit >= second.limit else second


def _fixed(first: types.Fixed, second: types.Fixed) -> Type:
    _same((first.divisor, first.digits), (second.divisor, second.digits))
    return first if first.signed else second


def _joined_members(first: types.Joined, second: types.Joined) -> Type:
    # Values are texts already.
    if not (first.formatted and second.formatted):
        _same(first.separator, second.separator)
    return first if first.size >= second.size else second


def _signed(first: types.Signed, second: types.Signed) -> Type:
    return replace(first, signed=first.signed or second.signed, either=first.either and second.either)


def _hist(first: types.Hist, second: types.Hist) -> Type:
    _same(first.bits, second.bits)
    return first


def _lhist(first: types.LHist, second: types.LHist) -> Type:
    _same((first.low, first.high, first.step), (second.low, second.high, second.step))
    return first


def _series(first: types.TSeries, second: types.TSeries) -> Type:
    _same((first.interval, first.reduce), (second.interval, second.reduce))
    return replace(first, count=max(first.count, second.count), signed=first.signed or second.signed)


_T = TypeVar("_T", bound=Type)
_Union = Callable[[Type, Type], Type]


def _row(class_: type[_T], union: Callable[[_T, _T], Type]) -> tuple[type[Type], _Union]:
    """A row of the table, whose function is only called with types of its own class."""

    def both(first: Type, second: Type) -> Type:
        assert isinstance(first, class_)
        assert isinstance(second, class_)
        return union(first, second)

    return class_, both


ROWS: dict[type[Type], _Union] = dict((
    _row(types.Int, _int),
    _row(types.Float, _float),
    _row(types.Enum, _enum),
    _row(types.Pointer, _pointer),
    _row(types.String, _capacity),
    _row(types.Buffer, _capacity),
    _row(types.Array, _array),
    _row(types.Tuple, _tuple),
    _row(types.Record, _record),
    _row(types.Struct, _struct),
    _row(types.Stack, _stack),
    _row(types.Fixed, _fixed),
    _row(types.Joined, _joined_members),
    _row(types.Sum, _signed),
    _row(types.Avg, _signed),
    _row(types.Stats, _signed),
    _row(types.Min, _signed),
    _row(types.Max, _signed),
    _row(types.Hist, _hist),
    _row(types.LHist, _lhist),
    _row(types.TSeries, _series),
))
"""Types with parameters; the others are joined when their classes are the same."""


# ---------------------------------------------------------------------------------------------- messages


def described(type_: Type | None) -> str:
    """A type for a message, with the parameters that decide whether it joins."""
    if type_ is None:
        return "no key"
    if isinstance(type_, types.Hist):
        return f"hist with {type_.bits} bits"
    if isinstance(type_, types.LHist):
        return f"lhist from {type_.low} to {type_.high} by {type_.step}"
    if isinstance(type_, types.TSeries):
        return f"tseries of {type_.interval} ns, {type_.reduce or 'last value'}"
    if isinstance(type_, types.Stack):
        return f"{type_}({type_.mode.value})"
    if isinstance(type_, types.Struct):
        return f"{type_} with members {', '.join(type_.names())}"
    if isinstance(type_, types.Tuple):
        return f"({', '.join(map(described, type_.members))})"
    if isinstance(type_, types.Record):
        pairs = zip(type_.names, map(described, type_.members), strict=True)
        return f"({', '.join(f'{name}={member}' for name, member in pairs)})"
    return str(type_)
