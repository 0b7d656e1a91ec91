"""Which memory image of its process a user address belongs to: the program, and the code that it has mapped.

``execve`` replaces the program of a process, and ``munmap``, ``mremap`` and ``mmap`` with ``MAP_FIXED`` may remove
code, after which other code may come to the same addresses. So a stack or a symbol has more than its process: a process
whose code was replaced or removed since tracing began has an *image*, a number that is never given twice, in place of
its process id. Numbers of images are greater than any process id (:data:`FIRST_IMAGE`). Within an image no address
belongs to two functions that were mapped from files; a process that neither executes another program nor unmaps code
keeps its process id, and so its keys.

The programs here run at the tracepoint of ``execve``, and at the kernel's functions of system calls, or where these
cannot be traced at the raw tracepoints of all calls. That a call has unmapped code is seen from
``mm_struct.exec_vm``, the pages of executable mappings, before and after it, so that no arguments have to be
interpreted. Each new image is reported to the tracer through the perf buffers that also have the kernel's records of
mappings, in the order in which everything happened (``runtime.stacks.address_space``).
"""

from __future__ import annotations

from collections.abc import Callable

from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.emit.program import Part, Script
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.values import Number, global_pointer, number_parameter, pointer_parameter
from pytrace.codegen.walkers.service_programs import CATEGORY, EXEC, FREE, is_raw, service_program, thread_of
from pytrace.core import system_calls
from pytrace.core.manifest import ImageMaps, MapType, ProgramSpec, Target
from pytrace.core.probe_kinds import RAW_TRACEPOINT, TracepointTarget, TypedFunctionTarget
from pytrace.core.stack_formats import FIRST_IMAGE, REPORT_SIZE, ImageChange, ImageReport
from pytrace.core.types import Stack, StackMode

_IMAGES, CALLS, _SERIAL, REPORTS = "images", "unmapping_calls", "image_serial", "image_reports"
ENTRIES = 32768
"""Processes with images: those that have executed a program, or unmapped code, and live."""
_CALLS = 4096
"""Threads that are in a system call which may unmap code."""
_CURRENT_CPU = 0xFFFFFFFF
_RAW_CALLS = "raw_syscalls"
_FIXED, _EXEC, _WRITE = 0x10, 4, 2
"""``MAP_FIXED``, ``PROT_EXEC``, ``PROT_WRITE``."""
_32_BIT = {"x86_64": (91, 163, 192)}
"""``munmap``, ``mremap`` and ``mmap2`` of 32-bit programs; with 64 bits these numbers are calls that unmap nothing."""
_PAGES, _CALL_TIME, _FIRST, _SECOND, _THIRD, _CALL_KIND = range(0, 48, 8)
"""What is kept of a call: pages of code and time at its entry, its arguments, and what it does (:class:`Change`)."""
_CALL_SIZE = 48
_RAISE = "new_image"
_MEMBERS = {"task_struct": ("mm",), "mm_struct": ("exec_vm",)}


MAPS = ImageMaps(_IMAGES, REPORTS)
"""The maps of a script that uses images, for the manifest."""


def services(script: Script) -> tuple[ProgramSpec, ...]:
    """The programs that give images to processes, for a script that uses them."""
    thread = thread_of(script, FREE, "p")

    def forget(e: Emitter) -> None:
        e.b.store(thread(e), e.cell, 32)
        e.b.helper(helpers.MAP_DELETE_ELEM, global_pointer(_IMAGES), e.cell)

    programs = [
        _service(script, CATEGORY, EXEC, lambda e: MemoryImages(e)._execute()),
        _service(script, CATEGORY, FREE, forget),
    ]
    if _has_functions(script):
        for name, change in _FUNCTIONS.items():
            programs += _of_function(script, name, change)
    else:
        programs += [
            _service(script, _RAW_CALLS, "sys_enter", lambda e: MemoryImages(e)._enter()),
            _service(script, _RAW_CALLS, "sys_exit", lambda e: MemoryImages(e)._exit()),
        ]
    return tuple(programs)


_FUNCTIONS = {"munmap": ImageChange.UNMAP, "mremap": ImageChange.MOVE, "mmap": ImageChange.MAP}


def _has_functions(script: Script) -> bool:
    """Whether the kernel's functions of the calls can be traced, which costs other system calls nothing.

    Their 32-bit forms are not: what these unmap is known once other code is there, and has no name then.
    """
    kernel, options = script.kernel, script.options
    if kernel.arch != "x86_64" or "fentry" in options.no_features or not kernel.feature("fentry"):
        return False
    prototypes = [kernel.function(f"__x64_sys_{name}") for name in _FUNCTIONS]
    return all(prototype is not None and len(prototype.parameters) == 1 for prototype in prototypes)


def _of_function(script: Script, name: str, change: ImageChange) -> list[ProgramSpec]:
    """The programs at the beginning and the end of one call."""
    function = f"__x64_sys_{name}"
    return [
        service_program(
            script, f"image_{kind}_{name}", Target(f"{kind}:vmlinux:{function}", 0,
            TypedFunctionTarget(function, "vmlinux")), 0, write,
        )
        for kind, write in (
            ("fentry", lambda e: MemoryImages(e)._note(change)),
            ("fexit", lambda e: MemoryImages(e)._compare()),
        )
    ]  # fmt: skip


def _service(script: Script, category: str, event: str, write: Callable[[Emitter], None]) -> ProgramSpec:
    target = Target(f"tracepoint:{category}:{event}", 0, TracepointTarget(category, event))
    return service_program(script, f"image_{event}", target, 1, write, multi=RAW_TRACEPOINT)


def _declare(script: Script) -> None:
    module = script.module
    module.map(_IMAGES, {"type": MapType.HASH, "key_size": 4, "value_size": 8, "max_entries": ENTRIES})
    module.map(CALLS, {"type": MapType.HASH, "key_size": 8, "value_size": _CALL_SIZE, "max_entries": _CALLS})
    module.map(_SERIAL, {"type": MapType.ARRAY, "key_size": 4, "value_size": 8, "max_entries": 1})
    cpus = script.kernel.possible_cpus
    module.map(REPORTS, {"type": MapType.PERF_EVENT_ARRAY, "key_size": 4, "value_size": 4, "max_entries": cpus})
    _raise_function(script)


def _raise_function(script: Script) -> None:
    """``new_image(ctx, report, tgid, pid)``: give the process the next image, and report it.

    *report* has what has happened; image and process are added to it.
    """
    b = script.module.function(_RAISE, ("*ctx", "*report", "tgid", "pid"), script.checked.units[0].span)
    report, pid = pointer_parameter("report"), number_parameter("pid")
    cell, value = b.alloca(8), b.alloca(8)
    done, none = b.block(), b.block()
    b.store(0, cell)
    serial = b.helper(helpers.MAP_LOOKUP_ELEM, global_pointer(_SERIAL), cell)
    b.jump_if(b.is_null(serial), done)
    image = b.op("and", b.add(b.fetch("add", serial, 1), FIRST_IMAGE), 0xFFFFFFFF)
    b.store(number_parameter("tgid"), cell, 32)
    b.store(image, value, 32)
    b.store(pid, b.offset(value, 4), 32)
    failed = b.helper(helpers.MAP_UPDATE_ELEM, global_pointer(_IMAGES), cell, value, 0)
    b.store(image, b.offset(report, ImageReport.IMAGE), 32)
    b.store(pid, b.offset(report, ImageReport.PROCESS), 32)
    with b.when(b.truth(failed), likely=False):
        # There is no room: the process keeps its number, and the tracer does not trust it any more.
        b.store(0, b.offset(report, ImageReport.IMAGE), 32)
    b.helper(
        helpers.PERF_EVENT_OUTPUT, pointer_parameter("ctx"), global_pointer(REPORTS), _CURRENT_CPU, report, REPORT_SIZE
    )
    b.jump(none)
    b.start(done)
    b.jump(none)
    b.start(none)
    b.ret(0)


def _calls(arch: str) -> dict[int, ImageChange]:
    numbers = system_calls.numbers(arch)
    calls = {
        numbers["munmap"]: ImageChange.UNMAP, numbers["mremap"]: ImageChange.MOVE, numbers["mmap"]: ImageChange.MAP,
    }  # fmt: skip
    return {**dict.fromkeys(_32_BIT.get(arch, ()), ImageChange.OTHER), **calls}


class MemoryImages(Part):
    """The image of a process: its number of executions and changes of its code."""

    def process(self) -> Number:
        """The current process as stacks and symbols have it: its image where it has one, else its process id."""
        pid = self.e.tasks.process_ids("tracer")[0]
        if not self._usable():
            return pid
        script, b, word = self.script, self.b, self.b.register()
        if not script.images:
            script.images = True
            _declare(script)
        b.store(pid, word)
        b.store(self.e.tasks.process_ids("init")[0], self.e.cell, 32)
        found = b.helper(helpers.MAP_LOOKUP_ELEM, global_pointer(_IMAGES), self.e.cell)
        with b.unless(b.is_null(found)):
            b.store(b.load(found, 32), word)
        return b.load(word)

    def of_stack(self, type_: Stack) -> Number:
        """The process in a stack of *type_*, as its frames are shown."""
        if not type_.user:
            return 0
        return (
            self.e.tasks.process_ids("tracer")[0]
            if type_.mode in (StackMode.RAW, StackMode.BUILD_ID)
            else self.process()
        )

    def _usable(self) -> bool:
        """Whether this kernel has what the programs need; older ones and files compiled ahead have process ids only."""
        script = self.script
        if script.kernel.arch not in system_calls.ABIS or not script.kernel.feature("atomic_fetch"):
            return False
        if not script.kernel.feature("raw_syscalls") or not self.e.tasks.has_members(_MEMBERS):
            return False
        return all(is_raw(script, event) for event in (EXEC, FREE, "sys_enter", "sys_exit"))

    def _raise(self, words: dict[int, Number]) -> None:
        """Give the current process a new image; *words* of the report are 64 bits by offset."""
        b = self.b
        pid = self.e.tasks.process_ids("tracer")[0]
        # A process outside of the tracer's pid namespace has no number there.
        b.jump_if(b.icmp("eq", pid, 0), self.e.exit, likely=False)
        report = b.alloca(REPORT_SIZE)
        for offset in range(0, REPORT_SIZE, 8):
            b.store(words.get(offset, 0), b.offset(report, offset))
        b.call(_RAISE, [self.e.context, report], [self.e.tasks.process_ids("init")[0], pid])

    def _execute(self) -> None:
        """Another program begins: the tracepoint comes when the registers of the old one are gone."""
        self._raise({ImageReport.CHANGE: ImageChange.EXEC, ImageReport.BEGUN: self.b.helper(helpers.KTIME_GET_NS)})

    def _code_pages(self) -> Number:
        """``current->mm->exec_vm``."""
        tasks = self.e.tasks
        return tasks.read_word(self.b.add(tasks.pointer_member("mm"), tasks.kernel_field("mm_struct", "exec_vm")))

    def _enter(self) -> None:
        """The raw tracepoint of all system calls: note what those that may unmap code find."""
        b, calls = self.b, _calls(self.script.kernel.arch)
        blocks = {change: b.block() for change in dict.fromkeys(calls.values())}
        b.switch(
            b.load(b.offset(self.e.context, 8)),
            [(number, blocks[change]) for number, change in calls.items()],
            self.e.exit,
        )
        for change, block in blocks.items():
            b.start(block)
            self._note(change)
            b.jump(self.e.exit)
        b.start(b.block())

    def _note(self, change: ImageChange) -> None:
        """Note what a call finds; the context begins with its registers."""
        b, abi = self.b, system_calls.ABIS[self.script.kernel.arch]
        registers = b.pointer(b.load(self.e.context))
        if change is ImageChange.MAP:
            flags = b.load(b.offset(registers, abi.arguments[3]))
            b.jump_unless(b.truth(b.op("and", flags, _FIXED)), self.e.exit)
        value = b.alloca(_CALL_SIZE)
        b.store(self._code_pages(), b.offset(value, _PAGES))
        b.store(b.helper(helpers.KTIME_GET_NS), b.offset(value, _CALL_TIME))
        for place, argument in ((_FIRST, 0), (_SECOND, 1), (_THIRD, 2)):
            b.store(b.load(b.offset(registers, abi.arguments[argument])), b.offset(value, place))
        b.store(int(change), b.offset(value, _CALL_KIND))
        b.store(b.helper(helpers.GET_CURRENT_PID_TGID), self.e.cell)
        b.helper(helpers.MAP_UPDATE_ELEM, global_pointer(CALLS), self.e.cell, value, 0)

    def _exit(self) -> None:
        """The raw tracepoint of the returns of all system calls."""
        b, calls, abi = self.b, _calls(self.script.kernel.arch), system_calls.ABIS[self.script.kernel.arch]
        number = b.load(b.offset(b.pointer(b.load(self.e.context)), abi.number), 32, signed=True)
        of_interest = b.block()
        b.switch(number, [(call, of_interest) for call in calls], self.e.exit)
        b.start(of_interest)
        self._compare()

    def _compare(self) -> None:
        """Give the process a new image if the call has unmapped or moved code; its result is the second in the
        context.
        """
        b = self.b
        b.store(b.helper(helpers.GET_CURRENT_PID_TGID), self.e.cell)
        found = b.helper(helpers.MAP_LOOKUP_ELEM, global_pointer(CALLS), self.e.cell)
        b.jump_if(b.is_null(found), self.e.exit)
        before, begun, first, second, third, kind = (
            b.load(b.offset(found, place)) for place in (_PAGES, _CALL_TIME, _FIRST, _SECOND, _THIRD, _CALL_KIND)
        )
        b.helper(helpers.MAP_DELETE_ELEM, global_pointer(CALLS), self.e.cell)
        result = b.load(b.offset(self.e.context, 8))
        b.jump_if(b.icmp("ugt", result, -4096), self.e.exit)
        now = self._code_pages()
        raised = b.block()
        is_map, is_move = (b.icmp("eq", kind, int(change)) for change in (ImageChange.MAP, ImageChange.MOVE))
        # A mapping of code adds its pages, except for those that it replaces. Writable code is not counted by the
        # kernel.
        code = b.icmp("eq", b.op("and", third, _EXEC | _WRITE), _EXEC)
        pages = b.op("lshr", b.add(second, 4095), 12)
        added = b.select(b.both(is_map, code), pages, 0)
        b.jump_if(b.icmp("ult", now, b.add(before, added)), raised)
        # Moved without a change of its size: it may be code, or not.
        moved = b.both(b.icmp("ne", result, first), b.both(is_move, b.icmp("eq", second, third)))
        resized = b.both(is_move, b.icmp("ne", now, before))
        b.branch(b.either(moved, resized), raised, self.e.exit)
        b.start(raised)
        self._raise({
            ImageReport.CHANGE: kind, ImageReport.BEGUN: begun, ImageReport.START: first, ImageReport.LENGTH: second,
            ImageReport.RESULT: result, ImageReport.NEW_LENGTH: third,
        })  # fmt: skip
