"""Builtins that change the behaviour of the system: signals, overridden return values, writes to user memory."""

from __future__ import annotations

from collections.abc import Callable

from pytrace.base.dispatch import handles_names
from pytrace.codegen.emit import memory
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.values import I64, Nothing, Number, Operand, Ptr, Scalar
from pytrace.codegen.lower.expressions import Builtins
from pytrace.core.diagnostics import InternalError
from pytrace.core.types import BOOL, VOID, AddressSpace, Pointer, Type
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import SignalNumber

WRITE_MOST = 4096
"""Maximum bytes of one write_user()."""


def _signal(helper: helpers.Helper[[Number], I64]) -> Callable[..., Operand]:
    def emit(family: ControlBuiltins, node: nodes.Call) -> Operand:
        e = family.e
        constant = e.checked.fact(node, SignalNumber).number
        number = constant if constant is not None else family.argument(node)
        error = e.b.helper(helper, number)
        e.events.check_helper(node, helper.symbol, error)
        return Nothing(VOID)

    return emit


class ControlBuiltins(Builtins):
    """Changes the behaviour of the system."""

    @handles_names("override")
    def _override(self, node: nodes.Call) -> Operand:
        self.b.helper(helpers.OVERRIDE_RETURN, self.e.raw_context, self.argument(node))
        return Nothing(VOID)

    @handles_names("write_user")
    def _write_user(self, node: nodes.Call) -> Operand:
        """The source is copied to the program's memory first, as the helper requires."""
        target = self.argument(node, 0)
        source = node.args[1]
        if not isinstance(source, nodes.Expr):
            raise InternalError("write_user takes a pointer")
        type_ = self.e.type(source)
        with self.e.temporaries():
            if type_.scalar:
                length = self.b.at_most(self.argument(node, 2), WRITE_MOST)
                copy = self._copied(node, type_, length)
            else:
                length = self.b.at_most(self.argument(node, 2), type_.size)
                copy = self.e.scratch(type_.size)
                self.e.memory.write(self.e.value(source), copy, type_)
            error = self.b.helper(helpers.PROBE_WRITE_USER, self.b.pointer(target), copy, length)
        self.e.events.check_helper(node, "bpf_probe_write_user", error)
        return Scalar(self.b.number(self.b.icmp("eq", error, 0)), BOOL)

    def _copied(self, node: nodes.Call, type_: Type, length: Number) -> Ptr:
        """A copy of the target of the second argument, in scratch memory."""
        space = self.e.foreign.pointed_space(type_.space if isinstance(type_, Pointer) else AddressSpace.NONE)
        read = memory.read_helper(space)
        address = self.argument(node, 1)
        copy = self.e.scratch(WRITE_MOST)
        self.e.events.check_helper(node, read.symbol, self.b.helper(read, copy, length, address))
        return copy

    _send_signal = handles_names("signal")(_signal(helpers.SEND_SIGNAL))
    _send_signal_to_thread = handles_names("signal_thread")(_signal(helpers.SEND_SIGNAL_THREAD))
