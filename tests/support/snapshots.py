"""Snapshots for tests, made without a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from pytrace.core import types
from pytrace.core.types import Record, Type
from pytrace.results.snapshot import Frame, MapData, Run, SnapshotData, StackTrace, Table

SECOND = 1_000_000_000


def run(
    identity: str = "run-1", *, start: int = 100 * SECOND, end: int = 110 * SECOND, host: str = "here", **others: Any
) -> Run:
    """A run of a script; *others* are further members."""
    made = Run(identity, host, "6.1.0", "x86_64", "x.bt", "ab" * 32, (), start, end, 0, end - start, "0.1")
    return replace(made, **others)


def map_data(name: str, key: Type | None, value: Type, entries: Mapping[Any, Any]) -> MapData:
    """A map; the entry of one without keys has the key None."""
    return MapData(name, key, value, dict(entries))


def snapshot(*maps: MapData, of: Run | None = None, tables: tuple[Table, ...] = ()) -> SnapshotData:
    """What one run has."""
    return SnapshotData((of or run(),), {data.name: data for data in maps}, tables)


def stored(whole: SnapshotData) -> SnapshotData:
    """*whole* with entries that are not in memory, as far as those who go through them can tell."""
    maps = {name: replace(data, entries=MappingProxyType(data.entries)) for name, data in whole.maps.items()}
    return replace(whole, maps=maps)


def table(names: Sequence[str], members: Sequence[Type], rows: Sequence[tuple[Any, ...]], of: str = "run-1") -> Table:
    """Rows of one run."""
    return Table(Record(tuple(names), tuple(members)), {of: list(rows)})


def stack(*functions: str, user: bool = True, module: str = "/bin/program") -> StackTrace:
    """A stack of functions, the innermost first."""
    frames = tuple(Frame(name, 4, module, "", "", 0, False, 16 * at) for at, name in enumerate(functions))
    return StackTrace(frames, user)


STRING = types.String(16)
COUNT = types.Count()


def two_tasks(name: str = "@") -> MapData:
    """A map with the stacks of a thread that waited and of who woke it: 4 of the only ones."""
    kernel = types.Stack(False)
    entry = (stack("schedule", user=False), stack("main"), stack("wake_up", "softirq", user=False))
    return map_data(name, types.Tuple((kernel, types.Stack(True), kernel)), COUNT, {entry: 4})


TWO_TASKS = "main;schedule;--;wake_up;softirq"
"""Its stack from the root."""
