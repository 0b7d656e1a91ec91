"""Block scopes of scratch variables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pytrace.core.diagnostics import did_you_mean
from pytrace.frontend.check.inference.slots import HYGIENE, VariableState, shown_name

if TYPE_CHECKING:
    from pytrace.core.source import Span
    from pytrace.frontend.ast import nodes
    from pytrace.frontend.check.inference.checker import Checker


class Scope(msgspec.Struct):
    """The variables of one block. Names cannot be shadowed: look-up proceeds outwards, and a declaration checks all
    enclosing scopes.
    """

    parent: Scope | None
    names: dict[str, VariableState] = msgspec.field(default_factory=dict)
    ended: dict[str, VariableState] = msgspec.field(default_factory=dict)
    """Variables of inner blocks that have ended, for messages."""

    def find(self, name: str) -> VariableState | None:
        """The variable that *name* refers to here."""
        scope: Scope | None = self
        while scope is not None:
            state = scope.names.get(name)
            if state is not None:
                return state
            scope = scope.parent
        return None

    def visible(self) -> list[str]:
        """All names that are visible here."""
        names: list[str] = []
        scope: Scope | None = self
        while scope is not None:
            names.extend(scope.names)
            scope = scope.parent
        return names

    def close(self, checker: Checker) -> None:
        """End the block: warn about unused declarations, and record the names for later messages."""
        for state in self.names.values():
            if state.declared and not state.assigned and not state.offered:
                checker.warn(f"${state.name} is never assigned", state.span)
        if self.parent is not None:
            self.parent.ended.update(self.names)
            self.parent.ended.update(self.ended)


def declare_new(
    checker: Checker, node: nodes.Variable, span: Span, *, declared: bool = False, loop: bool = False
) -> VariableState:
    """Declare a variable (``let``, ``for``); reports an error if it exists already."""
    existing = checker.scope.find(node.name)
    if existing is not None and existing.node is not node:
        same = node.name in checker.scope.names
        message = f"${shown_name(node.name)} is already declared"
        if not same:
            message = f"${shown_name(node.name)} would hide a variable of an outer block"
        checker.error(message, span, notes=[("first declared here", existing.span)], hints=["use another name"])
    return checker.declare(node, span, declared=declared, loop=loop)


def unknown_variable(checker: Checker, node: nodes.Variable) -> None:
    """Report a read of a variable that does not exist."""
    name = shown_name(node.name)
    notes, hints = [], did_you_mean("$" + name, ("$" + item for item in checker.scope.visible() if HYGIENE not in item))
    scope = checker.scope
    if HYGIENE in node.name and scope.find(name) is not None:
        hints = (f"a macro sees only its own variables: add ${name} to its parameters",)
    if node.name in scope.ended:
        notes.append(("it exists only in this block", scope.ended[node.name].span))
        hints = (f"declare it before the block: let ${name};",)
    checker.error(f"undefined variable ${name}", node.span, notes=notes, hints=hints)
