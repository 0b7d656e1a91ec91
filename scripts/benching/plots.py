"""Small plots as SVG: lines on logarithmic axes, with what they are named by beside their ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

Point = tuple[float, float]
WIDTH, HEIGHT = 460, 280
LEFT, RIGHT, TOP, BOTTOM = 64, 110, 34, 44
COLOURS = ("#1f6fb4", "#c2571a", "#3a8a3a", "#7a4fa3")


@dataclass(frozen=True)
class Plot:
    """A plot: the name of its file, its title, what the axes show, and lines by their names."""

    name: str
    title: str
    x: str
    y: str
    lines: dict[str, list[Point]] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write it to the folder."""
        (folder / f"{self.name}.svg").write_text(self.svg(), encoding="utf-8")

    def svg(self) -> str:
        """The file's text."""
        points = [point for line in self.lines.values() for point in line]
        across, down = _Axis.of([x for x, _ in points]), _Axis.of([y for _, y in points])
        parts = [
            _HEAD,
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
            _text(LEFT, 18, self.title, "start", 'font-size="13" font-weight="bold"'),
            *_grid(across, down),
            _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, self.x, "middle"),
            _text(14, 0, self.y, "middle", f'transform="translate(0 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90 14 0)"'),
        ]
        ends: list[float] = []
        for (name, line), colour in zip(self.lines.items(), COLOURS, strict=False):
            parts += _line(name, line, colour, across, down, ends)
        return "\n".join([*parts, "</svg>\n"])


_HEAD = (
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
    'font-family="sans-serif" font-size="11" fill="#333">'
)


@dataclass(frozen=True)
class _Axis:
    """A logarithmic axis: the powers of ten that it begins and ends with."""

    first: float
    last: float

    @classmethod
    def of(cls, values: Sequence[float]) -> _Axis:
        """One with room for all values."""
        first = math.floor(math.log10(min(values)) + 1e-9)
        last = math.ceil(math.log10(max(values)) - 1e-9)
        return cls(first, max(last, first + 1))

    def place(self, value: float, begin: float, end: float) -> float:
        """Where a value is between two places."""
        return begin + (end - begin) * (math.log10(value) - self.first) / (self.last - self.first)

    @property
    def marks(self) -> list[float]:
        """The powers of ten."""
        return [10.0**power for power in range(int(self.first), int(self.last) + 1)]


def _across(axis: _Axis, value: float) -> float:
    return axis.place(value, LEFT, WIDTH - RIGHT)


def _down(axis: _Axis, value: float) -> float:
    return axis.place(value, HEIGHT - BOTTOM, TOP)


def _grid(across: _Axis, down: _Axis) -> list[str]:
    parts = []
    for value in across.marks:
        x = _across(across, value)
        parts.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}" stroke="#ddd"/>')
        parts.append(_text(x, HEIGHT - BOTTOM + 15, _short(value), "middle"))
    for value in down.marks:
        y = _down(down, value)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(_text(LEFT - 6, y + 4, _short(value), "end"))
    return parts


def _line(name: str, line: list[Point], colour: str, across: _Axis, down: _Axis, ends: list[float]) -> list[str]:
    places = [(_across(across, x), _down(down, y)) for x, y in line]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in places]
    x, y = places[-1]
    while any(abs(y - other) < 12 for other in ends):
        y += 4
    ends.append(y)
    return [
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>',
        *dots,
        _text(max(x, WIDTH - RIGHT) + 6, y + 4, name, "start", f'fill="{colour}"'),
    ]


def _text(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{escape(text)}</text>'


def _short(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
