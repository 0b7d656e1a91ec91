"""The C part of a script: preprocessor lines and definitions, kept as they are for the C front end."""

from __future__ import annotations

import re

from pytrace.base.lazy_regex import late
from pytrace.core.source import Span
from pytrace.frontend.ast import nodes
from pytrace.frontend.syntax.lexical.lexer import LAYOUT, Lexer

_LINE = late(r"#(?:[^\n\\]|\\(?:\r?\n|.|\Z))*", re.DOTALL)
_OPEN_COMMENT = late(r"/\*(?:[^*]|\*(?!/))*\*/")
_GROUP = r"(?:\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|\[\[[^\]]*\]\]|\[[^\]]*\])"
_DEFINITION = re.compile(rf"(?:struct|union|enum)\b(?:{LAYOUT}(?:[A-Za-z_][A-Za-z0-9_]*+|{_GROUP}))*+{LAYOUT}(?=[{{])")
_FORWARD = re.compile(rf"(?:struct|union|enum){LAYOUT}[A-Za-z_][A-Za-z0-9_]*{LAYOUT};")
_TYPEDEF = re.compile(r"typedef\b(?=\s+[A-Za-z_])")
_TRAILER = late(rf"(?:{LAYOUT}__attribute__{LAYOUT}{_GROUP})*(?:{LAYOUT};)?")
_PIECE = late(
    r"""[^{}()/"';]+|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|//[^\n]*|/\*(?:[^*]|\*(?!/))*\*/|.""", re.DOTALL
)


def starts(text: str, position: int) -> bool:
    """Whether a part in C starts at *position* of a script's root."""
    char = text[position : position + 1]
    if char == "#":
        return True
    if char not in ("s", "u", "e", "t"):
        return False
    return any(pattern.match(text, position) for pattern in (_DEFINITION, _FORWARD, _TYPEDEF))


def read(lexer: Lexer, position: int) -> nodes.CPart:
    """The part in C at *position*; the lexer is behind it afterwards."""
    text = lexer.source.text
    if text[position] == "#":
        end = _line_end(text, position)
    else:
        end = _definition_end(lexer, position)
    lexer.seek(end)
    return nodes.CPart(Span(lexer.source, position, end), text[position:end])


def _line_end(text: str, position: int) -> int:
    match = _LINE.match(text, position)
    assert match is not None
    end = match.end()
    opened = text.rfind("/*", position, end)
    if opened >= 0 and text.find("*/", opened, end) < 0:
        comment = _OPEN_COMMENT.match(text, opened)  # a comment may go on over lines
        if comment is not None:
            rest = text.find("\n", comment.end())
            end = len(text) if rest < 0 else rest
    return position + len(text[position:end].rstrip())


def _definition_end(lexer: Lexer, position: int) -> int:
    text = lexer.source.text
    forward = _FORWARD.match(text, position)
    if forward is not None:
        return forward.end()
    typedef = _TYPEDEF.match(text, position) is not None
    depth = 0
    at = position
    for match in _PIECE.finditer(text, position):
        at = match.end()
        piece = match.group()
        if piece == "{":
            depth += 1
        elif piece == "}":
            depth -= 1
            if depth == 0 and not typedef:
                break
        elif piece == ";" and depth == 0 and typedef:
            return at
    else:
        head = text.find("\n", position)
        head = len(text) if head < 0 else head
        lexer.error(
            "the C definition is not closed",
            Span(lexer.source, position, head),
            "add '}' at its end" if depth else "add ';'",
        )
        return len(text)
    trailer = _TRAILER.match(text, at)
    return trailer.end() if trailer else at
