"""The kernel's own symbol table, ``/proc/kallsyms``.

The file has 100,000 lines and more. It is read once and stays bytes: lines of the kernel proper are in address order
and start with 16 hexadecimal digits, so a look-up bisects the lines; only those of modules and BPF programs (unordered,
after them) are parsed.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from functools import cached_property

import msgspec

from pytrace.base import kernel_files

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

    def owners(self, name: str, module: str = "", without: str = "") -> list[str]:
        """The modules that have code of that name, or *module* if it has; empty for the kernel proper.

        *without* is the source of an expression for the starts of names that are left out.
        """
        owner = r"(?:\t\[(.*)\])?"
        if module == "vmlinux":
            owner = "()"
        elif module:
            owner = rf"\t\[({re.escape(module)})\]"
        barred = f"(?!{without})" if without else ""
        accepts = re.compile(_bytes(rf"(?m) [tTwW] {barred}{re.escape(name)}{owner}$"))
        modules: dict[str, None] = {}
        # Searched for as it is, which is quicker, then checked by the expression.
        needle = b" " + _bytes(name)
        at = self.text.find(needle)
        while at >= 0:
            match = accepts.match(self.text, at - 2)
            if match:
                modules[kernel_files.text(match.group(1) or b"")] = None
            at = self.text.find(needle, at + 1)
        return list(modules)

    def function_lists(self, without: str) -> dict[str, list[str]]:
        """Names of all code symbols by module (empty for the kernel), each once; *without* as in :meth:`owners`."""
        core, added = kernel_files.text(self.text[: self._core_end]), kernel_files.text(self.text[self._core_end :])
        by_module = {"": list(dict.fromkeys(re.findall(rf" [tTwW] (?!{without})(\S+)\n", core)))}
        for name, owner in dict.fromkeys(re.findall(rf" [tTwW] (?!{without})(\S+)\t\[(.*)\]\n", added)):
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
        return KernelPlace(kernel_files.text(line[19:]), address - base, "")

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
                rows.append((address, kernel_files.text(name), kernel_files.text(module)))
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
