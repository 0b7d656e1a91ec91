"""The table of kernel features, and which of them this kernel has: it is tried, and its version is never looked at.

:func:`has` answers by name; :data:`FEATURES` is the table, of requests to the kernel that show whether it has a
feature. An answer costs some system calls once for each boot of each kernel: it is cached under the user's cache
directory (see :mod:`pytrace.runtime.machine.fingerprints`).
"""

from __future__ import annotations

import errno
import os
import struct
import sys
from collections.abc import Callable
from contextlib import ExitStack

import msgspec

from pytrace.base import kernel_files
from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import MapType
from pytrace.runtime.machine import bpf, fingerprints, libbpf, perf, privileges, syscalls
from pytrace.runtime.machine.bpf import AttachType, ProgramType
from pytrace.runtime.machine.fingerprints import TRACEFS
from pytrace.runtime.machine.syscalls import Memory

_RETURN_ZERO = struct.pack("=BBhiBBhi", 0xB7, 0, 0, 0, 0x95, 0, 0, 0)
"""``r0 = 0; exit``."""

_FETCH_AND_ADD = struct.pack("=BBhiBBhiBBhi", 0xB7, 1, 0, 0, 0x7B, 0x1A, -8, 0, 0xDB, 0x1A, -8, 1) + _RETURN_ZERO
"""``r1 = 0; *(u64 *)(r10 - 8) = r1; r1 = atomic_fetch_add((u64 *)(r10 - 8), r1)``, and the above."""

_STACK_INTO_UNSET = struct.pack(
    "=BBhiBBhiBBhiBBhiBBhi", 0xBF, 0xA2, 0, 0, 0x07, 2, 0, -16, 0xB7, 3, 0, 16, 0xB7, 4, 0, 0, 0x85, 0, 0, 67
) + _RETURN_ZERO  # fmt: skip
"""``bpf_get_stack(ctx, r10 - 16, 16, 0)``."""

_PATH_CALL = struct.pack("=BBhi", 0x85, 0, 0, 147) + _RETURN_ZERO
"""``bpf_d_path()``, without arguments."""

_INTEGER_BTF = struct.pack("=HBBIIIII", 0xEB9F, 1, 0, 24, 0, 16, 16, 5) + struct.pack("=IIII", 1, 1 << 24, 4, 32)
"""Type information with one type, ``int``: header, type, and (added below) the names."""
_INTEGER_BTF += b"\0int\0"


# ---------------------------------------------------------------------------------------------- requests


def file_exists(*paths: str) -> Callable[[], bool]:
    """A probe for a feature that shows as one of these files."""
    return lambda: any(os.path.exists(path) for path in paths)


def tried(request: Callable[[ExitStack], bool]) -> Callable[[], bool]:
    """A probe that is the result of *request*, and False when the kernel refuses it for other reasons than rights."""

    def probe() -> bool:
        with ExitStack() as stack:
            try:
                return request(stack)
            except PermissionError:
                raise
            except OSError:
                return False

    return probe


def _error(request: Callable[[ExitStack], object]) -> int:
    """The error number of a request that cannot succeed: it tells how far the kernel read the request."""
    with ExitStack() as stack:
        try:
            request(stack)
        except PermissionError:
            raise
        except OSError as error:
            return error.errno or 0
    return 0


def owned(stack: ExitStack, descriptor: int) -> int:
    """*descriptor*, which *stack* closes."""
    stack.callback(os.close, descriptor)
    return descriptor


def _btf_id(name: str, attach_type: AttachType) -> int:
    with libbpf.Messages():
        type_id: int = libbpf.library().libbpf_find_vmlinux_btf_id(name.encode(errors="surrogateescape"), attach_type)
    return type_id


# ---------------------------------------------------------------------------------------------- calls


_KERNEL_FUNCTION = 2
"""``BPF_PSEUDO_KFUNC_CALL`` of include/uapi/linux/bpf.h."""


def _call_log(program_type: ProgramType, number: int, source: int = 0) -> str | None:
    """The verifier's log of a program with one call, without arguments; None when the kernel writes no log.

    *source* is the source register of the call: 0 for a helper, :data:`_KERNEL_FUNCTION` for a function by its BTF id.

    Raises:
        PermissionError: this user may not load programs.
    """
    log = Memory(4096)
    attach_type, attach_btf_id = AttachType.NONE, 0
    if program_type is ProgramType.TRACING:
        attach_type = AttachType.TRACE_RAW_TP
        try:
            attach_btf_id = _btf_id("sys_enter", attach_type)
        except OSError:  # a kernel that shows no BTF has no such programs
            return None
    code = struct.pack("=BBhiBBhi", 0x85, source << 4, 0, number, 0x95, 0, 0, 0)
    try:
        os.close(bpf.prog_load(program_type, code, attach_type=attach_type, attach_btf_id=attach_btf_id, log=log))
    except OSError as error:
        # Without rights there is no log; a verifier that refuses the arguments says so in it.
        if not log.text():
            if error.errno == errno.EPERM:
                raise
            return None
    return log.text()


def helper(number: int, program_type: ProgramType) -> Callable[[], bool]:
    """A probe for a helper that programs of a type may call."""

    def probe() -> bool:
        text = _call_log(program_type, number)
        words = ("invalid func ", "unknown func ", "cannot use helper")
        return text is not None and not any(word in text for word in words)

    return probe


def kernel_function(
    program_type: ProgramType, name: str = "bpf_task_from_pid", refusal: str = "not a scalar"
) -> Callable[[], bool]:
    """A probe for programs of a type that may call a function of the kernel (by default one of general use).

    *refusal* is in the verifier's log when only the argument, the context, is not accepted.
    """

    def probe() -> bool:
        from pytrace.runtime.binaries import btf_types, kernel_types  # few scripts call kernel functions

        try:
            types = kernel_types.KernelTypes(kernel_types.SYSTEM_BTF)
            number = types.vmlinux.btf.find(name, btf_types.Kind.FUNC)
        except (OSError, TraceError):  # missing, empty or damaged: the program that calls would be refused
            return False
        return bool(number) and refusal in (_call_log(program_type, number, _KERNEL_FUNCTION) or "")

    return probe


# ---------------------------------------------------------------------------------------------- links


def _link_error(attach: Callable[[int], int], attach_type: AttachType) -> int:
    """The error number of an attachment of a kprobe program."""

    def request(stack: ExitStack) -> int:
        program = owned(stack, bpf.prog_load(ProgramType.KPROBE, _RETURN_ZERO, attach_type=attach_type))
        return owned(stack, attach(program))

    return _error(request)


def kprobe_multi(*, session: bool) -> Callable[[], bool]:
    """A probe for links to many kernel functions; *session*: for those of entry and return."""
    attach_type = AttachType.TRACE_KPROBE_SESSION if session else AttachType.TRACE_KPROBE_MULTI
    symbols = ["pytrace_no_such_function"]

    def attach(program: int) -> int:
        return bpf.link_kprobe_multi(program, symbols=symbols, session=session)

    # A kernel with the feature looks the name up (ESRCH, older ENOENT); others know no such link.
    return lambda: _link_error(attach, attach_type) in {errno.ESRCH, errno.ENOENT}


def uprobe_multi(*, session: bool) -> Callable[[], bool]:
    """A probe for links to many user functions; *session*: for those of entry and return."""
    attach_type = AttachType.TRACE_UPROBE_SESSION if session else AttachType.TRACE_UPROBE_MULTI

    def attach(pid: int) -> Callable[[int], int]:
        return lambda program: bpf.link_uprobe_multi(program, "/", [0], pid=pid, session=session)

    # A directory is no file to probe (EBADF). Kernels before 46ba0e49b642 filter by thread and not by process;
    # only later ones look at the pid first, and refuse an impossible one with EINVAL.
    return lambda: (
        _link_error(attach(0), attach_type) == errno.EBADF
        and _link_error(attach(0xFFFFFFFF), attach_type) == errno.EINVAL
    )


def perf_link() -> bool:
    """Links to perf events."""

    def request(stack: ExitStack) -> int:
        program = owned(stack, bpf.prog_load(ProgramType.TRACEPOINT, _RETURN_ZERO))
        return owned(stack, bpf.link_perf_event(program, 0xFFFFFFFF, 0))

    return _error(request) == errno.EBADF


@tried
def link_missed(stack: ExitStack) -> bool:
    """Missed hits in the information about a link."""
    program = owned(stack, bpf.prog_load(ProgramType.PERF_EVENT, _RETURN_ZERO))
    attr = perf.EventAttr(perf.EventType.SOFTWARE, perf.SOFTWARE_DUMMY, period=1)
    event = owned(stack, perf.open_event(attr, pid=os.getpid()))
    link = owned(stack, bpf.link_perf_event(program, event, 0))
    return bpf.info_size(link, 64) >= bpf.LINK_INFO_WITH_MISSES


def _load_tracing(stack: ExitStack, name: str, attach_type: AttachType) -> int:
    number = _btf_id(name, attach_type)
    return owned(
        stack, bpf.prog_load(ProgramType.TRACING, _RETURN_ZERO, attach_type=attach_type, attach_btf_id=number)
    )


def tracing(name: str, attach_type: AttachType, *, attach: bool) -> Callable[[], bool]:
    """A probe for programs of type tracing at *name*, which are loaded and, if wanted, attached."""

    def request(stack: ExitStack) -> bool:
        try:
            program = _load_tracing(stack, name, attach_type)
            if attach:
                # Loading alone proves nothing: trampolines are only made when a program attaches.
                owned(stack, bpf.raw_tracepoint_open(program))
        except PermissionError as error:
            if error.errno == errno.EACCES:
                return False
            raise
        return True

    return tried(request)


def accepted(code: bytes, attach_type: AttachType, name: str, *refusals: str) -> Callable[[], bool]:
    """A probe for a tracing program that the verifier accepts, or does not refuse with one of these words."""

    def request(stack: ExitStack) -> bool:
        number, log = _btf_id(name, attach_type), Memory(4096)
        try:
            program = bpf.prog_load(
                ProgramType.TRACING, code, attach_type=attach_type, attach_btf_id=number, log=log
            )
        except OSError as error:
            if error.errno == errno.EPERM:
                raise
            return bool(refusals) and not any(word in log.text() for word in refusals)
        return owned(stack, program) >= 0

    return tried(request)


def iterator(name: str) -> Callable[[], bool]:
    """A probe for an iterator over kernel objects."""
    return tracing(name, AttachType.TRACE_ITER, attach=False)


@tried
def tracing_cookie(stack: ExitStack) -> bool:
    """Cookies of links of tracing programs."""
    program = _load_tracing(stack, "sys_enter", AttachType.TRACE_RAW_TP)
    return owned(stack, bpf.link_tracing(program, AttachType.TRACE_RAW_TP, 1)) >= 0


# ---------------------------------------------------------------------------------------------- maps and others


def _map_of_type(map_type: MapType, key: int, value: int, entries: int) -> Callable[[], bool]:
    """A probe for a type of map, which is created."""
    return tried(lambda stack: owned(stack, bpf.map_create(map_type, key, value, entries)) >= 0)


def batches() -> bool:
    """Reading maps in batches."""
    with ExitStack() as stack:
        descriptor = owned(stack, bpf.map_create(MapType.HASH, 8, 8, 1))
        try:
            bpf.MapBatch(descriptor, 8, 8, 1).read()
        except OSError as error:
            if error.errno not in bpf.NO_BATCH:
                raise
            return False
    return True


@tried
def module_btf(stack: ExitStack) -> bool:
    """Kernels with BTF of modules tell the name of a BTF object (``struct bpf_btf_info`` has one)."""
    return bpf.info_size(owned(stack, bpf.btf_load(_INTEGER_BTF)), 64) >= 32


@tried
def _hardware_events(stack: ExitStack) -> bool:
    """Some virtual machines have the event for cycles and never count."""
    event = owned(stack, perf.open_event(perf.EventAttr(perf.EventType.HARDWARE, 0), pid=0))
    sum(range(10000))
    return int.from_bytes(os.read(event, 8), sys.byteorder) > 0


@tried
def _hardware_breakpoint(stack: ExitStack) -> bool:
    """Breakpoints on memory."""
    return owned(stack, perf.open_event(perf.breakpoint_attr(Memory(8).address, 8, "w"), pid=0)) >= 0


@tried
def atomic_fetch(stack: ExitStack) -> bool:
    """Atomic operations that return the old value."""
    return owned(stack, bpf.prog_load(ProgramType.SOCKET_FILTER, _FETCH_AND_ADD)) >= 0


@tried
def large_programs(stack: ExitStack) -> bool:
    """More than 4096 instructions, the limit of kernels before 5.2."""
    code = _RETURN_ZERO[:8] * 5000 + _RETURN_ZERO[8:]
    return owned(stack, bpf.prog_load(ProgramType.SOCKET_FILTER, code)) >= 0


def nop5_uprobes() -> bool:
    """The call that replaces a nop makes the system call ``uprobe``, which elsewhere is an error.

    ENXIO of kernels that replace nops of 5 bytes, EPROTO of later ones, which take 10 bytes to step over the red zone.
    """
    if os.uname().machine != "x86_64":
        return False
    try:
        syscalls.call("uprobe")
    except OSError as error:
        return error.errno == errno.ENXIO
    return False


sleepable_uprobe = tried(
    lambda stack: owned(stack, bpf.prog_load(ProgramType.KPROBE, _RETURN_ZERO, flags=bpf.SLEEPABLE)) >= 0
)


def sleepable_function(name: str) -> bool:
    """Whether programs of a function of the kernel proper may sleep: it is on the list of those that may fail.

    Kernels of 6.0 and later only: earlier ones did not keep programs that sleep from interrupting themselves, or
    refuse some kinds of maps.
    """

    def request(stack: ExitStack) -> bool:
        number = _btf_id(name, AttachType.TRACE_FENTRY)
        return owned(stack, bpf.prog_load(
            ProgramType.TRACING, _RETURN_ZERO, attach_type=AttachType.TRACE_FENTRY, attach_btf_id=number,
            flags=bpf.SLEEPABLE,
        )) >= 0  # fmt: skip

    return sleepable_uprobe() and tried(request)()


def _sleepable_calls() -> bool:
    """Programs of system call functions that may sleep."""
    return any(sleepable_function(f"{prefix}sys_getpgid") for prefix in ("__x64_", "__arm64_"))


raw_tracepoint = tracing("sys_enter", AttachType.TRACE_RAW_TP, attach=False)


def raw_syscalls() -> bool:
    """Raw tracepoints with typed arguments, whose programs know the current task by type."""
    return raw_tracepoint() and helper(158, ProgramType.TRACING)()


_TASK_WORKS = [
    kernel_function(ProgramType.TRACING, name, "task_struct")
    for name in ("bpf_task_work_schedule_resume", "bpf_task_work_schedule_resume_impl")
]


def task_work() -> bool:
    """Whether programs may have work done when a system call returns; the function was renamed in 7.0."""
    return any(probe() for probe in _TASK_WORKS)


# ---------------------------------------------------------------------------------------------------------------- table


_FILE = "features.json"


def _shows_types() -> bool:
    try:
        return os.stat("/sys/kernel/btf/vmlinux").st_size > 0
    except OSError:
        return False


class Feature(msgspec.Struct, frozen=True):
    """A row of the table: *probe* tries the feature. A PermissionError from it means that this user cannot find out."""

    name: str
    doc: str
    probe: Callable[[], bool]


_PMU = "/sys/bus/event_source/devices"
_K, _T, _R, _B = ProgramType.KPROBE, ProgramType.TRACEPOINT, ProgramType.RAW_TRACEPOINT, ProgramType.TRACING

_ROWS = (
    Feature("kprobe", "probes on kernel functions",
            file_exists(f"{_PMU}/kprobe", *(f"{path}/kprobe_events" for path in TRACEFS))),
    Feature("perf_kprobe", "kernel probes through perf events", file_exists(f"{_PMU}/kprobe")),
    Feature("kprobe_multi", "many kernel functions with one link", kprobe_multi(session=False)),
    Feature("kprobe_session", "entry and return of a function by one program", kprobe_multi(session=True)),
    Feature("uprobe", "probes on user functions",
            file_exists(f"{_PMU}/uprobe", *(f"{path}/uprobe_events" for path in TRACEFS))),
    Feature("perf_uprobe", "user probes through perf events", file_exists(f"{_PMU}/uprobe")),
    Feature("uprobe_multi", "many user functions with one link", uprobe_multi(session=False)),
    Feature("uprobe_session", "entry and return of a user function by one program", uprobe_multi(session=True)),
    Feature("sleepable_uprobe", "programs of user probes that wait for memory", sleepable_uprobe),
    Feature("sleepable_fentry", "programs of system call functions that wait for memory", _sleepable_calls),
    Feature("task_memory", "user memory of tasks in iterators",
            kernel_function(ProgramType.TRACING, "bpf_copy_from_user_task_str", "must be sleepable")),
    Feature("task_work", "work of programs when a system call returns", task_work),
    Feature("call_return", "strings that are read when a system call returns", raw_tracepoint),
    Feature("nop5_uprobes", "5-byte nops under user probes become calls, over the red zone", nop5_uprobes),
    Feature("semaphores", "USDT semaphores raised by the kernel", file_exists(f"{_PMU}/uprobe/format/ref_ctr_offset")),
    Feature("fentry", "BPF trampolines on kernel functions",
            tracing("bpf_fentry_test1", AttachType.TRACE_FENTRY, attach=True)),
    Feature("rawtracepoint", "raw tracepoints with typed arguments", raw_tracepoint),
    Feature("raw_syscalls", "system call tracepoints by way of the raw ones", raw_syscalls),
    Feature("tracepoint", "kernel tracepoints", file_exists(*(f"{r}/events" for r in TRACEFS))),
    Feature("iter", "iterators over kernel objects", iterator("task")),
    Feature("vma_iterator", "iterator over memory areas of processes", iterator("task_vma")),
    Feature("perf_link", "links to perf events, with cookies", perf_link),
    Feature("link_missed", "missed hits of kernel probes in link information", link_missed),
    Feature("tracing_cookie", "cookies of raw tracepoint and trampoline links", tracing_cookie),
    Feature("perf_hardware", "processor events", _hardware_events),
    Feature("watchpoint", "hardware breakpoints", _hardware_breakpoint),
    Feature("btf", "type information of the kernel", _shows_types),
    Feature("module_btf", "type information of modules", module_btf),
    Feature("ringbuf", "BPF ring buffer", _map_of_type(MapType.RINGBUF, 0, 0, os.sysconf("SC_PAGE_SIZE"))),
    Feature("batch_ops", "map reading in batches", batches),
    Feature("atomic_fetch", "atomic operations that return the old value", atomic_fetch),
    Feature("large_programs", "a million instructions", large_programs),
    Feature("bpf_loop", "loops with a run-time bound", helper(181, _K)),
    Feature("for_each_map_elem", "loops over maps", helper(164, _K)),
    Feature("lookup_percpu_elem", "reading other CPUs' map values", helper(195, _K)),
    Feature("get_func_ip", "address of the traced function", helper(173, _K)),
    Feature("get_attach_cookie", "value given at attach time", helper(174, _K)),
    Feature("tracing_get_attach_cookie", "value given at attach time, in trampolines", helper(174, _B)),
    Feature("tai_clock", "international atomic time", helper(208, _K)),
    Feature("boot_clock", "time that counts through suspend", helper(125, _K)),
    Feature("ns_pid", "process ids in a namespace", helper(120, _K)),
    Feature("probe_read_kernel", "separate reads of kernel and user memory", helper(113, _K)),
    Feature("current_task_btf", "typed current task", helper(158, _T)),
    Feature("snprintf", "formatting in the kernel", helper(165, _K)),
    Feature("strncmp", "string comparison by helper", helper(182, _K)),
    Feature("jiffies64", "timer ticks", helper(118, _K)),
    Feature("get_stack", "stacks copied by helper", helper(67, _K)),
    Feature("get_task_stack", "stacks of other tasks", helper(141, _T)),
    Feature("send_signal", "signals from programs", helper(109, _K)),
    Feature("send_signal_thread", "signals to threads from programs", helper(117, _K)),
    Feature("override_return", "replacing the result of a function", helper(58, _K)),
    Feature("probe_write_user", "writing to user memory", helper(36, _K)),
    Feature("d_path", "paths of files", helper(147, _B)),
    Feature("iterator_paths", "paths of files in iterators",
            accepted(_PATH_CALL, AttachType.TRACE_ITER, "task_file", "unknown func", "not allowed in probe")),
    Feature("stack_to_unset", "stacks copied to memory that was not set",
            accepted(_STACK_INTO_UNSET, AttachType.TRACE_RAW_TP, "sys_enter")),
    Feature("socket_cookie", "cookies of sockets", helper(46, _B)),
    Feature("skb_output", "packets to user space", helper(111, _B)),
    Feature("kfunc_kprobe", "kernel functions in kprobe and uprobe programs", kernel_function(_K)),
    Feature("kfunc_tracepoint", "kernel functions in tracepoint programs", kernel_function(_T)),
    Feature("kfunc_perf_event", "kernel functions in perf event programs", kernel_function(ProgramType.PERF_EVENT)),
    Feature("kfunc_raw_tracepoint", "kernel functions in untyped raw tracepoint programs", kernel_function(_R)),
    Feature("kfunc_tracing", "kernel functions in typed tracing programs", kernel_function(_B)),
    Feature("get_branch_snapshot", "branch records", helper(176, _K)),
)  # fmt: skip


def _index() -> dict[str, Feature]:
    table = {row.name: row for row in _ROWS}
    if len(table) != len(_ROWS):
        raise ValueError("two features have the same name")
    return table


FEATURES = _index()

_answers: dict[str, bool] = {}
_answers_read = False


def has(name: str) -> bool:
    """Return whether the kernel has the feature *name*.

    False, and not cached, where this user lacks the rights to find out.

    Raises:
        KeyError: there is no such feature.
    """
    row = FEATURES[name]
    _read_stored()
    available = _answers.get(name)
    if available is None:
        try:
            available = row.probe()
        except PermissionError:
            return False
        _answers[name] = available
        _store()
    return available


def forget() -> None:
    """Drop the answers, in memory only (for tests)."""
    global _answers_read  # noqa: PLW0603
    _answers.clear()
    _answers_read = False


def _validity() -> str:
    """Answers hold for one boot of one kernel, and for processes with the same rights."""
    boot = kernel_files.read_text("/proc/sys/kernel/random/boot_id").strip()
    rights = f"{os.geteuid()} {privileges.capability_mask():x} {bpf.user_namespace()} {bpf.token_path()}"
    # A container may lack the file that the machine has, and share its cache.
    return f"{boot} {os.uname().version} {rights} {_shows_types()}"


class _StoredAnswers(msgspec.Struct):
    """Answers in the cache, and the :func:`_key` that they hold for."""

    key: str
    features: dict[str, bool]


def _read_stored() -> None:
    global _answers_read  # noqa: PLW0603
    if _answers_read:
        return
    _answers_read = True
    data = fingerprints.read_kept(_FILE)
    if data is None:
        return
    try:
        kept = msgspec.json.decode(data, type=_StoredAnswers)
    except msgspec.DecodeError:
        return
    if kept.key == _validity():
        _answers.update({name: available for name, available in kept.features.items() if name in FEATURES})


def _store() -> None:
    fingerprints.keep(_FILE, msgspec.json.encode(_StoredAnswers(_validity(), _answers)))
