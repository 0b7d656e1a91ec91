"""Builtins that read the probe's context; addresses, symbols and registers."""

from __future__ import annotations

from pytrace.base.dispatch import handles_names
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.values import Made, Memory, Number, Operand, Ptr, Scalar, signed_constant
from pytrace.codegen.lower.expressions import Builtins
from pytrace.codegen.walkers.memory_images import MemoryImages
from pytrace.codegen.walkers.program_filters import FunctionExits
from pytrace.codegen.walkers.python_objects import PythonObjects
from pytrace.core.diagnostics import InternalError, TraceError
from pytrace.core.probe_kinds import FileTarget
from pytrace.core.types import BOOL, UINT64, VOID, AddressSpace, KSym, Pointer, String, Struct, USym
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import (
    ArgumentIndex,
    GoroutineNumber,
    KernelVariable,
    RegisterName,
    UserSymbol,
)

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


# ------------------------------------------------------------------------------------ addresses, symbols and registers

MAX_ERRNO = 4095


class SymbolBuiltins(Builtins):
    """Addresses, symbols and registers."""

    @handles_names("ksym")
    def _ksym(self, node: nodes.Call) -> Operand:
        return self.word(self.argument(node), KSym())

    @handles_names("ksym_name")
    def _ksym_name(self, node: nodes.Call) -> Operand:
        """The kernel's ``%ps`` of an address (lib/vsprintf.c): a number if there is no symbol."""
        type_ = self.e.type(node)
        address = self.argument(node)

        def write(pointer: Ptr, _align: int) -> None:
            self.e.memory.zero(pointer, type_.size)
            with self.e.temporaries():
                data = self.b.alloca(8)
                self.b.store(address, data)
                self.b.helper(helpers.SNPRINTF, pointer, type_.size, self.module.constant(b"%ps\0"), data, 8)

        return Made(type_, write)

    @handles_names("usym")
    def _usym(self, node: nodes.Call) -> Operand:
        return ContextBuiltins(self.e).user_symbol(self.argument(node), USym())

    @handles_names("kptr", "uptr")
    def _same(self, node: nodes.Call) -> Operand:
        """kptr, uptr: the value unchanged. The address space is part of a pointer's type; of a number it is that of the
        operand, for what reads through it at once.
        """
        type_, space = self.e.type(node), AddressSpace.KERNEL if node.name == "kptr" else AddressSpace.USER
        return Scalar(self.argument(node), type_ if isinstance(type_, Pointer) else Pointer(VOID, space))

    @handles_names("is_err")
    def _is_err(self, node: nodes.Call) -> Operand:
        low = self.b.icmp("ugt", self.argument(node), -MAX_ERRNO - 1)
        return Scalar(self.b.number(low), BOOL)

    @handles_names("reg")
    def _reg(self, node: nodes.Call) -> Operand:
        return Scalar(self.e.probe.register(self.checked.fact(node, RegisterName).register), UINT64)

    @handles_names("goid")
    def _goid(self, node: nodes.Call | nodes.Identifier) -> Operand:
        """Functions of Go have the address of the running goroutine in r14 (``abi-internal.md``)."""
        place = self.b.add(self.e.probe.register("r14"), self.checked.fact(node, GoroutineNumber).offset)
        return self.e.foreign.read_scalar(place, UINT64, AddressSpace.USER)

    @handles_names("percpu_kaddr")
    def _percpu_kaddr(self, node: nodes.Call) -> Operand:
        """The address of a per-CPU variable: its link address plus the CPU's offset (``__per_cpu_offset``)."""
        symbol = self.checked.fact(node, KernelVariable)
        table = self.script.kernel.kernel_symbol("__per_cpu_offset")
        if table is None:
            raise TraceError("percpu_kaddr() needs the kernel symbol __per_cpu_offset, which is not there")
        cpu = self.argument(node, 1) if len(node.args) > 1 else self.e.cpu
        limit = self.e.load_time.integer("cpus", (), self.script.kernel.possible_cpus)
        hidden = self.b.opaque(cpu)
        inside = self.b.icmp("ult", hidden, limit)
        start = self.e.load_time.integer("kaddr", ("__per_cpu_offset",), table)
        place = self.b.add(start, self.b.op("shl", hidden, 3))
        distance = self.e.foreign.read_scalar(place, UINT64, AddressSpace.KERNEL).value
        variable = self.e.load_time.integer("kaddr", (symbol.symbol,), symbol.address)
        address = self.b.add(variable, distance)
        return Scalar(self.b.select(inside, address, 0), UINT64)

    @handles_names("uaddr")
    def _uaddr(self, node: nodes.Call) -> Operand:
        """The address in the file plus the load bias of the running binary.

        The load bias is the difference between the probe's address in memory and in the file.
        """
        symbol = self.checked.fact(node, UserSymbol)
        (target,) = self.program.unit.targets
        path, offset = symbol.path, target.of(FileTarget).offset
        place = self.script.kernel.user_address_at(path, offset)
        if place is None:
            raise TraceError(f"uaddr() cannot tell where {path} is loaded: no segment of it holds offset {offset:#x}")
        moved = self.b.sub(self.e.probe.function_address(), signed_constant(place))
        return Scalar(self.b.add(signed_constant(symbol.address), moved), self.e.type(node))
