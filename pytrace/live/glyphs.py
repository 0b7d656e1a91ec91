"""Characters of the live view's pictures: bars, sparklines, cells of heat maps; ASCII where the terminal has no more.

Text of traced programs never reaches the terminal raw: control characters are escaped, and without Unicode everything
beyond ASCII.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import msgspec

from pytrace.base.control_characters import printable_text

_EIGHTHS = " ▏▎▍▌▋▊▉"
_HEIGHTS, _ASCII_HEIGHTS = "▁▂▃▄▅▆▇█", "_.:-=+*#"
_SHADES, _ASCII_SHADES = " ░▒▓█", " .:-=+*#%@"
LEVELS = 9
"""Roles ``heat0`` to ``heat8`` of cells of heat maps."""

Part = tuple[str, str]
"""A text and its role, which the view turns into a style."""
Line = list[Part]


class Glyphs(msgspec.Struct, frozen=True):
    """The characters that a terminal shows."""

    unicode: bool = True
    colour: bool = True

    @property
    def rule(self) -> str:
        """The character of horizontal lines."""
        return "─" if self.unicode else "-"

    def text(self, text: str) -> str:
        """*text* of a traced program or of a script, as it may reach the terminal: on one line."""
        shown = printable_text(text)
        return shown if self.unicode or shown.isascii() else shown.encode("ascii", "backslashreplace").decode()

    def bar(self, share: float, width: int) -> str:
        """A bar of *share* (0 … 1) of *width* columns; anything above 0 shows."""
        share = min(max(share, 0.0), 1.0)
        if not self.unicode:
            return ("#" * max(round(share * width), 1 if share > 0 else 0)).ljust(width)[:width]
        eighths = max(round(8 * share * width), 1 if share > 0 else 0)
        return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()).ljust(width)[:width]

    def sparkline(self, values: Sequence[float], width: int) -> str:
        """The last *width* values as heights, of the greatest of them."""
        heights = _HEIGHTS if self.unicode else _ASCII_HEIGHTS
        shown = values[-width:]
        most = max(shown, default=0)
        steps = [0 if most <= 0 else min(round(value / most * (len(heights) - 1)), len(heights) - 1) for value in shown]
        text = "".join(heights[max(step, 0)] if value > 0 else " " for step, value in zip(steps, shown, strict=True))
        return text.rjust(width)

    def cell(self, share: float) -> Part:
        """A cell of a heat map; *share* is 0 … 1. With colour its background says how much, without a character."""
        level = 0 if share <= 0 else 1 + min(int(share * (LEVELS - 1)), LEVELS - 2)
        if self.colour:
            return " ", f"heat{level}"
        shades = _SHADES if self.unicode else _ASCII_SHADES
        return shades[0 if not level else 1 + (level - 1) * (len(shades) - 2) // (LEVELS - 2)], ""

    def fit(self, text: str, width: int, *, right: bool = False, path: bool = False) -> str:
        """*text* in exactly *width* columns: truncated, paths in the middle, or filled with spaces."""
        if columns(text) > width:
            mark = "…" if self.unicode else "~"
            kept = max(width - 1, 0)
            # The end tells paths of one folder apart.
            ends = kept * 2 // 3 if path and kept > 3 else 0
            end = _cut(text[::-1], ends)[::-1]
            text = _cut(text, kept - columns(end)) + (mark if width else "") + end
        fill = " " * (width - columns(text))
        return fill + text if right else text + fill


def wrapped(text: str, width: int) -> list[str]:
    """*text* in lines of at most *width* columns, which is 2 or more."""
    lines = []
    while columns(text) > width:
        lines.append(_cut(text, width))
        text = text[len(lines[-1]) :]
    return [*lines, text]


def columns(text: str) -> int:
    """Columns of the terminal that a text takes, as East Asian Width says (UAX #11); marks take none."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _cut(text: str, width: int) -> str:
    """The first characters of a text that take at most *width* columns."""
    taken = 0
    for index, character in enumerate(text):
        taken += _columns(character)
        if taken > width:
            return text[:index]
    return text
