"""Builtins that send events."""

from __future__ import annotations

from pytrace.codegen.emit import events
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.emit.storage import SESSION
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.values import Nothing, Number, Operand, Ptr, Scalar
from pytrace.codegen.lower import expressions
from pytrace.codegen.lower.builtins.families import Emission
from pytrace.core.diagnostics import InternalError
from pytrace.core.manifest import EXITED
from pytrace.core.types import INT64, VOID, AddressSpace, Pointer, String
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import DebugFormat

PACKET_MOST = 65535
"""Maximum size of a packet that skboutput copies."""


_COMMANDS = ("system", "cat")
"""Kinds of events that the tracer handles by running a command or reading a file."""


def _exit(e: Emitter, node: nodes.Call | nodes.Identifier) -> Operand:
    """Programs stop, and the status is kept in the session data if the ring has no room for the event.

    Commands that the script asked for are run, and traced, before the tracer ends: then programs go on until it does.
    """
    codes = [e.number(item) for item in e.checked.event_arguments.get(node, ())]
    status = e.b.op("and", codes[0], 255) if codes else 0
    word = e.session(SESSION.exit)
    operands = [Scalar(code, type_) for code, type_ in zip(codes, e.checked.events[node].args, strict=True)]
    if not any(spec.kind in _COMMANDS for spec in e.checked.event_list):
        e.b.store(EXITED, e.session(SESSION.stopped), 32)
    e.events.send(e.checked.events[node], operands, lambda: e.b.store(e.b.add(status, 1), word, 32))
    e.leave(None)
    return Nothing(VOID)


def _join(e: Emitter, node: nodes.Call) -> Operand:
    """A ``u32`` count and 16 strings, read up to the first null pointer.  A longer list is counted as truncated."""
    spec = e.checked.events[node]
    layout = spec.layout
    text = layout.args[1]
    if not isinstance(text, String) or not isinstance(node.args[0], nodes.Expr):
        raise InternalError("join takes a pointer to strings")
    type_ = e.type(node.args[0])
    space = e.foreign.pointed_space(type_.space if isinstance(type_, Pointer) else AddressSpace.NONE)
    start = e.number(node.args[0])
    tails = layout.tails[1]
    size = layout.fixed_size + (layout.tail_capacity + events.SLACK if tails else 0)
    with e.temporaries():
        pointer = e.scratch(size)
        e.memory.zero(pointer, layout.fixed_size)
        done = e.b.block()
        count, filled = e.b.register(), e.b.register()
        e.b.store(0, count)
        e.b.store(0, filled)
        for index in range(len(layout.args) - 1):
            item = e.foreign.read_scalar(e.b.add(start, 8 * index), Pointer(VOID), space).value
            e.b.jump_if(e.b.icmp("eq", item, 0), done)
            place = e.b.offset(pointer, layout.offsets[index + 1])
            if tails:
                _join_tail(e, item, place, e.b.offset(pointer, layout.fixed_size), filled, text.capacity, space)
            else:
                e.strings.read_string(place, text.capacity, item, space, 1)
            e.b.store(index + 1, count)
        more = e.foreign.read_scalar(e.b.add(start, 8 * (len(layout.args) - 1)), Pointer(VOID), space).value
        e.counter("unjoined", e.program.index, e.b.number(e.b.icmp("ne", more, 0)))
        e.b.jump(done)
        e.b.start(done)
        e.b.store(e.b.load(count), e.b.offset(pointer, layout.offsets[0]), 32)
        e.events.header(spec, pointer, e.b.load(filled))
        e.events.output(pointer, e.b.add(e.b.load(filled), layout.fixed_size))
    return Nothing(VOID)


def _join_tail(
    e: Emitter, item: Number, place: Ptr, start: Ptr, filled: Ptr, capacity: int, space: AddressSpace
) -> None:
    offset = e.b.load(filled)
    length = e.strings.string_tail(e.b.offset(start, offset), capacity, item, space)
    e.b.store(e.events.count_word(length, capacity), place, 32)
    e.b.store(e.b.add(offset, length), filled)


def _skboutput(e: Emitter, node: nodes.Call) -> Operand:
    """Send a time stamp and the packet: *length* bytes of ``skb->data``."""
    spec = e.checked.events[node]
    layout = spec.layout
    skb, length, offset = (e.number(item) for item in e.checked.event_arguments[node])
    struct = e.script.kernel.struct("struct", "sk_buff")
    if struct is None or struct.find("data") is None:
        raise InternalError("the kernel's types have no sk_buff")
    start = e.b.add(skb, e.load_time.struct_offset(struct, "data"))
    data = e.foreign.read_scalar(start, Pointer(VOID), AddressSpace.KERNEL).value
    capacity = min(layout.tail_capacity, PACKET_MOST)
    with e.temporaries():
        pointer = e.scratch(layout.fixed_size + layout.tail_capacity + events.SLACK)
        e.b.store(e.b.helper(helpers.KTIME_GET_BOOT_NS), e.b.offset(pointer, layout.offsets[0]))
        e.b.store(length, e.b.offset(pointer, layout.offsets[1]), 32)
        size = e.b.at_most(length, capacity)
        target = e.b.offset(pointer, layout.fixed_size)
        error = e.foreign.read(target, size, e.b.add(data, offset), AddressSpace.KERNEL)
        e.events.check_helper(node, "bpf_probe_read_kernel", error, level=2)
        e.b.store(size, e.b.offset(pointer, layout.offsets[2]), 32)
        e.events.header(spec, pointer, size)
        e.events.output(pointer, e.b.add(size, layout.fixed_size))
    # A packet that does not fit the ring is counted as lost, but the builtin's value does not show that.
    return Scalar(0, INT64)


def _debugf(e: Emitter, node: nodes.Call) -> Operand:
    text = e.checked.fact(node, DebugFormat).text.encode("utf-8", "surrogateescape") + b"\0"
    arguments = []
    for item in node.args[1:]:
        if not isinstance(item, nodes.Expr):
            raise InternalError("debugf takes values")
        operand = e.value(item)
        scalar = operand.type.scalar
        arguments.append(e.memory.number(operand) if scalar else e.b.address(e.place(operand).pointer))
    error = e.b.trace_printk(e.module.constant(text), len(text), arguments)
    e.events.check_helper(node, "bpf_trace_printk", error)
    return Nothing(VOID)


def _fixed(e: Emitter, node: nodes.Call) -> Operand:
    if not isinstance(node.args[0], nodes.Expr):
        raise InternalError("fixed takes a value")
    return Scalar(e.number(node.args[0]), e.type(node))


def _file_number(e: Emitter, node: nodes.Call) -> Operand:
    return Scalar(0, e.type(node))


def _joined(e: Emitter, node: nodes.Call) -> Operand:
    values = tuple(item for item in node.args[1:] if isinstance(item, nodes.Expr))
    return expressions.members_in_order(e, e.type(node), values)


EMIT: dict[str, Emission] = {
    "fixed": _fixed,
    "file_number": _file_number,
    "joined": _joined,
    "sprintf": _joined,
    "exit": _exit,
    "join": _join,
    "skboutput": _skboutput,
    "debugf": _debugf,
}
