"""Tokens of the language: kinds, keywords, and their names in messages."""

from __future__ import annotations

import re

import msgspec

from pytrace.core.diagnostics import Diagnostics
from pytrace.core.source import Span


class Token(msgspec.Struct, eq=False):
    """One token: its kind, its text and its span; *data* is the decoded value of a literal.

    PLY requires ``type`` and ``value``, and sets ``lexer``; the value is the token itself, so that productions have its
    span.
    """

    type: str
    text: str
    span: Span
    data: object = None
    lexer: object = None

    @property
    def value(self) -> Token:
        """The token itself, which productions receive."""
        return self

    def __repr__(self) -> str:
        return f"Token({self.type}, {self.text!r})"


KEYWORDS = {
    word: word.upper()
    for word in [
        "break",
        "comptime",
        "continue",
        "else",
        "false",
        "fn",
        "for",
        "if",
        "import",
        "let",
        "macro",
        "offsetof",
        "return",
        "sizeof",
        "true",
        "typeof",
        "typeinfo",
        "unroll",
        "while",
        "struct",
        "union",
        "enum",
    ]
}

OPERATORS = {
    "(": "LPAREN", ")": "RPAREN", "[": "LBRACKET", "]": "RBRACKET", "{": "LBRACE", "}": "RBRACE",
    ",": "COMMA", ";": "SEMI", ":": "COLON", "?": "QUESTION", ".": "DOT", "..": "RANGE", "->": "ARROW",
    "=": "ASSIGN", "+": "PLUS", "-": "MINUS", "*": "TIMES", "/": "DIVIDE", "%": "MODULO",
    "&": "BAND", "|": "BOR", "^": "BXOR", "~": "BNOT", "!": "NOT",
    "&&": "LAND", "||": "LOR", "==": "EQ", "!=": "NE", "<": "LT", ">": "GT", "<=": "LE", ">=": "GE",
    "<<": "LSHIFT", ">>": "RSHIFT", "++": "INCREMENT", "--": "DECREMENT",
    "+=": "OP_ASSIGN", "-=": "OP_ASSIGN", "*=": "TIMES_ASSIGN", "/=": "OP_ASSIGN", "%=": "OP_ASSIGN",
    "&=": "OP_ASSIGN", "|=": "OP_ASSIGN", "^=": "OP_ASSIGN", "<<=": "OP_ASSIGN", ">>=": "OP_ASSIGN",
}  # fmt: skip

LITERALS = ("IDENT", "INT", "FLOAT", "STRING", "VARIABLE", "MAP", "PARAM", "PARAM_COUNT")

ROOT_KINDS = (
    "C_PART",
    "CONFIG_ITEM", "IMPORT_ITEM", "MACRO_ITEM", "FUNCTION_ITEM", "MAP_ITEM", "OPTION_ITEM",
    "IF_ITEM", "FAIL_ITEM",
    "STRAY",  # characters that start no attach point, and unknown characters between probes
    "ATTACH_POINT",
    "BODY",  # where the predicate or body of a probe starts
    "OTHER",  # unexpected text between root items, or between an attach point and the body
)  # fmt: skip
"""Kinds of tokens outside of code. They go to the parser, not to the grammar."""

MARKERS = (
    "TYPE_MARK",  # before a type where an expression is allowed as well
    "IF_STATEMENT",  # `if` at the start of a statement
    "IF_COMPTIME",  # `comptime` directly after `if`
    "BLOCK_STATEMENT",  # `{` or `<` at the start of a statement
    "RESYNC",  # the end of a statement with an error
    "PROBE_ITEM", "CONFIG_ITEM", "IMPORT_ITEM", "MACRO_ITEM", "FUNCTION_ITEM", "MAP_ITEM", "OPTION_ITEM",
    "EXPRESSION_ITEM",
    "PREDICATE_OPEN", "PREDICATE_CLOSE",
)  # fmt: skip

OPERAND_ENDS = frozenset((*LITERALS, "TRUE", "FALSE", "RPAREN", "RBRACKET", "RBRACE", "INCREMENT", "DECREMENT"))
"""Tokens that end an operand."""

BLOCK_OPENERS = frozenset({"LBRACE", "BLOCK_STATEMENT"})
"""Tokens that open a block."""

STRUCT_KEYWORDS = frozenset({"struct", "union", "enum"})

_INTEGER_TYPES = frozenset({"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"})
SIZED_TYPES = frozenset({"string", "buffer", "inet"})
"""Types that take a capacity: ``string[N]``."""

TYPE_NAMES = (
    _INTEGER_TYPES
    | SIZED_TYPES
    | frozenset(
        [
            "void",
            "float",
            "double",
            "macaddr_t",
            "timestamp",
            "cgroup_path_t",
            "ifname_t",
            "netns_t",
            "ksym_t",
            "usym_t",
            "kstack_t",
            "ustack_t",
            "count_t",
            "sum_t",
            "avg_t",
            "min_t",
            "max_t",
            "stats_t",
            "hist_t",
            "lhist_t",
            "tseries_t",
            "ucount_t",
            "usum_t",
            "uavg_t",
            "umin_t",
            "umax_t",
            "ustats_t",
            "strerror_t",
        ]
    )
)
"""Names that are types wherever a type is allowed (except ``username``, which is also a value)."""

_NAMES = {
    "IDENT": "a name", "INT": "a number", "FLOAT": "a fraction", "STRING": "a string", "VARIABLE": "a variable",
    "MAP": "a map",
    "RESYNC": "the end of the statement", "PREDICATE_CLOSE": "'/'", "PREDICATE_OPEN": "'/'", "IF_STATEMENT": "'if'",
    "IF_COMPTIME": "'comptime'", "BLOCK_STATEMENT": "'{'",
}  # fmt: skip
_SPELLING = {kind: text for text, kind in reversed(OPERATORS.items())} | {kind: word for word, kind in KEYWORDS.items()}


def kind_name(kind: str) -> str:
    """The name of an expected kind of token, for messages."""
    return _NAMES.get(kind) or f"'{_SPELLING.get(kind, kind)}'"


def found_name(token: Token) -> str:
    """The name of an actual token, for messages."""
    if not token.text:
        return "the end of the text" if token.type == "EOF" else kind_name(token.type)
    text = token.text if len(token.text) <= 40 else token.text[:37] + "..."
    return f"string {text}" if token.type == "STRING" else f"'{text}'"


# ----------------------------------------------------------------------------------------------------- values of tokens

# Values of number, string and positional parameter tokens.


_MAX = (1 << 64) - 1
_HEX = re.compile(r"0[xX]([0-9A-Fa-f_]*)(.*)", re.DOTALL)
_DECIMAL = re.compile(r"([0-9][0-9_]*)(?:[eE]([0-9][0-9_]*))?(.*)", re.DOTALL)
_DURATIONS = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60 * 1_000_000_000,
    "h": 3_600 * 1_000_000_000,
    "d": 86_400 * 1_000_000_000,
}
_C_LIMITS = {"u": (1 << 32) - 1, "l": (1 << 63) - 1, "ll": (1 << 63) - 1, "ul": _MAX, "ull": _MAX}
_C_SUFFIX = re.compile(r"(?<=[0-9A-Fa-f])(?:[uU](?:ll?|LL?)?|(?:ll?|LL?)[uU]?)$")
_MAX_DIGITS = 64


class _Wrong(Exception):  # noqa: N818 - control flow
    """An invalid literal; *start* and *end* are relative to it."""

    def __init__(self, message: str, start: int, end: int, *hints: str) -> None:
        super().__init__(message)
        self.message, self.start, self.end, self.hints = message, start, end, hints


def decode_integer(text: str, span: Span, diagnostics: Diagnostics, *, in_c: bool = False) -> int:
    """The value of an integer literal; 0 after an error, which is recorded.

    *in_c*: it is in a C macro, where suffixes may be in any order and hexadecimal numbers may have them, too.
    """
    try:
        return _integer(_C_SUFFIX.sub("", text) if in_c else text)
    except _Wrong as wrong:
        place = Span(span.source, span.start + wrong.start, span.start + wrong.end)
        diagnostics.error(f"syntax: {wrong.message}", place, hints=wrong.hints)
        return 0


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


def _too_large(text: str) -> _Wrong:
    return _Wrong("the number does not fit into 64 bits", 0, len(text), f"the largest number is {_MAX}")


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


def _plain(digits: str) -> int:
    plain = digits.replace("_", "")
    if plain[0] != "0":
        return int(plain)
    bad = next((index for index, digit in enumerate(digits) if digit in "89"), None)
    if bad is not None:
        raise _Wrong(f"'{digits[bad]}' is not an octal digit", bad, bad + 1, "a number that starts with 0 is octal")
    return int(plain, 8)


def _scientific(text: str, digits: str, exponent: str) -> int:
    if len(digits) != 1 or digits == "0":
        raise _Wrong(f"'{digits}' before the exponent is not one digit from 1 to 9", 0, len(digits))
    power = int(exponent.replace("_", ""))
    if power > 20:
        raise _too_large(text)
    return int(digits) * int(10**power)


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


_MAX_PARAMETER = (1 << 31) - 1


def decode_parameter(text: str, span: Span, diagnostics: Diagnostics) -> int:
    """The number of a positional parameter such as ``$1``; an invalid number is recorded as an error."""
    number = int(text[1:]) if len(text) < 12 else _MAX_PARAMETER + 1
    if not 1 <= number <= _MAX_PARAMETER:
        diagnostics.error(f"syntax: '{text}' is not a parameter: they count from $1", span)
    return number


_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|[xX]([0-9A-Fa-f]{0,2})|(.)|$)", re.DOTALL)
_SIMPLE = {"n": b"\n", "t": b"\t", "r": b"\r", '"': b'"', "\\": b"\\"}


def decode_string(body: str, span: Span, start: int, diagnostics: Diagnostics) -> bytes:
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


def encode(text: str) -> bytes:
    """Encode as UTF-8; bytes of the script that are not valid UTF-8 are restored."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")
