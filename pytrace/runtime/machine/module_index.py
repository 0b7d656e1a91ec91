"""Kernel modules that are installed, loaded or not: what ``depmod`` wrote below ``/lib/modules``.

``modules.dep`` names the files of all modules, ``modules.symbols`` what each exports (kmod's depmod(8)).  Functions
that a module does not export are nowhere listed while it is not loaded; most carry its name in front.
"""

from __future__ import annotations

import os
import re
from functools import cached_property

from pytrace.base.kernel_files import read_text
from pytrace.runtime.machine.name_patterns import matching

MOST = 3
"""So many modules are named at most."""


class ModuleIndex:
    """The modules of one kernel release; empty where none are installed."""

    def __init__(self, release: str, root: str = "/lib/modules") -> None:
        self._directory = os.path.join(root, release)

    @cached_property
    def installed(self) -> dict[str, list[str]]:
        """Names of the modules that can be loaded, and of those that each needs."""
        text = self._read("modules.dep") or self._read("modules.order")
        lines = (line.partition(":") for line in text.splitlines() if line)
        return {module_name(path): [module_name(needed) for needed in rest.split()] for path, _, rest in lines}

    @cached_property
    def built_in(self) -> frozenset[str]:
        """Names of those that are part of the kernel's own file."""
        return frozenset(module_name(line) for line in self._read("modules.builtin").splitlines() if line)

    def exporting(self, pattern: str) -> list[str]:
        """Modules that export a symbol that matches a ``*`` pattern, in the order of their index."""
        owners: dict[str, list[str]] = {}
        for symbol, owner in self._exports:
            owners.setdefault(symbol, []).append(owner)
        modules = dict.fromkeys(owner for symbol in matching(pattern, list(owners)) for owner in owners[symbol])
        return list(modules)[:MOST]

    def named_like(self, pattern: str) -> list[str]:
        """The module whose whole name stands before a function's name, and those of its kin that it needs.

        ``ext4`` for ``ext4_map_blocks``, ``nvme`` and ``nvme_core`` for ``nvme_submit_io``.
        """
        stem = pattern.lstrip("_")
        name = max((name for name in self.installed if stem.startswith(f"{name}_")), key=len, default="")
        kin = self._kin(pattern)
        return [name, *(needed for needed in self.installed[name] if needed in kin)][:MOST] if name else []

    def of_family(self, pattern: str) -> list[str]:
        """Modules that begin with the same word, those first that the others need: ``sctp_diag`` for ``sctp_fill``."""
        kin = self._kin(pattern)
        needs = [needed for name in kin for needed in self.installed[name]]
        return sorted(kin, key=lambda name: (-needs.count(name), len(name), name))[:MOST]

    def _kin(self, pattern: str) -> list[str]:
        word = pattern.lstrip("_").partition("_")[0]
        return [] if "*" in word else [name for name in self.installed if f"{name}_".startswith(f"{word}_")]

    @cached_property
    def _exports(self) -> list[tuple[str, str]]:
        return re.findall(r"(?m)^alias symbol:(\S+) (\S+)$", self._read("modules.symbols"))

    def _read(self, name: str) -> str:
        return read_text(os.path.join(self._directory, name))


def module_name(path: str) -> str:
    """The name of a loaded module by its file: ``kernel/drivers/md/md-mod.ko.xz`` is ``md_mod``."""
    return os.path.basename(path.strip()).partition(".ko")[0].replace("-", "_")
