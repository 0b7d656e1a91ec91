"""Typing rules of calls: checks common to all builtins (number of arguments, safety, probes), and calls of the script's
functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytrace.core.builtin_row import Builtin
from pytrace.core.builtins import builtin, builtin_names
from pytrace.core.diagnostics import counted, did_you_mean
from pytrace.core.types import VOID, Type
from pytrace.frontend.ast import nodes
from pytrace.frontend.check.inference.conversions import UNKNOWN, fits, settle
from pytrace.frontend.check.rules import imported_functions

if TYPE_CHECKING:
    from pytrace.frontend.ast.typed_program import FunctionInfo
    from pytrace.frontend.check.inference.checker import Checker

Arguments = tuple[nodes.Expr | nodes.TypeExpr, ...]


def call(checker: Checker, node: nodes.Call) -> Type:
    """``name(args)``."""
    function = checker.functions.get(node.name)
    if function is not None:
        return _call_function(checker, node, function)
    row = builtin(node.name)
    if (row is None or row.yields) and node.name in checker.imported:
        return imported_functions.call(checker, node)
    if row is None and (reason := checker.definitions.no_value(node.name)) is not None:
        notes = [("defined here", reason.span)]
        return checker.error(reason.message, node.span, hints=reason.hints, notes=notes)
    if row is None:
        hints = did_you_mean(node.name, [*builtin_names(), *checker.functions, *checker.imported])
        return checker.error(f"unknown function {node.name!r}", node.span, hints=hints)
    if not row.call:
        return checker.error(f"{node.name} is a value, not a function", node.span)
    return check_builtin(checker, node, row, node.args)


def check_builtin(checker: Checker, node: nodes.Call | nodes.Identifier, row: Builtin, args: Arguments) -> Type:
    """A use of a builtin, as a call or as a bare name (no arguments)."""
    if not _count_fits(checker, node, row, len(args)) or not _allowed(checker, node, row):
        return UNKNOWN
    checker.program.calls[node] = row
    return checker.rules.builtins[row.name](checker, node, args)


def _count_fits(checker: Checker, node: nodes.Expr, row: Builtin, count: int) -> bool:
    if row.least <= count and (row.most is None or count <= row.most):
        return True
    if row.most is None:
        wanted = f"at least {row.least}"
    elif row.least == row.most:
        wanted = str(row.least) if row.least else "no"
    else:
        wanted = f"{row.least} to {row.most}"
    plural = "" if wanted == "1" else "s"
    checker.error(f"{row.name}() takes {wanted} argument{plural}, not {count}", node.span, hints=[row.signature])
    return False


def _allowed(checker: Checker, node: nodes.Expr, row: Builtin) -> bool:
    if row.unsafe and not checker.options.unsafe:
        checker.error(
            f"{row.name}() can change the system, so it needs --unsafe", node.span, hints=["run with --unsafe"]
        )
        return False
    if row.no_loop and checker.map_loops:
        name = node.name if isinstance(node, nodes.Identifier) else row.name
        hints = ["put it into a variable before the loop"]
        checker.error(f"{name} cannot be read inside a for loop", node.span, hints=hints)
        return False
    if row.probes is None:
        return True
    kind = checker.unit.kind.name if checker.unit is not None else None
    if kind in row.probes:
        return True
    where = f"in {kind} probes" if kind is not None else "in functions"
    name = node.name if isinstance(node, nodes.Identifier) else row.name
    allowed = ", ".join(sorted(row.probes))
    checker.error(f"{name} is not available {where}", node.span, hints=[f"available in {allowed}"])
    return False


def _call_function(checker: Checker, node: nodes.Call, function: FunctionInfo) -> Type:
    checker.program.calls[node] = function
    wanted = function.parameters
    kinds = [(arg, imported_functions.argument(checker, arg)) for arg in node.args]
    if len(kinds) != len(wanted):
        notes = [("declared here", function.span)]
        message = f"{function.name}() takes {counted(len(wanted), 'argument')}, not {len(kinds)}"
        checker.error(message, node.span, notes=notes)
        return function.result
    for (arg, kind), parameter in zip(kinds, wanted, strict=True):
        if not fits(kind, parameter.type):
            checker.error(
                f"${parameter.name} of {function.name}() is {parameter.type}, this is {settle(kind)}",
                arg.span,
                notes=[("declared here", parameter.span)],
            )
    checker.callees.append((function, node.span))
    return function.result


def is_aggregate_call(node: nodes.Expr) -> bool:
    """True for ``count()``, ``sum(…)`` and the like."""
    row = builtin(node.name) if isinstance(node, nodes.Call | nodes.Identifier) else None
    return row is not None and row.family == "aggregate"


def aggregate_call(node: nodes.Expr) -> nodes.Expr | None:
    """The call of an aggregating function that *node* is, or that the block *node* ends with."""
    while isinstance(node, nodes.BlockExpr) and node.block.value is not None:
        node = node.block.value
    return node if is_aggregate_call(node) else None


_IGNORABLE_RESULTS = frozenset({"skboutput", "signal", "signal_thread", "write_user", "override", "find"})
"""Functions with a result that a statement may ignore."""


def warn_discarded(checker: Checker, node: nodes.Expr, type_: Type) -> None:
    """Warn when a statement discards the result of a call."""
    row = checker.program.calls.get(node)
    name = row.name if isinstance(row, Builtin) else ""
    if name == "delete":
        checker.program.discarded.add(node)
    elif type_ != VOID and type_ is not UNKNOWN and name not in _IGNORABLE_RESULTS:
        checker.warn("the value of this is not used", node.span, hints=["write _ = … to discard it explicitly"])
