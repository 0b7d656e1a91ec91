"""Unwind tables of binaries: ``.eh_frame``, and the sizes of stacks in Go's table of functions, as the rows of
:mod:`pytrace.core.stack_formats`. Files that others can write are read by a limited process.
"""

from __future__ import annotations

import re
import struct
from array import array
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from pytrace.base import limited_process, private_files, typed_json
from pytrace.core.diagnostics import TraceError
from pytrace.core.stack_formats import CFA_LIMIT, REGISTERS, WHERE_RBP_POINTS, WORD, Rule
from pytrace.runtime.binaries import go_binaries
from pytrace.runtime.binaries.elf_file import ElfFile, Segment, signed, unsigned
from pytrace.runtime.machine import foreign_files

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from pytrace.runtime.binaries.go_binaries import Layout


# ---------------------------------------------------------------------------------------------- call frames

# Call frame instructions of ``.eh_frame``, run to the rules of :mod:`pytrace.core.stack_formats`.
#
# Sources: DWARF 5, section 6.4.2; System V ABI for AMD64, section 3.6.


RBP, RSP, RETURN = 6, 7, 16
"""Numbers of registers in DWARF (System V ABI for AMD64, figure 3.36)."""


_SHORT = 1 << 15
"""Distances from a register that is no stack pointer are less than this, in words."""


_NAMES = ("ax", "dx", "cx", "bx", "si", "di", "bp", "sp", *(f"r{number}" for number in range(8, 16)))
_WORDS = {number: REGISTERS.index(name) for number, name in enumerate(_NAMES) if name in REGISTERS}
"""Registers as rows have them, by their numbers in DWARF."""


class State(msgspec.Struct):
    """Rules at one address.

    *bp* as in a row, None for a rule that a row cannot hold; *returns* is where the return address is, as an offset
    from the CFA, None when it is undefined; *sane* is False for a CFA that a row cannot hold. *register* is the base of
    :attr:`Rule.REGISTER`, *returned* the register with the return address.
    """

    base: Rule = Rule.NONE
    offset: int = 0
    bp: int | None = 0
    returns: int | None = -WORD
    sane: bool = True
    register: int = 0
    returned: int | None = None

    def copy(self) -> State:
        """Another one with the same rules."""
        return replace(self)

    def pack(self) -> int:
        """The rule of a row."""
        if self.returned is not None and self.sane:
            # The caller's rbp is unchanged where there is a rule for it.
            simple = self.base is Rule.RSP and not self.bp and not self.offset % WORD
            words = self.offset // WORD
            if simple and 0 <= words < CFA_LIMIT and self.returned in _WORDS:
                return words << 12 | _WORDS[self.returned] << 4 | Rule.RETURN
            return Rule.NONE
        if self.returns is None:
            return Rule.LAST
        if not self.sane or self.returns != -WORD or self.bp is None:
            return Rule.NONE
        distance = self.offset if self.base is Rule.PLT else self.offset // WORD
        if self.base is Rule.REGISTER and not self.offset % WORD and -_SHORT <= distance < _SHORT:
            return (distance & 0xFFFF) << 16 | _WORDS[self.register] << 12 | self.bp << 4 | self.base
        if self.base is Rule.REGISTER or (self.base is not Rule.PLT and self.offset % WORD):
            return Rule.NONE
        if not -CFA_LIMIT <= distance < CFA_LIMIT:
            return Rule.NONE
        return (distance & 0xFFFFF) << 12 | self.bp << 4 | self.base


def _bp_rule(offset: int) -> int | None:
    words, rest = divmod(-offset, WORD)
    return words if not rest and 0 < words < WHERE_RBP_POINTS else None


def cfa_expression(code: bytes) -> tuple[Rule, int] | None:
    """The expressions that compilers and linkers make: memory at a register plus offset; a PLT entry's."""
    if len(code) >= 3 and code[0] in (0x76, 0x77) and code[-1] == 0x06:
        offset, end = signed(code, 1)
        if end == len(code) - 1:
            return (Rule.AT_RBP if code[0] == 0x76 else Rule.AT_RSP), offset
    # rsp + 8 + ((rip & 15) >= N) * 8
    if len(code) == 11 and code[:6] == bytes.fromhex("770880003f1a") and code[7:] == bytes.fromhex("2a332422"):
        return Rule.PLT, code[6] - 0x30
    return None


class Interpreter:
    """Runs call frame instructions and notes the rule from each address on."""

    def __init__(self, initial: State, code_step: int, data_step: int) -> None:
        self._initial = initial
        self._code_step, self._data_step = code_step, data_step
        self.state = self._initial.copy()
        self._remembered: list[State] = []
        self._distance = 0
        self.rows: list[tuple[int, int]] = []

    def run(self, code: bytes) -> None:
        """Run all instructions; :attr:`rows` are then distances from the function's start, with rules."""
        at, size = 0, len(code)
        while at < size:
            byte = code[at]
            at += 1
            group, low = byte >> 6, byte & 0x3F
            if group == 1:
                self._advance(low)
            elif group == 2:
                offset, at = unsigned(code, at)
                self._saved(low, offset * self._data_step)
            elif group == 3:
                self._restore(low)
            elif byte in _INSTRUCTIONS:
                operands, execute = _INSTRUCTIONS[byte]
                values = []
                for read in operands:
                    value, at = read(code, at)
                    values.append(value)
                execute(self, *values)
            else:
                self.state.sane = False
                break
        self.rows.append((self._distance, self.state.pack()))

    def _nothing(self, *_operands: object) -> None:
        """An instruction that rules do not depend on."""

    def _advance(self, steps: int) -> None:
        self.rows.append((self._distance, self.state.pack()))
        self._distance += steps * self._code_step

    def _saved(self, register: int, offset: int) -> None:
        if register == RBP:
            self.state.bp = _bp_rule(offset)
        elif register == RETURN:
            self.state.returns, self.state.returned = offset, None

    def _saved_at(self, register: int, offset: int) -> None:
        self._saved(register, offset * self._data_step)

    def _restore(self, register: int) -> None:
        if register == RBP:
            self.state.bp = self._initial.bp
        elif register == RETURN:
            self.state.returns, self.state.returned = self._initial.returns, self._initial.returned

    def _undefined(self, register: int) -> None:
        if register == RETURN:
            self.state.returns, self.state.returned = None, None

    def _same_value(self, register: int) -> None:
        if register == RBP:
            self.state.bp = 0

    def _lost(self, register: int, *_operands: object) -> None:
        """The register's value is in another register, or at a value that a row cannot hold."""
        if register == RBP:
            self.state.bp = None
        elif register == RETURN:
            self.state.returns, self.state.returned = 0, None

    def _in_register(self, register: int, other: int) -> None:
        if register == RETURN:
            self.state.returned = other
        else:
            self._lost(register)

    def _remember(self) -> None:
        self._remembered.append(self.state.copy())

    def _recall(self) -> None:
        if self._remembered:
            self.state = self._remembered.pop()

    def _set_cfa(self, register: int, offset: int) -> None:
        self.state.base = {RSP: Rule.RSP, RBP: Rule.RBP}.get(register, Rule.REGISTER)
        self.state.register, self.state.offset = register, offset
        self.state.sane = register == RSP or register in _WORDS

    def _set_cfa_factored(self, register: int, offset: int) -> None:
        self._set_cfa(register, offset * self._data_step)

    def _set_cfa_register(self, register: int) -> None:
        self._set_cfa(register, self.state.offset)

    def _set_cfa_offset(self, offset: int) -> None:
        self.state.offset = offset

    def _set_cfa_offset_factored(self, offset: int) -> None:
        self.state.offset = offset * self._data_step

    def _set_cfa_expression(self, expression: bytes) -> None:
        rule = cfa_expression(expression)
        self.state.base, self.state.offset = rule or (Rule.NONE, 0)
        self.state.sane = rule is not None

    def _saved_by_expression(self, register: int, expression: bytes) -> None:
        """The register is saved where an expression says: for rbp, where rbp itself points."""
        if register == RBP and expression == b"\x76\x00":
            self.state.bp = WHERE_RBP_POINTS
        else:
            self._lost(register)


# ---------------------------------------------------------------------------------------------- operands


def _block(code: bytes, at: int) -> tuple[bytes, int]:
    size, at = unsigned(code, at)
    return code[at : at + size], at + size


def _fixed(size: int) -> _Operand:
    return lambda code, at: (int.from_bytes(code[at : at + size], "little"), at + size)


_Operand = Callable[[bytes, int], tuple[object, int]]
"""Reads an operand at a position; returns it and the position after it."""

_INSTRUCTIONS: dict[int, tuple[tuple[_Operand, ...], Callable[..., None]]] = {
    0x00: ((), Interpreter._nothing),
    0x02: ((_fixed(1),), Interpreter._advance),
    0x03: ((_fixed(2),), Interpreter._advance),
    0x04: ((_fixed(4),), Interpreter._advance),
    0x05: ((unsigned, unsigned), Interpreter._saved_at),
    0x06: ((unsigned,), Interpreter._restore),
    0x07: ((unsigned,), Interpreter._undefined),
    0x08: ((unsigned,), Interpreter._same_value),
    0x09: ((unsigned, unsigned), Interpreter._in_register),
    0x0A: ((), Interpreter._remember),
    0x0B: ((), Interpreter._recall),
    0x0C: ((unsigned, unsigned), Interpreter._set_cfa),
    0x0D: ((unsigned,), Interpreter._set_cfa_register),
    0x0E: ((unsigned,), Interpreter._set_cfa_offset),
    0x0F: ((_block,), Interpreter._set_cfa_expression),
    0x10: ((unsigned, _block), Interpreter._saved_by_expression),
    0x11: ((unsigned, signed), Interpreter._saved_at),
    0x12: ((unsigned, signed), Interpreter._set_cfa_factored),
    0x13: ((signed,), Interpreter._set_cfa_offset_factored),
    0x14: ((unsigned, unsigned), Interpreter._lost),
    0x15: ((unsigned, signed), Interpreter._lost),
    0x16: ((unsigned, _block), Interpreter._lost),
    0x2E: ((unsigned,), Interpreter._nothing),
}
"""Operands and effect of the call frame instructions beside the three whose operand is in the first byte."""


# ---------------------------------------------------------------------------------------------- Go

# Unwind rows of Go programs, by the sizes of the stack in ``.gopclntab`` (Go 1.18 and later).
#
# A function that calls none has no frame record, so a walk by frame pointers misses its caller; by the size of its
# frame it is found. Source: ``src/runtime/symtab.go`` (``pcvalue``, ``funcFlag``) and ``src/cmd/internal/obj/x86`` of
# Go.


_TOP, _WRITES_SP = 1, 2
"""Flags: it has no caller; it switches stacks, and only its frame pointer leads to its caller."""
_STEPS_AT = 16
"""Offset of the place of the stack sizes in what is known of a function."""
_SAVED_BP = 2
"""Words below the CFA at which a function with a frame saves rbp."""
_STEP_OF_GO = 512
_MOST_ROWS = 1 << 14
"""Rows of one function: the largest have some hundred."""
_SIGNAL_ENTRY = re.compile(rb"\0(runtime\.sigtramp(\.abi0)?)\0")
"""The function that the kernel calls for a signal: it says that it has no caller."""
_SIGNAL_RETURN = re.compile(rb"\0(runtime\.sigreturn(__sigaction)?(\.abi0)?)\0")
"""The function that it returns to, at the kernel's frame."""


def go_rows(data: bytes | memoryview, layout: Layout) -> Generator[None, None, list[int]]:
    """In steps, the rows of a table, in no order; those up to the first damage."""
    found: list[int] = []
    entry, back = _go_name(data, layout, _SIGNAL_ENTRY), _go_name(data, layout, _SIGNAL_RETURN)
    try:
        places = go_binaries.entries(data, layout)
        for number, at in enumerate(range(0, len(places) - 1, 2)):
            info, start, end = layout.functions + places[at + 1], layout.text + places[at], layout.text + places[at + 2]
            (name,) = struct.unpack_from("<I", data, info + layout.name_at)
            if name == back:
                # A caller is looked up by the byte before its return address; there is padding before the function.
                found += ((start - 1) << 32 | Rule.SIGNAL, start << 32 | Rule.SIGNAL, end << 32 | Rule.FRAME)
            else:
                found += islice(_go_function(data, layout, info, start, end, ends=name != entry), _MOST_ROWS)
            if len(found) > MOST_ROWS:
                return []
            if not number % _STEP_OF_GO:
                yield
    except (struct.error, IndexError):
        pass
    return found


def _go_name(data: bytes | memoryview, layout: Layout, pattern: re.Pattern[bytes]) -> int:
    """Where a function's name is in the table of names; -1 if no function has it."""
    match = pattern.search(data, layout.names)
    return -1 if match is None else match.start(1) - layout.names


def _go_function(
    data: bytes | memoryview, layout: Layout, info: int, start: int, end: int, *, ends: bool
) -> Iterator[int]:
    """The rows of a function; *ends* is False if it has a caller whatever its flags say."""
    if not 0 < start < end <= 0xFFFFFFFF:
        return
    flags = data[info + layout.flags] & (-1 if ends else ~_TOP)
    if flags & (_TOP | _WRITES_SP):
        yield start << 32 | (Rule.LAST if flags & _TOP else Rule.FRAME)
    else:
        (steps,) = struct.unpack_from("<I", data, info + _STEPS_AT)
        for address, size in _go_sizes(data, layout.steps + steps, start, end):
            yield address << 32 | _go_rule(size)
    yield end << 32 | Rule.FRAME


def _go_sizes(data: bytes | memoryview, at: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Addresses, and the bytes on the stack from there on: pairs of differences, the first of which has a sign."""
    address, size = start, -1
    while address < end:
        change, at = unsigned(data, at)
        if not change and address > start:
            return
        size += -(change >> 1) - 1 if change & 1 else change >> 1
        yield address, size
        distance, at = unsigned(data, at)
        if not distance:
            return
        address += distance


def _go_rule(size: int) -> int:
    words = size // WORD + 1
    if size % WORD or not 0 < words < CFA_LIMIT:
        return Rule.FRAME
    return words << 12 | (_SAVED_BP if size else 0) << 4 | Rule.RSP


def go_parsed(file: ElfFile) -> tuple[memoryview, Layout] | None:
    """The table of a Go program of a format with stack sizes that are understood."""
    found = go_binaries.parsed(file)
    return found if found is not None and found[1].flags else None


# ---------------------------------------------------------------------------------------------- tables

# Unwind tables of binaries: ``.eh_frame`` compiled to the rows of :mod:`pytrace.core.stack_formats`.
#
# Sources: the Linux Standard Base, "Exception Frames"; DWARF 5, section 6.4.1.


FORMAT = 7
"""Version of the file format of cached tables."""

_POINTER_FORMATS = {0x0: "<Q", 0x2: "<H", 0x3: "<I", 0x4: "<Q", 0xA: "<h", 0xB: "<i", 0xC: "<q"}
_PC_RELATIVE = 0x10


class _Cie(msgspec.Struct, frozen=True):
    """A common information entry: values that FDEs share."""

    code_step: int
    data_step: int
    encoding: int
    augmented: bool
    signal: bool
    initial: State


class _Reader:
    """Reads the entries of one ``.eh_frame`` section that is loaded at *address*."""

    def __init__(self, data: bytes, address: int) -> None:
        self._data = data
        self._address = address
        self._cies: dict[int, _Cie | None] = {}
        self._known: dict[tuple[int, bytes], list[tuple[int, int]]] = {}
        self.rows: list[int] = []

    def read(self) -> Iterator[None]:
        """Fill :attr:`rows` in steps: start addresses in the high half, rules in the low one, in no order."""
        data, at, size, functions, work = self._data, 0, len(self._data), 0, 0
        head = struct.Struct("<II")
        while at + 8 <= size:
            length, identity = head.unpack_from(data, at)
            start = at + 4
            if length == 0xFFFFFFFF and at + 16 <= size:
                length, identity = struct.unpack_from("<QI", data, at + 4)
                start = at + 12
            if not length:
                # Several objects' terminators may end up in the middle of a section.
                at += 4
                continue
            end = start + length
            if end > size:
                return
            if identity:
                self._function(start - identity, start + 4, end)
                functions, work = functions + 1, work + end - start
                if len(self.rows) > MOST_ROWS:
                    self.rows.clear()
                    return
                if functions >= _STEP or work >= _STEP_BYTES:
                    functions = work = 0
                    yield
            at = end

    def _function(self, cie_at: int, at: int, end: int) -> None:
        if cie_at not in self._cies:
            self._cies[cie_at] = self._cie(cie_at)
        cie = self._cies[cie_at]
        if cie is None:
            return
        start, size, at = self._range(cie, at)
        if end - at > _LONGEST_PROGRAM:
            return
        if not size or not 0 <= start <= 0xFFFFFFFF - size:
            return
        if cie.augmented:
            length, at = unsigned(self._data, at)
            at += length
        add = self.rows.append
        add(start + size << 32 | Rule.FRAME)
        if cie.signal:
            add(start << 32 | Rule.SIGNAL)
            return
        for distance, rule in self._program(cie_at, cie, self._data[at:end]):
            if distance < size:
                add(start + distance << 32 | rule)

    def _program(self, cie_at: int, cie: _Cie, code: bytes) -> list[tuple[int, int]]:
        key = (cie_at, code)
        known = self._known.get(key)
        if known is None:
            interpreter = Interpreter(cie.initial, cie.code_step, cie.data_step)
            try:
                interpreter.run(code)
                # Of several rules for one address the last one counts.
                known = list(dict(interpreter.rows).items())
            except IndexError:
                known = []
            if len(code) <= _COMMON_PROGRAM and len(self._known) < _MOST_KNOWN:
                self._known[key] = known
        return known

    def _range(self, cie: _Cie, at: int) -> tuple[int, int, int]:
        """Start and size of what an FDE is about, and the position after them."""
        layout = _POINTER_FORMATS[cie.encoding & 0xF]
        width = struct.calcsize(layout)
        (start,) = struct.unpack_from(layout, self._data, at)
        if cie.encoding & 0x70 == _PC_RELATIVE:
            start = start + self._address + at & (1 << 64) - 1
        size = int.from_bytes(self._data[at + width : at + 2 * width], "little")
        return start, size, at + 2 * width

    def _cie(self, at: int) -> _Cie | None:
        """The CIE at a position; None for one that is not understood."""
        data = self._data
        try:
            (length,) = struct.unpack_from("<I", data, at)
            end, at = at + 4 + length, at + 8
            version = data[at]
            stop = data.index(b"\0", at + 1)
            letters = data[at + 1 : stop].decode("latin-1")
            code_step, at = unsigned(data, stop + 1)
            data_step, at = signed(data, at)
            _, at = (data[at], at + 1) if version == 1 else unsigned(data, at)
            encoding, signal, at = self._augmentation(letters, at)
            if encoding & 0xF not in _POINTER_FORMATS or encoding & 0x70 not in (0, _PC_RELATIVE):
                return None
            interpreter = Interpreter(State(), code_step, data_step)
            interpreter.run(data[at:end])
        except (IndexError, ValueError, struct.error):
            return None
        return _Cie(code_step, data_step, encoding, letters.startswith("z"), signal, interpreter.state)

    def _augmentation(self, letters: str, at: int) -> tuple[int, bool, int]:
        """Encoding of addresses, whether it is a signal frame, and the position after the data."""
        if not letters.startswith("z"):
            return 0, False, at
        length, at = unsigned(self._data, at)
        end, encoding = at + length, 0
        for letter in letters[1:]:
            if letter == "R":
                encoding = self._data[at]
                at += 1
            elif letter == "P":
                at += 1 + struct.calcsize(_POINTER_FORMATS[self._data[at] & 0xF])
            elif letter == "L":
                at += 1
            elif letter not in "SB":
                raise ValueError(letters)
        return encoding, "S" in letters, end


def compile_table(data: bytes, address: int) -> Generator[None, None, array[int]]:
    """In steps, the rows of an ``.eh_frame`` that is loaded at *address*, in order of address."""
    reader = _Reader(data, address)
    # Damaged entries end it: what follows them cannot be trusted.
    with suppress(IndexError, struct.error, KeyError):
        yield from reader.read()
    return array("Q", _compact(reader.rows))


def _compact(rows: list[int]) -> list[int]:
    """Sorted, one row for each address (a rule wins over the end of what is before), none that repeats the rule."""
    rows.sort()
    compact: list[int] = []
    rule = -1
    last = len(rows) - 1
    for at, row in enumerate(rows):
        if at < last and row >> 32 == rows[at + 1] >> 32:
            continue
        if row & 0xFFFFFFFF != rule:
            rule = row & 0xFFFFFFFF
            compact.append(row)
    return compact


# ---------------------------------------------------------------------------------------------- cached tables


KIND = "unwind"
"""The kind of cached files (:mod:`pytrace.base.private_files`)."""

KEEP = 256
"""Tables that are kept; the ones that were written longest ago go."""


MOST_READ = 32 << 20
"""Bytes of ``.eh_frame`` from which a table is made; those of browsers have 20 MB."""
MOST_ROWS = 5 << 20
"""Rows of one table; LLVM has 4 million. One of more is none: the kernel's map has no room for it."""
_STEP, _STEP_BYTES = 256, 1 << 14
"""Functions, and bytes of entries, between two steps, about a millisecond."""
_LONGEST_PROGRAM = 1 << 15
"""Bytes of instructions for one function: those of the largest have some thousand."""
_COMMON_PROGRAM, _MOST_KNOWN = 64, 1 << 14
"""Bytes and number of the instructions that are remembered, as many functions have the same."""


class Table(msgspec.Struct, frozen=True):
    """The rows of a binary, in order of address, and where its segments are loaded.

    *left_out* says why there are none although the binary has an unwind table.
    """

    rows: array[int]
    segments: tuple[Segment, ...] = ()
    left_out: str = ""


def table(file: ElfFile) -> Generator[None, None, array[int]]:
    """In steps, the rows of a binary; none when it has no ``.eh_frame``, or one of more than :data:`MOST_READ` bytes.

    Tables are cached on disk by a digest of their input.  A build id would not do: a copy of the binary that was
    changed or truncated afterwards still has it.
    """
    section = file.section(".eh_frame")
    readable = section is not None and 0 < section.size <= MOST_READ
    source = file.contents(section) if section is not None and readable else memoryview(b"")
    address = section.address if section is not None else 0
    go = go_parsed(file)
    if not source and go is None:
        return array("Q")
    pieces = (address.to_bytes(8, "little"), source, b"" if go is None else go[0])
    name = f"{private_files.digest(*pieces, size=16)}.{FORMAT}"
    data = private_files.read(KIND, name)
    if data is not None:
        return array("Q", data)
    rows = yield from compile_table(bytes(source), address)
    if go is not None:
        others = yield from go_rows(*go)
        rows = array("Q", _compact([*rows, *others]))
    private_files.write(KIND, name, rows.tobytes())
    private_files.trim(KIND, KEEP)
    return rows


# ---------------------------------------------------------------------------------------------- files of others


MEMORY = 512 << 20
"""Bytes that the process may take which reads files of others: 4 million rows take half of that."""
SECONDS, TOTAL = 20.0, 60.0
"""Seconds of processor time for the table of one file, and all seconds that are waited for in small steps."""
_PATIENCE = 10.0
_STEP_SECONDS = 0.002
_LARGE = 8 << 20
"""Bytes of an answer after which the process is ended, as it keeps the memory."""


class _Request(msgspec.Struct, frozen=True):
    path: str
    status: foreign_files.Status


class _Answer(msgspec.Struct, frozen=True):
    """What stands before the rows."""

    segments: tuple[Segment, ...] = ()
    problem: str = ""


class TableReader:
    """Reads the tables of files: one that others can write in a limited process, which all of them share."""

    def __init__(self) -> None:
        limits = limited_process.Limits(memory=MEMORY, patience=_PATIENCE, total=TOTAL)
        self._process = limited_process.LimitedProcess(_serve, limits)
        self._asked = False
        """Whether somebody waits for the process, which answers one question after the other."""

    def read(self, path: str, most: int) -> Generator[None, None, Table]:
        """In steps, the table of the file at a path; none of a file with more than about *most* rows.

        Raises:
            TraceError: it is no ELF file, or damaged.
            OSError: it cannot be read.
        """
        with foreign_files.open_regular(path) as file:
            status = foreign_files.status_of(file)
            if not foreign_files.trusted(path, status):
                return (yield from self._foreign(file.fileno(), _Request(path, status)))
            with ElfFile(foreign_files.contents_of(file, path), path) as elf:
                section = elf.section(".eh_frame")
                if section is not None and section.size // _ROW_BYTES_USUAL > most:
                    return Table(array("Q"), elf.segments, f"it has {section.size >> 20} MiB of them")
                return Table((yield from table(elf)), elf.segments)

    def _foreign(self, descriptor: int, request: _Request) -> Generator[None, None, Table]:
        while self._asked:
            yield
        self._asked = True
        try:
            pending = self._process.start(typed_json.encode(request), [descriptor], SECONDS)
            while not self._process.ready(pending, _STEP_SECONDS):
                yield
            head, _, rows = self._process.result(pending)[0].partition(b"\n")
            answer = typed_json.decode(head, _Answer)
            if len(rows) % 8 or len(rows) > 8 * MOST_ROWS:
                raise limited_process.LimitError("the process that read it answered something else")
        except (limited_process.LimitError, limited_process.LostError, msgspec.ValidationError) as error:
            return Table(array("Q"), (), f"it is not read: {error}")
        finally:
            self._asked = False
        if answer.problem:
            raise TraceError(answer.problem)
        if len(rows) > _LARGE:
            self._process.close()
        return Table(array("Q", rows), answer.segments)

    def close(self) -> None:
        """End the process."""
        self._process.close()


_ROW_BYTES_USUAL = 5
"""Bytes of ``.eh_frame`` that a row takes on average, in libc as in LLVM."""


def _serve(data: bytes, descriptors: list[int]) -> tuple[bytes, list[int]]:
    request, rows = typed_json.decode(data, _Request), array("Q")
    try:
        with foreign_files.reopened(descriptors[0], request.status) as file:
            elf = ElfFile(foreign_files.contents_of(file, request.path), request.path)
        steps = table(elf)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                rows = end.value
                break
        answer = _Answer(elf.segments)
    except TraceError as error:
        answer = _Answer(problem=error.message)
    return typed_json.encode(answer) + b"\n" + rows.tobytes(), []
