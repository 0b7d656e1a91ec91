"""Tokens of the language: kinds, keywords, and their names in messages."""

from __future__ import annotations

from pytrace.core.source import Span


class Token:
    """One token: its kind, its text and its span; *data* is the decoded value of a literal.

    PLY requires ``type`` and ``value``; the value is the token itself, so that productions have its span.
    """

    __slots__ = ("data", "lexer", "span", "text", "type")

    def __init__(self, kind: str, text: str, span: Span, data: object = None) -> None:
        self.type = kind
        self.text = text
        self.span = span
        self.data = data

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

INTEGER_TYPES = frozenset({"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"})
SIZED_TYPES = frozenset({"string", "buffer", "inet"})
"""Types that take a capacity: ``string[N]``."""

TYPE_NAMES = (
    INTEGER_TYPES
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
