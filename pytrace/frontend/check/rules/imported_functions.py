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
"""A BPF call passes its arguments in registers 1 to 5."""


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
        struct = checker.definitions.struct(type_.target.kind, type_.target.name)
        return replace(type_, target=struct) if struct is not None else type_
    return type_


def call(checker: Checker, node: nodes.Call) -> Type:
    """A call of an imported function."""
    function = checker.imported[node.name]
    argument_types = [argument(checker, arg) for arg in node.args]
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
