"""Kernel modules that are installed, loaded or not: what ``depmod`` wrote below ``/lib/modules``.

``modules.dep`` names the files of all modules, ``modules.symbols`` what each exports (kmod's depmod(8)).  Functions
that a module does not export are nowhere listed while it is not loaded; most carry its name in front.
"""

from __future__ import annotations

import os
import re
from functools import cached_property

from pytrace.runtime.facts import read_text
from pytrace.runtime.patterns import matching

MOST = 3
"""So many modules are named at most."""


class ModuleIndex:
    """The modules of one kernel release; empty where none are installed."""

    def __init__(self, release: str, root: str = "/lib/modules") -> None:
        self._directory = os.path.join(root, release)

    @cached_property
    def installed(self) -> frozenset[str]:
        """Names of the modules that can be loaded."""
        text = self._read("modules.dep") or self._read("modules.order")
        return frozenset(module_name(line.partition(":")[0]) for line in text.splitlines() if line)

    @cached_property
    def built_in(self) -> frozenset[str]:
        """Names of those that are part of the kernel's own file."""
        return frozenset(module_name(line) for line in self._read("modules.builtin").splitlines() if line)

    def exporting(self, pattern: str) -> list[str]:
        """Modules that export a symbol that matches a ``*`` pattern, in the order of their index."""
        owners: dict[str, list[str]] = {}
        for symbol, owner in self._exports:
            owners.setdefault(symbol, []).append(owner)
        found = dict.fromkeys(owner for symbol in matching(pattern, list(owners)) for owner in owners[symbol])
        return list(found)[:MOST]

    def named_like(self, pattern: str) -> list[str]:
        """Modules whose whole name stands in front of a function's name: ``ext4`` for ``ext4_map_blocks``."""
        stem = pattern.lstrip("_")
        found = [name for name in self.installed if stem.startswith(f"{name}_")]
        return sorted(found, key=len)[-1:]

    def of_family(self, pattern: str) -> list[str]:
        """Modules that begin with the same word: ``nvme_core`` and ``nvme`` for ``nvme_submit_io``."""
        word = pattern.lstrip("_").partition("_")[0]
        if "*" in word:
            return []
        return sorted((name for name in self.installed if f"{name}_".startswith(f"{word}_")), key=len)[:MOST]

    @cached_property
    def _exports(self) -> list[tuple[str, str]]:
        return re.findall(r"(?m)^alias symbol:(\S+) (\S+)$", self._read("modules.symbols"))

    def _read(self, name: str) -> str:
        return read_text(os.path.join(self._directory, name))


def module_name(path: str) -> str:
    """The name of a loaded module by its file: ``kernel/drivers/md/md-mod.ko.xz`` is ``md_mod``."""
    return os.path.basename(path.strip()).partition(".ko")[0].replace("-", "_")
