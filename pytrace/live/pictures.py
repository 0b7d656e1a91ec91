"""Panels of histograms and time series: bars, heat maps over time, sparklines."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Mapping

from pytrace.core import types
from pytrace.live import changes
from pytrace.live.changes import counts
from pytrace.live.glyphs import Glyphs, Line, columns
from pytrace.live.panels import HISTORY, Panel, Row, Selection
from pytrace.render import histogram
from pytrace.render.histogram import LabelledBucket
from pytrace.render.tseries import TimeSeries
from pytrace.results.formats.portable_forms import Printers
from pytrace.results.snapshot import MapData, Portable, Value

_PERCENTILES = ("50", "99")
_REMEMBERED = 50
"""Keys whose histograms are remembered over time: the greatest."""
_FEW = 4
"""Fewer lines are too few for bars of some buckets."""
_LABEL = 16
"""Columns of the label of a bucket."""


def added(before: Value | None, after: Value | None) -> dict[int, int]:
    """The counts that the buckets of a histogram gained; all of them if it was cleared in between."""
    old, new = counts(before), counts(after)
    gained = {number: new.get(number, 0) - old.get(number, 0) for number in {*new, *old}}
    if any(count < 0 for count in gained.values()):
        return new
    return {number: count for number, count in gained.items() if count}


class HistogramPanel(Panel):
    """Histograms: a list of keys with quantiles, and of one key bars or a heat map over time."""

    def __init__(
        self, data: MapData, printers: Printers, glyphs: Glyphs, period: float = 0.0, selection: Selection | None = None
    ) -> None:
        super().__init__(data, printers, glyphs, period, selection)
        assert isinstance(data.value, types.Hist | types.LHist)
        self._kind = data.value
        self._shape = histogram.shape(data.value)
        self._rank = lambda value: sum(changes.counts(value).values())
        self.heat = False
        """Whether the past is shown, in place of the sum."""
        self.past: deque[dict[Portable, dict[int, int]]] = deque(maxlen=HISTORY)
        """What the buckets of the greatest keys gained between two snapshots."""

    def update(self, data: MapData, others: int, moment: float, *, shown: bool = True) -> None:
        """Take the state of the map at *moment*."""
        before, known = self._latest.entries, bool(self._latest.time)
        super().update(data, others, moment, shown=shown)
        if known:
            kept = heapq.nlargest(_REMEMBERED, data.entries, key=lambda key: self._rank(data.entries[key]))
            self.past.append({key: added(before.get(key), data.entries.get(key)) for key in kept})

    def lines(self, width: int, height: int, *, focused: bool = False, zoomed: bool = False) -> list[Line]:
        """Keys, and the picture of the chosen one where there is room for it."""
        if self.empty:
            return []
        if self.key_type is None:
            return self._picture(None, width, height)
        listed = height
        if zoomed or height >= 2 * len(self.entries) + 8:
            listed = min(len(self.chosen()) + 1, max(height // 3, 1))
        lines = super().lines(width, listed, focused=focused)
        if listed == height:
            return lines
        key = self.top(self.cursor + 1)[-1][0]
        return [*lines, [(self.glyphs.rule * width, "dim")], *self._picture(key, width, height - listed - 1)]

    def table(self, rows: list[Row], width: int, chosen: int, *, headed: bool = False) -> list[Line]:
        """Rows as key, count, quantiles and the buckets as a sparkline."""
        texts, keys = [self._summary(row.value) for row in rows], [self.key_text(row.entry) for row in rows]
        summary_width = min(max(map(columns, texts)), max(width // 2, 1))
        rest = width - summary_width - 2
        title = ", ".join(self.keys) if headed else ""
        key_width = min(max(map(columns, (title, *keys))), max(rest // 2, 1))
        lines = self._headings([(title, key_width), ("values, quantiles", summary_width)]) * headed
        for index, (row, text) in enumerate(zip(rows, texts, strict=True)):
            key = self.glyphs.fit(keys[index], key_width, path="/" in keys[index])
            heights = self.glyphs.sparkline(self._heights(row.value), max(rest - key_width, 0))
            lines.append([
                (f"{key} ", "chosen" if index == chosen else "key"), (self.glyphs.fit(text, summary_width), "number"),
                (f" {heights}", "bar"),
            ])  # fmt: skip
        return lines

    def _heights(self, value: Value) -> list[float]:
        return [float(bucket.count) for bucket in self._used(changes.counts(value))]

    def _used(self, counts: Mapping[int, int]) -> list[LabelledBucket]:
        return list(histogram.used(self._shape, histogram.all_buckets(self._kind, counts)))

    def _summary(self, value: Value) -> str:
        """How many values, and their quantiles."""
        found = histogram.all_buckets(self._kind, changes.counts(value))
        texts = [
            f"p{item.percent} {'-' if item.value is None else item.value}"
            for item in histogram.quantiles(self._shape, found, _PERCENTILES)
        ]
        return f"{sum(found)}  {'  '.join(texts)}"

    # ---- pictures

    def _picture(self, key: Portable, width: int, height: int) -> list[Line]:
        """A picture of one key, with its quantiles above."""
        value = self.entries.get(key)
        heading: Line = [(self.glyphs.fit(f" {self._summary(value or {})}", width), "dim")]
        inside = max(height - 1, 1)
        picture = self._heat_map(key, width, inside) if self.heat else self._bars(value, width, inside)
        return [heading, *picture][:height]

    def _bars(self, value: Value | None, width: int, height: int) -> list[Line]:
        """The buckets from the first to the last that counted something, a line for each.

        Where not all fit, those with the most; where hardly any do, all on one line.
        """
        buckets = self._used(changes.counts(value))
        if not buckets:
            return []
        if len(buckets) > height:
            if height < _FEW:
                return self._flat(buckets, width)
            greatest = heapq.nlargest(height, range(len(buckets)), key=lambda index: buckets[index].count)
            buckets = [buckets[index] for index in sorted(greatest)]
        most = max(bucket.count for bucket in buckets) or 1
        count_width = len(str(most))
        bar_width = max(width - _LABEL - count_width - 2, 0)
        return [
            [
                (self.glyphs.fit(bucket.label, _LABEL) + " ", "key"),
                (str(bucket.count).rjust(count_width) + " ", "number"),
                (self.glyphs.bar(bucket.count / most, bar_width), "bar"),
            ]
            for bucket in buckets
        ]

    def _flat(self, buckets: list[LabelledBucket], width: int) -> list[Line]:
        """All buckets as a sparkline, with the labels of the first and the last."""
        counts = [float(bucket.count) for bucket in buckets]
        line: Line = [(f"{buckets[0].label} ", "key"), (self.glyphs.sparkline(counts, len(counts)), "bar")]
        line.append((f" {buckets[-1].label}", "key"))
        used = sum(columns(text) for text, _ in line)
        return [line] if used <= width else [[(self.glyphs.sparkline(counts, width), "bar")]]

    def _heat_map(self, key: Portable, width: int, height: int) -> list[Line]:
        """Time from left to right, now at the right; buckets from below, joined where there are more than lines."""
        steps = [step.get(key, {}) for step in self.past][-max(width - _LABEL - 1, 1) :]
        used = [number for step in steps for number in step]
        if not used:
            return [[(self.glyphs.fit(" nothing yet in the time that is shown", width), "dim")]]
        first, last = min(used), max(used)
        joined = math.ceil((last - first + 1) / height)
        rows = [range(start, min(start + joined, last + 1)) for start in range(first, last + 1, joined)]
        sums = [[sum(step.get(number, 0) for number in row) for step in steps] for row in rows]
        most = math.log1p(max(map(max, sums)))
        lines: list[Line] = []
        for row, values in zip(reversed(rows), reversed(sums), strict=True):
            line: Line = [(self.glyphs.fit(self._label(row), _LABEL) + " ", "key")]
            line.append((" " * max(width - _LABEL - 1 - len(values), 0), ""))
            line += [self.glyphs.cell(math.log1p(value) / most) for value in values]
            lines.append(line)
        return lines

    def _label(self, numbers: range) -> str:
        """The label of joined buckets: from the lower bound of the first to the upper one of the last."""
        first, last = (histogram.label(self._shape, number).decode().strip() for number in (numbers[0], numbers[-1]))
        if first == last:
            return first
        return f"{first.rstrip('])').partition(', ')[0]}, {last.rpartition(', ')[2].lstrip('[')}"


class SeriesPanel(Panel):
    """Time series: the last value of each key, and the series as a sparkline."""

    def __init__(
        self, data: MapData, printers: Printers, glyphs: Glyphs, period: float = 0.0, selection: Selection | None = None
    ) -> None:
        super().__init__(data, printers, glyphs, period, selection)
        assert isinstance(data.value, types.TSeries)
        self._series = data.value
        self._rank = lambda value: self._last(value) or 0

    def table(self, rows: list[Row], width: int, chosen: int, *, headed: bool = False) -> list[Line]:
        """Rows as key, last value, and sparkline: all series end with the last interval that any of them has."""
        keys = [self.key_text(row.entry) for row in rows]
        title = ", ".join(self.keys) if headed else ""
        key_width = min(max(map(columns, (title, *keys))), max(width // 3, 1))
        texts = ["-" if (last := self._last(row.value)) is None else str(last) for row in rows]
        value_width = max(map(len, ("last" if headed else "", *texts)))
        rest = max(width - key_width - value_width - 2, 0)
        end = max((max(self._values(value), default=0) for value in self.entries.values()), default=0)
        lines = self._headings([(title, key_width), ("last", value_width)]) * headed
        for index, (row, text) in enumerate(zip(rows, texts, strict=True)):
            values = self._values(row.value)
            numbers = range(end - min(rest, self._series.count) + 1, end + 1)
            points = [float(values.get(number, 0)) for number in numbers]
            lines.append([
                (self.glyphs.fit(keys[index], key_width) + " ", "chosen" if index == chosen else "key"),
                (text.rjust(value_width) + " ", "number"),
                (self.glyphs.sparkline(points, rest), "bar"),
            ])
        return lines

    def _values(self, value: Value) -> dict[int, int]:
        """Values by interval number, as they print."""
        items = value.items() if isinstance(value, dict) else ()
        return TimeSeries(self._series).printed_values(
            {number: item for number, item in items if isinstance(item, tuple)}
        )

    def _last(self, value: Value) -> int | None:
        values = self._values(value)
        return values[max(values)] if values else None
