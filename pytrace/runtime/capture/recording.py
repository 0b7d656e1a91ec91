"""Snapshots of a run: maps, and the newest rows of each table of ``row()`` statements."""

from __future__ import annotations

import hashlib
import os
import time
import uuid
from collections import deque
from typing import TYPE_CHECKING

import msgspec

import pytrace
from pytrace.core.types import Record, settled
from pytrace.render.forms import PortableForms
from pytrace.results.snapshot import MapData, Print, Run, SnapshotData, Table
from pytrace.runtime.capture.maps import ReadMap, map_data, portable, read, read_greatest
from pytrace.runtime.capture.stack_traces import StackTraces, Symbols

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytrace.core.costs import RunCost
    from pytrace.core.manifest import Manifest
    from pytrace.core.options.run_options import RunOptions
    from pytrace.core.types.tables import RowTable
    from pytrace.render.forms import TextForms
    from pytrace.render.map_printer import MapView
    from pytrace.render.text import Values
    from pytrace.runtime.output.map_output import PrintKeeper

KEPT = 65_536
"""Rows of each table that are kept unless told otherwise."""


class _Rows(msgspec.Struct):
    table: RowTable
    kept: deque[Values]
    seen: int = 0


class RowKeeper:
    """Keeps rows as they were decoded, by their table.

    Names (symbols, users) are resolved when a snapshot is taken.
    """

    def __init__(self, most: int = KEPT) -> None:
        self._most = most
        self._rows: dict[int, _Rows] = {}

    def keep(self, table: RowTable, values: Values) -> None:
        """Keep one row: the decoded values of its columns; the oldest row goes when there are too many."""
        rows = self._rows.get(table.number)
        if rows is None:
            rows = self._rows[table.number] = _Rows(table, deque(maxlen=self._most))
        rows.kept.append(values)
        rows.seen += 1

    def tables(self, identity: str, forms: PortableForms) -> tuple[Table, ...]:
        """The rows as tables of the run *identity*, in the order in which their first rows came."""
        return tuple(_table(rows, identity, forms) for rows in self._rows.values())


def _table(rows: _Rows, identity: str, forms: PortableForms) -> Table:
    schema = rows.table.schema
    record = Record(schema.paths, tuple(column.type for column in schema.columns))
    kept = list(map(forms.row_form(record), rows.kept))
    type_ = settled(record)
    assert isinstance(type_, Record)
    return Table(type_, {identity: kept}, rows.seen - len(kept), rows.table.number)


Moment = tuple[int, int]
"""Wall time and monotonic time, in nanoseconds."""


class Recording:
    """Takes snapshots of one run, of the maps behind *views*."""

    def __init__(
        self,
        manifest: Manifest,
        options: RunOptions,
        views: Iterable[MapView],
        texts: TextForms,
        symbols: Symbols,
    ) -> None:
        self._manifest = manifest
        self._options = options
        self._views = tuple(views)
        self._texts = texts
        self._symbols = symbols
        self._identity = str(uuid.uuid4())
        self._script_hash = _script_hash(manifest, options)
        self._target = _target(options)
        self.others: dict[str, int] = {}
        """Entries that the maps of the last snapshot with a limit have besides those in it."""

    def snapshot(
        self,
        start: Moment,
        end: Moment,
        losses: dict[str, dict[str, int]],
        gaps: tuple[tuple[int, int], ...],
        rows: RowKeeper | None,
        pause: Callable[[], None],
        cost: RunCost | None = None,
        most: int = 0,
    ) -> SnapshotData:
        """All that there is at this moment.

        Args:
            start: when the probes were attached.
            end: now, or when they were detached.
            losses: see :func:`pytrace.runtime.output.messages.by_kind`.
            gaps: see :attr:`pytrace.results.snapshot.Run.gaps`.
            rows: the rows that were kept, where rows are kept.
            pause: called now and then while it takes long, for what must not wait.
            cost: what the run has cost, if that is measured.
            most: entries of each map, the last ones in the order in which it prints; 0: all.
        """
        forms = PortableForms(self._texts, self._stacks())
        # All are read before any is converted, which takes longer: they are to be of one moment as far as may be.
        contents = []
        for view in self._views:
            contents.append(read(view) if not most else read_greatest(view, most, pause))
            pause()
        self.others = {item.view.spec.name: item.others for item in contents}
        maps = {item.view.spec.name: map_data(item, forms, pause) for item in contents}
        moments = {item.view.spec.name: item.time for item in contents}
        tables = () if rows is None else rows.tables(self._identity, forms)
        costs = {} if cost is None else {self._identity: cost}
        return SnapshotData((self._run(start, end, gaps),), maps, tables, losses, moments, costs)

    def _stacks(self) -> StackTraces:
        return StackTraces(self._symbols, places=self._options.places)

    def prints(self, keeper: PrintKeeper) -> tuple[Print, ...]:
        """What the script has printed of its maps, by the times."""
        return prints(keeper, PortableForms(self._texts, self._stacks()))

    def map_data(self, name: str, pause: Callable[[], None]) -> MapData:
        """The contents of one map at this moment."""
        view = next(view for view in self._views if view.spec.name == name)
        return map_data(read(view), PortableForms(self._texts, self._stacks()), pause)

    def element(self, name: str, key: bytes) -> MapData | None:
        """What a map has at *key*, as a map of no more than that; None where one look-up is not enough."""
        view = next(view for view in self._views if view.spec.name == name)
        moment, entries = time.time_ns(), view.element(key)
        if entries is None:
            return None
        found = ReadMap(view, entries, moment)
        return map_data(found, PortableForms(self._texts, self._stacks()), lambda: None)

    def _run(self, start: Moment, end: Moment, gaps: tuple[tuple[int, int], ...]) -> Run:
        system = os.uname()
        return Run(
            identity=self._identity,
            host=system.nodename,
            kernel=system.release,
            machine=system.machine,
            script=self._options.script,
            script_hash=self._script_hash,
            parameters=_parameters(self._manifest, self._options),
            start=start[0],
            end=end[0],
            start_monotonic=start[1],
            end_monotonic=end[1],
            version=pytrace.__version__,
            gaps=gaps,
            text="" if self._manifest.ahead is not None else self._options.text,
            target=self._target,
        )


def prints(keeper: PrintKeeper, forms: PortableForms) -> tuple[Print, ...]:
    """What *keeper* has, by the times."""
    found = [
        Print(view.name, kept.time, portable(view.spec, kept.entries, forms, div=kept.div), kept.cleared, kept.number)
        for view, kept in keeper
    ]
    return tuple(sorted(found, key=lambda item: item.time))


def _script_hash(manifest: Manifest, options: RunOptions) -> str:
    """SHA-256 of the script's text; an ahead-of-time file, which has no text any more, has it from its compilation."""
    if manifest.ahead is not None:
        return manifest.ahead.script_hash
    return hashlib.sha256(options.text.encode("utf-8", "surrogateescape")).hexdigest()


NAMED_TARGETS = 4
"""Processes that a snapshot names; of more it says how many."""


def _process(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="surrogateescape") as file:
            return f"{pid} ({file.read().rstrip()})"
    except OSError:
        return str(pid)


def _target(options: RunOptions) -> str:
    """What is traced, as its reader would name it: see :attr:`pytrace.results.snapshot.Run.target`."""
    if options.command is not None:
        return options.command
    filters = options.filters
    names = [_process(pid) for pid in filters.pids[:NAMED_TARGETS]]
    names += filters.comms[: NAMED_TARGETS - len(names)]
    more = len(filters.pids) + len(filters.comms) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


def _parameters(manifest: Manifest, options: RunOptions) -> tuple[str, ...]:
    """Parameters as they were given; those that an ahead-of-time file fixed need not be given again."""
    if manifest.ahead is None:
        return options.parameters
    fixed = manifest.ahead.parameters
    positional = [text for text in options.parameters if not text.startswith("--")]
    named = [text for text in options.parameters if text.startswith("--")]
    positional += fixed.positional[len(positional) :]
    named += [f"--{name}" if value is None else f"--{name}={value}" for name, value in fixed.fixed]
    return (*positional, *dict.fromkeys(named))
