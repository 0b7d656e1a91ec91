"""The lexer: PLY's lexer and its token rules.

Decisions that depend on more than a token's own text and state (whether ``<`` opens a block, where a type is written)
are made by :mod:`pytrace.frontend.syntax.structure`, the filter between this lexer and the grammar.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from functools import cache
from typing import TypeVar

import msgspec
from ply import lex

from pytrace.core.diagnostics import Diagnostics, InternalError
from pytrace.core.probe_kinds import CALL, SYSCALL, Context, probe_kind
from pytrace.core.source import Source, Span
from pytrace.frontend.syntax import lexer_tables, nodes
from pytrace.frontend.syntax.tokens import KEYWORDS, LITERALS, OPERATORS, Token

# ------------------------------------------------------------------------------------------------------- state of a run

# The state of one run of PLY's lexer over a text: layout, attach points, C definitions; and PLY's lexemes.
#
# An attach point is scanned as text, since its syntax depends on the provider;
# pytrace.frontend.probes.providers splits it.
# It ends at white space, `,`, `{`, `<`, `;` or `}` outside quotes, or at a `/` that starts a predicate:
#
# - after white space, `/` starts the predicate;
# - providers whose second part is a file (uprobe, uretprobe, usdt, a name that is no provider, a name with a
#   wildcard): in the second part a slash belongs to the path when it is the first character of the part, when the part
#   started with one, `./` or `../`, or when a `:` follows in the same attach point; later parts have no slashes;
# - iter: slashes of the third part belong to the pin's path;
# - all other providers have no slashes, so the first one starts the predicate.
#
# A comment starts at `//` or `/*` wherever a slash would start the predicate. The text of a C definition is passed to
# the C front end unchanged.


LAYOUT = r"(?:[ \t\r\n\f\v]++|//[^\n]*+|/\*(?:[^*]|\*(?!/))*+\*/)*+"
"""White space and comments between tokens."""
_LAYOUT = re.compile(LAYOUT)

_SIMPLE = {"n": b"\n", "t": b"\t", "r": b"\r", '"': b'"', "\\": b"\\"}

_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|[xX]([0-9A-Fa-f]{0,2})|(.)|$)", re.DOTALL)

_MAX_PARAMETER = (1 << 31) - 1

_MAX_DIGITS = 64

_C_SUFFIX = re.compile(r"(?<=[0-9A-Fa-f])(?:[uU](?:ll?|LL?)?|(?:ll?|LL?)[uU]?)$")

_MAX = (1 << 64) - 1

_C_LIMITS = {"u": (1 << 32) - 1, "l": (1 << 63) - 1, "ll": (1 << 63) - 1, "ul": _MAX, "ull": _MAX}

_DURATIONS = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60 * 1_000_000_000,
    "h": 3_600 * 1_000_000_000,
    "d": 86_400 * 1_000_000_000,
}

_DECIMAL = re.compile(r"([0-9][0-9_]*)(?:[eE]([0-9][0-9_]*))?(.*)", re.DOTALL)

_HEX = re.compile(r"0[xX]([0-9A-Fa-f_]*)(.*)", re.DOTALL)

_ROOT_KINDS = (
    "C_PART",
    "CONFIG_ITEM", "IMPORT_ITEM", "MACRO_ITEM", "FUNCTION_ITEM", "MAP_ITEM", "OPTION_ITEM",
    "IF_ITEM", "FAIL_ITEM",
    "STRAY",  # characters that start no attach point, and unknown characters between probes
    "ATTACH_POINT",
    "BODY",  # where the predicate or body of a probe starts
    "OTHER",  # unexpected text between root items, or between an attach point and the body
)  # fmt: skip
"""Kinds of tokens outside of code. They go to the parser, not to the grammar."""


def skip_layout(text: str, position: int) -> int:
    """The offset after white space and comments at *position*."""
    match = _LAYOUT.match(text, position)
    return match.end() if match else position


# ---------------------------------------------------------------------------------------------- attach points

_RUN = re.compile(r'(?:"(?:[^"\\\n]|\\[^\n])*"|[^\s{},;<"])*')


class AttachPointScan(msgspec.Struct):
    """An attach point that starts at *start*; its text starts at *begin*, after ``name=`` if it has a name."""

    start: int = 0
    begin: int = 0
    name: str | None = None
    part: int = 1
    part_start: int = 0
    """Start of the current part, after the first one."""
    provider: str = ""

    def next_part(self, text: str, colon: int) -> None:
        """Record the colon at offset *colon*."""
        if self.part == 1:
            self.provider = text[self.begin : colon]
        self.part += 1
        self.part_start = colon + 1

    def owns_slash(self, text: str, slash: int) -> bool:
        """Whether the slash at offset *slash* belongs to a path of the attach point."""
        if self.part == 1:
            return False
        provider, part = self.provider, self.part
        if provider.lower() == SYSCALL:
            return False
        if provider.lower() == CALL:
            # What follows is an attach point of its own: call:PATH:…, call:usdt:PATH:…
            rest = text[self.begin + len(provider) + 1 : slash]
            provider, colon, _ = rest.partition(":")
            if colon and probe_kind(provider) is not None:
                part -= 1
            elif provider in (SYSCALL, "kernel") and colon:
                return False
        kind = probe_kind(provider)
        if kind is not None and kind.context is Context.ITERATOR:
            return part >= 3
        if kind is not None and not kind.user:
            return False
        if part != 2:
            return False
        if text.startswith(("/", '"/', "./", "../"), self.part_start):
            return True
        run = _RUN.match(text, slash)
        return run is not None and ":" in run.group()


# ---------------------------------------------------------------------------------------------- C definitions

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


class CDefinition(msgspec.Struct):
    """The scanner's state in a definition: its start, whether it is a ``typedef``, and the number of open braces."""

    start: int = 0
    typedef: bool = False
    depth: int = 0


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


# ---------------------------------------------------------------------------------------------- state and lexemes


class Scan(msgspec.Struct, eq=False):
    """The source text, and the state of the rules between tokens."""

    source: Source
    diagnostics: Diagnostics
    in_c: bool
    """Whether the text comes from a C macro."""
    comments: dict[int, int] = msgspec.field(default_factory=dict)
    """Start and end offsets of the comments so far."""
    comment_start: int = 0
    """In state ``comment``: the offset of the comment."""
    point: AttachPointScan = msgspec.field(default_factory=AttachPointScan)
    """In state ``point``: the attach point so far."""
    definition: CDefinition = msgspec.field(default_factory=CDefinition)
    """In state ``definition``: the C definition so far."""

    def error(self, message: str, span: Span, *hints: str) -> None:
        """Record a syntax error."""
        self.diagnostics.error(f"syntax: {message}", span, hints=hints)


class ScanLexer(lex.Lexer):
    """PLY's lexer with our :class:`Scan`."""

    scan: Scan


class Lexeme(lex.LexToken):
    """The argument of a token rule: the text that its expression matched, and where."""

    lexer: ScanLexer


_Rule = TypeVar("_Rule", bound=Callable[[Lexeme], object])


def matches(expression: str) -> Callable[[_Rule], _Rule]:
    """Attach a regular expression to a token rule; a typed version of PLY's ``TOKEN``."""

    def attach(rule: _Rule) -> _Rule:
        vars(rule)["regex"] = expression
        return rule

    return attach


# ---------------------------------------------------------------------------------------------- shared actions of rules


def token(kind: str, lexeme: Lexeme, data: object = None) -> Token:
    """The token of a lexeme."""
    start = lexeme.lexpos
    text = lexeme.value
    return Token(kind, text, Span(lexeme.lexer.scan.source, start, start + len(text)), data)


def span_of(lexeme: Lexeme) -> Span:
    """The span of a lexeme."""
    return Span(lexeme.lexer.scan.source, lexeme.lexpos, lexeme.lexpos + len(lexeme.value))


def c_part(lexeme: Lexeme, start: int, end: int) -> Token:
    """The token of a C part; another root item may follow."""
    lexer = lexeme.lexer
    lexer.begin("INITIAL")
    lexer.lexpos = end
    return Token("C_PART", lexer.lexdata[start:end], Span(lexer.scan.source, start, end))


def as_attach_point(lexeme: Lexeme) -> None:
    """Lex a word that starts no item and no definition again, as an attach point."""
    lexeme.lexer.lexpos = lexeme.lexpos
    lexeme.lexer.begin("points")


_WORD = re.compile(r"[A-Za-z0-9_$@]+|.", re.DOTALL)


def other(lexeme: Lexeme) -> Token:
    """The token of an unexpected word."""
    lexer = lexeme.lexer
    match = _WORD.match(lexer.lexdata, lexeme.lexpos)
    lexeme.value = match.group() if match else ""
    lexer.lexpos = lexeme.lexpos + len(lexeme.value)
    return token("OTHER", lexeme)


def enter_point(lexeme: Lexeme) -> None:
    """Start an attach point at this lexeme unless the state is in one already."""
    lexer = lexeme.lexer
    if lexer.lexstate != "point":
        lexer.scan.point = AttachPointScan(lexeme.lexpos, lexeme.lexpos)
        lexer.begin("point")


def end_point(lexeme: Lexeme) -> Token:
    """The token of the attach point that ends before the lexeme."""
    lexer, end = lexeme.lexer, lexeme.lexpos
    point, source = lexer.scan.point, lexer.scan.source
    lexer.begin("after")
    lexer.lexpos = end
    span = Span(source, point.start, end)
    node = nodes.AttachPoint(span, source.text[point.begin : end], point.name)
    return Token("ATTACH_POINT", span.text, span, node)


# ---------------------------------------------------------------------------------------------------------- token rules

# The token rules for PLY: one function for each, with its regular expression, by state.
#
# =============  ======================================================================================
# `INITIAL`    before a root item: C parts, words that start an item, or an attach point
# `point`      in an attach point
# `after`      after an attach point: a comma, a predicate or a body
# `points`     after that comma: another attach point or a body
# `script`     code: predicates and bodies, and the heads of all items other than probes
# `definition` in a C definition, until its last brace or semicolon
# `comment`    in a `/* … */`
# =============  ======================================================================================
#
# The rules change the state up to the start of code; pytrace.frontend.syntax.structure finds where an item
# ends.  The name of a rule is `t_`, its states, and a name of its own; PLY tries the functions of a state in the order
# in which they stand here, then the strings.  `scripts/generate-tables` generates
# pytrace.frontend.syntax.lexer_tables from this module.


states = (
    ("point", "exclusive"),
    ("after", "exclusive"),
    ("points", "exclusive"),
    ("script", "exclusive"),
    ("definition", "exclusive"),
    ("comment", "exclusive"),
)
tokens = sorted({*LITERALS, *KEYWORDS.values(), *OPERATORS.values(), *_ROOT_KINDS, "EOF"})

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_NAME_START = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_SPACE = " \t\r\n\f\v"
_POINT_END = frozenset(_SPACE + "{},;</")
_OPERATOR = "|".join(
    "".join(f"\\{char}" for char in text) for text in sorted(OPERATORS, key=lambda text: (-len(text), text))
)
_STRING_TAIL = re.compile(r"\)*[ \t]*(?:[;,][ \t]*)?[})>\] \t\r]*$")
_AFTER_DOT = re.compile(r"\.\s*\Z")

t_INITIAL_after_points_ignore = _SPACE
t_script_ignore = _SPACE
t_point_definition_comment_ignore = ""


# ---------------------------------------------------------------------------------------------- code


@matches(_NAME)
def t_script_name(lexeme: Lexeme) -> Token:
    """A name or a keyword."""
    return token(KEYWORDS.get(lexeme.value, "IDENT"), lexeme)


@matches(rf"\${_NAME}")
def t_script_variable(lexeme: Lexeme) -> Token:
    """``$name``."""
    return token("VARIABLE", lexeme, lexeme.value[1:])


@matches(rf"@(?:{_NAME})?")
def t_script_map(lexeme: Lexeme) -> Token:
    """``@name``, or the map without a name."""
    return token("MAP", lexeme, lexeme.value)


def _decode_string(body: str, span: Span, start: int, diagnostics: Diagnostics) -> bytes:
    """The bytes of a string literal; *body* is the text between the quotes, *start* its offset in the source."""
    if "\\" not in body:
        return encode(body)
    parts: list[bytes] = []
    done = 0
    for match in _ESCAPE.finditer(body):
        parts.append(encode(body[done : match.start()]))
        done = match.end()
        place = Span(span.source, start + match.start(), start + match.end())
        parts.append(_escape(match, place, diagnostics))
    parts.append(encode(body[done:]))
    return b"".join(parts)


@matches(r'"(?:[^"\\\n]|\\[^\n])*"')
def t_script_string(lexeme: Lexeme) -> Token:
    """A closed string."""
    span = span_of(lexeme)
    value = _decode_string(lexeme.value[1:-1], span, span.start + 1, lexeme.lexer.scan.diagnostics)
    return Token("STRING", lexeme.value, span, value)


@matches(r"//[^\n]*")
def t_INITIAL_after_points_script_line(lexeme: Lexeme) -> None:
    """A comment up to the end of its line."""
    lexeme.lexer.scan.comments[lexeme.lexpos] = lexeme.lexer.lexpos


@matches(r"/\*")
def t_INITIAL_after_points_script_block(lexeme: Lexeme) -> None:
    """The start of a block comment."""
    lexeme.lexer.scan.comment_start = lexeme.lexpos
    lexeme.lexer.push_state("comment")


@matches(_OPERATOR)
def t_script_operator(lexeme: Lexeme) -> Token:
    """Operators and punctuation, longest match first."""
    return token(OPERATORS[lexeme.value], lexeme)


_FRACTION = r"\.[0-9]+(?:[eE][+-]?[0-9]+(?![0-9A-Za-z_]))?"


class _Wrong(Exception):
    """An invalid literal; *start* and *end* are relative to it."""

    def __init__(self, message: str, start: int, end: int, *hints: str) -> None:
        super().__init__(message)
        self.message, self.start, self.end, self.hints = message, start, end, hints


def _decode_integer(text: str, span: Span, diagnostics: Diagnostics, *, in_c: bool = False) -> int:
    """The value of an integer literal; 0 after an error, which is recorded.

    *in_c*: it is in a C macro, where suffixes may be in any order and hexadecimal numbers may have them, too.
    """
    try:
        return _integer(_C_SUFFIX.sub("", text) if in_c else text)
    except _Wrong as wrong:
        place = Span(span.source, span.start + wrong.start, span.start + wrong.end)
        diagnostics.error(f"syntax: {wrong.message}", place, hints=wrong.hints)
        return 0


@matches(rf"[0-9][0-9A-Za-z_]*(?:{_FRACTION})?")
def t_script_number(lexeme: Lexeme) -> Token:
    """A number with its suffix; or a fraction, unless it is an index of an index: ``$t.0.1``."""
    lexer, text = lexeme.lexer, lexeme.value
    whole, point, _ = text.partition(".")
    span = span_of(lexeme)
    if point and not _AFTER_DOT.search(lexer.lexdata, max(0, span.start - 40), span.start):
        unit = lexer.lexdata[span.end : span.end + 1]
        if whole.isdecimal() and not (unit.isalpha() or unit == "_") and not lexer.scan.in_c:
            return Token("FLOAT", text, span, float(text))
        lexer.scan.error("a fraction has no unit", span, "use a smaller unit, such as 1500us for 1.5ms")
        return Token("INT", whole, span, 0)
    if point:
        lexer.lexpos = span.start + len(whole)
        span = Span(span.source, span.start, lexer.lexpos)
    return Token("INT", whole, span, _decode_integer(whole, span, lexer.scan.diagnostics, in_c=lexer.scan.in_c))


def _decode_parameter(text: str, span: Span, diagnostics: Diagnostics) -> int:
    """The number of a positional parameter such as ``$1``; an invalid number is recorded as an error."""
    number = int(text[1:]) if len(text) < 12 else _MAX_PARAMETER + 1
    if not 1 <= number <= _MAX_PARAMETER:
        diagnostics.error(f"syntax: '{text}' is not a parameter: they count from $1", span)
    return number


@matches(r"\$(?:[0-9]+|\#)")
def t_script_parameter(lexeme: Lexeme) -> Token:
    """``$1``, ``$#``."""
    word = lexeme.value
    if word == "$#":
        return token("PARAM_COUNT", lexeme)
    return token("PARAM", lexeme, _decode_parameter(word, span_of(lexeme), lexeme.lexer.scan.diagnostics))


@matches(r'"[^\n]*')
def t_script_unclosed(lexeme: Lexeme) -> Token:
    """An unclosed string: guess where it was meant to end, so that the rest still parses."""
    lexer, text, start = lexeme.lexer, lexeme.value, lexeme.lexpos
    source = lexer.scan.source
    lexer.scan.error(
        "the string is not closed on its line", Span(source, start, start + len(text.rstrip())),
        "add '\"' at its end; a line end is written \\n",
    )  # fmt: skip
    tail = _STRING_TAIL.search(text, 1)
    length = tail.start() if tail else len(text)
    lexer.lexpos = start + length
    return Token("STRING", text[:length], Span(source, start, start + length), b"")


@matches(r"'[^'\n]*'?")
def t_script_quoted(lexeme: Lexeme) -> Token | None:
    """String and character literals of other languages."""
    text, scan = lexeme.value, lexeme.lexer.scan
    if len(text) == 1:
        scan.error('unexpected "\'"', span_of(lexeme))
        return None
    scan.error("strings are written with double quotes", span_of(lexeme), f'write "{text.strip(chr(39))}"')
    return token("STRING", lexeme, b"")


@matches(r"[^\x00-\x7f]+|[^\n]")
def t_script_wrong(lexeme: Lexeme) -> None:
    """Characters that start no token."""
    text, span, scan = lexeme.value, span_of(lexeme), lexeme.lexer.scan
    if text == "$":
        scan.error("'$' without a name", span, "variables are $name, parameters $1 and $#")
    elif "\udc80" <= text[0] <= "\udcff":  # what the error handler surrogateescape makes of bytes
        byte = ord(text[0]) - 0xDC00
        scan.error(f"unexpected byte 0x{byte:x}", span, "outside of strings and comments a script is UTF-8")
    else:
        scan.error(f"unexpected '{text if text.isprintable() else ascii(text)[1:-1]}'", span)


# ---------------------------------------------------------------------------------------------- comments

t_comment_ignore_text = r"[^*]+|\*+(?!/)"


@matches(r"\*/")
def t_comment_end(lexeme: Lexeme) -> None:
    """The end of a comment: return to the state around it."""
    lexer = lexeme.lexer
    lexer.scan.comments[lexer.scan.comment_start] = lexer.lexpos
    lexer.pop_state()


def t_comment_eof(lexeme: Lexeme) -> Token:
    """An unclosed comment extends to the end of the text."""
    scan, start = lexeme.lexer.scan, lexeme.lexer.scan.comment_start
    scan.error("the comment is not closed", Span(scan.source, start, start + 2), "add '*/' at its end")
    scan.comments[start] = lexeme.lexpos
    lexeme.lexer.pop_state()
    return token("EOF", lexeme)


def t_INITIAL_after_points_script_eof(lexeme: Lexeme) -> Token:
    """The end of the text."""
    return token("EOF", lexeme)


# ---------------------------------------------------------------------------------------------- root items

_AFTER_ITEM_WORD = {
    "config": frozenset("="),
    "import": frozenset('"'),
    "macro": _NAME_START | frozenset("$@("),
    "fn": _NAME_START | frozenset("("),
    "getopt": frozenset("("),
}
_ITEM_KINDS = {
    "config": "CONFIG_ITEM",
    "import": "IMPORT_ITEM",
    "macro": "MACRO_ITEM",
    "fn": "FUNCTION_ITEM",
    "let": "MAP_ITEM",
    "getopt": "OPTION_ITEM",
}


@matches(r"(?:config|import|macro|fn|let|getopt)\b")
def t_INITIAL_item(lexeme: Lexeme) -> Token | None:
    """The first word of an item, unless the text after it makes it an attach point."""
    lexer, word = lexeme.lexer, lexeme.value
    text = lexer.lexdata
    if word == "let":
        following = text[lexer.lexpos : lexer.lexpos + 1]
        starts = following.isspace() or following in ("$", "@")
    else:
        offset = skip_layout(text, lexer.lexpos)
        starts = text[offset : offset + 1] in _AFTER_ITEM_WORD[word]
    if not starts:
        as_attach_point(lexeme)
        return None
    lexer.begin("script")
    return Token(_ITEM_KINDS[word], "", span_of(lexeme))


_ROOT_CONDITION = re.compile(r"comptime\b|\(")


@matches(r"if\b")
def t_INITIAL_if(lexeme: Lexeme) -> Token | None:
    """``if comptime`` around items, unless the text after it makes it an attach point."""
    lexer = lexeme.lexer
    if not _ROOT_CONDITION.match(lexer.lexdata, skip_layout(lexer.lexdata, lexer.lexpos)):
        as_attach_point(lexeme)
        return None
    lexer.begin("script")
    return Token("IF_ITEM", "", span_of(lexeme))


@matches(r"fail[ \t]*(?=\()")
def t_INITIAL_fail(lexeme: Lexeme) -> Token:
    """A call of ``fail`` in place of an item, which is lexed again as an expression."""
    lexer = lexeme.lexer
    lexer.begin("script")
    lexer.lexpos = lexeme.lexpos
    return Token("FAIL_ITEM", "", Span(lexer.scan.source, lexeme.lexpos, lexeme.lexpos))


# ---------------------------------------------------------------------------------------------- parts in C


@matches(r"\#")
def t_INITIAL_directive(lexeme: Lexeme) -> Token:
    """A preprocessor directive with its continuation lines."""
    start = lexeme.lexpos
    return c_part(lexeme, start, directive_end(lexeme.lexer.lexdata, start))


@matches(r"(?:struct|union|enum|typedef)\b")
def t_INITIAL_tag(lexeme: Lexeme) -> Token | None:
    """The first word of a C definition, unless the text after it makes it an attach point."""
    lexer, word = lexeme.lexer, lexeme.value
    end = declaration_end(lexer.lexdata, word, lexer.lexpos)
    if end is not None:
        return c_part(lexeme, lexeme.lexpos, end)
    if not starts_definition(lexer.lexdata, word, lexer.lexpos):
        as_attach_point(lexeme)
        return None
    lexer.scan.definition = CDefinition(lexeme.lexpos, typedef=word == "typedef")
    lexer.begin("definition")
    return None


t_definition_ignore_text = (
    r"""[^{}()/"';]+|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|//[^\n]*|/\*(?:[^*]|\*(?!/))*\*/|[()/"']"""
)


@matches(r"\{")
def t_definition_open(lexeme: Lexeme) -> None:
    """The start of a body or of a nested one."""
    lexeme.lexer.scan.definition.depth += 1


@matches(r"\}")
def t_definition_close(lexeme: Lexeme) -> Token | None:
    """The end of a body, which also ends a definition other than a ``typedef``."""
    lexer = lexeme.lexer
    definition = lexer.scan.definition
    definition.depth -= 1
    if definition.depth != 0 or definition.typedef:
        return None
    return c_part(lexeme, definition.start, trailer_end(lexer.lexdata, lexer.lexpos))


@matches(r";")
def t_definition_semicolon(lexeme: Lexeme) -> Token | None:
    """The end of a ``typedef``, or of a member."""
    definition = lexeme.lexer.scan.definition
    if definition.depth != 0 or not definition.typedef:
        return None
    return c_part(lexeme, definition.start, lexeme.lexer.lexpos)


def t_definition_eof(lexeme: Lexeme) -> Token:
    """An unclosed definition extends to the end of the text."""
    scan = lexeme.lexer.scan
    start = scan.definition.start
    line = scan.source.text[start:].partition("\n")[0]
    place = Span(scan.source, start, start + len(line))
    scan.error("the C definition is not closed", place, "add '}' at its end" if scan.definition.depth else "add ';'")
    return c_part(lexeme, start, lexeme.lexpos)


# ---------------------------------------------------------------------------------------------- attach points


@matches(r"['`´‘’“”«»\\^~!?|&%+>)\]-]+")
def t_INITIAL_stray(lexeme: Lexeme) -> Token:
    """Characters that start no attach point."""
    return token("STRAY", lexeme)


@matches(rf"{_NAME}[ \t]*=[ \t]*(?!=)")
def t_INITIAL_points_name(lexeme: Lexeme) -> Token | None:
    """The name of a probe, in front of its attach point."""
    lexer = lexeme.lexer
    if lexer.lexdata[lexer.lexpos : lexer.lexpos + 1] in _POINT_END or lexer.lexpos >= len(lexer.lexdata):
        return other(lexeme)
    name = lexeme.value.partition("=")[0].rstrip()
    lexer.scan.point = AttachPointScan(lexeme.lexpos, lexer.lexpos, name)
    lexer.begin("point")
    return None


@matches(r'[^ \t\r\n\f\v{},;<"/:]+|"(?:[^"\\\n]|\\[^\n])*"')
def t_INITIAL_points_point_text(lexeme: Lexeme) -> None:
    """Text without syntactic meaning in an attach point, such as quoted text."""
    enter_point(lexeme)


@matches(r'"')
def t_INITIAL_points_point_quote(lexeme: Lexeme) -> None:
    """An unclosed quote."""
    scan, start = lexeme.lexer.scan, lexeme.lexpos
    enter_point(lexeme)
    end = scan.source.text.find("\n", start)
    place = Span(scan.source, start, end if end >= 0 else len(scan.source.text))
    scan.error("the quote in the attach point is not closed", place, "add '\"' at its end")


@matches(r":")
def t_INITIAL_points_point_colon(lexeme: Lexeme) -> None:
    """The end of a part."""
    enter_point(lexeme)
    lexeme.lexer.scan.point.next_part(lexeme.lexer.lexdata, lexeme.lexpos)


@matches(r"/")
def t_point_slash(lexeme: Lexeme) -> Token | None:
    """A slash in a path, or the start of a predicate or comment."""
    lexer = lexeme.lexer
    return None if lexer.scan.point.owns_slash(lexer.lexdata, lexeme.lexpos) else end_point(lexeme)


@matches(r"[ \t\r\n\f\v{},;<]")
def t_point_end(lexeme: Lexeme) -> Token:
    """The first character after an attach point."""
    return end_point(lexeme)


def t_point_eof(lexeme: Lexeme) -> Token:
    """The end of the text ends an attach point, too."""
    return end_point(lexeme)


@matches(r",")
def t_after_comma(lexeme: Lexeme) -> Token:
    """Another attach point follows."""
    lexeme.lexer.begin("points")
    return token("COMMA", lexeme)


@matches(r"[{</]")
def t_INITIAL_after_points_body(lexeme: Lexeme) -> Token:
    """The start of a predicate or body, which is lexed again as code."""
    lexeme.lexer.begin("script")
    lexeme.lexer.lexpos = lexeme.lexpos
    return token("BODY", lexeme)


@matches(r".")
def t_INITIAL_after_points_other(lexeme: Lexeme) -> Token:
    """Unexpected text before a body."""
    return other(lexeme)


def t_ANY_error(lexeme: Lexeme) -> None:
    """Called by PLY if no rule matches, which does not happen: the rules cover all texts."""
    raise InternalError(f"no token rule fits at offset {lexeme.lexpos}")


# ---------------------------------------------------------------------------------------------------------------- lexer


ROOT = "INITIAL"
"""The state before a root item."""
SCRIPT = "script"
"""The state of code."""


class Lexer:
    """Tokenises one source, starting in *state*."""

    def __init__(self, source: Source, diagnostics: Diagnostics, *, state: str = SCRIPT, in_c: bool = False) -> None:
        self.source = source
        self.diagnostics = diagnostics
        scan = Scan(source, diagnostics, in_c=in_c)
        self.comments = scan.comments
        """Start and end offsets of the comments so far."""
        self.error = scan.error
        self._ahead: deque[Token] = deque()
        self._ply = _ply_lexer().clone()
        self._ply.lexstatestack = []
        self._ply.scan = scan
        self._ply.input(source.text)
        self._ply.begin(state)

    def token(self) -> Token:
        """The next token; at the end of the text every call returns a token of kind EOF."""
        return self._ahead.popleft() if self._ahead else self._ply.token()

    def peek(self, index: int = 0) -> Token:
        """The next token, or the one *index* tokens later, without consuming it."""
        ahead = self._ahead
        while len(ahead) <= index:
            ahead.append(self._ply.token())
        return ahead[index]

    def push(self, token: Token) -> None:
        """Push *token* back, so that it is the next one."""
        self._ahead.appendleft(token)

    def here(self) -> int:
        """The offset of the next token."""
        return self.peek().span.start

    def seek(self, position: int, state: str = ROOT) -> None:
        """Continue at another offset; tokens that were peeked at or pushed back are dropped."""
        self._ahead.clear()
        self._ply.lexpos = position
        self._ply.begin(state)

    def root(self) -> None:
        """Continue with the next root item; tokens that were peeked at or pushed back are lexed again as part of it."""
        self.seek(self._ahead[0].span.start if self._ahead else self._ply.lexpos)


def encode(text: str) -> bytes:
    """Encode as UTF-8; bytes of the script that are not valid UTF-8 are restored."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def _escape(match: re.Match[str], place: Span, diagnostics: Diagnostics) -> bytes:
    octal, digits, simple = match.groups()
    if octal is not None:
        value = int(octal, 8)
        if value > 0xFF:
            diagnostics.error(
                f"syntax: octal escape '\\{octal}' is more than a byte", place, hints=("the largest is \\377",)
            )
        return bytes([value & 0xFF])
    if digits is not None:
        if not digits:
            diagnostics.error("syntax: '\\x' without hexadecimal digits", place)
            return b""
        return bytes([int(digits, 16)])
    known = _SIMPLE.get(simple or "")
    if known is None:
        diagnostics.error(
            f"syntax: unknown escape '\\{simple or ''}' in a string", place,
            hints=('escapes are \\n \\t \\r \\" \\\\ \\NNN (octal) and \\xNN',),
        )  # fmt: skip
        return encode(simple or "")
    return known


def _suffixed(value: int, suffix: str, offset: int, text: str) -> int:
    if not suffix:
        return value
    factor = _DURATIONS.get(suffix)
    if factor is not None:
        if value * factor > _MAX:
            raise _Wrong("the duration does not fit into 64 bits of nanoseconds", 0, len(text))
        return value * factor
    limit = _C_LIMITS.get(suffix.lower())
    if limit is None:
        hints = ("binary numbers are not supported: write hexadecimal",) if suffix[0] in "bB" else ()
        raise _Wrong(
            f"invalid suffix '{suffix}' of a number", offset, len(text),
            *(hints or ("suffixes are ns us ms s m h d for durations, and u l ul ll ull",)),
        )  # fmt: skip
    if value > limit:
        raise _Wrong(f"the number does not fit into the type that its suffix '{suffix}' names", 0, len(text))
    return value


def _too_large(text: str) -> _Wrong:
    return _Wrong("the number does not fit into 64 bits", 0, len(text), f"the largest number is {_MAX}")


def _scientific(text: str, digits: str, exponent: str) -> int:
    if len(digits) != 1 or digits == "0":
        raise _Wrong(f"'{digits}' before the exponent is not one digit from 1 to 9", 0, len(digits))
    power = int(exponent.replace("_", ""))
    if power > 20:
        raise _too_large(text)
    return int(digits) * int(10**power)


def _plain(digits: str) -> int:
    plain = digits.replace("_", "")
    if plain[0] != "0":
        return int(plain)
    bad = next((index for index, digit in enumerate(digits) if digit in "89"), None)
    if bad is not None:
        raise _Wrong(f"'{digits[bad]}' is not an octal digit", bad, bad + 1, "a number that starts with 0 is octal")
    return int(plain, 8)


def _check_separator(digits: str, offset: int) -> None:
    if digits.endswith("_"):
        end = offset + len(digits)
        raise _Wrong("'_' at the end of a number", end - 1, end, "'_' may stand between digits only")


def _hexadecimal(text: str, match: re.Match[str]) -> int:
    digits, suffix = match.group(1), match.group(2)
    if suffix:
        raise _Wrong(f"invalid suffix '{suffix}' of a hexadecimal number", match.start(2), len(text))
    if not digits.strip("_"):
        raise _Wrong("hexadecimal number without digits", 0, len(text))
    _check_separator(digits, 2)
    value = int(digits.replace("_", ""), 16)
    if value > _MAX:
        raise _too_large(text)
    return value


def _integer(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise _too_large(text)
    match = _HEX.fullmatch(text)
    if match:
        return _hexadecimal(text, match)
    match = _DECIMAL.fullmatch(text)
    if match is None:  # the lexer only passes texts that start with a digit
        raise _Wrong(f"'{text}' is not a number", 0, len(text))
    digits, exponent, suffix = match.group(1), match.group(2), match.group(3)
    _check_separator(digits, 0)
    if exponent is not None:
        _check_separator(exponent, match.start(2))
        value = _scientific(text, digits, exponent)
    else:
        value = _plain(digits)
    value = _suffixed(value, suffix, match.start(3), text)
    if value > _MAX:
        raise _too_large(text)
    return value


@cache
def _ply_lexer() -> ScanLexer:
    """PLY's lexer from the shipped tables, created on first use."""
    lexer = ScanLexer()
    lexer.readtab(lexer_tables, globals())
    lexer.lexoptimize = True  # do not compare the kind of each token with the list of kinds
    return lexer
