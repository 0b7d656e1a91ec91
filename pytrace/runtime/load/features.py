"""The table of kernel features, and which of them this kernel has: it is tried, and its version is never looked at.

:func:`has` answers by name; :data:`FEATURES` is the table. An answer costs some system calls once for each boot of
each kernel: it is cached under the user's cache directory (see :mod:`pytrace.runtime.machine.fingerprints`).
"""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec

from pytrace.base import kernel_files
from pytrace.core.manifest import MapType
from pytrace.runtime.load.feature_probes import (
    PATH_CALL,
    STACK_INTO_UNSET,
    accepted,
    atomic_fetch,
    batches,
    file_exists,
    hardware_breakpoint,
    hardware_events,
    helper,
    iterator,
    kernel_function,
    kprobe_multi,
    large_programs,
    link_missed,
    map_of_type,
    module_btf,
    nop5_uprobes,
    perf_link,
    raw_syscalls,
    raw_tracepoint,
    sleepable_calls,
    sleepable_uprobe,
    task_work,
    tracing,
    tracing_cookie,
    uprobe_multi,
)
from pytrace.runtime.machine import bpf, fingerprints, privileges
from pytrace.runtime.machine.bpf import AttachType, ProgramType
from pytrace.runtime.machine.fingerprints import TRACEFS

_FILE = "features.json"


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
    Feature("sleepable_fentry", "programs of system call functions that wait for memory", sleepable_calls),
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
    Feature("perf_hardware", "processor events", hardware_events),
    Feature("watchpoint", "hardware breakpoints", hardware_breakpoint),
    Feature("btf", "type information of the kernel", file_exists("/sys/kernel/btf/vmlinux")),
    Feature("module_btf", "type information of modules", module_btf),
    Feature("ringbuf", "BPF ring buffer", map_of_type(MapType.RINGBUF, 0, 0, os.sysconf("SC_PAGE_SIZE"))),
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
            accepted(PATH_CALL, AttachType.TRACE_ITER, "task_file", "unknown func", "not allowed in probe")),
    Feature("stack_to_unset", "stacks copied to memory that was not set",
            accepted(STACK_INTO_UNSET, AttachType.TRACE_RAW_TP, "sys_enter")),
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

_known: dict[str, bool] = {}
_read = False


def has(name: str) -> bool:
    """Return whether the kernel has the feature *name*.

    False, and not cached, where this user lacks the rights to find out.

    Raises:
        KeyError: there is no such feature.
    """
    row = FEATURES[name]
    _read_kept()
    available = _known.get(name)
    if available is None:
        try:
            available = row.probe()
        except PermissionError:
            return False
        _known[name] = available
        _keep()
    return available


def forget() -> None:
    """Drop the answers, in memory only (for tests)."""
    global _read  # noqa: PLW0603
    _known.clear()
    _read = False


def _key() -> str:
    """Answers hold for one boot of one kernel, and for processes with the same rights."""
    boot = kernel_files.read_text("/proc/sys/kernel/random/boot_id").strip()
    rights = f"{os.geteuid()} {privileges.capability_mask():x} {bpf.user_namespace()} {bpf.token_path()}"
    return f"{boot} {os.uname().version} {rights}"


class _Kept(msgspec.Struct):
    """Answers in the cache, and the :func:`_key` that they hold for."""

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
        _known.update({name: available for name, available in kept.features.items() if name in FEATURES})


def _keep() -> None:
    fingerprints.keep(_FILE, msgspec.json.encode(_Kept(_key(), _known)))
