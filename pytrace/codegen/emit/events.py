"""Sending events through the ring buffer.

An event without a tail is reserved, filled in place and submitted.  One with a tail is assembled in scratch memory and
copied with its actual length.  An event that does not fit the ring is counted as lost for its program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pytrace.codegen.emit import deferred_events, evaluation_order, memory, raw_tracepoints, user_memory
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.values import (
    FRAME,
    NULL,
    Made,
    Number,
    Operand,
    Parts,
    Ptr,
    Remote,
    Scalar,
    global_pointer,
    number_parameter,
)
from pytrace.core import formats
from pytrace.core.diagnostics import InternalError, TraceError
from pytrace.core.event_layout import (
    CUT,
    EventLayout,
    EventSpec,
    Formatted,
    HelperFailure,
    LayoutWithProbe,
    RuntimeFailure,
)
from pytrace.core.formats import Conversion, Format
from pytrace.core.manifest import RING
from pytrace.core.types import INT32, AddressSpace, Buffer, String, Type
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import location

REPORTED = 64
"""Failures of one kind at one location that a CPU reports individually."""

IN_REGISTERS = 12
"""Maximum arguments in registers; events with more of them are assembled argument by argument."""

SLACK = 8
"""Space after the tail: reading a string may write one byte more than its text."""


def send_node(e: Emitter, node: nodes.Expr) -> None:
    """Send the event of a call, with its arguments."""
    if e.program.unit.pinned:
        _write_to_pin(e, node)
        return
    spec = e.checked.events[node]
    arguments = e.checked.event_arguments.get(node, ())
    if len(arguments) > IN_REGISTERS:
        _send_piecewise(e, spec, arguments)
        return
    send(e, spec, evaluation_order.in_order(e, arguments))


def _send_piecewise(e: Emitter, spec: EventSpec, arguments: Sequence[nodes.Expr]) -> None:
    """Store each argument to scratch memory as soon as it is evaluated: there are too many for registers and stack."""
    layout = spec.layout
    with e.temporaries():
        pointer = e.scratch(layout.fixed_size + layout.tail_capacity + SLACK)
        filled: Number = 0
        for index, item in enumerate(arguments):
            with e.temporaries():
                filled = _put(e, layout, index, e.value(item), pointer, filled)
        header(e, spec, pointer, filled)
        output(e, pointer, e.b.add(filled, layout.fixed_size))


def send(
    e: Emitter, spec: EventSpec, operands: Sequence[Operand], full: Callable[[], None] | None = None
) -> None:
    """Send an event whose arguments have been evaluated.

    *full* is called instead of counting a lost event (for events without a tail).
    """
    layout = spec.layout
    if any(layout.tails) or (any(map(_reads, operands)) and user_memory.may_sleep(e)):
        # Nothing sleeps with room reserved in the ring: the records after it would have to wait.
        _send_tailed(e, spec, layout, operands)
        return

    def fill(pointer: Ptr) -> None:
        header(e, spec, pointer, 0)
        for operand, type_, offset in zip(operands, layout.args, layout.offsets, strict=True):
            memory.write(e, operand, e.b.offset(pointer, offset), type_, memory.natural(8, offset))

    reserve(e, layout.fixed_size, fill, full)


def _reads(operand: Operand) -> bool:
    """Whether foreign memory is read when the operand is written."""
    if isinstance(operand, Parts):
        return any(map(_reads, operand.members))
    return isinstance(operand, Remote) or (isinstance(operand, Made) and operand.reads)


def reserve(
    e: Emitter, size: int, fill: Callable[[Ptr], None], on_full: Callable[[], None] | None = None
) -> None:
    """Reserve room in the ring, fill it and submit it, or call *on_full* (default: count a lost event)."""
    pointer = e.b.helper(helpers.RINGBUF_RESERVE, global_pointer(RING), size, 0)
    full, reserved, done = e.b.block(), e.b.block(), e.b.block()
    e.b.branch(e.b.is_null(pointer), full, reserved, likely=False)
    e.b.start(reserved)
    fill(pointer)
    e.b.helper(helpers.RINGBUF_SUBMIT, pointer, 0)
    e.b.jump(done)
    e.b.start(full)
    if on_full is None:
        e.counter("lost", e.program.index)
    else:
        on_full()
    e.b.jump(done)
    e.b.start(done)


def output(e: Emitter, pointer: Ptr, size: Number) -> None:
    """Copy an event into the ring, or count a lost event."""
    result = e.b.helper(helpers.RINGBUF_OUTPUT, global_pointer(RING), pointer, size, 0)
    with e.b.unless(e.b.icmp("eq", result, 0), likely=True):
        e.counter("lost", e.program.index)


def header(e: Emitter, spec: EventSpec, pointer: Ptr, tail: Number) -> None:
    """Event id and length of the tail."""
    e.b.store(spec.id, pointer, 32)
    e.b.store(tail, e.b.offset(pointer, 4), 32)
    layout = spec.layout
    if isinstance(layout, LayoutWithProbe):
        e.b.store(_probe(e), e.b.offset(pointer, layout.probe_offset), 64)


def _probe(e: Emitter) -> Number:
    """Program index and attach cookie of the running probe."""
    index = e.program.index << 32
    if len(e.program.unit.targets) < 2:
        return index
    return e.b.op("or", target_index(e), index)


def target_index(e: Emitter) -> Number:
    """Index of the target that fired among those of the program: its attach cookie."""
    unit = e.program.unit
    if unit.calls:
        return raw_tracepoints.call_index(e, unit)
    return e.b.helper(helpers.GET_ATTACH_COOKIE, e.raw_context)


def _send_tailed(e: Emitter, spec: EventSpec, layout: EventLayout, operands: Sequence[Operand]) -> None:
    room = layout.fixed_size + layout.tail_capacity + SLACK
    with e.temporaries():
        pointer = e.scratch(room)
        addresses = deferred_events.sources(e, layout, operands)
        if not addresses:
            _assemble(e, spec, layout, operands, pointer)
            return
        failed = e.failed_reads = e.b.register()
        e.b.store(0, failed)
        filled = _fill(e, layout, operands, pointer)
        e.failed_reads = None
        header(e, spec, pointer, filled)
        later, now, done = e.b.block(), e.b.block(), e.b.block()
        e.b.branch(e.b.truth(e.b.load(failed)), later, now, likely=False)
        e.b.start(now)
        output(e, pointer, e.b.add(filled, layout.fixed_size))
        e.b.jump(done)
        e.b.start(later)
        kept = deferred_events.defer(
            e, pointer, layout, addresses, room,
            lambda inner, place, given: _complete(inner, layout, place, given),
        )  # fmt: skip
        e.b.jump_if(e.b.truth(kept), done)
        # Failures are reported this time.
        _assemble(e, spec, layout, operands, pointer)
        e.b.jump(done)
        e.b.start(done)


def _fill(e: Emitter, layout: EventLayout, operands: Sequence[Operand], pointer: Ptr) -> Number:
    """Write the arguments of an event with a tail. Returns the length of the tail."""
    filled: Number = 0
    for index, operand in enumerate(operands):
        filled = _put(e, layout, index, operand, pointer, filled)
    return filled


def _assemble(
    e: Emitter, spec: EventSpec, layout: EventLayout, operands: Sequence[Operand], pointer: Ptr
) -> None:
    """Write an event with a tail, and send it."""
    filled = _fill(e, layout, operands, pointer)
    header(e, spec, pointer, filled)
    output(e, pointer, e.b.add(filled, layout.fixed_size))


def _complete(e: Emitter, layout: EventLayout, pointer: Ptr, addresses: Sequence[Number]) -> None:
    """Read the strings of an event that was kept, and send it."""
    filled: Number = 0
    given = iter(addresses)
    for index, type_ in enumerate(layout.args):
        if layout.tails[index]:
            remote = Remote(next(given), type_, AddressSpace.USER)
            filled = _put(e, layout, index, remote, pointer, filled)
    e.b.store(filled, e.b.offset(pointer, 4), 32)
    output(e, pointer, e.b.add(filled, layout.fixed_size))


def _put(e: Emitter, layout: EventLayout, index: int, operand: Operand, pointer: Ptr, filled: Number) -> Number:
    """Write argument *index* of an event in scratch memory. Returns the length of the tail so far."""
    type_, place = layout.args[index], e.b.offset(pointer, layout.offsets[index])
    if not layout.tails[index]:
        memory.write(e, operand, place, type_, memory.natural(8, layout.offsets[index]))
        return filled
    start = e.b.offset(pointer, layout.fixed_size)
    end = e.b.offset(start, filled) if filled != 0 else start
    length, count = tail(e, operand, type_, end)
    e.b.store(count, place, 32)
    return e.b.add(filled, length) if filled != 0 else length


def tail(e: Emitter, operand: Operand, type_: Type, pointer: Ptr) -> tuple[Number, Number]:
    """Write a string or buffer to an event's tail. Returns its length and the count word."""
    if isinstance(type_, String):
        limit = min(type_.capacity, operand.type.size)
        length = text(e, operand, pointer, limit)
        # Truncation of a value in the program's memory was counted when it was read.
        read = isinstance(operand, Remote) or (isinstance(operand, Made) and operand.tail is not None)
        return length, count_word(e, length, limit, read=read)
    if isinstance(type_, Buffer):
        length = _bytes(e, operand, pointer, type_.capacity)
        return length, length
    raise InternalError(f"{type_} has no tail form")


def count_word(e: Emitter, length: Number, limit: int, *, read: bool = True) -> Number:
    """The count word of a tail string.

    A full string of maximum capacity is marked as truncated, and counted if it is *read* here. A full string of smaller
    capacity is a character array.
    """
    if limit < memory.longest_string(e):
        return length
    cut = e.b.icmp("eq", length, limit)
    if read:
        e.count_cut(cut)
    return e.b.op("or", length, e.b.select(cut, CUT, 0))


def text(e: Emitter, operand: Operand, pointer: Ptr, limit: int) -> Number:
    """Write a string without its NUL. Returns its length (*limit* when there is no NUL)."""
    if isinstance(operand, Made) and operand.tail is not None:
        return operand.tail(pointer, limit)
    if isinstance(operand, Remote):
        return memory.string_tail(e, pointer, limit, operand.address, operand.space)
    text = e.place(operand)
    return memory.string_tail(e, pointer, limit, e.b.address(text.pointer), AddressSpace.KERNEL)


def _bytes(e: Emitter, operand: Operand, pointer: Ptr, limit: int) -> Number:
    if isinstance(operand, Made) and operand.tail is not None:
        return operand.tail(pointer, limit)
    buffer = e.place(operand)
    length = e.b.at_most(e.b.load(buffer.pointer, 32), limit)
    source = e.b.address(e.b.offset(buffer.pointer, Buffer.header))
    e.b.helper(helpers.PROBE_READ_KERNEL, pointer, length, source)
    return length


# ---------------------------------------------------------------------------------------------- failures


def report(e: Emitter, node: nodes.Node, error: str) -> None:
    """Send a run-time error of the kind *error*."""
    send(e, e.checked.report(node, RuntimeFailure(error)), ())


def helper_error(e: Emitter, node: nodes.Node, helper: str, code: Number, map_name: str = "") -> None:
    """Send a helper error with *code*."""
    spec = e.checked.report(node, HelperFailure(helper, map_name))
    send(e, spec, [Scalar(code, INT32)])


def check_helper(
    e: Emitter,
    node: nodes.Node,
    helper: str,
    code: Number,
    *,
    level: int = 1,
    map_name: str = "",
    most: int = REPORTED,
) -> None:
    """Count a negative *code*, and report it if errors of this *level* are enabled (1: most helpers, 2: reads).

    Each CPU reports the first *most* of them individually.
    """
    if e.script.options.checks < level and level > 1:
        return
    with e.b.when(e.b.icmp("slt", code, 0), likely=False):
        if e.script.options.checks >= level:
            failed_call(e, node, helper, code, map_name, most)
        else:
            e.counter("helper", e.script.layout.site(helper, location(node.span)))


def check_read(e: Emitter, helper: str, code: Number) -> None:
    """Report a failed memory read of the current expression if all helper errors are enabled (``-k``)."""
    check_helper(e, e.node, helper, code, level=2)


def failed_call(
    e: Emitter, node: nodes.Node, helper: str, code: Number, map_name: str = "", most: int = REPORTED
) -> None:
    """Count a failed helper call for its location in the script, and report the first ones."""
    counter = ("helper", e.script.layout.site(helper, location(node.span)))
    counted_failure(e, node, helper, code, map_name, counter, most)


def counted_failure(
    e: Emitter, node: nodes.Node, helper: str, code: Number, map_name: str, counter: tuple[str, int], most: int
) -> None:
    """Count a failed helper call in *counter*; each CPU reports the first *most*.

    Long programs have one function for this: inlined, it would be more code than the rest of the program.
    """
    if not e.program.plan.long:
        first_ones(e, e.counter(*counter), lambda: helper_error(e, node, helper, code, map_name), most)
        return
    spec = e.checked.report(node, HelperFailure(helper, map_name))
    arguments = (e.script.layout.counter(*counter), spec.id, code, most)
    e.b.call(_failure_function(e, spec), [e.frame], arguments)


def _failure_function(e: Emitter, spec: EventSpec) -> str:
    """The function that counts and reports failed helper calls; all their events have the layout of *spec*."""
    program = e.program
    if program.failure_function:
        return program.failure_function
    program.failure_function = program.name("failed")
    parameters = ("*frame", "counter", "event", "code", "most")
    function = e.module.function(program.failure_function, parameters, program.unit.span)
    inner = Emitter(program, function, program.unit.span, e.depth + 1, FRAME)
    place = inner.b.offset(inner.b.offset(inner.base, e.module.late("counters")), number_parameter("counter"))
    before = inner.b.fetch("add", place, 1)
    with inner.b.when(inner.b.icmp("ult", before, number_parameter("most"))):

        def fill(pointer: Ptr) -> None:
            inner.b.store(number_parameter("event"), pointer, 32)
            inner.b.store(0, inner.b.offset(pointer, 4), 32)
            inner.b.store(number_parameter("code"), inner.b.offset(pointer, spec.layout.offsets[0]), 32)

        reserve(inner, spec.layout.fixed_size, fill)
    inner.b.ret(0)
    return program.failure_function


def first_ones(e: Emitter, before: Number, action: Callable[[], None], most: int = REPORTED) -> None:
    """Emit *action* for the first failures on a CPU; later ones are only counted, to save ring space."""
    with e.b.when(e.b.icmp("ult", before, most)):
        action()


# ---------------------------------------------------------------------------------------------- pinned iterators

MOST_IN_PIN = 12
"""Values of one call of ``bpf_seq_printf``."""

_KERNEL_NAMES = frozenset("diuxXpcs")


def _write_to_pin(e: Emitter, node: nodes.Expr) -> None:
    """Emit a ``printf`` into the pinned file, which is read after the tracer has exited: events have no receiver then.

    ``bpf_seq_printf`` (kernel/trace/bpf_trace.c, ``bpf_bprintf_prepare`` in kernel/bpf/helpers.c) formats integers,
    characters and strings.

    Raises:
        TraceError: the call is not a printf, or the kernel cannot format it.
    """
    spec = e.checked.events[node]
    arguments = e.checked.event_arguments.get(node, ())
    if spec.kind != "printf":
        raise TraceError(
            f"line {spec.location.line}: {spec.kind.replace('_', ' ')} is not possible in a pinned iterator",
            hints=("what is read from the pin is what printf() writes",),
        )
    format_ = formats.parse(spec.static_part(Formatted).format.encode("utf-8", "surrogateescape"))
    text = _kernel_format(format_, spec.location.line)
    data = e.b.alloca(8 * len(arguments)) if arguments else NULL
    with e.temporaries():
        for index, (item, conversion) in enumerate(zip(arguments, format_.conversions, strict=True)):
            e.b.store(_kernel_value(e, item, conversion.name == "s", spec.location.line), e.b.offset(data, 8 * index))
        state = e.b.load(e.context)
        file = e.b.load(e.b.pointer(state))
        e.b.helper(helpers.SEQ_PRINTF, file, e.module.constant(text), len(text), data, 8 * len(arguments))


def _kernel_format(format_: Format, line: int) -> bytes:
    """The kernel's format string: every integer is 64 bits wide."""
    conversions = format_.conversions
    if len(conversions) > MOST_IN_PIN or not all(_in_kernel(item) for item in conversions):
        text = format_.text.decode("utf-8", "surrogateescape")
        what = f"more than {MOST_IN_PIN} values" if len(conversions) > MOST_IN_PIN else f"format {text!r}"
        raise TraceError(
            f"line {line}: the kernel cannot print {what} in a pinned iterator",
            hints=("%d %i %u %x %X %p %c and %s with a width are there",),
        )
    parts = (_widen(part) if isinstance(part, Conversion) else part.replace(b"%", b"%%") for part in format_.parts)
    return b"".join(parts) + b"\0"


def _in_kernel(conversion: Conversion) -> bool:
    plain = "#" not in conversion.flags and conversion.width != "*" and not conversion.precision
    return plain and conversion.name in _KERNEL_NAMES


def _widen(conversion: Conversion) -> bytes:
    head, name = conversion.flags + conversion.width, conversion.name
    if name == "p":
        return f"0x%{head}llx".encode()
    return (f"%{head}{name}" if name in "cs" else f"%{head}ll{name}").encode()


def _kernel_value(e: Emitter, item: nodes.Expr, string: bool, line: int) -> Number:
    operand = e.value(item)
    if operand.type.scalar and not string:
        return memory.number(e, operand)
    if not (isinstance(operand.type, String) and string):
        raise TraceError(
            f"line {line}: a value of type {operand.type} cannot be printed so in a pinned iterator",
            hints=("integers and strings can, %s is for strings only",),
        )
    size = operand.type.capacity
    pointer = e.temporary(size + 8)
    # A string that fills its buffer has no NUL.
    e.b.store(0, e.b.offset(pointer, size), 64, align=1)
    memory.write(e, operand, pointer, operand.type)
    return e.b.address(pointer)
