"""Traversal, rewriting, copying and comparison of ASTs.

Nothing here recurses, so the depth of a tree is not limited. :func:`run_deep` is for passes that do.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import TypeVar

from msgspec.structs import asdict

from pytrace.core.diagnostics import Diagnostics
from pytrace.core.source import Span
from pytrace.frontend.ast import nodes

N = TypeVar("N", bound=nodes.Node)

_PLAIN = frozenset(
    {"Span", "str", "bool", "int", "float", "bytes", "int | None", "str | None", "tuple[str, ...]",
     "tuple[tuple[str, str], ...]", "tuple[tuple[str, ...], ...]", "bytes | int | bool | str"}
)
"""Types of fields that contain no nodes."""


@cache
def _fields(kind: type[nodes.Node]) -> list[tuple[str, str]]:
    """Names of the fields of a node class, and the text of their type annotations."""
    written: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        written.update(getattr(base, "__annotations__", {}))
    return [(name, written[name]) for name in kind.__struct_fields__]


@cache
def child_fields(kind: type[nodes.Node]) -> tuple[str, ...]:
    """Names of the fields of a node class that hold nodes, tuples of nodes, or None, in source order."""
    return tuple(name for name, written in _fields(kind) if written not in _PLAIN)


def children(node: nodes.Node) -> list[nodes.Node]:
    """The nodes directly below *node*, in source order."""
    below: list[nodes.Node] = []
    for name in child_fields(type(node)):
        value = getattr(node, name)
        if isinstance(value, tuple):
            below.extend(value)
        elif value is not None:
            below.append(value)
    return below


def walk(node: nodes.Node) -> Iterator[nodes.Node]:
    """*node* and all nodes below it, each before its children, in source order."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        below = children(current)
        below.reverse()
        waiting += below


def deeper_than(node: nodes.Node, levels: int) -> nodes.Node | None:
    """A node more than *levels* below *node*, if there is one."""
    waiting = [(node, 0)]
    while waiting:
        current, level = waiting.pop()
        if level > levels:
            return current
        waiting.extend((child, level + 1) for child in children(current))
    return None


def rebuild(node: nodes.Node, function: Callable[[nodes.Node], nodes.Node]) -> nodes.Node:
    """The tree with every node replaced by the result of *function*, bottom-up.

    *function* gets a node whose children are rebuilt already and returns its replacement, or the node itself. A node
    without changes is not copied: the result shares it with the old tree.
    """
    return _build(node, lambda old, below: function(_with_children(old, below)))


def copy(node: N) -> N:
    """A copy in which every node is fresh; spans are kept."""
    result = _build(node, _fresh)
    assert isinstance(result, type(node))
    return result


def same(left: nodes.Node, right: nodes.Node) -> bool:
    """Whether two trees are equal except for spans (and the spelling of numbers, arrows and block brackets)."""
    waiting: list[tuple[object, object]] = [(left, right)]
    while waiting:
        one, other = waiting.pop()
        if isinstance(one, nodes.Node):
            if type(one) is not type(other):
                return False
            waiting.extend((getattr(one, name), getattr(other, name)) for name in _compared_fields(type(one)))
        elif isinstance(one, tuple):
            if not isinstance(other, tuple) or len(one) != len(other):
                return False
            waiting.extend(zip(one, other, strict=True))
        elif one != other or type(one) is not type(other):
            return False
    return True


_SPELLING = {("IntLiteral", "text"), ("FloatLiteral", "text"), ("Block", "angle")}


@cache
def _compared_fields(kind: type[nodes.Node]) -> tuple[str, ...]:
    written = _fields(kind)
    return tuple(name for name, type_ in written if type_ != "Span" and (kind.__name__, name) not in _SPELLING)


def _build(node: nodes.Node, make: Callable[[nodes.Node, list[nodes.Node]], nodes.Node]) -> nodes.Node:
    """Call *make* with each node and the results for its children, children first. Returns the result for *node*."""
    done: list[nodes.Node] = []
    waiting: list[tuple[nodes.Node, int]] = [(node, -1)]
    while waiting:
        current, count = waiting.pop()
        if count < 0:
            below = children(current)
            waiting.append((current, len(below)))
            waiting.extend((child, -1) for child in reversed(below))
            continue
        results = done[len(done) - count :]
        del done[len(done) - count :]
        done.append(make(current, results))
    return done[0]


def _with_children(node: nodes.Node, below: list[nodes.Node]) -> nodes.Node:
    if all(new is old for new, old in zip(below, children(node), strict=True)):
        return node
    return _fresh(node, below)


def _fresh(node: nodes.Node, below: list[nodes.Node]) -> nodes.Node:
    """A new node like *node* with the children *below*."""
    kind = type(node)
    values = asdict(node)
    following = iter(below)
    for name in child_fields(kind):
        value = values[name]
        if isinstance(value, nodes.Node):
            values[name] = next(following)
        elif isinstance(value, tuple):
            values[name] = tuple(next(following) if isinstance(item, nodes.Node) else item for item in value)
    return kind(**values)


# ---------------------------------------------------------------------------------------------- depth

T = TypeVar("T")

LIMIT = 60_000
"""Python frames that a pass may take; frames of Python functions live on the heap (CPython 3.11)."""


def run_deep(run: Callable[[], T], otherwise: T, diagnostics: Diagnostics, span: Span) -> T:
    """Run a recursive pass and return its result; if the tree is too deep, record an error and return *otherwise*."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, LIMIT))
    try:
        return run()
    except RecursionError:
        diagnostics.error("the script is nested too deeply", span)
        return otherwise
    finally:
        sys.setrecursionlimit(before)
