"""BPF object files: the functions of those that scripts import, linking with the script's own, and positions in them.

Positions of a program's instructions are as the kernel's verifier numbers these. Sources:
``Documentation/bpf/btf.rst`` (``.BTF.ext``), ``include/uapi/linux/bpf.h`` (``BPF_PSEUDO_CALL``), and
``bpf_object__reloc_code`` of libbpf, which copies the functions that a program calls behind it, in the order of calls.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import msgspec

from pytrace.core.diagnostics import TraceError
from pytrace.core.event_layout import Location
from pytrace.core.kernel_info import ObjectFunction
from pytrace.runtime.binaries import btf_types
from pytrace.runtime.binaries.btf_types import Btf, Kind, TypeReader
from pytrace.runtime.binaries.elf_file import ElfFile
from pytrace.runtime.load.loaded_script import LoadError
from pytrace.runtime.machine import libbpf

_SYMBOL = struct.Struct("<IBBHQQ")
_FUNC = 2
"""``STT_FUNC``."""


def object_functions(path: str, data: bytes) -> list[ObjectFunction]:
    """The functions of an object file that are no programs of their own (those lie in sections with other names).

    Raises:
        TraceError: the file has no type information.
    """
    file = ElfFile(data, path)
    section = file.section(".BTF")
    if section is None:
        raise TraceError(f"{path} has no type information", hints=("compile it with -g",))
    btf = Btf(bytes(file.contents(section)), path)
    btf_types.check(btf)
    reader = TypeReader(btf)
    return [
        ObjectFunction(reader.prototype(type_id), static=static)
        for name, static in _text_symbols(file)
        if (type_id := reader.btf.find(name, Kind.FUNC))
    ]


def _text_symbols(file: ElfFile) -> list[tuple[str, bool]]:
    """Names of functions in ``.text``, and whether they are static."""
    table = file.section(".symtab")
    if table is None:
        return []
    sections = file.sections
    strings = bytes(file.contents(file.linked(table)))
    functions = []
    rows = file.contents(table)
    for name, info, _, index, _, _ in _SYMBOL.iter_unpack(rows[: len(rows) // _SYMBOL.size * _SYMBOL.size]):
        if info & 15 == _FUNC and 0 < index < len(sections) and sections[index].name == ".text":
            text = strings[name:].partition(b"\0")[0].decode(errors="replace")
            functions.append((text, info >> 4 == 0))
    return functions


def link_objects(script: bytes, objects: Sequence[bytes]) -> bytes:
    """One object file of the script's and those that it imports. libbpf's linker wants files: these live in memory.

    Raises:
        LoadError: the files do not fit together.
    """
    lib = libbpf.library()
    with ExitStack() as stack, libbpf.Messages() as messages:
        target = _in_memory(b"", stack)
        try:
            linker = lib.bpf_linker__new(b"/proc/self/fd/%d" % target, None)
            stack.callback(lib.bpf_linker__free, linker)
            for data in (script, *objects):
                lib.bpf_linker__add_file(linker, b"/proc/self/fd/%d" % _in_memory(data, stack), None)
            lib.bpf_linker__finalize(linker)
        except OSError as error:
            text = "\n".join(messages.warnings)
            first = messages.warnings[0] if messages.warnings else str(error.strerror)
            hints = ("set license in the config block to what the C file says",) if "'license'" in first else ()
            raise LoadError(f"the imported C does not fit the script: {first}", log=text, hints=hints) from None
        return os.pread(target, os.fstat(target).st_size, 0)


def _in_memory(data: bytes, stack: ExitStack) -> int:
    descriptor = os.memfd_create("pytrace-link", os.MFD_CLOEXEC)
    stack.callback(os.close, descriptor)
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    return descriptor


# ------------------------------------------------------------------------------------------------------------ positions


_INSTRUCTION = struct.Struct("<BBhi")
_CALL, _LOAD_ADDRESS = 0x85, 0x18
_TO_FUNCTION = {_CALL: 1, _LOAD_ADDRESS: 4}
"""Instructions that refer to a function, with the source register that says so: ``BPF_PSEUDO_CALL``, ``_FUNC``."""

_EXT_HEADER = struct.Struct("<HBBIIIII")
_LINE = struct.Struct("<IIII")
_RELOCATION = struct.Struct("<QQ")


class _Function(msgspec.Struct, frozen=True):
    """Where a function is in the ELF file: its section, and its offset and size in instructions."""

    section: str
    start: int
    size: int


class LineTable:
    """The positions that a compiled script's ELF file has.

    Args:
        elf: the file that libbpf loaded.
    """

    def __init__(self, elf: bytes) -> None:
        self._file = ElfFile(elf, "the compiled script")
        self._sections = list(self._file.sections)
        self._symbols = self._read_symbols()
        self._lines = self._read_lines()

    def positions(self, symbol: str, code: bytes) -> dict[int, Location]:
        """The position at which each line of the program *symbol* begins, by the number of the instruction.

        Args:
            symbol: the program.
            code: its instructions as they were loaded, with the functions that it calls.
        """
        program = self._function(symbol)
        locations: dict[int, Location] = {}
        pending, known = [(0, program)], {0}
        while pending:
            begin, function = pending.pop()
            for offset, location in self._lines.get(function.section, {}).items():
                if function.start <= offset < function.start + function.size:
                    locations[begin + offset - function.start] = location
            for number, target in _references(code, begin, function.size):
                callee = self._callee(function, number - begin)
                if callee is not None and target not in known:
                    known.add(target)
                    pending.append((target, callee))
        return dict(sorted(locations.items()))

    # ------------------------------------------------------------------ the file

    def _bytes(self, name: str) -> bytes:
        for section in self._sections:
            if section.name == name:
                return bytes(self._file.view[section.offset : section.offset + section.size])
        return b""

    def _read_symbols(self) -> list[tuple[str, int, int, int, int]]:
        """Name, section number, type, value and size of each symbol."""
        table = self._bytes(".symtab")
        link = next(section.link for section in self._sections if section.name == ".symtab")
        strings = self._bytes(self._sections[link].name)
        return [
            (_string_at(strings, name), section, info & 15, value, size)
            for name, info, _, section, value, size in _SYMBOL.iter_unpack(table)
        ]

    def _read_lines(self) -> dict[str, dict[int, Location]]:
        """Positions by section and instruction."""
        data, types = self._bytes(".BTF.ext"), self._bytes(".BTF")
        if not data or not types:
            return {}
        _, _, _, header, _, _, offset, length = _EXT_HEADER.unpack_from(data)
        header_size, strings_at = struct.unpack_from("<I8xI", types, 4)[:2]
        strings = types[header_size + strings_at :]
        sections: dict[str, dict[int, Location]] = {}
        place, end = header + offset, header + offset + length
        (record,) = struct.unpack_from("<I", data, place)
        place += 4
        while place < end:
            name, count = struct.unpack_from("<II", data, place)
            place += 8
            lines = sections.setdefault(_string_at(strings, name), {})
            for number in range(count):
                instruction, file, text, position = _LINE.unpack_from(data, place + number * record)
                line, column = position >> 10, max(1, position & 1023)
                file_name, source_line = _string_at(strings, file), _string_at(strings, text)
                lines[instruction // 8] = Location(file_name, line, column, 0, source_line)
            place += count * record
        return sections

    # ------------------------------------------------------------------ functions

    def _function(self, symbol: str) -> _Function:
        _, section, _, value, size = next(item for item in self._symbols if item[0] == symbol)
        return _Function(self._sections[section].name, value // 8, size // 8)

    def _callee(self, caller: _Function, number: int) -> _Function | None:
        """The function that the instruction *number* of *caller* refers to."""
        section, value = self._relocated(caller, number)
        if section is None:
            return None
        for name, index, type_, start, _ in self._symbols:
            if type_ == 2 and index == section and start == value:
                return self._function(name)
        return None

    def _relocated(self, caller: _Function, number: int) -> tuple[int | None, int]:
        """Number of the section, and the offset in it, that an instruction of the file refers to."""
        code = self._bytes(caller.section)
        place = 8 * (caller.start + number)
        _, _, _, immediate = _INSTRUCTION.unpack_from(code, place)
        for offset, info in _RELOCATION.iter_unpack(self._bytes(f".rel{caller.section}")):
            if offset == place:
                _, section, type_, value, _ = self._symbols[info >> 32]
                # A call counts instructions from the next one, an address bytes.
                added = 8 * (immediate + 1) if code[place] == _CALL else immediate
                return section, value if type_ == 2 else value + added
        names = [section.name for section in self._sections]
        return names.index(caller.section), place + 8 * (immediate + 1)


def _references(code: bytes, begin: int, size: int) -> Iterator[tuple[int, int]]:
    """The instructions of a function that refer to a function, and where that begins."""
    for number in range(begin, min(begin + size, len(code) // 8)):
        operation, registers, _, immediate = _INSTRUCTION.unpack_from(code, 8 * number)
        if _TO_FUNCTION.get(operation) == registers >> 4:
            yield number, number + immediate + 1


def _string_at(strings: bytes, offset: int) -> str:
    return strings[offset : strings.find(b"\0", offset)].decode("utf-8", "surrogateescape")
