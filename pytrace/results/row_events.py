"""Rows as events: which columns say when, how long, where and what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import msgspec

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.core.value_tables import Column, TableSchema
from pytrace.render.value_kind import Plain
from pytrace.results.snapshot import Run, SnapshotData, StackTrace, Table
from pytrace.results.stack_samples import members_of

NANOSECONDS = {"": 1, "ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}

_TIMES = ("ts", "time", "timestamp", "nsecs", "when", "start", "begin", "end")
_STARTS = ("start", "begin")
_DURATIONS = ("dur", "lat", "elapsed", "took")
_WALL = 10**18
"""Nanoseconds since 1970 are more (since 2001), those since the start of a machine are less (31 years)."""

Value: TypeAlias = bool | int | float | str


class RowEvent(msgspec.Struct, frozen=True):
    """A row: when it began (wall time, nanoseconds), how long it took (None: it is a moment), where, and the rest."""

    start: int
    duration: int | None
    run: int
    """The number of its run."""
    pid: int | None
    tid: int | None
    comm: str
    name: str
    arguments: tuple[tuple[str, Value], ...]

    @property
    def end(self) -> int:
        """When it was over."""
        return self.start + (self.duration or 0)


class _Roles(msgspec.Struct, frozen=True):
    """Positions of columns that mean something; None where there is none."""

    time: int
    duration: int | None
    pid: int | None
    tid: int | None
    comm: int | None
    name: int | None


def has_spans(table: Table) -> bool:
    """Whether rows certainly are spans: they say when, and by its name a column says how long."""
    columns = TableSchema.of(("",), (table.type,)).columns
    try:
        roles = _roles(columns)
    except TraceError:
        return False
    return roles.duration is not None and _stem(columns[roles.duration]).startswith(_DURATIONS)


def row_events(snapshot: SnapshotData, table: Table) -> Iterator[RowEvent]:
    """The events that the rows of a table are.

    Raises:
        TraceError: the table has no column that says when.
    """
    columns = TableSchema.of(("",), (table.type,)).columns
    roles = _roles(columns)
    flat = not any(isinstance(member, types.Record | types.Tuple) for member in table.type.members)
    for place, run in enumerate(snapshot.runs):
        for row in table.rows.get(run.identity, ()):
            yield _event(columns, roles, place, run, row if flat else list(members_of(table.type, row)))


# ---------------------------------------------------------------------------------------------- columns


def _roles(columns: tuple[Column, ...]) -> _Roles:
    stems = [_stem(column) for column in columns]
    integers = [index for index, column in enumerate(columns) if isinstance(column.type, types.Int)]
    time = next((index for name in _TIMES for index in integers if stems[index] == name), None)
    if time is None:
        names = ", ".join(column.name for column in columns)
        raise TraceError(
            f"rows with the columns {names} have no time, which a trace needs",
            hints=("row((ts=nsecs, …)) gives them one; --map chooses what is written",),
        )
    timed = (index for index in integers if columns[index].unit and columns[index].unit in NANOSECONDS)
    durations = [index for index in timed if index != time]
    named = (index for index in durations if stems[index].startswith(_DURATIONS))
    duration = next(named, durations[0] if durations else None)
    texts = [index for index, column in enumerate(columns) if not column.right and column.name != "comm"]
    texts = [index for index in texts if not isinstance(columns[index].type, types.Bool | types.Pointer | types.Stack)]
    return _Roles(
        time, duration, _named(columns, integers, "pid"), _named(columns, integers, "tid"),
        next((index for index, column in enumerate(columns) if column.name == "comm" and not column.number), None),
        next((index for index in texts if columns[index].name == "name"), texts[0] if texts else None),
    )  # fmt: skip


def _stem(column: Column) -> str:
    return column.name.rpartition("_")[0] if column.unit else column.name


def _named(columns: tuple[Column, ...], among: list[int], name: str) -> int | None:
    return next((index for index in among if columns[index].name == name), None)


# ---------------------------------------------------------------------------------------------- values


def _event(columns: tuple[Column, ...], roles: _Roles, number: int, run: Run, row: Sequence[Plain]) -> RowEvent:
    time = row[roles.time] * NANOSECONDS[columns[roles.time].unit]
    if time < _WALL:
        time += run.start - run.start_monotonic
    duration = None
    if roles.duration is not None:
        duration = max(0, row[roles.duration] * NANOSECONDS[columns[roles.duration].unit])
        if _stem(columns[roles.time]) not in _STARTS:
            time -= duration
    name = "" if roles.name is None else str(shown(columns[roles.name].type, row[roles.name]))
    if not name:
        name = _stem(columns[roles.time if roles.duration is None else roles.duration])
    used = {roles.time, roles.pid, roles.tid, roles.comm}
    others = [pair for index, pair in enumerate(zip(columns, row, strict=True)) if index not in used]
    return RowEvent(
        time, duration, number,
        None if roles.pid is None else row[roles.pid],
        None if roles.tid is None else row[roles.tid],
        "" if roles.comm is None else unicode_text(row[roles.comm]),
        name,
        tuple((column.name, shown(column.type, item)) for column, item in others),
    )  # fmt: skip


def shown(type_: types.Type, value: Plain) -> Value:
    """A portable value as a number or text that a trace can hold."""
    if isinstance(value, StackTrace):
        return unicode_text(";".join(frame.function or f"0x{frame.address:x}" for frame in value.frames))
    if isinstance(type_, types.Enum):
        return next((name for name, number in type_.members if number == value), str(value))
    if isinstance(type_, types.Pointer):
        return f"0x{value:x}"
    if isinstance(type_, types.Fixed):
        return f"{type_.number(value):.{type_.digits}f}"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple):
        return unicode_text(str(value))
    return unicode_text(value) if isinstance(value, str) else value


def unicode_text(text: str) -> str:
    """Text without the lone surrogates that stand for bytes that are no UTF-8: those are shown as ``\\xff``."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


# ---------------------------------------------------------------------------------------------- spans


def lanes(events: Iterable[RowEvent]) -> list[list[RowEvent]]:
    """Slices of one track must nest: those that overlap otherwise go to further lanes."""
    found: list[list[RowEvent]] = []
    open_ends: list[list[int]] = []
    for event in sorted(events, key=lambda event: (event.start, -(event.duration or 0))):
        for ends in open_ends:
            while ends and ends[-1] <= event.start:
                ends.pop()
        end = event.end
        lane = next((index for index, ends in enumerate(open_ends) if not ends or end <= ends[-1]), len(found))
        if lane == len(found):
            found.append([])
            open_ends.append([])
        found[lane].append(event)
        open_ends[lane].append(end)
    return found
