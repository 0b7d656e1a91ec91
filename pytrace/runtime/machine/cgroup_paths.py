"""Paths of cgroups by their ids."""

from __future__ import annotations

import fnmatch
import os

from pytrace.base import cgroups
from pytrace.runtime.machine import fingerprints


class CgroupPaths:
    """Finds the path of a cgroup in each mounted hierarchy; an id is the inode of the cgroup's directory."""

    def __init__(self, table: str = cgroups.MOUNTS) -> None:
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
            mounted = cgroups.hierarchies(self._table)
            unified = [("unified", mount.point) for mount in mounted if mount.unified]
            named = [(os.path.basename(mount.point), mount.point) for mount in mounted if not mount.unified]
            self._roots = (*unified, *sorted(named))
        return self._roots

    def _path(self, root: str, identity: int) -> str:
        known = self._known.get((root, identity))
        if known is not None and fingerprints.inode(root + known) == identity:
            return known
        # One walk serves all ids: every directory that it passes is remembered, in place of those that are gone.
        self._known = {key: path for key, path in self._known.items() if key[0] != root}
        result = ""
        for path in cgroups.directories(root):
            relative, number = path.removeprefix(root.rstrip("/")) or "/", fingerprints.inode(path)
            self._known[root, number] = relative
            if number == identity:
                result = relative
        return result
