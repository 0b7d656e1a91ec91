r"""Tables as CSV by RFC 4180: fields with commas, quotes or line ends are quoted, lines end in CR LF.

One stream may have several tables: an empty line is before each but the first, as before a table that goes on after
another.  Text is always UTF-8: other bytes, and control characters, are ``\xNN`` (:mod:`pytrace.core.text`).
A spreadsheet takes a text that begins with ``=`` and such for a formula, which whoever chose a file's or a process's
name could have written; so a ``'`` is put before it (:func:`without_formula`).  Numbers, and the names of columns, stay
as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pytrace.core import types
from pytrace.core.text import printable_utf8
from pytrace.core.value_tables import INTEGERS, RIGHT, Column, TableSchema, key_columns, value_columns
from pytrace.render import histogram, tseries
from pytrace.render.aggregations import stats_members
from pytrace.render.histogram import AllCounts
from pytrace.render.map_printer import Entry, MapPrinter, MapView, Shown, last_interval
from pytrace.render.tables import cell
from pytrace.render.text import Value, Values, for_any
from pytrace.render.tseries import Intervals
from pytrace.render.values import with_div

if TYPE_CHECKING:
    from pytrace.render.forms import TextForms
    from pytrace.render.tables import Page
    from pytrace.render.text import Form


END = b"\r\n"
"""The end of a line; alone it stands between tables."""

_FORMULA = rb"'*(?:[=+\-@\t\r\n]|\xef\xbc[\x8b\x8d\x9d\xa0])"
"""The beginning of a formula, also with full-width signs, after any number of apostrophes."""
_formula = re.compile(_FORMULA).match
_special = re.compile(rb'[",\r\n\\\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\xff]|\A' + _FORMULA).search
_to_quote = re.compile(rb'[",\r\n]').search

_NUMERIC = (*RIGHT, types.Enum)
"""Types whose texts are numbers or names of the kernel's, never text of a traced program."""


def field(text: bytes) -> bytes:
    """*text* of a traced program as a field."""
    if _special(text) is None:
        return text
    return _quoted(without_formula(printable_utf8(text)))


def _escaped_field(text: bytes) -> bytes:
    """*text* whose bytes that are no text are escaped already, as that of a buffer, as a field."""
    return _quoted(without_formula(text))


def _maker(type_: types.Type) -> Callable[[bytes], bytes]:
    """Makes a field of the text of a value of this type."""
    if isinstance(type_, _NUMERIC):
        return bytes
    return _escaped_field if isinstance(type_, types.Buffer) else field


def without_formula(text: bytes) -> bytes:
    """*text* with an apostrophe before what would be a formula; also before apostrophes that such a text begins with.

    So the original text is what remains of a text that begins with an apostrophe and a formula without its first one.
    """
    return b"'" + text if _formula(text) is not None else text


def _quoted(text: bytes) -> bytes:
    return text if _to_quote(text) is None else b'"%s"' % text.replace(b'"', b'""')


def heading(names: Iterable[str]) -> bytes:
    """The line with the names of columns, which come from the script."""
    return line(_quoted(name.encode(errors="surrogateescape")) for name in names)


def line(fields: Iterable[bytes]) -> bytes:
    """A line of fields."""
    columns = list(fields)
    return (b",".join(columns) if len(columns) != 1 else columns[0] or b'""') + END


def form(forms: TextForms, type_: types.Type, *, alone: bool) -> Form | None:
    """The form of values as fields, *alone* in their lines or not; None for numbers, which are fields."""
    if isinstance(type_, INTEGERS):
        return None
    make = _maker(type_)
    text = cell(forms, type_) or for_any(bytes)
    return lambda value: make(text(value)) or (b'""' if alone else b"")


Cells = Callable[[Value], list[bytes]]
"""The texts or fields of the columns that a value takes."""


def cells(forms: TextForms, type_: types.Type) -> Cells:
    """The fields of a value: of a record or tuple one for each of its leaves."""
    return _leaves(forms, type_, _maker)


def texts(forms: TextForms, type_: types.Type) -> Cells:
    """As :func:`cells`, as the texts that the fields are made of."""
    return _leaves(forms, type_, lambda _leaf: bytes)


def _leaves(forms: TextForms, type_: types.Type, make: Callable[[types.Type], Callable[[bytes], bytes]]) -> Cells:
    if isinstance(type_, types.Record | types.Tuple) and type_.members:
        inner = [_leaves(forms, member, make) for member in type_.members]

        def members(value: Values) -> list[bytes]:
            return [text for part, item in zip(inner, value, strict=True) for text in part(item)]

        return for_any(members)
    text, escape = cell(forms, type_) or for_any(bytes), make(type_)
    return lambda value: [escape(text(value))]


# ---------------------------------------------------------------------------------------------- maps


Rows = Callable[[Value], list[list[bytes]]]
"""The rows of a value, without its key."""


def map_table(view: MapView, page: Page, shown: Shown | None = None, *, always: bool = False) -> bytes:
    """A map as a table of its own with a heading: columns of the key, columns of the value.

    A histogram has a row for each bucket, a time series one for each interval. Empty when there is nothing to show.
    """
    shown = shown or Shown()
    items = view.entries(shown, always=always)
    last = last_interval(items) if isinstance(view.value_type, types.TSeries) else 0
    keys = key_columns(view.key_type, view.spec.key_names)
    return b"".join(map_parts(view, page, keys, [items] if items else [], shown, last))


def map_parts(
    printer: MapPrinter, page: Page, keys: Sequence[Column], blocks: Iterable[list[Entry]], shown: Shown, last: int
) -> Iterator[bytes]:
    """As :func:`map_table`, of blocks of entries, with columns *keys*; *last* is the last interval of time series."""
    schema = TableSchema((*keys, *value_columns(printer.title, printer.value_type)))
    return _table(printer, page, schema, blocks, _rows(printer, shown, last))


def quantiles_table(view: MapView, page: Page, percents: Sequence[str]) -> bytes:
    """Percentiles of a hist map as a table of its own."""
    name, of_value = view.title, view.quantiles(percents)
    columns = [Column(f"{name}.{item}", types.INT64) for item in ("percentile", "value", "error", "min", "max")]
    schema = TableSchema((*key_columns(view.key_type, view.spec.key_names), *columns))

    def rows(value: Value) -> list[list[bytes]]:
        return [
            [item.percent.encode(), *map(_bound, (item.value, item.error, item.low, item.high))]
            for item in of_value(value)
        ]

    entries = view.entries()
    return b"".join(_table(view, page, schema, [entries] if entries else [], rows))


def _table(
    printer: MapPrinter, page: Page, schema: TableSchema, blocks: Iterable[list[Entry]], rows: Rows
) -> Iterator[bytes]:
    key = cells(printer.texts, printer.key_type) if printer.key_type is not None else _no_key
    first = True
    for block in blocks:
        if first:
            yield (END if page.begin(None) else b"") + heading(schema.names)
        first = False
        lines: list[bytes] = []
        for name, value in block:
            before = key(name)
            lines += [line([*before, *after]) for after in rows(value)]
        yield b"".join(lines)


def _no_key(_key: object) -> list[bytes]:
    return []


def _bound(value: int | None) -> bytes:
    return b"" if value is None else b"%d" % value


# ---------------------------------------------------------------------------------------------- values


def _rows(printer: MapPrinter, shown: Shown, last: int) -> Rows:
    type_ = printer.value_type
    if isinstance(type_, types.Stats):
        return for_any(_stats)
    if isinstance(type_, types.Hist | types.LHist):
        return _buckets(printer, shown)
    if isinstance(type_, types.TSeries):
        return _intervals(printer, type_, shown, last)
    fields = with_div(cells(printer.texts, type_), type_, shown.div)
    return lambda value: [fields(value)]


def _stats(value: tuple[int, int]) -> list[list[bytes]]:
    return [[b"%d" % item for item in stats_members(value)]]


def _buckets(printer: MapPrinter, shown: Shown) -> Rows:
    shape = printer.shape()
    div = shown.div if shape.divisible else 1

    def rows(value: AllCounts) -> list[list[bytes]]:
        return [
            [_bound(item.low), _bound(None if item.high is None else item.high - 1), b"%d" % (item.count // div)]
            for item in histogram.used(shape, value)
        ]

    return for_any(rows)


def _intervals(printer: MapPrinter, type_: types.TSeries, shown: Shown, last: int) -> Rows:
    window = printer.window(type_, [], shown.div, last)

    def rows(value: Intervals) -> list[list[bytes]]:
        points = window(value).points
        return [[tseries.moment(start), b"%d" % item] for start, item in points if item is not None]

    return for_any(rows)
