"""The parts of its context that a probe's body reads, which decide what targets can share a program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from pytrace.core.builtins import builtin
from pytrace.frontend.syntax import nodes


class Uses(msgspec.Struct, frozen=True):
    """The names of builtins (values and calls) in a body, and how it reads ``args``.

    *fields* are the members of ``args`` that it reads; *whole*: ``args`` is also used as a whole.
    """

    names: frozenset[str]
    fields: frozenset[str]
    whole: bool

    @property
    def args(self) -> bool:
        """Whether the body reads ``args`` at all."""
        return self.whole or bool(self.fields)

    @property
    def positional(self) -> tuple[int, ...]:
        """Indexes N of each ``argN`` that the body reads."""
        return tuple(sorted(int(name[3:]) for name in self.names if name.startswith("arg") and name[3:].isdigit()))

    def __contains__(self, name: str) -> bool:
        return name in self.names


def of(roots: Iterable[nodes.Node | None]) -> Uses:
    """The combined uses of *roots*."""
    names: set[str] = set()
    fields: set[str] = set()
    members: set[nodes.Node] = set()
    bare = False
    for root in roots:
        if root is None:
            continue
        for node in nodes.walk(root):
            if isinstance(node, nodes.FieldAccess) and _is_args(node.base):
                fields.add(node.name)
                members.add(node.base)
            elif isinstance(node, nodes.Identifier | nodes.Call):
                names.add(node.name)
                bare = bare or (_is_args(node) and node not in members)
    return Uses(frozenset(names), frozenset(fields), bare)


def _is_args(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Identifier | nodes.Call) and node.name == "args"


_STACKS = frozenset({"kstack"})
"""Builtins whose result contains the kernel frames of the tracepoint itself."""


def type_specific(roots: Iterable[nodes.Node], functions: Mapping[str, nodes.Function]) -> str:
    """A builtin or function in *roots* that behaves differently in another program type; empty if there is none.

    A kernel stack has other frames at its top, and kfuncs and functions of an imported object file may be restricted to
    one program type. *functions* are those of the script, by name.
    """
    waiting = list(roots)
    seen: set[str] = set()
    while waiting:
        for node in nodes.walk(waiting.pop()):
            if not isinstance(node, nodes.Call | nodes.Identifier):
                continue
            function = functions.get(node.name) if isinstance(node, nodes.Call) else None
            if function is not None and node.name not in seen:
                seen.add(node.name)
                waiting.append(function.body)
            elif node.name in _STACKS or (
                isinstance(node, nodes.Call) and function is None and builtin(node.name) is None
            ):
                return node.name
    return ""


_TEXT_CALLS = frozenset({
    "assert_str", "cat", "delete", "errorf", "find", "has_key", "heading", "one_of", "print", "printf", "row",
    "sprintf", "str", "str_concat", "strcontains", "strlen", "strncmp", "strstr", "system", "warnf",
})  # fmt: skip
"""Builtins that read a text up to its NUL."""
_TEXT_OPERATORS = (nodes.Index, nodes.Cast, nodes.Unary)


def bytes_of(roots: Iterable[nodes.Node], names: Iterable[str]) -> str:
    """A text field in *names* that *roots* access other than as a string; empty if there is none.

    Such code can observe the bytes after the NUL, or the address.
    """
    texts = frozenset(names)
    for root in roots:
        for node in nodes.walk(root):
            exposes = isinstance(node, _TEXT_OPERATORS) or (
                isinstance(node, nodes.Call) and node.name not in _TEXT_CALLS
            )
            for child in nodes.children(node) if exposes else ():
                if isinstance(child, nodes.FieldAccess) and _is_args(child.base) and child.name in texts:
                    return child.name
    return ""
