"""Programs beside those of the script: they keep the set of followed processes, count returns that are missed, and
complete events when system calls return; and programs of system calls that have several units.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pytrace.codegen.emit import tasks
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.emit.program import SESSION, Part, Program, Script
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.builder import Block, Builder
from pytrace.codegen.ir.module import SHARED, Module
from pytrace.codegen.ir.values import CONTEXT, I64, Number, global_pointer
from pytrace.codegen.walkers.program_filters import FOLLOWED, Filters, exit_places
from pytrace.core import system_calls as call_numbers
from pytrace.core.diagnostics import InternalError, TraceError
from pytrace.core.manifest import MapType, ProgramSpec, Target
from pytrace.core.options import NOT_YET
from pytrace.core.probe_kinds import (
    ENTER,
    EXIT,
    RAW_TRACEPOINT,
    RAWTRACEPOINT,
    UPROBE,
    URETPROBE,
    IteratorTarget,
    ProbeKind,
    RawTracepointTarget,
    TracepointTarget,
    known_kind,
)
from pytrace.core.types import INT32, UINT32, UINT64, AddressSpace, Array, Struct, Type
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import ProbeContext, ProbeUnit, location

_UNFOLLOWED = ("unfollowed", 0)
"""Counter of processes for which the set of ``--follow`` had no room."""


def service_program(
    script: Script, symbol: str, target: Target, result: int, write: Callable[[Emitter], None], multi: str = ""
) -> ProgramSpec:
    """A service program, which is not part of the script: *write* emits its body."""
    kind = known_kind(target.probe.partition(":")[0])
    return _service_of(script, symbol, kind, (target,), result, write, multi)


def _service_of(
    script: Script,
    symbol: str,
    kind: ProbeKind,
    targets: tuple[Target, ...],
    result: int,
    write: Callable[[Emitter], None],
    multi: str = "",
) -> ProgramSpec:
    """The same with several targets."""
    span = script.checked.units[0].span
    unit = ProbeUnit(symbol, -1, kind, targets, ProbeContext(), nodes.Block(span, ()), span, multi)
    program = Program(script, unit, -1, frozenset())
    b = script.module.function(symbol, ("*ctx",), span, entry=True)
    e = Emitter(program, b, span, 0, None)
    e.b.store(result, e.result)
    write(e)
    e.b.jump(e.exit)
    e.finish()
    script.layout.area(program.area, program.scratch.size)
    return ProgramSpec(symbol, kind.name, -1, unit.targets, location(span), multi, service=True)


FOLLOWED_ENTRIES = 32768
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


def declare_following(module: Module) -> None:
    """Declare the set: one entry for each task."""
    module.map(FOLLOWED, {"type": MapType.HASH, "key_size": 4, "value_size": 4, "max_entries": FOLLOWED_ENTRIES})


def following_services(script: Script, *, python: bool) -> tuple[ProgramSpec, ...]:
    """The programs that maintain the set, and one that lists all tasks if the root may have started some.

    That is a process of ``-p``; or with *python*, probes on functions of Python, a command that starts its interpreter.
    """
    keepers = [
        _tracker(script, FORK, "child", lambda e, read: Following(e)._add(read)),
        _tracker(script, FREE, "p", lambda e, read: Following(e)._remove(read)),
    ]
    if script.options.filters.exec_wait:
        keepers.insert(0, _starter(script))
    options = script.options
    listed = bool(options.filters.pids) or options.ahead or python
    return (*keepers, _lister(script)) if listed and "task" in script.kernel.iterators() else tuple(keepers)


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
        script.ahead.rely("tracepoint", CATEGORY, event, number.name, number.offset, number.size, number.declaration)
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
    return typed and _RAW not in options.no_features and kernel.feature(_RAW)


def _of_task(slot: int) -> Read:
    """Read of the thread id of the task that argument *slot* of a raw tracepoint points to."""

    def read(e: Emitter) -> Number:
        task = e.launder(e.b.load(e.b.offset(e.context, 8 * slot)))
        return Following(e)._member(task, e.tasks.task_field("pid"), INT32)

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
    return service_program(script, f"follow_{EXEC}", target, 1, lambda e: Following(e)._start(), multi=multi)


def _lister(script: Script) -> ProgramSpec:
    target = Target("iter:task", 0, IteratorTarget("task"))
    return service_program(script, "follow_tasks", target, 0, lambda e: Following(e)._list())


_DEEPEST = 64
"""``MAX_URETPROBE_DEPTH`` of kernel/events/uprobes.c."""


def exit_services(script: Script) -> tuple[ProgramSpec, ...]:
    """Programs that count the calls whose returns the kernel does not see: those of a task that has 64 already.

    They are at the entries of the functions whose return addresses the kernel replaces.
    """
    counted = [
        (number, unit)
        for number, unit in enumerate(script.checked.units)
        if unit.kind.name == URETPROBE and not exit_places(unit)
    ]
    # Without such probes the kernel's types are not asked for: the facts of a host need not have them.
    if not counted or script.ahead is not None:
        return ()
    task, uprobes = (script.kernel.struct("struct", name) for name in ("task_struct", "uprobe_task"))
    if task is None or not task.find("utask") or uprobes is None or not uprobes.find("depth"):
        return ()
    return tuple(
        _service_of(
            script, f"deep_{unit.symbol}", known_kind(UPROBE), unit.targets, 0, _count_deep(number, unit), unit.multi
        )
        for number, unit in counted
    )


def _count_deep(number: int, unit: ProbeUnit) -> Callable[[Emitter], None]:
    def write(e: Emitter) -> None:
        place = e.b.add(e.tasks.pointer_member("utask"), e.tasks.kernel_field("uprobe_task", "depth"))
        depth = e.foreign.read_scalar(place, UINT32, AddressSpace.KERNEL).value
        e.b.jump_if(e.b.icmp("ult", depth, _DEEPEST), e.exit, likely=True)
        Filters(e).check(unit)
        e.counter("deep_return", number)

    return write


class Following(Part):
    """Changes of the set of followed processes."""

    def _start(self) -> None:
        """Follow the first process with the awaited program's name; the kernel has set the name before this
        tracepoint.
        """
        named = self.e.tasks.is_named(tasks.CurrentTask(self.e), self.script.options.shape.awaited_at, 1)
        self.b.jump_unless(named, self.e.exit, likely=False)
        self.b.exchange_if(self.e.session(SESSION.root), NOT_YET, self.e.tasks.process_ids("tracer")[0])

    def _list(self) -> None:
        """Write a :class:`pytrace.runtime.load.attachments.Task` for each process.

        The tracer reads it, so pids are those of the tracer's pid namespace, as in ``/proc`` and ``-p``.
        """
        task = self.e.launder(self.b.load(self.b.offset(self.e.context, TASK)))
        self.b.jump_unless(self.b.truth(task), self.e.exit)
        process = self._member(task, self.e.tasks.task_field("tgid"), INT32)
        self.b.jump_unless(
            self.b.icmp("eq", self._member(task, self.e.tasks.task_field("pid"), INT32), process), self.e.exit
        )
        real_parent = self._member(task, self.e.tasks.task_field("real_parent"), UINT64)
        parent = self._member(real_parent, self.e.tasks.task_field("tgid"), INT32)
        data = self.b.alloca(ROW)
        for index, value in enumerate((process, parent, self._number_here(task), 0)):
            self.b.store(value, self.b.offset(data, 4 * index), 32)
        file = self.b.load(self.b.pointer(self.b.load(self.e.context)))
        self.b.helper(helpers.SEQ_WRITE, file, data, ROW)

    def _number_here(self, task: Number) -> Number:
        """Pid of *task* in the pid namespace of the current process (``task_pid_nr_ns``, kernel/pid.c)."""
        struct = self.script.kernel.struct("struct", "pid")
        numbers = None if struct is None else struct.find("numbers")
        upid = None if numbers is None or not isinstance(numbers.type, Array) else numbers.type.element
        if struct is None or not isinstance(upid, Struct):
            raise TraceError("--follow needs the kernel's type information (BTF) of struct pid")
        if self.script.ahead is not None:
            self.script.ahead.rely_on_size(upid)
        own = self._member(self.b.helper(helpers.GET_CURRENT_TASK), self.e.tasks.task_field("thread_pid"), UINT64)
        level = self._member(own, self.e.load_time.struct_offset(struct, "level"), UINT32)
        pid = self._member(task, self.e.tasks.task_field("thread_pid"), UINT64)
        place = self.b.add(
            self.b.add(pid, self.e.load_time.struct_offset(struct, "numbers")), self.b.mul(level, upid.size)
        )
        return self._member(place, self.e.load_time.struct_offset(upid, "nr"), INT32)

    def _member(self, address: Number, offset: Number, type_: Type) -> Number:
        """A member of a kernel object; 0 on a fault, which is not reported."""
        self.b.helper(helpers.PROBE_READ_KERNEL, self.e.cell, type_.size, self.b.add(address, offset))
        return self.e.memory.load(self.e.cell, type_).value

    def _add(self, number: Read) -> None:
        with self.b.unless(Filters(self.e).followed(tasks.CurrentTask(self.e)), likely=False):
            # The pid may be reused from a followed process whose exit was missed because the program could not run
            # then.
            self._remove(number)
            self.b.jump(self.e.exit)
        # Threads are included: their ids are not those of processes.
        self.b.store(number(self.e), self.e.cell, 32)
        value = self.b.alloca(8)
        self.b.store(1, value)
        failed = self.b.helper(helpers.MAP_UPDATE_ELEM, global_pointer(FOLLOWED), self.e.cell, value, 0)
        self.b.jump_unless(self.b.truth(failed), self.e.exit, likely=False)
        self.e.counter(*_UNFOLLOWED)

    def _remove(self, number: Read) -> None:
        self.b.store(number(self.e), self.e.cell, 32)
        self.b.helper(helpers.MAP_DELETE_ELEM, global_pointer(FOLLOWED), self.e.cell)


# -------------------------------------------------------------------------------------------- programs of system calls

PART = "_part"
"""Suffix of function names in a program of several units."""

_NUMBER = 8
"""Offset of the system call number in the context of the raw tracepoint ``sys_enter``."""


def call_programs(script: Script) -> None:
    """Emit the programs; the functions of the units have been emitted already."""
    owners = [unit for unit in script.checked.units if unit.calls and not unit.part_of]
    for owner in owners:
        _program(script, _units_of(script, owner.symbol))


def alone(script: Script, unit: ProbeUnit) -> bool:
    """Whether the function of *unit* is the only one of its program, and is called from one place."""
    units = _units_of(script, unit.part_of or unit.symbol) if unit.calls else []
    return len(units) == 1 and len(set(unit.calls)) == len(unit.calls)


def _units_of(script: Script, owner: str) -> list[ProbeUnit]:
    return [unit for unit in script.checked.units if unit.calls and owner in (unit.symbol, unit.part_of)]


def _program(script: Script, units: Sequence[ProbeUnit]) -> None:
    owner, abi = units[0], call_numbers.ABIS[script.kernel.arch]
    b = script.module.function(owner.symbol, ("*ctx",), owner.span, entry=True)
    context = b.unfolded(CONTEXT)
    if owner.raw_tracepoint == ENTER:
        number = b.load(b.offset(context, _NUMBER))
    else:
        number = b.load(b.offset(b.pointer(b.load(context)), abi.number), 32, signed=True)
    ways = _ways(units)
    blocks = {parts: b.block() for parts in ways.values()}
    leave = b.block()
    b.switch(number, [(call, blocks[parts]) for call, parts in ways.items()], leave)
    for parts, block in blocks.items():
        b.start(block)
        _run(script, b, abi, parts, leave)
    b.start(leave)
    b.ret(0)


def _ways(units: Sequence[ProbeUnit]) -> dict[int, tuple[str, ...]]:
    """The functions to call for each system call number, in script order."""
    parts: dict[int, tuple[str, ...]] = {}
    for unit in units:
        for call in unit.calls:
            parts[call] = (*parts.get(call, ()), f"{unit.symbol}{PART}")
    return parts


def _run(script: Script, b: Builder, abi: call_numbers.Abi, parts: Sequence[str], leave: Block) -> None:
    """Call functions, unless the system call is a 32-bit one."""
    mode = b.op("and", _thread_flags(script, b, abi), abi.compat[1])
    b.jump_unless(b.icmp("eq", mode, 0), leave, likely=True)
    for part in parts:
        b.call(part, [CONTEXT])
    b.jump(leave)


def _thread_flags(script: Script, b: Builder, abi: call_numbers.Abi) -> I64:
    """The flags in the current task's ``struct thread_info`` that mark 32-bit system calls."""
    task_struct, thread_info = (script.kernel.struct("struct", name) for name in ("task_struct", "thread_info"))
    member = None if task_struct is None else task_struct.find("thread_info")
    flags = None if thread_info is None else thread_info.find(abi.compat[0])
    if member is None or flags is None:
        raise InternalError("no thread_info, though system calls are traced by raw tracepoints")
    task = b.pointer(b.helper(helpers.GET_CURRENT_TASK_BTF))
    return b.load(b.offset(task, member.offset + flags.offset), 8 * flags.type.size)


_SYMBOL = "complete_events"


def return_service(script: Script) -> ProgramSpec:
    """The program of a script whose events wait for the return of system calls."""
    target = Target(f"{RAWTRACEPOINT}:{EXIT}", 0, RawTracepointTarget(EXIT, "vmlinux"))
    return service_program(script, _SYMBOL, target, 0, lambda e: CallReturns(e)._complete())


class CallReturns(Part):
    """Completes events at the return of system calls."""

    def _complete(self) -> None:
        waiting = self.b.offset(global_pointer(SHARED), self.script.layout.place_waiting())
        self.b.jump_unless(self.b.truth(self.b.load(waiting)), self.e.exit, likely=False)
        task = self.b.helper(helpers.GET_CURRENT_TASK)
        for number, (map_, function) in enumerate(self.script.returning):
            self.b.store(self.b.add(task, number), self.e.cell)
            value = self.b.helper(helpers.MAP_LOOKUP_ELEM, global_pointer(map_), self.e.cell)
            with self.b.unless(self.b.is_null(value)):
                self.b.call(function, [global_pointer(map_), self.e.cell, value])
                self.b.fetch("add", waiting, -1)
