"""Object-like macros of the C part as written: expansion of those that contain parameters of the script, and reasons
why others have no value.

The C front end (``frontend.c``) evaluates macros. Parameters (``$1``, ``$#``, ``getopt()``) are not C, so macros that
contain them are replaced by their text before parameters are substituted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TypeVar

import msgspec
from msgspec.structs import asdict, replace

from pytrace.core.builtins import bare_builtin
from pytrace.core.diagnostics import Diagnostics
from pytrace.core.source import Source, Span
from pytrace.frontend.expand import library
from pytrace.frontend.syntax import nodes, parser

N = TypeVar("N", bound=nodes.Node)

_DEFINE = r"(?s)\s*#\s*define\s+(?P<name>[A-Za-z_]\w*)(?P<parameters>\([^)]*\))?(?P<body>.*)\Z"
_DIRECTIVE = r"\s*#\s*(?P<word>undef|ifdef|ifndef|if|endif)\b\s*(?P<name>\w*)"
_COMMENT = r"(?s)//[^\n]*|/\*.*?\*/|\\\r?\n"
_PARAMETER = r"\$[\d#]|\bgetopt\b"
_WORD = r"[A-Za-z_]\w*"

MOST_USES = 2_000
"""Maximum number of replaced uses: macros defined in terms of others may double in each step."""


class CMacro(msgspec.Struct, frozen=True):
    """A macro that the script defines; *parameters* is its list of parameters, parentheses included, or None."""

    name: str
    parameters: str | None
    body: str
    span: Span

    def expression(self) -> nodes.Expr | None:
        """The body as an expression of the language, a new tree each time; None when it is not one."""
        text = Source(f"{self.span.source.name} (macro {self.name})", self.body)
        return parser.parse_expression(text, Diagnostics())


class NoValue(msgspec.Struct, frozen=True):
    """The reason why a macro has no value: a message and hints; *span* is its definition."""

    message: str
    hints: tuple[str, ...]
    span: Span


def no_value(item: CMacro) -> NoValue:
    """The reason why *item*, which macro expansion did not replace, has no value."""
    if item.parameters is not None:
        own = f"macro {item.name}{item.parameters} {{ {item.body} }}"
        return NoValue(
            f"{item.name!r} is a C macro with parameters, which scripts cannot call",
            (f"write it as a macro of the script: {own}",),
            item.span,
        )
    if not item.body:
        return NoValue(f"the macro {item.name!r} is empty; it has no value", (), item.span)
    if item.expression() is None:
        hint = "a macro can stand for one expression; a 'macro' of the script can have statements"
        return NoValue(f"the macro {item.name!r} is not an expression: {item.body}", (hint,), item.span)
    hint = f"the macro {item.name!r} refers to itself; as in C, its name is not replaced again inside its own expansion"
    return NoValue(f"unknown name {item.name!r}", (hint,), item.span)


def macro(part: nodes.CPart) -> CMacro | None:
    """The macro that a directive of the C part defines; None for other parts."""
    match = re.match(_DEFINE, part.text)
    if match is None:
        return None
    return CMacro(match["name"], match["parameters"], re.sub(_COMMENT, " ", match["body"]).strip(), part.span)


def defined(program: nodes.Program) -> dict[str, CMacro]:
    """Macros of the script by name, without those inside of preprocessor conditionals."""
    macros: dict[str, CMacro] = {}
    conditions = 0
    for part in program.c_parts:
        directive = re.match(_DIRECTIVE, part.text)
        item = macro(part)
        if directive is not None and directive["word"].startswith("if"):
            conditions += 1
        elif directive is not None and directive["word"] == "endif":
            conditions -= 1
        elif directive is not None:
            macros.pop(directive["name"], None)
        elif item is not None and not conditions:
            macros[item.name] = item
    return macros


def parameter_expressions(program: nodes.Program) -> Iterator[nodes.Expr]:
    """The bodies of macros that contain parameters of the script themselves."""
    for item in defined(program).values():
        expression = item.expression() if re.search(_PARAMETER, item.body) else None
        if expression is not None:
            yield expression


def expand_parameters(program: nodes.Program) -> nodes.Program:
    """*program* with macros replaced that contain parameters, directly or through other macros."""
    macros = _with_parameters(defined(program))
    if not macros:
        return program
    left_alone = _left_alone(program)
    budget = [MOST_USES]

    def use(node: nodes.Node) -> nodes.Node:
        if not isinstance(node, nodes.Identifier) or node in left_alone:
            return node
        return _replaced(node, macros, frozenset(), budget)

    items = tuple(nodes.rebuild(item, use) for item in program.items)
    return replace(program, items=items)


def place_at(tree: N, span: Span) -> N:
    """A copy of *tree* in which every node has *span*."""

    def place(node: nodes.Node) -> nodes.Node:
        changes = {name: span for name, value in asdict(node).items() if isinstance(value, Span)}
        return replace(node, **changes)

    result = nodes.rebuild(tree, place)
    assert isinstance(result, type(tree))
    return result


def _with_parameters(macros: Mapping[str, CMacro]) -> dict[str, CMacro]:
    """Those of *macros* whose expansion contains parameters of the script."""
    plain = {name: item for name, item in macros.items() if item.parameters is None and not _taken(name)}
    expanded = {name: item for name, item in plain.items() if re.search(_PARAMETER, item.body)}
    while True:
        more = {
            name: item
            for name, item in plain.items()
            if name not in expanded and not expanded.keys().isdisjoint(re.findall(_WORD, item.body))
        }
        if not more:
            return expanded
        expanded.update(more)


def _taken(name: str) -> bool:
    """Whether a name without parentheses is a builtin or macro of the language, which takes precedence over C."""
    return bare_builtin(name) or any(not item.parameters for item in library.macros(name))


def _left_alone(program: nodes.Program) -> set[nodes.Node]:
    """Names that are not C macros: members, macros of the script, and their parameters."""
    own = {item.name for item in program.items if isinstance(item, nodes.Macro) and not item.parameters}
    names: set[nodes.Node] = set()
    for item in program.items:
        parameters = set(own)
        if isinstance(item, nodes.Macro):
            names.update(item.parameters)
            parameters.update(x.name for x in item.parameters if isinstance(x, nodes.Identifier))
        for node in nodes.walk(item):
            if isinstance(node, nodes.Identifier) and node.name in parameters:
                names.add(node)
            elif isinstance(node, nodes.Call) and node.name == "member_exist":
                names.update(inner for argument in node.args[1:] for inner in nodes.walk(argument))
    return names


def _replaced(
    node: nodes.Identifier, macros: Mapping[str, CMacro], active: frozenset[str], budget: list[int]
) -> nodes.Expr:
    """The expression that a name stands for; a name inside its own expansion is not replaced, as in C.

    When the *budget* of uses is spent, names are not replaced: the macros pass reports the excess.
    """
    item = macros.get(node.name)
    expression = item.expression() if item is not None and node.name not in active and budget[0] > 0 else None
    if expression is None:
        return node
    budget[0] -= 1
    inside = active | {node.name}

    def use(inner: nodes.Node) -> nodes.Node:
        return _replaced(inner, macros, inside, budget) if isinstance(inner, nodes.Identifier) else inner

    result = nodes.rebuild(place_at(expression, node.span), use)
    assert isinstance(result, nodes.Expr)
    return result
