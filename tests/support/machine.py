"""What the machine that runs the tests has, told from its configuration and not from pytrace.

A case that needs a feature is skipped where the kernel was built without it.  Where the kernel was built with it the
case runs, so that a feature probe of pytrace that wrongly says no makes a failure and not a skip.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path

from tests.support.waiting import until

_NUMBERS = count()


@cache
def kernel_config() -> Mapping[str, str]:
    """The kernel's build options; empty when the machine does not tell."""
    release = os.uname().release
    named = os.environ.get("PYTRACE_TEST_KERNEL_CONFIG", "")
    places = [named, f"/boot/config-{release}", f"/lib/modules/{release}/config"]
    for place in places:
        if place and os.path.exists(place):
            return _parse_config(Path(place).read_text())
    if os.path.exists("/proc/config.gz"):
        with gzip.open("/proc/config.gz", "rt") as file:
            return _parse_config(file.read())
    return {}


def _parse_config(text: str) -> dict[str, str]:
    return dict(re.findall(r"^CONFIG_(\w+)=(.*)$", text, re.MULTILINE))


@cache
def kernel_version() -> tuple[int, int]:
    """Major and minor number of the running kernel."""
    major, minor = re.match(r"(\d+)\.(\d+)", os.uname().release).groups()  # type: ignore[union-attr]
    return int(major), int(minor)


@dataclass(frozen=True)
class Feature:
    """*options* are kernel build options that must be set, *since* the first kernel, *check* anything else."""

    options: tuple[str, ...] = ()
    since: tuple[int, int] = (0, 0)
    check: Callable[[], str] | None = None
    """Returns what is missing, or nothing."""


def _btf() -> str:
    return "" if os.path.exists("/sys/kernel/btf/vmlinux") else "/sys/kernel/btf/vmlinux"


def _patchable() -> str:
    """Some machines (Firecracker's guests) forbid to patch kernel text, whatever the kernel was built with."""
    try:
        with open("/sys/kernel/tracing/available_filter_functions", encoding="ascii") as file:
            return "" if file.readline() else "functions in available_filter_functions"
    except OSError as error:
        return f"available_filter_functions ({error.strerror})"


def _processor_events() -> str:
    """Whether cycles can be counted; the device alone is there in machines without a PMU too."""
    from pytrace.runtime.load import features

    return "" if features.has("perf_hardware") else "processor event counters"


def _write_user() -> str:
    """Lockdown forbids it, whatever the kernel was built with."""
    from pytrace.runtime.load import features

    return "" if features.has("probe_write_user") else "permission to write user memory from programs"


def _override() -> str:
    """Machines that do not tell their configuration have it in the verifier only."""
    from pytrace.runtime.load import features

    return "" if features.has("override_return") else "functions whose results programs may replace"


def cgroup2_mount() -> str:
    """Where the unified cgroup hierarchy is mounted; empty where it is not. Not a mount that shows a part of it."""
    rows = [line.split(" ") for line in Path("/proc/self/mountinfo").read_text().splitlines() if " - cgroup2 " in line]
    return next((row[4] for row in sorted(rows, key=lambda row: row[3] != "/")), "")


@contextmanager
def own_cgroup(parent: Path | None = None) -> Iterator[Path]:
    """A cgroup of version 2, at the root of the hierarchy or in *parent*; skips the test where none can be made."""
    import pytest

    root = cgroup2_mount()
    if not root:
        pytest.skip("no cgroup version 2 hierarchy is mounted")
    made = (parent or Path(root)) / f"pytrace-{os.getpid()}-{next(_NUMBERS)}"
    try:
        made.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made: {error.strerror}")
    try:
        yield made
    finally:
        until(lambda: not (made / "cgroup.procs").read_text())
        made.rmdir()


def _path(path: str) -> Callable[[], str]:
    return lambda: "" if os.path.exists(path) else path


def _filesystems() -> str:
    return Path("/proc/filesystems").read_text()


def _program(name: str) -> Callable[[], str]:
    return lambda: "" if shutil.which(name) else f"the program {name}"


FEATURES: dict[str, Feature] = {
    "btf": Feature(("DEBUG_INFO_BTF",), check=_btf),
    "tracepoint": Feature(("BPF_EVENTS",)),
    "syscalls": Feature(("BPF_EVENTS", "FTRACE_SYSCALLS")),
    "rawtracepoint": Feature(("BPF_EVENTS", "DEBUG_INFO_BTF")),
    "raw_syscalls": Feature(("BPF_EVENTS", "FTRACE_SYSCALLS", "DEBUG_INFO_BTF"), (5, 11)),
    "kprobe": Feature(("KPROBES", "KPROBE_EVENTS", "BPF_EVENTS")),
    "fentry": Feature(("DYNAMIC_FTRACE_WITH_DIRECT_CALLS", "DEBUG_INFO_BTF"), (5, 5), _patchable),
    "kprobe_multi": Feature(("KPROBES", "FPROBE"), (5, 18)),
    "kprobe_session": Feature(("KPROBES", "FPROBE"), (6, 10)),
    "uprobe": Feature(("UPROBE_EVENTS", "BPF_EVENTS")),
    "uprobe_multi": Feature(("UPROBE_EVENTS", "BPF_EVENTS"), (6, 6)),
    "sleepable_fentry": Feature(("DYNAMIC_FTRACE_WITH_DIRECT_CALLS", "DEBUG_INFO_BTF"), (7, 0), _patchable),
    "task_memory": Feature(("BPF_EVENTS", "DEBUG_INFO_BTF"), (6, 15)),
    "task_work": Feature(("BPF_EVENTS", "FTRACE_SYSCALLS", "DEBUG_INFO_BTF"), (6, 18)),
    "call_return": Feature(("BPF_EVENTS", "FTRACE_SYSCALLS", "DEBUG_INFO_BTF"), (5, 5)),
    "usdt": Feature(("UPROBE_EVENTS", "BPF_EVENTS")),
    "iter": Feature(("BPF_SYSCALL", "DEBUG_INFO_BTF"), (5, 8)),
    "for_each_map": Feature(("BPF_SYSCALL",), (5, 13)),
    "bpf_loop": Feature(("BPF_SYSCALL",), (5, 17)),
    "lookup_percpu": Feature(("BPF_SYSCALL",), (5, 19)),
    "data_symbols": Feature(("KALLSYMS_ALL",)),
    "overlay": Feature(("OVERLAY_FS",), check=lambda: "" if "overlay" in _filesystems() else "overlayfs"),
    "modules": Feature(("MODULES",), check=_path("/proc/modules")),
    "module_btf": Feature(("DEBUG_INFO_BTF_MODULES",), (5, 11)),
    "cgroup2": Feature(("CGROUPS",), check=lambda: "" if cgroup2_mount() else "mounted cgroup2"),
    "perf_events": Feature(("PERF_EVENTS",)),
    "pmu": Feature(("PERF_EVENTS",), check=_processor_events),
    "watchpoint": Feature(
        ("HAVE_HW_BREAKPOINT", "PERF_EVENTS"), check=_path("/sys/bus/event_source/devices/breakpoint")
    ),
    "override": Feature(("BPF_KPROBE_OVERRIDE",), check=_override),
    "write_user": Feature(("BPF_EVENTS",), check=_write_user),
    "clang": Feature(check=_program("clang")),
    "bash": Feature(check=_program("bash")),
    "python3": Feature(check=_program("python3")),
}


@cache
def missing(name: str) -> str:
    """What this machine lacks for the feature *name*; empty when nothing.

    Raises:
        KeyError: there is no such feature: a slip in a case file.
    """
    feature = FEATURES[name]
    config = kernel_config()
    if config:
        absent = [f"CONFIG_{option}" for option in feature.options if config.get(option) not in ("y", "m")]
        if absent:
            return f"{name}: this kernel ({os.uname().release}) was built without {', '.join(absent)}"
    if kernel_version() < feature.since:
        return f"{name}: came with kernel {feature.since[0]}.{feature.since[1]}, this one is {os.uname().release}"
    lack = feature.check() if feature.check else ""
    return f"{name}: this machine has no {lack}" if lack else ""


def need(*features: str) -> None:
    """Skip the test that runs where this machine lacks one of *features*."""
    import pytest

    for feature in features:
        lack = missing(feature)
        if lack:
            pytest.skip(lack)
