"""Stacks: written to their destination by ``bpf_get_stack``, or unwound by
:mod:`pytrace.codegen.services.user_unwinding` or :mod:`pytrace.codegen.services.python.stacks`.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from msgspec.structs import replace

from pytrace.codegen.emit import memory, stack_truncation
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.values import I64, Made, Number, Operand, Ptr
from pytrace.codegen.lower import stack_chunks
from pytrace.codegen.lower.builtins.families import Emission
from pytrace.codegen.services import (
    frame_pointers,
    function_exits,
    memory_images,
    mixed_stacks,
    user_unwinding,
    visited_stacks,
)
from pytrace.codegen.services.python import stacks as python_stacks
from pytrace.core.diagnostics import InternalError
from pytrace.core.probes.kinds import FENTRY, FEXIT, RAWTRACEPOINT, UPROBE, URETPROBE
from pytrace.core.probes.targets import UserTarget
from pytrace.core.types import Stack, StackMode
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import location

Node = nodes.Call | nodes.Identifier

USER_STACK = 1 << 8
USER_BUILD_ID = 1 << 11
SKIPPED = 2
"""Frames that do not belong to the traced stack: the program and its caller, ``bpf_trace_run1`` … or a trampoline,
whose address kallsyms resolves to an unrelated symbol."""
_SKIP = 0xFF
"""``BPF_F_SKIP_FIELD_MASK``."""
_WORD = 8
_RUN_BY_OTHERS = frozenset({RAWTRACEPOINT, FENTRY, FEXIT})
"""Probe kinds whose stacks begin inside the program itself."""


def _stack(e: Emitter, node: Node, type_: Stack, chunked: bool) -> Operand:
    if memory.iterates_tasks(e.program):
        return visited_stacks.stack(e, node, type_)
    way = e.checked.config.stack_unwinding
    if type_.user and way == "tables" and type_.mode is not StackMode.BUILD_ID:
        return user_unwinding.stack(e, node, type_)
    walked = _walked(e, node, type_)
    if mixed_stacks.usable(e, type_):
        entry = _may_lack_caller(e, type_)
        return mixed_stacks.stack(e, node, type_, entry, lambda pointer: walked.write(pointer, 8))
    sampled = e.program.unit.kind.program_type == "perf_event"
    # The kernel walks no more than perf_event_max_stack frames, which is all that a user probe has by frame pointers.
    deep = chunked and e.program.unit.kind.user
    if (way == "auto" or (way == "sampled" and (sampled or deep))) and user_unwinding.usable(e, type_):
        entry = _may_lack_caller(e, type_)
        return user_unwinding.chosen(e, node, type_, entry, lambda pointer: walked.write(pointer, 8))
    return walked


def _walked(e: Emitter, node: Node, type_: Stack) -> Made:
    """A stack by frame pointers, or of the kernel."""
    flags = (USER_STACK if type_.user else 0) | (USER_BUILD_ID if type_.mode is StackMode.BUILD_ID else 0)
    if not type_.user and e.program.unit.kind.name in _RUN_BY_OTHERS:
        flags |= SKIPPED
    context = e.raw_context

    def get_stack(place: Ptr, limit: int) -> I64:
        # The helper zeroes the rest after the last frame, and everything if it fails (__bpf_get_stack), which keys
        # require. Kernels before 5.13 read the memory first, as far as the verifier knows.
        if not e.script.kernel.feature("stack_to_unset"):
            e.memory.zero(place, limit * type_.frame_size)
        length = e.b.helper(helpers.GET_STACK, context, place, limit * type_.frame_size, flags)
        _check(e, node, type_, length)
        return length

    def write(pointer: Ptr, _align: int) -> None:
        process = memory_images.of_stack(e, type_)
        frames = e.b.offset(pointer, type_.header)

        def whole(count: Number, inserted: Number = 0) -> Number:
            skipped = flags & _SKIP
            return stack_truncation.of_kernel(e, node, type_, count, skipped, get_stack, inserted)

        def helped() -> Number:
            length = get_stack(frames, type_.limit)
            return whole(e.b.select(e.b.icmp("slt", length, 0), length, e.b.op("udiv", length, type_.frame_size)))

        if frame_pointers.walks(e, type_):
            count = frame_pointers.walk(e, type_, frames, node, helped)
        elif function_exits.in_caller(e.program.unit) and type_.mode is not StackMode.BUILD_ID:
            count = helped()
            # By frame pointers it is the second frame, or left out: at the end of a function they are its caller's.
            if type_.user and type_.limit and e.script.kernel.arch == "x86_64":
                e.b.helper(helpers.PROBE_READ_USER, frames, _WORD, e.probe.register("sp"))
        elif _may_lack_caller(e, type_):
            count = _with_caller(e, type_, frames, get_stack, helped, whole)
        else:
            count = helped()
        e.b.store(count, pointer, 32)
        e.b.store(process, e.b.offset(pointer, 4), 32)

    return Made(type_, write)


def _may_lack_caller(e: Emitter, type_: Stack) -> bool:
    """Whether such a stack may lack the caller."""
    unit = e.program.unit
    if not type_.user or type_.mode is StackMode.BUILD_ID or type_.limit < 2 or e.script.kernel.arch != "x86_64":
        return False
    if unit.kind.name not in (UPROBE, URETPROBE):
        return False
    targets = [target.of(UserTarget) for target in unit.targets]
    if unit.kind.returns:
        return all(target.leaving is not None and target.go for target in targets)
    return all(target.symbol and not target.inside for target in targets)


def _with_caller(
    e: Emitter,
    type_: Stack,
    frames: Ptr,
    get_stack: Callable[[Ptr, int], I64],
    helped: Callable[[], Number],
    whole: Callable[[Number, Number], Number],
) -> Number:
    """Write the frames of a user stack at the first or last instruction of a function (x86-64), including the caller.

    There the frame pointer is still the caller's, so a walk along frame pointers skips the caller. Its address is on
    top of the stack, and is inserted as the second frame. Kernels since 6.11 insert it themselves if the function
    begins with ``push %rbp`` or ``endbr64`` (``is_uprobe_at_func_entry`` of arch/x86/events/core.c). Returns the number
    of frames, or the helper's error.
    """
    b, result = e.b, e.b.register()
    caller = e.temporary(_WORD)
    plain, done = b.block(), b.block()
    b.store(0, caller)
    b.helper(helpers.PROBE_READ_USER, caller, _WORD, e.probe.register("sp"))
    # One word too far, to leave room for the caller.
    length = get_stack(b.offset(frames, _WORD), type_.limit - 1)
    b.store(0, frames)
    b.store(length, result)
    b.jump_if(b.icmp("slt", length, _WORD), done, likely=False)
    address = b.load(caller, again=True)
    segment = b.op("and", e.probe.register("cs"), 0xFFFF)
    address = b.select(b.icmp("eq", segment, frame_pointers.CODE_64), address, 0)
    second = b.load(b.offset(frames, 2 * _WORD), again=True) if type_.limit > 2 else 0
    missing = b.select(b.icmp("eq", address, 0), 0, second)  # there is no address to insert
    b.jump_if(b.icmp("eq", address, missing), plain, likely=False)
    b.store(b.load(b.offset(frames, _WORD), again=True), frames)
    b.store(address, b.offset(frames, _WORD))
    b.store(whole(b.add(b.op("udiv", length, _WORD), 1), 1), result)
    b.jump(done)
    b.start(plain)
    b.store(helped(), result)
    b.jump(done)
    b.start(done)
    return b.load(result)


def _check(e: Emitter, node: Node, type_: Stack, result: Number) -> None:
    """Count and report a stack that could not be walked, which has a negative error code instead of a frame count.

    The helper answers EFAULT both for a task that has no user stack (a thread of the kernel, a task that has given up
    its memory) and where the kernel had no buffer left (get_perf_callchain): only the second is a loss.
    """
    b = e.b
    with b.when(b.icmp("slt", result, 0), likely=False):
        counted, passed = b.block(), b.block()
        if type_.user and e.script.kernel.struct("struct", "task_struct") is not None:
            b.jump_if(b.icmp("ne", result, -errno.EFAULT), counted)
            memory_of_task = b.add(b.helper(helpers.GET_CURRENT_TASK), e.tasks.task_field("mm"))
            b.branch(b.truth(e.tasks.read_word(memory_of_task)), counted, passed)
        else:
            b.jump(counted)
        b.start(counted)
        site = e.script.layout.site("bpf_get_stack", location(node.span))
        before = e.counter("user_stack" if type_.user else "kernel_stack", site)
        if e.script.options.checks:
            error = "user_stack" if type_.user else "kernel_stack"
            e.events.first_ones(before, lambda: e.events.report(node, error))
        b.jump(passed)
        b.start(passed)


def _dwarf(e: Emitter, node: Node, type_: Stack, _chunked: bool) -> Operand:
    return user_unwinding.stack(e, node, type_)


def _python(e: Emitter, node: Node, type_: Stack, _chunked: bool) -> Operand:
    return python_stacks.stack(e, node, type_)


def _emission(flat: Callable[[Emitter, Node, Stack, bool], Operand]) -> Emission:
    """Emits a stack that *flat* writes with all of its frames, in chunks if it is of such a type."""

    def emit(e: Emitter, node: Node) -> Operand:
        type_ = e.type(node)
        if not isinstance(type_, Stack):
            raise InternalError("not a stack")
        if not type_.chunked:
            return flat(e, node, type_, False)
        return stack_chunks.write(e, node, flat(e, node, replace(type_, chunked=False), True), type_)

    return emit


EMIT: dict[str, Emission] = {
    "dw_ustack": _emission(_dwarf), "kstack": _emission(_stack), "pystack": _emission(_python),
    "ustack": _emission(_stack),
}  # fmt: skip
