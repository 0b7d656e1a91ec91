"""Lowering of builtins: one module per family, imported when a script uses one of its builtins.

A family module has a table ``EMIT``: builtin name to ``emit(e, node) -> Operand``.  An asynchronous builtin without an
entry only sends its event.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir.values import Operand
from pytrace.core.builtins import Builtin
from pytrace.frontend.syntax import nodes

Emission = Callable[[Emitter, nodes.Call], Operand]
"""The type of rows of ``EMIT``; rows of builtins that allow a bare name also take an ``Identifier``."""

FAMILIES = frozenset(
    (
        *("aggregate", "context", "control", "map", "meta", "network", "output"),
        *("process", "python", "stack", "string", "symbol", "time"),
    )
)


def emission(row: Builtin) -> Callable[[Emitter, nodes.Call | nodes.Identifier], Operand] | None:
    """The function that emits a builtin; None if its family's table has no entry."""
    if row.family not in FAMILIES:
        raise LookupError(f"builtin {row.name} is of the unknown family {row.family!r}")
    # The checker allows a bare name only for rows without required parameters, whose functions accept both node types.
    emit: Callable[[Emitter, nodes.Call | nodes.Identifier], Operand] | None
    emit = import_module(f"{__package__}.{row.family}_family").EMIT.get(row.name)
    return emit
