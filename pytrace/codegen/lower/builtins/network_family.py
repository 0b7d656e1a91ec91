"""Network builtins."""

from __future__ import annotations

from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.values import Made, Operand, Ptr, Remote, Scalar
from pytrace.codegen.lower import members
from pytrace.codegen.lower.builtins.context_family import word
from pytrace.codegen.lower.builtins.families import Emission
from pytrace.codegen.lower.builtins.symbol_family import argument
from pytrace.core.diagnostics import InternalError
from pytrace.core.types import AF_INET, UINT64, AddressSpace, Inet, InterfaceName, Mac, Pointer
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import NetworkAddress

MAC = 6


def _bytes_of(e: Emitter, node: nodes.Expr) -> Operand:
    """The bytes of an address argument: the array itself, or a pointer's target."""
    operand = e.value(node)
    type_ = operand.type
    if isinstance(type_, Pointer):
        return Remote(e.memory.number(operand), type_.target, e.foreign.pointed_space(type_.space))
    return operand


def _put(e: Emitter, operand: Operand, pointer: Ptr, size: int) -> None:
    if isinstance(operand, Remote):
        e.foreign.read(pointer, size, operand.address, operand.space)
    elif isinstance(operand, Scalar):
        e.b.store(operand.value, pointer, 8 * size, 4)
    else:
        source = e.place(operand)
        e.memory.copy(pointer, source.pointer, size, 1)


def _macaddr(e: Emitter, node: nodes.Call) -> Operand:
    if not isinstance(node.args[0], nodes.Expr):
        raise InternalError("macaddr takes an address")
    source = _bytes_of(e, node.args[0])
    if isinstance(source, Scalar):
        # A number is the address of the six bytes.
        source = Remote(source.value, Mac(), e.foreign.pointed_space(AddressSpace.NONE))
    return Made(Mac(), lambda pointer, _align: _put(e, source, pointer, MAC), reads=isinstance(source, Remote))


def _ifname(e: Emitter, node: nodes.Call) -> Operand:
    return word(e, argument(e, node), InterfaceName())


def _ntop(e: Emitter, node: nodes.Call) -> Operand:
    """``u32`` family and 16 bytes of address."""
    fact = e.checked.fact(node, NetworkAddress)
    source = _bytes_of(e, fact.address)
    # An array contains only its own bytes, whatever the family; a pointer's target is read in full.
    size = 16 if isinstance(e.type(fact.address), Pointer) else min(16, source.type.size)
    constant = fact.family
    family = constant if constant is not None else argument(e, node, 0)

    def write(pointer: Ptr, _align: int) -> None:
        e.memory.zero(pointer, Inet().size, 4)
        e.b.store(family, pointer, 32)
        place = e.b.offset(pointer, 4)
        if constant is not None or isinstance(source, Scalar):
            _put(e, source, place, 4 if constant == AF_INET or isinstance(source, Scalar) else size)
            return
        short, long, done = e.b.block(), e.b.block(), e.b.block()
        e.b.branch(e.b.icmp("eq", family, AF_INET), short, long)
        for block, length in ((short, 4), (long, size)):
            e.b.start(block)
            _put(e, source, place, length)
            e.b.jump(done)
        e.b.start(done)

    return Made(Inet(), write, reads=isinstance(source, Remote))


def _socket_cookie(e: Emitter, node: nodes.Call) -> Operand:
    """``bpf_get_socket_cookie``, which requires a typed (BTF) pointer."""
    socket = node.args[0]
    if not isinstance(socket, nodes.Expr):
        raise InternalError("socket_cookie takes a socket")
    result, missing = e.b.register(), e.b.block()
    e.b.store(0, result)
    e.b.store(e.b.helper(helpers.GET_SOCKET_COOKIE, members.typed_address(e, socket, missing)), result)
    e.b.jump(missing)
    e.b.start(missing)
    return Scalar(e.b.load(result), UINT64)


EMIT: dict[str, Emission] = {
    "ifname": _ifname,
    "macaddr": _macaddr,
    "ntop": _ntop,
    "socket_cookie": _socket_cookie,
}

