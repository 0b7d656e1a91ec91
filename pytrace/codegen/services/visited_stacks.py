"""Stacks of the tasks that an iterator visits (``iter:task``).

The current task of an iterator is its reader. The kernel stack of the visited task is copied by ``bpf_get_task_stack``,
which finds nothing where the task is on a CPU: such a stack is :data:`RUNNING`. ``bpf_get_task_stack`` walks no user
stacks of other tasks, so these are walked here by frame pointers, from the registers that the task had when it entered
the kernel (``bpf_task_pt_regs``), with reads that may sleep (``bpf_copy_from_user_task``).
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from pytrace.codegen.emit import memory, stack_truncation, tasks
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.values import I64, Made, Number, Ptr
from pytrace.codegen.services.frame_pointers import CODE_64, LOWEST, NOWHERE
from pytrace.core.types import Stack
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import location

RUNNING = -errno.EBUSY
"""The error of a stack of a task that is on a CPU (``render.names``); none of the helpers returns it."""

_WORD = 8
_NO_STACK = -errno.EFAULT

Node = nodes.Call | nodes.Identifier


def stack(e: Emitter, node: Node, type_: Stack) -> Made:
    """The stack of the visited task."""

    def write(pointer: Ptr, _align: int) -> None:
        b = e.b
        frames, room = b.offset(pointer, type_.header), type_.limit * type_.frame_size
        if memory.inline(room, _WORD):
            b.clear(frames, room)
        else:
            b.helper(helpers.PROBE_READ_USER, frames, room, NOWHERE)
        count, process = b.register(), b.register()
        b.store(_NO_STACK, count)
        b.store(0, process)
        task = e.foreign.visited_task()
        with b.unless(b.is_null(task), likely=True):
            on_cpu = b.load(b.offset(task, e.tasks.known_field("task_struct", "on_cpu")), 32)
            running, sleeping, done = b.block(), b.block(), b.block()
            b.branch(b.truth(on_cpu), running, sleeping, likely=False)
            b.start(running)
            b.store(RUNNING, count)
            b.jump(done)
            b.start(sleeping)
            if type_.user:
                b.store(tasks.OtherTask(e, e.launder(b.address(task))).process("tracer"), process)
                _walk(e, node, type_, task, frames, count)
            else:
                b.store(_of_kernel(e, node, type_, task, frames), count)
            b.jump(done)
            b.start(done)
        b.store(b.load(count), pointer, 32)
        b.store(b.load(process), b.offset(pointer, 4), 32)

    return Made(type_, write)


def _of_kernel(e: Emitter, node: Node, type_: Stack, task: Ptr, frames: Ptr) -> Number:
    """Write the frames of the kernel stack. Returns their number, or the helper's error."""
    b = e.b

    def get_stack(place: Ptr, limit: int) -> I64:
        length = b.helper(helpers.GET_TASK_STACK, task, place, limit * type_.frame_size, 0)
        # A task that has ended has no stack any more.
        with b.when(b.both(b.icmp("slt", length, 0), b.icmp("ne", length, _NO_STACK)), likely=False):
            _failed(e, node, "kernel_stack")
        return length

    length = get_stack(frames, type_.limit)
    count = b.select(b.icmp("slt", length, 0), length, b.op("udiv", length, type_.frame_size))
    return stack_truncation.of_kernel(e, node, type_, count, 0, get_stack)


def _walk(e: Emitter, node: Node, type_: Stack, task: Ptr, frames: Ptr, count: Ptr) -> None:
    """Write the frames of the user stack, and their number to *count*; nothing for threads of the kernel."""
    b, table = e.b, e.probe.registers()
    with b.when(b.truth(b.load(b.offset(task, e.tasks.known_field("task_struct", "mm"))))):
        if not e.foreign.may_sleep():
            # Programs with some maps may not.
            b.store(-errno.EOPNOTSUPP, count)
            _failed(e, node, "user_stack")
            return
        e.program.sleeps = True
        saved = b.pointer(b.helper(helpers.TASK_PT_REGS, b.address(task)))
        ip, fp, segment = (b.load(b.offset(saved, table.offset(name))) for name in ("ip", "bp", "cs"))
        record, place = b.alloca(2 * _WORD), b.register()
        b.store(fp, place)
        with b.when(b.icmp("eq", b.op("and", segment, 0xFFFF), CODE_64)):
            b.store(ip, frames)
            b.store(1, count)

            def read(leave: Callable[[], None]) -> None:
                """Read the record at the frame pointer, and go on to the next one; *leave* where there is none."""
                here = b.load(place)
                with b.when(b.icmp("ult", here, LOWEST), likely=False):
                    leave()
                error = b.helper(helpers.COPY_FROM_USER_TASK, record, 2 * _WORD, here, task, 0)
                with b.unless(b.icmp("eq", b.fit(error, 32, signed=True), 0), likely=True):
                    leave()
                following = b.load(record)
                # A frame that points to itself is the last one, as for the current task.
                b.store(b.select(b.icmp("eq", following, here), 0, following), place)

            def step(index: I64, leave: Callable[[], None]) -> None:
                read(leave)
                b.store(b.load(b.offset(record, _WORD)), b.offset(frames, b.op("shl", b.add(index, 1), 3)))
                b.store(b.add(index, 2), count)

            if type_.limit > 1:
                e.loops.counted(type_.limit - 1, step)
            if stack_truncation.marked(node):
                with b.when(b.icmp("eq", b.load(count), type_.limit), likely=False):
                    ended = b.block()
                    read(lambda: b.jump(ended))
                    b.store(type_.limit + 1, count)
                    stack_truncation.add(e, node)
                    b.jump(ended)
                    b.start(ended)


def _failed(e: Emitter, node: Node, kind: str) -> None:
    """Count and report a stack that could not be walked."""
    before = e.counter(kind, e.script.layout.site("bpf_get_task_stack", location(node.span)))
    if e.script.options.checks:
        e.events.first_ones(before, lambda: e.events.report(node, kind))
