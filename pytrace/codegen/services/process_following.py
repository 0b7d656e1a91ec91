"""``--follow``: programs that maintain the set of followed processes in the kernel, and the check that uses it.

The process of ``-p`` or ``-c``, or the one that executed the program of ``--exec-wait``, is identified by its pid in
the tracer's pid namespace; its descendants are in a hash map, by pid in the initial namespace.  They are added at the
fork itself, by the parent, so a child is followed from its first instruction.  The programs use typed raw tracepoints
where the kernel supports them, as closing a perf event of a tracepoint takes a tenth of a second.  Existing descendants
of the ``-p`` process are added by the runtime (``pytrace.runtime.attach.iterator``), which lists them with
an iterator over all tasks.
"""

from __future__ import annotations

from collections.abc import Callable

from pytrace.codegen.emit import tasks
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.emit.program import Script
from pytrace.codegen.emit.storage import SESSION, UNFOLLOWED
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.module import Module
from pytrace.codegen.ir.values import I1, Number, global_pointer
from pytrace.codegen.services.service_programs import service_program
from pytrace.core.builtins import IN_SCOPE, Builtin
from pytrace.core.diagnostics import InternalError, TraceError
from pytrace.core.kernel_info import KernelInfo
from pytrace.core.manifest import MapType, ProgramSpec, Target
from pytrace.core.options.compile_options import CompileOptions
from pytrace.core.options.process_filters import NOT_YET, PROCESS_MAP, UNROLLED
from pytrace.core.probes.targets import RAW_TRACEPOINT, IteratorTarget, TracepointTarget
from pytrace.core.types import INT32, UINT32, UINT64, Array, Struct, Type
from pytrace.frontend.syntax.typed_program import CheckedProgram

MAP = "followed"
ENTRIES = 32768
"""Maximum number of followed tasks; the default ``pid_max``."""

CATEGORY = "sched"
EXEC = "sched_process_exec"
FORK, FREE = "sched_process_fork", "sched_process_free"
"""A task is created, in the context of its parent; a task is freed, a process's first thread last."""
_RAW = "rawtracepoint"
"""The kernel feature of raw tracepoints with typed arguments."""

TASK = 8
"""Offset of the task in ``struct bpf_iter__task``."""

ROW = 16
"""Bytes that the iterator writes for each process."""


def wanted(checked: CheckedProgram, options: CompileOptions) -> bool:
    """Whether a program of the script checks for followed processes, or the run waits for one."""
    if options.awaits or any(unit.follow for unit in checked.units):
        return True
    return options.follow and any(isinstance(row, Builtin) and row.name == IN_SCOPE for row in checked.calls.values())


def declare(module: Module) -> None:
    """Declare the set: one entry for each task."""
    module.map(MAP, {"type": MapType.HASH, "key_size": 4, "value_size": 4, "max_entries": ENTRIES})


def check(e: Emitter, task: tasks.Task | None = None) -> I1:
    """``i1``: the process of *task* (default: the current one) is that of ``-p`` or ``-c``, or descends from it."""
    task = task or tasks.CurrentTask(e)
    itself = _root(e, task)
    first = e.b.current
    with e.b.unless(itself):
        is_member = e.b.number(e.tasks.is_in_map(task.process("init"), MAP))
        last = e.b.current
    return e.b.truth(e.b.phi([(1, first), (is_member, last)]))


def _root(e: Emitter, task: tasks.Task) -> I1:
    """Whether the process is a root, from which following starts."""
    number = task.process("tracer")
    count = e.script.options.shape.pids
    if count < 2:
        return e.b.icmp("eq", number, e.b.load(e.session(SESSION.root)))
    if count > UNROLLED:
        return e.tasks.is_in_map(number, PROCESS_MAP)
    return e.tasks.is_any_of(number, 0, count)


def services(script: Script) -> tuple[ProgramSpec, ...]:
    """The programs that maintain the set, and a program that lists all tasks if the root is already running."""
    keepers = [_tracker(script, FORK, "child", _add), _tracker(script, FREE, "p", _remove)]
    if script.options.awaits:
        keepers.insert(0, _starter(script))
    return (*keepers, _lister(script)) if lists_tasks(script.options, script.kernel) else tuple(keepers)


def lists_tasks(options: CompileOptions, kernel: KernelInfo) -> bool:
    """Whether existing descendants have to be listed (the ``-c`` process has none), and the kernel can list them."""
    return (bool(options.filters.pids) or options.ahead) and "task" in kernel.iterators()


Read = Callable[[Emitter], Number]
"""Emits a read of the thread id of a tracepoint's subject."""
_FIELDS = {FORK: "child_pid", FREE: "pid"}
"""The field of a plain tracepoint with that id."""


def _tracker(script: Script, event: str, task: str, change: Callable[[Emitter, Read], None]) -> ProgramSpec:
    """A program of a tracepoint whose subject is a task; *task* is the raw tracepoint's argument."""
    target = Target(f"tracepoint:{CATEGORY}:{event}", 0, TracepointTarget(CATEGORY, event))
    slot = _slot(script, event, task)
    if slot is not None:
        read = _of_task(slot)
        return service_program(script, f"follow_{event}", target, 1, lambda e: change(e, read), multi=RAW_TRACEPOINT)
    fields = script.kernel.tracepoint_fields(CATEGORY, event)
    number = next((item for item in fields or () if item.name == _FIELDS[event]), None)
    if number is None:
        raise TraceError(f"--follow needs the tracepoint {CATEGORY}:{event} of the kernel")
    if script.ahead is not None:
        script.ahead.rely(
            "tracepoint", CATEGORY, event, number.name, number.offset, number.size, number.declaration
        )
    offset = number.offset
    # 0 would hide the event from other users of the tracepoint.
    return service_program(
        script, f"follow_{event}", target, 1, lambda e: change(e, lambda e: e.b.load(e.b.offset(e.context, offset), 32))
    )


def _slot(script: Script, event: str, name: str) -> int | None:
    """Index of a raw tracepoint's argument; None if the program has to use the plain tracepoint."""
    if not is_raw(script, event):
        return None
    prototype = script.kernel.raw_tracepoint_prototype(event)
    names = [] if prototype is None else [parameter for parameter, _ in prototype.parameters]
    return names.index(name) if name in names else None


def is_raw(script: Script, event: str) -> bool:
    """Whether the raw tracepoint *event* can be used, and its use is enabled (config ``raw_tracepoints``)."""
    kernel, options = script.kernel, script.options
    if script.ahead is not None or script.checked.config.raw_tracepoints == "plain" or not kernel.has_btf:
        return False
    typed = kernel.type_id("typedef", f"btf_trace_{event}") != 0
    return typed and _RAW not in options.disabled and kernel.feature(_RAW)


def _of_task(slot: int) -> Read:
    """Read of the thread id of the task that argument *slot* of a raw tracepoint points to."""

    def read(e: Emitter) -> Number:
        task = e.launder(e.b.load(e.b.offset(e.context, 8 * slot)))
        return _member(e, task, e.tasks.task_field("pid"), INT32)

    return read


def thread_of(script: Script, event: str, task: str) -> Read:
    """Read of the thread id of the subject of a typed raw tracepoint; *task* is its argument."""
    slot = _slot(script, event, task)
    if slot is None:
        raise InternalError(f"no argument {task} of {event}")
    return _of_task(slot)


def _starter(script: Script) -> ProgramSpec:
    """``--exec-wait``: the BPF program that detects the exec of the awaited program."""
    multi = RAW_TRACEPOINT if is_raw(script, EXEC) else ""
    if not multi and script.kernel.tracepoint_fields(CATEGORY, EXEC) is None:
        raise TraceError(f"--exec-wait needs the tracepoint {CATEGORY}:{EXEC} of the kernel")
    target = Target(f"tracepoint:{CATEGORY}:{EXEC}", 0, TracepointTarget(CATEGORY, EXEC))
    return service_program(script, f"follow_{EXEC}", target, 1, _start, multi=multi)


def _start(e: Emitter) -> None:
    """Follow the first process with the awaited program's name; the kernel has set the name before this tracepoint."""
    named = e.tasks.is_named(tasks.CurrentTask(e), e.script.options.shape.awaited_at, 1)
    e.b.jump_unless(named, e.exit, likely=False)
    e.b.exchange_if(e.session(SESSION.root), NOT_YET, e.tasks.process_ids("tracer")[0])


def _lister(script: Script) -> ProgramSpec:
    target = Target("iter:task", 0, IteratorTarget("task"))
    return service_program(script, "follow_tasks", target, 0, _list)


def _list(e: Emitter) -> None:
    """Write a :class:`pytrace.runtime.attach.iterator.Task` for each process.

    The tracer reads it, so pids are those of the tracer's pid namespace, as in ``/proc`` and ``-p``.
    """
    task = e.launder(e.b.load(e.b.offset(e.context, TASK)))
    e.b.jump_unless(e.b.truth(task), e.exit)
    process = _member(e, task, e.tasks.task_field("tgid"), INT32)
    e.b.jump_unless(e.b.icmp("eq", _member(e, task, e.tasks.task_field("pid"), INT32), process), e.exit)
    real_parent = _member(e, task, e.tasks.task_field("real_parent"), UINT64)
    parent = _member(e, real_parent, e.tasks.task_field("tgid"), INT32)
    data = e.b.alloca(ROW)
    for index, value in enumerate((process, parent, _number_here(e, task), 0)):
        e.b.store(value, e.b.offset(data, 4 * index), 32)
    file = e.b.load(e.b.pointer(e.b.load(e.context)))
    e.b.helper(helpers.SEQ_WRITE, file, data, ROW)


def _number_here(e: Emitter, task: Number) -> Number:
    """Pid of *task* in the pid namespace of the current process (``task_pid_nr_ns``, kernel/pid.c)."""
    struct = e.script.kernel.struct("struct", "pid")
    numbers = None if struct is None else struct.find("numbers")
    upid = None if numbers is None or not isinstance(numbers.type, Array) else numbers.type.element
    if struct is None or not isinstance(upid, Struct):
        raise TraceError("--follow needs the kernel's type information (BTF) of struct pid")
    if e.script.ahead is not None:
        e.script.ahead.rely_on_size(upid)
    own = _member(e, e.b.helper(helpers.GET_CURRENT_TASK), e.tasks.task_field("thread_pid"), UINT64)
    level = _member(e, own, e.load_time.struct_offset(struct, "level"), UINT32)
    pid = _member(e, task, e.tasks.task_field("thread_pid"), UINT64)
    place = e.b.add(e.b.add(pid, e.load_time.struct_offset(struct, "numbers")), e.b.mul(level, upid.size))
    return _member(e, place, e.load_time.struct_offset(upid, "nr"), INT32)


def _member(e: Emitter, address: Number, offset: Number, type_: Type) -> Number:
    """A member of a kernel object; 0 on a fault, which is not reported."""
    e.b.helper(helpers.PROBE_READ_KERNEL, e.cell, type_.size, e.b.add(address, offset))
    return e.memory.load(e.cell, type_).value


def _add(e: Emitter, number: Read) -> None:
    with e.b.unless(check(e), likely=False):
        # The pid may be reused from a followed process whose exit was missed because the program could not run then.
        _remove(e, number)
        e.b.jump(e.exit)
    # Threads are included: their ids are not those of processes.
    e.b.store(number(e), e.cell, 32)
    value = e.b.alloca(8)
    e.b.store(1, value)
    failed = e.b.helper(helpers.MAP_UPDATE_ELEM, global_pointer(MAP), e.cell, value, 0)
    e.b.jump_unless(e.b.truth(failed), e.exit, likely=False)
    e.counter(*UNFOLLOWED)


def _remove(e: Emitter, number: Read) -> None:
    e.b.store(number(e), e.cell, 32)
    e.b.helper(helpers.MAP_DELETE_ELEM, global_pointer(MAP), e.cell)
