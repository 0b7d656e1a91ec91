"""Typing rules of calls: checks common to all builtins (number of arguments, safety, probes), and calls of functions of
the script and of imported C.
"""

from __future__ import annotations

from msgspec.structs import replace

from pytrace.core.builtin_row import Builtin
from pytrace.core.builtins import builtin, builtin_names
from pytrace.core.diagnostics import Note, TraceError, counted, did_you_mean
from pytrace.core.kernel_info import FunctionPrototype
from pytrace.core.probes.kinds import TRACEPOINT
from pytrace.core.types import VOID, Bool, Enum, Int, Pointer, Struct, Type, Void
from pytrace.frontend.check.inference.argument_checks import is_text
from pytrace.frontend.check.inference.checker import Arguments, Checker
from pytrace.frontend.check.inference.conversions import UNKNOWN, Unknown, fits, is_condition, settle
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import FunctionInfo, ImportedFunction


def call(checker: Checker, node: nodes.Call) -> Type:
    """``name(args)``."""
    function = checker.functions.get(node.name)
    if function is not None:
        return _call_function(checker, node, function)
    row = builtin(node.name)
    if (row is None or row.yields) and node.name in checker.imported:
        return _call_imported(checker, node)
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
    hints = [*_as_arguments(checker, name), f"available in {allowed}"]
    checker.error(f"{name} is not available {where}", node.span, hints=hints)
    return False


def _as_arguments(checker: Checker, name: str) -> list[str]:
    """How a tracepoint calls what other probes have as ``retval`` and ``arg0``."""
    if checker.unit is None or checker.unit.kind.name != TRACEPOINT:
        return []
    probe = checker.unit.targets[0].probe
    if name == "retval":
        exit_ = probe.replace(":sys_enter_", ":sys_exit_")
        return ["use args.ret"] if exit_ == probe else [f"use args.ret in {exit_}"]
    return [f"use args.NAME; pytrace -lv '{probe}' lists the names"] if name.startswith("arg") else []


def _call_function(checker: Checker, node: nodes.Call, function: FunctionInfo) -> Type:
    checker.program.calls[node] = function
    wanted = function.parameters
    kinds = [(arg, _argument(checker, arg)) for arg in node.args]
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


# ---------------------------------------------------------------------------------------------- functions of imported C

MOST_PARAMETERS = 5
"""A BPF call passes its arguments in registers 1 to 5."""


def read_imports(checker: Checker, program: nodes.Program) -> None:
    """Register the functions of all imported object files."""
    for item in program.objects:
        try:
            functions = checker.kernel.object_functions(item.path, item.data)
        except TraceError as problem:
            checker.reported.error(str(problem), item.span, hints=problem.hints)
            continue
        for function in functions:
            name = function.prototype.name
            known = checker.imported.get(name)
            if known is not None and not function.static:
                notes = [Note("the other one is imported here", known.span)]
                checker.reported.error(f"the C function {name!r} is imported twice", item.span, notes=notes)
            if known is None:
                checker.imported[name] = None if function.static else _imported(checker, function.prototype, item)


def _imported(checker: Checker, prototype: FunctionPrototype, item: nodes.BpfObject) -> ImportedFunction:
    parameters = tuple((name, _known(checker, kind)) for name, kind in prototype.parameters)
    return ImportedFunction(prototype.name, parameters, _known(checker, prototype.result), item.span)


def _known(checker: Checker, type_: Type) -> Type:
    """Replace pointer targets by the script's or kernel's struct of that name: C may declare only some members."""
    if isinstance(type_, Pointer) and isinstance(type_.target, Struct) and type_.target.name:
        struct = checker.definitions.struct(type_.target.kind, type_.target.name)
        return replace(type_, target=struct) if struct is not None else type_
    return type_


def _call_imported(checker: Checker, node: nodes.Call) -> Type:
    """A call of an imported function."""
    function = checker.imported[node.name]
    argument_types = [_argument(checker, arg) for arg in node.args]
    if function is None:
        hints = ["remove 'static', or call it from a function that is not static"]
        message = f"the C function {node.name!r} is static: only its own file can call it"
        return checker.error(message, node.span, hints=hints)
    notes = [("imported here", function.span)]
    if not _callable(function):
        message = f"the C function {node.name!r} cannot be called from a script: {_signature(function)}"
        hints = ["it may have 5 parameters; parameters and result are integers, bools, enums or pointers"]
        return checker.error(message, node.span, hints=hints, notes=notes)
    if len(argument_types) != len(function.parameters):
        message = f"{node.name}() takes {counted(len(function.parameters), 'argument')}, not {len(argument_types)}"
        return checker.error(message, node.span, hints=[_signature(function)], notes=notes)
    for arg, argument_type, (name, wanted) in zip(node.args, argument_types, function.parameters, strict=True):
        if not _fits(argument_type, wanted):
            message = f"{name!r} of {node.name}() is {wanted}, this is {settle(argument_type)}"
            checker.error(message, arg.span, hints=[_signature(function)], notes=notes)
    checker.program.calls[node] = function
    return function.result


def _argument(checker: Checker, arg: nodes.Expr | nodes.TypeExpr) -> Type:
    """The type of an argument of an imported function."""
    if isinstance(arg, nodes.TypeExpr):
        return checker.error("a type cannot be an argument here", arg.span)
    return checker.value(arg)


def _callable(function: ImportedFunction) -> bool:
    kinds = [kind for _, kind in function.parameters]
    return (
        len(kinds) <= MOST_PARAMETERS
        and all(isinstance(kind, Int | Bool | Enum | Pointer) for kind in kinds)
        and isinstance(function.result, Int | Bool | Enum | Pointer | Void)
    )


def _signature(function: ImportedFunction) -> str:
    listed = ", ".join(f"{kind} {name}" for name, kind in function.parameters)
    return f"{function.result} {function.name}({listed})"


def _fits(argument_type: Type, parameter_type: Type) -> bool:
    """Whether an argument fits a parameter: C converts integers implicitly, and a string decays to a pointer."""
    if isinstance(argument_type, Unknown) or argument_type is UNKNOWN:
        return True
    if not isinstance(parameter_type, Pointer):
        return is_condition(argument_type) and not isinstance(argument_type, Pointer)
    target = parameter_type.target
    if is_text(argument_type):
        return isinstance(target, Void) or (isinstance(target, Int) and target.width == 1)
    if isinstance(argument_type, Struct):
        return _same_target(argument_type, target)
    if not isinstance(argument_type, Pointer):
        return False
    return isinstance(argument_type.target, Void) or _same_target(argument_type.target, target)


def _same_target(argument: Type, parameter: Type) -> bool:
    if isinstance(parameter, Void):
        return True
    if isinstance(argument, Struct) and isinstance(parameter, Struct):
        return (argument.kind, argument.name) == (parameter.kind, parameter.name)
    if isinstance(argument, Int) and isinstance(parameter, Int):
        return argument.width == parameter.width
    return type(argument) is type(parameter) and argument.size == parameter.size
