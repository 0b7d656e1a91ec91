"""Where addresses lie in what was linked: the same numbers in each process and after each boot.

Output does not need them; snapshots compare the places of two runs by them, and profilers' formats have them. Snapshots
of runs whose functions another host names (``RunOptions.places``) have build ids and addresses in place of functions,
so no symbols are read while a script runs; `MetBinaries` names them when asked.
"""

from __future__ import annotations

import mmap
import os
from bisect import bisect_left
from enum import IntEnum
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.binaries.elf_file import parse_notes
from pytrace.runtime.binaries.user_binary import Binary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pytrace.runtime.binaries.elf_file import Segment
    from pytrace.runtime.machine.kernel_functions import Kallsyms
    from pytrace.runtime.machine.procfs import Mapping
    from pytrace.runtime.stacks.address_space import AddressSpace, Image
    from pytrace.runtime.stacks.images import AnyBinary, Images, SymbolFrame


_KERNEL_LINKED = {"x86_64": 0xFFFFFFFF81000000}
"""Address of ``_text`` in images of the kernel: that of the default ``CONFIG_PHYSICAL_START``, which distributions use.
Addresses in kernels of other machines count from ``_text``."""


class ImagePlace(msgspec.Struct, frozen=True):
    """A place in a binary, the kernel or a kernel module.

    *build_id* is hexadecimal, empty when it is not known. *address* is the address there as it was linked; the position
    in the file where that cannot be read; 0 for functions in generated code and BPF programs, which lie elsewhere each
    time; and the address itself for what is not known at all.
    """

    build_id: str
    address: int


def is_file(mapping: Mapping) -> bool:
    """True if a mapping is of a file with code."""
    return bool(mapping.inode) and not mapping.path.startswith(("/memfd:", "/dev/zero", "["))


def is_memory_file(mapping: Mapping) -> bool:
    """True if a mapping is of a file by ``memfd_create(2)``: a program or library, or code that was compiled there."""
    return bool(mapping.inode) and mapping.path.startswith("/memfd:")


def is_generated(mapping: Mapping) -> bool:
    """True if a mapping has no file, or a memory file, as code that was compiled at run time."""
    return mapping.path.startswith(("/memfd:", "/dev/zero", "[anon")) or not (mapping.inode or mapping.path)


_NEAR = 4 << 20
"""Bytes between anonymous memory and other parts of the file that it stands for: twice a huge page."""
_MOST_NEAR = 8


def replaced(
    mapping: Mapping, files: Sequence[Mapping], segments: Callable[[Mapping], Iterable[Segment]]
) -> Mapping | None:
    """The part of a file that anonymous memory stands for: code that a program has moved to huge pages.

    The file's other parts, among all that the process has mapped of *files* in order of address, say where it was
    loaded; the code must lie in one of its executable *segments*. None for other memory.
    """
    if mapping.inode or not is_generated(mapping):
        return None
    at = bisect_left(files, mapping.start, key=lambda row: row.start)
    near = [
        row for row in files[max(0, at - _MOST_NEAR) : at + _MOST_NEAR]
        if is_file(row) and row.start - mapping.end < _NEAR and mapping.start - row.end < _NEAR
    ]  # fmt: skip
    for device, inode in dict.fromkeys((row.device, row.inode) for row in near):
        parts = [row for row in near if (row.device, row.inode) == (device, inode)]
        loaded = list(segments(parts[0]))
        # A page of the file that two segments share is mapped twice; together all parts leave one distance.
        distances = set.intersection(*({
            part.start - part.offset + one.offset - one.address
            for one in loaded if one.offset & -mmap.PAGESIZE <= part.offset < one.offset + one.file_size
        } for part in parts))  # fmt: skip
        if len(distances) != 1:
            continue
        (distance,) = distances
        for one in loaded:
            inside = mapping.start - distance
            if one.executable and one.address & -mmap.PAGESIZE <= inside < one.address + one.file_size:
                return replace(
                    parts[0], start=mapping.start, end=mapping.end, offset=one.offset + inside - one.address
                )
    return None


class LinkedPlace(msgspec.Struct, frozen=True):
    """A place in a binary with a build id, whose path is *module* for its process."""

    module: str
    build_id: str
    address: int


_BUILD_ID = range(8, 65)
"""Lengths of build ids by which others know a binary."""


def linked(
    image: Image, address: int, binary: Callable[[AddressSpace, Mapping], AnyBinary | None]
) -> tuple[LinkedPlace, AnyBinary] | None:
    """Where an address of a process lies, and in what; None where that is no file with a build id."""
    mapping = image.find(address)
    if mapping is None or not (is_file(mapping) or is_memory_file(mapping)):
        return None
    opened = binary(image.space, mapping)
    if opened is None:
        return None
    inside, identity = opened.elf.address_at(address - mapping.start + mapping.offset), build_id(opened)
    if inside is None or len(identity) not in _BUILD_ID:
        return None
    return LinkedPlace(mapping.path, identity, inside), opened


def build_id(binary: AnyBinary) -> str:
    """The build id of a binary; empty where it has none, or is damaged."""
    try:
        return binary.elf.build_id
    except TraceError:
        return ""


class KernelImages:
    """The kernel and its modules."""

    def __init__(self) -> None:
        self._build_ids: dict[str, str] = {}

    def place(self, kallsyms: Kallsyms, address: int) -> ImagePlace:
        """Where an address of the kernel lies."""
        symbol = kallsyms.place(address)
        if symbol is None:
            return ImagePlace("", address)
        module = symbol.module
        if not module:
            start = kallsyms.text_start
            linked = address if start is None else address - start + _KERNEL_LINKED.get(os.uname().machine, 0)
            return ImagePlace(self._build_id(""), linked)
        start = kallsyms.module_start(module)
        return ImagePlace(self._build_id(module), 0 if start is None else address - start)

    def _build_id(self, module: str) -> str:
        known = self._build_ids.get(module)
        if known is None:
            path = f"/sys/module/{module}/notes/.note.gnu.build-id" if module else "/sys/kernel/notes"
            known = self._build_ids[module] = _build_id_of_notes(path)
        return known


def _build_id_of_notes(path: str) -> str:
    try:
        with open(path, "rb") as file:
            notes = parse_notes(file.read())
    except OSError:
        # No such module any more, a BPF program, or a kernel that was linked without a build id.
        return ""
    return next((body.hex() for owner, kind, body in notes if owner == b"GNU" and kind == 3), "")


_BINARIES = 4096
"""Build ids that are remembered: the first ones."""
_COPIES = 4
"""Files with one build id that are remembered: stripped ones, and others."""


class Detail(IntEnum):
    """How much a machine knows of the functions of a binary. Machines with the same detail name them equally."""

    NOTHING = 0
    BINARY = 1
    """What is in the stripped binary."""
    SERVERS = 2
    """As much, and servers of debuginfod may have more."""
    SYMBOLS = 3
    """All functions."""
    LINES = 4
    """All functions, source lines, and inlined functions."""


def detail(binary: AnyBinary) -> Detail:
    """How much is known of a binary. No symbols are read for that."""
    if not isinstance(binary, Binary):
        return Detail(binary.detail())
    try:
        if binary.debug is not None:
            return Detail.LINES
        if not binary.is_stripped or binary.debug_path is not None:
            return Detail.SYMBOLS
    except (TraceError, OSError):
        # Damaged: its functions are those that can be read.
        return Detail.BINARY
    return Detail.SERVERS if os.environ.get("DEBUGINFOD_URLS") else Detail.BINARY


class MetBinaries:
    """Binaries by build id, opened when they were mapped: processes and containers end before anybody asks."""

    def __init__(self, images: Images) -> None:
        self._images = images
        self._binaries: dict[str, list[AnyBinary]] = {}

    def add(self, build_id: str, binary: AnyBinary) -> None:
        """Remember a binary."""
        known = self._binaries.get(build_id)
        if known is None and len(self._binaries) < _BINARIES:
            self._binaries[build_id] = [binary]
        elif known is not None and binary not in known and len(known) < _COPIES:
            known.append(binary)

    def details(self) -> dict[str, int]:
        """How much is known of each, by build id."""
        for copies in self._binaries.values():
            copies.sort(key=detail, reverse=True)
        return {build_id: int(detail(copies[0])) for build_id, copies in self._binaries.items()}

    def functions(self, build_id: str, address: int) -> list[SymbolFrame]:
        """The functions at an address of a binary as it was linked, inlined ones first; empty for unknown ones."""
        copies = self._binaries.get(build_id)
        frames = self._images.frames(copies[0], "", address) if copies else []
        return frames if frames and frames[0].name else []
