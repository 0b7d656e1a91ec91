"""Decoded values as plain Python values, for those who do not want text.

=========================== ==========================================================
type                        plain value
=========================== ==========================================================
bool                        ``bool``
int, pointer, count, sum    ``int``
avg, min, max               ``int``
string                      ``str``; bytes that are not UTF-8 as surrogate escapes
buffer                      ``bytes``
enum                        ``str``, the member's name (the number where it has none)
array                       ``list``
tuple                       ``tuple``
record, struct              ``dict``
stack                       ``list`` of ``str``, a line for each frame, innermost first
stats                       ``dict`` of count, average, total
all others                  ``str``, as they print
=========================== ==========================================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from pytrace.core import types
from pytrace.runtime.output.render.decoders import ByType, named_fields, truncated
from pytrace.runtime.output.render.text import STATS, TextForms, stats_members

Plain = Callable[[Any], Any]


class PlainValues(ByType[Plain | None]):
    """Makes functions from decoded to plain values; None where they are the same."""

    def __init__(self, texts: TextForms) -> None:
        super().__init__(ROWS)
        self.texts = texts

    def form(self, kind: types.Type) -> Plain | None:
        """What makes a plain value of a decoded one of type *kind*."""
        return self.made(kind)

    def always(self, kind: types.Type) -> Plain:
        """As :meth:`form`, with a function in any case."""
        return self.form(kind) or _same


def _same(value: Any) -> Any:
    return value


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


def _none(_plain: PlainValues, _kind: types.Type) -> Plain | None:
    return None


def _string(_plain: PlainValues, _kind: types.Type) -> Plain:
    return _text


def _shown(plain: PlainValues, kind: types.Type) -> Plain:
    form = plain.texts.form(kind)
    return lambda value: _text(form(value))


def _array(plain: PlainValues, kind: types.Array) -> Plain:
    element = plain.always(kind.element)
    return lambda value: [element(item) for item in value]


def _tuple(plain: PlainValues, kind: types.Tuple) -> Plain:
    members = [plain.always(member) for member in kind.members]
    return lambda value: tuple(form(item) for form, item in zip(members, value, strict=True))


def _named(plain: PlainValues, names: list[str], kinds: list[types.Type]) -> Plain:
    parts = [(name, plain.always(kind)) for name, kind in zip(names, kinds, strict=True)]
    return lambda value: {name: form(item) for (name, form), item in zip(parts, value, strict=True)}


def _record(plain: PlainValues, kind: types.Record) -> Plain:
    return _named(plain, list(kind.names), list(kind.members))


def _struct(plain: PlainValues, kind: types.Struct) -> Plain:
    fields = list(named_fields(kind))
    return _named(plain, [field.name for field in fields], [field.type for field in fields])


def _stack(plain: PlainValues, kind: types.Stack) -> Plain:
    form = plain.texts.form(kind)
    return lambda value: [_text(line.strip()) for line in form(value).split(b"\n") if line.strip()]


def _average(_plain: PlainValues, _kind: types.Type) -> Plain:
    return lambda value: truncated(*value)


def _stats(_plain: PlainValues, _kind: types.Type) -> Plain:
    return lambda value: dict(zip(STATS, stats_members(value), strict=True))


def _extreme(_plain: PlainValues, _kind: types.Type) -> Plain:
    return lambda value: value[0]


_T = TypeVar("_T", bound=types.Type)
_Make = Callable[[PlainValues, types.Type], Plain | None]


def _row(kind: type[_T], make: Callable[[PlainValues, _T], Plain | None]) -> tuple[type[types.Type], _Make]:
    """A row of the table, whose function is only called with values of its own class."""
    return kind, cast(_Make, make)


ROWS: dict[type[types.Type], _Make] = dict((
    _row(types.Void, _none),
    _row(types.Bool, _none),
    _row(types.Int, _none),
    _row(types.Enum, _shown),
    _row(types.Pointer, _none),
    _row(types.String, _string),
    _row(types.Buffer, _none),
    _row(types.Array, _array),
    _row(types.Tuple, _tuple),
    _row(types.Record, _record),
    _row(types.Struct, _struct),
    _row(types.Stack, _stack),
    _row(types.KSym, _shown),
    _row(types.USym, _shown),
    _row(types.Inet, _shown),
    _row(types.Mac, _shown),
    _row(types.Timestamp, _shown),
    _row(types.Username, _shown),
    _row(types.InterfaceName, _shown),
    _row(types.NetworkNamespace, _shown),
    _row(types.CgroupPath, _shown),
    _row(types.Count, _none),
    _row(types.Sum, _none),
    _row(types.Avg, _average),
    _row(types.Stats, _stats),
    _row(types.Min, _extreme),
    _row(types.Max, _extreme),
    _row(types.Hist, _none),
    _row(types.LHist, _none),
    _row(types.TSeries, _none),
))
