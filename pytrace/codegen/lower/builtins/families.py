"""Lowering of builtins: one module for each family, imported when a script uses one of its rows.

A family module has a table ``EMIT``: builtin name to ``emit(e, node) -> Operand``.  An asynchronous builtin without an
entry only sends its event.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir.operands import Operand
from pytrace.frontend.ast import nodes

if TYPE_CHECKING:
    from pytrace.core.builtin_row import Builtin

Emission = Callable[[Emitter, nodes.Call], Operand]
"""The type of rows of ``EMIT``; rows of builtins that allow a bare name also take an ``Identifier``."""

FAMILIES = frozenset(
    (
        *("aggregate", "context", "control", "map", "meta", "network", "output"),
        *("process", "stack", "string", "symbol", "time"),
    )
)


def emission(row: Builtin) -> Callable[[Emitter, nodes.Call | nodes.Identifier], Operand] | None:
    """The function that emits a builtin, or None when the table of its family has none."""
    if row.family not in FAMILIES:
        raise LookupError(f"builtin {row.name} is of the unknown family {row.family!r}")
    # The checker allows a bare name only for rows without required parameters, whose functions accept both node types.
    found: Callable[[Emitter, nodes.Call | nodes.Identifier], Operand] | None
    found = import_module(f"{__package__}.{row.family}_family").EMIT.get(row.name)
    return found
