"""Tokens of the language: kinds, keywords, and their names in messages."""

from __future__ import annotations

import msgspec

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


OPERAND_ENDS = frozenset((*LITERALS, "TRUE", "FALSE", "RPAREN", "RBRACKET", "RBRACE", "INCREMENT", "DECREMENT"))
"""Tokens that end an operand."""

BLOCK_OPENERS = frozenset({"LBRACE", "BLOCK_STATEMENT"})
"""Tokens that open a block."""


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
