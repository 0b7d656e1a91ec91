"""``--info``: what this build and this kernel can do."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytrace
from pytrace.diagnostics import TraceError
from pytrace.runtime import features

_PACKAGES = ("llvmlite", "ply", "pyelftools", "pyroute2", "libclang")

_SECTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Kernel helpers", (
        "probe_read_kernel", "current_task_btf", "d_path", "tai_clock", "boot_clock", "get_func_ip",
        "get_attach_cookie", "tracing_get_attach_cookie", "lookup_percpu_elem", "for_each_map_elem", "bpf_loop",
        "ns_pid", "jiffies64", "get_stack", "get_task_stack", "snprintf", "strncmp", "send_signal",
        "send_signal_thread", "override_return", "probe_write_user", "socket_cookie", "skb_output",
        "get_branch_snapshot",
    )),
    ("Kernel features", ("large_programs", "btf", "module_btf", "ringbuf", "batch_ops", "perf_link", "tracing_cookie",
                         "semaphores")),
    ("Probe types", (
        "kprobe", "perf_kprobe", "kprobe_multi", "kprobe_session", "uprobe", "perf_uprobe", "uprobe_multi",
        "uprobe_session", "tracepoint", "rawtracepoint", "fentry", "iter", "vma_iterator", "perf_hardware",
        "watchpoint",
    )),
)  # fmt: skip
"""Titles and features; a feature in none of them is shown under the last one."""


def report(disabled: frozenset[str] = frozenset()) -> str:
    """The whole report; *disabled* are features that ``--no-feature`` switched off."""
    parts = [_block("System", _system()), _block("Build", _build())]
    listed = {name for _, names in _SECTIONS for name in names}
    rest = tuple(name for name in features.FEATURES if name not in listed)
    for at, (title, names) in enumerate(_SECTIONS):
        shown = names + rest if at == len(_SECTIONS) - 1 else names
        parts.append(_block(title, _answers(shown, disabled)))
    return "\n".join(parts)


def _block(title: str, rows: Iterable[tuple[str, str]]) -> str:
    return f"{title}\n" + "".join(f"  {name}: {value}\n" for name, value in rows)


def _system() -> Iterator[tuple[str, str]]:
    uname = os.uname()
    yield "OS", f"{uname.sysname} {uname.release} {uname.version}"
    yield "Arch", uname.machine
    yield "CPUs", str(os.cpu_count())


def _build() -> Iterator[tuple[str, str]]:
    yield "version", pytrace.__version__
    yield "Python", platform.python_version()
    for name in _PACKAGES:
        try:
            yield name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield name, "not installed"
    yield "LLVM", _llvm()
    yield "libbpf", _libbpf()
    yield "clang (for imports of C)", "yes" if any(_programs("clang")) else "no"
    yield "DWARF unwinder", "yes" if platform.machine() == "x86_64" else "no (x86-64 only)"


def _llvm() -> str:
    if importlib.util.find_spec("llvmlite") is None:
        return "not installed"
    from pytrace.codegen import target

    return target.llvm_version()


def _libbpf() -> str:
    from pytrace.runtime import libbpf

    try:
        version: str = libbpf.version()
    except TraceError as error:
        return error.message
    return version


def _programs(name: str) -> Iterator[Path]:
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        path = Path(folder) / name
        if os.access(path, os.X_OK):
            yield path


def _answers(names: Iterable[str], disabled: frozenset[str]) -> Iterator[tuple[str, str]]:
    for name in names:
        if name in disabled:
            yield name, "switched off"
            continue
        yield name, "yes" if features.has(name) else "no"
