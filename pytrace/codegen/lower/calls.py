"""Lowering of calls of builtins and of user functions."""

from __future__ import annotations

from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.emit.program import Program
from pytrace.codegen.ir.values import FRAME, Memory, Nothing, Number, Operand, Remote, Scalar
from pytrace.core.builtins import Builtin, Mode
from pytrace.core.diagnostics import InternalError
from pytrace.core.types import VOID, Pointer, Type, Void
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import FunctionInfo, ImportedFunction


def call(e: Emitter, node: nodes.Identifier | nodes.Call) -> Operand:
    """Lower a call, or a builtin's bare name."""
    target = e.checked.calls[node]
    if isinstance(target, FunctionInfo):
        if not isinstance(node, nodes.Call):
            raise InternalError(f"{target.name} without arguments")
        return _call_function(e, node, target)
    if isinstance(target, ImportedFunction):
        if not isinstance(node, nodes.Call):
            raise InternalError(f"{target.name} without arguments")
        return _call_imported(e, node, target)
    return builtin(e, node, target)


def builtin(e: Emitter, node: nodes.Identifier | nodes.Call, row: Builtin) -> Operand:
    """Lower a builtin by the table of its family; an asynchronous one without an entry sends its event."""
    emit = e.script.lowering.emission(row)
    if emit is not None:
        return emit(e, node)
    if row.mode is not Mode.ASYNC:
        raise InternalError(f"no code for builtin {row.name}")
    e.events.send_node(node)
    return Nothing(VOID)


# ---------------------------------------------------------------------------------------------- user functions


def _call_function(e: Emitter, node: nodes.Call, target: FunctionInfo) -> Operand:
    """Call a user function. Arguments are passed in scratch memory: any number, any type, no recursion."""
    operands = e.in_order([item for item in node.args if isinstance(item, nodes.Expr)])
    placed = [item if item.type.scalar else e.memory.place(item) for item in operands]
    for info, operand in zip(target.parameters, placed, strict=True):
        e.memory.write(operand, e.variable_pointer(info), info.type)
    name = e.program.functions[target]
    result = e.b.call(name, [e.frame])
    if isinstance(target.result, Void):
        return Nothing(VOID)
    if target.result.scalar:
        return Scalar(result, target.result)
    pointer = e.temporary(target.result.size)
    e.memory.copy(pointer, e.area(e.program.results[target]), target.result.size)
    return Memory(pointer, target.result)


def _call_imported(e: Emitter, node: nodes.Call, target: ImportedFunction) -> Operand:
    """Call an imported C function: arguments are in registers; strings and structs are passed by address."""
    operands = [e.value(item) for item in node.args if isinstance(item, nodes.Expr)]
    values = [
        _register(e, operand, type_) for operand, (_, type_) in zip(operands, target.parameters, strict=True)
    ]
    e.module.imported_function(target.name, tuple(type_ for _, type_ in target.parameters), target.result)
    result = e.b.call(target.name, numbers=values)
    if isinstance(target.result, Void):
        return Nothing(VOID)
    # C leaves the upper bits of a narrow result undefined.
    return Scalar(e.memory.fit(result, target.result), target.result)


def _register(e: Emitter, operand: Operand, type_: Type) -> Number:
    if isinstance(operand, Scalar) and operand.direct:
        return operand.value
    if isinstance(operand, Remote) and not operand.type.scalar:
        return operand.address
    if operand.type.scalar:
        return e.memory.number(e.memory.convert(operand, type_) if not isinstance(type_, Pointer) else operand)
    return e.b.address(e.place(operand).pointer)


def generate(program: Program, target: FunctionInfo) -> None:
    """Emit the program's own copy of a user function, which uses the program's scratch area and counters."""
    module = program.script.module
    name = f"{program.unit.symbol}__{target.symbol}"
    program.functions[target] = name
    result = target.result

    def leave(e: Emitter, value: Operand | None) -> None:
        if value is None or isinstance(result, Void):
            e.b.ret(0)
        elif result.scalar:
            e.b.ret(e.memory.number(e.memory.convert(value, result)))
        else:
            e.memory.write(value, e.area(program.results[target]), result)
            e.b.ret(0)

    b = module.function(name, ("*frame",), target.span)
    e = Emitter(program, b, target.span, 1, FRAME, leave=leave, result_type=result)
    # A function may be called from the body of a loop over a map.
    e.atomic = True
    for parameter in target.parameters:
        # Parameters are live from the start, so the function's temporaries must not overlap them.
        e.variable(parameter)
    if not result.scalar and not isinstance(result, Void):
        program.results[target] = program.scratch.allocate(result.size)
    value = e.run_block(target.body, result)
    if not e.b.closed:
        e.leave(value)
