"""``--info``: the features of this build and of this kernel, and the privileges that a script needs."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

import pytrace
from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import Manifest
from pytrace.core.options import RunOptions
from pytrace.core.probe_kinds import IteratorTarget, TypedFunctionTarget
from pytrace.runtime.load import features
from pytrace.runtime.machine import bpf, confine, libbpf, perf, privileges
from pytrace.runtime.session import confinement

Value = str | int | bool
"""Of a row: a text, a number, or whether the machine has something."""

_PACKAGES = ("llvmlite", "ply", "pyelftools", "pyroute2", "libclang", "textual")

_SECTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Kernel helpers", (
        "probe_read_kernel", "current_task_btf", "d_path", "iterator_paths", "tai_clock", "boot_clock", "get_func_ip",
        "get_attach_cookie", "tracing_get_attach_cookie", "lookup_percpu_elem", "for_each_map_elem", "bpf_loop",
        "ns_pid", "jiffies64", "get_stack", "get_task_stack", "snprintf", "strncmp", "send_signal",
        "send_signal_thread", "override_return", "probe_write_user", "socket_cookie", "skb_output",
        "get_branch_snapshot",
    )),
    ("Kernel features", ("large_programs", "atomic_fetch", "stack_to_unset", "btf", "module_btf", "ringbuf",
                         "batch_ops", "perf_link", "tracing_cookie", "semaphores", "task_work",
                         "call_return", "task_memory")),
    ("Probe types", (
        "kprobe", "perf_kprobe", "kprobe_multi", "kprobe_session", "uprobe", "perf_uprobe", "uprobe_multi",
        "uprobe_session", "sleepable_uprobe", "tracepoint", "rawtracepoint", "fentry", "sleepable_fentry", "iter",
        "vma_iterator", "perf_hardware", "watchpoint",
    )),
)  # fmt: skip
"""Titles and features; features that are not listed are shown under the last title."""

_BPFTRACE_NAMES: dict[str, tuple[tuple[str, str], ...]] = {
    "Kernel helpers": (
        ("dpath", "d_path"), ("get_tai_ns", "tai_clock"), ("get_boot_ns", "boot_clock"), ("skboutput", "skb_output"),
        ("get_ktime_ns", "ringbuf"),
    ),
    "Kernel features": (("Loop support", "ringbuf"), ("module btf", "module_btf"), ("map batch", "batch_ops")),
}  # fmt: skip
"""bpftrace's names of some features: test suites and bug reports look for these lines of its ``--info``.

Bounded loops and the monotonic clock are older than the ring buffer, which pytrace requires.
"""

_INSTRUCTIONS = {True: 1_000_000, False: 4096}
"""Maximum instructions of a program, with and without ``large_programs`` (``BPF_COMPLEXITY_LIMIT_INSNS``)."""


_BPFTRACE_PARTS = (
    ("bfd", False),
    ("libdw (DWARF support)", True),
    ("libsystemd (systemd notify support)", True),
    ("libdebuginfod (debuginfod support)", True),
    ("blazesym (advanced symbolization)", True),
    ("bcc library path resolution", True),
)
"""Optional parts of bpftrace, and whether pytrace has an equivalent (all but disassembling)."""


def report(disabled: frozenset[str] = frozenset(), needs: Sequence[tuple[str, Value]] = ()) -> str:
    """The report as text; *disabled* are the features that ``--no-feature`` disables, *needs* those of a script."""
    verdict = _Verdict.of(disabled)
    text = "\n".join(
        f"{title}\n" + "".join(f"  {name}: {_text(value)}\n" for name, value in rows)
        for title, rows in _sections(verdict, disabled, needs)
    )
    return f"{text}\nIn short: {verdict.in_short()}\n"


def json_report(disabled: frozenset[str] = frozenset(), needs: Sequence[tuple[str, Value]] = ()) -> str:
    """The report as one JSON object: an object for each section, with ``yes`` and ``no`` as booleans, and numbers."""
    rows = _sections(_Verdict.of(disabled), disabled, needs)
    sections = {title.lower().replace(" ", "_"): dict(answers) for title, answers in rows}
    return json.dumps({"type": "info", "data": sections}) + "\n"


def _text(value: Value) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _sections(
    verdict: _Verdict, disabled: frozenset[str], needs: Sequence[tuple[str, Value]]
) -> Iterator[tuple[str, list[tuple[str, Value]]]]:
    if needs:
        yield "This script", list(needs)
    yield "What can be traced here", verdict.rows()
    yield "System", list(_system())
    yield "Privileges", list(_privileges())
    yield "Build", list(_build())
    listed = {name for _, names in _SECTIONS for name in names}
    rest = tuple(name for name in features.FEATURES if name not in listed)
    for index, (title, names) in enumerate(_SECTIONS):
        shown = names + rest if index == len(_SECTIONS) - 1 else names
        rows = [(name, name) for name in shown]
        answers = list(_answers([*_BPFTRACE_NAMES.get(title, ()), *rows], disabled))
        if title == "Kernel features":
            answers.insert(0, ("Instruction limit", _INSTRUCTIONS[features.has("large_programs")]))
        yield title, answers


_KINDS = (
    ("tracepoints", ("tracepoint", "rawtracepoint"), ""),
    ("functions of the kernel (kprobe)", ("kprobe", "perf_kprobe", "kprobe_multi"), "a kernel with CONFIG_KPROBES"),
    ("the same with typed arguments (fentry)", ("fentry",), "a kernel with CONFIG_DEBUG_INFO_BTF and ftrace"),
    ("functions and USDT probes of programs", ("uprobe", "perf_uprobe", "uprobe_multi"),
     "a kernel with CONFIG_UPROBES"),
    ("lists of tasks, files and maps (iter)", ("iter",), "Linux 5.8 or newer with CONFIG_DEBUG_INFO_BTF"),
    ("hardware counters", ("perf_hardware",), "a machine, or a virtual one, with a PMU"),
    ("accesses to an address (watchpoint)", ("watchpoint",), "a machine with debug registers"),
)  # fmt: skip
"""Kinds of events, the features of which one suffices, and what a machine lacks that has none."""


class _Verdict(msgspec.Struct, frozen=True):
    """What works, what does not, and what would change that: what each remedy is for, and what it takes."""

    works: str
    lacking: str
    remedies: list[tuple[str, str]]
    command: str = ""
    """The one that mends most."""
    allowed: bool = True
    """Whether this process may trace; else what the kernel can do is not known."""

    @classmethod
    def of(cls, disabled: frozenset[str]) -> _Verdict:
        """That of this machine, without the features *disabled*."""
        try:
            privileges.check()
        except TraceError as error:
            rest = "compiling, formatting and editing scripts; results that were saved"
            return cls(rest, error.message, [("", hint) for hint in error.hints], allowed=False)
        here = {
            title: any(name not in disabled and features.has(name) for name in names) for title, names, _ in _KINDS
        }
        works = [title for title, has in here.items() if has]
        lacking = [title for title, has in here.items() if not has]
        remedies = [
            (title.partition("(")[2].rstrip(")") or title, remedy)
            for title, _, remedy in _KINDS
            if remedy and not here[title]
        ]
        command = ""
        if not features.has("btf"):
            what = "types of the kernel, which most tools read"
            remedies.append((what, "/sys/kernel/btf/vmlinux (CONFIG_DEBUG_INFO_BTF)"))
        if _perf_events():
            works.append("samples and timers (profile, interval)")
        else:
            lacking.append("samples and timers")
            remedies.append((lacking[-1], "CAP_PERFMON, and a seccomp filter that allows perf_event_open"))
        if not os.path.isdir("/sys/kernel/tracing/events") and not os.path.isdir("/sys/kernel/debug/tracing/events"):
            command = "mount -t tracefs tracefs /sys/kernel/tracing"
            remedies.append(("names of tracepoints", command))
        if (lockdown := _lockdown()) != "none":
            remedies.append((f"the kernel is locked down ({lockdown})", "it lets nobody read its memory"))
        return cls(", ".join(works), ", ".join(lacking), remedies, command)

    def rows(self) -> list[tuple[str, Value]]:
        """In three lines."""
        remedies = (f"{what}: {remedy}" if what else remedy for what, remedy in self.remedies)
        takes = "; ".join(remedies) or ("nothing" if self.allowed else "")
        return [
            ("works", self.works or False), ("does not work", self.lacking or "nothing is missing"),
            ("what it takes", takes),
        ]  # fmt: skip

    def in_short(self) -> str:
        """In one line, for who reads the end of the report."""
        if not self.allowed:
            return "; ".join([f"nothing can be traced: {self.lacking}", *(hint for _, hint in self.remedies[:1])])
        if not self.remedies:
            return "everything works here"
        lacking = ", ".join(what for what, _ in self.remedies)
        mends = f"next: {self.command}" if self.command else "no command changes that"
        return f"all works here but {lacking}; {mends}"


def _lockdown() -> str:
    """The mode of kernel lockdown (kernel_lockdown(7)); ``none`` where there is none."""
    try:
        text = Path("/sys/kernel/security/lockdown").read_text(encoding="ascii")
    except OSError:
        return "none"
    return text.partition("[")[2].partition("]")[0] or "none"


_CAPABILITY_USES = (
    ("every run", privileges.NEEDED),
    ("-p and user stacks of other users' processes", ("CAP_SYS_PTRACE",)),
    ("names of kernel functions", ("CAP_SYSLOG",)),
    ("pinned iterators, probes in tracefs", ("CAP_DAC_OVERRIDE",)),
    ("fentry of modules and BPF programs, --bench, write_user()", ("CAP_SYS_ADMIN",)),
    ("more open files than ulimit -Hn", ("CAP_SYS_RESOURCE",)),
)  # fmt: skip
"""What needs which capabilities; CAP_SYS_ADMIN stands for CAP_BPF and CAP_PERFMON."""


def _privileges() -> Iterator[tuple[str, Value]]:
    """What this process may do, what needs more, and whether that suffices for a run."""
    held = privileges.effective_capabilities()
    yield "user id", os.geteuid()
    for name in privileges.CAPABILITIES:
        yield name, name in held
    for title, wanted in _CAPABILITY_USES:
        missing = privileges.missing_capabilities(held, wanted)
        yield f"{title} ({', '.join(wanted)})", f"no (lacks {', '.join(missing)})" if missing else True
    yield "user namespace of a container", bpf.in_container()
    yield "BPF token", True if bpf.container_token() is not None else f"no ({bpf.token_refusal() or 'none is needed'})"
    yield "perf events (profile, interval, perf tracepoints)", _perf_events()
    yield "seccomp filter while tracing", confine.filter_available() or "no (not on this machine)"
    landlock = confine.landlock_version()
    yield "Landlock while tracing", f"yes (ABI {landlock})" if landlock else "no (not in this kernel)"
    try:
        privileges.check()
    except TraceError as error:
        yield "tracing", f"no ({'; '.join((error.message, *error.hints))})"
    else:
        yield "tracing", True


def _perf_events() -> bool:
    """Whether this process may measure a processor: a BPF token does not allow that."""
    dummy = perf.EventAttr(perf.EventType.SOFTWARE, perf.SOFTWARE_DUMMY)
    try:
        os.close(perf.open_event(dummy, cpu=perf.online_cpus()[0]))
    except OSError:
        return False
    return True


def _system() -> Iterator[tuple[str, Value]]:
    uname = os.uname()
    yield "OS", f"{uname.sysname} {uname.release} {uname.version}"
    yield "Arch", uname.machine
    yield "CPUs", os.cpu_count() or 0


def _build() -> Iterator[tuple[str, Value]]:
    yield "version", pytrace.__version__
    yield "Python", platform.python_version()
    for name in _PACKAGES:
        try:
            yield name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            # Debian's python3-clang has no metadata.
            there = name == "libclang" and importlib.util.find_spec("clang") is not None
            yield name, "of the system" if there else "not installed"
    yield "LLVM", _llvm()
    yield "libbpf", _libbpf()
    yield "clang (for imports of C)", shutil.which("clang") is not None
    yield from _BPFTRACE_PARTS
    yield "dwunwind (DWARF stack unwinding)", platform.machine() == "x86_64" or "no (x86-64 only)"


def _llvm() -> str:
    if importlib.util.find_spec("llvmlite") is None:
        return "not installed"
    from pytrace.codegen.ir import target  # LLVM may be missing

    return target.llvm_version()


def _libbpf() -> str:
    try:
        version: str = libbpf.version()
    except TraceError as error:
        return error.message
    return version


def _answers(rows: Iterable[tuple[str, str]], disabled: frozenset[str]) -> Iterator[tuple[str, Value]]:
    """Titles and answers; a row consists of the title of the line and the name of the feature."""
    for text, name in rows:
        if name in disabled:
            yield text, "switched off"
            continue
        yield text, features.has(name)


# ---------------------------------------------------------------------------------------------- needs of a script


Row = tuple[str, str | bool]
"""A need with its capabilities, and the answer."""

ATTACHES = "loads and attaches programs"
_PINNED = "pins an iterator"
FOREIGN = "attaches to functions of modules or BPF programs"
PROCESSES = "-p: the process belongs to another user"


def needs(manifest: Manifest, options: RunOptions) -> dict[str, tuple[str, ...]]:
    """The capabilities that a run needs, by reason: those to attach, then those that it keeps afterwards."""
    found: dict[str, tuple[str, ...]] = {ATTACHES: privileges.NEEDED}
    places = [target.place for program in manifest.programs for target in program.targets]
    if any(isinstance(place, IteratorTarget) and place.pin for place in places):
        found[_PINNED] = ("CAP_DAC_OVERRIDE",)
    if any(isinstance(place, TypedFunctionTarget) and place.module != "vmlinux" for place in places):
        found[FOREIGN] = ("CAP_SYS_ADMIN",)
    if any(map(_of_another_user, options.filters.pids)):
        found[PROCESSES] = ("CAP_SYS_PTRACE",)
    later = confinement.needs(manifest, options, legacy=False, on_cpus=False)
    for name, reason in later.capabilities.items():
        found[reason] = (*found.get(reason, ()), name)
    return found


def rows(manifest: Manifest, options: RunOptions) -> Iterator[Row]:
    """Each need, and whether this process has it."""
    return _rows(needs(manifest, options))


def rows_without(error: TraceError) -> Iterator[Row]:
    """The needs of any script, of one that cannot be compiled here."""
    yield from _rows({ATTACHES: privileges.NEEDED})
    yield "the rest is known once it compiles", f"no ({'; '.join((error.message, *error.hints))})"


def _rows(needed: Mapping[str, tuple[str, ...]]) -> Iterator[Row]:
    held = privileges.effective_capabilities()
    for reason, names in needed.items():
        missing = privileges.missing_capabilities(held, names)
        yield f"{reason} ({', '.join(names)})", f"no (lacks {', '.join(missing)})" if missing else True


def _of_another_user(pid: int) -> bool:
    try:
        return os.stat(f"/proc/{pid}").st_uid != os.geteuid()
    except OSError:
        return False
