"""Splitting of an incomplete command line into words, as a shell does it."""

from __future__ import annotations

import msgspec

BREAKS = ":=@<>"
"""The word breaks of bash (COMP_WORDBREAKS) that occur in words of pytrace outside of quotes."""


class Typed(msgspec.Struct, frozen=True):
    """The words before the cursor: *words* are complete, without quotes; *current* is the one at the cursor."""

    words: tuple[str, ...]
    current: str
    quote: str
    """The quotation mark that is still open, or empty."""

    def after_break(self) -> int:
        """Offset of the part of *current* that bash replaces: after the last break, or after the open quote."""
        if self.quote:
            return 0
        return max(self.current.rfind(sign) for sign in BREAKS) + 1


def split(line: str) -> Typed:
    """Split *line*, which ends at the cursor."""
    words: list[str] = []
    current, quote, started, index = "", "", False, 0
    while index < len(line):
        sign = line[index]
        index += 1
        if quote:
            if sign == quote:
                quote = ""
            elif sign == "\\" and quote == '"' and line[index : index + 1] in ('"', "\\", "$", "`"):
                current += line[index]
                index += 1
            else:
                current += sign
        elif sign in "'\"":
            quote, started = sign, True
        elif sign == "\\" and index < len(line):
            current += line[index]
            started, index = True, index + 1
        elif sign.isspace():
            if started:
                words.append(current)
            current, started = "", False
        else:
            current, started = current + sign, True
    return Typed(tuple(words), current, quote)
