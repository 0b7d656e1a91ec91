"""The kernel's symbols, the functions among them that kprobes and fentry can hook, and the modules that are installed.

``/proc/kallsyms`` has 100,000 lines and more. It is read once and stays bytes: lines of the kernel proper are in
address order and start with 16 hexadecimal digits, so a look-up bisects the lines; only those of modules and BPF
programs (unordered, after them) are parsed.

ftrace's own list is the best source of functions to hook; where the kernel does not show it, its symbol table has the
names, too. Both take the kernel longer to write than all else that a long listing does, so the whole list is cached
until the next boot or change of modules. Static functions of several files may have one name, which is in the list
once for each.

Modules that are not loaded are those that ``depmod`` wrote below ``/lib/modules``: ``modules.dep`` names their files,
``modules.symbols`` what each exports (kmod's depmod(8)). Functions that a module does not export are nowhere listed
while it is not loaded; most carry its name in front.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left, bisect_right
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from pytrace.base import kernel_files
from pytrace.core.text import matching
from pytrace.runtime.machine import fingerprints

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


# ---------------------------------------------------------------------------------------------- symbols

KERNEL_HALF = 1 << 63
"""Addresses below are no code of the kernel (per-CPU offsets and constants have entries, too)."""


_MODULE = re.compile(r"(?P<name>\S+) (?P<size>[0-9]+)\b(?:.* 0x(?P<address>[0-9a-f]{1,16})\b)?")
_ADDED = re.compile(rb"(?m)^([0-9a-f]{1,16}) . ([^\t\n]*)(?:\t\[(.*)\])?$")
"""A symbol of a module or a BPF program."""


class KernelPlace(msgspec.Struct, frozen=True):
    """The symbol at a kernel address, the distance from its start, and its module (empty for the kernel proper)."""

    name: str
    offset: int
    module: str


def _bytes(text: str) -> bytes:
    """A name as a script has it, which may contain bytes that are no UTF-8."""
    return text.encode(errors="surrogateescape")


def _text(data: bytes) -> str:
    """Bytes of a file of the kernel as text, in which names may be no UTF-8."""
    return data.decode(errors="surrogateescape")


class Kallsyms:
    """One reading of the symbol table."""

    def __init__(self, path: str = "/proc/kallsyms", modules: str = "/proc/modules") -> None:
        self._path = path
        self._modules = modules

    @cached_property
    def text(self) -> bytes:
        """The whole file; empty where ``/proc`` is mounted with ``subset=pid`` and has no such file."""
        try:
            with open(self._path, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return b""

    @cached_property
    def _core_end(self) -> int:
        """Where the lines of modules and BPF programs begin."""
        bracket = self.text.find(b"\t[")
        return len(self.text) if bracket < 0 else self.text.rfind(b"\n", 0, bracket) + 1

    @cached_property
    def hidden(self) -> bool:
        """True when the kernel shows zeros in place of addresses (``kptr_restrict``, missing rights)."""
        return re.search(rb"(?m)^0*[1-9a-f][0-9a-f]* [tT] ", self.text) is None

    @cached_property
    def withheld(self) -> str:
        """Why the addresses are hidden, and what to do; empty when they are not, or when there are no symbols."""
        if not self.text or not self.hidden:
            return ""
        if kernel_files.read_text("/proc/sys/kernel/kptr_restrict").strip() == "2":
            return "/proc/sys/kernel/kptr_restrict hides them from everybody while it is 2"
        return "run it as root, or with CAP_SYSLOG"

    def has(self, name: str) -> bool:
        """True if there is a symbol of that name, whatever its address."""
        return self.in_kernel(name) or self.text.find(b" " + _bytes(name) + b"\t", self._core_end) >= 0

    def address(self, name: str) -> int | None:
        """Address of a symbol; the first one of that name."""
        wanted = _bytes(name)
        at = self.text.find(b" " + wanted + b"\n")
        if at < 0:
            at = self.text.find(b" " + wanted + b"\t", self._core_end)
        return self._address_before(at)

    def addresses(self, name: str, module: str = "") -> list[int]:
        """Where all functions of that name start; none where addresses are hidden.

        Code that ran at boot only (``__init``) still has symbols, but is gone.
        """
        owner = "" if module in {"", "vmlinux"} else f"\t[{module}]"
        named = self._occurrences(b" " + _bytes(f"{name}{owner}\n"))
        starts = dict.fromkeys(self._address_before(at) for at in named if self.text[at - 1 : at] in b"tTwW")
        return [start for start in starts if start and start not in self._boot_code]

    @cached_property
    def _boot_code(self) -> range:
        return range(self.address("_sinittext") or 0, self.address("_einittext") or 0)

    def _occurrences(self, needle: bytes) -> Iterator[int]:
        at = self.text.find(needle)
        while at >= 0:
            yield at
            at = self.text.find(needle, at + 1)

    @cached_property
    def text_start(self) -> int | None:
        """Where the code of the kernel starts (``_text``); None when it is hidden."""
        return self.address("_text")

    def module_start(self, module: str) -> int | None:
        """Where the code of a loaded module starts; None for what is no module (``bpf``), or when it is hidden."""
        known = self._module_ranges.get(module)
        return known[0] if known is not None and known[0] else None

    def in_kernel(self, name: str) -> bool:
        """True if the kernel proper has a symbol of that name."""
        return self.text.find(b" " + _bytes(name) + b"\n", 0, self._core_end) >= 0

    def place(self, address: int) -> KernelPlace | None:
        """The symbol that covers a kernel address."""
        if address < KERNEL_HALF:
            return None
        added = self._added_place(address)
        if added is not None:
            return added
        return self._core_place(address)

    def function_size(self, name: str, module: str = "") -> int | None:
        """Bytes from the start of a function to the next symbol; None when it is not known."""
        owners = self.owners(name, module)
        address = self._address_in(name, owners[0]) if owners else None
        if address is None:
            return None
        if owners[0]:
            following = [start for start in self._added[0] if start > address]
            return min(following) - address if following else None
        after = self._core_after(address)
        return int(self._core[after][:16], 16) - address if after < len(self._core) else None

    def _address_in(self, name: str, module: str) -> int | None:
        owner = b"\t[" + _bytes(module) + b"]\n" if module else b"\n"
        return self._address_before(self.text.find(b" " + _bytes(name) + owner))

    def _address_before(self, at: int) -> int | None:
        """The address in the line of a name at a position; None for -1, and where addresses are hidden."""
        if at < 0 or self.hidden:
            return None
        return int(self.text[self.text.rfind(b"\n", 0, at) + 1 : at].split()[0], 16)

    def owners(self, name: str, module: str = "") -> list[str]:
        """The modules that have code of that name, or *module* if it has; empty for the kernel proper."""
        owner = r"(?:\t\[(.*)\])?"
        if module == "vmlinux":
            owner = "()"
        elif module:
            owner = rf"\t\[({re.escape(module)})\]"
        accepts = re.compile(_bytes(rf"(?m) [tTwW] {re.escape(name)}{owner}$"))
        modules: dict[str, None] = {}
        # Searched for as it is, which is quicker, then checked by the expression.
        for at in self._occurrences(b" " + _bytes(name)):
            match = accepts.match(self.text, at - 2)
            if match:
                modules[_text(match.group(1) or b"")] = None
        return list(modules)

    def function_lists(self, without: str) -> dict[str, list[str]]:
        """Names of all code symbols by module (empty for the kernel proper), each as often as functions have it.

        *without* is the source of an expression for the starts of names that are left out.
        """
        core, added = _text(self.text[: self._core_end]), _text(self.text[self._core_end :])
        by_module = {"": re.findall(rf" [tTwW] (?!{without})(\S+)\n", core)}
        for name, owner in re.findall(rf" [tTwW] (?!{without})(\S+)\t\[(.*)\]\n", added):
            by_module.setdefault(owner, []).append(name)
        return by_module

    # ---- kernel proper

    @cached_property
    def _core(self) -> list[bytes]:
        """The lines of the kernel proper, in order of address."""
        return self.text[: self._core_end].splitlines()

    def _core_after(self, address: int) -> int:
        """The number of the first line with a higher address."""
        return bisect_right(self._core, b"%016x~" % address)

    def _core_place(self, address: int) -> KernelPlace | None:
        after = self._core_after(address)
        digits = self._core[after - 1][:16] if after else b"0"
        base = int(digits, 16)
        if base < KERNEL_HALF or address >= self._core_limit:
            return None
        # Aliases share an address; the kernel itself names the first of them.
        line = self._core[bisect_left(self._core, digits)]
        return KernelPlace(_text(line[19:]), address - base, "")

    @cached_property
    def _core_limit(self) -> int:
        """End of the kernel image: the last symbol (``_end`` or later), and the page that it is in."""
        return int(self._core[-1][:16], 16) + 4096 if self._core else 0

    # ---- modules and BPF programs

    @cached_property
    def _added(self) -> tuple[list[int], list[tuple[str, str]]]:
        """Addresses in order, with name and module of each."""
        rows = []
        for digits, name, module in _ADDED.findall(self.text, self._core_end):
            address = int(digits, 16)
            if address >= KERNEL_HALF:
                rows.append((address, _text(name), _text(module)))
        rows.sort(key=lambda row: row[0])
        return [row[0] for row in rows], [row[1:] for row in rows]

    @cached_property
    def _module_ranges(self) -> dict[str, tuple[int, int]]:
        """Start and end of each loaded module's memory; none in a kernel without loadable modules."""
        ranges = {}
        for line in kernel_files.lines(kernel_files.read_text(self._modules)):
            match = _MODULE.match(line)
            if match is not None:
                base = int(match["address"] or "0", 16)
                ranges[match["name"]] = (base, base + int(match["size"]))
        return ranges

    def _added_place(self, address: int) -> KernelPlace | None:
        addresses, names = self._added
        at = bisect_right(addresses, address) - 1
        if at < 0:
            return None
        name, module = names[at]
        base = addresses[at]
        limit = self._limit(at, module)
        if address >= limit:
            return None
        return KernelPlace(name, address - base, module)

    def _limit(self, at: int, module: str) -> int:
        """End of the code that symbol number *at* may cover."""
        addresses, names = self._added
        known = self._module_ranges.get(module)
        if known and known[0] <= addresses[at] < known[1]:
            return known[1]
        if module == "bpf" or names[at][0].startswith("bpf_"):
            # A BPF program is at most one pack of 2 MiB; the next program's symbol usually ends it sooner.
            return addresses[at] + (2 << 20)
        following = addresses[at + 1] if at + 1 < len(addresses) else addresses[at]
        return max(following, addresses[at] + 4096)


# ---------------------------------------------------------------------------------------------- traceable functions


_BLACKLIST = "/sys/kernel/debug/kprobes/blacklist"

NEVER = r"(?:arch_cpu_idle|default_idle|bpf_dispatcher_xdp_func)(?!\w)|rcu_|__ftrace_invalid_address__"
"""Source of an expression for functions that are left out although the kernel lists them: probing them harms it, or
they are no functions.
"""

_STUBS = "__pfx_|__cfi_|__SCT__|__SCK__|__pi_"
"""Starts of names in kallsyms that are no functions: padding, type checks, static calls, code before relocation."""

_ByModule = dict[str, list[str]]
"""Names by the module that defines them, empty for the kernel proper; each as often as functions have it."""


class KernelFunctions:
    """The functions that can be hooked, from the list at *path*, or without one from the kernel's symbols.

    The list of a user (not *live*) is read anew each time.
    """

    def __init__(self, path: str, kallsyms: Callable[[], Kallsyms], *, live: bool = True) -> None:
        self._kallsyms = kallsyms
        self._live = live
        self._path = path
        if path:
            open(path, "rb").close()
        self._found: dict[tuple[str, str], _ByModule] = {}

    def match(self, pattern: str, module: str = "") -> _ByModule:
        """Names by ``*`` patterns, each as often as functions have it.

        *module* is empty for any, ``vmlinux`` for the kernel proper.
        """
        key = (pattern, module)
        if key not in self._found:
            single = "*" not in pattern and "*" not in module
            by_module = self._one(pattern, module) if single else self._several(pattern, module)
            self._found[key] = {owner: names for owner, names in by_module.items() if names}
        return self._found[key]

    def blacklisted(self, name: str) -> bool:
        """True if the kernel refuses kprobes on a function."""
        return name in self._blacklist

    @cached_property
    def _blacklist(self) -> frozenset[str]:
        return blacklist()

    def _one(self, name: str, module: str) -> _ByModule:
        owners = [module] if module not in {"", "vmlinux"} else [""] if module else list(self._all)
        return {owner: [name] * self._all.get(owner, []).count(name) for owner in owners}

    def _several(self, pattern: str, module: str) -> _ByModule:
        wanted = set(matching(module or "*", [owner or "vmlinux" for owner in self._all]))
        return {
            # Parts of functions that the compiler split off are found by their full name only.
            owner: [name for name in matching(pattern, names) if ".part." not in name]
            for owner, names in self._all.items()
            if (owner or "vmlinux") in wanted
        }

    @cached_property
    def _all(self) -> _ByModule:
        boot, modules = fingerprints.boot_fact(), fingerprints.modules_fact()
        if not self._live or not boot[1]:
            return self._read()
        stamp = (*fingerprints.kernel_fact(), *boot, *modules, self._path, str(os.path.exists(_BLACKLIST)))
        return fingerprints.kept_lists("functions", stamp, self._read)

    def _read(self) -> _ByModule:
        if self._path:
            by_module = traceable_functions(self._path)
        else:
            lists = self._kallsyms().function_lists(without=rf"{_STUBS}|{NEVER}")
            by_module = {owner: names for owner, names in lists.items() if not _made_by_kernel(owner)}
        return {owner: [name for name in names if name not in self._blacklist] for owner, names in by_module.items()}


def _made_by_kernel(owner: str) -> bool:
    """True if an owner in kallsyms is no module: what the kernel makes while it runs (BPF programs, trampolines)."""
    return owner == "bpf" or owner.startswith("__builtin__")


def never_traceable(name: str) -> bool:
    """True if a function is excluded from every list (see :data:`NEVER`)."""
    return re.match(NEVER, name) is not None


def blacklist(path: str = _BLACKLIST) -> frozenset[str]:
    """Functions on which the kernel refuses kprobes; empty where debugfs does not show them."""
    lines = (line.split() for line in kernel_files.lines(kernel_files.read_text(path)))
    return frozenset(parts[-1] for parts in lines if len(parts) > 1)


def traceable_functions(path: str) -> _ByModule:
    """The functions that ftrace can hook, from a list with lines ``name`` or ``name [module]``."""
    with open(path, "rb") as file:
        text = _text(file.read())
    by_module: _ByModule = {"": []}
    line = re.compile(r"(?m)^((?!" + NEVER + r")\S+)[ \t]*(?:\[([^\]\n]*)\])?[ \t]*$")
    for name, owner in line.findall(text):
        by_module.setdefault(owner, []).append(name)
    return by_module


# ---------------------------------------------------------------------------------------------- installed modules

_MOST_MODULES = 3
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
        return list(modules)[:_MOST_MODULES]

    def named_like(self, pattern: str) -> list[str]:
        """The module whose whole name stands before a function's name, and those of its kin that it needs.

        ``ext4`` for ``ext4_map_blocks``, ``nvme`` and ``nvme_core`` for ``nvme_submit_io``.
        """
        stem = pattern.lstrip("_")
        name = max((name for name in self.installed if stem.startswith(f"{name}_")), key=len, default="")
        kin = self._kin(pattern)
        return [name, *(needed for needed in self.installed[name] if needed in kin)][:_MOST_MODULES] if name else []

    def of_family(self, pattern: str) -> list[str]:
        """Modules that begin with the same word, those first that the others need: ``sctp_diag`` for ``sctp_fill``."""
        kin = self._kin(pattern)
        needs = [needed for name in kin for needed in self.installed[name]]
        return sorted(kin, key=lambda name: (-needs.count(name), len(name), name))[:_MOST_MODULES]

    def _kin(self, pattern: str) -> list[str]:
        word = pattern.lstrip("_").partition("_")[0]
        return [] if "*" in word else [name for name in self.installed if f"{name}_".startswith(f"{word}_")]

    @cached_property
    def _exports(self) -> list[tuple[str, str]]:
        return re.findall(r"(?m)^alias symbol:(\S+) (\S+)$", self._read("modules.symbols"))

    def _read(self, name: str) -> str:
        return kernel_files.read_text(os.path.join(self._directory, name))


def module_name(path: str) -> str:
    """The name of a loaded module by its file: ``kernel/drivers/md/md-mod.ko.xz`` is ``md_mod``."""
    return os.path.basename(path.strip()).partition(".ko")[0].replace("-", "_")
