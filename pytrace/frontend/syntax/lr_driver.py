"""Runs PLY's tables over the tokens of an item that has no syntax error.

PLY's own loop makes an object for each symbol and keeps what recovery from errors needs: half of the time of parsing.
Here symbols are their values, productions that only pass a value on cost a change of state, and an item with an error
is given up: the caller has PLY's loop parse it again, from its start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from pytrace.frontend.ast import nodes
from pytrace.frontend.syntax.grammar_support import ItemTokens, LRParser, Rule

if TYPE_CHECKING:
    from typing import TypeAlias

    from pytrace.core.source import Source, Span
    from pytrace.frontend.syntax.lexical.tokens import Token

_END = "$end"
"""PLY's kind of the end of the tokens."""


class SyntaxMistake(Exception):  # noqa: N818 - control flow
    """The item has a syntax error."""


class Item:
    """The item as productions see it; what they report is kept until the item is known to be without syntax errors."""

    __slots__ = ("errors", "head", "points", "source")

    def __init__(self, source: Source, head: Span, points: tuple[nodes.AttachPoint, ...]) -> None:
        self.source = source
        self.head = head
        self.points = points
        self.errors: list[tuple[str, Span, tuple[str, ...]]] = []

    def error(self, message: str, span: Span, *hints: str) -> None:
        """Record an error that the grammar does not detect."""
        self.errors.append((message, span, hints))


class Parts(list[object]):
    """PLY's production as a list: the result, then the parts."""

    __slots__ = ("lexer", "parser")

    lexer: ItemTokens
    parser: LRParser


_Reduction: TypeAlias = tuple[str, int, Callable[[Rule], None] | None]
"""The symbol that a production gives, its number of parts, and its function; None if that passes its part on."""


class Tables:
    """PLY's tables in the form that :func:`parse` reads."""

    def __init__(self, parser: LRParser) -> None:
        self.parser = parser
        states = range(len(parser.action))
        self.reductions: tuple[_Reduction, ...] = tuple(
            (rule.name, rule.len, None if rule.len == 1 and _passes_on(rule.callable) else rule.callable)
            for rule in parser.productions
        )
        self.actions: list[Mapping[str, int]] = [parser.action[state] for state in states]
        self.defaults: list[int | None] = [_only_reduction(actions) for actions in self.actions]
        self.goto = self._goto([parser.goto.get(state, {}) for state in states])

    def _goto(self, goto: list[Mapping[str, int]]) -> list[Mapping[str, int]]:
        """Where a state goes with a symbol. States that pass a value on whatever follows are passed through."""
        passing = {
            state: self.reductions[-action][0]
            for state, action in enumerate(self.defaults)
            if action is not None and self.reductions[-action][2] is None
        }
        through: list[Mapping[str, int]] = []
        for row in goto:
            ends = dict(row)
            for symbol, state in row.items():
                while state in passing:
                    state = ends[symbol] = row[passing[state]]
            through.append(ends)
        return through


def _only_reduction(actions: Mapping[str, int]) -> int | None:
    """The reduction that is the only action of a state, whatever follows; None where there are others.

    A mistake is then found after the reduction, where the item is given up; PLY finds it before.
    """
    first, *rest = {*actions.values()}
    return None if rest or first >= 0 else first


def _passed_on(p: Rule) -> None:
    """The result is the part. Like the productions it has a docstring, which is the first constant of its code."""
    p[0] = p[1]


def _passes_on(function: object) -> bool:
    """Whether a production's function does what :func:`_passed_on` does."""
    code, wanted = getattr(function, "__code__", None), _passed_on.__code__
    return code is not None and code.co_code == wanted.co_code and code.co_consts[1:] == wanted.co_consts[1:]


def parse(tables: Tables, item: ItemTokens, tokens: list[Token]) -> nodes.Node | None:
    """The node of an item.

    Raises:
        SyntaxMistake: the tokens are not of the grammar.
    """
    try:
        return _run(tables, item, iter(tokens))
    except KeyError:
        # No action for this kind of token, or an error of pytrace that PLY's loop will meet again.
        raise SyntaxMistake from None


def _run(tables: Tables, item: ItemTokens, following: Iterator[Token]) -> nodes.Node | None:
    actions, goto, defaults, reductions = tables.actions, tables.goto, tables.defaults, tables.reductions
    parts = Parts()
    parts.lexer, parts.parser = item, tables.parser
    values: list[object] = []
    states = [state := 0]
    token = next(following, None)
    kind = _END if token is None else token.type
    while True:
        action = defaults[state]
        if action is None:
            action = actions[state][kind]
        if action > 0:
            values.append(token)
            states.append(state := action)
            token = next(following, None)
            kind = _END if token is None else token.type
        elif action < 0:
            name, length, function = reductions[-action]
            if function is not None:
                start = len(values) - length
                parts[:] = None, *values[start:]
                function(parts)
                values[start:] = (parts[0],)
                if length:
                    del states[-length:]
            else:
                states.pop()
            states.append(state := goto[states[-1]][name])
        else:
            result = values[-1]
            return result if isinstance(result, nodes.Node) else None
