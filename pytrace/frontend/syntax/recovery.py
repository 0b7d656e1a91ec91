"""Recovery from syntax errors: the message, hints about habits of other languages, and where parsing resumes.

Semicolons between statements are optional, but the grammar requires them: missing ones are inserted here.  After an
error in a statement, the parser resumes after its semicolon or closing brace.  After an error in an item's head, the
whole item is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pytrace.core.diagnostics import either
from pytrace.core.source import Source, Span
from pytrace.frontend.ast import nodes
from pytrace.frontend.syntax.grammar_support import LRParser
from pytrace.frontend.syntax.lexical.structure import Structure
from pytrace.frontend.syntax.lexical.tokens import BLOCK_OPENERS, OPERAND_ENDS, Token, found_name, kind_name

_STATEMENT_WORDS = frozenset({"IF_STATEMENT", "FOR", "WHILE", "UNROLL", "LET", "RETURN", "BREAK", "CONTINUE", "IMPORT"})
_STATEMENT_STARTS = _STATEMENT_WORDS | {"IDENT", "VARIABLE", "MAP", "INCREMENT", "DECREMENT", "BLOCK_STATEMENT"}
_NEW_STATEMENT = _STATEMENT_STARTS | {"IF", "SIZEOF"}
_OPERATORS = frozenset({"PLUS", "TIMES", "EQ", "LAND"})
_ENDINGS = ("SEMI", "RPAREN", "RBRACKET", "COMMA", "COLON", "LBRACE", "PREDICATE_CLOSE", "ASSIGN", "RANGE")
_CANDIDATES = (
    "IDENT", "INT", "FLOAT", "STRING", "VARIABLE", "MAP", "LPAREN", "LBRACKET", "LBRACE", "RPAREN", "RBRACKET",
    "RBRACE",
    "COMMA", "SEMI", "COLON", "ASSIGN", "RANGE", "PLUS", "TIMES", "EQ", "LAND", "LET", "IF", "ELSE", "PREDICATE_CLOSE",
)  # fmt: skip
_MOST_NAMED = 4
_WORD_OPERATORS = {"and": "LAND", "or": "LOR"}


class AbandonedItem(Exception):  # noqa: N818 - control flow
    """Parsing of the item cannot continue; the error was recorded."""


class Item:
    """The tokens of one root item as PLY reads them, and the handler of its syntax errors."""

    def __init__(
        self, parser: LRParser, structure: Structure, head: Span, points: tuple[nodes.AttachPoint, ...] = ()
    ) -> None:
        self.lexer = structure.lexer
        self.source: Source = structure.lexer.source
        self.head = head
        self.points = points
        self.tokens = structure.tokens
        self.depths = structure.depths
        self.direct = structure.direct
        self.unended = structure.unended
        self.index = 0
        self.parser = parser
        self._again: list[Token] = []
        self._repaired: set[tuple[str, int]] = set()
        """Repairs attempted, with the index of the token. No repair is attempted twice for one token and tokens are
        never read backwards, so parsing terminates."""

    def token(self) -> Token | None:
        """The next token; None at the end."""
        if self._again:
            return self._again.pop()
        if self.index >= len(self.tokens):
            return None
        self.index += 1
        return self.tokens[self.index - 1]

    def error(self, message: str, span: Span, *hints: str) -> None:
        """Record a syntax error."""
        self.lexer.error(message, span, *hints)

    # ------------------------------------------------------------------------------------------ errors

    def handle(self, token: Token | None) -> Token | None:
        """PLY's error function: report the error and return the token to continue with."""
        if token is None:
            self._report_end()
            raise AbandonedItem
        if token.type == "RESYNC":
            return None  # PLY now discards the symbols of this statement
        index = self.index - 1
        before = self.tokens[index - 1] if index else None
        meant = _WORD_OPERATORS.get(token.text) if token.type == "IDENT" else None
        if meant is not None and self._accepts(meant):
            self.error(f"unexpected '{token.text}'", token.span, *_hints(self.tokens, index, ""))
            return self._go_on(Token(meant, token.text, token.span), None)
        if before is not None and self._misses_semicolon(before, token, index) and self._first_time("semicolon", index):
            self.unended.add(index)
            return self._go_on(Token("SEMI", "", _after(before)), token)
        if token.text:  # an inserted bracket has been reported
            self._report(token, index)
        opened = sum(symbol.type in BLOCK_OPENERS for symbol in self.parser.symstack)
        if not opened or not self._first_time("resync", index):
            raise AbandonedItem
        self._skip(index, opened)
        return self._go_on(Token("RESYNC", "", token.span), None)

    def _first_time(self, repair: str, index: int) -> bool:
        """Whether *repair* is tried for the first time at the token with index *at*; records the attempt."""
        done = (repair, index)
        if done in self._repaired:
            return False
        self._repaired.add(done)
        return True

    def _go_on(self, token: Token, again: Token | None) -> Token:
        if again is not None:
            self._again.append(again)
        self.parser.errok()
        return token

    def _misses_semicolon(self, before: Token, token: Token, index: int) -> bool:
        if not self.direct[index] or token.type not in _NEW_STATEMENT:
            return False
        return before.type in OPERAND_ENDS | {"BREAK", "CONTINUE"} and self._accepts("SEMI", token.type)

    def _skip(self, start: int, depth: int) -> None:
        """Move past the statement with an error at index *at*, in a block of *depth*."""
        tokens, depths = self.tokens, self.depths
        index = start
        while index < len(tokens):
            kind, level = tokens[index].type, depths[index]
            if level < depth:
                break  # the end of the block
            if level == depth:
                if kind == "SEMI":
                    index += 1
                    break
                if index > start and kind in _STATEMENT_WORDS and self.direct[index]:
                    break
                if kind == "RBRACE" and index + 1 < len(tokens) and tokens[index + 1].type in _STATEMENT_STARTS:
                    index += 1
                    break
            index += 1
        self.index = index

    def _accepts(self, *kinds: str) -> bool:
        """Whether PLY's parser, in its current state, accepts tokens of these *kinds* in sequence."""
        actions, goto, productions = self.parser.action, self.parser.goto, self.parser.productions
        states = list(self.parser.statestack)
        for kind in kinds:
            while True:
                action = actions[states[-1]].get(kind)
                if action is None:
                    return False
                if action >= 0:
                    break
                rule = productions[-action]
                if rule.len:
                    del states[-rule.len :]
                states.append(goto[states[-1]][rule.name])
            states.append(action)
        return True

    def _expected(self) -> str:
        kinds = [kind for kind in _CANDIDATES if self._accepts(kind)]
        if "LET" in kinds:
            return "a statement or '}'" if "RBRACE" in kinds else "a statement"
        if {"IDENT", "INT", "LPAREN"} <= set(kinds):
            return "an expression"
        if kinds and set(kinds) >= _OPERATORS:
            kinds = [kind for kind in _ENDINGS if kind in kinds] or kinds
        return either([kind_name(kind) for kind in kinds[:_MOST_NAMED]])

    def _report(self, token: Token, index: int) -> None:
        expected = self._expected()
        message = f"unexpected {found_name(token)}" + (f", expected {expected}" if expected else "")
        self.error(message, token.span, *_hints(self.tokens, index, expected))

    def _report_end(self) -> None:
        end = self.tokens[-1]
        if end.type == "RBRACE" and not end.text:
            return  # reported when it was inserted
        place = _after(end)
        expected = self._expected()
        self.error(f"expected {expected or 'more'}", place, *_hints(self.tokens, len(self.tokens), expected))


def _after(token: Token) -> Span:
    """The empty span after *token*."""
    return Span(token.span.source, token.span.end, token.span.end)


# ---------------------------------------------------------------------------------------------- hints


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


_LOOPS = "a loop goes over a range or a map: for ($i : 0..10) { … }, for ($kv : @map) { … }; while (condition) { … }"


def _hints(tokens: Sequence[Token], index: int, expected: str) -> tuple[str, ...]:
    """Hints for an error at index *at* of an item's tokens; *expected* says what was expected."""
    token = tokens[index] if index < len(tokens) else None
    before = tokens[index - 1] if index else None
    if expected == "'{'" and token is not None and before is not None and before.type == "RPAREN":
        return ("the body of if, else, for and while stands in braces: { … }",)
    for word in (token, before, _statement_start(tokens, index)):
        if word is not None and word.type == "IDENT" and word.text in _WORDS:
            return (_WORDS[word.text],)
    if (token is not None and token.type == "ASSIGN" and expected == "':'") or _starts_like_c(tokens, index):
        return (_LOOPS,)
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


def _starts_like_c(tokens: Sequence[Token], index: int) -> bool:
    """Whether the error is at the name in ``for (name = …``."""
    kinds = [token.type for token in tokens[max(0, index - 2) : index + 2]]
    return kinds == ["FOR", "LPAREN", "IDENT", "ASSIGN"]


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


_OPERANDS = frozenset({"IDENT", "INT", "FLOAT", "STRING", "VARIABLE", "MAP", "PARAM"})

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
