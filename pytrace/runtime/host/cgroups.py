"""Paths of cgroups by their ids."""

from __future__ import annotations

import fnmatch
import os
import re
from typing import TYPE_CHECKING, NamedTuple

from pytrace.base import kernel_files
from pytrace.runtime.host import fingerprints

if TYPE_CHECKING:
    from collections.abc import Iterator


MOUNTS = "/proc/self/mountinfo"
_ESCAPED = re.compile(r"\\([0-7]{3})")


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
        kind = source.partition(" ")[0]
        if kind in ("cgroup", "cgroup2"):
            _, _, device, root, point, *_ = mount.split(" ")
            hierarchy_mounts.append(Mount(device, _unescaped(root), _unescaped(point), kind == "cgroup2"))
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


def unified_mounts() -> list[str]:
    """Where the hierarchy of version 2 is mounted."""
    return [mount.point for mount in mounts() if mount.unified]


def directories(root: str) -> Iterator[str]:
    """Each cgroup of the hierarchy at *root*; what vanishes meanwhile is left out."""
    return (path for path, _, _ in os.walk(root))


MEMBERSHIP = "/proc/self/cgroup"


def memory_limit(membership: str = MEMBERSHIP, table: str = MOUNTS) -> int | None:
    """The least memory limit of the cgroups that this process is in (cgroups(7)), in bytes; None without one."""
    limits: list[int] = []
    mounted = hierarchies(table)
    for line in kernel_files.lines(kernel_files.read_text(membership)):
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        name = "memory.limit_in_bytes" if controllers else "memory.max"
        for mount in mounted:
            if mount.unified != bool(controllers):
                limits += _limits(mount, path, name)
    return min(limits, default=None)


def _limits(mount: Mount, path: str, name: str) -> Iterator[int]:
    """The limits of a cgroup and of those above it, as far as *mount* shows them."""
    below = os.path.relpath(path, mount.root)
    parts = [] if below == "." or below.startswith("..") else below.split("/")
    for length in range(len(parts) + 1):
        text = kernel_files.read_text(os.path.join(mount.point, *parts[:length], name)).strip()
        if text.isdigit():
            yield int(text)


class Cgroups:
    """Finds the path of a cgroup in each mounted hierarchy; an id is the inode of the cgroup's directory."""

    def __init__(self, table: str = MOUNTS) -> None:
        self._table = table
        self._roots: tuple[tuple[str, str], ...] | None = None
        self._known: dict[tuple[str, int], str] = {}

    def paths(self, identity: int, pattern: str = "") -> str:
        """``hierarchy:path`` of a cgroup in each hierarchy whose name matches the ``*`` *pattern*, separated by commas.

        The unified hierarchy comes first under the name ``unified``, then those of version 1 by name. The text is
        empty for a cgroup that no hierarchy has (it was removed).
        """
        paths = []
        for name, root in self._hierarchies():
            if not pattern or fnmatch.fnmatchcase(name, pattern.replace("[", "[[]").replace("?", "[?]")):
                path = self._path(root, identity)
                if path:
                    paths.append(f"{name}:{path}")
        return ",".join(paths)

    def _hierarchies(self) -> tuple[tuple[str, str], ...]:
        if self._roots is None:
            mounted = hierarchies(self._table)
            unified = [("unified", mount.point) for mount in mounted if mount.unified]
            named = [(os.path.basename(mount.point), mount.point) for mount in mounted if not mount.unified]
            self._roots = (*unified, *sorted(named))
        return self._roots

    def _path(self, root: str, identity: int) -> str:
        known = self._known.get((root, identity))
        if known is not None and fingerprints.inode(root + known) == identity:
            return known
        # One walk serves all ids: every directory that it passes is remembered.
        result = ""
        for path in directories(root):
            relative, number = path.removeprefix(root.rstrip("/")) or "/", fingerprints.inode(path)
            self._known[root, number] = relative
            if number == identity:
                result = relative
        return result
