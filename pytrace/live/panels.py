"""Panels of the live view: a map each, made of snapshots; and one for all counters without keys.

A panel is text with roles (:data:`pytrace.live.glyphs.Line`); nothing here knows the library that shows it. Keys,
titles and units are those of the pictures. Of the entries of a snapshot only those that are shown are sorted.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import msgspec

from pytrace.core import types
from pytrace.core.failures import UnderWay
from pytrace.core.value_tables import INTEGERS, RIGHT
from pytrace.live import changes
from pytrace.live.glyphs import Glyphs, Line, columns
from pytrace.live.processes import STATES, Process, Processes
from pytrace.render.values import value_kind_of
from pytrace.results.findings import readable
from pytrace.results.formats.portable_forms import Printers
from pytrace.results.snapshot import MapData, Portable, Value
from pytrace.results.stack_samples import members_of

HISTORY = 300
"""Snapshots that pictures over time go back."""
FADE = 5.0
"""Seconds after which a row that gained nothing goes, while rows are sorted by what they gain; of processes that have
ended it goes at once."""
KEPT = 200
"""Entries of each map that are kept to scroll back to."""
_NARROW = 60
"""Fewer columns have no room for bars."""
_LEAST_TEXT, _GOOD_TEXT, _LEAST_COMMAND = 8, 20, 12
"""Columns of a text below which a row has fewer columns, of which those about its process go first; of a command
line."""
_HEADED = 3
"""Lines from which on columns have headings."""

RATE, TOTAL, CHANGE, KEY = "rate", "total", "change", "key"
"""Columns that are no members of the key; of values that do not grow TOTAL is the value."""
USER, STATE, MEMORY, COMMAND = "user", "state", "memory", "command line"
DETAILS = (USER, STATE, MEMORY, COMMAND)
"""Columns about the process of a row."""
_TASKS = ("PID", "TID")
_NAMES = ("process", "command")


class Moment(msgspec.Struct, frozen=True, eq=False):
    """The state of a panel at one moment."""

    entries: Mapping[Portable, Value] = {}
    others: int = 0
    """Keys of the run besides those in :attr:`entries`."""
    rates: Mapping[Portable, float] = {}
    time: float = 0.0
    """In seconds; 0 before the first state."""


class Selection:
    """The processes that all panels with a PID show: those of a user, one that is followed; as a tree."""

    def __init__(self, processes: Processes) -> None:
        self.processes = processes
        self.user: int | None = None
        self.pid: int | None = None
        self.tree = False
        self.folded: set[int] = set()
        """Processes of the tree whose children are not shown."""
        self.own: frozenset[int] = frozenset()
        """Processes of pytrace itself, which are left out."""

    def admits(self, pid: int) -> bool:
        """Whether rows of a process are shown."""
        if pid in self.own or (self.pid is not None and pid != self.pid):
            return False
        if self.user is None:
            return True
        process = self.processes.known(pid)
        return process is not None and process.uid == self.user

    @property
    def state(self) -> tuple[object, ...]:
        """What is chosen, to compare."""
        return self.user, self.pid, self.own

    @property
    def active(self) -> bool:
        """Whether it leaves anything out."""
        return bool(self.own) or self.user is not None or self.pid is not None

    def words(self) -> list[str]:
        """What is chosen, for headings."""
        found = [] if self.user is None else [f"user {self.processes.user_name(self.user)}"]
        return found + ([] if self.pid is None else [f"process {self.pid}"])


class Row(msgspec.Struct):
    """One entry of a map as it is shown."""

    entry: Portable
    value: Value
    cells: dict[str, str]
    share: float
    """Length of the bar, 0 … 1."""
    idle: bool
    depth: int = 0
    """Of trees: how many processes above it are shown."""
    hidden: int = 0
    """Of trees: how many processes below it are not, as it is folded."""


def quantity(value: float) -> str:
    """A number in at most five characters: ``0.5``, ``12``, ``1.2k``, ``35M``."""
    size = abs(value)
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= limit:
            scaled = value / limit
            return f"{scaled:.0f}{unit}" if abs(scaled) >= 10 else f"{scaled:.1f}{unit}"
    return f"{value:.0f}" if size >= 10 or value == int(value) else f"{value:.1f}"


class Panel:
    """A map of the run; :meth:`update` takes its state of each snapshot.

    Args:
        data: the map.
        printers: of values.
        glyphs: of the terminal.
        period: seconds of processor time that one of a map of samples stands for; 0 for others.
        selection: what rows of processes are shown.
    """

    def __init__(
        self, data: MapData, printers: Printers, glyphs: Glyphs, period: float = 0.0, selection: Selection | None = None
    ) -> None:
        self.name, self.help, self.title = data.name, glyphs.text(data.help), glyphs.text(data.title)
        self.glyphs = glyphs
        self.type = data.value
        self.key_type = data.key
        self.period = period
        self.selection = selection or Selection(Processes())
        self.unit = "s" if period else data.unit
        self.aggregation = isinstance(data.value, types.AGGREGATIONS)
        self.grows = isinstance(data.value, changes.GROWING)
        self.changing = True
        """Whether what values gain is of interest."""
        self.used = self.aggregation
        """Whether it is to be shown: what scripts store for themselves is shown once there is some."""
        self.own = data.hidden and not self.aggregation
        """Whether the script stores it for itself and prints it nowhere; what it aggregates are its results."""
        self.now = Moment()
        self._latest = self.now
        self.filter, self.reverse = "", False
        self.cursor = 0
        """The row that is chosen."""
        self.chosen_key: Portable = None
        """Its key: the cursor stays on it where a followed process is shown."""
        self.keys = tuple(glyphs.text(title) for title in data.key_titles)
        self.task = next((place for place, title in enumerate(self.keys) if title in _TASKS and not data.label), None)
        """The member of the key that is a process or thread of this machine."""
        self._name_place = next((place for place, title in enumerate(self.keys) if title in _NAMES), None)
        """The member of the key that is its name."""
        self._members = _member_forms(data, printers)
        self._right = tuple(isinstance(column.type, RIGHT) for column in data.key_columns)
        self.places: list[tuple[int, int, str]] = []
        """Where the headings of columns were drawn, for clicks."""
        self._value_text = printers.portable_text(data.value)
        self._rank = _rank_form(data, printers)
        self._texts: dict[Portable, tuple[str, ...]] = {}
        self._active: dict[Portable, float] = {}
        """When each key last gained something."""
        self.order = RATE if self.grows else TOTAL
        self._chosen: tuple[tuple[object, ...], list[tuple[Portable, Value]]] | None = None
        """The entries that are shown, and of what state: drawing asks for them several times."""
        self._rows_drawn = 1
        self._detailed = False
        """Whether facts about the process of each row are shown."""

    @property
    def entries(self) -> Mapping[Portable, Value]:
        """The entries at the moment that is shown."""
        return self.now.entries

    @property
    def rates(self) -> Mapping[Portable, float]:
        """What each gained per second, before that moment."""
        return self.now.rates

    @property
    def others(self) -> int:
        """Keys of the run besides :attr:`entries`."""
        return self.now.others

    def update(self, data: MapData, others: int, moment: float, *, shown: bool = True) -> None:
        """Take the state of the map at *moment*, in seconds; *shown*: not while an earlier one is looked at."""
        before = self._latest
        rates: dict[Portable, float] = {}
        if before.time and self.changing:
            whole = not before.others
            rates = changes.rates(self.type, before.entries, data.entries, moment - before.time, whole=whole)
        self.title = self.glyphs.text(data.title)
        self._latest = Moment(data.entries, others, rates, moment)
        self.used |= bool(data.entries)
        if self.grows:
            last = self._active
            self._active = {
                key: moment if rates.get(key) or key not in last else last[key] for key in data.entries
            }
        if shown:
            self.now = self._latest

    # ---- moments

    def kept(self) -> Moment:
        """The latest moment, as far as it is kept to scroll back to."""
        latest = self._latest
        if len(latest.entries) <= KEPT:
            return latest
        rank = self._rank
        keys = heapq.nlargest(
            KEPT, latest.entries, key=lambda key: (latest.rates.get(key, 0.0), rank(latest.entries[key]))
        )
        rates = {key: latest.rates[key] for key in keys if key in latest.rates}
        others = latest.others + len(latest.entries) - KEPT
        return Moment({key: latest.entries[key] for key in keys}, others, rates, latest.time)

    def show(self, moment: Moment | None) -> None:
        """Show an earlier moment; None: the latest."""
        self.now = self._latest if moment is None else moment

    # ---- rows

    def members(self, key: Portable) -> tuple[str, ...]:
        """The members of a key, each on one line, as text output prints them."""
        texts = self._texts.get(key)
        if texts is None:
            if len(self._texts) > 10_000:
                self._texts.clear()
            texts = self._texts[key] = tuple(map(self.glyphs.text, self._members(key)))
        return texts

    def key_text(self, key: Portable) -> str:
        """A key on one line."""
        return ", ".join(self.members(key)) if self.key_type is not None else self.name

    def value_text(self, value: Value) -> str:
        """A value on one line: numbers with a unit as pictures show them, others as text output prints them."""
        if self.unit and isinstance(self.type, INTEGERS):
            return readable(self._rank(value) * (self.period or 1), self.unit)
        return self.glyphs.text(_one_line(self._value_text(value), self.type))

    def number(self, value: Value) -> float:
        """The number that values are compared by; of what grows that which grows."""
        return changes.number(value) if self.grows else self._rank(value)

    def pid(self, key: Portable) -> int | None:
        """The process or thread that a row is of."""
        if self.task is None:
            return None
        member = key[self.task] if isinstance(key, tuple) else key
        return member if isinstance(member, int) else None

    # ---- which rows, in which order

    def columns(self) -> tuple[str, ...]:
        """All columns that rows may be sorted by: numbers, members of the key, facts about the process."""
        numbers = (RATE, TOTAL) if self.grows else (TOTAL,)
        members = tuple(f"{KEY}{place}" for place in range(len(self.keys)))
        return (*numbers, *members, *(DETAILS if self.task is not None else ()))

    def column_title(self, column: str) -> str:
        """What people call a column."""
        if column.startswith(KEY):
            return self.keys[int(column[len(KEY) :])]
        if column == RATE:
            return "CPU" if self.period else RATE
        if column == TOTAL:
            return "CPU time" if self.period else "total" if self.grows else "value"
        return column

    def turn_order(self, by: int = 1) -> None:
        """Sort by the next column."""
        found = self.columns()
        self.order, self.reverse = found[(found.index(self.order) + by) % len(found)], False

    def sort_by(self, column: str) -> None:
        """Sort by a column; once more turns the order round."""
        self.reverse = column == self.order and not self.reverse
        self.order = column

    def chosen(self) -> list[tuple[Portable, Value]]:
        """The entries that are shown: those of the filter and the selection, and that were busy of late."""
        by = (self.now, self.filter, self.order, self.selection.state)
        if self._chosen is None or self._chosen[0] != by:
            self._chosen = by, self._choose()
        return self._chosen[1]

    def _choose(self) -> list[tuple[Portable, Value]]:
        found = list(self.entries.items())
        if self.selection.active and self.task is not None:
            found = [item for item in found if (pid := self.pid(item[0])) is None or self.selection.admits(pid)]
        if self.filter:
            wanted = self.filter.casefold()
            found = [item for item in found if wanted in self._searched(item[0]).casefold()]
        # Who follows a process wants to see that it is idle.
        if self.order == RATE and self.selection.pid is None:
            oldest, active = self.now.time - FADE, self._active
            if self.now is self._latest:
                found = [item for item in found if active.get(item[0], oldest) > oldest and not self._gone(item[0])]
            else:
                found = [item for item in found if self.rates.get(item[0])]
        return found

    def _gone(self, key: Portable) -> bool:
        """Whether an entry that gained nothing is of a process that has ended."""
        if not self.rates or self.rates.get(key):
            return False
        pid = self.pid(key)
        return pid is not None and self.selection.processes.ended(pid)

    def _searched(self, key: Portable) -> str:
        """What the filter looks at."""
        pid = self.pid(key)
        process = self.selection.processes.known(pid) if pid is not None else None
        about = "" if process is None else f" {self.selection.processes.user_name(process.uid)} {process.command}"
        return self.key_text(key) + about

    @property
    def empty(self) -> str:
        """Why no row is shown, for the heading; empty if there are some."""
        if not self.entries:
            return "nothing yet"
        if self.chosen():
            return ""
        if self.filter or self.selection.words():
            return "nothing matches"
        total = len(self.entries) + self.others
        return f"nothing now, {total} row{'' if total == 1 else 's'} so far: s sorts by total"

    def top(self, count: int) -> list[tuple[Portable, Value]]:
        """The first *count* entries in the chosen order."""
        found, order = self.chosen(), self.order
        if self._descends(order) != self.reverse:
            return heapq.nlargest(count, found, key=self._by(order))
        return heapq.nsmallest(count, found, key=self._by(order))

    def _descends(self, column: str) -> bool:
        return column in (RATE, TOTAL, MEMORY)

    def _by(self, column: str) -> Callable[[tuple[Portable, Value]], tuple[float, float] | tuple[float, str]]:
        rank, rates = self._rank, self.rates
        if column == RATE:
            return lambda item: (rates.get(item[0], 0.0), rank(item[1]))
        if column == TOTAL:
            return lambda item: (rank(item[1]), 0.0)
        if column.startswith(KEY):
            place = int(column[len(KEY) :])

            def member(item: tuple[Portable, Value]) -> tuple[float, str]:
                key = item[0]
                value = key[place] if isinstance(key, tuple) and len(key) == len(self.keys) else key
                return (float(value), "") if isinstance(value, int) else (0.0, self._cell(item[0], place))

            return member
        return lambda item: self._detail_order(item[0], column)

    def _detail_order(self, key: Portable, column: str) -> tuple[float, str]:
        process = self._process(key)
        if process is None:  # those that have ended are the last ones, but in the reversed order
            return -1.0 if self._descends(column) else 1.0, ""
        if column == MEMORY:
            return float(process.memory), ""
        return 0.0, self._details(process)[column]

    def _process(self, key: Portable) -> Process | None:
        pid = self.pid(key)
        return None if pid is None else self.selection.processes.known(pid)

    def _details(self, process: Process) -> dict[str, str]:
        return {
            USER: self.selection.processes.user_name(process.uid),
            STATE: STATES.get(process.state, process.state),
            MEMORY: readable(process.memory, "bytes") if process.memory else "",
            COMMAND: self.glyphs.text(process.command),
        }  # fmt: skip

    def move(self, by: int) -> None:
        """Choose another row."""
        count = len(self.tree(self.cursor + abs(by) + 1)) if self._is_tree else len(self.chosen())
        self.cursor = min(max(self.cursor + by, 0), max(count - 1, 0))

    def chosen_row(self) -> Portable:
        """The key of the chosen row; None if there is none."""
        if self._is_tree:
            nodes = self.tree(self.cursor + 1)
            return nodes[self.cursor][1] if self.cursor < len(nodes) else None
        found = self.top(self.cursor + 1)
        return found[self.cursor][0] if self.cursor < len(found) else None

    def chosen_pid(self) -> int | None:
        """The process of the chosen row."""
        if self._is_tree:
            nodes = self.tree(self.cursor + 1)
            return nodes[self.cursor][0] if self.cursor < len(nodes) else None
        key = self.chosen_row()
        return None if key is None else self.pid(key)

    def click(self, column: int, line: int) -> None:
        """Choose the row, or sort by the heading, at a place that was clicked; *line* is below the title."""
        if not line and self.places:
            for start, end, name in self.places:
                if start <= column < end:
                    self.sort_by(name)
            return
        first = max(self.cursor - self._rows_drawn + 1, 0)
        self.cursor = first + line - bool(self.places)
        self.move(0)

    # ---- trees

    @property
    def _is_tree(self) -> bool:
        return self.selection.tree and self.task is not None

    def tree(self, count: int) -> list[tuple[int, Portable, int, int]]:
        """The first *count* lines of the tree: process, its entry (None of one that is shown for its children), depth,
        and how many processes below it are hidden.

        Siblings are in the chosen order, a parent where the first of its descendants is.
        """
        entries: dict[int, list[Portable]] = {}
        parents: dict[int, int] = {}
        place: dict[int, int] = {}
        for number, (key, _) in enumerate(self.top(1000)):
            pid = self.pid(key)
            if pid is None:
                continue
            entries.setdefault(pid, []).append(key)
            for _ in range(64):  # of a parent that changes meanwhile there may be circles
                place.setdefault(pid, number)
                process = self.selection.processes.known(pid)
                if process is None or not process.parent or pid in parents:
                    break
                parents[pid] = pid = process.parent
        children: dict[int, list[int]] = {}
        for pid in sorted(place, key=lambda pid: place[pid]):
            parent = parents.get(pid)
            children.setdefault(0 if parent is None else parent, []).append(pid)
        lines: list[tuple[int, Portable, int, int]] = []
        waiting = [(pid, 0) for pid in reversed(children.get(0, []))]
        seen: set[int] = set()
        while waiting and len(lines) < count:
            pid, depth = waiting.pop()
            if pid in seen:
                continue
            seen.add(pid)
            below = [pid] if pid in self.selection.folded else []
            hidden = -len(below)
            while below:
                seen.add(below[-1])
                hidden += 1
                below += [child for child in children.get(below.pop(), []) if child not in seen]
            lines += [(pid, key, depth, hidden) for key in entries.get(pid, [None])]
            waiting += [(child, depth + 1) for child in reversed(children.get(pid, [])) if child not in seen]
        return lines

    # ---- text

    @property
    def heading_title(self) -> str:
        """The question that the script's comment asks of the map, or the name of the map; with its mark."""
        about = self.help.partition("\\x0a")[0]
        mark = self.title.removesuffix(self.name).strip()
        return (f"{mark}: {about}" if mark else about) if about else self.title

    def heading(self) -> str:
        """The question or the name of the map, how many rows there are, and what is chosen."""
        parts = [self.heading_title]
        if empty := self.empty:
            parts.append(empty)
        elif self.key_type is not None:
            total, shown = len(self.entries) + self.others, len(self.chosen())
            some = f"{shown} of " if shown != total else ""
            parts += [f"{some}{total} row{'' if total == 1 else 's'}", self._order_text()]
        parts += self.selection.words() if self.task is not None else []
        if self.filter:
            parts.append(f"filter {self.glyphs.text(self.filter)!r}")
        return f" {', '.join(parts)} "

    def _order_text(self) -> str:
        return f"by {self.column_title(self.order)}{', reversed' if self.reverse else ''}"

    def lines(self, width: int, height: int, *, focused: bool = False, zoomed: bool = False) -> list[Line]:
        """The content in at most *height* lines of *width* columns; *zoomed*: the panel has the whole screen."""
        if self.empty:
            return []
        self._detailed = bool(self.period) or zoomed
        headed = height >= _HEADED and self.key_type is not None
        if not headed:
            self.places = []
        self._rows_drawn = height - headed
        rows, first = self.visible(self._rows_drawn)
        return self.table(rows, width, self.cursor - first if focused else -1, headed=headed)

    def visible(self, height: int) -> tuple[list[Row], int]:
        """The rows in sight, and the number of the first one: the chosen row is among them."""
        self.move(0)
        first = max(self.cursor - height + 1, 0)
        if self._is_tree:
            nodes = self.tree(first + height)[first:]
            most = self._most([(key, self.entries.get(key, 0)) for _, key, _, _ in nodes if key is not None])
            return [self._node(*node, most) for node in nodes], first
        found = self.top(first + height)
        most = self._most(found)
        return [self.row(key, value, most) for key, value in found[first:]], first

    def _most(self, entries: list[tuple[Portable, Value]]) -> float:
        """What a bar of full length stands for."""
        return max((self._length(*entry) for entry in entries), default=0.0) or 1.0

    def _length(self, key: Portable, value: Value) -> float:
        """What bars show: what rows gain, before there are rates and of what does not grow the value."""
        if self.grows and self.rates and self.order != TOTAL:
            return abs(self.rates.get(key, 0.0))
        return abs(self._rank(value)) if isinstance(self.type, changes.NUMBERS) else 0.0

    def row(self, key: Portable, value: Value, most: float = 1.0) -> Row:
        """An entry as it is shown; *most*: what the longest bar stands for."""
        rate = self.rates.get(key)
        cells = {f"{KEY}{place}": self._cell(key, place) for place in range(len(self.keys))}
        cells[TOTAL] = self.value_text(value)
        idle = False
        if self.grows:
            cells[RATE] = self.rate_text(rate)
            idle = bool(self.rates) and not rate
        elif rate:
            cells[TOTAL] += f" ({self.rate_text(rate)})"
        if self.task is not None:
            process = self._process(key)
            cells |= {STATE: "ended"} if process is None else self._details(process)
            idle |= process is None
        return Row(key, value, cells, self._length(key, value) / most, idle)

    def _node(self, pid: int, key: Portable, depth: int, hidden: int, most: float) -> Row:
        """A line of the tree."""
        if key is not None:
            row = self.row(key, self.entries[key], most)
        else:
            process = self.selection.processes.known(pid)
            cells = {} if process is None else self._details(process)
            cells |= {f"{KEY}{self.task}": str(pid)}
            if process is not None and self._name_place is not None:
                cells[f"{KEY}{self._name_place}"] = self.glyphs.text(process.name)
            row = Row(None, 0, cells, 0.0, idle=True)
        row.depth, row.hidden = depth, hidden
        if hidden:
            row.cells[self._stem] += f" (+{hidden})"
        return row

    @property
    def _stem(self) -> str:
        """The column that is indented in trees."""
        return f"{KEY}{self.task if self._name_place is None else self._name_place}"

    def _cell(self, key: Portable, place: int) -> str:
        members = self.members(key)
        return members[place] if place < len(members) else ""

    def rate_text(self, rate: float | None) -> str:
        """What an entry gains: a share of a CPU, bytes or time each second, a number."""
        if rate is None:
            return ""
        if self.period:
            return f"{100 * rate * self.period:.1f} %"
        sign = "+" if rate > 0 and not self.grows else ""
        if not rate:
            return "0"
        if self.unit and not isinstance(self.type, types.Avg | types.Stats):
            return f"{sign}{readable(round(rate) if abs(rate) >= 1 else 0, self.unit)}/s"
        return f"{sign}{quantity(rate)}/s"

    def _is_number(self, column: str) -> bool:
        if column.startswith(KEY):
            return self._right[int(column[len(KEY) :])]
        return column in (RATE, MEMORY) or (column == TOTAL and isinstance(self.type, changes.NUMBERS))

    def _is_text(self, column: str) -> bool:
        """Whether a column may be cut."""
        if column.startswith(KEY):
            return not self._is_number(column)
        return column == COMMAND or (column == TOTAL and not isinstance(self.type, changes.NUMBERS))

    def table(self, rows: list[Row], width: int, chosen: int, *, headed: bool = False) -> list[Line]:
        """Rows as columns: what they gain, its bar, the total, the members of the key, the process."""
        titles, sizes, bar = self._layout(rows, width, headed=headed)
        lines = [self._title_line(titles, sizes, bar)] if headed else []
        for index, row in enumerate(rows):
            line: Line = []
            for place, (name, size) in enumerate(sizes.items()):
                role = "dim" if row.idle else "rate" if name == RATE else "number" if name == TOTAL else ""
                if index == chosen and name.startswith(KEY):
                    role = "chosen"
                text = " " * self._indent(name, row) + row.cells.get(name, "")
                line.append((self.glyphs.fit(text, size, right=self._is_number(name), path="/" in text), role))
                line.append((" ", ""))
                if bar and not place:
                    line += [(self.glyphs.bar(row.share, bar), "bar"), (" ", "")]
            lines.append(line[:-1])
        return [_cut_line(line, width, self.glyphs) for line in lines]

    def _layout(self, rows: list[Row], width: int, *, headed: bool) -> tuple[dict[str, str], dict[str, int], int]:
        """The titles and widths of the columns that there is room for, and the width of bars."""
        names = [name for name in self.columns() if name not in DETAILS or self._detailed or name == self.order]
        if self.grows and not self.rates:
            names.remove(RATE)  # not known before the second state
        titles = {name: self.column_title(name) if headed else "" for name in names}
        if headed and self.order in titles:
            down = self._descends(self.order) != self.reverse
            titles[self.order] += ("▼" if down else "▲") if self.glyphs.unicode else ("v" if down else "^")
        natural = {
            name: max([  # the lowest windows have no row
                columns(titles[name]), *(self._indent(name, row) + columns(row.cells.get(name, "")) for row in rows)
            ])
            for name in names
        }
        bar = min(max(width // 8, 6), 16) if width >= _NARROW and isinstance(self.type, changes.NUMBERS) else 0

        def least(text: int) -> int:
            texts = {name: min(natural[name], text) for name in names if self._is_text(name)}
            wanted = _LEAST_COMMAND if COMMAND in names else 0
            return sum(texts.get(name, natural[name]) for name in names) + len(names) + wanted + bar

        for dropped in (COMMAND, STATE, USER, "bar", MEMORY, TOTAL):
            # What the row is of matters more than facts about its process.
            if least(_GOOD_TEXT if dropped in DETAILS else _LEAST_TEXT) <= width:
                continue
            if dropped == "bar":
                bar = 0
            elif dropped in names and dropped != self.order and (dropped != TOTAL or RATE in names):
                names.remove(dropped)
        return titles, self._sizes(names, natural, width - (bar + 1 if bar else 0)), bar

    def _indent(self, column: str, row: Row) -> int:
        """How far a cell is indented, in trees."""
        if not row.depth:
            return 0
        return 2 * row.depth if column == self._stem else 0

    def _sizes(self, names: list[str], natural: dict[str, int], width: int) -> dict[str, int]:
        """The width of each column: texts share what numbers leave, the last one has the rest."""
        texts = [name for name in names if self._is_text(name)]
        sizes = {name: natural[name] for name in names}
        room = width - (len(names) - 1) - sum(sizes[name] for name in names if name not in texts)
        for place, name in enumerate(sorted(texts, key=lambda name: (name == COMMAND, natural[name]))):
            others = len(texts) - place - 1
            sizes[name] = max(min(natural[name], room - others * _LEAST_TEXT if name != COMMAND else room), 1)
            room -= sizes[name]
        return sizes

    def _headings(self, titles: list[tuple[str, int]]) -> list[Line]:
        """A line with the headings of columns, each with its width."""
        return [[(self.glyphs.fit(title, width) + " ", "heading") for title, width in titles]]

    def _title_line(self, titles: dict[str, str], sizes: dict[str, int], bar: int) -> Line:
        line: Line = []
        self.places = []
        start = 0
        for place, (name, size) in enumerate(sizes.items()):
            text = self.glyphs.fit(titles[name], size, right=self._is_number(name)) + " "
            text += " " * (bar + 1) if bar and not place else ""
            self.places.append((start, start + len(text), name))
            start += len(text)
            line.append((text, "heading"))
        return [*line[:-1], (line[-1][0].removesuffix(" "), "heading")]


CALLS = "calls under way"
"""The name of the panel that shows them; those of maps begin with ``@``."""
_CALL_KEY = types.Tuple((types.INT64, types.String(16), types.String(64), types.INT64))


def calls_map(calls: Sequence[UnderWay]) -> MapData:
    """Calls that have not returned as a map from what they are to their age."""
    entries: dict[Portable, Value] = {(call.tid, call.thread, call.call, call.depth): call.age for call in calls}
    return MapData(CALLS, _CALL_KEY, types.INT64, entries, key_names=("tid", '"thread"', '"call"', '"depth"'))


class CallsPanel(Panel):
    """Calls that have not returned, the oldest first."""

    def __init__(self, printers: Printers, glyphs: Glyphs, selection: Selection | None = None) -> None:
        super().__init__(calls_map(()), printers, glyphs, 0.0, selection)
        self.unit, self.changing = "ns", False

    def column_title(self, column: str) -> str:
        """What people call a column."""
        return "age" if column == TOTAL else super().column_title(column)

    @property
    def empty(self) -> str:
        """Why no row is shown, for the heading; empty if there are some."""
        return super().empty if self.entries else "none"


class Counters(Panel):
    """Numbers of maps without keys: value, rate, and the past as a sparkline."""

    def __init__(
        self, data: MapData, printers: Printers, glyphs: Glyphs, period: float = 0.0, selection: Selection | None = None
    ) -> None:
        super().__init__(data, printers, glyphs, period, selection)
        self.past: deque[float] = deque(maxlen=HISTORY)
        """What the sparkline shows: the rate of what adds up, else the value."""

    def update(self, data: MapData, others: int, moment: float, *, shown: bool = True) -> None:
        """Take the state of the map at *moment*."""
        super().update(data, others, moment, shown=shown)
        value = data.entries.get(None)
        if value is None:
            self.past.append(0.0)
        elif isinstance(self.type, types.SUMS):
            self.past.append(max(self._latest.rates.get(None, 0.0), 0.0))
        else:
            self.past.append(float(max(self._rank(value), 0)))

    def line(self, name_width: int, value_width: int, width: int) -> Line:
        """The counter on one line."""
        line: Line = [(self.glyphs.fit(self.title, name_width) + " ", "key")]
        line.append((self.glyphs.fit(self.shown(), value_width, right=True), "number"))
        line.append((self.glyphs.fit(self.rate_text(self.rates.get(None)), 11, right=True), "rate"))
        rest = width - name_width - value_width - 13
        if rest > 0:
            line += [(" ", ""), (self.glyphs.sparkline(list(self.past), rest), "bar")]
        return line

    def shown(self) -> str:
        """The value as text."""
        return self.value_text(self.entries[None]) if None in self.entries else "-"


def _cut_line(line: Line, width: int, glyphs: Glyphs) -> Line:
    """A line in at most *width* columns."""
    found: Line = []
    for text, role in line:
        left = width - sum(columns(part) for part, _ in found)
        if columns(text) > left:
            return [*found, (glyphs.fit(text, left), role)]
        found.append((text, role))
    return found


def _one_line(text: bytes, type_: types.Type) -> str:
    """A text of several lines, as stacks have them, on one; in names of others a line break is a control character."""
    shown = text.decode("utf-8", "surrogateescape")
    if "\n" not in shown or not isinstance(type_, types.Stack):
        return shown
    return " < ".join(line.strip() for line in shown.split("\n") if line.strip()) or "[no frames]"


def _member_forms(data: MapData, printers: Printers) -> Callable[[Portable], list[str]]:
    """The text of each member of a key, on one line."""
    key = data.key
    if key is None:
        return lambda _key: []
    kinds = [column.type for column in data.key_columns]
    forms = [(printers.portable(kind, printers.texts.key(kind)), kind) for kind in kinds]
    return lambda value: [
        _one_line(form(member), kind) for (form, kind), member in zip(forms, members_of(key, value), strict=True)
    ]


def _rank_form(data: MapData, printers: Printers) -> Callable[[Value], float]:
    """The number by which values are sorted; 0 for values without an order by value."""
    rank, restore = value_kind_of(data.value).rank(), printers.restored(data.value)
    if rank is None:
        return lambda _value: 0
    chosen = rank

    def number(value: Value) -> float:
        found = chosen(restore(value))
        return found if isinstance(found, int | float) else 0

    return number
