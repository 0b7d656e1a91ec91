"""Feature probes: what this kernel supports, found by trying and never from its version.

:func:`has` answers by name; :data:`FEATURES` is the table. An answer costs some system calls once for each boot of
each kernel: it is cached under the user's cache directory (see :mod:`pytrace.runtime.host.fingerprints`).
"""

from __future__ import annotations

import errno
import os
import struct
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

import msgspec

from pytrace.core.manifest import MapType
from pytrace.runtime.abi import bpf, bpf_maps, perf, privileges, syscalls
from pytrace.runtime.abi.bpf import AttachType, ProgramType
from pytrace.runtime.abi.syscalls import Memory
from pytrace.runtime.host import fingerprints
from pytrace.runtime.host.fingerprints import TRACEFS

if TYPE_CHECKING:
    from collections.abc import Callable

_FILE = "features.json"

_RETURN_ZERO = struct.pack("=BBhiBBhi", 0xB7, 0, 0, 0, 0x95, 0, 0, 0)
"""``r0 = 0; exit``."""


_INTEGER_BTF = struct.pack("=HBBIIIII", 0xEB9F, 1, 0, 24, 0, 16, 16, 5) + struct.pack("=IIII", 1, 1 << 24, 4, 32)
"""Type information with one type, ``int``: header, type, and (added below) the names."""
_INTEGER_BTF += b"\0int\0"


class Feature(msgspec.Struct, frozen=True):
    """One row: *probe* tries it; a PermissionError from there means that this user cannot find out."""

    name: str
    doc: str
    probe: Callable[[], bool]


# ---------------------------------------------------------------------------------------------- ways to try


def _helper(number: int, program_type: ProgramType) -> Callable[[], bool]:
    """Whether programs of a type may call a helper: what the verifier says about a bare call tells."""

    def probe() -> bool:
        log = Memory(4096)
        attach_btf_id = _btf_id("sys_enter", AttachType.TRACE_RAW_TP) if program_type is ProgramType.TRACING else 0
        attach_type = AttachType.TRACE_RAW_TP if program_type is ProgramType.TRACING else AttachType.NONE
        code = struct.pack("=BBhiBBhi", 0x85, 0, 0, number, 0x95, 0, 0, 0)
        try:
            os.close(bpf.prog_load(program_type, code, attach_type=attach_type, attach_btf_id=attach_btf_id, log=log))
        except PermissionError as error:
            # Without rights there is no log; a verifier that refuses the arguments says so in it.
            if not log.text() and error.errno == errno.EPERM:
                raise
        except OSError:
            if not log.text():
                return False
        text = log.text()
        return not any(word in text for word in ("invalid func ", "unknown func ", "cannot use helper"))

    return probe


def _kernel_function(program_type: ProgramType) -> Callable[[], bool]:
    """Whether programs of a type may call ``bpf_task_from_pid``, which stands for kernel functions of general use."""

    def probe() -> bool:
        from pytrace.runtime.btf.kernel import SYSTEM_BTF, KernelTypes
        from pytrace.runtime.btf.reader import Kind

        if not os.path.exists(SYSTEM_BTF):
            return False
        number = KernelTypes(SYSTEM_BTF).vmlinux.btf.find("bpf_task_from_pid", Kind.FUNC)
        log = Memory(4096)
        attach_btf_id = _btf_id("sys_enter", AttachType.TRACE_RAW_TP) if program_type is ProgramType.TRACING else 0
        attach_type = AttachType.TRACE_RAW_TP if program_type is ProgramType.TRACING else AttachType.NONE
        code = struct.pack("=BBhiBBhi", 0x85, PSEUDO_KFUNC_CALL << 4, 0, number, 0x95, 0, 0, 0)
        try:
            os.close(bpf.prog_load(program_type, code, attach_type=attach_type, attach_btf_id=attach_btf_id, log=log))
        except OSError as error:
            if not log.text() and error.errno == errno.EPERM:
                raise
        # An allowed call is refused too, but for its argument, which is the context and no number.
        return bool(number) and "not a scalar" in log.text()

    return probe


PSEUDO_KFUNC_CALL = 2
"""``BPF_PSEUDO_KFUNC_CALL`` of include/uapi/linux/bpf.h."""


def _btf_id(name: str, attach_type: AttachType) -> int:
    from pytrace.runtime.abi import libbpf

    with libbpf.Messages():
        found: int = libbpf.library().libbpf_find_vmlinux_btf_id(name.encode(errors="surrogateescape"), attach_type)
    return found


def _file(*paths: str) -> Callable[[], bool]:
    return lambda: any(os.path.exists(path) for path in paths)


def _link_error(attach: Callable[[int], int], attach_type: AttachType) -> int:
    """The error number of an attachment that cannot work: it tells how far the kernel read the request."""
    with ExitStack() as stack:
        try:
            program = bpf.prog_load(ProgramType.KPROBE, _RETURN_ZERO, attach_type=attach_type)
            stack.callback(os.close, program)
            stack.callback(os.close, attach(program))
        except PermissionError:
            raise
        except OSError as error:
            return error.errno or 0
    return 0


def _kprobe_multi(*, session: bool) -> Callable[[], bool]:
    kind = AttachType.TRACE_KPROBE_SESSION if session else AttachType.TRACE_KPROBE_MULTI
    nobody = "pytrace_no_such_function"

    def attach(program: int) -> int:
        return bpf.link_kprobe_multi(program, symbols=[nobody], session=session)

    # A kernel with the feature looks the name up (ESRCH, older ENOENT); others know no such link.
    return lambda: _link_error(attach, kind) in {errno.ESRCH, errno.ENOENT}


def _uprobe_multi(*, session: bool) -> Callable[[], bool]:
    kind = AttachType.TRACE_UPROBE_SESSION if session else AttachType.TRACE_UPROBE_MULTI

    def attach(pid: int) -> Callable[[int], int]:
        return lambda program: bpf.link_uprobe_multi(program, "/", [0], pid=pid, session=session)

    # A directory is no file to probe (EBADF). Kernels before 46ba0e49b642 filter by thread and not by process;
    # only later ones look at the pid first, and refuse an impossible one with EINVAL.
    return lambda: (
        _link_error(attach(0), kind) == errno.EBADF and _link_error(attach(0xFFFFFFFF), kind) == errno.EINVAL
    )


def _perf_link() -> bool:
    with ExitStack() as stack:
        program = bpf.prog_load(ProgramType.TRACEPOINT, _RETURN_ZERO)
        stack.callback(os.close, program)
        try:
            stack.callback(os.close, bpf.link_perf_event(program, 0xFFFFFFFF, 0))
        except PermissionError:
            raise
        except OSError as error:
            return error.errno == errno.EBADF
    return False


def _link_missed() -> bool:
    with ExitStack() as stack:
        program = bpf.prog_load(ProgramType.PERF_EVENT, _RETURN_ZERO)
        stack.callback(os.close, program)
        event = perf.open_event(perf.EventAttr(perf.EventType.SOFTWARE, perf.SOFTWARE_DUMMY, period=1), pid=os.getpid())
        stack.callback(os.close, event)
        link = bpf.link_perf_event(program, event, 0)
        stack.callback(os.close, link)
        return bpf.info_size(link, 64) >= bpf.LINK_INFO_WITH_MISSES


def _tracing(name: str, attach_type: AttachType, *, attach: bool) -> Callable[[], bool]:
    def probe() -> bool:
        with ExitStack() as stack:
            try:
                number = _btf_id(name, attach_type)
                program = bpf.prog_load(
                    ProgramType.TRACING, _RETURN_ZERO, attach_type=attach_type, attach_btf_id=number
                )
                stack.callback(os.close, program)
                if attach:
                    # Loading alone proves nothing: trampolines are only made when a program attaches.
                    stack.callback(os.close, bpf.raw_tracepoint_open(program))
            except PermissionError as error:
                if error.errno == errno.EACCES:
                    return False
                raise
            except OSError:
                return False
        return True

    return probe


def _iterator(name: str) -> Callable[[], bool]:
    return _tracing(name, AttachType.TRACE_ITER, attach=False)


def _tracing_cookie() -> bool:
    with ExitStack() as stack:
        try:
            number = _btf_id("sys_enter", AttachType.TRACE_RAW_TP)
            program = bpf.prog_load(
                ProgramType.TRACING, _RETURN_ZERO, attach_type=AttachType.TRACE_RAW_TP, attach_btf_id=number
            )
            stack.callback(os.close, program)
            stack.callback(os.close, bpf.link_tracing(program, AttachType.TRACE_RAW_TP, 1))
        except PermissionError:
            raise
        except OSError:
            return False
    return True


def _map(kind: MapType, key: int, value: int, entries: int) -> Callable[[], bool]:
    def probe() -> bool:
        try:
            os.close(bpf_maps.create(kind, key, value, entries))
        except PermissionError:
            raise
        except OSError:
            return False
        return True

    return probe


def _batches() -> bool:
    descriptor = bpf_maps.create(MapType.HASH, 8, 8, 1)
    try:
        bpf_maps.Batch(descriptor, 8, 8, 1).read()
    except OSError as error:
        if error.errno not in bpf_maps.NO_BATCH:
            raise
        return False
    finally:
        os.close(descriptor)
    return True


def _module_btf() -> bool:
    """Kernels with BTF of modules tell the name of a BTF object (``struct bpf_btf_info`` has one)."""
    try:
        descriptor = bpf.btf_load(_INTEGER_BTF)
    except PermissionError:
        raise
    except OSError:
        return False
    try:
        return bpf.info_size(descriptor, 64) >= 32
    finally:
        os.close(descriptor)


def _hardware() -> bool:
    """Whether cycles are counted; some virtual machines have the event and never count."""
    try:
        event = perf.open_event(perf.EventAttr(perf.EventType.HARDWARE, 0), pid=0)
    except PermissionError:
        raise
    except OSError:
        return False
    try:
        sum(range(10000))
        return int.from_bytes(os.read(event, 8), sys.byteorder) > 0
    finally:
        os.close(event)


def _breakpoint() -> bool:
    try:
        os.close(perf.open_event(perf.breakpoint_attr(Memory(8).address, 8, "w"), pid=0))
    except PermissionError:
        raise
    except OSError:
        return False
    return True


def _large_programs() -> bool:
    """More than 4096 instructions, the limit of kernels before 5.2."""
    code = _RETURN_ZERO[:8] * 5000 + _RETURN_ZERO[8:]
    try:
        os.close(bpf.prog_load(ProgramType.SOCKET_FILTER, code))
    except PermissionError:
        raise
    except OSError:
        return False
    return True


def _nop5_uprobes() -> bool:
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


def _raw_syscalls() -> bool:
    """Raw tracepoints with typed arguments, whose programs know the current task by type."""
    return _RAW() and _helper(158, ProgramType.TRACING)()


_PMU = "/sys/bus/event_source/devices"
_K, _T, _R, _B = ProgramType.KPROBE, ProgramType.TRACEPOINT, ProgramType.RAW_TRACEPOINT, ProgramType.TRACING
_FENTRY = _tracing("bpf_fentry_test1", AttachType.TRACE_FENTRY, attach=True)
_RAW = _tracing("sys_enter", AttachType.TRACE_RAW_TP, attach=False)

_ROWS = (
    Feature("kprobe", "probes on kernel functions", _file(f"{_PMU}/kprobe", *(f"{r}/kprobe_events" for r in TRACEFS))),
    Feature("perf_kprobe", "kernel probes through perf events", _file(f"{_PMU}/kprobe")),
    Feature("kprobe_multi", "many kernel functions with one link", _kprobe_multi(session=False)),
    Feature("kprobe_session", "entry and return of a function by one program", _kprobe_multi(session=True)),
    Feature("uprobe", "probes on user functions", _file(f"{_PMU}/uprobe", *(f"{r}/uprobe_events" for r in TRACEFS))),
    Feature("perf_uprobe", "user probes through perf events", _file(f"{_PMU}/uprobe")),
    Feature("uprobe_multi", "many user functions with one link", _uprobe_multi(session=False)),
    Feature("uprobe_session", "entry and return of a user function by one program", _uprobe_multi(session=True)),
    Feature("nop5_uprobes", "5-byte nops under user probes become calls, over the red zone", _nop5_uprobes),
    Feature("semaphores", "USDT semaphores raised by the kernel", _file(f"{_PMU}/uprobe/format/ref_ctr_offset")),
    Feature("fentry", "BPF trampolines on kernel functions", _FENTRY),
    Feature("rawtracepoint", "raw tracepoints with typed arguments", _RAW),
    Feature("raw_syscalls", "system call tracepoints by way of the raw ones", _raw_syscalls),
    Feature("tracepoint", "kernel tracepoints", _file(*(f"{r}/events" for r in TRACEFS))),
    Feature("iter", "iterators over kernel objects", _iterator("task")),
    Feature("vma_iterator", "iterator over memory areas of processes", _iterator("task_vma")),
    Feature("perf_link", "links to perf events, with cookies", _perf_link),
    Feature("link_missed", "missed hits of kernel probes in link information", _link_missed),
    Feature("tracing_cookie", "cookies of raw tracepoint and trampoline links", _tracing_cookie),
    Feature("perf_hardware", "processor events", _hardware),
    Feature("watchpoint", "hardware breakpoints", _breakpoint),
    Feature("btf", "type information of the kernel", _file("/sys/kernel/btf/vmlinux")),
    Feature("module_btf", "type information of modules", _module_btf),
    Feature("ringbuf", "BPF ring buffer", _map(MapType.RINGBUF, 0, 0, os.sysconf("SC_PAGE_SIZE"))),
    Feature("batch_ops", "map reading in batches", _batches),
    Feature("large_programs", "a million instructions", _large_programs),
    Feature("bpf_loop", "loops with a run-time bound", _helper(181, _K)),
    Feature("for_each_map_elem", "loops over maps", _helper(164, _K)),
    Feature("lookup_percpu_elem", "reading other CPUs' map values", _helper(195, _K)),
    Feature("get_func_ip", "address of the traced function", _helper(173, _K)),
    Feature("get_attach_cookie", "value given at attach time", _helper(174, _K)),
    Feature("tracing_get_attach_cookie", "value given at attach time, in trampolines", _helper(174, _B)),
    Feature("tai_clock", "international atomic time", _helper(208, _K)),
    Feature("boot_clock", "time that counts through suspend", _helper(125, _K)),
    Feature("ns_pid", "process ids in a namespace", _helper(120, _K)),
    Feature("probe_read_kernel", "separate reads of kernel and user memory", _helper(113, _K)),
    Feature("current_task_btf", "typed current task", _helper(158, _T)),
    Feature("snprintf", "formatting in the kernel", _helper(165, _K)),
    Feature("strncmp", "string comparison by helper", _helper(182, _K)),
    Feature("jiffies64", "timer ticks", _helper(118, _K)),
    Feature("get_stack", "stacks copied by helper", _helper(67, _K)),
    Feature("get_task_stack", "stacks of other tasks", _helper(141, _T)),
    Feature("send_signal", "signals from programs", _helper(109, _K)),
    Feature("send_signal_thread", "signals to threads from programs", _helper(117, _K)),
    Feature("override_return", "replacing the result of a function", _helper(58, _K)),
    Feature("probe_write_user", "writing to user memory", _helper(36, _K)),
    Feature("d_path", "paths of files", _helper(147, _B)),
    Feature("socket_cookie", "cookies of sockets", _helper(46, _B)),
    Feature("skb_output", "packets to user space", _helper(111, _B)),
    Feature("kfunc_kprobe", "kernel functions in kprobe and uprobe programs", _kernel_function(_K)),
    Feature("kfunc_tracepoint", "kernel functions in tracepoint programs", _kernel_function(_T)),
    Feature("kfunc_perf_event", "kernel functions in perf event programs", _kernel_function(ProgramType.PERF_EVENT)),
    Feature("kfunc_raw_tracepoint", "kernel functions in untyped raw tracepoint programs", _kernel_function(_R)),
    Feature("kfunc_tracing", "kernel functions in typed tracing programs", _kernel_function(_B)),
    Feature("get_branch_snapshot", "branch records", _helper(176, _K)),
)  # fmt: skip


def _index() -> dict[str, Feature]:
    table = {row.name: row for row in _ROWS}
    if len(table) != len(_ROWS):
        raise ValueError("two features have the same name")
    return table


FEATURES = _index()

_known: dict[str, bool] = {}
_read = False


def has(name: str) -> bool:
    """Whether the kernel has feature *name*.

    False, and not cached, where this user lacks the rights to find out.

    Raises:
        KeyError: there is no such feature.
    """
    row = FEATURES[name]
    _read_kept()
    found = _known.get(name)
    if found is None:
        try:
            found = row.probe()
        except PermissionError:
            return False
        _known[name] = found
        _keep()
    return found


def forget() -> None:
    """Drop what was found out, in memory only (for tests)."""
    global _read  # noqa: PLW0603
    _known.clear()
    _read = False


def _key() -> str:
    """Answers hold for one boot of one kernel, and for processes with the same rights."""
    boot = fingerprints.read_text("/proc/sys/kernel/random/boot_id").strip()
    return f"{boot} {os.uname().version} {os.geteuid()} {privileges.capability_mask():x}"


class _Kept(msgspec.Struct):
    """What is kept between runs."""

    key: str
    features: dict[str, bool]


def _read_kept() -> None:
    global _read  # noqa: PLW0603
    if _read:
        return
    _read = True
    data = fingerprints.read_kept(_FILE)
    if data is None:
        return
    try:
        kept = msgspec.json.decode(data, type=_Kept)
    except msgspec.DecodeError:
        return
    if kept.key == _key():
        _known.update({name: found for name, found in kept.features.items() if name in FEATURES})


def _keep() -> None:
    fingerprints.keep(_FILE, msgspec.json.encode(_Kept(_key(), _known)))
