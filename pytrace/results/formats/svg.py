"""Format ``svg``: pictures that need no script, for documents and chats: flame graphs, histograms, heat maps."""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import BinaryIO
from xml.sax.saxutils import escape

import msgspec

from pytrace.core import byte_escapes, types
from pytrace.core.diagnostics import TraceError
from pytrace.render import histogram
from pytrace.render.histogram import Histogram, LabelledBucket, Quantile
from pytrace.render.values import value_kind_of
from pytrace.results.formats import about
from pytrace.results.formats.format_row import Content, WriteOptions, content
from pytrace.results.formats.portable_forms import Printers
from pytrace.results.report.data import State, at_end, buckets_added, of_prints, of_snapshots, shown_names, steps_of
from pytrace.results.snapshot import Frame, MapData, Portable, SnapshotData, Value
from pytrace.results.stack_samples import (
    INTERPRETED,
    KERNEL,
    MARK,
    USER,
    Profile,
    Sample,
    Text,
    profiles,
    unlike,
    without_labels,
)

LEAST_WIDTH, MOST_WIDTH = 200, 20_000


def write(snapshot: SnapshotData, options: WriteOptions, file: BinaryIO) -> None:
    """Write one picture: a panel for each map, below each other.

    Raises:
        TraceError: an option is not valid, or a number that has to be a width is negative.
    """
    drawing, style = _begun(options)
    heat = True if options.flag("heat") else False if options.flag("bars") else None
    _head(drawing, snapshot)
    for name in sorted(snapshot.shown):
        data = at_end(name, snapshot)
        if content(data) is Content.HISTOGRAMS and heat is None and (states := of_prints(data.name, snapshot)):
            _over_time(drawing, states)
        elif content(data) is Content.HISTOGRAMS:
            draw_histograms(drawing, data, Printers().portable_text, heat=heat)
        else:
            (profile,) = _profiles([data])
            _flames(drawing, profile, style, None)
    _losses(drawing, snapshot)
    file.write(drawing.element().encode())


def differential(before: SnapshotData, after: SnapshotData, options: WriteOptions) -> bytes:
    """Differential flame graphs of the maps of stacks: as wide as *after*, coloured by what changed.

    Raises:
        TraceError: as :func:`write`, or neither snapshot has a map of stacks.
    """
    drawing, style = _begun(options)
    _head(drawing, before)
    _head(drawing, after)
    earlier = {profile.name: profile for profile in _profiles(_stacks(before))}
    later = {profile.name: profile for profile in _profiles(_stacks(after))}
    if not earlier and not later:
        raise TraceError(
            "format svg compares maps of numbers by stack, and neither snapshot has one",
            hints=("without -f the differences are printed as text",),
        )
    for name in sorted({*earlier, *later}):
        old, new = earlier.get(name), later.get(name)
        known = new or old
        assert known is not None
        if old and new:
            other = unlike(*[[sample.labels for sample in side.samples] for side in (old, new)])
            old, new = without_labels(old, other), without_labels(new, other)
        empty = Profile(name, known.measures, [], known.join, known.text_labels)
        _flames(drawing, new or empty, style, old or empty)
    _losses(drawing, after)
    return drawing.element().encode()


def series(snapshots: Sequence[SnapshotData], options: WriteOptions) -> bytes:
    """Histograms of several snapshots as heat maps of time × bucket, one for each key; of stacks the last snapshot.

    Raises:
        TraceError: as :func:`write`, or none of the snapshots has a histogram or stacks.
    """
    ordered = sorted(snapshots, key=lambda snapshot: snapshot.end)
    last = ordered[-1]
    drawing, style = _begun(options)
    _head(drawing, last)
    drawing.line(f"{len(ordered)} snapshots", "q")
    shown = 0
    for name in shown_names(ordered):
        states = (of_prints(name, last) if name in last.maps else []) or of_snapshots(name, ordered)
        data = states[-1].data
        if content(data) is Content.HISTOGRAMS:
            _over_time(drawing, states)
        elif content(data) is Content.STACKS:
            drawing.line("as of the last snapshot:", "q")
            (profile,) = _profiles([data])
            _flames(drawing, profile, style, None)
        else:
            continue
        shown += 1
    if not shown:
        raise TraceError("format svg shows histograms over time, and none of the snapshots has one")
    _losses(drawing, last)
    return drawing.element().encode()


def _over_time(drawing: Drawing, states: Sequence[State]) -> None:
    """A heat map for each key of a map, those that counted most."""
    data = states[-1].data
    assert isinstance(data.value, types.Hist | types.LHist)
    times = [time.strftime("%H:%M:%S", time.gmtime(state.end // 1_000_000_000)) for state in states]
    form = None if data.key is None else Printers().portable_text(data.key)
    rows: list[tuple[int, str, list[Mapping[int, int]]]] = []
    for key in {key: None for state in states for key in state.data.entries}:
        steps = [_counts(step) for step in steps_of(states, key, buckets_added)]
        text = "" if form is None else f"[{form(key).decode('utf-8', 'surrogateescape').strip()}]"
        rows.append((sum(sum(step.values()) for step in steps), f"{data.title}{text}", steps))
    rows.sort(key=lambda row: (-row[0], row[1]))
    unit = f" ({data.unit})" if data.unit else ""
    for _, title, steps in rows[: MOST_CHARTS]:
        draw_over_time(drawing, f"{title}{unit}", data.value, list(zip(times, steps, strict=True)))
    if rows[MOST_CHARTS :]:
        drawing.line(f"… and {len(rows) - MOST_CHARTS} more keys, which counted less", "q")


def _counts(step: Value | None) -> Mapping[int, int]:
    return {number: count for number, count in step.items() if isinstance(count, int)} if isinstance(step, dict) else {}


def _begun(options: WriteOptions) -> tuple[Drawing, Options]:
    text = options.settings.get("width", str(WIDTH))
    if not text.isdecimal() or not LEAST_WIDTH <= int(text) <= MOST_WIDTH:
        raise TraceError(f"option width of format svg is {LEAST_WIDTH} … {MOST_WIDTH} pixels, not {text!r}")
    style = Options(
        icicle=options.flag("icicle"),
        reversed=options.flag("reversed"),
        color=options.settings.get("color", COLORED_BY[0]),
    )
    style.check()
    return Drawing(int(text)), style


def _flames(drawing: Drawing, profile: Profile, style: Options, earlier: Profile | None) -> None:
    for measure in range(len(profile.measures)):
        draw_flames(drawing, profile, measure, style, earlier)


def _profiles(maps: Iterable[MapData]) -> list[Profile]:
    return profiles(maps, Printers().portable_text)


def _stacks(snapshot: SnapshotData) -> Sequence[MapData]:
    return [data for data in snapshot.shown.values() if content(data) is Content.STACKS]


def _head(drawing: Drawing, snapshot: SnapshotData) -> None:
    for run in snapshot.runs[:1]:
        more = f" and {len(snapshot.runs) - 1} more runs" if len(snapshot.runs) > 1 else ""
        seconds = (snapshot.end - snapshot.start) / 1e9
        words = " ".join((run.script, *run.parameters))
        drawing.line(f"{words} on {run.host}{more}, {about.moment(snapshot.start)}, {seconds:.1f} s", "q")


def _losses(drawing: Drawing, snapshot: SnapshotData) -> None:
    for line in about.losses(snapshot):
        drawing.line(line)


# ---------------------------------------------------------------------------------------------- drawing


WIDTH = 1200
"""Width of a picture in pixels."""
FONT = 12
CHARACTER = 0.61 * FONT
"""Most width of a character of the font, in pixels."""
MARGIN = 10
GAP = 12
"""Pixels between panels."""
MOST_TITLE = 1000
"""Maximum characters of a tooltip."""

_STYLE = (
    f".pytrace text{{font:{FONT}px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
    "fill:#1a1a1a;white-space:pre}"
    ".pytrace .h{font-weight:bold}.pytrace .q{fill:#555}.pytrace rect:hover{stroke:#000;stroke-width:1}"
)


class Drawing(msgspec.Struct):
    """A picture that grows downwards; *height* is where the next panel begins."""

    width: int = WIDTH
    height: float = MARGIN
    parts: list[str] = []

    def line(self, text: str, style: str = "") -> None:
        """A line of text, truncated to the width of the picture."""
        self.height += FONT + 4
        self.text(MARGIN, self.height - 4, fitted(text, self.width - 2 * MARGIN), style)

    def text(self, x: float, y: float, text: str, style: str = "", anchor: str = "") -> None:
        """Text whose baseline begins at *x*, *y*, in a class of the style sheet; *anchor* as in SVG."""
        kind = f' class="{style}"' if style else ""
        place = f' text-anchor="{anchor}"' if anchor else ""
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}"{kind}{place}>{_escaped(text)}</text>')

    def box(self, x: float, y: float, width: float, height: float, color: str, title: str) -> None:
        """A filled rectangle with a tooltip."""
        self.parts.append(
            f'<rect x="{x:.2f}" y="{y:.1f}" width="{width:.2f}" height="{height:.1f}" fill="{color}">'
            f"<title>{_escaped(title[:MOST_TITLE])}</title></rect>"
        )

    def rule(self, x: float, y: float, to_x: float, to_y: float, color: str, dashes: str = "") -> None:
        """A straight line."""
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        self.parts.append(f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="{color}"{dashed}/>')

    def element(self) -> str:
        """The picture, on a white ground: it is read in documents and chats of any colour.

        Its style concerns nothing outside of it, as in HTML it would.
        """
        height = int(self.height) + MARGIN
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="pytrace" width="{self.width}" height="{height}" '
            f'viewBox="0 0 {self.width} {height}" role="img">\n<style>{_STYLE}</style>\n'
            f'<rect width="100%" height="100%" fill="#fff" style="stroke:none"/>\n'
        )
        return head + "\n".join(self.parts) + "\n</svg>\n"


def fitted(text: str, width: float) -> str:
    """Text that fits into *width* pixels, truncated with an ellipsis; empty where fewer than three characters fit."""
    most = int(width / CHARACTER)
    if len(text) <= most:
        return text
    return f"{text[: most - 1]}…" if most >= 3 else ""


def _escaped(text: str) -> str:
    """Text for XML, which has no control characters: they are shown as ``\\x1b``, and what it cannot hold is U+FFFD."""
    plain = byte_escapes.shown(text.encode("utf-8", "surrogateescape")).decode()
    return escape(plain.replace("\ufffe", "\ufffd").replace("\uffff", "\ufffd"))


# ---------------------------------------------------------------------------------------------- flame graph


ROW = 17
"""Height of a box, in pixels."""
_LABEL, _USER, _KERNEL, _INTERPRETED, _MARK = "label", "user", "kernel", "interpreted", "mark"
_HUES = {_LABEL: (210, 12), _USER: (42, 88), _KERNEL: (14, 78), _INTERPRETED: (140, 45), _MARK: (0, 0)}
"""Hue and saturation, by the kind of a box."""
_KINDS = {
    _LABEL: "other key", _USER: "user", _KERNEL: "kernel", _INTERPRETED: "interpreter", _MARK: "no function",
}  # fmt: skip
_KIND = {USER: _USER, KERNEL: _KERNEL, INTERPRETED: _INTERPRETED, MARK: _MARK}
"""Kinds of boxes by kind of frame."""
COLORED_BY = ("kind", "module")


class Options(msgspec.Struct, frozen=True):
    """How a flame graph is drawn."""

    icicle: bool = False
    """The root is at the top."""
    reversed: bool = False
    """Callers are above their callees: from the innermost function to the root."""
    color: str = COLORED_BY[0]
    """``kind`` (user, kernel) or ``module``."""
    narrowest: float = 0.1
    """Pixels: narrower boxes are not drawn, as nobody sees them."""
    most_rows: int = 0
    """Maximum boxes above each other; 0: any number."""

    def check(self) -> None:
        """Raise :class:`TraceError` for a colouring that there is not."""
        if self.color not in COLORED_BY:
            raise TraceError(f"option color of format svg is one of {', '.join(COLORED_BY)}, not {self.color!r}")


class _Box(msgspec.Struct):
    """A function at one call path; totals of it and of what it called. Without a comparison, *before* is 0."""

    name: str
    kind: str
    module: str = ""
    line: str = ""
    before: int = 0
    after: int = 0
    called: dict[tuple[str, str], _Box] = {}


def draw_flames(
    drawing: Drawing, profile: Profile, measure: int, options: Options, earlier: Profile | None = None
) -> None:
    """Append a flame graph of one measure of a profile; with *earlier* a differential one.

    Raises:
        TraceError: a number is negative, which has no width.
    """
    root = _Box("all", _LABEL)
    _grow(root, profile, measure, options, earlier=False)
    if earlier is not None:
        _grow(root, earlier, measure, options, earlier=True)
    part = profile.measures[measure]
    unit = f" {part.unit}" if part.unit and part.unit != "count" else ""
    name = f"{profile.name} ({part.part})" if part.part else profile.name
    drawing.line(f"{name}: {root.after}{unit}" + (f", before {root.before}{unit}" if earlier is not None else ""), "h")
    scale = (drawing.width - 2 * MARGIN) / root.after if root.after else 0
    boxes, hidden = _placed(root, scale, options)
    depth = max((row for row, _, _ in boxes), default=0)
    top = drawing.height + 4
    for row, x, box in boxes:
        y = top + ROW * (row if options.icicle else depth - row)
        width = box.after * scale
        color = _color(box, options) if earlier is None else _change_color(box, root)
        drawing.box(MARGIN + x, y, max(width - 0.4, 0.1), ROW - 1, color, _title(box, root, unit, earlier))
        shown = fitted(box.name, width - 6)
        if shown:
            drawing.text(MARGIN + x + 3, y + ROW - 5, shown)
    drawing.height = top + ROW * (depth + 1)
    if depth + 1 == options.most_rows:
        drawing.line(f"… only the {options.most_rows} outermost frames are drawn", "q")
    if hidden:
        drawing.line(f"… and {hidden} more functions, each narrower than {options.narrowest:g} pixels", "q")
    _legend(drawing, boxes, options, compared=earlier is not None)
    drawing.height += GAP


# ---------------------------------------------------------------------------------------------- tree


def _grow(root: _Box, profile: Profile, measure: int, options: Options, *, earlier: bool) -> None:
    for path, values in _paths(profile, options).items():
        value = values[measure]
        if value < 0:
            raise TraceError(
                f"a flame graph has no negative numbers, and {profile.name} has {value}",
                hints=("pytrace diff BEFORE AFTER -f svg compares two snapshots",),
            )
        box = root
        _add(box, value, earlier=earlier)
        for name, kind, module, line in path:
            box = box.called.setdefault((name, kind), _Box(name, kind, module, line))
            _add(box, value, earlier=earlier)


def _add(box: _Box, value: int, *, earlier: bool) -> None:
    if earlier:
        box.before += value
    else:
        box.after += value


_Step = tuple[str, str, str, str]
"""Name, kind, module and source line of a box."""


def _paths(profile: Profile, options: Options) -> dict[tuple[_Step, ...], tuple[int, ...]]:
    """Numbers by path from the root; entries that draw alike are joined as the map joins them."""
    paths: dict[tuple[_Step, ...], tuple[int, ...]] = {}
    for sample in profile.samples:
        frames = list(_steps(sample))
        if options.reversed:
            frames.reverse()
        path = (*((label.text, _LABEL, "", "") for label in sample.labels), *frames)
        known = paths.get(path)
        paths[path] = sample.values if known is None else tuple(map(profile.join, known, sample.values))
    return paths


def _steps(sample: Sample) -> Iterator[_Step]:
    for name, frame, kind in zip(sample.names, sample.frames, sample.kinds, strict=True):
        yield name, _KIND[kind], frame.module, _source(frame)


def _source(frame: Frame) -> str:
    inlined = " (inlined)" if frame.inlined else ""
    return f"{frame.file}:{frame.line}{inlined}" if frame.file else inlined.strip()


def _placed(root: _Box, scale: float, options: Options) -> tuple[list[tuple[int, float, _Box]], int]:
    """Row, left edge and box of all that are wide enough, each after its caller; and how many next to them are not."""
    waiting = [(0, 0.0, root)]
    placed = []
    hidden = 0
    while waiting:
        row, x, box = waiting.pop()
        placed.append((row, x, box))
        if row + 1 == options.most_rows:
            continue
        inner = []
        for _, callee in sorted(box.called.items()):
            if callee.after * scale >= options.narrowest:
                inner.append((row + 1, x, callee))
            else:
                hidden += callee.after > 0
            x += callee.after * scale
        waiting += reversed(inner)
    return placed, hidden


# ---------------------------------------------------------------------------------------------- colours, texts


def _title(box: _Box, root: _Box, unit: str, earlier: Profile | None) -> str:
    share = f", {100 * box.after / root.after:.2f}%" if root.after else ""
    number = f"{box.after}{unit}{share}"
    if earlier is not None:
        number += f", before {box.before}{unit} ({box.after - box.before:+d})"
    return "\n".join(filter(None, (f"{box.name}: {number}", box.line, box.module)))


def _color(box: _Box, options: Options) -> str:
    hue, saturation = _HUES[box.kind]
    if options.color == "module" and box.kind != _LABEL:
        hue, saturation = zlib.crc32(box.module.encode("utf-8", "surrogateescape")) % 360, 62
    # Neighbours differ by their names, and a function has one colour wherever it is.
    light = 62 + zlib.crc32(box.name.encode("utf-8", "surrogateescape")) % 16
    return f"hsl({hue},{saturation}%,{light}%)"


def _change_color(box: _Box, root: _Box) -> str:
    """White for no change; red and blue as strong as the change of the share of the whole, full from a tenth on."""
    before = box.before / root.before if root.before else 0.0
    after = box.after / root.after if root.after else 0.0
    strength = min(1.0, abs(after - before) * 10)
    hue = 4 if after > before else 216
    return f"hsl({hue},85%,{100 - 40 * strength:.0f}%)" if round(40 * strength) else "hsl(0,0%,96%)"


def _legend(drawing: Drawing, boxes: Sequence[tuple[int, float, _Box]], options: Options, *, compared: bool) -> None:
    if compared:
        drawing.line(
            "red: a larger share than before, blue: a smaller one; as wide as after, so what has gone is not drawn", "q"
        )
    elif options.color == "module":
        drawing.line("colours: modules", "q")
    else:
        kinds = dict.fromkeys(box.kind for _, _, box in boxes[1:])
        _swatches(drawing, kinds)


def _swatches(drawing: Drawing, kinds: Iterable[str]) -> None:
    drawing.height += 4
    x = float(MARGIN)
    for kind in kinds:
        hue, saturation = _HUES[kind]
        drawing.box(x, drawing.height, ROW - 5, ROW - 5, f"hsl({hue},{saturation}%,68%)", _KINDS[kind])
        drawing.text(x + ROW, drawing.height + ROW - 7, _KINDS[kind], "q")
        x += ROW + 90
    drawing.height += ROW


# ---------------------------------------------------------------------------------------------- histogram chart


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


def draw_histograms(
    drawing: Drawing, data: MapData, text: Callable[[types.Type], Text], *, heat: bool | None = None
) -> None:
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
