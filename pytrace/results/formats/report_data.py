"""The data of a report: what the page's program reads, as columns of numbers and one table of texts.

Numbers that a double of JavaScript cannot hold are written as texts, so that none is rounded on the way.
"""

from __future__ import annotations

import base64
import gzip
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from operator import add
from time import gmtime, strftime
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypedDict

import msgspec
from msgspec.structs import replace

from pytrace.core import types
from pytrace.core.text import printable_utf8
from pytrace.core.types import truncated
from pytrace.core.value_tables import Column, TableSchema, key_columns, value_columns
from pytrace.render import csv, histogram
from pytrace.render.text import encoded
from pytrace.render.tseries import TimeSeries
from pytrace.render.value_kind import Change as KeyChange
from pytrace.render.values import value_kind_of
from pytrace.results.difference import MapDifference
from pytrace.results.findings import (
    BYTES,
    SECONDS,
    Listing,
    Stacks,
    changes,
    counted,
    histogram_lines,
    quantiles_text,
    readable,
    same_function,
)
from pytrace.results.merge import common_type
from pytrace.results.row_events import RowEvent, lanes, row_events
from pytrace.results.snapshot import Frame, MapData, Pair, Portable, Run, SnapshotData, Table, Value
from pytrace.results.stack_samples import MARK, Text, measures, numbers, unlike

if TYPE_CHECKING:
    from pytrace.results.formats.portable_forms import Printers


_EXACT = 1 << 53
"""Integers up to this one are doubles."""


class Texts:
    """The texts of a report, each once; parts refer to them by number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        """The number of a text."""
        return self._numbers.setdefault(text, len(self._numbers))

    def all(self) -> list[str]:
        """The texts by their number."""
        return list(self._numbers)


class Document(msgspec.Struct, frozen=True):
    """A report in the making."""

    runs: tuple[Run, ...] = ()
    """Whose results it shows; the last of several in time."""
    texts: Texts = msgspec.field(default_factory=Texts)
    frames: dict[tuple[int, int, int], int] = msgspec.field(default_factory=dict)
    """Functions of all flame graphs: name, module (texts) and kind, with their numbers."""
    alike: dict[tuple[str, str, int], int] = msgspec.field(default_factory=dict)
    """Of runs that are compared: name, module without folder and version, and kind of functions, with their number."""
    places: dict[tuple[int, int], int] = msgspec.field(default_factory=dict)
    """Source lines: file (a text) and line, with their numbers."""
    parts: list[AnyPart] = msgspec.field(default_factory=list)
    stacks: list[Stacks] = msgspec.field(default_factory=list)
    """Those of the flame graphs."""
    answers: dict[int, list[str]] = msgspec.field(default_factory=dict)
    """Of parts with a picture, by their names (texts), what it says in words: for browsers that run no script."""

    def text(self, text: str) -> int:
        """The number of a text of a traced program, whose control characters and bytes are escapes."""
        return self.texts.number(shown(text))

    def packed(self) -> str:
        """All of it, compressed, as text that means nothing in HTML."""
        tool = bool(self.runs) and all(run.script != "-e" for run in self.runs)
        data = Contents(self.texts.all(), columns(self.frames, 3), columns(self.places, 2), self.parts, tool)
        # Reports of one snapshot are equal, so the time of their making is left out.
        return base64.b64encode(gzip.compress(msgspec.json.encode(data), 6, mtime=0)).decode()


def shown(text: str) -> str:
    """A text of a traced program: bytes that are no UTF-8, and control characters, as escapes."""
    return printable_utf8(encoded(text)).decode()


def exact(number: int) -> int | str:
    """An integer, as text where a double would round it."""
    return number if -_EXACT <= number <= _EXACT else str(number)


def exacts(numbers: Iterable[int]) -> list[int | str]:
    """As :func:`exact`, of several."""
    return [number if -_EXACT <= number <= _EXACT else str(number) for number in numbers]


def columns(rows: Iterable[tuple[int, ...]], width: int) -> list[list[int]]:
    """Rows as columns, of which there are *width* even without rows."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    return columns or [[] for _ in range(width)]


# ---------------------------------------------------------------------------------------------- parts


Cell: TypeAlias = int | str
"""A number, as text if a double does not hold it; of texts their number."""
PartColumn: TypeAlias = tuple[int, str, int, int]
"""Of a table: its name (a text), the unit, 1 for numbers or 0 for texts, and what people call it (a text)."""
Bucket: TypeAlias = tuple[Cell | None, Cell | None, str]
"""Least and greatest value, None at an open end; and the label."""
Counts: TypeAlias = tuple[list[int], list[Cell]]
"""Numbers of the buckets that are not empty, and their counts."""
Line: TypeAlias = tuple[list[float], list[Cell | None]]
"""Times in seconds, and values; None where there is none."""


class Part(msgspec.Struct, tag_field="kind", kw_only=True):
    """A picture or table of one map, or a table of rows."""

    name: int
    """The title, a text."""
    help: int
    """The comment of the map in the script, a text."""
    note: str = ""
    """A remark below the title."""


class FlamePart(Part, tag="flame"):
    """A flame graph: a trie of frames, and a sample for each key; samples are columns."""

    measures: list[tuple[str, str]]
    """Names and units of the numbers of a sample."""
    labels: list[int]
    """Members of the key that are no stacks: their names, texts."""
    groups: list[list[int]]
    """Different values of these members, texts."""
    nodes: list[list[int]]
    """Of the nodes of the trie, parents first: depth, frame and source line (-1: none)."""
    node: list[int]
    """Of each sample the innermost node."""
    group: list[int]
    values: list[list[Cell]]
    """For each measure the numbers of the samples."""
    before: list[list[Cell]] | None = None
    """Those of the snapshot that is compared with."""
    counts: str = ""
    """What is counted, where a measure has no unit: ``samples``."""
    what: str = ""
    """What the time or the bytes of the whole are: ``on CPU``, ``allocated``."""
    period: float = 0.0
    """Seconds that one of them stands for; 0: they are no time."""
    slices: list[int] | None = None
    """Of each sample the number of the slice of time in which it was taken; None: times are not known."""
    slice: float = 0.0
    """Seconds of a slice."""
    start: float = 0.0
    """When the first slice begins, in seconds since 1970."""
    lost: list[int] = []
    """Of each slice the samples that found no room, up to the last that lost one."""
    lists: list[ListPart] = []
    """The answer; of a comparison the first one is compared."""
    callers: tuple[str, list[int]] = ("", [])
    """The title of one more list, and the functions that it may name with all that they call."""
    gathered: Gathered | None = None
    """Of very many stacks those whose innermost calls are too narrow to be drawn; None: there are none."""


class Gathered(msgspec.Struct, frozen=True):
    """Stacks with calls that are not in the trie. Their samples are sums, each of which is there twice: with the calls
    that are in the trie, as the callers of :data:`RARE`; and with the innermost function, which it calls.
    """

    sides: list[int]
    """Of each sample 0: it is a stack; 1: the callers of such; 2: their innermost function; 3: as 2, of a function that
    is among the callers of the same stacks, too.
    """
    frames: list[int]
    """Functions that are neither, in some of the stacks."""
    values: list[list[Cell]]
    """For each measure the numbers of these stacks."""
    before: list[list[Cell]] | None


RARE = Frame("[calls too rare to be drawn]")


class ListPart(msgspec.Struct, frozen=True):
    """A list of the answer above a flame graph: who has most."""

    title: str
    rows: list[tuple[int, int]]
    """Their names (texts), and the functions that stand for them."""
    of: list[int]
    """Of each sample the row that it counts for; -1: none."""


class TablePart(Part, tag="table"):
    """A table."""

    columns: list[PartColumn]
    rows: list[list[Cell]]
    sort: int
    """The column by which it is sorted at first, the largest number first; -1: none."""
    boot: float = 0.0
    """When the machine booted, in seconds since 1970: for columns of the unit :data:`BOOT`."""


class KeyedPart(Part):
    """Pictures of the values of each key."""

    unit: str
    columns: list[PartColumn]
    """Of keys; none for a map without keys."""
    keys: list[list[Cell]]


class HistogramPart(KeyedPart, tag="histogram"):
    """Histograms."""

    buckets: list[Bucket]
    counts: list[Counts]
    before: list[Counts] | None = None
    """Those of the snapshot that is compared with."""
    by: int = -1
    """The column of hosts, or of their labels, by which keys are added up at first; -1: each key."""


class LinesPart(KeyedPart, tag="lines"):
    """Lines in time."""

    lines: list[Line]
    interval: float = 0.0
    """Seconds that a point stands for; 0: it is of one moment, or of no fixed interval."""
    of: str = ""
    """The value of a point: ``sum``, ``largest value``."""
    before: list[Line] | None = None
    """Those of the snapshot that is compared with."""


class HeatPart(KeyedPart, tag="heat"):
    """Histograms over time."""

    buckets: list[Bucket]
    steps: list[list[Counts]]
    """Of each key what each interval added."""
    starts: list[float]
    """Of the intervals, in seconds since 1970."""
    times: list[float]
    """Their ends."""


class SpansPart(Part, tag="spans"):
    """Spans in time by thread; spans are columns, in order of their start."""

    begin: float
    """When the first one began, in seconds since 1970."""
    tracks: list[tuple[int, int]]
    """Threads: title (a text), and number of levels."""
    track: list[int]
    level: list[int]
    start: list[int]
    """Nanoseconds after *begin*."""
    took: list[Cell]
    """Nanoseconds."""
    label: list[int]
    """Names, texts."""
    columns: list[int]
    """Names of what else is known, texts."""
    details: list[list[int]]
    """Of each column, texts."""


AnyPart: TypeAlias = FlamePart | TablePart | HistogramPart | LinesPart | HeatPart | SpansPart


class Contents(msgspec.Struct, frozen=True):
    """All that the viewer shows."""

    texts: list[str]
    frames: list[list[int]]
    """Columns of the functions: name and module (texts), and kind (:mod:`pytrace.results.stack_samples`)."""
    places: list[list[int]]
    """Columns of source lines: file (a text) and line."""
    parts: list[AnyPart]
    tool: bool = False
    """It is of a tool, whose question is the title."""


# ---------------------------------------------------------------------------------------------- states


class State(NamedTuple):
    """A map at one moment. Times are wall times, in nanoseconds."""

    start: int
    """Of the interval that ends with this state."""
    end: int
    data: MapData
    fresh: bool
    """True if nothing of the state before is in this one: another run, or the map was emptied."""


def of_snapshots(name: str, snapshots: Sequence[SnapshotData]) -> list[State]:
    """A map in each snapshot that has it, with the types that all have in common.

    Raises:
        TraceError: they have none.
    """
    versions = [(snapshot, at_end(name, snapshot)) for snapshot in snapshots if name in snapshot.maps]
    key, value = versions[0][1].key, versions[0][1].value
    for snapshot, data in versions[1:]:
        names = (snapshots[0].title, snapshot.title)
        value = common_type(f"map {name}: values", "shown together", (value, data.value), names)
        if key is not None or data.key is not None:
            key = common_type(f"map {name}: keys", "shown together", (key, data.key), names)
    states = []
    earlier: SnapshotData | None = None
    for snapshot, data in versions:
        known = earlier is not None and _identities(earlier) == _identities(snapshot)
        start = earlier.end if earlier is not None and known else snapshot.start
        states.append(State(start, snapshot.end, replace(data, key=key, value=value), not known))
        earlier = snapshot
    return states


def _identities(snapshot: SnapshotData) -> set[str]:
    return {run.identity for run in snapshot.runs}


def of_prints(name: str, snapshot: SnapshotData) -> list[State]:
    """A map as the script printed it during the run, if it did so more than once, and as it was at the end.

    Where older prints were not kept, the first one that was is not fresh.
    """
    prints = [item for item in snapshot.prints if item.map == name]
    if sum(item.time < snapshot.end for item in prints) < _SEVERAL:
        return []
    data = snapshot.maps[name]
    states, start, fresh = [], snapshot.start, prints[0].number == 1
    for item in prints:
        states.append(State(start, item.time, replace(data, entries=item.entries), fresh))
        start, fresh = item.time, item.cleared
    if data.entries and (fresh or data.entries != prints[-1].entries):
        # A print that ended the run is printed after its end.
        states.append(State(start, max(snapshot.end, start + _INSTANT), data, fresh))
    return states


_SEVERAL = 2
_INSTANT = 1_000_000
"""Nanoseconds: no interval is shorter."""


def at_end(name: str, snapshot: SnapshotData) -> MapData:
    """A map at the end of the run; one that the last print emptied, as it was printed."""
    data = snapshot.maps[name]
    prints = [item for item in snapshot.prints if item.map == name]
    return data if data.entries or not prints else replace(data, entries=prints[-1].entries)


# ---------------------------------------------------------------------------------------------- intervals

Change: TypeAlias = "Callable[[Value | None, Value | None], Value | None]"
"""From the values before and after an interval to that of the interval."""


def steps_of(states: Sequence[State], key: Portable, change: Change) -> list[Value | None]:
    """The change of a key's value since the state before; since nothing where the state is fresh.

    A first state that is not fresh is only what the next one is compared with.
    """
    changes = [change(None, states[0].data.entries.get(key)) if states[0].fresh else None]
    for before, after in pairwise(states):
        was = None if after.fresh else before.data.entries.get(key)
        changes.append(change(was, after.data.entries.get(key)))
    return changes


def number_added(was: Value | None, now: Value | None) -> Value | None:
    """The increase; a number that decreased was reset to 0 between."""
    if now is None:
        return None
    if isinstance(now, tuple):
        (total, count), (old_total, old_count) = pair(now), pair(was)
        # A count that became less was set back to 0 between.
        return now if count < old_count else (total - old_total, count - old_count)
    assert isinstance(now, int)
    old = was if isinstance(was, int) else 0
    return now - old if was is None or now >= old else now


def buckets_added(was: Value | None, now: Value | None) -> Value | None:
    """What a histogram counted since; one that has less than before was emptied between."""
    new: Mapping[int, object] = now if isinstance(now, dict) else {}
    old: Mapping[int, object] = was if isinstance(was, dict) else {}
    counts = {number: _whole(new.get(number)) - _whole(old.get(number)) for number in sorted({*new, *old})}
    if any(count < 0 for count in counts.values()):
        return {number: _whole(count) for number, count in new.items()}
    return {number: count for number, count in counts.items() if count}


def _whole(count: object) -> int:
    return count if isinstance(count, int) else 0


def pair(value: Value | None) -> Pair:
    """The total and count of an average or of statistics."""
    if not isinstance(value, tuple):
        return 0, 0
    total, count = value
    assert isinstance(total, int)
    assert isinstance(count, int)
    return total, count


def is_number(type_: types.Type) -> bool:
    """True for values that are numbers, or totals and counts."""
    return isinstance(type_, types.Int | types.Count | types.Sum | types.Avg | types.Stats | types.Min | types.Max)


def shown_names(snapshots: Sequence[SnapshotData]) -> list[str]:
    """The maps that a series in time shows: those with entries that the last snapshot of a run does not hide."""
    last = {tuple(run.identity for run in snapshot.runs): snapshot for snapshot in snapshots}
    hidden = [{name for name, data in snapshot.maps.items() if data.hidden} for snapshot in last.values()]
    names = sorted({name for snapshot in snapshots for name, data in snapshot.maps.items() if data.entries})
    shown = [name for name in names if not all(name in one for one in hidden)]
    return shown if shown or any(snapshot.tables for snapshot in last.values()) else names


# ---------------------------------------------------------------------------------------------- flame data


def flame_part(
    document: Document,
    after: MapData,
    before: MapData | None,
    text: Callable[[types.Type], Text],
    taken: Mapping[int, int] | None = None,
) -> FlamePart:
    """The flame graph of a map; with *before* a differential one.

    *taken* are the samples of each slice of time (:attr:`MapData.slice_column`), with those that found no room.
    """
    stacks = Stacks(after, document.runs[-1] if document.runs else None, before)
    document.stacks.append(stacks)
    document.answers[document.text(after.title)] = stacks.lines() if before is None else changes(stacks)
    at = after.slice_column
    groups = _Groups(document, after, text, at)
    values, olds = numbers(after.value), numbers(before.value if before is not None else after.value)
    old_entries: Mapping[Portable, Value] = before.entries if before is not None else {}
    nothing = (0,) * len(measures(after))
    listings = stacks.listings
    trie = _Trie(document, stacks, compared=before is not None)
    entries = []
    for number, (entry, members) in enumerate(zip(stacks.keys, stacks.members, strict=True)):
        now, was = after.entries.get(entry), old_entries.get(entry)
        time = members[at] if at is not None else 0
        assert isinstance(time, int)
        sides = nothing if now is None else values(now), nothing if was is None else olds(was)
        owners = tuple([listing.of[number] for listing in listings])
        entries.append(_Row(trie.call(number), groups.number(members), *sides, time, owners, number))
    rows, gathered = trie.gather(entries) if trie.gathers else (entries, None)
    rows.sort(key=lambda row: (row.node, row.group, row.time))
    labels = groups.labels(
        {row.group for row in rows if any(row.was)}, {row.group for row in rows if any(row.now)}
    )
    over_time = _Slices()
    if at is not None and before is None and document.runs:
        samples = [(row.time, row.now[-1] if row.side < INNERMOST else 0) for row in rows]
        over_time = _slices(samples, taken or {}, document.runs[-1].start)
    counts, period = counted(document.runs[-1]) if document.runs and isinstance(after.value, types.Count) else ("", 0.0)
    title, found = stacks.callers

    def listed(number: int, listing: Listing) -> ListPart:
        owners = [(document.text(owner.label), trie.frames[owner.item]) for owner in listing.owners]
        return ListPart(listing.title, owners, [row.owners[number] for row in rows])

    return FlamePart(
        name=document.text(after.title), help=document.text(after.help), note=_note(after, labels.note, _rare(rows)),
        measures=[(part, unit) for part, unit in measures(after)],
        labels=labels.names, groups=labels.groups, nodes=trie.nodes,
        node=[row.node for row in rows],
        group=[labels.numbers[row.group] for row in rows],
        values=[exacts(column) for column in columns([row.now for row in rows], len(nothing))],
        before=None if before is None else [
            exacts(column) for column in columns([row.was for row in rows], len(nothing))
        ],
        slices=over_time.numbers, slice=over_time.width, start=over_time.start, lost=over_time.lost,
        counts=counts, period=period, what=stacks.what,
        lists=[listed(*one) for one in enumerate(listings)], callers=(title, [trie.frames[one] for one in found]),
        gathered=gathered,
    )  # fmt: skip


class _Row(NamedTuple):
    """A sample."""

    node: int
    group: int
    now: tuple[int, ...]
    was: tuple[int, ...]
    time: int
    owners: tuple[int, ...]
    """Of each listing the row."""
    number: int = -1
    """That of its entry."""
    side: int = 0
    """As in :class:`Gathered`."""


CALLERS, INNERMOST, REPEATED = 1, 2, 3
"""Sides of samples that are gathered."""


MOST_SLICES = 10_000
"""Of more slices of time neighbours are one."""


class _Slices(NamedTuple):
    """The members of a flame graph over time (:class:`FlamePart`)."""

    numbers: list[int] | None = None
    width: float = 0.0
    start: float = 0.0
    lost: list[int] = []


def _slices(samples: Sequence[tuple[int, int]], taken: Mapping[int, int], start: int) -> _Slices:
    """From the times of samples, in milliseconds since the run's start, with their numbers; *taken* as a whole.

    A slice is as wide as the least distance of two times.
    """
    times = sorted({*(time for time, _ in samples), *taken})
    if not times or times[0] < 0:
        return _Slices()
    width = max(min((after - before for before, after in pairwise(times)), default=1000), times[-1] // MOST_SLICES, 1)
    kept: dict[int, int] = {}
    for time, number in samples:
        kept[time // width] = kept.get(time // width, 0) + number
    lost: dict[int, int] = {}
    for time, number in taken.items():
        lost[time // width] = lost.get(time // width, 0) + number
    missing = {at: number - kept.get(at, 0) for at, number in lost.items() if number > kept.get(at, 0)}
    column = [missing.get(at, 0) for at in range(max(missing, default=-1) + 1)]
    return _Slices([time // width for time, _ in samples], width / 1e3, start / 1e9, column)


def _rare(rows: Sequence[_Row]) -> str:
    """A sentence on stacks that were gathered."""
    numbers = [sum(row.now[-1] + row.was[-1] for row in rows if row.side in sides) for sides in ((0, 1), (1,))]
    if not numbers[1]:
        return ""
    share = f"{100 * numbers[1] / numbers[0]:.2g} %"
    return f"Very many stacks: {share} is in calls too rare to be drawn, which lists and tables count all the same."


def _note(data: MapData, *sentences: str) -> str:
    extreme = value_kind_of(data.value).extreme() is not None
    values = "Values of min() and max() are shown as they are: the sums of several mean nothing." if extreme else ""
    return " ".join(filter(None, (*sentences, values)))


# ---------------------------------------------------------------------------------------------- tries


class _Trie:
    """The calls of stacks as the viewer reads them: depth, frame and place of each. *frames* are the numbers of the
    items of stacks in the document.

    *compared*: functions of one name in files of one name are the same one.
    """

    def __init__(self, document: Document, stacks: Stacks, *, compared: bool) -> None:
        self._document, self._stacks, tree = document, stacks, stacks.tree
        self.frames, self._places = list[int](), list[int]()
        for item in stacks.items:
            row = (document.text(item.name), document.text(item.module), item.kind)
            if compared:
                like = (*same_function(Frame(item.name, 0, item.module)), item.kind)
                number = document.alike.get(like)
                if number is None:
                    number = document.alike[like] = document.frames.setdefault(row, len(document.frames))
                self.frames.append(number)
            else:
                self.frames.append(document.frames.setdefault(row, len(document.frames)))
            place = (document.text(item.file), item.line)
            self._places.append(document.places.setdefault(place, len(document.places)) if item.file else -1)
        self.gathers = not all(tree.whole)
        self._calls, self._rare = list(range(len(tree.items))), dict[int, int]()
        if self.gathers:
            self._add_rare()
        else:
            items = tree.items
            self.nodes = [tree.depths, [self.frames[item] for item in items], [self._places[item] for item in items]]

    def _add_rare(self) -> None:
        """A node for what is not in the tree below each call that has such, and one at the root."""
        tree, frames, places = self._stacks.tree, self.frames, self._places
        document = self._document
        depths, shown, at = list[int](), list[int](), list[int]()
        rare = document.frames.setdefault((document.text(RARE.function), document.text(""), MARK), len(document.frames))
        has = {call for call, whole in zip(tree.innermost, tree.whole, strict=True) if not whole}
        path: list[int] = []

        def add(depth: int, frame: int, place: int) -> int:
            depths.append(depth)
            shown.append(frame)
            at.append(place)
            return len(depths) - 1

        def leave(depth: int) -> None:
            while len(path) > depth:
                call = path.pop()
                if call in has:
                    self._rare[call] = add(tree.depths[call] + 1, rare, -1)

        for call, (depth, item) in enumerate(zip(tree.depths, tree.items, strict=True)):
            if len(path) > depth:
                leave(depth)
            self._calls[call] = add(depth, frames[item], places[item])
            path.append(call)
        leave(0)
        self._rare[-1] = add(0, rare, -1)
        self.nodes = [depths, shown, at]

    def call(self, entry: int) -> int:
        """The node of an entry's innermost call that is in the tree, or of what is not in it below that."""
        call = self._stacks.tree.innermost[entry]
        return self._calls[call] if self._stacks.tree.whole[entry] else self._rare[call]

    def gather(self, entries: Sequence[_Row]) -> tuple[list[_Row], Gathered]:
        """Sums of the entries with calls that are not in the tree, beside the other entries."""
        stacks, function = self._stacks, dict(enumerate(self._stacks.functions))
        rows = list[_Row]()
        sums: dict[tuple[int, int, int, int, tuple[int, ...]], _Amounts] = {}
        between: dict[int, _Amounts] = {}
        equal: dict[_Amounts, Counter[str]] = {}
        """Functions of rows with the same numbers, which are few different ones in samples."""
        leaves: dict[int, int] = {}
        none = (-1,) * len(entries[0].owners)
        for row in entries:
            if stacks.tree.whole[row.number]:
                rows.append(row)
                continue
            path = stacks.paths[row.number].translate(function)
            drawn, last = self.nodes[0][row.node], path[-1]
            item = ord(stacks.paths[row.number][-1])
            leaf = leaves.setdefault(item, len(self.nodes[0]) + len(leaves))
            callers = path[:drawn]
            side = REPEATED if last in callers else INNERMOST
            for key in (CALLERS, row.node, row.group, row.time, none), (side, leaf, row.group, row.time, row.owners):
                known = sums.get(key)
                sums[key] = (row.now, row.was) if known is None else _sum(known, (row.now, row.was))
            functions = {*path[drawn:-1]}.difference(callers, last)
            amounts = row.now, row.was
            if len(equal) < _MOST_EQUAL or amounts in equal:
                equal.setdefault(amounts, Counter()).update(functions)
                continue
            for one in sorted(functions):
                number = self.frames[ord(one)]
                known = between.get(number)
                between[number] = amounts if known is None else _sum(known, amounts)
        for (now, was), counter in equal.items():
            for one, times in sorted(counter.items()):
                number = self.frames[ord(one)]
                amounts = tuple([times * value for value in now]), tuple([times * value for value in was])
                known = between.get(number)
                between[number] = amounts if known is None else _sum(known, amounts)
        self.nodes[0] += [1] * len(leaves)
        self.nodes[1] += [self.frames[item] for item in leaves]
        self.nodes[2] += [self._places[item] for item in leaves]
        for (side, node, group, time, owners), (now, was) in sums.items():
            rows.append(_Row(node, group, now, was, time, owners, side=side))
        rows.sort(key=lambda row: (row.node, row.group, row.time))
        count = len(entries[0].now)
        compared = any(stacks.olds)
        return rows, Gathered(
            [row.side for row in rows], list(between),
            [exacts(column) for column in columns([now for now, _ in between.values()], count)],
            [exacts(column) for column in columns([was for _, was in between.values()], count)] if compared else None,
        )  # fmt: skip


_MOST_EQUAL = 256
"""Different numbers of rows for which functions are counted together."""

_Amounts = tuple[tuple[int, ...], tuple[int, ...]]


def _sum(known: _Amounts, other: _Amounts) -> _Amounts:
    return tuple(map(add, known[0], other[0])), tuple(map(add, known[1], other[1]))


class _Groups:
    """Different values of the members of keys that are no stacks."""

    def __init__(
        self, document: Document, data: MapData, text: Callable[[types.Type], Text], left_out: int | None
    ) -> None:
        self._document = document
        columns = data.key_columns
        self._no_labels = [isinstance(column.type, types.Stack) or at == left_out for at, column in enumerate(columns)]
        self._labels = [
            (title, text(column.type))
            for title, column, no_label in zip(data.key_titles, columns, self._no_labels, strict=True)
            if not no_label
        ]
        self._shown = [number for number, no_label in enumerate(self._no_labels) if not no_label]
        self._groups: dict[tuple[int, ...], int] = {}
        self._known: dict[tuple[Portable, ...], int] = {}

    def number(self, members: Sequence[Portable]) -> int:
        """The group of a key."""
        shown = tuple([members[number] for number in self._shown])
        known = self._known.get(shown)
        if known is None:
            group = tuple(
                self._document.text(form(item).decode("utf-8", "surrogateescape"))
                for (_, form), item in zip(self._labels, shown, strict=True)
            )
            known = self._known[shown] = self._groups.setdefault(group, len(self._groups))
        return known

    def labels(self, before: set[int], after: set[int]) -> _Labels:
        """The labels that are shown; *before* and *after* are the groups of two snapshots that are compared.

        Left out are those that are the same in all keys, as the ``"waker"`` of ``@["waker", comm, kstack]``, where
        others differ; and those by which nothing could be compared (:func:`unlike`).
        """
        names, groups = [name for name, _ in self._labels], list(self._groups)
        same = [len(groups) > 1 and len(set(column)) == 1 for column in zip(*groups, strict=True)]
        other = unlike([groups[number] for number in sorted(before)], [groups[number] for number in sorted(after)])
        kept = [index for index, one in enumerate(same) if not one and index not in other]
        texts = self._document.texts.all() if any(same) else []
        # Words between the members, which no name of the script stands for, say nothing about the run.
        fixed = ", ".join(
            f"{name} = {texts[groups[0][index]]}"
            for index, name in enumerate(names)
            if same[index] and not _NUMBERED.fullmatch(name)
        )
        sentences = [f"In all keys: {fixed}."] if fixed else []
        sentences += [f"Left out, as before and after have no {names[index]} in common." for index in sorted(other)]
        shown = [tuple([group[index] for index in kept]) for group in groups]
        places = {group: number for number, group in enumerate(dict.fromkeys(shown))}
        return _Labels(
            [self._document.text(names[index]) for index in kept], [list(group) for group in places],
            [places[group] for group in shown], " ".join(sentences),
        )  # fmt: skip


_NUMBERED = re.compile(r"key\d+")
"""A member of a key without a name."""


class _Labels(NamedTuple):
    """Labels of a graph: their names, the groups as texts of these, the new number of each group, and a note."""

    names: list[int]
    groups: list[list[int]]
    numbers: list[int]
    note: str


# ---------------------------------------------------------------------------------------------- tables data


class Cells:
    """Keys and rows as cells of columns."""

    def __init__(
        self,
        document: Document,
        printers: Printers,
        columns: Sequence[Column],
        type_: types.Type | None,
        titles: Sequence[str] = (),
    ) -> None:
        self._document = document
        self._numeric = [column.right for column in columns]
        self.columns: list[PartColumn] = [
            (document.text(column.name), column.unit, int(column.right), document.text(title))
            for column, title in zip(columns, titles or [column.name for column in columns], strict=True)
        ]
        self._texts = None if type_ is None else printers.portable(type_, csv.texts(printers.texts, type_))

    def of(self, value: Value) -> list[Cell]:
        """The cells of a value."""
        if self._texts is None:
            return []
        texts = self._texts(value)
        return [self._cell(text, numeric) for text, numeric in zip(texts, self._numeric, strict=True)]

    def _cell(self, text: bytes, numeric: bool) -> Cell:
        if numeric:
            digits = text.decode()
            return exact(int(digits)) if digits.lstrip("-").isdecimal() else digits
        return self._document.text(text.decode("utf-8", "surrogateescape"))


_UNIT = re.compile(r"(.+)\((ns|us|ms|bytes|KB|MB)\)")
"""A heading in quotes that ends with its unit. Seconds are times of events there, which stay as they are."""


BOOT = "boot"
"""The unit of times that a script took by ``nsecs``, nanoseconds since boot, or that are since 1970."""
_TIMES = ("ts", "ts_ns", "nsecs", "timestamp", "start", "start_ns", "end", "end_ns")
"""Names that scripts give these."""
_SECOND = 1_000_000_000


def _times(
    columns: Sequence[Column], rows: Sequence[tuple[Portable, ...]], runs: Sequence[Run]
) -> tuple[list[int], float]:
    """The columns that are times, and since when, in seconds since 1970: by their names, and as all of them lie in the
    time of the one run.

    Times since boot of a machine that was suspended do not, as the clock of runs stood still then.
    """
    if len(runs) != 1 or not rows or any(len(row) != len(columns) for row in rows):
        return [], 0.0
    (run,) = runs

    def between(value: Portable, first: int, last: int) -> bool:
        return isinstance(value, int) and first - _SECOND <= value <= last + _SECOND

    named = [at for at, column in enumerate(columns) if column.name in _TIMES and column.number]
    zero = (run.start - run.start_monotonic) / 1e9
    for first, last, since in ((run.start_monotonic, run.end_monotonic, zero), (run.start, run.end, 0.0)):
        times = [at for at in named if all(between(row[at], first, last) for row in rows)]
        if times:
            return times, since
    return [], 0.0


def rows_part(
    document: Document, printers: Printers, table: Table, rows: Iterable[tuple[Portable, ...]], name: str
) -> TablePart:
    """The rows of ``row()`` statements of one shape."""
    shape = [
        replace(column, unit=found[2]) if (found := _UNIT.fullmatch(column.quoted and column.name)) else column
        for column in TableSchema.of(("",), (table.type,)).columns
    ]
    titles = [column.title.removesuffix(f"({column.unit})") for column in shape]
    cells = Cells(document, printers, shape, table.type, titles)
    rows = list(rows)
    cells_of_rows = [cells.of(row) for row in rows]
    times, boot = _times(shape, rows, document.runs)
    for at in times:
        number, _, right, title = cells.columns[at]
        cells.columns[at] = (number, BOOT, right, title)
    note = f"{table.dropped} older rows were not kept." if table.dropped else ""
    return TablePart(
        name=document.text(name), help=document.text(""), note=note,
        columns=cells.columns, rows=cells_of_rows, sort=-1, boot=boot,
    )  # fmt: skip


MOST_TRACKS = 200
"""Threads that are drawn, those with most spans."""
_KNOWN = frozenset({"start", "took_ns", "name", "depth"})
"""Columns of ``span()`` and of ``pytrace calls`` that the picture itself shows."""


def spans_part(document: Document, snapshot: SnapshotData, table: Table, name: str) -> SpansPart:
    """The rows of a table (:func:`has_spans`) in time, by thread."""
    events = [event for event in row_events(snapshot, table) if event.duration is not None]
    several = len({snapshot.runs[event.run].host for event in events}) > 1
    threads: dict[tuple[object, ...], list[RowEvent]] = {}
    for event in events:
        number = (event.pid, event.tid)
        threads.setdefault((event.run, *(number if any(number) else (event.comm,))), []).append(event)
    chosen = sorted(threads.values(), key=len, reverse=True)[:MOST_TRACKS]
    columns = [column for column, _ in events[0].arguments if column not in _KNOWN] if events else []
    begin = min((event.start for event in events), default=0)
    tracks: list[tuple[int, int]] = []
    rows: list[tuple[int, int, RowEvent]] = []
    for of_thread in sorted(chosen, key=lambda events: min(event.start for event in events)):
        levels = 0
        for lane in lanes(of_thread):
            below, ends = levels, list[int]()
            for event in lane:
                while ends and ends[-1] <= event.start:
                    ends.pop()
                rows.append((len(tracks), below + len(ends), event))
                levels = max(levels, below + len(ends) + 1)
                ends.append(event.end)
        # The newest name: a process executes another program.
        last = max(of_thread, key=lambda event: (bool(event.comm), event.start))
        host = f" on {snapshot.runs[last.run].host}" if several else ""
        tracks.append((document.text(f"{_thread_title(last)}{host}"), levels))
    rows.sort(key=lambda row: row[2].start)
    details = [dict(event.arguments) for _, _, event in rows]
    notes = [f"{len(threads) - MOST_TRACKS} threads with fewer are not drawn."] if len(threads) > MOST_TRACKS else []
    return SpansPart(
        name=document.text(name), help=document.text(""), note=" ".join(notes), begin=begin / 1e9, tracks=tracks,
        track=[track for track, _, _ in rows], level=[level for _, level, _ in rows],
        start=[event.start - begin for _, _, event in rows], took=exacts(event.duration or 0 for _, _, event in rows),
        label=[document.text(event.name) for _, _, event in rows],
        columns=[document.text(column) for column in columns],
        details=[[document.text(str(known.get(column, ""))) for known in details] for column in columns],
    )  # fmt: skip


def _thread_title(event: RowEvent) -> str:
    number = event.pid if event.tid in (None, event.pid) else event.tid
    of = f" of {event.pid}" if event.pid not in (None, number) else ""
    return f"{event.comm} {'' if number is None else number}{of}".strip() or "rows"


def map_part(document: Document, printers: Printers, data: MapData) -> TablePart:
    """A map of numbers or other values, as it prints in CSV."""
    keys = data.key_columns
    key = Cells(document, printers, keys, data.key, data.key_titles)
    value = Cells(document, printers, value_columns(data.title, data.value), data.value)
    members = _stats_cells if isinstance(data.value, types.Stats) else value.of
    rows = [[*key.of(name), *members(item)] for name, item in data.entries.items()]
    return TablePart(
        name=document.text(data.title), help=document.text(data.help),
        columns=[*key.columns, *value.columns], rows=rows, sort=len(keys) if value.columns[0][2] else -1,
    )  # fmt: skip


def _stats_cells(value: Value) -> list[Cell]:
    total, count = pair(value)
    return [exact(count), exact(truncated(total, count)), exact(total)]


CHANGE = "change"
"""The title of the column that a comparison is about."""


def difference_part(document: Document, printers: Printers, part: MapDifference) -> TablePart:
    """The keys of a map that differ: their values before and after, and the change of numbers."""
    of_value = value_columns(part.name, part.value)
    key = Cells(document, printers, key_columns(part.key), part.key)
    value = Cells(document, printers, of_value, part.value)
    members = _stats_cells if isinstance(part.value, types.Stats) else value.of
    missing: list[Cell] = ["" if column[2] else document.text("") for column in value.columns]
    sides: list[PartColumn] = [
        (name := document.text(f"{column.name} {side}"), column.unit, int(column.right), name)
        for side in ("before", "after")
        for column in of_value
    ]
    rows = [
        [
            *key.of(name),
            *(missing if change.before is None else members(change.before)),
            *(missing if change.after is None else members(change.after)),
            _change(change),
        ]
        for name, change in part.changes.items()
    ]
    change_column: PartColumn = (document.text(CHANGE), of_value[-1].unit, 1, document.text(CHANGE))
    return TablePart(
        name=document.text(part.name), help=document.text(""),
        columns=[*key.columns, *sides, change_column], rows=rows, sort=len(key.columns) + len(sides),
    )  # fmt: skip


def _change(change: KeyChange) -> Cell:
    """The change of a number, of averages that of the average; empty for others."""
    if isinstance(change.delta, tuple):
        return exact(truncated(*pair(change.after)) - truncated(*pair(change.before)))
    return exact(change.delta) if isinstance(change.delta, int) else ""


# ---------------------------------------------------------------------------------------------- cells as text


def cell_number(cell: Cell) -> float:
    """The number of a cell; 0 where it is empty."""
    try:
        return float(cell)
    except ValueError:
        return 0.0


def rows_in_order(part: TablePart, texts: Sequence[str]) -> list[list[Cell]]:
    """The rows of a table, those with most first if it has an order; of changes those that changed most."""
    if part.sort < 0:
        return part.rows
    size: Callable[[float], float] = abs if texts[part.columns[part.sort][0]] == CHANGE else float
    return sorted(part.rows, key=lambda row: -size(cell_number(row[part.sort])))


def cell_text(texts: Sequence[str], column: PartColumn, cell: Cell, boot: float = 0.0) -> str:
    """A cell for people: times and sizes in the unit that fits, times since boot as those of the day (UTC)."""
    _, unit, number, _ = column
    if unit == BOOT:
        seconds, rest = divmod(int(boot * 1e9) + int(cell), _SECOND)
        return f"{strftime('%H:%M:%S', gmtime(seconds))}.{rest // 1_000_000:03}"
    if not number:
        assert isinstance(cell, int)
        return texts[cell]
    return readable(cell_number(cell), unit) if (unit in SECONDS or unit in BYTES) and cell != "" else str(cell)


# ---------------------------------------------------------------------------------------------- keys that states share


def _keys(states: Sequence[MapData]) -> list[Portable]:
    """The keys of several states of a map."""
    return list(dict.fromkeys(key for data in states for key in data.entries))


class _Common(TypedDict):
    """The members that parts with keys have in common."""

    name: int
    help: int
    unit: str
    columns: list[PartColumn]
    keys: list[list[Cell]]


def _keyed(document: Document, printers: Printers, states: Sequence[MapData]) -> tuple[_Common, list[Portable]]:
    """The members that parts of maps with keys have in common, and the keys."""
    data = states[-1]
    cells = Cells(document, printers, data.key_columns, data.key, data.key_titles)
    keys = _keys(states)
    common = _Common(
        name=document.text(data.title), help=document.text(data.help), unit=data.unit,
        columns=cells.columns, keys=[cells.of(key) for key in keys],
    )  # fmt: skip
    return common, keys


# ---------------------------------------------------------------------------------------------- histograms


def histogram_part(
    document: Document, printers: Printers, data: MapData, before: MapData | None = None
) -> HistogramPart:
    """The histograms of a map; with *before* those of an earlier state beside them."""
    states = [data] if before is None else [before, data]
    common, keys = _keyed(document, printers, states)
    assert isinstance(data.value, types.Hist | types.LHist)
    document.answers[common["name"]] = [
        f"{side}{line}" for side, state in zip(("before, ", "after, ") if before else ("",), states, strict=True)
        for line in histogram_lines(state)
    ]  # fmt: skip
    return HistogramPart(
        **common, buckets=_bounds(data.value), counts=[_counts(data, key) for key in keys],
        before=None if before is None else [_counts(before, key) for key in keys], by=0 if data.label else -1,
    )  # fmt: skip


def _bounds(type_: types.Hist | types.LHist) -> list[Bucket]:
    """Least and greatest value of each bucket, null at an open end."""
    buckets = histogram.used(histogram.shape(type_), [1] * type_.buckets)
    return [
        (None if item.low is None else exact(item.low), None if item.high is None else exact(item.high - 1), item.label)
        for item in buckets
    ]


def _counts(data: MapData, key: Portable) -> Counts:
    """Numbers and counts of the buckets that are not empty."""
    return _paired(data.entries.get(key))


def _paired(value: Value | None) -> Counts:
    items = sorted(value.items()) if isinstance(value, dict) else []
    return [number for number, _ in items], exacts(count for _, count in items if isinstance(count, int))


# ---------------------------------------------------------------------------------------------- lines


def series_part(document: Document, printers: Printers, data: MapData, before: MapData | None = None) -> LinesPart:
    """The time series of a map; those of *before* as keys of their own."""
    states = [data] if before is None else [before, data]
    common, keys = _keyed(document, printers, states)
    assert isinstance(data.value, types.TSeries)
    return LinesPart(
        **common, lines=[_points(data, key) for key in keys],
        interval=data.value.interval / 1e9, of=_OF_POINTS.get(data.value.reduce, data.value.reduce),
        before=None if before is None else [_points(before, key) for key in keys],
    )  # fmt: skip


_OF_POINTS = {"": "last value", "avg": "average", "min": "least value", "max": "largest value"}


def _points(data: MapData, key: Portable) -> Line:
    type_, value = data.value, data.entries.get(key)
    assert isinstance(type_, types.TSeries)
    items = (
        {number: item for number, item in value.items() if isinstance(item, tuple)} if isinstance(value, dict) else {}
    )
    points = sorted(TimeSeries(type_).printed_values(items).items())
    return [number * type_.interval / 1e9 for number, _ in points], [exact(item) for _, item in points]


# ---------------------------------------------------------------------------------------------- states in time


def heat_part(document: Document, printers: Printers, states: Sequence[State]) -> HeatPart:
    """Histograms of several moments: what each interval between two of them added."""
    common, keys = _keyed(document, printers, [state.data for state in states])
    type_ = states[-1].data.value
    assert isinstance(type_, types.Hist | types.LHist)
    document.answers[common["name"]] = _highest(states)
    return HeatPart(
        **common, buckets=_bounds(type_),
        starts=[state.start / 1e9 for state in states], times=[state.end / 1e9 for state in states],
        steps=[[_paired(step) for step in steps_of(states, key, buckets_added)] for key in keys],
    )  # fmt: skip


WORST = 3
"""Intervals that are named."""


def findings_over_time(snapshots: Sequence[SnapshotData]) -> list[str]:
    """Of histograms over time count and quantiles, and the intervals in which they were highest: for the terminal."""
    lines = []
    for name in shown_names(snapshots):
        last = snapshots[-1]
        states = (of_prints(name, last) if name in last.maps else []) or of_snapshots(name, snapshots)
        if isinstance(states[-1].data.value, types.Hist | types.LHist):
            lines += _highest(states)
    return lines


def _highest(states: Sequence[State]) -> list[str]:
    data = states[-1].data
    steps: list[dict[int, int]] = [{} for _ in states]
    for key in _keys([state.data for state in states]):
        for at, step in enumerate(steps_of(states, key, buckets_added)):
            for bucket, count in step.items() if isinstance(step, dict) else ():
                assert isinstance(count, int)
                steps[at][bucket] = steps[at].get(bucket, 0) + count
    assert isinstance(data.value, types.Hist | types.LHist)
    form, type_ = histogram.shape(data.value), data.value
    whole: dict[int, int] = {}
    for step in steps:
        for bucket, count in step.items():
            whole[bucket] = whole.get(bucket, 0) + count
    if not sum(whole.values()):
        return []
    lines = [f"{data.title}: {quantiles_text(form, histogram.all_buckets(type_, whole), data.unit)}"]
    tops = {}
    for at, step in enumerate(steps):
        if sum(step.values()):
            (top,) = histogram.quantiles(form, histogram.all_buckets(type_, step), ("99",))
            tops[at] = top
    ends = {at: top.low if top.high is None else top.high for at, top in tops.items()}
    if len(set(ends.values())) < _SEVERAL:
        return lines
    digits = 12 if any(state.end - state.start < _SECOND for state in states) else 8

    def clock(nanoseconds: int) -> str:
        seconds, rest = divmod(nanoseconds, _SECOND)
        return f"{strftime('%H:%M:%S', gmtime(seconds))}.{rest // 1_000_000:03}"[:digits]

    for at in sorted(ends, key=lambda at: (-(ends[at] or 0), -sum(steps[at].values()), at))[:WORST]:
        end = ends[at]
        limit = "" if end is None else f"p99 {'>=' if tops[at].high is None else '<='} {readable(end, data.unit)}, "
        number = sum(steps[at].values())
        span = f"{clock(states[at].start)} to {clock(states[at].end)} UTC"
        lines.append(f"  {span}: {limit}{number:,} value{'' if number == 1 else 's'}")
    lines[1:1] = ["highest:"]
    return lines


def counter_part(document: Document, printers: Printers, states: Sequence[State]) -> LinesPart:
    """Numbers of several moments as lines: of counts and sums what each interval added, of others the value."""
    common, keys = _keyed(document, printers, [state.data for state in states])
    type_ = states[-1].data.value
    adds = isinstance(type_, types.SUMS)
    change: Change = number_added if adds else lambda _was, now: now
    shown = _average if isinstance(type_, types.Avg | types.Stats) else _plain
    times = [state.end / 1e9 for state in states]
    lines: list[Line] = []
    for key in keys:
        steps = steps_of(states, key, change)
        lines.append((times, [None if step is None else exact(shown(step)) for step in steps]))
    return LinesPart(**common, lines=lines, of="what each interval added" if adds else "")


def _plain(value: Value) -> int:
    assert isinstance(value, int)
    return value


def _average(value: Value) -> int:
    return truncated(*pair(value))
