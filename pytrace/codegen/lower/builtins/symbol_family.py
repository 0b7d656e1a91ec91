"""Addresses, symbols and registers."""

from __future__ import annotations

from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.values import Made, Number, Operand, Ptr, Scalar, signed_constant
from pytrace.codegen.lower.builtins.context_family import user_symbol, word
from pytrace.codegen.lower.builtins.families import Emission
from pytrace.core.diagnostics import InternalError, TraceError
from pytrace.core.probes.targets import FileTarget
from pytrace.core.types import BOOL, UINT64, VOID, AddressSpace, KSym, Pointer, USym
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import GoroutineNumber, KernelVariable, RegisterName, UserSymbol

MAX_ERRNO = 4095


def argument(e: Emitter, node: nodes.Call, index: int = 0) -> Number:
    """A scalar argument."""
    item = node.args[index]
    if not isinstance(item, nodes.Expr):
        raise InternalError(f"{node.name} takes values")
    operand = e.value(item)
    if not operand.type.scalar:
        value = e.place(operand)
        return e.b.load(value.pointer)
    return e.memory.number(operand)


def _ksym(e: Emitter, node: nodes.Call) -> Operand:
    return word(e, argument(e, node), KSym())


def _ksym_name(e: Emitter, node: nodes.Call) -> Operand:
    """The kernel's ``%ps`` of an address (lib/vsprintf.c): a number if there is no symbol."""
    type_ = e.type(node)
    address = argument(e, node)

    def write(pointer: Ptr, _align: int) -> None:
        e.memory.zero(pointer, type_.size)
        with e.temporaries():
            data = e.b.alloca(8)
            e.b.store(address, data)
            e.b.helper(helpers.SNPRINTF, pointer, type_.size, e.module.constant(b"%ps\0"), data, 8)

    return Made(type_, write)


def _usym(e: Emitter, node: nodes.Call) -> Operand:
    return user_symbol(e, argument(e, node), USym())


def _same(e: Emitter, node: nodes.Call) -> Operand:
    """kptr, uptr: the value unchanged. The address space is part of a pointer's type; of a number it is that of the
    operand, for what reads through it at once.
    """
    type_, space = e.type(node), AddressSpace.KERNEL if node.name == "kptr" else AddressSpace.USER
    return Scalar(argument(e, node), type_ if isinstance(type_, Pointer) else Pointer(VOID, space))


def _is_err(e: Emitter, node: nodes.Call) -> Operand:
    low = e.b.icmp("ugt", argument(e, node), -MAX_ERRNO - 1)
    return Scalar(e.b.number(low), BOOL)


def _reg(e: Emitter, node: nodes.Call) -> Operand:
    return Scalar(e.probe.register(e.checked.fact(node, RegisterName).register), UINT64)


def _goid(e: Emitter, node: nodes.Call | nodes.Identifier) -> Operand:
    """Functions of Go have the address of the running goroutine in r14 (``abi-internal.md``)."""
    place = e.b.add(e.probe.register("r14"), e.checked.fact(node, GoroutineNumber).offset)
    return e.foreign.read_scalar(place, UINT64, AddressSpace.USER)


def _percpu_kaddr(e: Emitter, node: nodes.Call) -> Operand:
    """The address of a per-CPU variable: its link address plus the CPU's offset (``__per_cpu_offset``)."""
    symbol = e.checked.fact(node, KernelVariable)
    table = e.script.kernel.kernel_symbol("__per_cpu_offset")
    if table is None:
        raise TraceError("percpu_kaddr() needs the kernel symbol __per_cpu_offset, which is not there")
    cpu = argument(e, node, 1) if len(node.args) > 1 else e.cpu
    limit = e.load_time.integer("cpus", (), e.script.kernel.possible_cpus)
    hidden = e.b.opaque(cpu)
    inside = e.b.icmp("ult", hidden, limit)
    start = e.load_time.integer("kaddr", ("__per_cpu_offset",), table)
    place = e.b.add(start, e.b.op("shl", hidden, 3))
    distance = e.foreign.read_scalar(place, UINT64, AddressSpace.KERNEL).value
    variable = e.load_time.integer("kaddr", (symbol.symbol,), symbol.address)
    address = e.b.add(variable, distance)
    return Scalar(e.b.select(inside, address, 0), UINT64)


def _uaddr(e: Emitter, node: nodes.Call) -> Operand:
    """The address in the file plus the load bias of the running binary.

    The load bias is the difference between the probe's address in memory and in the file.
    """
    symbol = e.checked.fact(node, UserSymbol)
    (target,) = e.program.unit.targets
    path, offset = symbol.path, target.of(FileTarget).offset
    place = e.script.kernel.user_address_at(path, offset)
    if place is None:
        raise TraceError(f"uaddr() cannot tell where {path} is loaded: no segment of it holds offset {offset:#x}")
    moved = e.b.sub(e.probe.function_address(), signed_constant(place))
    return Scalar(e.b.add(signed_constant(symbol.address), moved), e.type(node))


EMIT: dict[str, Emission] = {
    "goid": _goid,
    "is_err": _is_err,
    "kptr": _same,
    "ksym": _ksym,
    "ksym_name": _ksym_name,
    "percpu_kaddr": _percpu_kaddr,
    "reg": _reg,
    "uaddr": _uaddr,
    "uptr": _same,
    "usym": _usym,
}
