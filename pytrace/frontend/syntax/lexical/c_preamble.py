"""The C preamble of a script: finds the ends of definitions, whose text is passed to the C front end unchanged."""

from __future__ import annotations

import re

from pytrace.frontend.syntax.lexical.layout import LAYOUT

_GROUP = r"(?:\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|\[\[[^\]]*\]\]|\[[^\]]*\])"
_BODY = re.compile(rf"(?:{LAYOUT}(?:[A-Za-z_][A-Za-z0-9_]*+|{_GROUP}))*+{LAYOUT}(?=[{{])")
_FORWARD = re.compile(rf"{LAYOUT}[A-Za-z_][A-Za-z0-9_]*{LAYOUT};")
_TYPEDEF = re.compile(r"\s+[A-Za-z_]")
_CONTINUED = r"\\(?:\r?\n|.|\Z)"
_DIRECTIVE = re.compile(
    rf"\#(?:[^\n\\/\"']|{_CONTINUED}|/\*(?:[^*]|\*(?!/))*\*/|//(?:[^\n\\]|{_CONTINUED})*|\"(?:[^\"\\\n]|\\.)*\""
    r"|'(?:[^'\\\n]|\\.)*'|[/\"'])*+",
    re.DOTALL,
)
_TRAILER = re.compile(rf"(?:{LAYOUT}__attribute__{LAYOUT}{_GROUP})*(?:{LAYOUT};)?")


def directive_end(text: str, start: int) -> int:
    """The end of a preprocessor line with its continuation lines, without trailing white space."""
    match = _DIRECTIVE.match(text, start)
    return start + len(match.group().rstrip()) if match else start + 1


class CDefinition:
    """The scanner's state in a definition: its start, whether it is a ``typedef``, and the number of open braces."""

    __slots__ = ("depth", "start", "typedef")

    def __init__(self, start: int, *, typedef: bool) -> None:
        self.start = start
        self.typedef = typedef
        self.depth = 0


def starts_definition(text: str, word: str, after: int) -> bool:
    """Whether *word* (``struct``, ``union``, ``enum`` or ``typedef``), which ends at *after*, starts a definition."""
    return (_TYPEDEF if word == "typedef" else _BODY).match(text, after) is not None


def declaration_end(text: str, word: str, after: int) -> int | None:
    """The end of a declaration without a body (``struct x;``) whose *word* ends at *after*; None if it is not one."""
    match = None if word == "typedef" else _FORWARD.match(text, after)
    return match.end() if match else None


def trailer_end(text: str, after: int) -> int:
    """The end of the attributes and the semicolon that may follow the closing brace before *after*."""
    match = _TRAILER.match(text, after)
    return match.end() if match else after
