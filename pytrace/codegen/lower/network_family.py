"""Network builtins."""

from __future__ import annotations

from pytrace.base.dispatch import handles_names
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.values import Made, Operand, Ptr, Remote, Scalar
from pytrace.codegen.lower.expressions import Builtins
from pytrace.codegen.lower.operators import Members
from pytrace.core.diagnostics import InternalError
from pytrace.core.types import AF_INET, UINT64, AddressSpace, Inet, InterfaceName, Mac, Pointer
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import NetworkAddress

_MAC = 6


class NetworkBuiltins(Builtins):
    """Addresses of networks."""

    def __init__(self, e: Emitter) -> None:
        super().__init__(e)
        self.members = Members(e)

    def _bytes_of(self, node: nodes.Expr) -> Operand:
        """The bytes of an address argument: the array itself, or a pointer's target."""
        operand = self.e.value(node)
        type_ = operand.type
        if isinstance(type_, Pointer):
            return Remote(self.e.memory.number(operand), type_.target, self.e.foreign.pointed_space(type_.space))
        return operand

    def _put(self, operand: Operand, pointer: Ptr, size: int) -> None:
        if isinstance(operand, Remote):
            self.e.foreign.read(pointer, size, operand.address, operand.space)
        elif isinstance(operand, Scalar):
            self.b.store(operand.value, pointer, 8 * size, 4)
        else:
            source = self.e.place(operand)
            self.e.memory.copy(pointer, source.pointer, size, 1)

    @handles_names("macaddr")
    def _macaddr(self, node: nodes.Call) -> Operand:
        if not isinstance(node.args[0], nodes.Expr):
            raise InternalError("macaddr takes an address")
        source = self._bytes_of(node.args[0])
        if isinstance(source, Scalar):
            # A number is the address of the six bytes.
            source = Remote(source.value, Mac(), self.e.foreign.pointed_space(AddressSpace.NONE))
        return Made(Mac(), lambda pointer, _align: self._put(source, pointer, _MAC), reads=isinstance(source, Remote))

    @handles_names("ifname")
    def _ifname(self, node: nodes.Call) -> Operand:
        return self.word(self.argument(node), InterfaceName())

    @handles_names("ntop")
    def _ntop(self, node: nodes.Call) -> Operand:
        """``u32`` family and 16 bytes of address."""
        fact = self.checked.fact(node, NetworkAddress)
        source = self._bytes_of(fact.address)
        # An array contains only its own bytes, whatever the family; a pointer's target is read in full.
        size = 16 if isinstance(self.e.type(fact.address), Pointer) else min(16, source.type.size)
        constant = fact.family
        family = constant if constant is not None else self.argument(node, 0)

        def write(pointer: Ptr, _align: int) -> None:
            self.e.memory.zero(pointer, Inet().size, 4)
            self.b.store(family, pointer, 32)
            place = self.b.offset(pointer, 4)
            if constant is not None or isinstance(source, Scalar):
                self._put(source, place, 4 if constant == AF_INET or isinstance(source, Scalar) else size)
                return
            short, long, done = self.b.block(), self.b.block(), self.b.block()
            self.b.branch(self.b.icmp("eq", family, AF_INET), short, long)
            for block, length in ((short, 4), (long, size)):
                self.b.start(block)
                self._put(source, place, length)
                self.b.jump(done)
            self.b.start(done)

        return Made(Inet(), write, reads=isinstance(source, Remote))

    @handles_names("socket_cookie")
    def _socket_cookie(self, node: nodes.Call) -> Operand:
        """``bpf_get_socket_cookie``, which requires a typed (BTF) pointer."""
        socket = node.args[0]
        if not isinstance(socket, nodes.Expr):
            raise InternalError("socket_cookie takes a socket")
        result, missing = self.b.register(), self.b.block()
        self.b.store(0, result)
        self.b.store(self.b.helper(helpers.GET_SOCKET_COOKIE, self.members.typed_address(socket, missing)), result)
        self.b.jump(missing)
        self.b.start(missing)
        return Scalar(self.b.load(result), UINT64)
