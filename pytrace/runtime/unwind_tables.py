"""Unwind tables of binaries: ``.eh_frame`` compiled to rows that a BPF program can search.

A row is a ``u64``: the virtual address in the file from which it holds (high 32 bits) and a rule (low 32 bits), the
rule being how a frame's caller is found there:

====== ==== =====================================================================================================
bits   name meaning
====== ==== =====================================================================================================
0-3    kind see :class:`Rule`
4-11   bp   where the caller's rbp is: 0 unchanged, 255 where rbp points to, else that many words below the CFA
12-31  cfa  signed distance in words (:attr:`Rule.PLT`: the number that the table compares with)
====== ==== =====================================================================================================

The CFA (canonical frame address) is the stack pointer before the call; the return address is in the word below it.
Sources: DWARF 5, section 6.4; the Linux Standard Base, "Exception Frames"; System V ABI for AMD64, section 3.6.
"""

from __future__ import annotations

import hashlib
import os
import struct
from array import array
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from pytrace.runtime.elf import ElfFile

RBP, RSP, RETURN = 6, 7, 16
"""Numbers of registers in DWARF (System V ABI for AMD64, figure 3.36)."""

FORMAT = 1
"""Number of the file form of kept tables."""

_WORD = 8
_BP_AT_RBP = 255
_CFA_LIMIT = 1 << 19
_POINTER_FORMATS = {0x0: "<Q", 0x2: "<H", 0x3: "<I", 0x4: "<Q", 0xA: "<h", 0xB: "<i", 0xC: "<q"}
_PC_RELATIVE = 0x10


class Rule(IntEnum):
    """How the CFA is computed."""

    NONE = 0
    """Not known here: unwinding ends."""
    RSP = 1
    RBP = 2
    AT_RBP = 3
    """In memory at rbp + distance (functions that align their stack)."""
    AT_RSP = 4
    PLT = 5
    """rsp + 8, and 8 more once the address within the 16-byte entry has reached a number."""
    SIGNAL = 6
    """The kernel's signal frame lies at rsp: all registers are in it."""
    LAST = 7
    """There is no caller."""


@dataclass(slots=True)
class _State:
    """Rules at one address.

    *bp* as in a row, None for a rule that a row cannot hold; *returns* is where the return address is, as an offset
    from the CFA, None when it is undefined; *sane* is False for a CFA that a row cannot hold.
    """

    base: Rule = Rule.NONE
    offset: int = 0
    bp: int | None = 0
    returns: int | None = -_WORD
    sane: bool = True

    def copy(self) -> _State:
        """Another one with the same rules."""
        return _State(self.base, self.offset, self.bp, self.returns, self.sane)

    def pack(self) -> int:
        """The rule of a row."""
        if self.returns is None:
            return Rule.LAST
        if not self.sane or self.returns != -_WORD or self.bp is None:
            return Rule.NONE
        distance = self.offset if self.base is Rule.PLT else self.offset // _WORD
        if (self.base is not Rule.PLT and self.offset % _WORD) or not -_CFA_LIMIT <= distance < _CFA_LIMIT:
            return Rule.NONE
        return (distance & 0xFFFFF) << 12 | self.bp << 4 | self.base


@dataclass(frozen=True, slots=True)
class _Cie:
    """What FDEs share."""

    code_step: int
    data_step: int
    encoding: int
    augmented: bool
    signal: bool
    initial: _State


def _bp_rule(offset: int) -> int | None:
    words, rest = divmod(-offset, _WORD)
    return words if not rest and 0 < words < _BP_AT_RBP else None


def _cfa_expression(code: bytes) -> tuple[Rule, int] | None:
    """The expressions that compilers and linkers make: memory at a register plus offset; a PLT entry's."""
    if len(code) >= 3 and code[0] in (0x76, 0x77) and code[-1] == 0x06:
        offset, end = _signed(code, 1)
        if end == len(code) - 1:
            return (Rule.AT_RBP if code[0] == 0x76 else Rule.AT_RSP), offset
    # rsp + 8 + ((rip & 15) >= N) * 8
    if len(code) == 11 and code[:6] == bytes.fromhex("770880003f1a") and code[7:] == bytes.fromhex("2a332422"):
        return Rule.PLT, code[6] - 0x30
    return None


class _Interpreter:
    """Runs call frame instructions and notes the rule from each address on."""

    def __init__(self, cie: _Cie | None, code_step: int, data_step: int) -> None:
        self._initial = cie.initial if cie is not None else _State()
        self._code_step, self._data_step = code_step, data_step
        self.state = self._initial.copy()
        self._kept: list[_State] = []
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
                offset, at = _unsigned(code, at)
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

    # ---- operations: take code and position, give the position behind the operands

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
        register, at = _unsigned(code, at)
        offset, at = _unsigned(code, at)
        self._saved(register, offset * self._data_step)
        return at

    def _offset_extended_signed(self, code: bytes, at: int) -> int:
        register, at = _unsigned(code, at)
        offset, at = _signed(code, at)
        self._saved(register, offset * self._data_step)
        return at

    def _restore_extended(self, code: bytes, at: int) -> int:
        register, at = _unsigned(code, at)
        self._restore(register)
        return at

    def _undefined(self, code: bytes, at: int) -> int:
        register, at = _unsigned(code, at)
        if register == RETURN:
            self.state.returns = None
        return at

    def _same_value(self, code: bytes, at: int) -> int:
        register, at = _unsigned(code, at)
        if register == RBP:
            self.state.bp = 0
        return at

    def _register(self, code: bytes, at: int) -> int:
        """The register's value is in another register, or at a value that a row cannot hold."""
        register, at = _unsigned(code, at)
        _, at = _unsigned(code, at)
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
        register, at = _unsigned(code, at)
        offset, at = _unsigned(code, at)
        self._set_cfa(register, offset)
        return at

    def _cfa_signed(self, code: bytes, at: int) -> int:
        register, at = _unsigned(code, at)
        offset, at = _signed(code, at)
        self._set_cfa(register, offset * self._data_step)
        return at

    def _set_cfa(self, register: int, offset: int) -> None:
        base = {RSP: Rule.RSP, RBP: Rule.RBP}.get(register)
        self.state.base = base or Rule.NONE
        self.state.offset = offset
        self.state.sane = base is not None

    def _cfa_register(self, code: bytes, at: int) -> int:
        register, at = _unsigned(code, at)
        self._set_cfa(register, self.state.offset)
        return at

    def _cfa_offset(self, code: bytes, at: int) -> int:
        offset, at = _unsigned(code, at)
        self.state.offset = offset
        return at

    def _cfa_offset_signed(self, code: bytes, at: int) -> int:
        offset, at = _signed(code, at)
        self.state.offset = offset * self._data_step
        return at

    def _cfa_expression(self, code: bytes, at: int) -> int:
        length, at = _unsigned(code, at)
        found = _cfa_expression(code[at : at + length])
        base, offset = found or (Rule.NONE, 0)
        self.state.base = base
        self.state.offset = offset
        self.state.sane = found is not None
        return at + length

    def _expression(self, code: bytes, at: int) -> int:
        """The register is saved where an expression says: for rbp, where rbp itself points."""
        register, at = _unsigned(code, at)
        length, at = _unsigned(code, at)
        if register == RBP and code[at : at + length] == b"\x76\x00":
            self.state.bp = _BP_AT_RBP
        else:
            self._lost(register)
        return at + length

    def _value_expression(self, code: bytes, at: int) -> int:
        register, at = _unsigned(code, at)
        length, at = _unsigned(code, at)
        self._lost(register)
        return at + length

    def _arguments_size(self, code: bytes, at: int) -> int:
        return _unsigned(code, at)[1]


_Operation = Callable[[_Interpreter, bytes, int], int]

_OPERATIONS: dict[int, _Operation] = {
    0x00: _Interpreter._nop,
    0x02: _Interpreter._advance_1,
    0x03: _Interpreter._advance_2,
    0x04: _Interpreter._advance_4,
    0x05: _Interpreter._offset_extended,
    0x06: _Interpreter._restore_extended,
    0x07: _Interpreter._undefined,
    0x08: _Interpreter._same_value,
    0x09: _Interpreter._register,
    0x0A: _Interpreter._remember,
    0x0B: _Interpreter._recall,
    0x0C: _Interpreter._cfa,
    0x0D: _Interpreter._cfa_register,
    0x0E: _Interpreter._cfa_offset,
    0x0F: _Interpreter._cfa_expression,
    0x10: _Interpreter._expression,
    0x11: _Interpreter._offset_extended_signed,
    0x12: _Interpreter._cfa_signed,
    0x13: _Interpreter._cfa_offset_signed,
    0x14: _Interpreter._register,
    0x15: _Interpreter._register,
    0x16: _Interpreter._value_expression,
    0x2E: _Interpreter._arguments_size,
}
"""Call frame instructions beside the three whose operand is in the first byte."""


# ---------------------------------------------------------------------------------------------- numbers


def _unsigned(code: bytes, at: int) -> tuple[int, int]:
    """ULEB128 and the position behind it."""
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


def _signed(code: bytes, at: int) -> tuple[int, int]:
    """SLEB128 and the position behind it."""
    value = shift = 0
    byte = 0x80
    while byte & 0x80:
        byte = code[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
    return (value - (1 << shift) if byte & 0x40 else value), at


# ---------------------------------------------------------------------------------------------- entries


class _Reader:
    """Reads the entries of one ``.eh_frame`` section that is loaded at *address*."""

    def __init__(self, data: bytes, address: int) -> None:
        self._data = data
        self._address = address
        self._cies: dict[int, _Cie | None] = {}
        self._known: dict[tuple[int, bytes], list[tuple[int, int]]] = {}
        self.rows: list[int] = []

    def read(self) -> None:
        """Fill :attr:`rows`: start addresses in the high half, rules in the low one, in no order."""
        data, at, size = self._data, 0, len(self._data)
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
            at = end

    def _function(self, cie_at: int, at: int, end: int) -> None:
        if cie_at not in self._cies:
            self._cies[cie_at] = self._cie(cie_at)
        cie = self._cies[cie_at]
        if cie is None:
            return
        start, size, at = self._range(cie, at)
        if not size or not 0 <= start <= 0xFFFFFFFF - size:
            return
        if cie.augmented:
            length, at = _unsigned(self._data, at)
            at += length
        add = self.rows.append
        add(start + size << 32)
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
            interpreter = _Interpreter(cie, cie.code_step, cie.data_step)
            try:
                interpreter.run(code)
                # Of several rules for one address the last one counts.
                known = list(dict(interpreter.rows).items())
            except IndexError:
                known = []
            self._known[key] = known
        return known

    def _range(self, cie: _Cie, at: int) -> tuple[int, int, int]:
        """Start and size of what an FDE is about, and the position behind them."""
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
            code_step, at = _unsigned(data, stop + 1)
            data_step, at = _signed(data, at)
            _, at = (data[at], at + 1) if version == 1 else _unsigned(data, at)
            encoding, signal, at = self._augmentation(letters, at)
            if encoding & 0xF not in _POINTER_FORMATS or encoding & 0x70 not in (0, _PC_RELATIVE):
                return None
            interpreter = _Interpreter(None, code_step, data_step)
            interpreter.run(data[at:end])
        except (IndexError, ValueError, struct.error):
            return None
        return _Cie(code_step, data_step, encoding, letters.startswith("z"), signal, interpreter.state)

    def _augmentation(self, letters: str, at: int) -> tuple[int, bool, int]:
        """Encoding of addresses, whether it is a signal frame, and the position behind the data."""
        if not letters.startswith("z"):
            return 0, False, at
        length, at = _unsigned(self._data, at)
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


def compile_table(file: ElfFile) -> array[int]:
    """Rows of a binary in order of address; empty when it has no ``.eh_frame``."""
    section = file.section(".eh_frame")
    if section is None:
        return array("Q")
    reader = _Reader(bytes(file.contents(section)), section.address)
    reader.read()
    return array("Q", _compact(reader.rows))


def _compact(rows: list[int]) -> list[int]:
    """Sorted, one row for each address (a rule wins over the end of what is before), none that repeats the rule."""
    rows.sort()
    found: list[int] = []
    rule = -1
    last = len(rows) - 1
    for at, row in enumerate(rows):
        if at < last and row >> 32 == rows[at + 1] >> 32:
            continue
        if row & 0xFFFFFFFF != rule:
            rule = row & 0xFFFFFFFF
            found.append(row)
    return found


# ---------------------------------------------------------------------------------------------- kept tables


def folder() -> Path:
    """Where compiled tables are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "pytrace" / "unwind"


def table(file: ElfFile) -> array[int]:
    """As :func:`compile_table`, kept on disk for binaries that have a build id."""
    if not file.build_id:
        return compile_table(file)
    path = folder() / f"{file.build_id}.{FORMAT}"
    rows = array("Q")
    with suppress(OSError, ValueError):
        data = path.read_bytes()
        if hashlib.blake2b(data[16:], digest_size=16).digest() == data[:16]:
            rows.frombytes(data[16:])
            return rows
    rows = compile_table(file)
    _keep(path, rows.tobytes())
    return rows


def _keep(path: Path, data: bytes) -> None:
    """Write a table; a folder that cannot be written to costs time at the next start, nothing else."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f"{path.name}.{os.getpid()}")
        scratch.write_bytes(hashlib.blake2b(data, digest_size=16).digest() + data)
        scratch.replace(path)
