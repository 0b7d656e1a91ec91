"""The results of one host, of which nothing is believed: read within limits, and held against the script.

A host decides about its own numbers, and about nothing else: not about the types of maps, their help, the script's
name, or the keys of other hosts. What is larger than :data:`AT_ONCE` is first read by a process that has limits of
memory and time (:func:`readable`): unpacked results may take a thousand times what was sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import cast

import msgspec
from msgspec.structs import replace

from pytrace.base.limited_process import LimitError, Program
from pytrace.core import types
from pytrace.core.diagnostics import Error, TraceError, counted
from pytrace.core.manifest import CompiledScript
from pytrace.core.types import Array, Record, Stack, Tuple, Type, settled
from pytrace.core.value_tables import row_schema, row_tables
from pytrace.remote.answer import labelled_key, labelled_row
from pytrace.remote.hosts import LATEST, Offset
from pytrace.remote.messages import LONGEST_TEXT, Request, shortened
from pytrace.render.value_kind import MismatchError, Plain
from pytrace.render.values import joined_types
from pytrace.results import file_form, stored_document
from pytrace.results.merge import described
from pytrace.results.snapshot import MapData, Portable, Run, Series, SnapshotData, Table, Value

LARGEST = 256 << 20
"""Bytes of the largest document of a host."""
AT_ONCE = 1 << 20
"""Bytes of a document that is read without a process of its own."""
MOST_FRAMES = 1 << 24
"""Frames of all stacks, each as often as it is shown."""
_MOST_LOSSES = 1000
"""Kinds and subjects of losses of a host, parameters, gaps."""
_LONGEST_WORD = 4096
"""Characters of a run's properties."""
MARKS = frozenset({"", "estimate", "sample"})
"""Of :attr:`MapData.mark`."""

MEMORY = 2 << 30
"""Bytes of the address space of the process."""
TIME, PATIENCE = 60, 120.0
"""Seconds of its processor time, and until it is killed."""

Types = tuple[Type | None, Type]
"""Of the keys of a map (None without keys) and of its values."""


# ---------------------------------------------------------------------------------------------- reading


def is_small(data: bytes) -> bool:
    """Whether results, or what begins with these :data:`HEAD` bytes, are read at once."""
    return file_form.size_of(data) <= AT_ONCE


def read(data: bytes, host: str) -> SnapshotData:
    """The results of a host.

    Raises:
        TraceError: they are damaged, or too large.
    """
    limit = min(LARGEST, max(stored_document.LEAST_LIMIT, stored_document.RATIO * len(data)))
    if file_form.size_of(data) > limit:
        raise TraceError(f"its results would unpack {len(data)} bytes to {file_form.size_of(data)}; {limit} are read")
    snapshot = file_form.from_bytes(data, host)
    columns: list[tuple[Type | None, Iterable[Plain]]] = []
    for item in snapshot.maps.values():
        columns += [(item.key, item.entries), (item.value, item.entries.values())]
    columns += [(table.type, rows) for table in snapshot.tables for rows in table.rows.values()]
    if sum(_checked(type_, list(values)) for type_, values in columns) > MOST_FRAMES:
        raise TraceError(f"its stacks have more than {MOST_FRAMES} frames")
    return snapshot


def _checked(type_: Type | None, values: Sequence[Plain]) -> int:
    """The frames of all stacks in values of a type, each as often as it occurs.

    Raises:
        TraceError: a number is none of the type: formats could not write it.
    """
    match type_:
        case Tuple() | Record():
            return sum(map(_checked, type_.members, zip(*values, strict=True)))
        case Array():
            return _checked(type_.element, list(chain.from_iterable(values)))
        case Stack():
            return sum(len(stack.frames) for stack in values)
        case types.Int() | types.Enum():
            _check_range(type_, values, 8 * type_.width, signed=type_.signed)
        case types.Count():
            _check_range(type_, values, 64, signed=False)
        case types.Avg() | types.Stats():
            _check_range(type_, list(chain.from_iterable(values)), 64, signed=type_.signed)
        case types.Hist() | types.LHist():
            _check_range(type_, list(chain.from_iterable(value.values() for value in values)), 64, signed=False)
        case types.TSeries():
            numbers = (number for value in values for start, pair in value.items() for number in (start, *pair))
            _check_range(type_, list(numbers), 64, signed=True)
        case Type() if values and type(values[0]) is int:
            _check_range(type_, values, 64, signed=True)
    return 0


def _check_range(type_: Type, values: Sequence[int], bits: int, *, signed: bool) -> None:
    # Signed ones may have been joined with unsigned ones.
    least = -(1 << bits - 1) if signed else 0
    if values and (min(values) < least or max(values) >= 1 << bits):
        raise TraceError(f"it sends numbers that are no {type_}")


def check(data: bytes, host: str) -> None:
    """Read results in a process that may take a limited amount of memory and time.

    Raises:
        TraceError: they are damaged, or it takes more.
    """
    try:
        program = Program(readable, memory=MEMORY, seconds=TIME, longest=PATIENCE)
        problem = program.result(host.encode("utf-8", "surrogateescape") + b"\0" + data)
    except LimitError:
        raise TraceError(
            f"its results take more than {MEMORY >> 20} MiB, {TIME} seconds of processor time or {PATIENCE:g} seconds "
            "to read"
        ) from None
    except OSError as error:
        raise TraceError(f"its results are too large to be read without a process: {error.strerror}") from None
    if problem:
        raise TraceError(shortened(problem.decode("utf-8", "replace")))


def readable(data: bytes) -> bytes:
    """In the process: why the results of a host (its name, NUL, its results) cannot be read; empty if they can."""
    host, _, results = data.partition(b"\0")
    try:
        read(results, host.decode("utf-8", "surrogateescape"))
    except Error as error:
        return (error.message if isinstance(error, TraceError) else str(error)).encode("utf-8", "replace")
    return b""


# ---------------------------------------------------------------------------------------------- the script


class Script(msgspec.Struct, frozen=True):
    """What any host's results must be of."""

    name: str
    text: str
    maps: Mapping[str, Types] | None = None
    """None if only the hosts compile the script."""
    helps: Mapping[str, str] = {}
    key_names: Mapping[str, tuple[str, ...]] = {}
    tables: Mapping[int, Record] = {}

    @classmethod
    def of(cls, request: Request) -> Script:
        """The script of a request.

        Raises:
            TraceError: its compiled form is damaged.
        """
        if not request.compiled:
            return cls(request.script, request.text)
        manifest = CompiledScript.from_bytes(request.compiled).manifest
        rows = row_tables((spec.id, row_schema(spec)) for spec in manifest.events if spec.kind == "row")
        maps = {
            spec.name: (None if spec.key is None else settled(spec.key), settled(spec.value)) for spec in manifest.maps
        }
        tables = {
            row.number: Record(row.schema.paths, tuple(settled(column.type) for column in row.schema.columns))
            for row in rows.values()
        }
        helps = {spec.name: spec.help for spec in manifest.maps}
        return cls(
            request.script, request.text, maps, helps, {spec.name: spec.key_names for spec in manifest.maps}, tables
        )

    def fitted(self, snapshot: SnapshotData) -> SnapshotData:
        """The results of a host, with all that the script decides as it has it.

        Raises:
            TraceError: they are not of one run of this script.
        """
        if len(snapshot.runs) != 1:
            raise TraceError(f"it sends {counted(len(snapshot.runs), 'run')} in place of one")
        for data in snapshot.maps.values():
            if data.label or data.estimated:
                raise TraceError(f"map {data.name} has labels, which a host does not put on")
        return self._fitted(snapshot, 1)

    def fitted_of_gateway(self, snapshot: SnapshotData, most: int, name: str, labels: frozenset[str] | None,
                          ) -> SnapshotData:  # fmt: skip
        """The merged results of at most *most* hosts behind a gateway. Keys and rows begin with one of *labels*, in a
        column of the *name*; None: with none.

        Raises:
            TraceError: they are not of runs of this script, or of other hosts.
        """
        if len(snapshot.runs) > most:
            raise TraceError(f"it sends {counted(len(snapshot.runs), 'run')} of {counted(most, 'host')}")
        if labels is None:
            return self._fitted(snapshot, most)
        for data in snapshot.maps.values():
            firsts = {key[0] if isinstance(key, tuple) and key else key for key in data.entries}
            if data.label != name or not labels.issuperset(firsts) or not labels.issuperset(data.estimated):
                raise TraceError(f"map {data.name} has keys of hosts that are not behind it")
        for table in snapshot.tables:
            if not labels.issuperset(row[0] for rows in table.rows.values() for row in rows):
                raise TraceError(f"table {table.number} has rows of hosts that are not behind it")
        if self.maps is None:
            return self._fitted(snapshot, most)
        maps = {map_: (labelled_key(key), value) for map_, (key, value) in self.maps.items()}
        tables = {number: labelled_row(row, name) for number, row in self.tables.items()}
        return replace(self, maps=maps, tables=tables)._fitted(snapshot, most)

    def _fitted(self, snapshot: SnapshotData, most: int) -> SnapshotData:
        _check_losses(snapshot.losses, most)
        runs = tuple(map(self._run, snapshot.runs))
        maps = {data.name: self._map(data) for data in snapshot.maps.values()}
        if self.maps is not None and runs and (missing := self.maps.keys() - maps.keys()):
            raise TraceError(f"it sends no map {min(missing)}, which the script has")
        tables = tuple(map(self._table, snapshot.tables))
        if len({table.number for table in tables}) != len(tables):
            raise TraceError("it sends a table twice")
        known = {run.identity for run in runs}
        if not known.issuperset(run for table in tables for run in table.rows):
            raise TraceError("it sends rows of a run that it does not send")
        costs = {run: cost for run, cost in snapshot.costs.items() if run in known}
        return replace(snapshot, runs=runs, maps=maps, tables=tables, costs=costs, prints=())

    def _run(self, run: Run) -> Run:
        texts = (run.identity, run.host, run.kernel, run.machine, run.script_hash, run.version, *run.parameters)
        if any(len(text) > _LONGEST_WORD for text in texts) or len(run.parameters) + len(run.gaps) > 2 * _MOST_LOSSES:
            raise TraceError("what it says of its run is too long")
        return replace(run, script=self.name, text=run.text if run.text == self.text else "", target="")

    def _map(self, data: MapData) -> MapData:
        if data.mark not in MARKS:
            raise TraceError(f"map {data.name} has a mark that there is not")
        if self.maps is None:
            return replace(data, help=data.help[:LONGEST_TEXT], key_names=())
        if data.name not in self.maps:
            raise TraceError(f"the script has no map {data.name}")
        key, value = self.maps[data.name]
        held_key = _held_types(f"the keys of map {data.name}", key, data.key)
        held_value = _held_types(f"the values of map {data.name}", value, data.value)
        assert held_value is not None
        return replace(
            data, key=held_key, value=held_value,
            help=self.helps.get(data.name, ""), key_names=self.key_names.get(data.name, ()),
        )  # fmt: skip

    def _table(self, table: Table) -> Table:
        if self.maps is None:
            return table
        expected = self.tables.get(table.number)
        if expected is None:
            raise TraceError(f"the script has no table {table.number}")
        type_ = _held_types(f"the columns of table {table.number}", expected, table.type)
        assert isinstance(type_, Record)
        return replace(table, type=type_)


def _held_type(expected: Type, given: Type) -> Type:
    """The type that values of type *given* have where *expected* was: width and sign of integers may be larger (kernels
    differ), all else is as expected.

    Raises:
        MismatchError: they are no such values.
    """
    return _held(expected, joined_types(expected, given))


def _held_types(subject: str, expected: Type | None, given: Type | None) -> Type | None:
    """The type that values of a host have in the answer.

    Raises:
        TraceError: the script does not have such values.
    """
    if expected is None and given is None:
        return None
    try:
        if expected is None or given is None:
            raise MismatchError
        return _held_type(expected, given)
    except MismatchError:
        found = shortened(described(given))
        raise TraceError(f"{subject} are {found}, those of the script {described(expected)}") from None


def _check_losses(losses: Mapping[str, Mapping[str, int]], hosts: int) -> None:
    if sum(1 + len(subjects) for subjects in losses.values()) > hosts * _MOST_LOSSES:
        raise TraceError(f"it sends more than {_MOST_LOSSES} kinds of losses")
    for kind, subjects in losses.items():
        texts = (kind, *subjects)
        if any(len(text) > _LONGEST_WORD for text in texts) or not all(0 <= n < 1 << 63 for n in subjects.values()):
            raise TraceError("it sends losses that are none")


# ---------------------------------------------------------------------------------------------- times


def aligned(snapshot: SnapshotData, offset: Offset) -> SnapshotData:
    """A snapshot of one host, or of those of a gateway, whose times are the controller's; runs say what was measured.

    Intervals of time series move as a whole, so they are right to half of their length.
    """
    by = offset.correction
    maps = {name: _aligned_map(data, by) for name, data in snapshot.maps.items()} if by else snapshot.maps
    return replace(snapshot, runs=tuple(_aligned_run(run, offset) for run in snapshot.runs), maps=maps)


def _moved(time: int, by: int) -> int:
    return min(max(time - by, 0), LATEST)


def _aligned_run(run: Run, offset: Offset) -> Run:
    by = offset.correction
    # Of a gateway: it has measured its hosts' clocks by its own.
    whole = offset if run.clock is None else Offset(*run.clock).after(offset)
    gaps = tuple((_moved(start, by), duration) for start, duration in run.gaps)
    return replace(
        run, start=_moved(run.start, by), end=_moved(run.end, by), gaps=gaps, clock=(whole.ahead, whole.error)
    )


def _aligned_map(data: MapData, by: int) -> MapData:
    times = None if data.times is None else {key: _moved(time, by) for key, time in data.times.items()}
    entries: Mapping[Portable, Value] = data.entries
    if isinstance(data.value, types.TSeries):
        # Values of this type are of this form.
        series = cast("Mapping[Portable, Series]", data.entries)
        entries = {key: _aligned_series(data.value, value, by) for key, value in series.items()}
    return replace(data, times=times, entries=entries)


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


def _aligned_series(type_: types.TSeries, value: Series, by: int) -> Series:
    """A time series with other numbers of its intervals."""
    intervals, latest = round(by / type_.interval), LATEST // type_.interval
    # Without a reduction, the time of the sample that was kept.
    kept = 0 if type_.reduce else by
    return {min(max(number - intervals, 0), latest): (one, _moved(meta, kept)) for number, (one, meta) in value.items()}
