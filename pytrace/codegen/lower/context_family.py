"""Builtins that read the probe's context."""

from __future__ import annotations

from pytrace.base.dispatch import handles_names
from pytrace.codegen.ir.values import Made, Memory, Number, Operand, Ptr, Scalar
from pytrace.codegen.lower.expressions import Builtins
from pytrace.codegen.walkers.memory_images import MemoryImages
from pytrace.codegen.walkers.program_filters import FunctionExits
from pytrace.codegen.walkers.python_objects import PythonObjects
from pytrace.core.diagnostics import InternalError
from pytrace.core.types import BOOL, UINT64, String, Struct, USym
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import ArgumentIndex

Node = nodes.Call | nodes.Identifier


class ContextBuiltins(Builtins):
    """Reads the probe's context."""

    @handles_names("argN")
    def _arg_n(self, node: Node) -> Operand:
        index = self.checked.fact(node, ArgumentIndex).index
        return Scalar(self.e.probe.positional(index), self.e.type(node))

    @handles_names("args")
    def _args(self, node: Node) -> Operand:
        type_ = self.e.type(node)
        if not isinstance(type_, Struct):
            raise InternalError("args is a struct")
        return self.e.probe.all_arguments(type_)

    @handles_names("ctx")
    def _ctx(self, node: Node) -> Operand:
        return Scalar(self.b.address(self.e.raw_context), self.e.type(node), pointer=self.e.context)

    @handles_names("retval")
    def _retval(self, _node: Node) -> Operand:
        context = self.program.unit.context
        if context.result is not None:
            return self.e.probe.argument(context.result)
        if context.slots:
            return Scalar(self.e.launder(self.e.probe.slot(context.slots)), UINT64)
        return Scalar(self.e.probe.register(self.e.probe.registers().result), UINT64)

    @handles_names("func")
    def _func(self, node: Node) -> Operand:
        type_ = self.e.type(node)
        if isinstance(type_, String):
            return PythonObjects(self.e).function_name(type_)
        address = self.e.probe.function_address()
        if isinstance(type_, USym):
            return self.user_symbol(self.b.sub(address, FunctionExits(self.e).distance()), type_)
        return Scalar(address, UINT64) if type_.scalar else self.word(address, type_)

    def user_symbol(self, address: Number, type_: USym) -> Operand:
        """Address and process."""
        process = MemoryImages(self.e).process()

        def write(pointer: Ptr, _align: int) -> None:
            self.b.store(address, pointer)
            self.b.store(process, self.b.offset(pointer, 8), 32)
            self.b.store(0, self.b.offset(pointer, 12), 32)

        return Made(type_, write)

    @handles_names("probe")
    def _probe(self, node: Node) -> Operand:
        """Name of the attach point that fired, from the program's table of names."""
        type_ = self.e.type(node)
        names = [name.encode("utf-8", "surrogateescape") for name in self.program.unit.names]
        table = b"".join(name[: type_.size].ljust(type_.size, b"\0") for name in names)
        index = self.b.at_most(self.b.opaque(self.e.events.target_index()), len(names) - 1)
        place = self.b.offset(self.module.constant(table), self.b.mul(index, type_.size))
        return Memory(place, type_, 8 if type_.size % 8 == 0 else 1)

    @handles_names("usermode")
    def _usermode(self, _node: Node) -> Operand:
        """The privilege level, from the code segment register; probes that the tracer runs count as user mode."""
        unit = self.program.unit
        if unit.kind.context.value in ("registers", "perf_event"):
            level = self.b.op("and", self.e.probe.register("cs"), 3)
            return Scalar(self.b.number(self.b.icmp("eq", level, 3)), BOOL)
        return Scalar(1 if unit.kind.special else 0, BOOL)
