"""The data of a report: what the page's program reads, as columns of numbers and one table of texts.

Numbers that a double of JavaScript cannot hold are written as texts, so that none is rounded on the way.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterable

import msgspec

from pytrace.core import byte_escapes
from pytrace.render.text import encoded
from pytrace.results.report.parts import AnyPart, Contents
from pytrace.results.snapshot import Run

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
    places: dict[tuple[int, int], int] = msgspec.field(default_factory=dict)
    """Source lines: file (a text) and line, with their numbers."""
    parts: list[AnyPart] = msgspec.field(default_factory=list)

    def text(self, text: str) -> int:
        """The number of a text of a traced program, whose control characters and bytes are escapes."""
        return self.texts.number(shown(text))

    def packed(self) -> str:
        """All of it, compressed, as text that means nothing in HTML."""
        data = Contents(self.texts.all(), columns(self.frames, 3), columns(self.places, 2), self.parts)
        # Reports of one snapshot are equal, so the time of their making is left out.
        return base64.b64encode(gzip.compress(msgspec.json.encode(data), 6, mtime=0)).decode()


def shown(text: str) -> str:
    """A text of a traced program: bytes that are no UTF-8, and control characters, as escapes."""
    return byte_escapes.shown(encoded(text)).decode()


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
