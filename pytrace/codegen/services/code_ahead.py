"""The innermost frame in code without a table (x86-64): where the return address is, by the instructions ahead.

At the first instructions of a function, and after it has given its frame back, ``rbp`` is the caller's, and following
it would leave the caller out. A function that keeps no frame has an ``rbp`` of somebody else throughout. So the
instructions from the current one on are followed, with what they push and pop, until they say it:

- ``mov %rsp, %rbp`` (``lea n(%rsp), %rbp`` of .NET): the frame is about to be there, the return address is above it;
- ``ret``: the return address is on top of the stack then. V8 pops it, removes the arguments, and pushes it again;
- anything else that is not understood (a call, ``leave``, another write to ``rsp`` or ``rbp``, many instructions): the
  frame is there, and ``rbp`` points to it.

A compiler has one depth of the stack at each place, so it does not matter which way the processor goes at a branch.
Source: Intel's manual, volume 2, appendix A (opcode maps).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.values import I1, I64, Number, Ptr
from pytrace.core.source import Span

_BYTES = 192
"""Code that is read: V8's interpreter looks at a function for 110 bytes before it makes a frame."""
_LONGEST = 15
"""Bytes of the longest instruction."""
_INSTRUCTIONS = 32
_PAGE = 4096
_AT, _DEPTH, FOUND, SAVED, _SP, _BP, _POPPED, _REGISTER, _HIDDEN = range(_BYTES, _BYTES + 72, 8)
"""Offsets of the state, after the code: position of the next instruction; as distances from the stack pointer, what the
instructions so far have popped (negative: pushed), where the return address is, and where the caller's rbp is
(:data:`NOWHERE`: not known, or in the register); rsp and rbp; where the word was that was popped last, and to which
register; what :meth:`_Step._hidden` stores."""
SIZE = _BYTES + 72
NOWHERE = -1
_LOST = 1 << 32
"""A distance that is not known, at least half of this: arguments were removed, whose number is in a register."""
_REX_R, _REX_B = 4, 1
"""Bits of the REX prefix: a register above 7, in the ModRM byte or as its operand (or in the opcode)."""

_IMMEDIATE, _MODRM, _UNKNOWN, _TO_REGISTER = 7, 8, 16, 32
"""What a byte of :data:`OPCODES` says: bytes of immediate value; a ModRM byte follows; the instruction is not
understood; its result is in the register of the ModRM byte, not in the operand."""


def _opcodes() -> bytes:
    """Opcodes of one byte, then those after 0x0F."""
    table = bytearray([_UNKNOWN] * 512)

    def put(codes: Iterable[int], what: int) -> None:
        for code in codes:
            table[code] = what

    for row in range(0, 0x40, 8):  # add, or, adc, sbb, and, sub, xor, cmp
        to_register = _TO_REGISTER if row != 0x38 else 0
        put((row, row + 1), _MODRM)
        put((row + 2, row + 3), _MODRM | to_register)
        put((row + 4,), 1)
        put((row + 5,), 4)
    put((*range(0x50, 0x60), 0x90, *range(0x91, 0x94), *range(0x96, 0x9A), 0xC3), 0)
    put((0x63, 0x8A, 0x8B, 0x8D), _MODRM | _TO_REGISTER)
    put((0x68, 0xA9, *range(0xB8, 0xC0), 0xE9), 4)
    put((0x6A, *range(0x70, 0x80), 0xA8, *range(0xB0, 0xB8), 0xEB), 1)
    put((0x69, 0x81, 0xC7), _MODRM | 4)
    put((0x6B, 0x80, 0x83, 0xC0, 0xC1, 0xC6), _MODRM | 1)
    put((0x84, 0x85, 0x86, 0x87, 0x88, 0x89, *range(0xD0, 0xD4)), _MODRM)
    put((0xC2,), 2)
    put((0xF6,), _MODRM | 1)  # test; the others of the group have no immediate value
    put((0xF7,), _MODRM | 4)
    put((0xFE, 0xFF), _MODRM)  # inc, dec; the latter also calls, jumps and pushes
    two = 256
    put((two + code for code in (*range(0x10, 0x20), *range(0x28, 0x30), *range(0x40, 0x70))), _MODRM)
    put((two + code for code in (0x74, 0x75, 0x76, *range(0x7E, 0x80), *range(0x90, 0xA0), 0xA3, 0xAB, 0xAF)), _MODRM)
    put((two + code for code in (0xB0, 0xB1, 0xB3, *range(0xB6, 0xBA), *range(0xBB, 0xC2), *range(0xD0, 0xFF))), _MODRM)
    put((two + code for code in (0x70, 0xA4, 0xAC, 0xBA, 0xC2, 0xC4, 0xC5, 0xC6)), _MODRM | 1)
    put((two + code for code in range(0x80, 0x90)), 4)
    put((two + code for code in (0x05, 0x77)), 0)  # syscall; vzeroupper
    return bytes(table)


OPCODES = _opcodes()


def find(e: Emitter, span: Span, area: int, ip: Number, sp: Number, bp: Number) -> None:
    """Look for the return address, with the registers of the frame.

    Args:
        e: the emitter.
        span: of the stack in the script.
        area: scratch offset of :data:`SIZE` bytes; the result is at :data:`FOUND` and :data:`SAVED` in it.
        ip: the next instruction.
        sp: the stack pointer.
        bp: rbp.
    """
    b = e.b
    for offset, value in ((_AT, 0), (_DEPTH, 0), (FOUND, NOWHERE), (SAVED, NOWHERE), (_POPPED, NOWHERE)):
        b.store(value, e.area(area + offset))
    b.store(sp, e.area(area + _SP))
    b.store(bp, e.area(area + _BP))
    # At the end of what is mapped, the rest of the page: the zeros after it lead nowhere.
    with b.when(b.truth(b.helper(helpers.PROBE_READ_USER, e.area(area), _BYTES, ip)), likely=False):
        left = b.at_most(b.sub(_PAGE, b.op("and", ip, _PAGE - 1)), _BYTES)
        b.helper(helpers.PROBE_READ_USER, e.area(area), left, ip)
    e.loops.run(span, _INSTRUCTIONS, lambda inner, _index: _Step(inner, area).emit())


class _Step(msgspec.Struct, frozen=True):
    """One instruction; the loop ends at one that says where the return address is, or that is not understood."""

    e: Emitter
    area: int

    def emit(self) -> None:
        """The body of the loop."""
        b, at = self.e.b, self.e.b.register()
        b.store(self._load(_AT), at)
        self._leave_if(b.icmp("ugt", b.load(at), _BYTES - _LONGEST - 1))
        first = self._byte(b.load(at))
        short = b.icmp("eq", first, 0x66)
        prefix = b.either(short, b.either(b.icmp("eq", first, 0xF2), b.icmp("eq", first, 0xF3)))
        b.store(b.add(b.load(at), b.number(prefix)), at)
        rex = self._byte(b.load(at))
        has_rex = b.icmp("eq", b.op("and", rex, 0xF0), 0x40)
        rex = b.select(has_rex, rex, 0)
        b.store(b.add(b.load(at), b.number(has_rex)), at)
        # Of VEX, the short form: a byte in place of prefixes, then an opcode of the second map.
        vex = b.icmp("eq", self._byte(b.load(at)), 0xC5)
        second = b.either(vex, b.icmp("eq", self._byte(b.load(at)), 0x0F))
        b.store(b.add(b.add(b.load(at), b.number(vex)), b.number(second)), at)
        b.store(self._hidden(b.load(at)), at)
        rex = self._hidden(rex)
        code = self._hidden(b.op("or", self._byte(b.load(at)), b.op("shl", b.number(second), 8)))
        what = b.load(b.offset(self.e.module.constant(OPCODES), b.at_most(code, len(OPCODES) - 1)), 8)
        self._leave_if(b.truth(b.op("and", what, _UNKNOWN)))
        b.store(b.add(b.load(at), 1), at)
        size = b.register()
        b.store(b.op("and", what, _IMMEDIATE), size)
        with b.when(b.both(short, b.icmp("eq", b.load(size), 4))):
            b.store(2, size)
        with b.when(b.both(b.icmp("eq", b.op("and", code, 0x1F8), 0xB8), b.icmp("uge", rex, 0x48))):
            b.store(8, size)
        b.store(self._hidden(b.load(size)), size)
        other = b.block()
        b.jump_unless(b.truth(b.op("and", what, _MODRM)), other)
        self._with_operand(at, code, rex, what, size)
        b.ret(0)
        b.start(other)
        end = b.add(b.load(at), b.load(size))
        self._store(_AT, end)
        self._without_operand(code, rex, end)

    def _with_operand(self, at: Ptr, code: I64, rex: I64, what: I64, size: Ptr) -> None:
        """An instruction with a ModRM byte at position *at*, and perhaps a SIB byte, a displacement and a value."""
        b, position = self.e.b, self.e.b.load(at)
        modrm = self._byte(position)
        mode, register, operand = b.op("lshr", modrm, 6), b.op("and", b.op("lshr", modrm, 3), 7), b.op("and", modrm, 7)
        in_register = b.icmp("eq", mode, 3)
        has_sib = b.both(b.icmp("ne", mode, 3), b.icmp("eq", operand, 4))
        sib = b.select(has_sib, self._byte(b.add(position, 1)), 0)
        # Without a base: 5 in place of it.
        base = b.select(has_sib, b.op("and", sib, 7), operand)
        far = b.either(b.icmp("eq", mode, 2), b.both(b.icmp("eq", mode, 0), b.icmp("eq", base, 5)))
        displacement = self._hidden(b.select(far, 4, b.number(b.icmp("eq", mode, 1))))
        with b.when(b.both(b.icmp("eq", b.op("and", code, 0x1FE), 0xF6), b.icmp("uge", register, 2))):
            b.store(0, size)
        self._leave_if(b.both(b.icmp("eq", code, 0xFF), b.icmp("uge", register, 2)))
        end = b.add(b.add(position, 1), b.add(b.number(has_sib), b.add(displacement, b.load(size))))
        self._store(_AT, end)
        self._frame(code, rex, modrm, sib, end)
        # Any other write to rsp or rbp, whose numbers are 4 and 5.
        to_register = b.truth(b.op("and", what, _TO_REGISTER))
        target = b.select(to_register, register, operand)
        extended = b.op("and", rex, b.select(to_register, _REX_R, _REX_B))
        writes = b.both(b.icmp("ult", code, 256), b.either(to_register, in_register))
        writes = b.both(writes, b.icmp("eq", extended, 0))
        written = self._hidden(b.select(writes, target, 0))
        self._leave_if(b.icmp("eq", written, 5))
        with b.when(b.icmp("eq", written, 4)):
            self._leave_if(b.icmp("eq", self._load(_POPPED), NOWHERE))
            self._store(_DEPTH, _LOST)

    def _frame(self, code: I64, rex: I64, modrm: I64, sib: I64, end: I64) -> None:
        """Instructions that set the stack pointer, or rbp from it; of 64 bits, and no register above 7."""
        b, other = self.e.b, self.e.b.block()
        b.jump_unless(b.icmp("eq", rex, 0x48), other)
        form = b.op("or", b.op("shl", code, 16), b.op("or", b.op("shl", modrm, 8), sib))
        depth = self._load(_DEPTH)
        with b.when(self._is(form, 0x89_E500, 0x8B_EC00)):  # mov %rsp, %rbp
            self._at_frame(depth)
        for width, add, subtract, move, point in (
            (8, 0x83_C400, 0x83_EC00, 0x8D_6424, 0x8D_6C24),  # add, sub; lea n(%rsp), %rsp; lea n(%rsp), %rbp
            (32, 0x81_C400, 0x81_EC00, 0x8D_A424, 0x8D_AC24),
        ):
            with b.when(self._is(form, add, subtract, move, point)):
                number = b.fit(self._number(end, width), width, signed=True)
                with b.when(b.icmp("eq", form, point)):
                    self._at_frame(b.add(depth, number))
                step = b.select(b.icmp("eq", form, subtract), b.sub(0, number), number)
                self._store(_DEPTH, b.add(depth, step))
                b.ret(0)
        b.jump(other)
        b.start(other)

    def _without_operand(self, code: I64, rex: I64, end: I64) -> None:
        """Pushes, pops, returns and jumps."""
        b, depth = self.e.b, self._load(_DEPTH)
        with b.when(self._is(code, 0xC2, 0xC3)):
            with b.when(b.icmp("ult", depth, _LOST // 2)):
                self._store(FOUND, depth)
            self.e.loops.leave()
        register = b.op("or", b.op("and", code, 7), b.op("shl", b.op("and", rex, _REX_B), 3))
        with b.when(b.icmp("eq", b.op("and", code, 0x1F8), 0x50)):
            lost = b.icmp("sge", depth, _LOST // 2)
            back = b.both(lost, b.icmp("eq", register, self._load(_REGISTER)))
            self._store(_DEPTH, b.select(back, self._load(_POPPED), b.sub(depth, 8)))
        with b.when(self._is(code, 0x68, 0x6A)):
            self._store(_DEPTH, b.sub(depth, 8))
        with b.when(b.icmp("eq", b.op("and", code, 0x1F8), 0x58)):
            self._leave_if(b.icmp("eq", register, 4))
            self._store(_DEPTH, b.add(depth, 8))
            with b.when(b.icmp("eq", register, 5)):
                self._leave_if(b.icmp("slt", depth, 0))
                self._store(SAVED, depth)
                b.ret(0)
            self._store(_POPPED, depth)
            self._store(_REGISTER, register)
        for jump, width in ((0xEB, 8), (0xE9, 32)):
            with b.when(b.icmp("eq", code, jump)):
                self._store(_AT, b.add(end, b.fit(self._number(end, width), width, signed=True)))

    def _at_frame(self, record: I64) -> None:
        """Rbp is about to point to a frame record, which must have the current rbp, unless that is pushed later."""
        b = self.e.b
        self._leave_if(b.icmp("slt", record, -8))
        with b.unless(b.icmp("slt", record, 0)):
            failed = b.helper(helpers.PROBE_READ_USER, self.e.cell, 8, b.add(self._load(_SP), record))
            self._leave_if(b.truth(failed))
            self._leave_if(b.icmp("ne", b.load(self.e.cell), self._load(_BP)))
        self._store(FOUND, b.add(record, 8))
        self.e.loops.leave()

    # ------------------------------------------------------------------ primitives

    def _is(self, value: I64, *values: int) -> I1:
        first, *rest = (self.e.b.icmp("eq", value, one) for one in values)
        for one in rest:
            first = self.e.b.either(first, one)
        return first

    def _hidden(self, value: Number) -> I64:
        """The same number, of which the verifier knows nothing.

        It follows each value that a choice so far has left in a register, one after the other; numbers that come out
        of memory are all one to it. Six numbers by way of memory make 20,000 instructions of 67,000 for a stack.
        """
        return self.e.b.through(value, self.e.area(self.area + _HIDDEN))

    def _byte(self, position: I64) -> I64:
        return self.e.b.load(self._code(position), 8)

    def _number(self, end: I64, width: int) -> I64:
        """The number that an instruction ends with."""
        return self.e.b.load(self._code(self.e.b.sub(end, width // 8)), width, align=1)

    def _code(self, position: I64) -> Ptr:
        # Room for a number of 32 bits at the last byte is in the state after the code.
        return self.e.b.offset(self.e.area(self.area), self.e.b.at_most(position, _BYTES - 1))

    def _load(self, offset: int) -> I64:
        return self.e.b.load(self.e.area(self.area + offset))

    def _store(self, offset: int, value: Number) -> None:
        self.e.b.store(value, self.e.area(self.area + offset))

    def _leave_if(self, condition: I1) -> None:
        with self.e.b.when(condition, likely=False):
            self.e.loops.leave()
