"""Cgroup hierarchies: where they are mounted, and the memory limits of this process in them (cgroups(7))."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from pytrace.base import kernel_files

MOUNTS = "/proc/self/mountinfo"
_MEMBERSHIP = "/proc/self/cgroup"
_ESCAPED = re.compile(r"\\([0-7]{3})")
_UNLIMITED = 1 << 62
"""Version 1 has no word for no limit, only a number near the largest."""


class Mount(NamedTuple):
    """One mount of a cgroup hierarchy."""

    device: str
    """Of the hierarchy's file system, which all its mounts share."""
    root: str
    """The cgroup that is shown at *point*."""
    point: str
    unified: bool
    """Of version 2."""


def mounts(table: str = MOUNTS) -> list[Mount]:
    """All mounts of cgroup hierarchies, in the order of *table* (proc_pid_mountinfo(5))."""
    with open(table, encoding="utf-8", errors="surrogateescape", newline="") as file:
        rows = [line.partition(" - ") for line in kernel_files.lines(file.read())]
    hierarchy_mounts = []
    for mount, _, source in rows:
        system = source.partition(" ")[0]
        if system in ("cgroup", "cgroup2"):
            _, _, device, root, point, *_ = mount.split(" ")
            hierarchy_mounts.append(Mount(device, _unescaped(root), _unescaped(point), system == "cgroup2"))
    return hierarchy_mounts


def _unescaped(path: str) -> str:
    """A path whose blanks are written as ``\\040``."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), path)


def hierarchies(table: str = MOUNTS) -> list[Mount]:
    """One mount of each hierarchy: a container's root or a chroot has a second one, by a bind mount of ``/sys``.

    It is the first that shows the whole hierarchy, or the first of all.
    """
    by_device: dict[str, Mount] = {}
    for mount in mounts(table):
        known = by_device.setdefault(mount.device, mount)
        if known.root != "/" == mount.root:
            by_device[mount.device] = mount
    return list(by_device.values())


def directories(root: str) -> Iterator[str]:
    """Each cgroup of the hierarchy at *root*; what vanishes meanwhile is left out."""
    return (path for path, _, _ in os.walk(root))


class MemoryLimit(NamedTuple):
    """The memory limit of one cgroup."""

    size: int
    """Bytes."""
    folder: str
    """The directory of the cgroup that sets it."""


def memory_limit(membership: str = _MEMBERSHIP, table: str = MOUNTS) -> MemoryLimit | None:
    """The least memory limit of the cgroups that this process is in (cgroups(7)); None without one."""
    try:
        mounted = hierarchies(table)
    except OSError:
        return None
    limits: list[MemoryLimit] = []
    for line in kernel_files.lines(kernel_files.read_text(membership)):
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        name = "memory.limit_in_bytes" if controllers else "memory.max"
        for mount in mounted:
            if mount.unified != bool(controllers):
                limits += _limits(mount, path, name)
    return min(limits, default=None)


def _limits(mount: Mount, path: str, name: str) -> Iterator[MemoryLimit]:
    """The limits of a cgroup and of its ancestors, as far as *mount* shows them."""
    below = os.path.relpath(path, mount.root)
    parts = [] if below == "." or below.startswith("..") else below.split("/")
    for length in range(len(parts) + 1):
        folder = os.path.join(mount.point, *parts[:length])
        text = kernel_files.read_text(os.path.join(folder, name)).strip()
        if text.isdecimal() and int(text) < _UNLIMITED:
            yield MemoryLimit(int(text), folder)
