"""Where functions of user binaries are left, as far as their files say it.

A jump out of a function is another part of it (``.cold``) if its frame is still on the stack there, which the unwind
table says; else the code that it leads to returns in its place. The returns of that code are found in the same way.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from typing import TYPE_CHECKING

from pytrace.core import instructions
from pytrace.core.instructions import BadCodeError, Exit, FunctionExits, Jump
from pytrace.core.probe_kinds import ALWAYS, Way
from pytrace.core.stack_formats import Rule
from pytrace.runtime.binaries.elf_file import EM_AARCH64, EM_X86_64, SHT_DYNSYM, UnwindEntries
from pytrace.runtime.stacks import unwind_tables

if TYPE_CHECKING:
    from array import array

    from pytrace.runtime.binaries.user_binary import Binary


MOST_EXITS = 128
"""Exits of a function that are used, so that a jump to one that jumps to many others costs no more."""
MOST_FUNCTIONS = 16
"""Functions whose returns are followed for one function that jumps to them."""
MOST_CODE = 1 << 20
"""Bytes of a function that are decoded, which takes most of a second."""
_MOST_PARTS = 8
_OF_C_LIBRARY = "__libc_start_main"
_MACHINES = {EM_X86_64: "x86_64", EM_AARCH64: "aarch64"}
_CALLER_ONLY = Rule.RSP | 1 << 12
"""The rule of a CFA of rsp + 8: the return address is on top of the stack."""
_WHERE_BP = 0xFF0
"""The bits of a rule that say where rbp was saved."""


class _UnknownError(Exception):
    """Why the exits of a function are not known."""


class _Body:
    """The parts of one function, its returns, and the jumps that end its frame."""

    def __init__(self) -> None:
        self.ranges: list[range] = []
        self.returns: list[int] = []
        self.jumps: list[Jump] = []

    def __contains__(self, address: int) -> bool:
        return any(address in part for part in self.ranges)


class ExitFinder:
    """Finds the exits of the functions of one binary."""

    def __init__(self, binary: Binary) -> None:
        self._binary = binary
        self._elf = binary.elf
        self._machine = _MACHINES.get(self._elf.machine, "")
        self._bodies: dict[int, _Body | str] = {}

    def exits(self, address: int, size: int) -> FunctionExits:
        """The exits of the function at a virtual address; a *size* of 0 is not known."""
        try:
            exits, problem = self._exits(address, size)
        except _UnknownError as error:
            exits, problem = [], str(error)
        if len(exits) > MOST_EXITS:
            exits, problem = [], f"it is left in {len(exits)} places, and at most {MOST_EXITS} are probed"
        return FunctionExits(tuple(exits), problem, self._unwound)

    @cached_property
    def _unwound(self) -> bool:
        """Whether exceptions pass through functions of the file: code of C++ and Rust has handlers.

        The C library has some for ``pthread_cancel``, and calls nothing that throws but what programs hand to it.
        """
        if self._elf.section(".gcc_except_table") is None:
            return False
        return not any(section.type == SHT_DYNSYM and table.match(_OF_C_LIBRARY)
                       for section, table in zip(self._elf.symbol_sections, self._elf.tables, strict=True))

    def _exits(self, address: int, size: int) -> tuple[list[Exit], str]:
        """The exits, and the problem if there is one."""
        if not self._elf.wide:
            raise _UnknownError("32-bit code is not decoded")
        own = self._body(address, size)
        others: dict[int, _Body] = {}
        marked: list[Jump] = []
        unseen = ""
        for jump in own.jumps:
            try:
                self._follow(jump, own, others)
                marked.append(jump)
            except _UnknownError as error:
                unseen = unseen or str(error)
        returns = [self._exit(at, address) for at in own.returns]
        if unseen:
            jumps = [self._exit(jump.address, address, Way.JUMP, jump.condition) for jump in own.jumps]
            return [*returns, *jumps], unseen
        marks = [self._exit(jump.address, address, Way.MARK, jump.condition) for jump in marked]
        elsewhere = sorted({at for body in others.values() for at in body.returns} - set(own.returns))
        return [*returns, *marks, *(self._exit(at, address, Way.ELSEWHERE) for at in elsewhere)], ""

    def _exit(self, at: int, start: int, way: Way = Way.RETURN, condition: int = ALWAYS) -> Exit:
        offset = self._elf.file_offset(at)
        if offset is None:
            raise _UnknownError("it has no code in the file")
        return Exit(offset, at - start, way, condition)

    def _follow(self, jump: Jump, own: _Body, others: dict[int, _Body]) -> None:
        """Add the functions that a jump out of *own* leads to, and those that these jump to, to *others*."""
        waiting, added = [jump], dict(others)
        while waiting:
            target = waiting.pop().target
            if target is None:
                raise _UnknownError("it jumps to a function whose address it computes")
            if target in own or target in added:
                continue
            if self._binary.plt_entry(target) is not None or self._in_linkage_table(target):
                raise _UnknownError("it jumps to a function of another file")
            if len(added) >= MOST_FUNCTIONS:
                raise _UnknownError(f"it jumps to more than {MOST_FUNCTIONS} functions")
            start, end = self._extent(target)
            if self._machine == "aarch64" and not self._named(target):
                raise _UnknownError("it jumps to code that may be a part of it")
            if start != target:
                raise _UnknownError("it jumps into another function")
            body = self._body(target, end - start)
            added[target] = body
            waiting += body.jumps
        others.update(added)

    def _named(self, address: int) -> bool:
        symbol = self._binary.covering(address)
        return symbol is not None and symbol.address == address

    def _in_linkage_table(self, address: int) -> bool:
        return any(item.address <= address < item.address + item.size
                   for item in self._elf.sections if item.name.startswith((".plt", ".iplt")))

    # ---- one function

    def _body(self, address: int, size: int) -> _Body:
        known = self._bodies.get(address)
        if known is None:
            try:
                known = self._decoded(address, size)
            except _UnknownError as error:
                known = str(error)
            self._bodies[address] = known
        if isinstance(known, str):
            raise _UnknownError(known)
        return known

    def _decoded(self, address: int, size: int) -> _Body:
        if not size:
            address, end = self._extent(address)
            size = end - address
        body, parts = _Body(), [range(address, address + size)]
        leaving: list[Jump] = []
        while parts:
            part = parts.pop()
            body.ranges.append(part)
            if len(body.ranges) > _MOST_PARTS:
                raise _UnknownError(f"it has more than {_MOST_PARTS} parts")
            flow = self._flow(part)
            body.returns += flow.returns
            for jump in flow.jumps:
                if jump.target is not None and (jump.target in body or any(jump.target in item for item in parts)):
                    continue
                other = self._part(jump, address)
                if other is not None:
                    parts.append(other)
                elif jump.target is not None or not self._has_frame(jump):
                    leaving.append(jump)
        # Parts that were found later may be what earlier jumps lead to.
        body.jumps = [jump for jump in leaving if jump.target is None or jump.target not in body]
        return body

    def _flow(self, part: range) -> instructions.Flow:
        offset = self._elf.file_offset(part.start)
        if offset is None:
            raise _UnknownError("it has no code in the file")
        if len(part) > MOST_CODE:
            raise _UnknownError(f"it has more than {MOST_CODE >> 20} MiB of code")
        at = offset - self._elf.base
        try:
            return instructions.control_flow(bytes(self._elf.view[at : at + len(part)]), part.start, self._machine)
        except BadCodeError as error:
            raise _UnknownError(str(error)) from None

    def _part(self, jump: Jump, function: int) -> range | None:
        """What a jump leads to if that is a part of the same function."""
        if jump.target is None:
            return None
        symbol = self._binary.covering(jump.target)
        named = symbol is not None and ".cold" in symbol.name
        if not named and not self._has_frame(jump):
            return None
        if not named and symbol is not None and symbol.size and symbol.address != function:
            # Assembler: functions share a part that lies in one of them.
            raise _UnknownError("it jumps into another function")
        if not named and self._machine == "x86_64" and self._rule(jump.target) & ~_WHERE_BP == _CALLER_ONLY:
            raise _UnknownError("the unwind table does not describe how it ends")
        start, end = self._extent(jump.target)
        return range(start, end)

    def _rule(self, address: int) -> int:
        rows = self._rows
        at = bisect_right(rows, address << 32 | 0xFFFFFFFF) - 1
        return rows[at] & 0xFFFFFFFF if at >= 0 else 0

    def _has_frame(self, jump: Jump) -> bool:
        """Whether the function's frame is still on the stack at a jump, which then leads to a part of it."""
        if self._machine == "aarch64":
            return False
        rule = self._rule(jump.address)
        base = rule & 15
        if base in (Rule.RSP, Rule.RBP, Rule.AT_RBP, Rule.AT_RSP):
            return jump.tabled or rule & ~_WHERE_BP != _CALLER_ONLY
        if jump.tabled:
            return True
        symbol = None if jump.target is None else self._binary.covering(jump.target)
        if symbol is not None and symbol.address == jump.target and not rule:
            return False
        raise _UnknownError("it has a jump at which the unwind table does not say how deep the stack is")

    @cached_property
    def _rows(self) -> array[int]:
        steps = unwind_tables.table(self._elf)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                rows: array[int] = end.value
                return rows

    def _extent(self, address: int) -> tuple[int, int]:
        """Start and end of the code that has no symbol of its own, or of the function, at an address."""
        symbol = self._binary.covering(address)
        if symbol is not None and symbol.size:
            return symbol.address, symbol.address + symbol.size
        extent = self._entries.extent(address)
        if extent is not None:
            return extent
        raise _UnknownError("it jumps to code whose end is not known")

    @cached_property
    def _entries(self) -> UnwindEntries:
        return UnwindEntries(self._elf)
