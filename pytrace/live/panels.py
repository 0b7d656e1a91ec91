"""Panels of the live view: a map each, made of snapshots; and one for all counters without keys.

A panel is text with roles (:data:`pytrace.live.glyphs.Line`); nothing here knows the library that shows it. Values are
printed as the text output prints them. Of the entries of a snapshot only those that are shown are sorted.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Mapping

import msgspec

from pytrace.core import types
from pytrace.live import changes
from pytrace.live.glyphs import Glyphs, Line, columns, quantity
from pytrace.render.values import value_kind_of
from pytrace.results.formats.portable_forms import Printers
from pytrace.results.snapshot import MapData, Portable, Value

ORDERS = ("value", "rate", "key")
"""By what rows are sorted: the greatest value, the greatest rate, or the key. What adds up is sorted by rate at first:
what is busy now is above what was busy once."""
HISTORY = 300
"""Snapshots that pictures over time go back."""
_NARROW = 48
"""Fewer columns have no room for bars."""


class Row(msgspec.Struct):
    """One entry of a map."""

    key: str
    value: Value
    text: str
    number: float | None
    """What bars show; None for values that are no numbers."""
    rate: float | None


class Panel:
    """A map of the run; :meth:`update` takes its state of each snapshot."""

    def __init__(self, data: MapData, printers: Printers, glyphs: Glyphs) -> None:
        self.name, self.help, self.title = data.name, glyphs.text(data.help), glyphs.text(data.title)
        self.glyphs = glyphs
        self.type = data.value
        self.key_type = data.key
        self.aggregation = isinstance(data.value, types.AGGREGATIONS)
        self.used = self.aggregation
        """Whether it is to be shown: what scripts store for themselves is shown once there is some."""
        self.own = data.hidden and not self.aggregation
        """Whether the script stores it for itself and prints it nowhere; what it aggregates are its results."""
        self.entries: Mapping[Portable, Value] = {}
        self.others = 0
        """Keys of the run besides those in :attr:`entries`."""
        self.rates: dict[Portable, float] = {}
        self.order, self.filter = ORDERS[int(isinstance(data.value, changes.GROWING))], ""
        self.cursor = 0
        """The row that is chosen."""
        self._key_text = _key_form(data, printers)
        self._value_text = printers.portable_text(data.value)
        self._rank = _rank_form(data, printers)
        self._moment = 0.0
        self._texts: dict[Portable, str] = {}

    def update(self, data: MapData, others: int, moment: float) -> None:
        """Take the state of the map at *moment*, in seconds."""
        before, whole = self.entries, not self.others
        self.rates = {}
        if self._moment:
            self.rates = changes.rates(self.type, before, data.entries, moment - self._moment, whole=whole)
        self.title = self.glyphs.text(data.title)
        self.entries, self.others, self._moment = data.entries, others, moment
        self.used |= bool(data.entries)

    # ---- rows

    def key_text(self, key: Portable) -> str:
        """A key on one line, as text output prints it."""
        text = self._texts.get(key)
        if text is None:
            if len(self._texts) > 10_000:
                self._texts.clear()
            text = self._texts[key] = self.glyphs.text(_one_line(self._key_text(key)))
        return text

    def value_text(self, value: Value) -> str:
        """A value on one line, as text output prints it."""
        return self.glyphs.text(_one_line(self._value_text(value)))

    def chosen(self) -> list[tuple[Portable, Value]]:
        """The entries whose key has the filter's text."""
        if not self.filter:
            return list(self.entries.items())
        wanted = self.filter.casefold()
        return [item for item in self.entries.items() if wanted in self.key_text(item[0]).casefold()]

    def top(self, count: int) -> list[tuple[Portable, Value]]:
        """The first *count* entries in the chosen order."""
        found = self.chosen()
        if self.order == "key":
            return heapq.nsmallest(count, found, key=lambda item: self.key_text(item[0]))
        rank = self._rank
        if self.order == "rate":
            return heapq.nlargest(count, found, key=lambda item: (self.rates.get(item[0], 0.0), rank(item[1])))
        return heapq.nlargest(count, found, key=lambda item: rank(item[1]))

    def row(self, key: Portable, value: Value) -> Row:
        """An entry as it is shown."""
        number = self._rank(value) if isinstance(self.type, changes.NUMBERS) else None
        return Row(self.key_text(key), value, self.value_text(value), number, self.rates.get(key))

    def turn_order(self) -> None:
        """Sort by the next of :data:`ORDERS`."""
        self.order = ORDERS[(ORDERS.index(self.order) + 1) % len(ORDERS)]

    def move(self, by: int) -> None:
        """Choose another row."""
        self.cursor = min(max(self.cursor + by, 0), max(len(self.chosen()) - 1, 0))

    def window(self, height: int) -> tuple[int, list[tuple[Portable, Value]]]:
        """The number of the first visible row, and the visible entries: the chosen row is among them."""
        self.move(0)
        first = max(self.cursor - height + 1, 0)
        return first, self.top(first + height)[first:]

    # ---- text

    def heading(self) -> str:
        """The title, how many keys there are, and what is chosen."""
        about = self.help.partition("\\x0a")[0]
        parts = [f"{self.title}: {about}" if about else self.title]
        if self.key_type is not None:
            total = len(self.entries) + self.others
            shown = f"{len(self.entries)} of " if self.others else ""
            parts += [f"{shown}{total} key{'' if total == 1 else 's'}", f"by {self.order}"]
        if self.filter:
            parts.append(f"filter {self.glyphs.text(self.filter)!r}")
        return f" {', '.join(parts)} "

    def lines(self, width: int, height: int, *, focused: bool = False, zoomed: bool = False) -> list[Line]:
        """The content in at most *height* lines of *width* columns; *zoomed*: the panel has the whole screen."""
        del zoomed  # the same for a table
        first, visible = self.window(height)
        if not visible:
            return [[(self.glyphs.fit(" no entries" + (" match the filter" if self.filter else " yet"), width), "dim")]]
        rows = [self.row(*item) for item in visible]
        return self.table(rows, width, self.cursor - first if focused else -1)

    def table(self, rows: list[Row], width: int, chosen: int) -> list[Line]:
        """Rows as key, value, rate and bar."""
        if all(row.number is None for row in rows):
            value_width = max(width // 2, 1)
        else:
            value_width = min(max(columns(row.text) for row in rows), max(2 * width // 3, 1))
        rated = any(row.rate is not None for row in rows) and width >= value_width + 24
        rate_width = 9 if rated else 0
        rest = width - value_width - rate_width - 2
        barred = width >= _NARROW and all(row.number is not None for row in rows)
        longest = max(columns(row.key) for row in rows)
        key_width = min(longest, rest // 2) if barred else rest
        bar_width = rest - key_width - 1 if barred else 0
        # Bars show what the rows are sorted by; without rates, in the first state, there is the value only.
        by_rate = rated and self.order == "rate"
        lengths = [abs((row.rate if by_rate else row.number) or 0) for row in rows]
        most = max(lengths, default=0) or 1
        lines: list[Line] = []
        for index, row in enumerate(rows):
            idle = by_rate and not row.rate
            shown = "chosen" if index == chosen else "dim" if idle else "key"
            line: Line = [(self.glyphs.fit(row.key, key_width) + " ", shown)]
            text = self.glyphs.fit(row.text, value_width, right=row.number is not None)
            line.append((text, "dim" if idle else "number"))
            if rated:
                line.append((self.glyphs.fit(_rate(row.rate), rate_width, right=True), "dim" if idle else "rate"))
            if barred:
                line += [(" ", ""), (self.glyphs.bar(lengths[index] / most, bar_width), "bar")]
            lines.append(line)
        return lines


class Counters(Panel):
    """Numbers of maps without keys: value, rate, and the past as a sparkline."""

    def __init__(self, data: MapData, printers: Printers, glyphs: Glyphs) -> None:
        super().__init__(data, printers, glyphs)
        self.past: deque[float] = deque(maxlen=HISTORY)
        """What the sparkline shows: the rate of what adds up, else the value."""

    def update(self, data: MapData, others: int, moment: float) -> None:
        """Take the state of the map at *moment*."""
        super().update(data, others, moment)
        value = self.entries.get(None)
        if value is None:
            self.past.append(0.0)
        elif isinstance(self.type, types.SUMS):
            self.past.append(max(self.rates.get(None, 0.0), 0.0))
        else:
            self.past.append(float(max(self._rank(value), 0)))

    def line(self, name_width: int, value_width: int, width: int) -> Line:
        """The counter on one line."""
        text = self.value_text(self.entries[None]) if None in self.entries else "-"
        line: Line = [(self.glyphs.fit(self.title, name_width) + " ", "key")]
        line.append((self.glyphs.fit(text, value_width, right=True), "number"))
        line.append((self.glyphs.fit(_rate(self.rates.get(None)), 9, right=True), "rate"))
        rest = width - name_width - value_width - 11
        if rest > 0:
            line += [(" ", ""), (self.glyphs.sparkline(list(self.past), rest), "bar")]
        return line

    def shown(self) -> str:
        """The value as text."""
        return self.value_text(self.entries[None]) if None in self.entries else "-"


def counter_lines(counters: list[Counters], width: int) -> list[Line]:
    """All counters below each other."""
    name_width = min(max(columns(item.title) for item in counters), max(width // 2, 1))
    value_width = max(columns(item.shown()) for item in counters)
    return [item.line(name_width, min(value_width, max(width - name_width - 11, 1)), width) for item in counters]


def _rate(rate: float | None) -> str:
    if rate is None:
        return ""
    return f"{quantity(rate)}/s" if rate <= 0 else f"+{quantity(rate)}/s"


def _one_line(text: bytes) -> str:
    """A text of several lines, as stacks have them, on one."""
    shown = text.decode("utf-8", "surrogateescape")
    if "\n" not in shown:
        return shown
    return " < ".join(line.strip() for line in shown.split("\n") if line.strip()) or "[no frames]"


def _key_form(data: MapData, printers: Printers) -> Callable[[Portable], bytes]:
    if data.key is None:
        return lambda _key: data.name.encode("utf-8", "surrogateescape")
    restore, text = printers.restored(data.key), printers.texts.key(data.key)
    return lambda key: text(restore(key))


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
