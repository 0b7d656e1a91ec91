"""Builtins that read the probe's context."""

from __future__ import annotations

from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir.values import Made, Memory, Number, Operand, Ptr, Scalar
from pytrace.codegen.lower.builtins.families import Emission
from pytrace.codegen.services import function_exits, memory_images
from pytrace.codegen.services.python import objects as python_objects
from pytrace.core.diagnostics import InternalError
from pytrace.core.types import BOOL, UINT64, String, Struct, Type, USym
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import ArgumentIndex

Node = nodes.Call | nodes.Identifier


def _arg_n(e: Emitter, node: Node) -> Operand:
    index = e.checked.fact(node, ArgumentIndex).index
    return Scalar(e.probe.positional(index), e.type(node))


def _args(e: Emitter, node: Node) -> Operand:
    type_ = e.type(node)
    if not isinstance(type_, Struct):
        raise InternalError("args is a struct")
    return e.probe.all_arguments(type_)


def _ctx(e: Emitter, node: Node) -> Operand:
    return Scalar(e.b.address(e.raw_context), e.type(node), pointer=e.context)


def _retval(e: Emitter, _node: Node) -> Operand:
    context = e.program.unit.context
    if context.result is not None:
        return e.probe.argument(context.result)
    if context.slots:
        return Scalar(e.launder(e.probe.slot(context.slots)), UINT64)
    return Scalar(e.probe.register(e.probe.registers().result), UINT64)


def _func(e: Emitter, node: Node) -> Operand:
    type_ = e.type(node)
    if isinstance(type_, String):
        return python_objects.function_name(e, type_)
    address = e.probe.function_address()
    if isinstance(type_, USym):
        return user_symbol(e, e.b.sub(address, function_exits.distance(e)), type_)
    return Scalar(address, UINT64) if type_.scalar else word(e, address, type_)


def word(e: Emitter, value: Number, type_: Type) -> Operand:
    """A 64-bit value."""

    def write(pointer: Ptr, _align: int) -> None:
        e.b.store(value, pointer)

    return Made(type_, write)


def user_symbol(e: Emitter, address: Number, type_: USym) -> Operand:
    """Address and process."""
    process = memory_images.process(e)

    def write(pointer: Ptr, _align: int) -> None:
        e.b.store(address, pointer)
        e.b.store(process, e.b.offset(pointer, 8), 32)
        e.b.store(0, e.b.offset(pointer, 12), 32)

    return Made(type_, write)


def _probe(e: Emitter, node: Node) -> Operand:
    """Name of the attach point that fired, from the program's table of names."""
    type_ = e.type(node)
    names = [target.probe.encode("utf-8", "surrogateescape") for target in e.program.unit.targets]
    table = b"".join(name[: type_.size].ljust(type_.size, b"\0") for name in names)
    index = e.b.at_most(e.b.opaque(e.events.target_index()), len(names) - 1)
    place = e.b.offset(e.module.constant(table), e.b.mul(index, type_.size))
    return Memory(place, type_, 8 if type_.size % 8 == 0 else 1)


def _usermode(e: Emitter, _node: Node) -> Operand:
    """The privilege level, from the code segment register; probes that the tracer runs count as user mode."""
    unit = e.program.unit
    if unit.kind.context.value in ("registers", "perf_event"):
        level = e.b.op("and", e.probe.register("cs"), 3)
        return Scalar(e.b.number(e.b.icmp("eq", level, 3)), BOOL)
    return Scalar(1 if unit.kind.special else 0, BOOL)


EMIT: dict[str, Emission] = {
    "argN": _arg_n,
    "args": _args,
    "ctx": _ctx,
    "func": _func,
    "probe": _probe,
    "retval": _retval,
    "usermode": _usermode,
}
