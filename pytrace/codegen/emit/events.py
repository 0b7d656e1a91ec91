"""Events: sent through the ring buffer, or kept until their strings can be read.

An event without a tail is reserved, filled in place and submitted.  One with a tail is assembled in scratch memory and
copied with its actual length.  An event that does not fit the ring is counted as lost for its program.

Where a string of a tracepoint or kernel function is not resident, most such programs cannot wait for it: the event is
kept in a map, and sent when its strings have been read.  Kernels since 6.18 let the program schedule work of the task
(``bpf_task_work_schedule_resume``, kernel/bpf/helpers.c), which runs before the task returns to user mode and may
sleep.  Before that, events of the entry of a system call are completed when it returns, as the kernel has read its
arguments by then (:mod:`pytrace.codegen.walkers.service_programs`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pytrace.codegen.emit import memory
from pytrace.codegen.emit.program import Part
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.module import SHARED
from pytrace.codegen.ir.values import (
    FRAME,
    I1,
    I64,
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
    pointer_parameter,
)
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
from pytrace.core.manifest import PENDING, RING, MapType, Target
from pytrace.core.probe_kinds import (
    ENTER,
    FENTRY,
    FEXIT,
    KPROBE,
    KRETPROBE,
    RAWTRACEPOINT,
    TRACEPOINT,
    RawTracepointTarget,
    TracepointTarget,
)
from pytrace.core.text import Conversion, Format, parse_format
from pytrace.core.types import INT32, AddressSpace, Buffer, String, Type
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import ContextField, ProbeArgument, location

if TYPE_CHECKING:
    from pytrace.codegen.emit.emitter import Emitter


REPORTED = 64
"""Failures of one kind at one location that a CPU reports individually."""

IN_REGISTERS = 12
"""Maximum arguments in registers; events with more of them are assembled argument by argument."""

SLACK = 8
"""Space after the tail: reading a string may write one byte more than its text."""


def _reads(operand: Operand) -> bool:
    """Whether foreign memory is read when the operand is written."""
    if isinstance(operand, Parts):
        return any(map(_reads, operand.members))
    return isinstance(operand, Remote) or (isinstance(operand, Made) and operand.reads)


# ---------------------------------------------------------------------------------------------- pinned iterators

_MOST_IN_PIN = 12
"""Values of one call of ``bpf_seq_printf``."""

_KERNEL_NAMES = frozenset("diuxXpcs")


def _kernel_format(format_: Format, line: int) -> bytes:
    """The kernel's format string: every integer is 64 bits wide."""
    conversions = format_.conversions
    if len(conversions) > _MOST_IN_PIN or not all(_in_kernel(item) for item in conversions):
        text = format_.text.decode("utf-8", "surrogateescape")
        what = f"more than {_MOST_IN_PIN} values" if len(conversions) > _MOST_IN_PIN else f"format {text!r}"
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


ENTRIES = 64
"""Events that may wait at the same time: one for each call that has not returned."""

PLACES = 64
"""Places in a script whose events may wait for the return of a system call.

The key is the address of the task and the number of the place, and ``task_struct`` is aligned to 64 bytes at least
(``ARCH_MIN_TASKALIGN``).
"""

_KINDS = frozenset({TRACEPOINT, RAWTRACEPOINT, FENTRY, FEXIT, KPROBE, KRETPROBE})
"""Kinds of probes that a task runs into by itself."""

RETURNING = "returning_"
"""Prefix of the names of maps of events that wait for the return of a system call."""

_SCHEDULE = "bpf_task_work_schedule_resume"
_FIRST_FORM = f"{_SCHEDULE}_impl"
"""Its name before 7.0, which is left in the type information of later kernels, and takes a last argument of theirs."""
_PARAMETERS: tuple[str, ...] = ("task_struct", "bpf_task_work", "void *", "map callback")
_MM, _ADDRESSES = 8, 16
"""Offsets in the map's values of the address space and of the strings; the event follows."""
_RECORD = 8
"""Programs may read a tracepoint's record from here on (``tp_prog_is_valid_access``, kernel/trace/bpf_trace.c)."""
_TIME, _KEPT = 0, 16
"""Offsets in the map's values of the time of a hit whose body was postponed, and of what is kept of its context."""

_NOEXIST = 1
_NOWHERE = 1
"""An address that cannot be read and is not null."""


def _enters(target: Target) -> bool:
    place = target.place
    if isinstance(place, RawTracepointTarget):
        return place.event == ENTER
    return isinstance(place, TracepointTarget) and (
        place.call[0] == ENTER or (place.category, place.event) == ("raw_syscalls", ENTER)
    )


def _record_size(arguments: Sequence[ProbeArgument]) -> int:
    """Bytes of a tracepoint's record up to the last of *arguments*, in words."""
    ends = [item.place.offset + item.type.size for item in arguments if isinstance(item.place, ContextField)]
    return (max(ends, default=8) + 7) & ~7


class Events(Part):
    """Sends events and reports of failures."""

    def send_node(self, node: nodes.Expr) -> None:
        """Send the event of a call, with its arguments."""
        if self.program.unit.pinned:
            self._write_to_pin(node)
            return
        spec = self.checked.events[node]
        arguments = self.checked.event_arguments.get(node, ())
        if len(arguments) > IN_REGISTERS:
            self._send_piecewise(spec, arguments)
            return
        self.send(spec, self.e.in_order(arguments))

    def _send_piecewise(self, spec: EventSpec, arguments: Sequence[nodes.Expr]) -> None:
        """Store each argument to scratch memory as soon as it is evaluated: there are too many for registers and
        stack.
        """
        layout = spec.layout
        with self.e.temporaries():
            pointer = self.e.scratch(layout.fixed_size + layout.tail_capacity + SLACK)
            filled: Number = 0
            for index, item in enumerate(arguments):
                with self.e.temporaries():
                    filled = self._put(layout, index, self.e.value(item), pointer, filled)
            self.header(spec, pointer, filled)
            self.output(pointer, self.b.add(filled, layout.fixed_size))

    def send(self, spec: EventSpec, operands: Sequence[Operand], full: Callable[[], None] | None = None) -> None:
        """Send an event whose arguments have been evaluated.

        *full* is called instead of counting a lost event (for events without a tail).
        """
        layout = spec.layout
        if any(layout.tails) or (any(map(_reads, operands)) and self.e.foreign.may_sleep()):
            # Nothing sleeps with room reserved in the ring: the records after it would have to wait.
            self._send_tailed(spec, layout, operands)
            return

        def fill(pointer: Ptr) -> None:
            self.header(spec, pointer, 0)
            for operand, type_, offset in zip(operands, layout.args, layout.offsets, strict=True):
                self.e.memory.write(operand, self.b.offset(pointer, offset), type_, memory.natural(8, offset))

        self.reserve(layout.fixed_size, fill, full)

    def reserve(self, size: int, fill: Callable[[Ptr], None], on_full: Callable[[], None] | None = None) -> None:
        """Reserve room in the ring, fill it and submit it, or call *on_full* (default: count a lost event)."""
        pointer = self.b.helper(helpers.RINGBUF_RESERVE, global_pointer(RING), size, 0)
        full, reserved, done = self.b.block(), self.b.block(), self.b.block()
        self.b.branch(self.b.is_null(pointer), full, reserved, likely=False)
        self.b.start(reserved)
        fill(pointer)
        self.b.helper(helpers.RINGBUF_SUBMIT, pointer, 0)
        self.b.jump(done)
        self.b.start(full)
        if on_full is None:
            self.e.counter("lost", self.program.index)
        else:
            on_full()
        self.b.jump(done)
        self.b.start(done)

    def output(self, pointer: Ptr, size: Number) -> None:
        """Copy an event into the ring, or count a lost event."""
        result = self.b.helper(helpers.RINGBUF_OUTPUT, global_pointer(RING), pointer, size, 0)
        with self.b.unless(self.b.icmp("eq", result, 0), likely=True):
            self.e.counter("lost", self.program.index)

    def header(self, spec: EventSpec, pointer: Ptr, tail: Number) -> None:
        """Event id and length of the tail."""
        self.b.store(spec.id, pointer, 32)
        self.b.store(tail, self.b.offset(pointer, 4), 32)
        layout = spec.layout
        if isinstance(layout, LayoutWithProbe):
            self.b.store(self._probe(), self.b.offset(pointer, layout.probe_offset), 64)

    def _probe(self) -> Number:
        """Program index and attach cookie of the running probe."""
        index = self.program.index << 32
        if len(self.program.unit.targets) < 2:
            return index
        return self.b.op("or", self.target_index(), index)

    def target_index(self) -> Number:
        """Index of the target that fired among those of the program: its attach cookie."""
        unit = self.program.unit
        if unit.calls:
            return self.e.probe.call_index(unit)
        return self.b.helper(helpers.GET_ATTACH_COOKIE, self.e.raw_context)

    def _send_tailed(self, spec: EventSpec, layout: EventLayout, operands: Sequence[Operand]) -> None:
        room = layout.fixed_size + layout.tail_capacity + SLACK
        with self.e.temporaries():
            pointer = self.e.scratch(room)
            addresses = self.e.deferred.sources(layout, operands)
            if not addresses:
                self._assemble(spec, layout, operands, pointer)
                return
            failed = self.e.failed_reads = self.b.register()
            self.b.store(0, failed)
            filled = self._fill(layout, operands, pointer)
            self.e.failed_reads = None
            self.header(spec, pointer, filled)
            later, now, done = self.b.block(), self.b.block(), self.b.block()
            self.b.branch(self.e.deferred.worth(failed, addresses), later, now, likely=False)
            self.b.start(now)
            self.output(pointer, self.b.add(filled, layout.fixed_size))
            self.b.jump(done)
            self.b.start(later)
            kept = self.e.deferred.defer(
                pointer, layout, addresses, room,
                lambda inner, place, given: inner.events._complete(layout, place, given),
            )  # fmt: skip
            self.b.jump_if(self.b.truth(kept), done)
            # Failures are reported this time.
            self._assemble(spec, layout, operands, pointer)
            self.b.jump(done)
            self.b.start(done)

    def _fill(self, layout: EventLayout, operands: Sequence[Operand], pointer: Ptr) -> Number:
        """Write the arguments of an event with a tail. Returns the length of the tail."""
        filled: Number = 0
        for index, operand in enumerate(operands):
            filled = self._put(layout, index, operand, pointer, filled)
        return filled

    def _assemble(self, spec: EventSpec, layout: EventLayout, operands: Sequence[Operand], pointer: Ptr) -> None:
        """Write an event with a tail, and send it."""
        filled = self._fill(layout, operands, pointer)
        self.header(spec, pointer, filled)
        self.output(pointer, self.b.add(filled, layout.fixed_size))

    def _complete(self, layout: EventLayout, pointer: Ptr, addresses: Sequence[Number]) -> None:
        """Read the strings of an event that was kept, and send it."""
        filled: Number = 0
        given = iter(addresses)
        for index, type_ in enumerate(layout.args):
            if layout.tails[index]:
                remote = Remote(next(given), type_, AddressSpace.USER)
                filled = self._put(layout, index, remote, pointer, filled)
        self.b.store(filled, self.b.offset(pointer, 4), 32)
        self.output(pointer, self.b.add(filled, layout.fixed_size))

    def _put(self, layout: EventLayout, index: int, operand: Operand, pointer: Ptr, filled: Number) -> Number:
        """Write argument *index* of an event in scratch memory. Returns the length of the tail so far."""
        type_, place = layout.args[index], self.b.offset(pointer, layout.offsets[index])
        if not layout.tails[index]:
            self.e.memory.write(operand, place, type_, memory.natural(8, layout.offsets[index]))
            return filled
        start = self.b.offset(pointer, layout.fixed_size)
        end = self.b.offset(start, filled) if filled != 0 else start
        length, count = self.tail(operand, type_, end)
        self.b.store(count, place, 32)
        return self.b.add(filled, length) if filled != 0 else length

    def tail(self, operand: Operand, type_: Type, pointer: Ptr) -> tuple[Number, Number]:
        """Write a string or buffer to an event's tail. Returns its length and the count word."""
        if isinstance(type_, String):
            limit = min(type_.capacity, operand.type.size)
            length = self.text(operand, pointer, limit)
            # Truncation of a value in the program's memory was counted when it was read.
            read = isinstance(operand, Remote) or (isinstance(operand, Made) and operand.tail is not None)
            return length, self.count_word(length, limit, read=read)
        if isinstance(type_, Buffer):
            length = self._bytes(operand, pointer, type_.capacity)
            return length, length
        raise InternalError(f"{type_} has no tail form")

    def count_word(self, length: Number, limit: int, *, read: bool = True) -> Number:
        """The count word of a tail string.

        A full string of maximum capacity is marked as truncated, and counted if it is *read* here. A full
        string of smaller capacity is a character array.
        """
        if limit < self.e.strings.longest_string():
            return length
        cut = self.b.icmp("eq", length, limit)
        if read:
            self.e.count_cut(cut)
        return self.b.op("or", length, self.b.select(cut, CUT, 0))

    def text(self, operand: Operand, pointer: Ptr, limit: int) -> Number:
        """Write a string without its NUL. Returns its length (*limit* when there is no NUL)."""
        if isinstance(operand, Made) and operand.tail is not None:
            return operand.tail(pointer, limit)
        if isinstance(operand, Remote):
            return self.e.strings.string_tail(pointer, limit, operand.address, operand.space)
        text = self.e.place(operand)
        return self.e.strings.string_tail(pointer, limit, self.b.address(text.pointer), AddressSpace.KERNEL)

    def _bytes(self, operand: Operand, pointer: Ptr, limit: int) -> Number:
        if isinstance(operand, Made) and operand.tail is not None:
            return operand.tail(pointer, limit)
        buffer = self.e.place(operand)
        length = self.b.at_most(self.b.load(buffer.pointer, 32), limit)
        source = self.b.address(self.b.offset(buffer.pointer, Buffer.header))
        self.b.helper(helpers.PROBE_READ_KERNEL, pointer, length, source)
        return length

    # ---------------------------------------------------------------------------------------------- failures

    def report(self, node: nodes.Node, error: str) -> None:
        """Send a run-time error of the kind *error*."""
        self.send(self.checked.report(node, RuntimeFailure(error)), ())

    def check_helper(
        self,
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
        if self.script.options.checks < level and level > 1:
            return
        with self.b.when(self.b.icmp("slt", code, 0), likely=False):
            if self.script.options.checks >= level:
                self.failed_call(node, helper, code, map_name, most)
            else:
                self.e.counter("helper", self.script.layout.site(helper, location(node.span)))

    def check_read(self, helper: str, code: Number) -> None:
        """Report a failed memory read of the current expression if all helper errors are enabled (``-k``)."""
        self.check_helper(self.e.node, helper, code, level=2)

    def failed_call(
        self, node: nodes.Node, helper: str, code: Number, map_name: str = "", most: int = REPORTED
    ) -> None:
        """Count a failed helper call for its location in the script, and report the first ones."""
        counter = ("helper", self.script.layout.site(helper, location(node.span)))
        self.counted_failure(node, helper, code, map_name, counter, most)

    def counted_failure(
        self, node: nodes.Node, helper: str, code: Number, map_name: str, counter: tuple[str, int], most: int
    ) -> None:
        """Count a failed helper call in *counter*; each CPU reports the first *most*.

        Long programs have one function for this: inlined, it would be more code than the rest of the program.
        """
        spec = self.checked.report(node, HelperFailure(helper, map_name))
        if not self.program.plan.long:
            self.first_ones(self.e.counter(*counter), lambda: self.send(spec, [Scalar(code, INT32)]), most)
            return
        arguments = (self.script.layout.counter(*counter), spec.id, code, most)
        self.b.call(self._failure_function(spec), [self.e.frame], arguments)

    def _failure_function(self, spec: EventSpec) -> str:
        """The function that counts and reports failed helper calls; all their events have the layout of *spec*."""
        program = self.program
        if program.failure_function:
            return program.failure_function
        program.failure_function = program.name("failed")
        parameters = ("*frame", "counter", "event", "code", "most")
        function = self.module.function(program.failure_function, parameters, program.unit.span)
        inner = type(self.e)(program, function, program.unit.span, self.e.depth + 1, FRAME)
        place = inner.b.offset(inner.b.offset(inner.base, self.module.late("counters")), number_parameter("counter"))
        before = inner.b.fetch("add", place, 1)
        with inner.b.when(inner.b.icmp("ult", before, number_parameter("most"))):

            def fill(pointer: Ptr) -> None:
                inner.b.store(number_parameter("event"), pointer, 32)
                inner.b.store(0, inner.b.offset(pointer, 4), 32)
                inner.b.store(number_parameter("code"), inner.b.offset(pointer, spec.layout.offsets[0]), 32)

            inner.events.reserve(spec.layout.fixed_size, fill)
        inner.b.ret(0)
        return program.failure_function

    def failed_stack(self, node: nodes.Call | nodes.Identifier, helper: str, kind: str) -> None:
        """Count a stack that *helper* could not walk, and report the first ones. *kind* is its counter and its text."""
        before = self.e.counter(kind, self.script.layout.site(helper, location(node.span)))
        if self.script.options.checks:
            self.first_ones(before, lambda: self.report(node, kind))

    def first_ones(self, before: Number, action: Callable[[], None], most: int = REPORTED) -> None:
        """Emit *action* for the first failures on a CPU; later ones are only counted, to save ring space."""
        with self.b.when(self.b.icmp("ult", before, most)):
            action()

    def _write_to_pin(self, node: nodes.Expr) -> None:
        """Emit a ``printf`` into the pinned file, which is read after the tracer has exited: events have no
        receiver then.

        ``bpf_seq_printf`` (kernel/trace/bpf_trace.c, ``bpf_bprintf_prepare`` in kernel/bpf/helpers.c) formats integers,
        characters and strings.

        Raises:
            TraceError: the call is not a printf, or the kernel cannot format it.
        """
        spec = self.checked.events[node]
        arguments = self.checked.event_arguments.get(node, ())
        if spec.kind != "printf":
            raise TraceError(
                f"line {spec.location.line}: {spec.kind.replace('_', ' ')} is not possible in a pinned iterator",
                hints=("what is read from the pin is what printf() writes",),
            )
        format_ = parse_format(spec.static_part(Formatted).format.encode("utf-8", "surrogateescape"))
        text = _kernel_format(format_, spec.location.line)
        data = self.b.alloca(8 * len(arguments)) if arguments else NULL
        with self.e.temporaries():
            for index, (item, conversion) in enumerate(zip(arguments, format_.conversions, strict=True)):
                self.b.store(
                    self._kernel_value(item, conversion.name == "s", spec.location.line), self.b.offset(data, 8 * index)
                )
            state = self.b.load(self.e.context)
            file = self.b.load(self.b.pointer(state))
            self.b.helper(helpers.SEQ_PRINTF, file, self.module.constant(text), len(text), data, 8 * len(arguments))

    def _kernel_value(self, item: nodes.Expr, string: bool, line: int) -> Number:
        operand = self.e.value(item)
        if operand.type.scalar and not string:
            return self.e.memory.number(operand)
        if not (isinstance(operand.type, String) and string):
            raise TraceError(
                f"line {line}: a value of type {operand.type} cannot be printed so in a pinned iterator",
                hints=("integers and strings can, %s is for strings only",),
            )
        size = operand.type.capacity
        pointer = self.e.temporary(size + 8)
        # A string that fills its buffer has no NUL.
        self.b.store(0, self.b.offset(pointer, size), 64, align=1)
        self.e.memory.write(operand, pointer, operand.type)
        return self.b.address(pointer)


class DeferredEvents(Part):
    """Keeps events and hits whose strings are read later."""

    def sources(self, layout: EventLayout, operands: Sequence[Operand]) -> list[Number]:
        """Addresses of the strings of an event; none if its strings cannot all be read later."""
        if self.e.completing or not (self._has_task_work() or self._at_return()):
            return []
        found = [operand for operand, tail in zip(operands, layout.tails, strict=True) if tail]
        addresses = [item.source for item in found if isinstance(item, Made) and item.source is not None]
        if len(addresses) != len(found) or self.e.foreign.may_sleep():
            return []
        return addresses

    def worth(self, failed: Ptr, addresses: Sequence[Number]) -> I1:
        """Whether a read of a string in user memory failed, and all strings of the event are there.

        What is in the kernel's memory may be something else later.
        """
        several = addresses[0]
        for address in addresses[1:]:
            several = self.b.op("or", several, address)
        wanted = self.b.load(failed)
        if len(addresses) > 1:
            wanted = self.b.select(self.b.icmp("slt", several, 0), 0, wanted)
        return self.b.truth(wanted)

    def _has_task_work(self) -> bool:
        """Whether the task can be given work. An ahead-of-time file has to run on kernels without it."""
        return (
            self.program.unit.kind.name in _KINDS
            and self.script.ahead is None
            and self.script.kernel.feature("task_work")
        )

    def _at_return(self) -> bool:
        """Whether this is the entry of a system call, and its return can be traced."""
        script = self.script
        if script.ahead is not None or len(script.returning) >= PLACES:
            return False
        return all(map(_enters, self.program.unit.targets)) and script.kernel.feature("call_return")

    def defer(
        self,
        pointer: Ptr,
        layout: EventLayout,
        addresses: Sequence[Number],
        room: int,
        complete: Callable[[Emitter, Ptr, Sequence[Number]], None],
    ) -> Number:
        """Keep an event until its strings can be read. Returns 1 if that succeeded, else 0.

        *pointer* is the event, of which only the fixed part is complete, *room* its whole size.
        ``complete(e, pointer, addresses)`` emits what reads the strings and sends the event.
        """
        start = _ADDRESSES + 8 * len(addresses)
        size = (start + room + 7) & ~7
        later = self._has_task_work()
        symbol = self._map(size, task_work=later)
        map_ = global_pointer(symbol)
        done = self.b.register()
        self.b.store(0, done)
        key = self.e.cell
        if later:
            # Unique: a CPU makes one at a time.
            self.b.store(
                self.b.op(
                    "or", self.b.op("shl", self.e.cpu, 48), self.b.low_bits(self.b.helper(helpers.KTIME_GET_NS), 48)
                ),
                key,
            )
        else:
            self.b.store(self.b.add(self.b.helper(helpers.GET_CURRENT_TASK), len(self.script.returning)), key)
        space = self._address_space()
        # Threads of the kernel, which have none, never return to user mode.
        on = self.b.block()
        self.b.jump_unless(self.b.truth(space), on)
        error = self.b.helper(helpers.MAP_UPDATE_ELEM, map_, key, self.module.zeros(size), _NOEXIST)
        with self.b.when(self.b.icmp("eq", self.b.fit(error, 32, signed=True), 0)):
            value = self.b.helper(helpers.MAP_LOOKUP_ELEM, map_, key)
            with self.b.unless(self.b.is_null(value)):
                self.b.store(space, self.b.offset(value, _MM))
                for index, address in enumerate(addresses):
                    self.b.store(address, self.b.offset(value, _ADDRESSES + 8 * index))
                self.e.memory.copy(self.b.offset(value, start), pointer, layout.fixed_size)
                function = self._completion(map_, start, len(addresses), complete, sleeps=later)
                if later:
                    self._schedule(value, map_, function, done)
                else:
                    self.script.returning.append((symbol, function))
                    self.b.fetch("add", self.b.offset(global_pointer(SHARED), self.script.layout.place_waiting()), 1)
                    self._kept(done)
        self.b.jump(on)
        self.b.start(on)
        return self.b.load(done)

    def postpone(self) -> None:
        """Keep the arguments of a system call until it returns, and end the program; go on where there is no room.

        In a script that has :data:`PLACES` before this body nothing is emitted, and the body keeps its place.

        The body of :attr:`~pytrace.codegen.emit.program.Program.late` then runs in the program's ``late_function``.
        """
        late, script, unit = self.program.late, self.script, self.program.unit
        assert late is not None
        if not self.program.late_function and len(script.returning) >= PLACES:
            # Another number would be the key of a task beside this one. What is unreadable is counted.
            return
        registers = script.kernel.struct("struct", "pt_regs") if unit.calls else None
        room = registers.size if registers is not None else _record_size(late.arguments)
        symbol = self._map((_KEPT + room + 7) & ~7, task_work=False)
        if not self.program.late_function:
            self.program.late_function = self.program.name("late")
            script.returning.append((symbol, self.program.late_function))
        number = [function for _, function in script.returning].index(self.program.late_function)
        map_, key = global_pointer(symbol), self.e.cell
        task = self.b.helper(helpers.GET_CURRENT_TASK)
        self.b.store(self.b.add(task, number), key)
        zeros = self.module.zeros((_KEPT + room + 7) & ~7)
        error = self.b.helper(helpers.MAP_UPDATE_ELEM, map_, key, zeros, _NOEXIST)
        with self.b.when(self.b.icmp("eq", self.b.fit(error, 32, signed=True), 0)):
            value = self.b.helper(helpers.MAP_LOOKUP_ELEM, map_, key)
            with self.b.unless(self.b.is_null(value)):
                self.b.store(self._address_space(), self.b.offset(value, _MM))
                self.b.store(self.b.helper(helpers.KTIME_GET_BOOT_NS), self.b.offset(value, _TIME))
                if registers is not None:
                    source = self.e.launder(self.b.load(self.e.context))
                    self.b.helper(helpers.PROBE_READ_KERNEL, self.b.offset(value, _KEPT), room, source)
                else:
                    for offset in range(_RECORD, room, 8):
                        self.b.store(
                            self.b.load(self.b.offset(self.e.context, offset)), self.b.offset(value, _KEPT + offset)
                        )
                self.b.fetch("add", self.b.offset(global_pointer(SHARED), script.layout.place_waiting()), 1)
                self.e.counter("unfinished", self.program.index)
                self.e.leave(None)

    def read_ahead(self, strings: Sequence[tuple[Number, int]]) -> None:
        """Postpone the hit if a string (address, capacity) cannot be read: effects of the body precede its own read."""
        for address, capacity in strings:
            with self.e.temporaries():
                error = self.b.helper(helpers.PROBE_READ_USER_STR, self.e.scratch(capacity), capacity, address)
            with self.b.when(self.b.icmp("slt", error, 0), likely=False):
                with self.b.when(self.b.truth(address)):
                    self.postpone()

    def run_kept(self, function: str, program: int) -> None:
        """In the function of a kept hit: run its body, which *function* has, unless the memory is another one since."""
        value = pointer_parameter("value")
        same = self.b.icmp("eq", self._address_space(), self.b.load(self.b.offset(value, _MM)))
        with self.b.when(same, likely=True):
            self.b.call(function, [pointer_parameter("map"), pointer_parameter("key"), value])
            self.e.counter("unfinished", program, -1)
        self.b.helper(helpers.MAP_DELETE_ELEM, pointer_parameter("map"), pointer_parameter("key"))

    def kept_age(self) -> Number:
        """Nanoseconds since the hit that is run now was kept; 0 in the program that is hit."""
        if self.e.kept is None:
            return 0
        kept = self.b.load(self.b.offset(self.e.kept, _TIME - _KEPT))
        return self.b.sub(self.b.helper(helpers.KTIME_GET_BOOT_NS), kept)

    def kept_context(self) -> Ptr:
        """In the function that has the body of kept hits: the place of the registers, or the record."""
        return self.b.offset(pointer_parameter("value"), _KEPT)

    def _schedule(self, value: Ptr, map_: Ptr, callback: str, done: Ptr) -> None:
        task = self.b.pointer(self.b.helper(helpers.GET_CURRENT_TASK_BTF))
        passed = [task, value, map_, global_pointer(callback)]
        name, types = _SCHEDULE, _PARAMETERS
        if self.script.kernel.function(name) is None:
            name, types = _FIRST_FORM, (*types, "void *")
            passed.append(NULL)
        self.module.kernel_function(name, types, "int")
        error = self.b.kernel_call(name, passed)
        good, bad, on = self.b.block(), self.b.block(), self.b.block()
        self.b.branch(self.b.icmp("eq", error, 0), good, bad)
        self.b.start(good)
        self._kept(done)
        self.b.jump(on)
        self.b.start(bad)
        self.b.helper(helpers.MAP_DELETE_ELEM, map_, self.e.cell)
        self.b.jump(on)
        self.b.start(on)

    def _kept(self, done: Ptr) -> None:
        self.b.store(1, done)
        self.e.counter("unfinished", self.program.index)

    def _map(self, size: int, *, task_work: bool) -> str:
        """The map of waiting events with values of *size* bytes."""
        symbol = f"{PENDING if task_work else RETURNING}{size}"
        if symbol not in self.script.pending:
            self.script.pending.add(symbol)
            if task_work:
                self.module.map(symbol, {"type": MapType.HASH, "max_entries": ENTRIES}, size)
            else:
                sizes = {"key_size": 8, "value_size": size, "max_entries": ENTRIES}
                self.module.map(symbol, {"type": MapType.HASH, **sizes})
        return symbol

    def _address_space(self) -> I64:
        """``current->mm``: another one after exec, when addresses of before mean nothing."""
        cell = self.b.alloca(8)
        task = self.b.helper(helpers.GET_CURRENT_TASK)
        self.b.helper(helpers.PROBE_READ_KERNEL, cell, 8, self.b.add(task, self.e.tasks.task_field("mm")))
        return self.b.load(cell)

    def _completion(
        self,
        map_: Ptr,
        start: int,
        strings: int,
        complete: Callable[[Emitter, Ptr, Sequence[Number]], None],
        *,
        sleeps: bool,
    ) -> str:
        """The function that completes a kept event, in the form of a callback of a map's element."""
        name = self.program.name("complete")
        b = self.module.function(name, ("*map", "*key", "*value"), self.e.span)
        inner = type(self.e)(self.program, b, self.e.span, 0, None)
        inner.completing, inner.task_work = True, sleeps
        inner.node = self.e.node
        value = pointer_parameter("value")
        same = b.icmp("eq", inner.deferred._address_space(), b.load(b.offset(value, _MM)))
        addresses = [
            b.select(same, b.load(b.offset(value, _ADDRESSES + 8 * index)), _NOWHERE) for index in range(strings)
        ]
        complete(inner, b.offset(value, start), addresses)
        inner.counter("unfinished", self.program.index, -1)
        b.helper(helpers.MAP_DELETE_ELEM, map_, pointer_parameter("key"))
        b.ret(0)
        return name
