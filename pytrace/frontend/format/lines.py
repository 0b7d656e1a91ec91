"""Output lines of the formatter, and the comments between tokens."""

from __future__ import annotations

INDENT = "    "


class Lines:
    """The output so far, and the comments that are not written yet."""

    def __init__(self, source: str, comments: list[tuple[int, int]]) -> None:
        self.source = source
        self._comments = comments
        self._next = 0
        self._done: list[str] = []
        self._line = ""
        self._position = 0
        """Source offset after the last token written."""

    # ------------------------------------------------------------------------------------------ writing

    def write(self, text: str) -> None:
        """Add *text* to the line."""
        self._line += text

    def write_verbatim(self, text: str, end: int) -> None:
        """Add text unchanged, including its comments; *end* is the source offset after it."""
        self._line += text
        self.passed(end)

    def passed(self, position: int) -> None:
        """Record that the output covers the source up to the offset *position*, including comments before it."""
        self._position = position
        while self._next < len(self._comments) and self._comments[self._next][0] < position:
            self._next += 1

    def reached(self, position: int) -> None:
        """Like :meth:`passed` for a token, which contains no comments."""
        self._position = position

    def space(self) -> None:
        """Write a blank unless the line is empty or ends in one."""
        if self._line and not self._line.endswith((" ", "\n")):
            self._line += " "

    def break_line(self, indent: str = "") -> None:
        """End the line; the next one starts with *indent*."""
        if self._line.strip():
            self._done.append(self._line.rstrip())
        self._line = indent

    def empty_line(self) -> None:
        """Write an empty line unless there is one or nothing was written."""
        if self._done and self._done[-1] != "":
            self._done.append("")

    def drop_empty(self) -> None:
        """Remove empty lines at the end."""
        while self._done and self._done[-1] == "":
            self._done.pop()

    @property
    def column(self) -> int:
        """Number of characters on the current line."""
        return len(self._line)

    @property
    def fresh(self) -> bool:
        """Whether the current line is empty."""
        return not self._line.strip()

    def text(self) -> str:
        """The whole output, ending in a newline unless empty."""
        self.break_line()
        while self._done and self._done[-1] == "":
            self._done.pop()
        return "".join(f"{line}\n" for line in self._done)

    # ------------------------------------------------------------------------------------------ gaps

    def gap(self, position: int) -> str:
        """The source between the last token written and *position*."""
        return self.source[self._position : position]

    def comment_before(self, position: int) -> bool:
        """Whether there is an unwritten comment before *position*."""
        return self._next < len(self._comments) and self._comments[self._next][0] < position

    def trailing_comments(self, position: int, indent: str = "") -> None:
        """Write the comments before *position* that are on the source line of the last token written."""
        while self.comment_before(position):
            start, end = self._comments[self._next]
            if "\n" in self.source[self._position : start]:
                return
            self.space()
            self._comment(start, end)
            if self.source.startswith("//", start):
                self.break_line(indent)
                return

    def comments_to(self, position: int, level: int) -> None:
        """Write all comments before *position*, those on lines of their own at *level*, and keep an empty line."""
        indent = INDENT * level
        while self.comment_before(position):
            start, end = self._comments[self._next]
            gap = self.source[self._position : start]
            if "\n" in gap and not self.fresh:
                self.break_line(indent)
            if gap.count("\n") > 1 and self.fresh:
                self.break_line(indent)
                self.empty_line()
            elif not self.fresh:
                self.space()
            self._comment(start, end)
            if self.source.startswith("//", start) or "\n" in self._tail(position):
                self.break_line(indent)
        if self.gap(position).count("\n") > 1 and self.fresh:
            self.break_line(indent)
            self.empty_line()
        elif not self.fresh and not self._line.endswith(" ") and self._line.endswith("*/"):
            self.space()

    def between(self, position: int, *, blank: bool, end: bool = False, level: int = 0) -> None:
        """Move from one root item to the next one at *position*; *blank*: write an empty line between them.

        *end*: no item follows. *level* is the number of ``if comptime`` around the items.
        """
        indent = INDENT * level
        self.trailing_comments(position, indent)
        self.break_line(indent)
        if blank:
            self.empty_line()
        if end and not self.comment_before(position):
            return
        self.comments_to(position, level)

    def _tail(self, position: int) -> str:
        """The source between the last token written and the next comment or *position*."""
        following = self._comments[self._next][0] if self.comment_before(position) else position
        return self.source[self._position : following]

    def _comment(self, start: int, end: int) -> None:
        lines = self.source[start:end].split("\n")
        self._line += "\n".join(line.rstrip() for line in lines)
        self._next += 1
        self._position = end
