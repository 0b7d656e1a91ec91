"""Paths of cgroups by their ids."""

from __future__ import annotations

import os

from pytrace.base.fast_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def unified_mounts(mounts: str = "/proc/self/mounts") -> list[str]:
    """Where the hierarchy of version 2 is mounted."""
    with open(mounts, encoding="utf-8", errors="surrogateescape") as file:
        lines = [line.split() for line in file]
    return [fields[1] for fields in lines if len(fields) > 2 and fields[2] == "cgroup2"]


def directories(root: str) -> Iterator[str]:
    """Each cgroup of the hierarchy at *root*."""
    return (path for path, _ in _walk(root))


class Cgroups:
    """Finds the path of a cgroup in each mounted hierarchy; an id is the inode of the cgroup's directory."""

    def __init__(self, mounts: str = "/proc/self/mounts") -> None:
        self._mounts = mounts
        self._roots: tuple[tuple[str, str], ...] | None = None
        self._known: dict[tuple[str, int], str] = {}

    def paths(self, identity: int, pattern: str = "") -> str:
        """``hierarchy:path`` of a cgroup in each hierarchy whose name matches the ``*`` *pattern*, separated by commas.

        The unified hierarchy comes first under the name ``unified``, then those of version 1 by name. A cgroup that
        no hierarchy has (it was removed) gives an empty text.
        """
        import fnmatch

        found = []
        for name, root in self._hierarchies():
            if not pattern or fnmatch.fnmatchcase(name, pattern.replace("[", "[[]").replace("?", "[?]")):
                path = self._path(root, identity)
                if path:
                    found.append(f"{name}:{path}")
        return ",".join(found)

    def _hierarchies(self) -> tuple[tuple[str, str], ...]:
        if self._roots is None:
            unified, named = [], []
            with open(self._mounts) as file:
                lines = [line.split() for line in file]
            for fields in lines:
                if len(fields) > 2 and fields[2] == "cgroup2":
                    unified.append(("unified", fields[1]))
                elif len(fields) > 2 and fields[2] == "cgroup":
                    named.append((os.path.basename(fields[1]), fields[1]))
            self._roots = (*unified, *sorted(named))
        return self._roots

    def _path(self, root: str, identity: int) -> str:
        known = self._known.get((root, identity))
        if known is not None and _inode(root + known) == identity:
            return known
        # One walk serves all ids: every directory that it passes is remembered.
        result = ""
        for path, inode in _walk(root):
            relative = path[len(root.rstrip("/")) :] or "/"
            self._known[root, inode] = relative
            if inode == identity:
                result = relative
        return result


def _inode(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0


def _walk(root: str) -> Iterator[tuple[str, int]]:
    """Each directory below *root* and its inode; what vanishes meanwhile is left out."""
    top = _inode(root)
    if not top:
        return
    yield root.rstrip("/"), top
    waiting = [root.rstrip("/")]
    while waiting:
        directory = waiting.pop()
        try:
            entries = list(os.scandir(directory))
        except OSError:
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield entry.path, entry.inode()
                waiting.append(entry.path)
