"""Emission of builtins: one module for each family, found when a script uses one of its rows.

A family module has a table ``EMIT``: builtin name to ``emit(e, node) -> Operand``.  An asynchronous builtin that is not
in it sends its event and is done.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from pytrace.codegen.ir.operands import Operand
from pytrace.core.builtin_row import Builtin

Emission = Callable[[Any, Any], Operand]

FAMILIES = frozenset(
    (
        *("aggregate", "context", "control", "map", "meta", "network", "output"),
        *("process", "stack", "string", "symbol", "time"),
    )
)


def emission(row: Builtin) -> Emission | None:
    """The function that emits a builtin, or None when the table of its family has none."""
    if row.family not in FAMILIES:
        raise LookupError(f"builtin {row.name} is of the unknown family {row.family!r}")
    table: dict[str, Emission] = import_module(f"{__package__}.{row.family}_family").EMIT
    return table.get(row.name)
