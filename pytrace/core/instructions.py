"""Machine code at probes: where instructions start, which the kernel's uprobes misread, where functions are left.

A probe inside an instruction would corrupt it.

Lengths for x86-64 follow the opcode maps of the Intel manual (volume 2, appendix A); only the length is decoded.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

from pytrace.core.probe_kinds import ALWAYS, Way

_PREFIXES = frozenset({0x26, 0x2E, 0x36, 0x3E, 0x64, 0x65, 0x66, 0x67, 0xF0, 0xF2, 0xF3})
_LONGEST = 15


def _numbers(*ranges: int | tuple[int, int]) -> frozenset[int]:
    return frozenset(
        n for item in ranges for n in (range(item[0], item[1] + 1) if isinstance(item, tuple) else (item,))
    )


_ARITHMETIC = tuple((base, base + 3) for base in range(0, 0x40, 8))
_MODRM = _numbers(*_ARITHMETIC, 0x63, 0x69, 0x6B, (0x80, 0x81), (0x83, 0x8F), (0xC0, 0xC1), (0xC6, 0xC7),
                  (0xD0, 0xD3), (0xD8, 0xDF), (0xF6, 0xF7), (0xFE, 0xFF))  # fmt: skip
_BYTE = _numbers(*range(4, 0x40, 8), 0x6A, 0x6B, (0x70, 0x80), 0x83, 0xA8, (0xB0, 0xB7), (0xC0, 0xC1), 0xC6, 0xCD,
                 (0xE0, 0xE7), 0xEB)  # fmt: skip
_WORD = _numbers(0xC2, 0xCA)
_LONG = _numbers(*range(5, 0x40, 8), 0x68, 0x69, 0x81, 0xA9, (0xB8, 0xBF), 0xC7)
"""Four bytes, or two with the operand size prefix."""
_BRANCH = _numbers(0xE8, 0xE9)
_WRONG = _numbers(*range(6, 0x26, 8), *range(7, 0x40, 8), 0x16, 0x1E, 0x60, 0x61, 0x82, 0x9A, 0xCE, (0xD4, 0xD6), 0xEA)
"""Opcodes that are invalid in 64-bit mode."""

_TWO_PLAIN = _numbers((0x04, 0x0C), 0x0E, (0x30, 0x37), 0x77, (0x80, 0x8F), (0xA0, 0xA2), (0xA8, 0xAA), (0xC8, 0xCF))
"""Opcodes after 0F without a ModRM byte."""
_TWO_BYTE = _numbers(0x0F, (0x70, 0x73), 0xA4, 0xAC, 0xBA, 0xC2, (0xC4, 0xC6))
"""Opcodes after 0F with a byte of immediate."""


class BadCodeError(ValueError):
    """Bytes that are not an instruction."""


def instruction_starts(code: bytes, machine: str) -> Iterator[int]:
    """Offsets of the instructions in *code*, the first of which is at offset 0.

    Raises:
        BadCodeError: the code or the machine is not supported.
    """
    offset = 0
    while offset < len(code):
        yield offset
        offset += instruction_length(code, offset, machine)


def instruction_length(code: bytes, offset: int, machine: str) -> int:
    """Length of the instruction at an offset of *code*."""
    return 4 if machine == "aarch64" else decode(code, offset, machine).end - offset


def decode(code: bytes, offset: int, machine: str) -> Decoder:
    """The instruction at an offset of *code*.

    Raises:
        BadCodeError: it is none, or the machine is not x86-64.
    """
    if machine != "x86_64":
        raise BadCodeError(f"instructions of {machine} are not supported")
    try:
        decoded = Decoder(code, offset)
    except IndexError:
        raise BadCodeError("the code ends inside an instruction") from None
    if decoded.end - offset > _LONGEST:
        raise BadCodeError("too long for an instruction")
    return decoded


class Decoder:
    """Decodes the length of one x86-64 instruction.

    *end* is the offset of the next one, *operand* that of the ModRM byte (-1 without one). *opcode* is an opcode of the
    one-byte map, or 0x0F00 plus one of the two-byte map; -1 in other maps and after VEX and EVEX prefixes.

    Raises:
        BadCodeError: it is not an instruction.
        IndexError: the code ends inside it.
    """

    def __init__(self, code: bytes, offset: int) -> None:
        self.code = code
        self.end = offset
        self.operand = self.opcode = -1
        self.short = self.wide = self.near = False
        byte = self._prefixes()
        if byte in (0xC4, 0xC5, 0x62):
            self._vector(byte)
        elif byte == 0x0F:
            self._two(self._next())
        else:
            self._one(byte)

    def _next(self) -> int:
        byte = self.code[self.end]
        self.end += 1
        return byte

    def _prefixes(self) -> int:
        byte = self._next()
        while byte in _PREFIXES:
            self.short = self.short or byte == 0x66
            self.near = self.near or byte == 0x67
            byte = self._next()
        if 0x40 <= byte <= 0x4F:
            self.wide = bool(byte & 8)
            byte = self._next()
        return byte

    def _operand(self) -> int:
        """Skip a ModRM byte with its SIB byte and displacement. Returns the ModRM byte."""
        self.operand = self.end
        byte = self._next()
        mode, register = byte >> 6, byte & 7
        if mode == 3:
            return byte
        base = self._next() & 7 if register == 4 else register
        if mode == 1:
            self.end += 1
        elif mode == 2 or base == 5:
            self.end += 4
        return byte

    def _one(self, opcode: int) -> None:
        if opcode in _WRONG:
            raise BadCodeError(f"{opcode:#04x} is not an instruction")
        self.opcode = opcode
        operand = self._operand() if opcode in _MODRM else 0
        if opcode in (0xF6, 0xF7):
            # Of this group only TEST has an immediate.
            if operand >> 3 & 7 < 2:
                self.end += 1 if opcode == 0xF6 else self._size()
        elif 0xA0 <= opcode <= 0xA3:
            self.end += 4 if self.near else 8
        elif opcode == 0xC8:
            self.end += 3
        elif 0xB8 <= opcode <= 0xBF and self.wide:
            self.end += 8
        else:
            self.end += self._immediate(opcode)

    def _immediate(self, opcode: int) -> int:
        if opcode in _BYTE:
            return 1
        if opcode in _WORD:
            return 2
        if opcode in _BRANCH:
            return 4
        return self._size() if opcode in _LONG else 0

    def _size(self) -> int:
        return 2 if self.short and not self.wide else 4

    def _two(self, opcode: int) -> None:
        self.opcode = -1 if opcode in (0x38, 0x3A) else 0x0F00 | opcode
        if opcode == 0x38:
            self.end += 1
            self._operand()
        elif opcode == 0x3A:
            self.end += 1
            self._operand()
            self.end += 1
        elif opcode in _TWO_PLAIN:
            self.end += 4 if 0x80 <= opcode <= 0x8F else 0
        else:
            self._operand()
            self.end += 1 if opcode in _TWO_BYTE else 0

    def _vector(self, prefix: int) -> None:
        """VEX (C4, C5) and EVEX (62): the opcode map is in the prefix."""
        group = 1 if prefix == 0xC5 else self.code[self.end] & (0x1F if prefix == 0xC4 else 7)
        self.end += {0xC5: 1, 0xC4: 2, 0x62: 3}[prefix]
        opcode = self._next()
        if group == 1 and opcode == 0x77:
            return
        self._operand()
        if group == 3 or (group == 1 and opcode in _TWO_BYTE):
            self.end += 1


# ------------------------------------------------------------------------------------------------- misread instructions

# x86-64 instructions that the kernel's uprobes misdecode, so that a probe on one corrupts the program.
#
# arch/x86/kernel/uprobes.c decides by the opcode byte whether it emulates an instruction (`branch_setup_xol_ops`) and
# what it fixes up after a single step (`arch_uprobe_analyze_insn`). That byte means something else after a VEX, EVEX or
# XOP prefix: `vpbroadcastb` has the opcode of `jp`, `vpor` that of `jmp`. Tried on Linux 6.1 and 6.18.


_VECTOR = {0xC5: 2, 0xC4: 3, 0x62: 4}
"""VEX and EVEX prefixes, and the offset of the opcode after them."""
_XOP = 0x8F
_NOP = 0x90
_LEGACY = frozenset({0x26, 0x2E, 0x36, 0x3E, 0x64, 0x65, 0x66, 0x67, 0xF0, 0xF2, 0xF3})
_MISREAD = frozenset(
    {
        *range(0x70, 0x80),  # emulated as a conditional jump: vpshufd, vpcmpeqb, vmovd to a register, vzeroupper …
        0x90,  # emulated as a nop: kmov, vpgatherdd
        0x9A,  # call: the return address on the stack is corrected (older kernels; newer ones refuse it)
        0x9D,  # popf: single stepping stays on, and the program dies of SIGTRAP
        0xC2, 0xC3, 0xCA, 0xCB, 0xEA,  # returns and a jump: the program stays in the copy of the instruction
        0xE8, 0xE9, 0xEB,  # emulated as a call or jump: vpsubsb, vpsubsw, vpor
        0xFF,  # by the ModRM byte a call or jump
    }
)  # fmt: skip
_FIRST = frozenset({*_VECTOR, _XOP, *_LEGACY, *range(0x40, 0x50)})
"""First bytes of all instructions that may be misdecoded."""


def is_misread(code: bytes) -> bool:
    """Whether a uprobe at the first instruction of *code* would corrupt the program."""
    if not code or code[0] not in _FIRST:
        return False
    offset = 0
    while offset < len(code) and code[offset] in _LEGACY:
        offset += 1
    rest = code[offset:]
    if len(rest) < 2:
        return False
    if rest[0] in _VECTOR:
        opcode = _VECTOR[rest[0]]
        return opcode < len(rest) and rest[opcode] in _MISREAD
    if rest[0] == _XOP:
        # The kernel does not know XOP and reads a pop; with a lower number in these bits it is one.
        return rest[1] & 0x1F >= 8
    # xchg of r8 and rax (REX.B) is taken for the nop that it is without the prefix.
    return 0x40 <= rest[0] <= 0x4F and bool(rest[0] & 1) and rest[1] == _NOP


# ------------------------------------------------------------------------------------------------------- function exits

# Where functions are left: their return instructions, and jumps out of them.
#
# Decoding is conservative. The code of a function is swept from its start, and the result is used only if everything
# in it agrees: each direct branch inside leads to the start of an instruction, the last instruction ends with the
# function, and execution cannot fall out of its end. x86-64 follows the Intel manual (volume 2); AArch64 the Arm
# manual (C4.1.65).


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


def control_flow(code: bytes, address: int, machine: str) -> Flow:
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
            decoded = decode(code, offset, self._machine)
            if decoded.end > len(code):
                raise BadCodeError("the code ends inside an instruction")
            ends = self._instruction(offset, decoded) or (ends and self._padding)
            offset = decoded.end
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
