"""Where functions are left: their return instructions, and jumps out of them.

Decoding is conservative. The code of a function is swept from its start, and the result is used only if everything in
it agrees: each direct branch inside leads to the start of an instruction, the last instruction ends with the function,
and execution cannot fall out of its end. x86-64 follows the Intel manual (volume 2); AArch64 the Arm manual (C4.1.65).
"""

from __future__ import annotations

import struct

import msgspec

from pytrace.core.probes.instruction_starts import BadCodeError, Decoder, length
from pytrace.core.probes.targets import ALWAYS, Way


class Exit(msgspec.Struct, frozen=True):
    """An instruction at which a function is left: its file *offset*, and its *distance* from the function's start.

    *condition* is that of a jump (:class:`Jump`).
    """

    offset: int
    distance: int
    way: Way = Way.RETURN
    condition: int = ALWAYS


class FunctionExits(msgspec.Struct, frozen=True):
    """All instructions at which a function is left.

    *problem* is set where they are not all known, with the reason: then there are none, or (a function whose code is
    understood jumps to code that is not) some are :data:`Way.JUMP`. *unwound*: exceptions may pass through it.
    """

    exits: tuple[Exit, ...] = ()
    problem: str = ""
    unwound: bool = False


class Jump(msgspec.Struct, frozen=True):
    """A jump that may leave a function: its *address*, and where it leads (None: that is computed).

    *condition* is the number of the processor's condition (the lower half of the opcode), or :data:`ALWAYS`. *tabled*
    is set where the instructions before it read its target from a table of distances, as compilers do for ``switch``.
    """

    address: int
    target: int | None
    condition: int = ALWAYS
    tabled: bool = False


class Flow(msgspec.Struct, frozen=True):
    """How execution leaves a range of code: addresses of the return instructions, and the jumps out of it."""

    returns: tuple[int, ...]
    jumps: tuple[Jump, ...]


def flow(code: bytes, address: int, machine: str) -> Flow:
    """Decode *code*, a function or a part of one, which is linked at *address*.

    Raises:
        BadCodeError: the code or the machine is not supported, or it does not look like that of a compiler.
    """
    if not code:
        raise BadCodeError("it has no code in the file")
    if machine == "aarch64":
        return _aarch64(code, address)
    return _X86(code, address, machine).flow()


_RETURN, _RETURN_POP = 0xC3, 0xC2
_JUMP, _JUMP_SHORT, _GROUP_5 = 0xE9, 0xEB, 0xFF
_FAR = frozenset({0xCA, 0xCB, 0xCF})
"""Returns and interrupt returns to another segment."""
_HALT, _TRAP, _UD2, _CALL = 0xF4, 0xCC, 0x0F0B, 0xE8
_MOVSLQ, _ADD = 0x63, (0x01, 0x03)
_LOOK_BACK = 8
"""Instructions before a computed jump that are searched for a read from a table."""


class _X86:
    """One sweep over x86-64 code."""

    def __init__(self, code: bytes, address: int, machine: str) -> None:
        self._code, self._address, self._machine = code, address, machine
        self._returns: list[int] = []
        self._jumps: list[Jump] = []
        self._inside: list[int] = []
        """Offsets that direct branches lead to."""
        self._recent: list[int] = []
        """Opcodes of the last instructions."""

    def flow(self) -> Flow:
        code, offset, starts, ends = self._code, 0, set(), False
        while offset < len(code):
            starts.add(offset)
            size = length(code, offset, self._machine)
            if offset + size > len(code):
                raise BadCodeError("the code ends inside an instruction")
            ends = self._instruction(offset, Decoder(code, offset)) or (ends and self._padding)
            offset += size
        if not ends:
            raise BadCodeError("it continues in what follows it")
        if not starts.issuperset(self._inside):
            raise BadCodeError("a branch leads into an instruction")
        return Flow(tuple(self._returns), tuple(self._jumps))

    @property
    def _padding(self) -> bool:
        """Whether the last instruction is a nop."""
        return self._recent[-1] in (0x90, 0x0F1F)

    def _instruction(self, offset: int, decoded: Decoder) -> bool:
        """Note an instruction. Returns whether execution does not continue after it, or a call may end it."""
        opcode, end = decoded.opcode, decoded.end
        self._recent = [*self._recent[1 - _LOOK_BACK :], opcode]
        if opcode in (_RETURN, _RETURN_POP):
            self._returns.append(self._address + offset)
            return True
        if opcode in (_JUMP, _JUMP_SHORT):
            self._branch(offset, decoded, 4 if opcode == _JUMP else 1, ALWAYS)
            return True
        if 0x70 <= opcode <= 0x7F or 0x0F80 <= opcode <= 0x0F8F:
            self._branch(offset, decoded, 4 if opcode > 0xFF else 1, opcode & 15)
        elif 0xE0 <= opcode <= 0xE3:
            self._inside.append(self._target(end, 1))
            if not 0 <= self._inside[-1] < len(self._code):
                raise BadCodeError("a loop instruction leads out of it")
        elif opcode == _GROUP_5:
            return self._indirect(offset, decoded)
        elif opcode in _FAR or (opcode == _CALL and decoded.short):
            raise BadCodeError(f"it has an unusual branch ({self._code[offset:end].hex(' ')})")
        return opcode in (_HALT, _TRAP, _UD2, _CALL)

    def _target(self, end: int, size: int) -> int:
        return end + int.from_bytes(self._code[end - size : end], "little", signed=True)

    def _branch(self, offset: int, decoded: Decoder, size: int, condition: int) -> None:
        if decoded.short:
            # Processors of Intel ignore the prefix, those of AMD truncate the target.
            raise BadCodeError("it has a branch with an operand size prefix")
        target = self._target(decoded.end, size)
        if 0 <= target < len(self._code):
            self._inside.append(target)
        else:
            self._jumps.append(Jump(self._address + offset, self._address + target, condition))

    def _indirect(self, offset: int, decoded: Decoder) -> bool:
        """A call or jump by a register or memory; or an addition and the like."""
        operand = self._code[decoded.operand]
        kind = operand >> 3 & 7
        if kind in (3, 5):
            raise BadCodeError("it has a jump to another segment")
        if kind == 4:
            # With notrack only jumps by tables are made, as their targets have no landing pads (-fcf-protection).
            notrack = 0x3E in self._code[offset : decoded.operand - 1]
            distances = _MOVSLQ in self._recent and any(item in self._recent[-4:] for item in _ADD)
            indexed = operand & 0xC7 == 0x04 and self._code[decoded.operand + 1] & 7 == 5
            if not notrack:
                self._jumps.append(Jump(self._address + offset, None, ALWAYS, distances or indexed))
        return kind in (2, 4)


def _aarch64(code: bytes, address: int) -> Flow:
    returns: list[int] = []
    jumps: list[Jump] = []
    ends = False
    if len(code) % 4:
        raise BadCodeError("the code ends inside an instruction")
    for index, (word,) in enumerate(struct.iter_unpack("<I", code)):
        at = address + 4 * index
        ends = True
        if word & 0xFFFFFC1F == 0xD65F0000 or word in (0xD65F0BFF, 0xD65F0FFF):
            returns.append(at)
        elif word & 0xFC000000 == 0x14000000:
            distance = (word & 0x3FFFFFF ^ 0x2000000) - 0x2000000
            if not 0 <= at + 4 * distance - address < len(code):
                jumps.append(Jump(at, at + 4 * distance))
        elif word & 0xFE1F0000 == 0xD61F0000 and word & 0x00600000 == 0:
            raise BadCodeError("it has a jump to an address that it computes")
        else:
            # bl, blr and udf may be the last: what they call does not return.
            ends = word & 0xFC000000 == 0x94000000 or word & 0xFFFFFC1F == 0xD63F0000 or word >> 16 == 0
            if word & 0xFF000000 == 0x54000000 or word & 0x7E000000 in (0x34000000, 0x36000000):
                narrow = word & 0x7E000000 == 0x36000000
                bits = word >> 5 & (0x3FFF if narrow else 0x7FFFF)
                distance = (bits ^ (top := 0x2000 if narrow else 0x40000)) - top
                if not 0 <= at + 4 * distance - address < len(code):
                    raise BadCodeError("a conditional branch leads out of it")
    if not ends:
        raise BadCodeError("it continues in what follows it")
    return Flow(tuple(returns), tuple(jumps))
