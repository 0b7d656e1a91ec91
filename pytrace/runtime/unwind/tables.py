"""Unwind tables of binaries: ``.eh_frame`` compiled to the rows of :mod:`pytrace.core.stacks.unwind_format`.

Sources: the Linux Standard Base, "Exception Frames"; DWARF 5, section 6.4.1.
"""

from __future__ import annotations

import struct
from array import array
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from pytrace.base import limited_process, private_files, typed_json
from pytrace.core.diagnostics import TraceError
from pytrace.core.stacks.unwind_format import Rule
from pytrace.runtime.elf.file import ElfFile, Segment
from pytrace.runtime.elf.leb128 import signed, unsigned
from pytrace.runtime.machine import foreign_files
from pytrace.runtime.unwind import go_tables
from pytrace.runtime.unwind.call_frames import Interpreter, State

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

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
    go = go_tables.parsed(file)
    if not source and go is None:
        return array("Q")
    pieces = (address.to_bytes(8, "little"), source, b"" if go is None else go[0])
    name = f"{private_files.digest_of(pieces, 16)}.{FORMAT}"
    data = private_files.read(KIND, name)
    if data is not None:
        return array("Q", data)
    rows = yield from compile_table(bytes(source), address)
    if go is not None:
        others = yield from go_tables.rows(*go)
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
