"""An LR driver for PLY's tables, for items without syntax errors.

PLY's own loop creates an object for each symbol and keeps the state for error recovery, which takes half of the parsing
time. This driver stores only values, treats unit productions as state changes, and abandons an item with an error: the
caller then parses it again with PLY's loop.
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
    """The item as seen by productions; their errors are kept until the item is known to have no syntax error."""

    __slots__ = ("errors", "head", "points", "source")

    def __init__(self, source: Source, head: Span, points: tuple[nodes.AttachPoint, ...]) -> None:
        self.source = source
        self.head = head
        self.points = points
        self.errors: list[tuple[str, Span, tuple[str, ...]]] = []

    def error(self, message: str, span: Span, *hints: str) -> None:
        """Record an error that the grammar itself does not detect."""
        self.errors.append((message, span, hints))


class Parts(list[object]):
    """PLY's production as a list: the result, then the parts."""

    __slots__ = ("lexer", "parser")

    lexer: ItemTokens
    parser: LRParser


_Reduction: TypeAlias = tuple[str, int, Callable[[Rule], None] | None]
"""The symbol that a production reduces to, its number of parts, and its function; None for a unit production."""


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
        """The goto table, with states that only reduce a unit production replaced by their successors."""
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
    """The reduction that is the only action of a state; None if the state has other actions.

    With such a default reduction a syntax error is detected after the reduction instead of before it.
    """
    first, *rest = {*actions.values()}
    return None if rest or first >= 0 else first


def _passed_on(p: Rule) -> None:
    """A unit production. Like all productions it has a docstring, which is the first constant of its code."""
    p[0] = p[1]


def _passes_on(function: object) -> bool:
    """Whether a production's function has the same code as :func:`_passed_on`."""
    code, wanted = getattr(function, "__code__", None), _passed_on.__code__
    return code is not None and code.co_code == wanted.co_code and code.co_consts[1:] == wanted.co_consts[1:]


def parse(tables: Tables, item: ItemTokens, tokens: list[Token]) -> nodes.Node | None:
    """The node of an item.

    Raises:
        SyntaxMistake: the item has a syntax error.
    """
    try:
        return _run(tables, item, iter(tokens))
    except KeyError:
        # No action for this kind of token, or a bug in pytrace that PLY's loop will hit again.
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
