"""A command line that is still being typed, taken apart as a shell would."""

from __future__ import annotations

import msgspec

BREAKS = ":=@<>"
"""Of bash's word breaks (COMP_WORDBREAKS) those that stand in words of pytrace outside of quotes."""


class Typed(msgspec.Struct, frozen=True):
    """The words before the cursor: *words* are complete, without quotes; *current* is the one at the cursor."""

    words: tuple[str, ...]
    current: str
    quote: str
    """The quotation mark that is still open, or empty."""

    def after_break(self) -> int:
        """Where the part of *current* begins that bash replaces: after the last break, or the open quote."""
        if self.quote:
            return 0
        return max(self.current.rfind(sign) for sign in BREAKS) + 1


def split(line: str) -> Typed:
    """Take *line*, which ends at the cursor, apart."""
    words: list[str] = []
    current, quote, started, at = "", "", False, 0
    while at < len(line):
        sign = line[at]
        at += 1
        if quote:
            if sign == quote:
                quote = ""
            elif sign == "\\" and quote == '"' and line[at : at + 1] in ('"', "\\", "$", "`"):
                current += line[at]
                at += 1
            else:
                current += sign
        elif sign in "'\"":
            quote, started = sign, True
        elif sign == "\\" and at < len(line):
            current += line[at]
            started, at = True, at + 1
        elif sign.isspace():
            if started:
                words.append(current)
            current, started = "", False
        else:
            current, started = current + sign, True
    return Typed(tuple(words), current, quote)
