"""Call frame instructions of ``.eh_frame``, run to the rules of :mod:`pytrace.core.unwind_format`.

Sources: DWARF 5, section 6.4.2; System V ABI for AMD64, section 3.6.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from pytrace.core.unwind_format import CFA_LIMIT, WHERE_RBP_POINTS, WORD, Rule

RBP, RSP, RETURN = 6, 7, 16
"""Numbers of registers in DWARF (System V ABI for AMD64, figure 3.36)."""


class State(msgspec.Struct):
    """Rules at one address.

    *bp* as in a row, None for a rule that a row cannot hold; *returns* is where the return address is, as an offset
    from the CFA, None when it is undefined; *sane* is False for a CFA that a row cannot hold.
    """

    base: Rule = Rule.NONE
    offset: int = 0
    bp: int | None = 0
    returns: int | None = -WORD
    sane: bool = True

    def copy(self) -> State:
        """Another one with the same rules."""
        return State(self.base, self.offset, self.bp, self.returns, self.sane)

    def pack(self) -> int:
        """The rule of a row."""
        if self.returns is None:
            return Rule.LAST
        if not self.sane or self.returns != -WORD or self.bp is None:
            return Rule.NONE
        distance = self.offset if self.base is Rule.PLT else self.offset // WORD
        if (self.base is not Rule.PLT and self.offset % WORD) or not -CFA_LIMIT <= distance < CFA_LIMIT:
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
        self._kept: list[State] = []
        self._at = 0
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
            else:
                at = _OPERATIONS[byte](self, code, at) if byte in _OPERATIONS else self._unknown(size)
        self.rows.append((self._at, self.state.pack()))

    def _advance(self, steps: int) -> None:
        self.rows.append((self._at, self.state.pack()))
        self._at += steps * self._code_step

    def _saved(self, register: int, offset: int) -> None:
        if register == RBP:
            self.state.bp = _bp_rule(offset)
        elif register == RETURN:
            self.state.returns = offset

    def _restore(self, register: int) -> None:
        if register == RBP:
            self.state.bp = self._initial.bp
        elif register == RETURN:
            self.state.returns = self._initial.returns

    def _unknown(self, size: int) -> int:
        self.state.sane = False
        return size

    # ---- operations: take code and position, give the position after the operands

    def _nop(self, _code: bytes, at: int) -> int:
        return at

    def _advance_1(self, code: bytes, at: int) -> int:
        self._advance(code[at])
        return at + 1

    def _advance_2(self, code: bytes, at: int) -> int:
        self._advance(int.from_bytes(code[at : at + 2], "little"))
        return at + 2

    def _advance_4(self, code: bytes, at: int) -> int:
        self._advance(int.from_bytes(code[at : at + 4], "little"))
        return at + 4

    def _offset_extended(self, code: bytes, at: int) -> int:
        register, at = unsigned(code, at)
        offset, at = unsigned(code, at)
        self._saved(register, offset * self._data_step)
        return at

    def _offset_extended_signed(self, code: bytes, at: int) -> int:
        register, at = unsigned(code, at)
        offset, at = signed(code, at)
        self._saved(register, offset * self._data_step)
        return at

    def _restore_extended(self, code: bytes, at: int) -> int:
        register, at = unsigned(code, at)
        self._restore(register)
        return at

    def _undefined(self, code: bytes, at: int) -> int:
        register, at = unsigned(code, at)
        if register == RETURN:
            self.state.returns = None
        return at

    def _same_value(self, code: bytes, at: int) -> int:
        register, at = unsigned(code, at)
        if register == RBP:
            self.state.bp = 0
        return at

    def _register(self, code: bytes, at: int) -> int:
        """The register's value is in another register, or at a value that a row cannot hold."""
        register, at = unsigned(code, at)
        _, at = unsigned(code, at)
        self._lost(register)
        return at

    def _lost(self, register: int) -> None:
        if register == RBP:
            self.state.bp = None
        elif register == RETURN:
            self.state.returns = 0

    def _remember(self, _code: bytes, at: int) -> int:
        self._kept.append(self.state.copy())
        return at

    def _recall(self, _code: bytes, at: int) -> int:
        if self._kept:
            self.state = self._kept.pop()
        return at

    def _cfa(self, code: bytes, at: int) -> int:
        register, at = unsigned(code, at)
        offset, at = unsigned(code, at)
        self._set_cfa(register, offset)
        return at

    def _cfa_signed(self, code: bytes, at: int) -> int:
        register, at = unsigned(code, at)
        offset, at = signed(code, at)
        self._set_cfa(register, offset * self._data_step)
        return at

    def _set_cfa(self, register: int, offset: int) -> None:
        base = {RSP: Rule.RSP, RBP: Rule.RBP}.get(register)
        self.state.base = base or Rule.NONE
        self.state.offset = offset
        self.state.sane = base is not None

    def _cfa_register(self, code: bytes, at: int) -> int:
        register, at = unsigned(code, at)
        self._set_cfa(register, self.state.offset)
        return at

    def _cfa_offset(self, code: bytes, at: int) -> int:
        offset, at = unsigned(code, at)
        self.state.offset = offset
        return at

    def _cfa_offset_signed(self, code: bytes, at: int) -> int:
        offset, at = signed(code, at)
        self.state.offset = offset * self._data_step
        return at

    def _cfa_expression(self, code: bytes, at: int) -> int:
        length, at = unsigned(code, at)
        found = cfa_expression(code[at : at + length])
        base, offset = found or (Rule.NONE, 0)
        self.state.base = base
        self.state.offset = offset
        self.state.sane = found is not None
        return at + length

    def _expression(self, code: bytes, at: int) -> int:
        """The register is saved where an expression says: for rbp, where rbp itself points."""
        register, at = unsigned(code, at)
        length, at = unsigned(code, at)
        if register == RBP and code[at : at + length] == b"\x76\x00":
            self.state.bp = WHERE_RBP_POINTS
        else:
            self._lost(register)
        return at + length

    def _value_expression(self, code: bytes, at: int) -> int:
        register, at = unsigned(code, at)
        length, at = unsigned(code, at)
        self._lost(register)
        return at + length

    def _arguments_size(self, code: bytes, at: int) -> int:
        return unsigned(code, at)[1]


_Operation = Callable[[Interpreter, bytes, int], int]

_OPERATIONS: dict[int, _Operation] = {
    0x00: Interpreter._nop,
    0x02: Interpreter._advance_1,
    0x03: Interpreter._advance_2,
    0x04: Interpreter._advance_4,
    0x05: Interpreter._offset_extended,
    0x06: Interpreter._restore_extended,
    0x07: Interpreter._undefined,
    0x08: Interpreter._same_value,
    0x09: Interpreter._register,
    0x0A: Interpreter._remember,
    0x0B: Interpreter._recall,
    0x0C: Interpreter._cfa,
    0x0D: Interpreter._cfa_register,
    0x0E: Interpreter._cfa_offset,
    0x0F: Interpreter._cfa_expression,
    0x10: Interpreter._expression,
    0x11: Interpreter._offset_extended_signed,
    0x12: Interpreter._cfa_signed,
    0x13: Interpreter._cfa_offset_signed,
    0x14: Interpreter._register,
    0x15: Interpreter._register,
    0x16: Interpreter._value_expression,
    0x2E: Interpreter._arguments_size,
}
"""Call frame instructions beside the three whose operand is in the first byte."""


# ---------------------------------------------------------------------------------------------- numbers


def unsigned(code: bytes, at: int) -> tuple[int, int]:
    """ULEB128 and the position after it."""
    byte = code[at]
    at += 1
    if byte < 0x80:
        return byte, at
    value, shift = byte & 0x7F, 7
    while byte & 0x80:
        byte = code[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
    return value, at


def signed(code: bytes, at: int) -> tuple[int, int]:
    """SLEB128 and the position after it."""
    value = shift = 0
    byte = 0x80
    while byte & 0x80:
        byte = code[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
    return (value - (1 << shift) if byte & 0x40 else value), at
