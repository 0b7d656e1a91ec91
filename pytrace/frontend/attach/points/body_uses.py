"""Which parts of its context a probe's body reads; decides which targets can share a program."""

from __future__ import annotations

from collections.abc import Iterable

from pytrace.base.fast_dataclass import dataclass
from pytrace.frontend.ast import nodes, visitor


@dataclass(frozen=True, slots=True)
class Uses:
    """The names of builtins (values and calls) in a body, and how it reads ``args``.

    *fields* are the members that it reads; *whole* says that ``args`` is also used as a whole.
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
        for node in visitor.walk(root):
            if isinstance(node, nodes.FieldAccess) and _is_args(node.base):
                fields.add(node.name)
                members.add(node.base)
            elif isinstance(node, nodes.Identifier | nodes.Call):
                names.add(node.name)
                bare = bare or (_is_args(node) and node not in members)
    return Uses(frozenset(names), frozenset(fields), bare)


def _is_args(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Identifier | nodes.Call) and node.name == "args"
