"""Portable values: what a snapshot holds of keys and values, without anything that only one machine could resolve.

=========================== ==========================================================
type                        portable form
=========================== ==========================================================
bool                        ``bool``
int, enum, pointer          ``int``
float                       ``float``; of NaN one object for each sign
string                      ``str``; bytes that are no UTF-8 as lone surrogates (``surrogateescape``)
buffer                      ``bytes``
array, tuple, record        ``tuple`` of members
struct, union               ``tuple`` of named members, anonymous ones flattened
stack                       :class:`StackTrace`
ksym, usym, username,       ``str``: what they print as
inet, mac, timestamp,
interface, network
namespace, cgroup path
count, sum                  ``int``
avg, stats                  ``(total, count)``
min, max                    ``int`` (a key without a value is left out)
hist, lhist                 ``dict`` of bucket number to count, buckets that are not empty
tseries                     ``dict`` of interval number (aligned to wall time, 0 starts in 1970) to ``(value, meta)``
=========================== ==========================================================

The types themselves (``pytrace.core.types``) stay beside the values and say how these print.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple, TypeAlias

import msgspec

from pytrace.core.costs import RunCost
from pytrace.core.types import TRUNCATED_NAME, Count, Record, Stack, Tuple, Type
from pytrace.core.value_tables import Column, key_columns, map_unit
from pytrace.render.text import map_title

GO_SCHEDULER = re.compile(
    r"runtime\.(?:schedule|find[Rr]unnable|stopm|mPark|sysmon|stoplockedm|startlockedm|templateThread)\b"
)
"""Functions in which threads of a Go program wait for a goroutine to run: whatever ran there before has nothing to do
with it."""


class Frame(NamedTuple):
    """One function of a stack.

    Two frames are the same place when all fields are equal, in whatever process or run they were seen.
    """

    function: str
    """Empty when unknown."""
    offset: int = 0
    """Bytes from the start of the function (of an inlined one: of the function that it was inlined into).

    Where the function is unknown, those from the start of the module as it was linked, 0 when that is unknown, too. In
    snapshots of agents whose controller names functions: the address by which that is done. It is one less than
    *address* where a call returns to, as the next function may begin there.
    """
    module: str = ""
    """Path of the binary, kernel module, or ``[kernel]``; empty when unknown."""
    build_id: str = ""
    """GNU build id of the module, in hex; empty when it has none."""
    file: str = ""
    """Source file; empty when unknown."""
    line: int = 0
    inlined: bool = False
    """The function was inlined into that of the next frame."""
    address: int = 0
    """Address in the module as it was linked (of the kernel as if it had not been moved).

    0 for functions that lie elsewhere each time (generated code, BPF programs). Of a place without a known module, and
    in stacks of mode ``raw``, the address itself; in stacks of mode ``build_id`` the position in the file.
    """

    @property
    def name(self) -> str:
        """The function, as output calls it."""
        return self.function


TRUNCATED_FRAME = Frame(TRUNCATED_NAME)
"""The frame after the last one of a truncated stack, in every mode."""


class StackTrace(NamedTuple):
    """A kernel or user stack."""

    frames: tuple[Frame, ...]
    """Innermost first."""
    user: bool = True
    error: str = ""
    """Why there is no stack; empty when there is one, and where a task has none (kernel threads have no user stack)."""


Portable: TypeAlias = "bool | int | float | str | bytes | StackTrace | tuple[Portable, ...] | None"
"""A key, or a value that is no aggregation; None is the key of a map without keys."""

Pair: TypeAlias = tuple[int, int]
"""An average or statistics: total and count."""

Counts: TypeAlias = dict[int, int]
"""A histogram: bucket numbers and counts."""

Series: TypeAlias = dict[int, tuple[int, int]]
"""A time series: interval numbers, and value and meta as :class:`pytrace.core.types.TSeries` describes them."""

Value: TypeAlias = "Portable | Counts | Series | tuple[Value, ...]"
"""A value of a map."""


# ---------------------------------------------------------------------------------------------- snapshot


WITHOUT_ANSWER = "hosts without an answer"
"""The kind of losses that counts these by state; of some there may be results."""


class Run(msgspec.Struct, frozen=True):
    """One run of a script, and how long it was watched. All times are nanoseconds."""

    identity: str
    """Unique for each run (a random UUID): two snapshots of one run are states of the same counts."""
    host: str
    kernel: str
    """Release, as ``uname -r`` prints it."""
    machine: str
    """Architecture, as ``uname -m`` prints it."""
    script: str
    """Name of the script; ``-e`` for a program of the command line."""
    script_hash: str
    """SHA-256 of the script's text, in hex."""
    parameters: tuple[str, ...]
    start: int
    """Wall time (nanoseconds since 1970) when probes were attached."""
    end: int
    """Wall time of the snapshot."""
    start_monotonic: int
    """``CLOCK_MONOTONIC`` of *start*."""
    end_monotonic: int
    version: str = ""
    """The version of pytrace."""
    gaps: tuple[tuple[int, int], ...] = ()
    """Times in which hits were skipped, as pytrace did not run (``--watchdog``): wall time and duration."""
    text: str = ""
    """The script; empty where it is not known (ahead-of-time files, snapshots of earlier versions)."""
    clock: tuple[int, int] | None = None
    """How far the host's wall clock was ahead of that of the controller of a fleet, and by how much that may be wrong;
    the times of the run are the controller's."""
    target: str = ""
    """What was traced, where the run was told: the command of ``-c``, ``PID (name)``; empty for all of the machine."""


class MapData(msgspec.Struct):
    """A map: its types, and its entries in no order."""

    name: str
    key: Type | None
    """None: a map without keys, whose one entry has the key None."""
    value: Type
    entries: Mapping[Portable, Value] = msgspec.field(default_factory=dict)
    times: Mapping[Portable, int] | None = None
    """Of plain values that came from several snapshots: the wall time of the snapshot that each came from. None: all
    from one, whose end it is."""
    help: str = ""
    """The comment above the first use of the map in the script."""
    mark: str = ""
    """``estimate`` if hits were left out and others counted for them, ``sample`` if values are of some hits only."""
    hidden: bool = False
    """The script's own: no statement prints the map, nor does the end of the run. Maps that the script empties before
    the end are known once the run is over."""
    label: str = ""
    """Of answers of many hosts: the name of the first member of keys, which is the host (``host``) or its label."""
    estimated: tuple[str, ...] = ()
    """The labels of hosts that left hits out, where it has a mark."""
    key_names: tuple[str, ...] = ()
    """What the script calls the members of its keys; empty where an expression has no name."""

    @property
    def title(self) -> str:
        """The name of the map, with its mark."""
        return map_title(self.name, self.mark)

    @property
    def unit(self) -> str:
        """The unit of its numbers (:func:`pytrace.core.value_tables.map_unit`); counts have none."""
        return "" if isinstance(self.value, Count) else map_unit(self.name)

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """The columns of its keys, by the names of the script; after that of a label they are those of one host."""
        key = self.key
        if not self.label or key is None:
            return key_columns(key, self.key_names)
        if not isinstance(key, Tuple):
            return (Column.of(self.label, key),)
        own = key_columns(key.members[1] if len(key.members) == FEWEST else Tuple(key.members[1:]), self.key_names)
        label = self.label
        while any(column.name == label for column in own):
            label += "_"
        return (Column.of(label, key.members[0]), *own)

    @property
    def slice_column(self) -> int | None:
        """The column of its keys that is the time of samples, in milliseconds since the run's start (``$slice_ms``)."""
        names, columns = self.key_names, self.key_columns
        if len(names) != len(columns) or names.count(SLICE) != 1:
            return None
        at = names.index(SLICE)
        return at if columns[at].number else None

    @property
    def key_titles(self) -> tuple[str, ...]:
        """What people call the columns of keys: as the script does where it gives them no names of a record."""
        columns, names = self.key_columns, self.key_names
        own = columns[1:] if self.label else columns
        if len(own) != len(names) or isinstance(self.key, Record):
            return tuple(column.name for column in columns)
        known: list[str] = []
        counts: dict[str, int] = {}
        for name, column in zip(names, own, strict=True):
            quoted = name.startswith('"')
            title = name[1:-1] if quoted else " ".join(_TITLES.get(word, word) for word in name.split(" "))
            if not title and isinstance(column.type, Stack):
                title = "user stack" if column.type.user else "kernel stack"
            title = title or column.name
            number = counts[title] = counts.get(title, 0) + 1
            known.append(f"{title} {number}" if number > 1 else title)
        return (columns[0].name, *known) if self.label else tuple(known)


SLICE = "slice_ms"
"""What a script calls the slice of time in which a sample was taken."""

_TITLES = {
    "comm": "command", "leader_comm": "process", "pcomm": "parent process",
    "pid": "PID", "tid": "TID", "ppid": "parent", "cpu": "CPU", "uid": "UID", "gid": "GID",
    "ustack": "user stack", "kstack": "kernel stack", "pystack": "Python stack",
}  # fmt: skip

FEWEST = 2
"""Members of a key that has a label."""


class Table(msgspec.Struct):
    """The rows of ``row()`` statements of one shape, in the order of their arrival."""

    type: Record
    """Names and types of the columns."""
    rows: Mapping[str, Collection[tuple[Portable, ...]]] = msgspec.field(default_factory=dict)
    """By the identity of the run."""
    dropped: int = 0
    """Older rows that were not kept."""
    number: int = 1
    """That of the table in its script, or the least of them where scripts that number it differently were merged."""


class Print(msgspec.Struct, frozen=True):
    """A map as ``print()`` or ``print_clear()`` printed it during the run."""

    map: str
    time: int
    """Wall time, in nanoseconds."""
    entries: Mapping[Portable, Value]
    cleared: bool
    """True if the map was emptied by it, or before the next print."""
    number: int = 1
    """1 for the first print of the map, also where that was not kept."""


class SnapshotData(msgspec.Struct):
    """The state of one run, or of several that were merged, at one moment."""

    runs: tuple[Run, ...]
    """Ordered by start and identity."""
    maps: dict[str, MapData] = msgspec.field(default_factory=dict)
    tables: tuple[Table, ...] = ()
    losses: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)
    """Kind of loss or failure, then the probe, map or place in the script that it concerns, and how often."""
    read: Mapping[str, int] = msgspec.field(default_factory=dict)
    """When reading of each map began, as wall time, where one run was still going on; not in files."""
    costs: Mapping[str, RunCost] = msgspec.field(default_factory=dict)
    """What runs have cost, by their identity; of runs that measured it."""
    prints: tuple[Print, ...] = ()
    """Of maps of histograms and numbers, in the order of their times, once the run is over. Merges have none."""

    @property
    def shown(self) -> dict[str, MapData]:
        """The maps that text output shows; all of them if that is none, and no rows either."""
        shown = {name: data for name, data in self.maps.items() if not data.hidden}
        return shown if shown or self.tables else self.maps

    @property
    def title(self) -> str:
        """Its name in messages that know no better one."""
        return " and ".join(f"{run.script} on {run.host}" for run in self.runs) or "an empty snapshot"

    @property
    def start(self) -> int:
        """Wall time of the first run's start, in nanoseconds."""
        return min((run.start for run in self.runs), default=0)

    @property
    def end(self) -> int:
        """Wall time of the last run's end, in nanoseconds."""
        return max((run.end for run in self.runs), default=0)
