"""Facts that a compiled script depends on: how they are written down, and whether they still hold.

A fact is a tuple of texts: its kind and what it was when the script was compiled.  :func:`still_true` is called on each
start of a cached script, so this module imports nothing heavy and each check is a few system calls.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pytrace.base import kernel_files, private_files
from pytrace.core.diagnostics import HiddenKernelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

TRACER = "pytrace_"
"""Start of the category of events that a tracer defines for itself (``probe_links``), and soon takes away again."""

TRACEFS = ("/sys/kernel/tracing", "/sys/kernel/debug/tracing")
"""Where tracefs may be mounted (here, because starts need it and not :mod:`pytrace.runtime.machine.tracefs`)."""

Fact = tuple[str, ...]
"""Kind, then the parts that the row of the kind in :data:`_CHECKS` understands."""


PATH = "path"
"""Kind of the facts of :func:`path_fact`."""


def tracefs_root() -> str:
    """Where tracefs is mounted.

    Raises:
        HiddenKernelError: it is not, or this user may not read it.
    """
    for path in TRACEFS:
        if os.path.exists(f"{path}/available_events"):
            return path
    if any(os.path.isdir(path) and not os.access(path, os.X_OK) for path in TRACEFS):
        raise HiddenKernelError(
            "this user may not read tracefs (/sys/kernel/tracing)",
            hints=("run it with sudo, or give the process CAP_DAC_READ_SEARCH",),
        )
    raise HiddenKernelError(
        "tracefs is not mounted",
        hints=("run as root: mount -t tracefs tracefs /sys/kernel/tracing",),
    )


KEPT = "facts"
"""The kind of cached files that indexes are (:mod:`pytrace.base.private_files`)."""


def read_kept(name: str) -> bytes | None:
    """The bytes that :func:`keep` stored as *name*; None where others than the user could have written them."""
    return private_files.read(KEPT, name)


def keep(name: str, *parts: bytes) -> None:
    """Store bytes for later runs; a cache directory that cannot be written to only costs time."""
    private_files.write(KEPT, name, *parts)


def kept_lists(name: str, stamp: Fact, make: Callable[[], dict[str, list[str]]]) -> dict[str, list[str]]:
    """Lists of names by title, as they were made under the same *stamp*, or made now and cached for later runs.

    Neither names nor titles have line ends, and no name is empty. There is one file of each *name*: another stamp
    replaces it.
    """
    head = f"pytrace lists 2 {private_files.digest(repr(stamp).encode())}"
    first, *parts = (read_kept(name) or b"").decode(errors="surrogateescape").split("\n\n")
    if first == head:
        return {title: names for title, *names in (part.split("\n") for part in parts)}
    lists = make()
    text = "\n\n".join([head, *("\n".join((title, *names)) for title, names in lists.items())])
    keep(name, text.encode(errors="surrogateescape"))
    return lists


# ---------------------------------------------------------------------------------------------- making facts


def kernel_fact(btf_path: str = "/sys/kernel/btf/vmlinux") -> Fact:
    """The running kernel: release, build and type information.

    The build is ``/sys/kernel/notes`` (the GNU build id) where it is readable, else the version text.
    """
    system = os.uname()
    try:
        with open("/sys/kernel/notes", "rb") as file:
            build = private_files.digest(file.read())
    except OSError:
        build = private_files.digest(system.version.encode())
    try:
        size = os.stat(btf_path).st_size
    except OSError:
        size = 0
    return ("kernel", btf_path, system.machine, system.release, build, str(size))


def boot_fact() -> Fact:
    """This boot of the machine: kernel addresses stay the same until the next one."""
    return ("boot", kernel_files.read_text("/proc/sys/kernel/random/boot_id").strip())


def file_fact(path: str) -> Fact:
    """A file as it is now (size, modification time, inode), or its absence."""
    try:
        status = os.stat(path)
    except OSError:
        return ("file", path, "absent")
    return ("file", path, str(status.st_size), str(status.st_mtime_ns), str(status.st_ino))


def path_fact(path: str) -> Fact:
    """Where a name leads: a path without links and an inode, whatever is in there; ``.`` is the working directory."""
    try:
        return (PATH, path, os.path.realpath(path), str(inode(path)))
    except FileNotFoundError:
        # The working directory was removed.
        return (PATH, path, "", "0")


def files_fact(paths: Iterable[str]) -> Fact:
    """Many files as they are now, in one fact that is quick to check."""
    names = sorted(paths)
    folder = os.path.dirname(os.path.commonpath(names))
    return _files_fact(folder, "\n".join(name.removeprefix(folder) for name in names))


def _files_fact(folder: str, names: str) -> Fact:
    states = "\n".join([_state(folder + name) for name in names.split("\n")])
    return ("files", folder, names, private_files.digest(states.encode()))


def _state(path: str) -> str:
    try:
        status = os.stat(path)
    except OSError:
        return "absent"
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ino}"


def modules_fact() -> Fact:
    """Which kernel modules are loaded, and where."""
    # The third column counts users of a module and changes all the time. A module that was loaded again, perhaps after
    # a change, has another inode, even where name, size and address are the same.
    rows = [line.split() for line in kernel_files.lines(kernel_files.read_text("/proc/modules"))]
    text = "\n".join(
        f"{parts[0]} {parts[1]} {parts[-1] if len(parts) < 6 else parts[5]} {inode(f'/sys/module/{parts[0]}')}"
        for parts in rows
    )
    return ("modules", private_files.digest(text.encode()))


def inode(path: str) -> int:
    """The inode of a file; 0 when there is none."""
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0


def lasting(events: str) -> list[str]:
    """The lines ``CATEGORY:EVENT`` of tracefs' ``available_events`` without what tracers define for themselves."""
    return [line for line in kernel_files.lines(events) if not line.startswith(TRACER)]


def tracepoints_fact(root: str) -> Fact:
    """Which tracepoints there are: the list under a tracefs mounted at *root*."""
    names = lasting(kernel_files.read_text(f"{root}/available_events"))
    return ("tracepoints", root, private_files.digest("\n".join(names).encode()))


def tracepoint_fact(root: str, category: str, event: str) -> Fact:
    """One tracepoint: its number, or that it is not there."""
    # Unlike the list, this takes no lock in the kernel, which others may hold for long.
    return ("tracepoint", root, category, event, kernel_files.read_text(f"{root}/events/{category}/{event}/id").strip())


def process_fact(pid: int) -> Fact:
    """A process, told from a later one with the same number by its start time."""
    return ("process", str(pid), _start_time(pid))


def pid_namespace_fact() -> Fact:
    """The pid namespace that we are in: device and inode."""
    try:
        status = os.stat("/proc/self/ns/pid")
    except OSError:
        return ("pid_namespace", "0", "0")
    return ("pid_namespace", str(status.st_dev), str(status.st_ino))


def environment_fact(variable: str) -> Fact:
    """An environment variable that a search went by (``PATH``)."""
    return ("environment", variable, os.environ.get(variable, ""))


def _start_time(pid: int) -> str:
    found = kernel_files.statistics(pid)
    return str(found.start) if found else ""


# ---------------------------------------------------------------------------------------------- checking facts

_CHECKS: dict[str, Callable[[Fact], Fact]] = {
    "kernel": lambda fact: kernel_fact(fact[1]),
    "boot": lambda _: boot_fact(),
    PATH: lambda fact: path_fact(fact[1]),
    "file": lambda fact: file_fact(fact[1]),
    "files": lambda fact: _files_fact(*fact[1:3]),
    "modules": lambda _: modules_fact(),
    "pid_namespace": lambda _: pid_namespace_fact(),
    "tracepoints": lambda fact: tracepoints_fact(fact[1]),
    "tracepoint": lambda fact: tracepoint_fact(*fact[1:4]),
    "process": lambda fact: process_fact(int(fact[1])),
    "environment": lambda fact: environment_fact(fact[1]),
}


def still_true(facts: Iterable[Fact]) -> bool:
    """True if all *facts* hold now. A fact of an unknown kind or form (from another version) does not."""
    return all(_holds(tuple(fact)) for fact in facts)


def _holds(fact: Fact) -> bool:
    check = _CHECKS.get(fact[0]) if fact else None
    try:
        return check is not None and check(fact) == fact
    except (IndexError, TypeError, ValueError):
        return False  # parts are missing, or no numbers or names of files
