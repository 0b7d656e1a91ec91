"""Places in CPython's evaluation loop where functions begin and end, for probes of Python functions (3.11 and later).

Calls from Python to Python do not enter ``_PyEval_EvalFrameDefault`` again, so a probe there would miss them. But each
function's code begins with the instruction RESUME, whose handler is found by the loop's table of handlers. What ends:

* since 3.12 each frame is handed to ``_PyEval_FrameClearAndPop``, by RETURN_VALUE and by exceptions that leave it;
* in 3.11 a frame that began in a call from C is not. But the loop looks at ``is_entry`` of each frame that ends, in
  three places of its source: RETURN_VALUE, the end by an exception (``exit_unwind``), and RETURN_GENERATOR, whose frame
  only makes a generator. Another number of places, by a compiler's doing, is refused.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

import msgspec

from pytrace.core.probes import instructions
from pytrace.core.probes.instructions import is_misread
from pytrace.runtime.python import handlers
from pytrace.runtime.python.layouts import UnsupportedError

if TYPE_CHECKING:
    from pytrace.runtime.elf.file import ElfFile
    from pytrace.runtime.python.layouts import Layout

_CLEAR = {12: "_PyEvalFrameClearAndPop"}
_CLEAR_LATER = "_PyEval_FrameClearAndPop"
_CLEAR_SINCE = 12
_FEWEST = 100
"""Handlers in the loop itself; the compiler moves those that seldom run elsewhere."""
_MOST_INSTRUCTIONS = 64
_SI = 6
"""The number of the register of the second parameter."""
_IS_ENTRY = re.compile(rb"\x41?\x80([\x78-\x7b\x7d-\x7f])(.)\x00", re.DOTALL)
"""``cmpb $0, OFFSET(%reg)``."""
_WIDE, _STORE, _CALL, _JUMPS = 0x48, 0x89, 0xE8, (0xE9, 0xEB)
"""The prefix of 64-bit operands, and opcodes: ``mov`` from a register, ``call``, ``jmp``."""
_ENDS = frozenset({0xC3, 0xFF})
"""``ret``, and ``jmp`` to what a register has (or a call of such, which handlers do not begin with)."""
_HIGH = 0x41
"""The prefix of registers from r8 on as base."""
_REGISTER, _SIB = 3, 4
"""Values of a ModRM byte's fields: the operand is a register; a byte with the base follows."""


class EvalLoop(msgspec.Struct, frozen=True):
    """Offsets in the file: handlers of RESUME, and where frames end. *register* is the number (in instructions) of the
    register that has the frame there.
    """

    entries: tuple[int, ...]
    ends: tuple[int, ...]
    register: int


def eval_loop(file: ElfFile, layout: Layout) -> EvalLoop:
    """The places of an interpreter.

    Raises:
        UnsupportedError: they are not known for its version, or cannot be found in this build.
    """
    if layout.op_resume is None or layout.op_return is None:
        raise UnsupportedError(
            f"functions of CPython 3.{layout.minor} cannot be probed (those of 3.11 to 3.14 can)"
        )
    if layout.code_tlbc is not None:
        # RESUME runs again in a thread that gets its copy of the code.
        raise UnsupportedError("functions of free-threaded builds since CPython 3.14 cannot be probed")
    if layout.minor >= handlers.TAIL_CALLS_SINCE and handlers.are_functions(file):
        # A faster form of RESUME jumps to the function of RESUME, which counts the call again.
        raise UnsupportedError("functions of builds with the tail-calling interpreter cannot be probed")
    found = _Loop(file, layout)
    resumes = (layout.op_resume, layout.op_resume_quick, layout.op_resume_instrumented)
    entries = [found.handler(number) for number in resumes if number is not None]
    ends, register = found.ends() if layout.minor < _CLEAR_SINCE else ([found.clear()], _SI)
    return EvalLoop(tuple(map(found.offset, entries)), tuple(map(found.offset, ends)), register)


class _Loop:
    def __init__(self, file: ElfFile, layout: Layout) -> None:
        symbol = file.any_symbol(handlers.LOOP)
        if symbol is None or not symbol.size:
            raise UnsupportedError(f"it has no symbol {handlers.LOOP}")
        self._file, self._layout = file, layout
        self._start, self._end = symbol.address, symbol.address + symbol.size
        self._all = handlers.HandlerTables(file)
        self._code = self._all.data(self._start, symbol.size)
        self._table = self._find_table()

    def offset(self, address: int) -> int:
        """Position in the file of an address in its code."""
        place = self._file.file_offset(address)
        if place is None or not self._all.executable(address):
            raise UnsupportedError(f"its code at {address:#x} is not in the file")
        if is_misread(self._all.data(address, 16)):
            raise UnsupportedError(f"the kernel would misread its code at {address:#x}")
        return place

    def handler(self, number: int) -> int:
        """Address of the handler of an instruction, which no other instruction has."""
        address = self._table[number]
        if self._table.count(address) != 1:
            raise UnsupportedError(f"instruction {number} shares its handler with others")
        return address

    def ends(self) -> tuple[list[int], int]:
        """Where the loop looks at ``is_entry`` of a frame that ends, and the number of the register with the frame."""
        assert self._layout.op_return is not None
        assert self._layout.op_generator is not None
        places: dict[int, int] = {}
        for start in self._instructions():
            match = _IS_ENTRY.match(self._code, start)
            if match is not None and match[2][0] == self._layout.frame_entry:
                places[self._start + start] = match[1][0] & 7 | (match[0][0] == _HIGH) << 3
        generator = self._first_of(self.handler(self._layout.op_generator), places)
        value = self._first_of(self.handler(self._layout.op_return), places)
        registers = set(places.values())
        if len(places) != 3 or value is None or generator in (None, value) or len(registers) != 1:
            raise UnsupportedError("where its functions end was not found: its code is not compiled as expected")
        return [place for place in places if place != generator], registers.pop()

    def _first_of(self, handler: int, places: Collection[int]) -> int | None:
        """The first of some places in the straight code of a handler."""
        return next((place for place, _ in self._straight(handler) if place in places), None)

    def clear(self) -> int:
        """Address of the function that each frame which ends is handed to, as the second parameter.

        The handlers of instructions that return call it before any other function, and so does something else: the end
        by an exception.
        """
        layout = self._layout
        symbol = self._file.any_symbol(_CLEAR.get(layout.minor, _CLEAR_LATER))
        numbers = [number for number in (layout.op_return, layout.op_constant) if number is not None]
        calls = [self._first_call(self.handler(number)) for number in numbers]
        targets = {target for _, target, _ in calls}
        (target,) = targets if len(targets) == 1 else (0,)
        known = symbol is not None and (target == symbol.address or self._in_plt(target))
        passed = symbol is None and all(registers.get(_SI) for _, _, registers in calls)
        if not (target and (known or passed)) or not self._callers(target) - {place for place, _, _ in calls}:
            raise UnsupportedError("where its functions end was not found: its code is not compiled as expected")
        return target if symbol is None else symbol.address

    def _callers(self, target: int) -> set[int]:
        """Where the loop calls a function."""
        places = (self._start + match.start() for match in re.finditer(rb"\xe8", self._code))
        ends = ((place, struct.unpack("=i", self._all.data(place + 1, 4))[0]) for place in places)
        return {place for place, distance in ends if place + 5 + distance == target}

    # ---- the table

    def _find_table(self) -> list[int]:
        """The table of handlers, which the code refers to: that of the function, or parts that were moved away."""
        tables = self._tables(self._start, self._code)
        if not tables:
            segments = [one for one in self._file.segments if one.executable]
            code = ((one.address, self._all.data(one.address, one.file_size)) for one in segments)
            tables = [table for address, data in code for table in self._tables(address, data, moved=True)]
        if len(tables) != 1:
            what = "no table" if not tables else f"{len(tables)} tables"
            raise UnsupportedError(f"its evaluation loop has {what} of handlers (probes need one with computed gotos)")
        return tables[0]

    def _tables(self, start: int, code: bytes, *, moved: bool = False) -> list[list[int]]:
        """Tables of handlers that code refers to, which begins at an address; *moved*: that of other functions, too."""
        return [
            table
            for table in self._all.referred(start, code)
            if len({handler for handler in table if moved or self._start <= handler < self._end})
            >= (handlers.FEWEST if moved else _FEWEST)
        ]

    # ---- code

    def _first_call(self, address: int) -> tuple[int, int, dict[int, bool]]:
        """The first call in straight code: its place, the function, and of registers, whether they have the frame.

        The frame is in the register at whose distance the handler stores the address of the instruction.
        """
        frame = -1
        passed: dict[int, bool] = {}
        for place, code in self._straight(address):
            if code[0] == _CALL:
                return place, place + 5 + int.from_bytes(code[1:5], "little", signed=True), passed
            if len(code) >= 3 and code[0] & 0xF8 == _WIDE and code[1] == _STORE:
                mode, source = code[2] >> 6, code[2] >> 3 & 7 | (code[0] & 4) << 1
                base = code[3 if mode == 1 and code[2] & 7 == _SIB else 2] & 7 | (code[0] & 1) << 3
                if mode == 1 and code[-1] == self._layout.frame_instruction:
                    frame = base
                elif mode == _REGISTER:
                    passed[base] = source == frame
        raise UnsupportedError("the handler of RETURN_VALUE calls nothing")

    def _instructions(self) -> Iterator[int]:
        """Offsets of the loop's instructions: what looks like one inside of another is none."""
        try:
            yield from instructions.instruction_starts(self._code, "x86_64")
        except instructions.BadCodeError as error:
            raise UnsupportedError(f"its code cannot be read: {error}") from None

    def _straight(self, address: int) -> Iterator[tuple[int, bytes]]:
        """Instructions from an address on, through jumps; conditional ones are not taken."""
        for _ in range(_MOST_INSTRUCTIONS):
            code = self._all.data(address, 16)
            try:
                code = code[: instructions.instruction_length(code, 0, "x86_64")]
            except instructions.BadCodeError as error:
                raise UnsupportedError(f"its code cannot be read: {error}") from None
            if code[0] in _JUMPS:
                address += len(code) + int.from_bytes(code[1:], "little", signed=True)
                continue
            yield address, code
            if code[0] in _ENDS:
                return
            address += len(code)

    def _in_plt(self, address: int) -> bool:
        sections = [section for section in self._file.sections if section.name.startswith(".plt")]
        return any(section.address <= address < section.address + section.size for section in sections)
