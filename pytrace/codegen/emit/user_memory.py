"""Reads of foreign memory, and what is done where they fail.

``bpf_probe_read_user`` never waits, so it fails where a page is not resident: a constant of a program that has just
started, a file that was mapped and not touched yet.  Programs of user probes, and of some kernel functions, run in a
context that may sleep: where the kernel accepts that (``BPF_F_SLEEPABLE``), a read that failed is repeated after
``bpf_copy_from_user`` has brought the page in.  A read that succeeds at once costs one comparison more.

The current task of an iterator is its reader. User memory there is that of the task that the iterator has reached,
which only programs that may sleep can read.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.values import I1, I64, TRUE, Number, Ptr, number_parameter, pointer_parameter
from pytrace.codegen.storage.scratch_memory import COPIES
from pytrace.core.diagnostics import InternalError
from pytrace.core.probes.kinds import FENTRY, FEXIT, Context
from pytrace.core.probes.targets import IteratorTarget, TypedFunctionTarget
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.nodes import walk
from pytrace.frontend.syntax.typed_program import location

if TYPE_CHECKING:
    from pytrace.codegen.emit.emitter import Emitter
    from pytrace.codegen.emit.program import Program

UNREADABLE = b"<unreadable>"
"""The value of a string that could not be read, with ``mark_unreadable``."""

_OF_TASK = "bpf_copy_from_user_task_str"
_PAD = 1
"""``BPF_F_PAD_ZEROS``: zero the rest of the buffer, and all of it after a failure."""
_NOWHERE = 1
"""An address that cannot be read and is not null."""

_PAGE = 4096
"""The smallest page size; with larger pages some are touched more than once."""

_BY_ADDRESS = {
    helpers.PROBE_READ: (helpers.PROBE_READ_KERNEL, helpers.PROBE_READ_USER),
    helpers.PROBE_READ_STR: (helpers.PROBE_READ_KERNEL_STR, helpers.PROBE_READ_USER_STR),
}
"""Helpers for which the address decides, and those of kernel and user memory."""
_STRINGS = (helpers.PROBE_READ_USER_STR, helpers.PROBE_READ_KERNEL_STR, helpers.PROBE_READ_STR)


def read(
    e: Emitter, helper: helpers.ReadHelper, pointer: Ptr, size: Number, address: Number, most: int | None = None
) -> I64:
    """Call a read helper. Returns its result.

    *most* is the maximum of *size*, where that is not a constant. Failures are reported if all helper errors are
    enabled (``-k``), and counted where the text is part of a map's key. With ``mark_unreadable`` all
    are counted, and a string is :data:`UNREADABLE` then.
    """
    most = size if isinstance(size, int) else most
    user = helper in (helpers.PROBE_READ_USER, helpers.PROBE_READ_USER_STR)
    if user and iterates_tasks(e.program):
        result = _of_task(e, helper, pointer, size, address, most)
    elif helper in _BY_ADDRESS and iterates_tasks(e.program):
        result = _of_kernel_or_task(e, helper, pointer, size, address, most)
    else:
        result = e.b.helper(helper, pointer, size, address)
        if user and may_sleep(e):
            result = _again(e, helper, pointer, size, address, most, result)
    late = e.program.late
    if user and late is not None and e.node in late.reads and e.depth == 0:
        with e.b.when(e.b.icmp("slt", result, 0), likely=False):
            with e.b.when(e.b.truth(address)):
                e.script.lowering.postpone(e)
    if e.failed_reads is not None and helper is helpers.PROBE_READ_USER_STR:
        with e.b.when(e.b.icmp("slt", result, 0), likely=False):
            e.b.store(e.b.number(e.b.truth(address)), e.failed_reads)
        return result
    e.script.lowering.check_read(e, helper.symbol, result)
    if e.node in e.program.key_strings and helper in _STRINGS and not e.checked.config.mark_unreadable:
        with e.b.when(e.b.icmp("slt", result, 0), likely=False):
            with e.b.when(e.b.truth(address)):
                e.counter("unreadable", e.script.layout.site(helper.symbol, location(e.node.span)))
    if e.checked.config.mark_unreadable:
        result = _marked(e, helper, pointer, size, address, result)
    return result


def may_sleep(e: Emitter) -> bool:
    """Whether reads may sleep here."""
    if e.task_work:
        return True
    program = e.program
    if e.atomic:
        return False
    if program.may_sleep is None:
        program.may_sleep = _permitted(program)
    return program.may_sleep


def _permitted(program: Program) -> bool:
    """Whether the program may be sleepable.

    ``maybe_wait_bpf_programs`` (kernel/bpf/syscall.c) does not wait for sleepable programs, and the runtime relies on
    that wait when it exchanges the buffers of a map, and when it removes keys whose digests are gone. Imported
    functions are unknown. An ahead-of-time file has to run on kernels without the feature.
    """
    script = program.script
    if script.checked.objects or script.ahead is not None:
        return False
    if script.layout.awaited and any(
        isinstance(node, nodes.MapRef) and node.name in script.layout.awaited
        for body in (program.unit.body, *(function.body for function in program.functions))
        for node in walk(body)
    ):
        return False
    return _accepted(program)


def _accepted(program: Program) -> bool:
    """Whether the kernel accepts such a program that may sleep."""
    unit, kernel = program.unit, program.script.kernel
    if unit.kind.user:
        return kernel.feature("sleepable_uprobe")
    if iterates_tasks(program):
        return kernel.feature("task_memory")
    if unit.kind.name not in (FENTRY, FEXIT) or not kernel.feature("sleepable_fentry"):
        return False
    places = [target.of(TypedFunctionTarget) for target in unit.targets]
    return all(place.module == "vmlinux" and kernel.sleepable_function(place.function) for place in places)


def iterates_tasks(program: Program) -> bool:
    """Whether a program is one of an iterator over tasks, or over what tasks have."""
    return program.unit.kind.context is Context.ITERATOR and _task_offset(program) is not None


def _task_offset(program: Program) -> int | None:
    """Where the context of an iterator has its task."""
    iterator = program.unit.targets[0].of(IteratorTarget).iterator
    struct = program.script.kernel.iterators().get(iterator)
    member = None if struct is None else struct.find("task")
    return None if member is None else member.offset


def visited_task(e: Emitter) -> Ptr:
    """The task that an iterator has reached (:func:`iterates_tasks`); may be null."""
    offset = _task_offset(e.program)
    if offset is None:
        raise InternalError("no iterator over tasks")
    return e.b.load_pointer(e.b.offset(e.context, offset))


def _of_task(
    e: Emitter, helper: helpers.ReadHelper, pointer: Ptr, size: Number, address: Number, most: int | None
) -> I64:
    """The result of a read of the memory of the iterator's task."""
    offset = _task_offset(e.program)
    if offset is None or not may_sleep(e):
        return e.b.helper(helper, pointer, size, _NOWHERE)
    e.program.sleeps = True
    result = e.b.register()
    e.b.store(-errno.EFAULT, result)
    task = visited_task(e)
    with e.b.unless(e.b.is_null(task), likely=True):
        if helper is helpers.PROBE_READ_USER:
            e.b.store(e.b.helper(helpers.COPY_FROM_USER_TASK, pointer, size, address, task, 0), result)
        else:
            e.module.kernel_function(_OF_TASK, ("void *", "int", "void *", "task_struct", "int"), "int")
            length = e.b.kernel_read(_OF_TASK, pointer, size, address, task, _PAD)
            # The verifier knows the range of a helper's result, and not that of a kfunc.
            with e.b.when(e.b.icmp("ule", length, _known(most)), likely=True):
                e.b.store(length, result)
    return e.b.load(result)


def _of_kernel_or_task(
    e: Emitter, helper: helpers.ReadHelper, pointer: Ptr, size: Number, address: Number, most: int | None
) -> I64:
    """The result of a read at an address of either space: the helper itself would read the reader's user memory."""
    of_kernel, of_user = _BY_ADDRESS[helper]
    result = e.b.register()
    in_kernel = e.b.icmp("slt", address, 0)
    with e.b.when(in_kernel):
        e.b.store(e.b.helper(of_kernel, pointer, size, address), result)
    with e.b.unless(in_kernel):
        e.b.store(_of_task(e, of_user, pointer, size, address, most), result)
    return e.b.load(result)


def _again(
    e: Emitter, helper: helpers.ReadHelper, pointer: Ptr, size: Number, address: Number, most: int | None, first: I64
) -> I64:
    """The result of a read; one that failed is repeated after its pages have been brought in."""
    e.program.sleeps = e.program.sleeps or not e.task_work
    result = e.b.register()
    e.b.store(first, result)
    with e.b.when(e.b.icmp("slt", first, 0), likely=False):
        with e.b.when(_copy_left(e) if e.program.preemptible and not e.task_work else TRUE):
            # When user probes are detached, the kernel waits for programs that sleep: the tracer says so.
            if not e.task_work:
                e.counter("waiting", e.program.index)
            if helper is helpers.PROBE_READ_USER:
                e.b.store(e.b.helper(helpers.COPY_FROM_USER, pointer, size, address), result)
            else:
                pages = (_known(most) + _PAGE - 1) // _PAGE
                e.b.store(e.b.call(_string_function(e), [pointer], (size, address, pages)), result)
            if not e.task_work:
                e.counter("waiting", e.program.index, -1)
    return e.b.load(result)


def _known(most: int | None) -> int:
    if most is None:
        raise InternalError("a read of variable size needs its maximum")
    return most


def _copy_left(e: Emitter) -> I1:
    """Whether another program on this CPU can still claim scratch memory while this one sleeps, as an ``i1``.

    So the last copy is never held for as long as a page takes to arrive, and sleeping causes no missed hits.
    """
    if e.program.scratch.size == 0:
        e.program.scratch.size = 8
    used = e.b.load(e.copies_in_use)
    return e.b.icmp("ne", used, (1 << COPIES) - 1)


def _string_function(e: Emitter) -> str:
    """The function that repeats the read of a string: first with its first page, then with all that it may reach.

    Pages after the first are touched only when the string goes on there, and no page after one that is not mapped.
    """
    script = e.script
    if script.string_function:
        return script.string_function
    script.string_function = "read_string_again"
    b = script.module.function(script.string_function, ("*target", "size", "address", "pages"), None)
    target, size, address = pointer_parameter("target"), number_parameter("size"), number_parameter("address")
    byte, index = b.alloca(8), b.register()
    failed, on, head, body, more, last = (b.block() for _ in range(6))
    b.jump_if(b.icmp("slt", b.helper(helpers.COPY_FROM_USER, byte, 1, address), 0), failed)
    again = b.helper(helpers.PROBE_READ_USER_STR, target, size, address)
    b.branch(b.icmp("slt", again, 0), on, last)
    b.start(last)
    b.ret(again)
    b.start(on)
    b.store(0, index)
    b.jump(head)
    b.start(head)
    page = b.load(index)
    b.branch(b.icmp("ult", page, number_parameter("pages")), body, more)
    b.start(body)
    place = b.add(b.add(b.op("or", address, _PAGE - 1), 1), b.mul(page, _PAGE))
    b.jump_unless(b.icmp("ult", b.sub(place, address), size), more)
    b.jump_if(b.icmp("slt", b.helper(helpers.COPY_FROM_USER, byte, 1, place), 0), more)
    b.store(b.add(page, 1), index)
    b.jump(head)
    b.start(more)
    b.ret(b.helper(helpers.PROBE_READ_USER_STR, target, size, address))
    b.start(failed)
    b.ret(-errno.EFAULT)
    return script.string_function


def _marked(
    e: Emitter, helper: helpers.ReadHelper, pointer: Ptr, size: Number, address: Number, first: I64
) -> I64:
    """The result of a read; one that failed is counted, and a string becomes :data:`UNREADABLE`.

    At a null pointer there is nothing to read: that is an empty string.
    """
    result = e.b.register()
    e.b.store(first, result)
    with e.b.when(e.b.icmp("slt", first, 0), likely=False):
        with e.b.when(e.b.truth(address)):
            e.counter("unreadable", e.script.layout.site(helper.symbol, location(e.node.span)))
            if helper in _STRINGS:
                text = e.b.address(e.module.constant(UNREADABLE + b"\0"))
                e.b.store(e.b.helper(helpers.PROBE_READ_KERNEL_STR, pointer, size, text), result)
    return e.b.load(result)
