"""Hints for syntax errors that come from habits of other languages."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytrace.frontend.syntax.lexical.tokens import Token

_WORDS = {
    "elif": "write 'else if'",
    "elsif": "write 'else if'",
    "elseif": "write 'else if'",
    "and": "write '&&'",
    "or": "write '||'",
    "not": "write '!'",
    "unless": "there is no 'unless': write if (!(condition)) { … }",
    "foreach": "write for ($kv : @map) { … }",
    "switch": "there is no 'switch': write if … else if … else",
    "do": "there is no 'do': write while (condition) { … }",
    "in": "write ':' between the variable and what is looped over",
    "var": "write 'let $name = value', or '$name = value'",
    "function": "functions are written 'fn name($a : type) : type { … }' outside of probes",
    "def": "functions are written 'fn name($a : type) : type { … }' outside of probes",
    "None": "there is no null value: compare with 0",
    "NULL": "there is no null value: compare with 0",
}


def hints_for(tokens: Sequence[Token], index: int, expected: str) -> tuple[str, ...]:
    """Hints for an error at index *at* of an item's tokens; *expected* says what was expected."""
    token = tokens[index] if index < len(tokens) else None
    before = tokens[index - 1] if index else None
    for word in (token, before, _statement_start(tokens, index)):
        if word is not None and word.type == "IDENT" and word.text in _WORDS:
            return (_WORDS[word.text],)
    if token is None:
        return ()
    rule = _RULES.get(token.type)
    hints = rule(tokens, index) if rule is not None else ()
    if not hints and token.type in _OPERANDS:
        if "','" in expected:
            return ("add ',' before it",)
        if expected == "a variable" and token.type == "IDENT":
            return _name_of_variable(tokens, index)
    return hints


def _statement_start(tokens: Sequence[Token], error: int) -> Token | None:
    for index in range(error - 1, max(-1, error - 200), -1):
        if tokens[index].type in ("SEMI", "LBRACE", "RBRACE", "BLOCK_STATEMENT"):
            return tokens[index + 1] if index + 1 < len(tokens) else None
    return None


def _assign(tokens: Sequence[Token], index: int) -> tuple[str, ...]:
    if index and tokens[index - 1].type == "ASSIGN":
        return ("'==' is written without a space",)
    if index > 2 and tokens[index - 2].type == "LPAREN" and tokens[index - 3].text == "row":
        return ("row() takes a record: write row((name=value, …)), with two pairs of parentheses",)
    return ("use '==' to compare",)


def _not(tokens: Sequence[Token], index: int) -> tuple[str, ...]:
    if index and tokens[index - 1].type == "IDENT":
        return (f"macros are called without '!': {tokens[index - 1].text}(…)",)
    return ()


def _string(tokens: Sequence[Token], index: int) -> tuple[str, ...]:
    if index and tokens[index - 1].type == "STRING":
        return ("strings next to each other are not joined: write one string",)
    return ()


def _variable(tokens: Sequence[Token], _at: int) -> tuple[str, ...]:
    if tokens[0].type == "MAP_ITEM":
        return ("outside of probes, 'let' declares maps only: let @name = hash(100);",)
    return ()


def _else(_tokens: Sequence[Token], _at: int) -> tuple[str, ...]:
    return ("'else' must directly follow the '}' of an 'if'",)


def _name_of_variable(tokens: Sequence[Token], index: int) -> tuple[str, ...]:
    if index + 1 < len(tokens) and tokens[index + 1].type in ("IDENT", "VARIABLE"):  # a type
        return ("a type does not come first: for ($i : 0..10) and let $name: type = value",)
    return (f"variables are written with '$': ${tokens[index].text}",)


def _brace(tokens: Sequence[Token], index: int) -> tuple[str, ...]:
    if index >= 2 and tokens[0].type == "MACRO_ITEM" and tokens[index - 1].type == "IDENT":
        return (f"a macro without parameters is written 'macro {tokens[index - 1].text}() {{ … }}'",)
    return ()


def _map(tokens: Sequence[Token], index: int) -> tuple[str, ...]:
    if index and tokens[index - 1].type == "LET":
        return ("maps are declared outside of probes: let @name = hash(100);",)
    return ()


def _type_word(_tokens: Sequence[Token], _at: int) -> tuple[str, ...]:
    return ("a type stands in parentheses, as in (struct name *)value",)


_OPERANDS = frozenset({"IDENT", "INT", "STRING", "VARIABLE", "MAP", "PARAM"})

_RULES: dict[str, Callable[[Sequence[Token], int], tuple[str, ...]]] = {
    "ASSIGN": _assign,
    "NOT": _not,
    "STRING": _string,
    "VARIABLE": _variable,
    "MAP": _map,
    "ELSE": _else,
    "LBRACE": _brace,
    "STRUCT": _type_word,
    "UNION": _type_word,
    "ENUM": _type_word,
}
