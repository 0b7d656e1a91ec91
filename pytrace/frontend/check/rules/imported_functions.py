"""Functions of imported C: their names, parameter types and result types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytrace.core.diagnostics import Note, TraceError, counted
from pytrace.core.types import Bool, Enum, Int, Pointer, Struct, Type, Void
from pytrace.frontend.ast import nodes
from pytrace.frontend.ast.typed_program import ImportedFunction
from pytrace.frontend.check.inference.argument_checks import is_text
from pytrace.frontend.check.inference.conversions import UNKNOWN, Unknown, is_condition, settle

if TYPE_CHECKING:
    from pytrace.core.kernel_info import FunctionPrototype
    from pytrace.frontend.check.inference.checker import Checker

MOST_PARAMETERS = 5
"""Arguments of a BPF call: registers 1 to 5."""


def read(checker: Checker, program: nodes.Program) -> None:
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
        found = checker.definitions.struct(type_.target.kind, type_.target.name)
        return replace(type_, target=found) if found is not None else type_
    return type_


def call(checker: Checker, node: nodes.Call) -> Type:
    """A call of an imported function."""
    function = checker.imported[node.name]
    kinds = [argument(checker, arg) for arg in node.args]
    if function is None:
        hints = ["remove 'static', or call it from a function that is not static"]
        message = f"the C function {node.name!r} is static: only its own file can call it"
        return checker.error(message, node.span, hints=hints)
    notes = [("imported here", function.span)]
    if not _callable(function):
        message = f"the C function {node.name!r} cannot be called from a script: {_signature(function)}"
        hints = ["it may have 5 parameters; parameters and result are integers, bools, enums or pointers"]
        return checker.error(message, node.span, hints=hints, notes=notes)
    if len(kinds) != len(function.parameters):
        message = f"{node.name}() takes {counted(len(function.parameters), 'argument')}, not {len(kinds)}"
        return checker.error(message, node.span, hints=[_signature(function)], notes=notes)
    for arg, given, (name, wanted) in zip(node.args, kinds, function.parameters, strict=True):
        if not _fits(given, wanted):
            message = f"{name!r} of {node.name}() is {wanted}, this is {settle(given)}"
            checker.error(message, arg.span, hints=[_signature(function)], notes=notes)
    checker.program.calls[node] = function
    return function.result


def argument(checker: Checker, arg: nodes.Expr | nodes.TypeExpr) -> Type:
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


def _fits(given: Type, wanted: Type) -> bool:
    """Whether an argument fits a parameter: C converts integers implicitly, and a string decays to a pointer."""
    if isinstance(given, Unknown) or given is UNKNOWN:
        return True
    if not isinstance(wanted, Pointer):
        return is_condition(given) and not isinstance(given, Pointer)
    target = wanted.target
    if is_text(given):
        return isinstance(target, Void) or (isinstance(target, Int) and target.width == 1)
    if isinstance(given, Struct):
        return _same_target(given, target)
    return isinstance(given, Pointer) and (isinstance(given.target, Void) or _same_target(given.target, target))


def _same_target(given: Type, wanted: Type) -> bool:
    if isinstance(wanted, Void):
        return True
    if isinstance(given, Struct) and isinstance(wanted, Struct):
        return (given.kind, given.name) == (wanted.kind, wanted.name)
    if isinstance(given, Int) and isinstance(wanted, Int):
        return given.width == wanted.width
    return type(given) is type(wanted) and given.size == wanted.size
