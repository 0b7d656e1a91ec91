"""Call frame instructions of ``.eh_frame``, run to the rules of :mod:`pytrace.core.stacks.unwind_format`.

Sources: DWARF 5, section 6.4.2; System V ABI for AMD64, section 3.6.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from pytrace.core.stacks.unwind_format import CFA_LIMIT, REGISTERS, WHERE_RBP_POINTS, WORD, Rule
from pytrace.runtime.elf.leb128 import signed, unsigned

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
