"""Builtins that send events; those that change what the system does (signals, return values, memory of users)."""

from __future__ import annotations

from collections.abc import Callable

from pytrace.base.dispatch import handles_names
from pytrace.codegen.emit import events, memory
from pytrace.codegen.emit.program import SESSION
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.values import I64, Nothing, Number, Operand, Ptr, Scalar
from pytrace.codegen.lower.expressions import Builtins
from pytrace.core.diagnostics import InternalError
from pytrace.core.manifest import EXITED
from pytrace.core.types import BOOL, INT64, VOID, AddressSpace, Pointer, String, Type
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import DebugFormat, SignalNumber

_PACKET_MOST = 65535
"""Maximum size of a packet that skboutput copies."""


_COMMANDS = ("system", "cat")
"""Kinds of events that the tracer handles by running a command or reading a file."""


class OutputBuiltins(Builtins):
    """Sends events."""

    @handles_names("exit")
    def _exit(self, node: nodes.Call | nodes.Identifier) -> Operand:
        """Programs stop, and the status is kept in the session data if the ring has no room for the event.

        Commands that the script asked for are run, and traced, before the tracer ends: then programs go on
        until it does.
        """
        codes = [self.e.number(item) for item in self.checked.event_arguments.get(node, ())]
        status = self.b.op("and", codes[0], 255) if codes else 0
        word = self.e.session(SESSION.exit)
        operands = [Scalar(code, type_) for code, type_ in zip(codes, self.checked.events[node].args, strict=True)]
        if not any(spec.kind in _COMMANDS for spec in self.checked.event_list):
            self.b.store(EXITED, self.e.session(SESSION.stopped), 32)
        self.e.events.send(self.checked.events[node], operands, lambda: self.b.store(self.b.add(status, 1), word, 32))
        self.e.leave(None)
        return Nothing(VOID)

    @handles_names("join")
    def _join(self, node: nodes.Call) -> Operand:
        """A ``u32`` count and 16 strings, read up to the first null pointer.  A longer list is counted as truncated."""
        spec = self.checked.events[node]
        layout = spec.layout
        text = layout.args[1]
        if not isinstance(text, String) or not isinstance(node.args[0], nodes.Expr):
            raise InternalError("join takes a pointer to strings")
        type_ = self.e.type(node.args[0])
        space = self.e.foreign.pointed_space(type_.space if isinstance(type_, Pointer) else AddressSpace.NONE)
        start = self.e.number(node.args[0])
        tails = layout.tails[1]
        size = layout.fixed_size + (layout.tail_capacity + events.SLACK if tails else 0)
        with self.e.temporaries():
            pointer = self.e.scratch(size)
            self.e.memory.zero(pointer, layout.fixed_size)
            done = self.b.block()
            count, filled = self.b.register(), self.b.register()
            self.b.store(0, count)
            self.b.store(0, filled)
            for index in range(len(layout.args) - 1):
                item = self.e.foreign.read_scalar(self.b.add(start, 8 * index), Pointer(VOID), space).value
                self.b.jump_if(self.b.icmp("eq", item, 0), done)
                place = self.b.offset(pointer, layout.offsets[index + 1])
                if tails:
                    self._join_tail(
                        item, place, self.b.offset(pointer, layout.fixed_size), filled, text.capacity, space
                    )
                else:
                    self.e.strings.read_string(place, text.capacity, item, space, 1)
                self.b.store(index + 1, count)
            more = self.e.foreign.read_scalar(self.b.add(start, 8 * (len(layout.args) - 1)), Pointer(VOID), space).value
            self.e.counter("unjoined", self.program.index, self.b.number(self.b.icmp("ne", more, 0)))
            self.b.jump(done)
            self.b.start(done)
            self.b.store(self.b.load(count), self.b.offset(pointer, layout.offsets[0]), 32)
            self.e.events.header(spec, pointer, self.b.load(filled))
            self.e.events.output(pointer, self.b.add(self.b.load(filled), layout.fixed_size))
        return Nothing(VOID)

    def _join_tail(self, item: Number, place: Ptr, start: Ptr, filled: Ptr, capacity: int, space: AddressSpace) -> None:
        offset = self.b.load(filled)
        length = self.e.strings.string_tail(self.b.offset(start, offset), capacity, item, space)
        self.b.store(self.e.events.count_word(length, capacity), place, 32)
        self.b.store(self.b.add(offset, length), filled)

    @handles_names("skboutput")
    def _skboutput(self, node: nodes.Call) -> Operand:
        """Send a time stamp and the packet: *length* bytes of ``skb->data``."""
        spec = self.checked.events[node]
        layout = spec.layout
        skb, length, offset = (self.e.number(item) for item in self.checked.event_arguments[node])
        struct = self.script.kernel.struct("struct", "sk_buff")
        if struct is None or struct.find("data") is None:
            raise InternalError("the kernel's types have no sk_buff")
        start = self.b.add(skb, self.e.load_time.struct_offset(struct, "data"))
        data = self.e.foreign.read_scalar(start, Pointer(VOID), AddressSpace.KERNEL).value
        capacity = min(layout.tail_capacity, _PACKET_MOST)
        with self.e.temporaries():
            pointer = self.e.scratch(layout.fixed_size + layout.tail_capacity + events.SLACK)
            self.b.store(self.b.helper(helpers.KTIME_GET_BOOT_NS), self.b.offset(pointer, layout.offsets[0]))
            self.b.store(length, self.b.offset(pointer, layout.offsets[1]), 32)
            size = self.b.at_most(length, capacity)
            target = self.b.offset(pointer, layout.fixed_size)
            error = self.e.foreign.read(target, size, self.b.add(data, offset), AddressSpace.KERNEL)
            self.e.events.check_helper(node, "bpf_probe_read_kernel", error, level=2)
            self.b.store(size, self.b.offset(pointer, layout.offsets[2]), 32)
            self.e.events.header(spec, pointer, size)
            self.e.events.output(pointer, self.b.add(size, layout.fixed_size))
        # A packet that does not fit the ring is counted as lost, but the builtin's value does not show that.
        return Scalar(0, INT64)

    @handles_names("debugf")
    def _debugf(self, node: nodes.Call) -> Operand:
        text = self.checked.fact(node, DebugFormat).text.encode("utf-8", "surrogateescape") + b"\0"
        arguments = []
        for item in node.args[1:]:
            if not isinstance(item, nodes.Expr):
                raise InternalError("debugf takes values")
            operand = self.e.value(item)
            scalar = operand.type.scalar
            arguments.append(self.e.memory.number(operand) if scalar else self.b.address(self.e.place(operand).pointer))
        error = self.b.trace_printk(self.module.constant(text), len(text), arguments)
        self.e.events.check_helper(node, "bpf_trace_printk", error)
        return Nothing(VOID)

    @handles_names("fixed")
    def _fixed(self, node: nodes.Call) -> Operand:
        if not isinstance(node.args[0], nodes.Expr):
            raise InternalError("fixed takes a value")
        return Scalar(self.e.number(node.args[0]), self.e.type(node))

    @handles_names("file_number")
    def _file_number(self, node: nodes.Call) -> Operand:
        return Scalar(0, self.e.type(node))

    @handles_names("joined", "sprintf")
    def _joined(self, node: nodes.Call) -> Operand:
        values = tuple(item for item in node.args[1:] if isinstance(item, nodes.Expr))
        return self.expressions.members_in_order(self.e.type(node), values)


# ------------------------------------------------------------------------------ changes of the behaviour of the system

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
