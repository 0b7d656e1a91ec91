"""Source texts and positions in them.

A :class:`Source` is one text (a file, ``-e`` text, an imported file); a :class:`Span` is a half-open range of
characters in one source.  Every token, AST node and diagnostic carries a span.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

import msgspec


class Position(msgspec.Struct, frozen=True):
    """A place in a source: 1-based line and 1-based column, both counted in characters."""

    line: int
    column: int


class Source(msgspec.Struct, eq=False):
    """One text and its name in messages (``stdin`` for ``-e`` and standard input).

    *path* is the path of the text's file, None for ``-e`` and standard input. *generated*: pytrace wrote the text, from
    options that the user gave, so that messages do not quote it.
    """

    name: str
    text: str
    path: str | None = None
    generated: bool = False
    _line_starts: list[int] = msgspec.field(default_factory=list)

    def __repr__(self) -> str:
        return f"Source({self.name!r}, {len(self.text)} characters)"

    @property
    def _starts(self) -> list[int]:
        """Offsets of line starts; computed on first use, as most texts never need them."""
        if not self._line_starts:
            lengths = (len(line) + 1 for line in self.text.split("\n"))
            self._line_starts = list(accumulate(lengths, initial=0))[:-1]
        return self._line_starts

    def position(self, offset: int) -> Position:
        """The line and column of a character offset (0 … len(text))."""
        offset = max(0, min(offset, len(self.text)))
        line = bisect_right(self._starts, offset)
        return Position(line, offset - self._starts[line - 1] + 1)

    def line(self, number: int) -> str:
        """The text of a 1-based line, without its line end; empty when there is no such line."""
        if not 1 <= number <= len(self._starts):
            return ""
        start = self._starts[number - 1]
        end = self._starts[number] - 1 if number < len(self._starts) else len(self.text)
        return self.text[start:end].removesuffix("\r")


class Span(msgspec.Struct, frozen=True):
    """Characters ``start`` … ``end`` (end excluded) of ``source``."""

    source: Source
    start: int
    end: int

    @property
    def text(self) -> str:
        """The spanned characters."""
        return self.source.text[self.start : self.end]

    @property
    def first(self) -> Position:
        """Position of the first character."""
        return self.source.position(self.start)

    @property
    def last(self) -> Position:
        """Position just after the last character."""
        return self.source.position(self.end)

    def to(self, other: Span) -> Span:
        """The span from the start of this one to the end of *other* (same source)."""
        return Span(self.source, min(self.start, other.start), max(self.end, other.end))

    def __str__(self) -> str:
        first, last = self.first, self.last
        if first.line != last.line:
            return f"{self.source.name}:{first.line}-{last.line}"
        return f"{self.source.name}:{first.line}:{first.column}-{last.column}"


class ExpandedSpan(Span, frozen=True):
    """A span of a macro's body, expanded by *call* (which may itself be part of an expansion)."""

    call: Span

    def to(self, other: Span) -> Span:
        """The span from the start of this one to the end of *other* in the same expansion."""
        return ExpandedSpan(self.source, min(self.start, other.start), max(self.end, other.end), self.call)

    def __str__(self) -> str:
        return Span.__str__(self)


def expansion_chain(span: Span) -> tuple[Span, ...]:
    """The macro calls that *span* was expanded from, innermost first; empty for text outside of macros."""
    calls = []
    while isinstance(span, ExpandedSpan):
        span = span.call
        calls.append(span)
    return tuple(calls)
