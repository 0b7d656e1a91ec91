"""Snapshots and maps as HTML, which notebooks show instead of text.

All text is escaped, as in CSV also for spreadsheets, into which users paste tables of notebooks. The size is bounded:
the largest entries of each map, the newest rows of each table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape

from pytrace.core import types
from pytrace.core.text import printable_utf8
from pytrace.core.value_tables import RIGHT
from pytrace.render import csv
from pytrace.render.aggregations import Stats
from pytrace.render.histogram import Histogram
from pytrace.render.value_kind import Result
from pytrace.render.values import value_kind_of
from pytrace.results.formats import about, svg
from pytrace.results.formats.format_row import Content, content
from pytrace.results.formats.portable_forms import Printers
from pytrace.results.formats.svg import Drawing
from pytrace.results.snapshot import MapData, SnapshotData, Table, Value
from pytrace.results.stack_samples import profiles

MOST_ROWS = 100
"""Maximum entries of a map, and rows of a table."""
WIDTH = 900
"""Width of pictures, in pixels."""
MOST_PARTS = 50
"""Maximum maps, and maximum tables."""
MOST_CHARACTERS = 2000
"""Maximum length of one text."""

_STYLE = svg.Options(narrowest=1, most_rows=200)
"""Flame graphs hang from the top, as they are scrolled."""

_TEXT, _NUMBER = ' style="text-align:left;white-space:pre-wrap"', ' style="text-align:right"'


def snapshot(data: SnapshotData) -> str:
    """A whole snapshot: its runs and losses, maps by name, tables."""
    shown = [_map(item) for _, item in sorted(data.shown.items())[:MOST_PARTS]]
    shown += [_rows(item) for item in data.tables[:MOST_PARTS]]
    left = max(0, len(data.shown) - MOST_PARTS) + max(0, len(data.tables) - MOST_PARTS)
    head = f"<pre>{_escaped(about.text(data).strip())}</pre>"
    return f"<div>{head}{''.join(shown)}{_more(left, 'maps and tables')}</div>"


def result_map(data: MapData) -> str:
    """One map."""
    return f"<div>{_map(data)}</div>"


def _map(data: MapData) -> str:
    name, count = _escaped(data.title), len(data.entries)
    keys = "" if data.key is None else f" ({count} key{'' if count == 1 else 's'})"
    comment = f" <i>{_escaped(data.help)}</i>" if data.help else ""
    if isinstance(data.value, types.Hist | types.LHist):
        body = _histograms(data)
    elif content(data) is Content.STACKS:
        body = _flames(data) or _entries(data)
    else:
        body = _entries(data)
    return f"<div><b>{name}</b>{keys}{comment}{body}</div>"


# ---------------------------------------------------------------------------------------------- entries


def _largest(data: MapData, most: int) -> list[tuple[Result, Result]]:
    """The entries with the largest values, largest first, with values in their Python form."""
    form = value_kind_of(data.value).python()
    entries = [(key, form(value)) for key, value in data.entries.items()]
    return sorted(entries, key=lambda entry: _size(entry[1]), reverse=True)[:most]


def _size(value: object) -> int:
    if isinstance(value, int):
        return value
    if isinstance(value, Stats):
        return value.total
    return value.count if isinstance(value, Histogram) else 0


def _key_types(data: MapData) -> Sequence[types.Type]:
    if data.key is None:
        return ()
    return data.key.members if isinstance(data.key, types.Tuple | types.Record) else (data.key,)


def _key_parts(data: MapData, key: Result) -> Sequence[Result]:
    return key if isinstance(data.key, types.Tuple | types.Record) else (key,)


def _entries(data: MapData) -> str:
    printers, key_types = Printers(), _key_types(data)
    forms = [printers.portable_text(type_) for type_ in key_types]
    names = list(map(types.shown_name, data.key.names)) if isinstance(data.key, types.Record) else [""] * len(key_types)
    columns = [*((name, isinstance(type_, RIGHT)) for name, type_ in zip(names, key_types, strict=True))]
    columns += _value_columns(data.value)
    rows = []
    for key, value in _largest(data, MOST_ROWS):
        cells = [_shown(form, part) for form, part in zip(forms, _key_parts(data, key), strict=bool(key_types))]
        rows.append([*cells, *_value_cells(data, printers, key, value)])
    return _table(columns, rows) + _more(len(data.entries) - len(rows), "keys")


def _value_columns(type_: types.Type) -> list[tuple[str, bool]]:
    if isinstance(type_, types.Stats):
        return [("count", True), ("average", True), ("total", True)]
    return [("", isinstance(type_, RIGHT))]


def _value_cells(data: MapData, printers: Printers, key: Result, value: Result) -> list[str]:
    if isinstance(value, Stats):
        return [str(value.count), str(value.average), str(value.total)]
    return [_shown(printers.portable_text(data.value), data.entries[key])]


def _rows(table: Table) -> str:
    printers, kinds = Printers(), table.type.members
    forms = [printers.portable_text(kind) for kind in kinds]
    all_rows = [row for rows in table.rows.values() for row in rows]
    rows = [[_shown(form, cell) for form, cell in zip(forms, row, strict=True)] for row in all_rows[-MOST_ROWS:]]
    names = map(types.shown_name, table.type.names)
    columns = [(name, isinstance(kind, RIGHT)) for name, kind in zip(names, kinds, strict=True)]
    return f"<div>{_table(columns, rows)}{_more(len(all_rows) - len(rows) + table.dropped, 'older rows')}</div>"


# ---------------------------------------------------------------------------------------------- pictures


def _histograms(data: MapData) -> str:
    drawing = Drawing(WIDTH)
    svg.draw_histograms(drawing, data, Printers().portable_text)
    return _scrolled(drawing)


def _flames(data: MapData) -> str:
    """Flame graphs of a map of stacks; empty if a number is negative, as that has no width."""
    drawing = Drawing(WIDTH)
    (profile,) = profiles([data], Printers().portable_text)
    if any(value < 0 for sample in profile.samples for value in sample.values):
        return ""
    for measure in range(len(profile.measures)):
        svg.draw_flames(drawing, profile, measure, _STYLE)
    return _scrolled(drawing)


def _scrolled(drawing: Drawing) -> str:
    return f'<div style="max-height:48em;overflow:auto">{drawing.element()}</div>'


# ---------------------------------------------------------------------------------------------- HTML


def _table(columns: Sequence[tuple[str, bool]], rows: Iterable[Sequence[str]]) -> str:
    """A table; *columns* are names, and whether the columns are numeric."""
    head = "".join(f"<th>{_escaped(name)}</th>" for name, _ in columns) if any(name for name, _ in columns) else ""
    styles: list[str] = [_NUMBER if number else _TEXT for _, number in columns]
    texts = [str if number else _without_formula for _, number in columns]
    body = "".join(f"<tr>{''.join(map(_cell, styles, texts, row))}</tr>" for row in rows)
    return f"<table>{f'<tr>{head}</tr>' if head else ''}{body}</table>"


def _cell(style: str, text: Callable[[str], str], cell: str) -> str:
    return f"<td{style}>{_escaped(text(cell))}</td>"


def _shown(form: Callable[[Value], bytes], value: Result) -> str:
    return form(value).decode("utf-8", "surrogateescape").strip("\n")


def _without_formula(text: str) -> str:
    return csv.without_formula(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")


def _escaped(text: str) -> str:
    """Text escaped for HTML and representable in UTF-8, as the notebook's file requires; long texts are truncated."""
    plain = printable_utf8(text.encode("utf-8", "surrogateescape")).decode()
    if len(plain) > MOST_CHARACTERS:
        plain = f"{plain[:MOST_CHARACTERS]}…"
    return escape(plain)


def _more(count: int, what: str) -> str:
    return f"<div>… and {count} more {what}</div>" if count > 0 else ""
