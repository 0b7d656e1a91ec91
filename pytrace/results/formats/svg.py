"""Format ``svg``: pictures that need no script, for documents and chats.

The question is the title, the answer stands above each picture: flame graphs, histograms, heat maps, time series,
tables and numbers.
"""

from __future__ import annotations

import math
import textwrap
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import BinaryIO
from xml.sax.saxutils import escape

import msgspec
from msgspec.structs import replace

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.core.text import printable_utf8
from pytrace.render import histogram
from pytrace.render.histogram import Histogram, LabelledBucket, Quantile
from pytrace.render.values import value_kind_of
from pytrace.results.difference import difference
from pytrace.results.findings import (
    Amounts,
    Stacks,
    amounts_of,
    changes,
    duration,
    histogram_lines,
    quantiles_text,
    readable,
    title_of,
    title_of_difference,
)
from pytrace.results.formats import about
from pytrace.results.formats.format_row import Content, WriteOptions, content
from pytrace.results.formats.portable_forms import Printers
from pytrace.results.formats.report_data import (
    Document,
    LinesPart,
    State,
    TablePart,
    at_end,
    buckets_added,
    cell_number,
    cell_text,
    counter_part,
    difference_part,
    is_number,
    map_part,
    of_prints,
    of_snapshots,
    rows_in_order,
    rows_part,
    series_part,
    shown_names,
    steps_of,
)
from pytrace.results.snapshot import Frame, MapData, Portable, Run, SnapshotData, Value
from pytrace.results.stack_samples import (
    INTERPRETED,
    KERNEL,
    MARK,
    USER,
    Profile,
    Sample,
    Text,
    is_profile,
    is_remainder,
    profiles,
    unlike,
)

LEAST_WIDTH, MOST_WIDTH = 200, 20_000


def write(snapshot: SnapshotData, options: WriteOptions, file: BinaryIO) -> None:
    """Write one picture: a panel for each map, below each other.

    Raises:
        TraceError: an option is not valid, or a number that has to be a width is negative.
    """
    drawing, style = _begun(options)
    heat = True if options.flag("heat") else False if options.flag("bars") else None
    _head(drawing, title_of(snapshot), [snapshot])
    names = [name for name, data in sorted(snapshot.shown.items()) if not is_remainder(data, snapshot)]
    maps = [at_end(name, snapshot) for name in names]
    single = [data for data in maps if data.key is None and content(data) is Content.NUMBERS and data.entries]
    for data in single:
        _number(drawing, data)
    drawing.height += GAP if single else 0
    for data in (data for data in maps if data not in single):
        _panel(drawing, snapshot, data, style, heat=heat)
    for number, table in enumerate(snapshot.tables, 1):
        rows = [row for run in snapshot.runs for row in table.rows.get(run.identity, ())]
        document = Document(snapshot.runs)
        title = "" if len(snapshot.tables) == 1 else f"rows {number}"
        _draw_table(drawing, document, rows_part(document, Printers(), table, rows, title))
    _losses(drawing, snapshot)
    file.write(drawing.element().encode())


def _panel(drawing: Drawing, snapshot: SnapshotData, data: MapData, style: Options, *, heat: bool | None) -> None:
    """A map, in the picture of its kind."""
    kind = content(data)
    states = of_prints(data.name, snapshot) if kind is Content.HISTOGRAMS and heat is None else []
    if states:
        _over_time(drawing, states)
    elif kind is Content.HISTOGRAMS:
        draw_histograms(drawing, data, Printers().portable_text, heat=heat)
    elif kind is Content.STACKS:
        _flames(drawing, data, None, style, snapshot.runs[-1] if snapshot.runs else None)
    elif kind is Content.SERIES:
        document = Document()
        _draw_lines(drawing, document, series_part(document, Printers(), data))
    elif data.entries:
        document = Document()
        _draw_table(drawing, document, map_part(document, Printers(), data))


def _number(drawing: Drawing, data: MapData) -> None:
    (value,) = data.entries.values()
    document = Document()
    part = map_part(document, Printers(), data)
    names = document.texts.all()
    texts = [
        f"{names[name]} {cell_text(names, (name, unit, number, title), cell)}"
        for (name, unit, number, title), cell in zip(part.columns, part.rows[0], strict=True)
    ]
    assert value is not None
    drawing.line(", ".join(texts), "h")


def differential(before: SnapshotData, after: SnapshotData, options: WriteOptions) -> bytes:
    """Differential flame graphs of the maps of stacks: as wide as *after*, coloured by what changed.

    Raises:
        TraceError: as :func:`write`, or no map differs and none is of stacks.
    """
    drawing, style = _begun(options)
    _head(drawing, title_of_difference(before, after), [before, after])
    for note in options.notes:
        drawing.line(note)
    earlier, later = ({data.title: data for data in _stacks(side)} for side in (before, after))
    shown = {*before.shown, *after.shown} - {data.name for data in (*earlier.values(), *later.values())}
    others = {name: change for name, change in difference(before, after).maps.items() if name in shown}
    if not earlier and not later and not others:
        raise TraceError(
            "format svg compares maps of numbers, and neither snapshot has one that differs",
            hints=("without -f the differences are printed as text",),
        )
    for name in sorted({*earlier, *later}):
        new = later.get(name) or replace(earlier[name], entries={})
        old = earlier.get(name) or replace(new, entries={})
        _flames(drawing, new, old, style, after.runs[-1] if after.runs else None)
    for name, change in sorted(others.items()):
        document = Document()
        if is_number(change.value):
            _draw_table(drawing, document, difference_part(document, Printers(), change))
        else:
            drawing.line(f"{name} differs; pictures compare numbers only", "q")
    _losses(drawing, after)
    return drawing.element().encode()


def series(snapshots: Sequence[SnapshotData], options: WriteOptions) -> bytes:
    """Histograms of several snapshots as heat maps of time × bucket, one for each key; numbers as lines; of all others
    the last snapshot.

    Raises:
        TraceError: as :func:`write`, or none of the snapshots has a map.
    """
    ordered = sorted(snapshots, key=lambda snapshot: snapshot.end)
    last = ordered[-1]
    drawing, style = _begun(options)
    _head(drawing, title_of(last), [last], len(ordered))
    shown = 0
    for name in shown_names(ordered):
        states = (of_prints(name, last) if name in last.maps else []) or of_snapshots(name, ordered)
        data = states[-1].data
        if content(data) is Content.HISTOGRAMS:
            _over_time(drawing, states)
        elif content(data) is Content.STACKS:
            drawing.line("as of the last snapshot:", "q")
            _flames(drawing, data, None, style, last.runs[-1] if last.runs else None)
        elif is_number(data.value):
            document = Document()
            _draw_lines(drawing, document, counter_part(document, Printers(), states))
        else:
            _panel(drawing, last, data, style, heat=None)
        shown += 1
    if not shown:
        raise TraceError("format svg shows maps over time, and none of the snapshots has one")
    _losses(drawing, last)
    return drawing.element().encode()


_SECOND = 1_000_000_000
_DAY = 86_400 * _SECOND


def _over_time(drawing: Drawing, states: Sequence[State]) -> None:
    """A heat map for each key of a map, those that counted most."""
    data = states[-1].data
    assert isinstance(data.value, types.Hist | types.LHist)
    ends = [state.end for state in states]
    days = len({end // _DAY for end in ends}) > 1
    times = [time.strftime(f"{'%m-%d ' if days else ''}%H:%M:%S", time.gmtime(end // _SECOND)) for end in ends]
    if any(end - before < _SECOND for before, end in pairwise(ends)):
        times = [f"{text}.{end // 1_000_000 % 1000:03d}" for text, end in zip(times, ends, strict=True)]
    form = None if data.key is None else Printers().portable_text(data.key)
    rows: list[tuple[int, str, list[Mapping[int, int]]]] = []
    for key in {key: None for state in states for key in state.data.entries}:
        steps = [_counts(step) for step in steps_of(states, key, buckets_added)]
        text = "" if form is None else f"[{form(key).decode('utf-8', 'surrogateescape').strip()}]"
        rows.append((sum(sum(step.values()) for step in steps), f"{data.title}{text}", steps))
    rows.sort(key=lambda row: (-row[0], row[1]))
    for _, title, steps in rows[:MOST_CHARTS]:
        draw_over_time(drawing, title, data, list(zip(times, steps, strict=True)))
    if rows[MOST_CHARTS:]:
        drawing.line(f"… and {len(rows) - MOST_CHARTS} more keys, which counted less", "q")


def _counts(step: Value | None) -> Mapping[int, int]:
    return {number: count for number, count in step.items() if isinstance(count, int)} if isinstance(step, dict) else {}


def _begun(options: WriteOptions) -> tuple[Drawing, Options]:
    text = options.settings.get("width", str(WIDTH))
    if not text.isdecimal() or not LEAST_WIDTH <= int(text) <= MOST_WIDTH:
        raise TraceError(f"option width of format svg is {LEAST_WIDTH} … {MOST_WIDTH} pixels, not {text!r}")
    style = Options(
        flame=options.flag("flame"),
        reversed=options.flag("reversed"),
        color=options.settings.get("color", COLORED_BY[0]),
    )
    style.check()
    return Drawing(int(text)), style


def _without_labels(profile: Profile, positions: Collection[int]) -> Profile:
    """A profile without some of the labels, by their number."""
    samples = [
        sample._replace(labels=tuple([label for at, label in enumerate(sample.labels) if at not in positions]))
        for sample in profile.samples
    ]
    return replace(profile, samples=samples)


def _findings_of(data: MapData, run: Run) -> list[str]:
    """As :func:`findings`, of one map."""
    if data.entries and is_profile(data):
        return Stacks(data, run).lines()
    return histogram_lines(data) if data.entries and isinstance(data.value, types.Hist | types.LHist) else []


def _flames(drawing: Drawing, data: MapData, before: MapData | None, style: Options, run: Run | None) -> None:
    """The answer and the flame graph of a map of stacks; with *before* a differential one."""
    (profile,) = profiles([data], Printers().portable_text)
    earlier = None
    if before is not None:
        (earlier,) = profiles([before], Printers().portable_text)
        other = unlike(*[[sample.labels for sample in side.samples] for side in (earlier, profile)])
        profile, earlier = _without_labels(profile, other), _without_labels(earlier, other)
    note = ""
    at = data.slice_column
    if at is not None and profile.samples:
        stacks = sum(isinstance(column.type, types.Stack) for column in data.key_columns[:at])
        profile = _without_labels(profile, [at - stacks])
        earlier = earlier and _without_labels(earlier, [at - stacks])
    if profile.samples and profile.samples[0].labels:
        columns = enumerate(zip(data.key_columns, data.key_titles, strict=True))
        titles = [
            title for number, (column, title) in columns if number != at and not isinstance(column.type, types.Stack)
        ]
        profile, earlier, note = _by_one_label(profile, earlier, titles)
    for measure, of in enumerate(profile.measures):
        amounts = Amounts(of.unit.replace("count", "")) if run is None or of.part else amounts_of(data, run)
        if of.part:
            lines = []
        elif before is not None:
            lines = changes(Stacks(data, run, before))
        else:
            lines = _findings_of(data, run) if run is not None else []
        name = f"{profile.name} ({of.part})" if of.part else profile.name
        if lines:
            drawing.line(f"{name}: {lines[0]}", "h")
        for line in lines[1:]:
            drawing.line(line)
        if note:
            drawing.line(note, "q")
        draw_flames(drawing, profile, measure, style, earlier, amounts=amounts, titled=not lines)


def _by_one_label(
    profile: Profile, earlier: Profile | None, titles: Sequence[str]
) -> tuple[Profile, Profile | None, str]:
    """The samples by the first member of their keys that differs; and a sentence on those that are the same in all."""
    samples = [*profile.samples, *(earlier.samples if earlier is not None else ())]
    found = list(zip(*(sample.labels for sample in samples), strict=True))
    differ = [at for at, labels in enumerate(found) if len({label.text for label in labels}) > 1]
    # Of a comparison some have been left out; a text in quotes is its own title.
    known = titles if len(titles) == len(found) else [""] * len(found)
    same = ", ".join(
        f"{known[at]} {labels[0].text}".lstrip()
        for at, labels in enumerate(found)
        if at not in differ and labels[0].text != known[at]
    )
    left_out = [at for at in range(len(found)) if at not in differ[:1]]
    sides = [None if side is None else _without_labels(side, left_out) for side in (profile, earlier)]
    assert sides[0] is not None
    return sides[0], sides[1], f"all of {same}" if same else ""


def _stacks(snapshot: SnapshotData) -> Sequence[MapData]:
    return [data for data in snapshot.shown.values() if content(data) is Content.STACKS]


def _head(drawing: Drawing, title: str, snapshots: Sequence[SnapshotData], states: int = 1) -> None:
    drawing.title(title)
    for snapshot in snapshots:
        for run in snapshot.runs[:1]:
            more = f" and {len(snapshot.runs) - 1} more runs" if len(snapshot.runs) > 1 else ""
            took = duration((snapshot.end - snapshot.start) / 1e9)
            several = f", {states} snapshots" if states > 1 else ""
            drawing.line(f"{took} on {run.host}{more}, from {about.moment(snapshot.start)}{several}", "q")
    drawing.height += GAP / 2


def _losses(drawing: Drawing, snapshot: SnapshotData) -> None:
    for line in about.losses(snapshot):
        drawing.line(line)


# ---------------------------------------------------------------------------------------------- drawing


_BOLD = 1.08
"""Most width of a bold character, in widths of others."""
WIDTH = 1200
"""Width of a picture in pixels."""
FONT, TITLE = 12, 18
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
    f".pytrace .t{{font:bold {TITLE}px system-ui,'DejaVu Sans',sans-serif}}"
    ".pytrace .h{font-weight:bold}.pytrace .q{fill:#555}.pytrace .n{paint-order:stroke;stroke:#fff;stroke-width:3px}"
    ".pytrace rect:hover{stroke:#000;stroke-width:1}"
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

    def title(self, text: str) -> None:
        """The question of the picture, on at most two lines."""
        most = int((self.width - 2 * MARGIN) / (CHARACTER * TITLE / FONT * _BOLD))
        lines = textwrap.wrap(text, max(most, 3), max_lines=2, placeholder=" …")
        for line in lines:
            self.height += TITLE + 4
            self.text(MARGIN, self.height - 5, line, "t")

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
    plain = printable_utf8(text.encode("utf-8", "surrogateescape")).decode()
    return escape(plain.replace("\ufffe", "\ufffd").replace("\uffff", "\ufffd"))


# ---------------------------------------------------------------------------------------------- flame graph


ROW = 17
"""Height of a box, in pixels."""
_LABEL, _USER, _KERNEL, _INTERPRETED, _MARK, _FOLD = "label", "user", "kernel", "interpreted", "mark", "fold"
_HUES = {_FOLD: (0, 0), _LABEL: (210, 12), _USER: (42, 88), _KERNEL: (14, 78), _INTERPRETED: (140, 45), _MARK: (0, 0)}
"""Hue and saturation, by the kind of a box."""
_KINDS = {
    _FOLD: "calls of one another",
    _LABEL: "other key", _USER: "user", _KERNEL: "kernel", _INTERPRETED: "interpreter", _MARK: "no function",
}  # fmt: skip
_KIND = {USER: _USER, KERNEL: _KERNEL, INTERPRETED: _INTERPRETED, MARK: _MARK}
"""Kinds of boxes by kind of frame."""
COLORED_BY = ("kind", "module")


class Options(msgspec.Struct, frozen=True):
    """How a flame graph is drawn."""

    flame: bool = False
    """The root is at the bottom."""
    reversed: bool = False
    """Callers are above their callees: from the innermost function to the root."""
    color: str = COLORED_BY[0]
    """``kind`` (user, kernel) or ``module``."""
    narrowest: float = 0.1
    """Pixels: narrower boxes are not drawn, as nobody sees them."""
    most_rows: int = 0
    """Maximum boxes above each other; 0: as many as the picture's shape has room for, and calls that only call the next
    one are folded where they do not fit."""

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


_ASPECT = 0.5
"""Most height of a flame graph, in widths of the picture."""
_FEWEST_FOLDED = 4


def draw_flames(
    drawing: Drawing,
    profile: Profile,
    measure: int,
    options: Options,
    earlier: Profile | None = None,
    *,
    amounts: Amounts | None = None,
    titled: bool = True,
) -> None:
    """Append a flame graph of one measure of a profile; with *earlier* a differential one.

    *amounts* makes texts of numbers; *titled*: with a line of its name and total.

    Raises:
        TraceError: a number is negative, which has no width.
    """
    root = _Box("all", _LABEL)
    _grow(root, profile, measure, options, earlier=False)
    if earlier is not None:
        _grow(root, earlier, measure, options, earlier=True)
    part = profile.measures[measure]
    amounts = amounts or Amounts(part.unit if part.unit != "count" else "")
    name = f"{profile.name} ({part.part})" if part.part else profile.name
    if titled:
        before = f", before {amounts.full(root.before)}" if earlier is not None else ""
        drawing.line(f"{name}: {amounts.full(root.after)}{before}", "h")
    scale = (drawing.width - 2 * MARGIN) / root.after if root.after else 0
    room = options.most_rows or int(drawing.width * _ASPECT / ROW)
    boxes, hidden = _placed(root, scale, options, options.most_rows)
    depth = max((row for row, _, _ in boxes), default=0)
    if depth >= room:
        boxes, hidden = _placed(_folded(root), scale, options, room)
        depth = max((row for row, _, _ in boxes), default=0)
    top = drawing.height + 4
    for row, x, box in boxes:
        y = top + ROW * (depth - row if options.flame else row)
        width = box.after * scale
        color = _color(box, options) if earlier is None else _change_color(box, root)
        drawing.box(MARGIN + x, y, max(width - 0.4, 0.1), ROW - 1, color, _title(box, root, amounts, earlier))
        shown = fitted(box.name, width - 6)
        if shown:
            drawing.text(MARGIN + x + 3, y + ROW - 5, shown)
    drawing.height = top + ROW * (depth + 1)
    if depth + 1 == room:
        drawing.line(f"… only the {room} outermost frames are drawn", "q")
    if hidden:
        drawing.line(f"… and {hidden} more functions, each narrower than {options.narrowest:g} pixels", "q")
    _legend(drawing, boxes, options, compared=earlier is not None)
    drawing.height += GAP


def _folded(root: _Box) -> _Box:
    """A tree in which calls that hardly do anything but call the next one are one box."""
    waiting = [root]
    while waiting:
        box = waiting.pop()
        for name, callee in list(box.called.items()):
            chain = [callee]
            while len(chain[-1].called) == 1 or chain[-1].called:
                widest = max(chain[-1].called.values(), key=lambda one: (one.after, one.before))
                if widest.after < _PASSED_ON * chain[-1].after or widest.kind != callee.kind or not widest.called:
                    break
                chain.append(widest)
            if len(chain) >= _FEWEST_FOLDED:
                text = f"⋯ {len(chain)} calls: {callee.name} … {chain[-1].name}"
                lines = "\n".join(one.name for one in chain[:_MOST_NAMED])
                box.called[name] = _Box(text, _FOLD, "", lines, callee.before, callee.after, chain[-1].called)
        waiting += box.called.values()
    return root


_PASSED_ON = 0.97
_MOST_NAMED = 20


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
_FUNCTION = 3
"""Of them those that tell functions apart."""


def _paths(profile: Profile, options: Options) -> dict[tuple[_Step, ...], tuple[int, ...]]:
    """Numbers by path from the root; entries that draw alike are joined as the map joins them."""
    paths: dict[tuple[_Step, ...], tuple[int, ...]] = {}
    for sample in profile.samples:
        frames = list(_steps(sample))
        if options.reversed:
            frames.reverse()
        # As in reports, a function that calls itself is one frame, with the line of the outermost call.
        frames = [step for at, step in enumerate(frames) if not at or frames[at - 1][:_FUNCTION] != step[:_FUNCTION]]
        path = (*((label.text or "(none)", _LABEL, "", "") for label in sample.labels), *frames)
        known = paths.get(path)
        paths[path] = sample.values if known is None else tuple(map(profile.join, known, sample.values))
    return paths


def _steps(sample: Sample) -> Iterator[_Step]:
    for name, frame, kind in zip(sample.names, sample.frames, sample.kinds, strict=True):
        yield name, _KIND[kind], frame.module, _source(frame)


def _source(frame: Frame) -> str:
    inlined = " (inlined)" if frame.inlined else ""
    return f"{frame.file}:{frame.line}{inlined}" if frame.file else inlined.strip()


def _placed(root: _Box, scale: float, options: Options, most_rows: int) -> tuple[list[tuple[int, float, _Box]], int]:
    """Row, left edge and box of all that are wide enough, each after its caller; and how many next to them are not."""
    waiting = [(0, 0.0, root)]
    placed = []
    hidden = 0
    while waiting:
        row, x, box = waiting.pop()
        placed.append((row, x, box))
        if row + 1 == most_rows:
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


def _title(box: _Box, root: _Box, amounts: Amounts, earlier: Profile | None) -> str:
    share = f", {100 * box.after / root.after:.2f}%" if root.after else ""
    number = f"{amounts.full(box.after)}{share}"
    if earlier is not None:
        change = box.after - box.before
        percent = f", {100 * change / box.before:+.1f}%" if box.before else ""
        number += f", before {amounts.full(box.before)} ({'+' if change > 0 else ''}{amounts.short(change)}{percent})"
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
        x += 2 * ROW + len(_KINDS[kind]) * CHARACTER
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
    entries = sorted(_entries(data, data.value, text), key=lambda entry: entry.total, reverse=True)
    if heat if heat is not None else len(entries) > HEAT_FROM:
        shown = sorted(entries[:MOST_COLUMNS], key=lambda entry: entry.order)
        _heat_map(drawing, data.title, data.unit, form, shown)
    else:
        shown = entries[:MOST_CHARTS]
        for entry in shown:
            key = f"[{entry.key}]" if data.key is not None else ""
            _bars(drawing, f"{data.title}{key}", data.unit, form, entry)
    if len(shown) < len(entries):
        drawing.line(f"… and {len(entries) - len(shown)} more keys, which counted less", "q")


def draw_over_time(
    drawing: Drawing, title: str, data: MapData, moments: Sequence[tuple[str, Mapping[int, int]]]
) -> None:
    """Append a heat map of what a histogram counted in each of several intervals, by bucket; *moments* are their ends.

    Of many intervals neighbours are one column.
    """
    type_ = data.value
    assert isinstance(type_, types.Hist | types.LHist)
    group = -(-len(moments) // MOST_COLUMNS)
    entries = []
    for start in range(0, len(moments), group):
        part = moments[start : start + group]
        every = [histogram.all_buckets(type_, counts) for _, counts in part]
        counts = [sum(column) for column in zip(*every, strict=True)]
        entries.append(_Entry((start, ""), part[-1][0], counts, sum(counts)))
    axes = "time (UTC, the end of each interval) × buckets"
    _heat_map(drawing, title, data.unit, histogram.shape(type_), entries, axes, widest=math.inf)


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


def _bars(drawing: Drawing, name: str, unit: str, form: histogram.Shape, entry: _Entry) -> None:
    buckets = list(histogram.used(form, entry.counts))
    drawing.line(f"{name}: {quantiles_text(form, entry.counts, unit) if entry.total else 0}", "h")
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
    drawing.rule(MARGIN, bottom, MARGIN + step * len(buckets), bottom, "#888")
    marks: dict[int, list[str]] = {}
    for item in histogram.quantiles(form, entry.counts, _PERCENTS):
        place = _position(buckets, item)
        if place is not None:
            marks.setdefault(place, []).append(f"p{item.percent}")
    for place in marks:
        x = MARGIN + (place + 0.5) * step
        drawing.rule(x, top, x, bottom, "#c33", "3 3")
    for position, bucket in enumerate(buckets):
        if step >= CHARACTER * len(str(bucket.count)):
            y = bottom - _CHART * bucket.count / most - 3
            drawing.text(MARGIN + (position + 0.5) * step, y, str(bucket.count), "q n", "middle")
    _bounds(drawing, buckets, step, bottom + FONT + 2)
    drawing.height = bottom + FONT + 6
    places = ", ".join(f"{' and '.join(names)} {buckets[place].label}" for place, names in sorted(marks.items()))
    drawing.line(f"{f'in {unit}; ' if unit else ''}dashed: {places}", "q")
    drawing.height += GAP


def _bounds(drawing: Drawing, buckets: Sequence[LabelledBucket], step: float, y: float) -> None:
    """Labels below the bars, as many as have room."""
    widest = max(len(bucket.label) for bucket in buckets) * CHARACTER
    every = max(1, math.ceil((widest + 6) / step))
    for position in range(0, len(buckets), every):
        _label(drawing, MARGIN + position * step, y, buckets[position].label)


def _label(drawing: Drawing, x: float, y: float, text: str) -> None:
    """A label of an axis, which ends within the picture."""
    most = drawing.width - MARGIN
    if x + len(text) * CHARACTER <= most:
        drawing.text(x, y, text, "q")
    else:
        drawing.text(most, y, text, "q", "end")


def _position(buckets: Sequence[LabelledBucket], item: Quantile) -> int | None:
    """The number of the bucket that holds a quantile."""
    for position, bucket in enumerate(buckets):
        if bucket.low == item.low and (None if bucket.high is None else bucket.high - 1) == item.high:
            return position
    return None


# ---------------------------------------------------------------------------------------------- heat map


def _heat_map(
    drawing: Drawing,
    name: str,
    unit: str,
    form: histogram.Shape,
    entries: Sequence[_Entry],
    axes: str = "keys × buckets",
    widest: float = 60.0,
) -> None:
    """Keys or times from left to right, buckets from the least at the bottom; the darker, the more (logarithmic)."""
    merged = [sum(counts) for counts in zip(*(entry.counts for entry in entries), strict=True)]
    labels = [bucket.label for bucket in histogram.used(form, merged)]
    first = next((number for number, count in enumerate(merged) if count), 0)
    most = max((max(entry.counts) for entry in entries), default=0)
    drawing.line(f"{name}: {quantiles_text(form, merged, unit) if most else 0}", "h")
    if not most:
        return
    left, top = MARGIN + _LABELS, drawing.height + 4
    step = min(widest, (drawing.width - left - MARGIN) / len(entries))
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
    longest = max(len(entry.key) for entry in entries[:MOST_COLUMNS]) * CHARACTER
    every = max(1, math.ceil((min(longest, 240) + 12) / step))
    for column in range(0, len(entries), every):
        if column and left + column * step + min(longest, 240) > drawing.width - MARGIN + every * step - longest:
            break  # moved to the left, it would run into the one before
        _label(drawing, left + column * step, bottom + FONT + 2, fitted(entries[column].key, every * step - 6))
    drawing.height = bottom + FONT + 6
    drawing.line(f"{axes}{f' in {unit}' if unit else ''}", "q")
    _color_scale(drawing, most)
    drawing.height += GAP


def _color_scale(drawing: Drawing, most: int) -> None:
    """The colours of counts, from 1 to the most that a cell has."""
    drawing.height += 4
    counts = sorted({round(most ** (at / 5)) for at in range(6)})
    x = float(MARGIN)
    for count in counts:
        drawing.box(x, drawing.height, 2 * ROW, ROW - 5, _heat(count, most), f"{count} in a cell")
        drawing.text(x + 2 * ROW + 3, drawing.height + ROW - 7, f"{count:,}", "q")
        x += 2 * ROW + 10 + CHARACTER * len(f"{count:,}")
    drawing.text(x, drawing.height + ROW - 7, "values in a cell", "q")
    drawing.height += ROW


def _heat(count: int, most: int) -> str:
    """Light yellow to dark red by the logarithm of the count."""
    share = math.log1p(count) / math.log1p(most)
    return f"hsl({55 - 50 * share:.0f},{75 + 10 * share:.0f}%,{88 - 52 * share:.0f}%)"


# ---------------------------------------------------------------------------------------------- lines and tables


_MOST_LINES = 8
_MOST_ROWS = 25
_COLOURS = ("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2", "#db2777", "#65a30d")


def _draw_lines(drawing: Drawing, document: Document, part: LinesPart) -> None:
    """The time series of a map, those with most, and their legend."""
    names = document.texts.all()
    points = [
        [(time_, float(value)) for time_, value in zip(*line, strict=True) if value is not None] for line in part.lines
    ]
    order = sorted(range(len(points)), key=lambda at: -sum(value for _, value in points[at]))[:_MOST_LINES]
    every = [point for at in order for point in points[at]]
    title = names[part.name]
    if not every:
        drawing.line(f"{title}: 0", "h")
        return
    low, high = min(0.0, *(value for _, value in every)), max(value for _, value in every) or 1.0
    start, end = min(every)[0], max(every)[0]
    peak = max(every, key=lambda point: point[1])
    each = f"{part.of} of each {readable(part.interval, 's')}" if part.interval else part.of
    drawing.line(f"{title}: {f'{each}, ' if each else ''}highest {_plain(peak[1], part.unit)} at "
                 f"{about.moment(int(peak[0] * 1e9))}", "h")  # fmt: skip
    left, top, height = MARGIN + 90.0, drawing.height + FONT, float(_CHART)
    width = drawing.width - left - MARGIN
    for share in (0.0, 0.5, 1.0):
        y = top + height * (1 - share)
        drawing.rule(left, y, left + width, y, "#ccc")
        drawing.text(left - 6, y + 4, _plain(low + (high - low) * share, part.unit), "q", "end")
    for place, at in enumerate(order):
        line = " ".join(
            f"{left + width * (time_ - start) / ((end - start) or 1):.1f},"
            f"{top + height * (1 - (value - low) / ((high - low) or 1)):.1f}"
            for time_, value in points[at]
        )
        color = _COLOURS[place]
        drawing.parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="1.5"/>')
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        moment = about.moment(int((start + (end - start) * share) * 1e9))
        _label(drawing, left + width * share, top + height + FONT + 4, moment.split()[1])
    drawing.height = top + height + FONT + 8
    drawing.line("time (UTC)", "q")
    for place, at in enumerate(order if part.columns else []):
        key = ", ".join(cell_text(names, *item) for item in zip(part.columns, part.keys[at], strict=True))
        drawing.box(MARGIN, drawing.height + 5, ROW - 5, ROW - 5, _COLOURS[place], key)
        drawing.text(MARGIN + ROW, drawing.height + FONT + 3, fitted(key, drawing.width - 2 * MARGIN - ROW), "q")
        drawing.height += FONT + 4
    if len(order) < len(points):
        drawing.line(f"{len(order)} of {len(points)} shown, those with most", "q")
    drawing.height += GAP


def _plain(number: float, unit: str) -> str:
    return readable(number, unit) if unit else f"{number:,.0f}" if abs(number) >= 10 else f"{number:g}"


def _draw_table(drawing: Drawing, document: Document, part: TablePart) -> None:
    """The first rows of a table, those with most if it has an order, with bars."""
    names = document.texts.all()
    if names[part.name]:
        drawing.line(names[part.name], "h")
    rows = rows_in_order(part, names)
    heads = [names[title] for _, _, _, title in part.columns]
    shown = [
        [cell_text(names, *item, part.boot) for item in zip(part.columns, row, strict=True)]
        for row in rows[:_MOST_ROWS]
    ]
    widths = [max(map(len, column)) for column in zip(heads, *shown, strict=True)]
    measured = part.sort if part.sort >= 0 else _ranked(part)
    largest = max((abs(cell_number(row[measured])) for row in rows[:_MOST_ROWS]), default=0) if measured >= 0 else 0

    def line(cells: Sequence[str], style: str) -> None:
        texts = [
            f"{cell:>{width}}" if number else f"{cell:<{width}}"
            for cell, width, (_, _, number, _) in zip(cells, widths, part.columns, strict=True)
        ]
        drawing.line("  ".join(texts), style)

    line(heads, "h")
    bars = MARGIN + (sum(widths) + 2 * len(widths)) * CHARACTER + GAP
    room = drawing.width - MARGIN - bars
    for row, cells in zip(rows, shown, strict=False):
        line(cells, "")
        if largest and room > ROW:
            size = abs(cell_number(row[measured])) / largest
            drawing.box(bars, drawing.height - FONT - 1, max(1, room * size), FONT, _BAR, " ".join(cells))
    if len(rows) > len(shown):
        drawing.line(f"… and {len(rows) - len(shown)} more rows", "q")
    drawing.height += GAP


def _ranked(part: TablePart) -> int:
    """The column of numbers by which rows were printed, the largest first; -1: there is none."""
    for at, (_, _, number, _) in reversed(list(enumerate(part.columns))):
        sizes = [cell_number(row[at]) for row in part.rows] if number else []
        if len(sizes) > 1 and sizes[0] > sizes[-1] and sizes == sorted(sizes, reverse=True):
            return at
    return -1
