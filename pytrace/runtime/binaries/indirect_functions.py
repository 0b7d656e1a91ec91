"""IFUNC symbols: which functions stand for them on this machine. The symbol itself is the resolver, which the dynamic
linker calls once for each reference to ask for the function to call.

The answer is looked for where the dynamic linker has written it, in slots of the GOT of processes that map the file;
then in the C library and others that this process has mapped, if they are the same build; then among the functions
whose addresses the resolver may return. Everything in other processes is only taken for an answer if a function of the
file starts there.

Source: the processor supplements of the ELF ABI for relocations; ``elf/dl-irel.h`` of glibc.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from pytrace.core import instructions
from pytrace.core.diagnostics import TraceError
from pytrace.core.instructions import BadCodeError, Decoder
from pytrace.runtime.binaries.elf_file import EM_AARCH64, EM_X86_64, ElfFile, UnwindEntries, read_file
from pytrace.runtime.machine import procfs
from pytrace.runtime.machine.syscalls import function_address

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytrace.runtime.binaries.elf_file import Symbol
    from pytrace.runtime.binaries.user_binary import Binary

MOST_PROCESSES = 256
"""Processes whose mappings are read to find those that map a file."""
MOST_ASKED = 8
"""Processes that map the file, whose slots are read."""
_MOST_RELOCATIONS = 1 << 22
"""Relocations of one section of a file that are looked at; the largest programs have a million."""
_MOST_OBJECTS = 128
"""Files of one process whose relocations are read."""

_BY_NAME = {EM_X86_64: (6, 7), EM_AARCH64: (1025, 1026)}
"""``R_X86_64_GLOB_DAT``, ``R_X86_64_JUMP_SLOT``; the same of AArch64."""
_BY_RESOLVER = {EM_X86_64: 37, EM_AARCH64: 1032}
"""``R_X86_64_IRELATIVE``, ``R_AARCH64_IRELATIVE``: the addend is the resolver's address."""
_ADDRESS = struct.Struct("<Q")
_LEA, _LOAD, _MOVE = 0x8D, 0x8B, 0xC7


class _ElsewhereError(Exception):
    """The function is in no file, with the reason for the user."""


class Chosen(msgspec.Struct, frozen=True):
    """Addresses of the functions that stand for a symbol; if there are none, *reason* says why."""

    addresses: tuple[int, ...] = ()
    reason: str = ""


class _Relocations:
    """The relocations of one file that the dynamic linker writes functions' addresses for."""

    def __init__(self, file: ElfFile) -> None:
        self._file = file
        self._by_name = _BY_NAME.get(file.machine, ())
        self._by_resolver = _BY_RESOLVER.get(file.machine)

    def _rows(self) -> Iterator[tuple[int, int, int]]:
        """Place, kind and symbol, and addend. They are not kept: a file may have millions."""
        for name in (".rela.plt", ".rela.dyn", ".rela.iplt"):
            section = self._file.section(name)
            data = memoryview(b"") if section is None else self._file.contents(section, _MOST_RELOCATIONS * 24)
            yield from struct.iter_unpack("<QQq", data[: len(data) // 24 * 24])

    def slots(self, name: str) -> list[int]:
        """Addresses of the slots for a symbol."""
        numbers = self._numbers(name)
        if not numbers:
            return []
        return [at for at, info, _ in self._rows() if info & 0xFFFFFFFF in self._by_name and info >> 32 in numbers]

    def own_slots(self, resolver: int) -> list[int]:
        """Addresses of the slots for a resolver of this file."""
        return [at for at, info, addend in self._rows()
                if info & 0xFFFFFFFF == self._by_resolver and addend == resolver]  # fmt: skip

    def target(self, slot: int) -> tuple[str, int] | None:
        """What is written to a slot: the function of a name, or one at an address of the file."""
        for at, info, addend in self._rows():
            if at == slot:
                return ("", addend) if not info >> 32 else (self._name(info >> 32), 0)
        return None

    @cached_property
    def _symbols(self) -> tuple[bytes, bytes]:
        section = self._file.section(".dynsym")
        if section is None:
            return b"", b""
        return bytes(self._file.contents(section)), bytes(self._file.contents(self._file.linked(section)))

    def _name(self, number: int) -> str:
        entries, strings = self._symbols
        if number * 24 + 4 > len(entries):
            return ""
        (at,) = struct.unpack_from("<I", entries, number * 24)
        return strings[at : strings.find(b"\0", at)].decode(errors="surrogateescape")

    def _numbers(self, name: str) -> set[int]:
        """Numbers of the dynamic symbols of a name."""
        entries, strings = self._symbols
        needle = name.encode(errors="surrogateescape") + b"\0"
        if needle not in strings:
            return set()
        places = struct.iter_unpack("<I20x", entries[: len(entries) // 24 * 24])
        return {number for number, (at,) in enumerate(places) if strings.startswith(needle, at)}


class IndirectFunctions:
    """The functions that stand for the IFUNC symbols of one binary."""

    def __init__(self, binary: Binary) -> None:
        self._binary = binary
        self._elf = binary.elf
        self._known: dict[Symbol, set[int]] = {}
        """What resolvers return: a pattern asks for each symbol, and about each of them what all the others return."""

    @cached_property
    def _all(self) -> list[Symbol]:
        return [symbol for symbol in self._binary.functions("*") if symbol.indirect]

    def chosen(self, symbol: Symbol, pid: int | None) -> Chosen:
        """The functions for a symbol, in process *pid* (None for any process)."""
        if not self._elf.wide or self._elf.machine not in _BY_NAME:
            return Chosen(reason="the functions that it stands for are looked for on x86-64 and AArch64 only")
        try:
            if pid is not None:
                addresses = self._in_processes(symbol, [pid])
            else:
                addresses = self._mapped_here(symbol) or self._in_processes(symbol, procfs.process_ids()[::-1])
            addresses = addresses or self._mapped_here(symbol) or self._returned(symbol)
        except _ElsewhereError as error:
            return Chosen(reason=str(error))
        if addresses:
            return Chosen(tuple(sorted(addresses)))
        return Chosen(reason="no running process has called it, and its resolver's code does not say what it returns")

    def also(self, symbol: Symbol, chosen: Chosen) -> tuple[str, ...]:
        """Other IFUNC symbols that the same functions stand for, by what this process has mapped or resolvers say."""
        names = []
        for other in self._all:
            if other.name != symbol.name and other.address != symbol.address:
                with suppress(_ElsewhereError):
                    same = self._mapped_here(other) or self._returned(other)
                    if same and same <= set(chosen.addresses):
                        names.append(other.name)
        return tuple(dict.fromkeys(names))

    def _starts(self, address: int) -> bool:
        """Whether a function starts at an address of the file."""
        if not any(part.executable and part.address <= address < part.address + part.file_size
                   for part in self._elf.segments):  # fmt: skip
            return False
        symbol = self._binary.covering(address)
        return (symbol is not None and symbol.address == address) or self._entries.starts(address)

    def size(self, address: int) -> int:
        """Bytes of the function at an address; 1 where that is not known."""
        symbol = self._binary.covering(address)
        return (symbol.size if symbol is not None else 0) or self._entries.size(address) or 1

    @cached_property
    def _entries(self) -> UnwindEntries:
        return UnwindEntries(self._elf)

    @cached_property
    def _relocations(self) -> _Relocations:
        return _Relocations(self._elf)

    # ---- processes

    def _in_processes(self, symbol: Symbol, pids: Iterable[int]) -> set[int]:
        try:
            status = os.stat(self._binary.path.partition("!/")[0])
        except OSError:
            return set()
        own = self._relocations.own_slots(symbol.address)
        found: set[int] = set()
        asked = 0
        for pid in list(pids)[:MOST_PROCESSES]:
            process = _Process(pid, status.st_ino)
            if not process.maps_file:
                continue
            asked += 1
            found |= {
                address
                for value in process.values(self._elf, own, symbol.name)
                if (address := process.address(value, self._elf)) is not None
                and address != symbol.address
                and self._starts(address)
            }
            if asked >= MOST_ASKED:
                break
        return found

    # ---- this process

    @cached_property
    def _here(self) -> tuple[list[procfs.Mapping], dict[int, ElfFile]]:
        """What this process may execute, and the file in it that is of the same build, by its inode."""
        rows = procfs.executable_mappings(procfs.read_maps(os.getpid()))
        same: dict[int, ElfFile] = {}
        for row in {row.inode: row for row in rows if row.path.startswith("/")}.values() if self._elf.build_id else ():
            with suppress(OSError, TraceError):
                file = ElfFile.open(row.path)
                if file.build_id == self._elf.build_id:
                    same[row.inode] = file
                else:
                    file.close()
        return rows, same

    def _mapped_here(self, symbol: Symbol) -> set[int]:
        """What the dynamic linker says here, if this process has mapped a file of the same build.

        Raises:
            _ElsewhereError: it is a function of another file.
        """
        rows, same = self._here
        value = function_address(symbol.name) if same else None
        for row in rows:
            if value is not None and row.start <= value < row.end:
                _refuse_vdso(row)
                if row.inode in same:
                    address = same[row.inode].address_at(value - row.start + row.offset)
                    if address is not None and address != symbol.address and self._starts(address):
                        return {address}
        return set()

    # ---- the resolver

    def _returned(self, symbol: Symbol) -> set[int]:
        """Functions whose addresses a resolver loads, one of which it returns (x86-64)."""
        if symbol not in self._known:
            self._known[symbol] = self._read(symbol)
        return self._known[symbol]

    def _read(self, symbol: Symbol) -> set[int]:
        offset = self._elf.file_offset(symbol.address)
        if self._elf.machine != EM_X86_64 or offset is None:
            return set()
        size = symbol.size or self._entries.size(symbol.address)
        at = offset - self._elf.base
        code = bytes(self._elf.view[at : at + size])
        found: set[int] = set()
        try:
            for start in instructions.instruction_starts(code, "x86_64"):
                address = self._loaded(code, Decoder(code, start), symbol.address)
                if address is not None and address != symbol.address and self._starts(address):
                    found.add(address)
        except BadCodeError:
            return set()
        return found

    def _loaded(self, code: bytes, decoded: Decoder, start: int) -> int | None:
        """The address that an instruction loads: of code, or what is written to a slot."""
        opcode, end = decoded.opcode, decoded.end
        if 0xB8 <= opcode <= 0xBF or (opcode == _MOVE and code[decoded.operand] >> 6 == 3):
            return int.from_bytes(code[end - 4 : end], "little")
        if opcode not in (_LEA, _LOAD) or code[decoded.operand] & 0xC7 != 5:
            return None
        address = start + end + int.from_bytes(code[end - 4 : end], "little", signed=True)
        if opcode == _LEA:
            return address
        if not any(item.address <= address < item.address + item.size for item in self._elf.sections
                   if item.name.startswith(".got")):  # fmt: skip
            return None
        target = self._relocations.target(address)
        if target is None or not target[0]:
            return None if target is None else target[1]
        return next((item.address for item in self._binary.functions(target[0]) if not item.indirect), None)


def _refuse_vdso(row: procfs.Mapping) -> None:
    """Refuse code that the kernel maps (``time`` and ``gettimeofday`` stand for it): it is in no file.

    Raises:
        _ElsewhereError: it is that code.
    """
    if row.path == "[vdso]":
        raise _ElsewhereError("here it is a function of the vdso, which the kernel maps and which cannot be probed")


class _Slots(msgspec.Struct, frozen=True):
    """Slots of a file for one symbol, and what is added to their addresses in a process."""

    base: int | None
    places: tuple[int, ...]


_MOST_SLOTS = 64
"""Slots of one file for one symbol that are read; it has one or two."""


class _Process:
    """One process that may have mapped a file, which has the inode *inode*."""

    def __init__(self, pid: int, inode: int) -> None:
        self._pid = pid
        text = procfs.read_maps(pid)
        self._code = procfs.executable_mappings(text) if f" {inode} ".encode() in text else []
        self._inode = inode

    @property
    def maps_file(self) -> bool:
        return any(row.inode == self._inode for row in self._code)

    def address(self, value: int, file: ElfFile) -> int | None:
        """The address in the file of one in the process; None if that is not in its code.

        Raises:
            _ElsewhereError: it is in no file.
        """
        row = next((row for row in self._code if row.start <= value < row.end), None)
        if row is None:
            return None
        _refuse_vdso(row)
        return file.address_at(value - row.start + row.offset + file.base) if row.inode == self._inode else None

    def values(self, file: ElfFile, own: Iterable[int], name: str) -> list[int]:
        """What is in the slots for a symbol: in the *own* ones of the file, and of other files by its name."""
        objects = {row.inode: row for row in reversed(self._code) if row.path.startswith("/")}
        prefix = procfs.root_prefix(self._pid)
        values: list[int] = []
        try:
            with open(f"/proc/{self._pid}/mem", "rb", buffering=0) as memory:
                for row in list(objects.values())[:_MOST_OBJECTS]:
                    if row.inode == self._inode:
                        slots = [*own, *_Relocations(file).slots(name)]
                        values += _read(memory.fileno(), self._placed(row, file), slots)
                    else:
                        values += self._by_name(memory.fileno(), row, prefix, name)
        except OSError:
            return values
        return values

    def _by_name(self, memory: int, row: procfs.Mapping, prefix: str, name: str) -> list[int]:
        """What is in the slots of another file for a name."""

        def slots(file: ElfFile) -> _Slots:
            return _Slots(self._placed(row, file), tuple(_Relocations(file).slots(name)[:_MOST_SLOTS]))

        try:
            found = read_file(prefix + row.path, slots, _Slots)
        except (OSError, TraceError, struct.error):
            return []
        return _read(memory, found.base, found.places)

    @staticmethod
    def _placed(row: procfs.Mapping, file: ElfFile) -> int | None:
        """What is added to the addresses of a file in the process."""
        address = file.address_at(row.offset)
        return None if address is None else row.start - address


def _read(memory: int, base: int | None, slots: Iterable[int]) -> list[int]:
    values = []
    for slot in slots if base is not None else ():
        try:
            data = os.pread(memory, 8, (base or 0) + slot)
        except (OSError, OverflowError, ValueError):
            continue
        if len(data) == 8:
            values.append(_ADDRESS.unpack(data)[0])
    return values
