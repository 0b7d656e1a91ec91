"""Instruction boundaries in machine code: a probe inside an instruction would corrupt it.

Lengths for x86-64 follow the opcode maps of the Intel manual (volume 2, appendix A); only the length is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator

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


def starts(code: bytes, machine: str) -> Iterator[int]:
    """Offsets of the instructions in *code*, the first of which is at offset 0.

    Raises:
        BadCodeError: the code or the machine is not supported.
    """
    offset = 0
    while offset < len(code):
        yield offset
        offset += length(code, offset, machine)


def length(code: bytes, offset: int, machine: str) -> int:
    """Length of the instruction at an offset of *code*."""
    if machine == "aarch64":
        return 4
    if machine != "x86_64":
        raise BadCodeError(f"instructions of {machine} are not supported")
    try:
        size = Decoder(code, offset).end - offset
    except IndexError:
        raise BadCodeError("the code ends inside an instruction") from None
    if size > _LONGEST:
        raise BadCodeError("too long for an instruction")
    return size


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
