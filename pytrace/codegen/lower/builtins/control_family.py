"""Builtins that change the behaviour of the system: signals, overridden return values, writes to user memory."""

from __future__ import annotations

from pytrace.codegen.emit import memory
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.values import I64, Nothing, Number, Operand, Ptr, Scalar
from pytrace.codegen.lower.builtins.families import Emission
from pytrace.codegen.lower.builtins.symbol_family import argument
from pytrace.core.diagnostics import InternalError
from pytrace.core.types import BOOL, VOID, AddressSpace, Pointer, Type
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import SignalNumber

WRITE_MOST = 4096
"""Maximum bytes of one write_user()."""


def _override(e: Emitter, node: nodes.Call) -> Operand:
    e.b.helper(helpers.OVERRIDE_RETURN, e.raw_context, argument(e, node))
    return Nothing(VOID)


def _signal(helper: helpers.Helper[[Number], I64]) -> Emission:
    def emit(e: Emitter, node: nodes.Call) -> Operand:
        constant = e.checked.fact(node, SignalNumber).number
        number = constant if constant is not None else argument(e, node)
        error = e.b.helper(helper, number)
        e.events.check_helper(node, helper.symbol, error)
        return Nothing(VOID)

    return emit


def _write_user(e: Emitter, node: nodes.Call) -> Operand:
    """The source is copied to the program's memory first, as the helper requires."""
    target = argument(e, node, 0)
    source = node.args[1]
    if not isinstance(source, nodes.Expr):
        raise InternalError("write_user takes a pointer")
    type_ = e.type(source)
    with e.temporaries():
        if type_.scalar:
            length = e.b.at_most(argument(e, node, 2), WRITE_MOST)
            copy = _copied(e, node, type_, length)
        else:
            length = e.b.at_most(argument(e, node, 2), type_.size)
            copy = e.scratch(type_.size)
            e.memory.write(e.value(source), copy, type_)
        error = e.b.helper(helpers.PROBE_WRITE_USER, e.b.pointer(target), copy, length)
    e.events.check_helper(node, "bpf_probe_write_user", error)
    return Scalar(e.b.number(e.b.icmp("eq", error, 0)), BOOL)


def _copied(e: Emitter, node: nodes.Call, type_: Type, length: Number) -> Ptr:
    """A copy of the target of the second argument, in scratch memory."""
    space = e.foreign.pointed_space(type_.space if isinstance(type_, Pointer) else AddressSpace.NONE)
    read = memory.read_helper(space)
    address = argument(e, node, 1)
    copy = e.scratch(WRITE_MOST)
    e.events.check_helper(node, read.symbol, e.b.helper(read, copy, length, address))
    return copy


EMIT: dict[str, Emission] = {
    "override": _override,
    "signal": _signal(helpers.SEND_SIGNAL),
    "signal_thread": _signal(helpers.SEND_SIGNAL_THREAD),
    "write_user": _write_user,
}
