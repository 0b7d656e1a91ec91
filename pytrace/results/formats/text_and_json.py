"""Formats ``text`` and ``json``: rows and maps as a run prints them.

A table of rows is printed as a whole, with the rows of each run together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import BinaryIO

from pytrace.core.types import Type
from pytrace.core.value_tables import Column, TableSchema
from pytrace.render import json
from pytrace.render.map_printer import Shown
from pytrace.render.tables import Cell, Page, TextTable, cell
from pytrace.render.text import Value as Decoded
from pytrace.render.text import encoded, for_any, map_title
from pytrace.render.value_kind import Change
from pytrace.render.values import value_kind_of
from pytrace.results import external_sort
from pytrace.results.difference import Difference, ManyChanges, MapDifference
from pytrace.results.formats import about
from pytrace.results.formats.format_row import WriteOptions
from pytrace.results.formats.portable_forms import PortableForm, Printers, rows_of
from pytrace.results.snapshot import Portable, SnapshotData, Table, Value

Row = Sequence[Portable]

ROWS = 4096
"""Rows of a table that are formatted at once."""


def write_text(snapshot: SnapshotData, options: WriteOptions, file: BinaryIO) -> None:
    """Write tables, and maps by name."""
    if options.about:
        file.writelines(encoded(line) for line in about.lines(snapshot))
    printers = Printers()
    gap = b""
    for part in _tables_text(printers, snapshot):
        file.write(part)
        gap = b"\n"
    for _, data in sorted(snapshot.maps.items()):
        printer, last = printers.printer(data), printers.last_interval(data)
        for entries in printers.in_order(data):
            file.write(gap + printer.entries_text(entries, Shown(), last))
            gap = b""


def write_json(snapshot: SnapshotData, options: WriteOptions, file: BinaryIO) -> None:
    """Write a line for each row and each map, maps by name."""
    if options.about:
        file.write(about.json_line(snapshot))
    printers = Printers()
    file.writelines(_row_lines(printers, snapshot))
    for _, data in sorted(snapshot.maps.items()):
        if data.entries:
            blocks, last = printers.in_order(data), printers.last_interval(data)
            printer = printers.printer(data)
            names = printer.distinct_names(key for key, _ in printers.entries(data))
            file.writelines(printer.entries_json_parts(blocks, Shown(), last, names))


# ---------------------------------------------------------------------------------------------- rows


def _numbers(snapshot: SnapshotData) -> list[int]:
    """Numbers of the tables: those of the script, or 1, 2, … where scripts with equal numbers were merged."""
    numbers = [table.number for table in snapshot.tables]
    return numbers if len(set(numbers)) == len(numbers) else list(range(1, len(numbers) + 1))


def _tables_text(printers: Printers, snapshot: SnapshotData) -> Iterator[bytes]:
    """All tables as aligned text, with an empty line before each but the first."""
    page = Page()
    for table in snapshot.tables:
        yield from _text(printers, page, snapshot, table)


def _text(printers: Printers, page: Page, snapshot: SnapshotData, table: Table) -> Iterator[bytes]:
    columns = tuple(map(Column.of, table.type.names, table.type.members))
    shown = TextTable(page, TableSchema(columns))
    forms = [_cell(printers, column) for column in columns]

    def blocks() -> Iterator[tuple[list[bytes], list[list[Cell]]]]:
        for block in external_sort.batches(rows_of(snapshot, table), ROWS):
            values = [[form(item) for form, item in zip(forms, row, strict=True)] for row in block]
            yield list(map(shown.row, values)), values

    # The columns grow as rows are formatted; all are to have the width of the widest.
    for lines, values in blocks():
        shown.clean(lines, range(len(lines)), partial(_careful, shown, values))
    for lines, values in blocks():
        shown.settle(lines, range(len(lines)), partial(_careful, shown, values))
        yield b"".join(lines)


def _careful(shown: TextTable, values: Sequence[Sequence[Cell]], index: int) -> bytes:
    return shown.careful_row(values[index])


def _cell(printers: Printers, column: Column) -> Callable[[Portable], Cell]:
    type_ = column.type
    if column.number:
        return printers.portable(type_, _number)
    return printers.portable(type_, cell(printers.texts, type_) or for_any(bytes))


def _number(value: Decoded) -> int:
    assert isinstance(value, int)
    return value


def _row_lines(printers: Printers, snapshot: SnapshotData) -> Iterator[bytes]:
    """A line for each row."""
    for number, table in zip(_numbers(snapshot), snapshot.tables, strict=True):
        start, form = json.ROW_START % number, _object(printers, table.type.names, table.type.members)
        for row in rows_of(snapshot, table):
            yield start + form(row) + json.ROW_END


def _object(printers: Printers, names: Sequence[str], kinds: Sequence[Type]) -> Callable[[Row], bytes]:
    parts: list[bytes | PortableForm] = list(json.row_object(names, kinds, printers.portable_json))

    def form(row: Row) -> bytes:
        values = iter(row)
        return b"".join([part if isinstance(part, bytes) else part(next(values)) for part in parts])

    return form


# ---------------------------------------------------------------------------------------------- difference forms


_BLOCK = 4096
"""Keys of a map that are formatted at once."""


def difference_text(difference: Difference) -> Iterator[bytes]:
    """Changes as text; one line for snapshots without any."""
    printers = Printers()
    for _, part in sorted(difference.maps.items()):
        yield from _map_text(printers, part)
        yield from (encoded(f"# {part.name}: {line}\n") for line in part.found)
    for kind, subjects in difference.losses.items():
        yield from (encoded(f"# {kind}: {count:+d} ({subject})\n") for subject, count in subjects.items())
    if not difference.maps and not difference.losses:
        yield b"no map differs; rows are not compared\n" if difference.rows else b"no map differs\n"


def difference_json(difference: Difference) -> Iterator[bytes]:
    """A line for each map that differs, and one for losses."""
    printers = Printers()
    for _, part in sorted(difference.maps.items()):
        yield from _map_json(printers, part)
    if difference.losses:
        losses = [
            (encoded(kind), json.mapping([(encoded(name), json.number(count)) for name, count in subjects.items()]))
            for kind, subjects in difference.losses.items()
        ]
        yield json.line("difference_losses", json.mapping(losses))


def _ordered(printers: Printers, part: MapDifference) -> Iterator[tuple[Decoded, Change]]:
    """Decoded keys and changes, the largest last."""
    restore = _no_key if part.key is None else printers.restored(part.key)
    if isinstance(part.changes, ManyChanges):
        for key, change in part.changes.in_order(lambda key, change: (change.size, restore(key))):
            yield restore(key), change
        return
    entries = [(restore(key), change) for key, change in part.changes.items()]
    yield from sorted(entries, key=lambda entry: (entry[1].size, entry[0]))


def _no_key(_key: Value) -> Decoded:
    return ()


# ---------------------------------------------------------------------------------------------- text


def _map_text(printers: Printers, part: MapDifference) -> Iterator[bytes]:
    shown = value_kind_of(part.value).change_text(printers.portable_text(part.value))
    name = encoded(map_title(part.name, part.mark))
    if part.key is None:
        return (b"%s:%s" % (name, shown(change)) for change in part.changes.values())
    key = printers.texts.key(part.key)
    rows = (b"%s[%s]:%s" % (name, key(item), shown(change)) for item, change in _ordered(printers, part))
    few = max(0, len(part.changes) - MOST_STACKS) if part.found else 0
    return chain(_gathered(part, few), islice(rows, few, None))


MOST_STACKS = 20
"""Of stacks that differ so many are printed, those that changed most: one is a line of a thousand characters."""


def _gathered(part: MapDifference, few: int) -> Iterator[bytes]:
    """A line for the stacks that changed least, which are not printed."""
    if few:
        deltas = sorted((change.delta for change in part.changes.values() if isinstance(change.delta, int)), key=abs)
        grew, shrank = (sum(delta for delta in deltas[:few] if (delta > 0) == side) for side in (True, False))
        sums = f" (+{grew:,} and {shrank:,} in all)" if grew or shrank else ""
        what = "stacks differ" if few > 1 else "stack differs"
        yield encoded(f"# {part.name}: {few:,} further {what} by less{sums}; -f json has each\n")


# ---------------------------------------------------------------------------------------------- JSON


def _map_json(printers: Printers, part: MapDifference) -> Iterator[bytes]:
    form, delta = printers.portable_json(part.value), value_kind_of(part.value).change_json()

    def shown(change: Change) -> bytes:
        return json.mapping(
            [
                (b"before", b"null" if change.before is None else form(change.before)),
                (b"after", b"null" if change.after is None else form(change.after)),
                (b"change", b"null" if change.delta is None else delta(change)),
            ]
        )

    if part.key is None:
        ((_, change),) = _ordered(printers, part)
        yield json.line("difference", json.mapping([(encoded(part.name), shown(change))]), part.mark)
        return
    key = printers.jsons.key(part.key)
    entries = ((key(name), shown(change)) for name, change in _ordered(printers, part))
    distinct = None
    if not json.distinct_keys(part.key):
        distinct = json.DistinctNames(map(key, map(printers.restored(part.key), part.changes)))
    # As json.line and json.mapping write it.
    before = b'{"type": "difference", "data": {%s: {' % json.quoted(encoded(part.name))
    for block in external_sort.batches(entries, _BLOCK):
        texts = [name for name, _ in block]
        names = texts if distinct is None else distinct.of(texts)
        members = json.mapping([(name, value) for name, (_, value) in zip(names, block, strict=True)])
        yield before + members[1:-1]
        before = b", "
    yield b"}}%s\n" % json.ending(part.mark)
