"""Flame graphs: functions as boxes above (or below) the functions that called them, as wide as their numbers."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from pytrace.core.diagnostics import TraceError
from pytrace.results.pictures.drawing import GAP, MARGIN, Drawing, fitted
from pytrace.results.stack_samples import INTERPRETED, KERNEL, MARK, USER, Profile, Sample
from pytrace.results.values import Frame

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


def draw(drawing: Drawing, profile: Profile, measure: int, options: Options, earlier: Profile | None = None) -> None:
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
