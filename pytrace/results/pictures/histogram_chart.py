"""Histograms as bars with quantiles, and many of one map as a heat map: keys × buckets."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import msgspec

from pytrace.core import types
from pytrace.render import histogram
from pytrace.render.histogram import Histogram, LabelledBucket, Quantile
from pytrace.render.values import value_kind_of
from pytrace.results.pictures.drawing import CHARACTER, FONT, GAP, MARGIN, Drawing, fitted
from pytrace.results.snapshot import MapData
from pytrace.results.stack_samples import Text
from pytrace.results.values import Portable

MOST_CHARTS = 20
"""Maximum histograms of a map that are drawn as bars, those that counted most."""
HEAT_FROM = 8
"""Maps with more keys are heat maps, unless bars are asked for."""
MOST_COLUMNS = 400
"""Maximum keys of a heat map, those that counted most."""

_PERCENTS = ("50", "90", "99")
_BAR = "#4c78a8"
_CHART, _CELL = 150, 16
_LABELS = 22 * CHARACTER
"""Width of the labels of buckets."""


class _Entry(msgspec.Struct, frozen=True):
    """A key in its order and as text, and what it counted."""

    order: tuple[int, str]
    key: str
    counts: list[int]
    total: int


def draw(drawing: Drawing, data: MapData, text: Callable[[types.Type], Text], *, heat: bool | None = None) -> None:
    """Append the histograms of a map: bars for each key, or one heat map (*heat*; None: by the number of keys).

    *text* makes the text form of a type's values.
    """
    assert isinstance(data.value, types.Hist | types.LHist)
    form = histogram.shape(data.value)
    unit = f" ({data.unit})" if data.unit else ""
    entries = sorted(_entries(data, data.value, text), key=lambda entry: entry.total, reverse=True)
    if heat if heat is not None else len(entries) > HEAT_FROM:
        shown = sorted(entries[:MOST_COLUMNS], key=lambda entry: entry.order)
        _heat_map(drawing, f"{data.title}{unit}", form, shown)
    else:
        shown = entries[:MOST_CHARTS]
        for entry in shown:
            key = f"[{entry.key}]" if data.key is not None else ""
            _bars(drawing, f"{data.title}{key}{unit}", form, entry)
    if len(shown) < len(entries):
        drawing.line(f"… and {len(entries) - len(shown)} more keys, which counted less", "q")


def draw_over_time(
    drawing: Drawing, title: str, type_: types.Hist | types.LHist, moments: Sequence[tuple[str, Mapping[int, int]]]
) -> None:
    """Append a heat map of what a histogram counted in each of several intervals, by bucket; *moments* are their ends.

    Of many intervals neighbours are one column.
    """
    group = -(-len(moments) // MOST_COLUMNS)
    entries = []
    for start in range(0, len(moments), group):
        part = moments[start : start + group]
        every = [histogram.all_buckets(type_, counts) for _, counts in part]
        counts = [sum(column) for column in zip(*every, strict=True)]
        entries.append(_Entry((start, ""), part[-1][0], counts, sum(counts)))
    _heat_map(drawing, title, histogram.shape(type_), entries, "time (UTC, the end of each interval) × buckets")


def _entries(data: MapData, type_: types.Hist | types.LHist, text: Callable[[types.Type], Text]) -> list[_Entry]:
    form = None if data.key is None else text(data.key)
    restored = value_kind_of(type_).python()
    entries = []
    for key, value in data.entries.items():
        decoded = restored(value)
        assert isinstance(decoded, Histogram)
        name = "" if form is None else form(key).decode("utf-8", "surrogateescape").strip("\n")
        counts = histogram.all_buckets(type_, decoded.counts)
        entries.append(_Entry(_order(key, name), name, counts, sum(counts)))
    return entries


def _order(key: Portable, name: str) -> tuple[int, str]:
    """Numbers by their size, all else by the text."""
    return (key, "") if isinstance(key, int) else (0, name)


# ---------------------------------------------------------------------------------------------- bars


def _bars(drawing: Drawing, name: str, form: histogram.Shape, entry: _Entry) -> None:
    buckets = list(histogram.used(form, entry.counts))
    drawing.line(f"{name}: {entry.total}", "h")
    most = max((bucket.count for bucket in buckets), default=0)
    if not most:
        return
    top, bottom = drawing.height + 8 + FONT, drawing.height + 8 + FONT + _CHART
    step = min(48.0, (drawing.width - 2 * MARGIN) / len(buckets))
    for position, bucket in enumerate(buckets):
        height = _CHART * bucket.count / most
        x = MARGIN + position * step
        title = f"{bucket.label}: {bucket.count} ({100 * bucket.count / entry.total:.2f}%)"
        drawing.box(x, bottom - height, max(step - 1, 0.5), height, _BAR, title)
        if step >= CHARACTER * len(str(bucket.count)):
            drawing.text(x + step / 2, bottom - height - 3, str(bucket.count), "q", "middle")
    drawing.rule(MARGIN, bottom, MARGIN + step * len(buckets), bottom, "#888")
    _bounds(drawing, buckets, step, bottom + FONT + 2)
    drawing.height = bottom + FONT + 6
    quantiles = histogram.quantiles(form, entry.counts, _PERCENTS)
    for item in quantiles:
        place = _position(buckets, item)
        if place is not None:
            x = MARGIN + (place + 0.5) * step
            drawing.rule(x, top, x, bottom, "#c33", "3 3")
    texts = [" ".join(histogram.quantile_text(item).decode().split()) for item in quantiles]
    drawing.line(f"dashed: {', '.join(texts)}", "q")
    drawing.height += GAP


def _bounds(drawing: Drawing, buckets: Sequence[LabelledBucket], step: float, y: float) -> None:
    """Labels below the bars, as many as have room."""
    widest = max(len(bucket.label) for bucket in buckets) * CHARACTER
    every = max(1, math.ceil((widest + 6) / step))
    for position in range(0, len(buckets), every):
        drawing.text(MARGIN + position * step, y, buckets[position].label, "q")


def _position(buckets: Sequence[LabelledBucket], item: Quantile) -> int | None:
    """The number of the bucket that holds a quantile."""
    for position, bucket in enumerate(buckets):
        if bucket.low == item.low and (None if bucket.high is None else bucket.high - 1) == item.high:
            return position
    return None


# ---------------------------------------------------------------------------------------------- heat map


def _heat_map(
    drawing: Drawing, name: str, form: histogram.Shape, entries: Sequence[_Entry], axes: str = "keys × buckets"
) -> None:
    """Keys from left to right, buckets from the least at the bottom; the darker, the more (logarithmic)."""
    merged = [sum(counts) for counts in zip(*(entry.counts for entry in entries), strict=True)]
    labels = [bucket.label for bucket in histogram.used(form, merged)]
    first = next((number for number, count in enumerate(merged) if count), 0)
    most = max((max(entry.counts) for entry in entries), default=0)
    drawing.line(f"{name}: {sum(entry.total for entry in entries)}", "h")
    if not most:
        return
    left, top = MARGIN + _LABELS, drawing.height + 4
    step = min(24.0, (drawing.width - left - MARGIN) / len(entries))
    for row, label in enumerate(labels):
        y = top + (len(labels) - 1 - row) * _CELL
        drawing.text(left - 6, y + _CELL - 4, fitted(label, _LABELS - 6), "q", "end")
        for column, entry in enumerate(entries):
            count = entry.counts[first + row]
            if count:
                title = f"{entry.key}, {label}: {count} of {entry.total} ({100 * count / entry.total:.2f}%)"
                drawing.box(left + column * step, y, max(step - 0.5, 0.3), _CELL - 0.5, _heat(count, most), title)
    bottom = top + len(labels) * _CELL
    drawing.rule(left, bottom, left + step * len(entries), bottom, "#888")
    widest = max(len(entry.key) for entry in entries[:MOST_COLUMNS]) * CHARACTER
    every = max(1, math.ceil((min(widest, 240) + 12) / step))
    for column in range(0, len(entries), every):
        drawing.text(left + column * step, bottom + FONT + 2, fitted(entries[column].key, every * step - 6), "q")
    drawing.height = bottom + FONT + 6
    drawing.line(f"{axes}; darkest: {most} (logarithmic)", "q")
    drawing.height += GAP


def _heat(count: int, most: int) -> str:
    """Light yellow to dark red by the logarithm of the count."""
    share = math.log1p(count) / math.log1p(most)
    return f"hsl({55 - 50 * share:.0f},{75 + 10 * share:.0f}%,{88 - 52 * share:.0f}%)"
