"""Errors in tool specifications: the user's text with the wrong word underlined."""

from __future__ import annotations

import msgspec

from pytrace.core.diagnostics import TraceError


class SpecText(msgspec.Struct, frozen=True):
    """A part of a probe specification: *text* is at offset *start* of the argument *whole*, as written by the user."""

    whole: str
    text: str
    start: int = 0

    @classmethod
    def of(cls, whole: str) -> SpecText:
        """The whole argument."""
        return cls(whole, whole)

    def part(self, start: int, end: int) -> SpecText:
        """The part from *start* to *end*, without surrounding white space."""
        text = self.text[start:end]
        left = len(text) - len(text.lstrip())
        return SpecText(self.whole, text.strip(), self.start + start + left)

    def error(self, message: str, *, at: int = 0, length: int | None = None, hints: tuple[str, ...] = ()) -> TraceError:
        """An error that underlines *length* characters at *at* (all of the piece when it is not given)."""
        width = max(1, len(self.text) - at if length is None else length)
        start = self.start + at
        begin = self.whole.rfind("\n", 0, start) + 1
        end = self.whole.find("\n", start)
        line = self.whole[begin : end if end >= 0 else len(self.whole)]
        column = start - begin
        width = max(1, min(width, len(line) - column))
        return TraceError(f"{message}\n{line}\n{' ' * column}{'~' * width}", hints=hints)
