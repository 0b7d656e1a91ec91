"""Functions of the kernel that kprobes and fentry can hook, by module.

ftrace's own list is the best source; where the kernel does not show it, its symbol table has the names, too. Both take
the kernel longer to write than all else that a long listing does, so the whole list is cached until the next boot or
change of modules. A single name is looked up in the source.
"""

from __future__ import annotations

import os
import re
from functools import cached_property
from typing import TYPE_CHECKING

from pytrace.base import kernel_files
from pytrace.runtime.machine import fingerprints
from pytrace.runtime.machine.name_patterns import exact, matching

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytrace.runtime.machine.kallsyms import Kallsyms

BLACKLIST = "/sys/kernel/debug/kprobes/blacklist"

NEVER = r"(?:arch_cpu_idle|default_idle|bpf_dispatcher_xdp_func)(?!\w)|rcu_|__ftrace_invalid_address__"
"""Source of an expression for functions that are left out although the kernel lists them: probing them harms it, or
they are no functions.
"""

_STUBS = "__pfx_|__cfi_|__SCT__|__SCK__|__pi_"
"""Starts of names in kallsyms that are no functions: padding, type checks, static calls, code before relocation."""

_CHUNK = 1 << 18

ByModule = dict[str, list[str]]
"""Names by the module that defines them, empty for the kernel proper."""


class KernelFunctions:
    """The functions that can be hooked, from the list at *path*, or without one from the kernel's symbols.

    The list of a user (not *live*) is read anew each time.
    """

    def __init__(self, path: str, kallsyms: Callable[[], Kallsyms], *, live: bool = True) -> None:
        self._kallsyms = kallsyms
        self._live = live
        self._list = TraceableFunctions(path) if path else None
        self._found: dict[tuple[str, str], ByModule] = {}

    def match(self, pattern: str, module: str = "") -> ByModule:
        """Names by ``*`` patterns, each once; *module* empty for any, ``vmlinux`` for the kernel proper."""
        key = (pattern, module)
        if key not in self._found:
            single = exact(pattern) and exact(module)
            by_module = self._one(pattern, module) if single else self._several(pattern, module)
            self._found[key] = {owner: names for owner, names in by_module.items() if names}
        return self._found[key]

    def close(self) -> None:
        """Close the file of the list."""
        if self._list is not None:
            self._list.close()

    def blacklisted(self, name: str) -> bool:
        """True if the kernel refuses kprobes on a function."""
        return name in self._blacklist

    @cached_property
    def _blacklist(self) -> frozenset[str]:
        return blacklist()

    def _one(self, name: str, module: str) -> ByModule:
        if self.blacklisted(name):
            return {}
        if self._list is not None:
            owners = self._list.owners(name, module)
        else:
            modules = self._kallsyms().owners(name, module, without=rf"{_STUBS}|{NEVER}")
            owners = [owner for owner in modules if not _made(owner)]
        return {owner: [name] for owner in owners}

    def _several(self, pattern: str, module: str) -> ByModule:
        wanted = set(matching(module or "*", [owner or "vmlinux" for owner in self._all]))
        return {owner: matching(pattern, names) for owner, names in self._all.items() if (owner or "vmlinux") in wanted}

    @cached_property
    def _all(self) -> ByModule:
        boot, modules = fingerprints.boot_fact(), fingerprints.modules_fact()
        if not self._live or not boot[1]:
            return self._read()
        source = "" if self._list is None else self._list.path
        stamp = (*fingerprints.kernel_fact(), *boot, *modules, source, str(os.path.exists(BLACKLIST)))
        return fingerprints.kept_lists("functions", stamp, self._read)

    def _read(self) -> ByModule:
        if self._list is not None:
            by_module = self._list.lists()
        else:
            lists = self._kallsyms().function_lists(without=rf"{_STUBS}|{NEVER}")
            by_module = {owner: names for owner, names in lists.items() if not _made(owner)}
        # Parts of functions that the compiler split off are found by their full name only.
        return {
            owner: [name for name in names if ".part." not in name and name not in self._blacklist]
            for owner, names in by_module.items()
        }


def _made(owner: str) -> bool:
    """True if an owner in kallsyms is no module: what the kernel makes while it runs (BPF programs, trampolines)."""
    return owner == "bpf" or owner.startswith("__builtin__")


def never_traceable(name: str) -> bool:
    """True if a function is excluded from every list (see :data:`NEVER`)."""
    return re.match(NEVER, name) is not None


def blacklist(path: str = BLACKLIST) -> frozenset[str]:
    """Functions on which the kernel refuses kprobes; empty where debugfs does not show them."""
    lines = (line.split() for line in kernel_files.lines(kernel_files.read_text(path)))
    return frozenset(parts[-1] for parts in lines if len(parts) > 1)


class TraceableFunctions:
    """The functions that ftrace can hook: lines ``name`` or ``name [module]``.

    The kernel takes longest over the modules at the end of the list, so it is read only as far as a question needs.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._text = b"\n"
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 - owned by the KernelInfo, closed when read through
        self._complete = False

    def close(self) -> None:
        """Read no further: what was read is all that is known from now on."""
        self._complete = True
        self._file.close()

    def owners(self, name: str, module: str = "") -> list[str]:
        """The modules that have a function of that name, or *module* if it has; empty for the kernel proper."""
        if module and module != "vmlinux":
            return self._owners(self._all(), name, module)
        while True:
            modules = self._owners(self._text, name, module)
            if modules or not self._read_more():
                return modules

    def lists(self) -> ByModule:
        """All names, each once, by module."""
        text = self._all()
        bracket = text.find(b"[")
        end = len(text) if bracket < 0 else text.rfind(b"\n", 0, bracket) + 1
        core = re.compile(r"\n((?!" + NEVER + r")\S+)(?=\s*\n)")
        by_module = {"": list(dict.fromkeys(core.findall(kernel_files.text(text[:end]))))}
        added = re.compile(r"(?m)^((?!" + NEVER + r")\S+)[ \t]*(?:\[([^\]\n]*)\])?[ \t]*$")
        for name, owner in dict.fromkeys(added.findall(kernel_files.text(text[end:]))):
            by_module.setdefault(owner, []).append(name)
        return by_module

    def _all(self) -> bytes:
        while self._read_more():
            pass
        return self._text

    def _read_more(self) -> bool:
        """Read on; False at the end of the list."""
        if self._complete:
            return False
        parts = []
        size = 0
        while size < _CHUNK:
            part = self._file.read(_CHUNK)
            if not part:
                self._complete = True
                self._file.close()
                break
            parts.append(part)
            size += len(part)
        # A read may end inside a line; the search wants a line end after every name.
        self._text += b"".join(parts) + (b"\n" if self._complete else b"")
        return size > 0

    @staticmethod
    def _owners(text: bytes, name: str, module: str) -> list[str]:
        where = rb"(?:[ \t]+\[([^\]\n]*)\])?"
        if module == "vmlinux":
            where = rb"()"
        elif module:
            where = rb"[ \t]+\[(" + re.escape(module.encode(errors="surrogateescape")) + rb")\]"
        never = rb"(?!" + NEVER.encode() + rb")"
        line = re.compile(rb"\n" + never + re.escape(name.encode(errors="surrogateescape")) + where + rb"[ \t]*(?=\n)")
        return list(dict.fromkeys(kernel_files.text(match.group(1) or b"") for match in line.finditer(text)))
