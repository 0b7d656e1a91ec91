"""Unwinding of one frame of a user stack: unwind tables, code that is read ahead, registers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.emit.program import Part
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.builder import Block, Builder
from pytrace.codegen.ir.module import Module
from pytrace.codegen.ir.values import I1, I64, Number, Ptr, global_pointer, number_parameter, pointer_parameter
from pytrace.codegen.walkers import frame_pointers
from pytrace.core.manifest import MapType, UnwindMaps
from pytrace.core.source import Span
from pytrace.core.stack_formats import RANGE_SIZE, REGISTERS, SPACE_SIZE, WHERE_RBP_POINTS, Rule
from pytrace.core.types import Stack

SPACES, RANGES, ROWS, TOLD = "unwind_spaces", "unwind_ranges", "unwind_rows", "unwind_told"
ASKED, REQUESTS = "unwind_asked", "unwind_requests"
"""Symbols of the maps."""

PROCESSES = 8192
_TOLD_PROCESSES = 4096
"""Maximum number of processes without tables that are remembered, so that each is reported once."""

_RANGE_ENTRIES = 1 << 16
ROW_ENTRIES = 1 << 20
"""Initial number of rows; the session enlarges the map if it needs more."""

_ASK_AGAIN = 250_000_000
"""Nanoseconds between two requests for the tables of one process."""
_REQUEST_SIZE = 24
"""``u32`` event id and length of the tail (both 0), as in the ring of events; ``u64`` process id and address space."""

_MMAPABLE = 1 << 10
"""``BPF_F_MMAPABLE``: the session writes the array through a memory mapping."""

_RANGE_STEPS, _ROW_STEPS = 13, 26
"""Steps of binary search: log2 of the maximum ranges of a process, and of the maximum rows of a binary."""

RULE_FUNCTION, ASK_FUNCTION = "unwind_rule", "unwind_ask"


def unwind_maps(*, selected: bool, asks: bool) -> UnwindMaps:
    """The maps, for the manifest: for programs that unwind *selected* processes, and such that ask for tables."""
    return UnwindMaps(SPACES, RANGES, ROWS, ROW_ENTRIES, selected, REQUESTS if asks else "")


def declare_asking(module: Module) -> None:
    """Declare what programs ask for tables with, and the function that does it."""
    module.map(ASKED, {"type": MapType.LRU_HASH, "key_size": 4, "value_size": 16, "max_entries": _TOLD_PROCESSES})
    module.map(REQUESTS, {"type": MapType.RINGBUF, "max_entries": 4096})
    _ask_function(module)


def _ask_function(module: Module) -> None:
    """``unwind_ask(pid, space)``: request the tables of a process, unless that was done a moment ago."""
    b = module.function(ASK_FUNCTION, ("pid", "space"), None, apart=True)
    pid, space = number_parameter("pid"), number_parameter("space")
    key, value, request = b.alloca(8), b.alloca(16), b.alloca(_REQUEST_SIZE)
    done, ask = b.block(), b.block()
    now = b.helper(helpers.KTIME_GET_NS)
    b.store(pid, key, 32)
    known = b.helper(helpers.MAP_LOOKUP_ELEM, global_pointer(ASKED), key)
    b.jump_if(b.is_null(known), ask)
    b.jump_unless(b.icmp("eq", b.load(known), space), ask)
    b.branch(b.icmp("ult", b.sub(now, b.load(b.offset(known, 8))), _ASK_AGAIN), done, ask)
    b.start(ask)
    b.store(space, value)
    b.store(now, b.offset(value, 8))
    b.helper(helpers.MAP_UPDATE_ELEM, global_pointer(ASKED), key, value, 0)
    for offset, word in ((0, 0), (8, pid), (16, space)):
        b.store(word, b.offset(request, offset))
    b.helper(helpers.RINGBUF_OUTPUT, global_pointer(REQUESTS), request, _REQUEST_SIZE, 0)
    b.jump(done)
    b.start(done)
    b.ret(0)


def declare_tables(module: Module) -> None:
    """Declare the maps and the function that finds a rule."""
    module.map(SPACES, {"type": MapType.HASH, "key_size": 4, "value_size": SPACE_SIZE, "max_entries": PROCESSES})
    module.map(TOLD, {"type": MapType.LRU_HASH, "key_size": 4, "value_size": 4, "max_entries": _TOLD_PROCESSES})
    for symbol, size, entries in ((RANGES, RANGE_SIZE, _RANGE_ENTRIES), (ROWS, 8, ROW_ENTRIES)):
        module.map(
            symbol,
            {"type": MapType.ARRAY, "key_size": 4, "value_size": size, "max_entries": entries, "map_flags": _MMAPABLE},
        )
    _rule_function(module)


def _rule_function(module: Module) -> None:
    """``unwind_rule(address, space)``: the low half of the row that covers a user address.

    Where there is none it is :attr:`Rule.FRAME` or :attr:`Rule.UNMAPPED`.
    """
    b = module.function(RULE_FUNCTION, ("address", "space"), None, apart=True)
    address, space = number_parameter("address"), number_parameter("space")
    key = b.alloca(8)
    unmapped, none = b.block(), b.block()
    first, count = (b.op("and", number, 0xFFFF) for number in (space, b.op("lshr", space, 16)))
    index = _search(b, key, RANGES, _RANGE_STEPS, first, count, lambda entry: b.icmp("ule", b.load(entry), address))
    entry = _entry(b, key, RANGES, index, unmapped)
    b.jump_unless(b.icmp("ult", address, b.load(b.offset(entry, 8))), unmapped)
    place = b.sub(address, b.load(b.offset(entry, 16)))
    first, count = _halves(b, b.load(b.offset(entry, 24)))
    index = _search(
        b, key, ROWS, _ROW_STEPS, first, count, lambda entry: b.icmp("ule", b.op("lshr", b.load(entry), 32), place)
    )
    row = b.load(_entry(b, key, ROWS, index, none))
    b.ret(b.op("and", row, 0xFFFFFFFF))
    b.start(none)
    b.ret(Rule.FRAME.value)
    b.start(unmapped)
    b.ret(Rule.UNMAPPED.value)


def _halves(b: Builder, value: Number) -> tuple[I64, I64]:
    return b.op("and", value, 0xFFFFFFFF), b.op("lshr", value, 32)


def _lookup(b: Builder, key: Ptr, symbol: str, index: I64) -> Ptr:
    b.store(index, key, 32)
    return b.helper(helpers.MAP_LOOKUP_ELEM, global_pointer(symbol), key)


def _entry(b: Builder, key: Ptr, symbol: str, index: I64, none: Block) -> Ptr:
    """Entry *index* of an array; continues at *none* if there is none (index -1)."""
    entry = _lookup(b, key, symbol, index)
    b.jump_if(b.is_null(entry), none, likely=False)
    return entry


def _search(
    b: Builder, key: Ptr, symbol: str, steps: int, first: Number, count: Number, before: Callable[[Ptr], I1]
) -> I64:
    """Index of the last of *count* entries from *first* on for which *before* holds; -1 if there is none.

    Steps go from the largest power of two down, so the number of iterations does not depend on the data. The verifier
    knows only the step, so it follows each iteration once instead of every path through all of them.
    """
    result, step = b.register(), b.register()
    end = b.add(first, count)
    b.store(first, result)
    b.store(1 << steps - 1, step)
    head, again, done = b.block(), b.block(), b.block()
    b.jump(head)
    b.start(head)
    b.jump_unless(b.truth(b.load(step)), done)
    ahead = b.add(b.load(result), b.load(step))
    b.jump_unless(b.icmp("ule", ahead, end), again)
    entry = _lookup(b, key, symbol, b.sub(ahead, 1))
    b.jump_if(b.is_null(entry), again)
    b.jump_unless(before(entry), again)
    b.store(ahead, result)
    b.jump(again)
    b.start(again)
    b.store(b.op("lshr", b.load(step), 1), step)
    b.jump(head)
    b.start(done)
    last = b.load(result)
    return b.select(b.icmp("eq", last, first), -1, b.sub(last, 1))


_BYTES = 192
"""Code that is read: V8's interpreter looks at a function for 110 bytes before it makes a frame."""
_LONGEST = 15
"""Bytes of the longest instruction."""
_INSTRUCTIONS = 32
_PAGE = 4096
_AT, _DEPTH, _FOUND, SAVED, _SP, _BP, _POPPED, _REGISTER, _HIDDEN = range(_BYTES, _BYTES + 72, 8)
"""Offsets of the state, after the code: position of the next instruction; as distances from the stack pointer, what the
instructions so far have popped (negative: pushed), where the return address is, and where the caller's rbp is
(:data:`NOWHERE`: not known, or in the register); rsp and rbp; where the word was that was popped last, and to which
register; what :meth:`_Step._hidden` stores."""
CODE_STATE_SIZE = _BYTES + 72
_REACHED = 255
"""The last byte at which the verifier lets code be read, with room for a number of 32 bits."""
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

_DISPLACEMENT, _SIB, _MAYBE_NO_BASE, _IN_REGISTER = 7, 8, 16, 32
"""What a byte of :data:`OPERANDS` says: bytes of displacement; a SIB byte follows; four more if that has no base; the
operand is a register."""


def _operands() -> bytes:
    """ModRM bytes."""
    table = bytearray(256)
    for modrm in range(256):
        mode, operand = modrm >> 6, modrm & 7
        if mode == 3:
            table[modrm] = _IN_REGISTER
            continue
        table[modrm] = (4 if operand == 5 else 0, 1, 4)[mode]
        if operand == 4:
            table[modrm] |= _SIB | (_MAYBE_NO_BASE if mode == 0 else 0)
    return bytes(table)


OPERANDS = _operands()


class _Step(msgspec.Struct, frozen=True):
    """One instruction; the loop ends at one that says where the return address is, or that is not understood."""

    b: Builder
    module: Module
    state: Ptr
    cell: Ptr

    def emit(self) -> None:
        """The body of the loop.

        What an instruction consists of is found by arithmetic and by way of memory: the verifier follows each way that
        branches have left in registers, one after the other, through the rest of the loop.
        """
        b, at = self.b, self._load(_AT)
        self._leave_if(b.icmp("ugt", at, _BYTES - _LONGEST - 1))
        first = self._byte(at)
        short = self._equal(first, 0x66)
        at = b.add(at, b.op("or", short, b.op("or", self._equal(first, 0xF2), self._equal(first, 0xF3))))
        rex = self._byte(at)
        has_rex = self._equal(b.op("and", rex, 0xF0), 0x40)
        rex, at = b.mul(rex, has_rex), b.add(at, has_rex)
        # Of VEX, the short form: a byte in place of prefixes, then an opcode of the second map.
        escape = self._byte(at)
        vex = self._equal(escape, 0xC5)
        second = b.op("or", vex, self._equal(escape, 0x0F))
        at = self._hidden(b.add(at, b.add(vex, second)))
        rex = self._hidden(rex)
        code = self._hidden(b.op("or", self._byte(at), b.op("shl", second, 8)))
        what = b.load(b.offset(self.module.constant(OPCODES), b.op("and", b.opaque(code), len(OPCODES) - 1)), 8)
        self._leave_if(b.truth(b.op("and", what, _UNKNOWN)))
        at, size = b.add(at, 1), b.op("and", what, _IMMEDIATE)
        size = b.sub(size, b.op("shl", b.op("and", short, self._equal(size, 4)), 1))
        wide = b.op("and", self._equal(b.op("and", code, 0x1F8), 0xB8), b.op("lshr", rex, 3))
        size = self._hidden(b.add(size, b.mul(wide, b.sub(8, size))))
        other = b.block()
        b.jump_unless(b.truth(b.op("and", what, _MODRM)), other)
        self._with_operand(at, code, rex, what, size)
        b.ret(0)
        b.start(other)
        end = b.add(at, size)
        self._store(_AT, end)
        self._without_operand(code, rex, end)

    def _with_operand(self, position: I64, code: I64, rex: I64, what: I64, size: I64) -> None:
        """An instruction with a ModRM byte at *position*, and perhaps a SIB byte, a displacement and a value."""
        b = self.b
        modrm = self._byte(position)
        form = b.load(b.offset(self.module.constant(OPERANDS), modrm), 8)
        register, operand = b.op("and", b.op("lshr", modrm, 3), 7), b.op("and", modrm, 7)
        has_sib = self._bit(form, _SIB)
        sib = self._hidden(b.mul(self._byte(b.add(position, 1)), has_sib))
        # Without a base: 5 in place of it.
        far = b.op("and", self._bit(form, _MAYBE_NO_BASE), self._equal(b.op("and", sib, 7), 5))
        displacement = b.add(b.op("and", form, _DISPLACEMENT), b.op("shl", far, 2))
        no_value = b.op("and", self._equal(b.op("and", code, 0x1FE), 0xF6), b.nonzero(b.op("lshr", register, 1)))
        size = b.mul(size, b.sub(1, no_value))
        self._leave_if(b.both(b.icmp("eq", code, 0xFF), b.icmp("uge", register, 2)))
        end = self._hidden(b.add(b.add(position, 1), b.add(has_sib, b.add(displacement, size))))
        self._store(_AT, end)
        self._frame(code, rex, modrm, sib, end)
        # Any other write to rsp or rbp, whose numbers are 4 and 5.
        to_register = self._bit(what, _TO_REGISTER)
        target = b.add(operand, b.mul(to_register, b.sub(register, operand)))
        extended = b.op("and", rex, b.add(_REX_B, b.mul(to_register, _REX_R - _REX_B)))
        writes = b.op("and", b.op("or", to_register, self._bit(form, _IN_REGISTER)), b.sub(1, b.op("lshr", code, 8)))
        written = self._hidden(b.mul(b.mul(target, writes), b.sub(1, b.nonzero(extended))))
        self._leave_if(b.icmp("eq", written, 5))
        with b.when(b.icmp("eq", written, 4)):
            self._leave_if(b.icmp("eq", self._load(_POPPED), NOWHERE))
            self._store(_DEPTH, _LOST)

    def _frame(self, code: I64, rex: I64, modrm: I64, sib: I64, end: I64) -> None:
        """Instructions that set the stack pointer, or rbp from it; of 64 bits, and no register above 7."""
        b, other = self.b, self.b.block()
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
        b, depth = self.b, self._load(_DEPTH)
        with b.when(self._is(code, 0xC2, 0xC3)):
            with b.when(b.icmp("ult", depth, _LOST // 2)):
                self._store(_FOUND, depth)
            self.b.ret(1)
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
        b = self.b
        self._leave_if(b.icmp("slt", record, -8))
        with b.unless(b.icmp("slt", record, 0)):
            failed = b.helper(helpers.PROBE_READ_USER, self.cell, 8, b.add(self._load(_SP), record))
            self._leave_if(b.truth(failed))
            self._leave_if(b.icmp("ne", b.load(self.cell), self._load(_BP)))
        self._store(_FOUND, b.add(record, 8))
        self.b.ret(1)

    # ------------------------------------------------------------------ primitives

    def _is(self, value: I64, *values: int) -> I1:
        first, *rest = (self.b.icmp("eq", value, one) for one in values)
        for one in rest:
            first = self.b.either(first, one)
        return first

    def _hidden(self, value: Number) -> I64:
        """The same number, of which the verifier knows nothing.

        It follows each value that a choice so far has left in a register, one after the other; numbers that come out
        of memory are all one to it. Six numbers by way of memory make 20,000 instructions of 67,000 for a stack.
        """
        return self.b.through(value, self.b.offset(self.state, _HIDDEN))

    def _byte(self, position: I64) -> I64:
        return self.b.load(self._code(position), 8)

    def _number(self, end: I64, width: int) -> I64:
        """The number that an instruction ends with."""
        return self.b.load(self._code(self.b.sub(end, width // 8)), width, align=1)

    def _code(self, position: I64) -> Ptr:
        # It is less than _BYTES. What the verifier takes for possible is in the state after the code.
        return self.b.offset(self.state, self.b.op("and", self.b.opaque(position), _REACHED))

    def _equal(self, value: Number, other: int) -> I64:
        """1 if they are equal, else 0, without a branch."""
        return self.b.sub(1, self.b.nonzero(self.b.op("xor", value, other)))

    def _bit(self, value: Number, bit: int) -> I64:
        """1 if the bit is set, else 0."""
        return self.b.op("and", self.b.op("lshr", value, bit.bit_length() - 1), 1)

    def _load(self, offset: int) -> I64:
        return self.b.load(self.b.offset(self.state, offset))

    def _store(self, offset: int, value: Number) -> None:
        self.b.store(value, self.b.offset(self.state, offset))

    def _leave_if(self, condition: I1) -> None:
        with self.b.when(condition, likely=False):
            self.b.ret(1)


IP, SP, BP, SPACE, COUNT = 0, 8, 16, 24, 32
"""Offsets of the unwinder's state: registers, ranges of the process, number of frames."""
EXACT = 40
"""1 if ip is the current instruction, 0 if it is a return address, which may be after its function's end."""
MEMORY = 48
"""The address of the process's ``struct mm_struct``, if the stack chooses."""
CODE = 56
"""The code segment."""

_INTERRUPTED = (*(f"r{number}" for number in range(8, 16)), "di", "si", "bp", "bx", "dx", "ax", "cx", "sp", "ip")
"""Registers in the order of ``struct sigcontext``."""

VALUES = 64
"""``struct pt_regs`` of the innermost frame. Of one that a signal interrupted, :data:`REGISTERS` alone."""
VALUES_SIZE = 168
_SAVED = VALUES + VALUES_SIZE
"""Room for the registers in a signal frame."""
START, PLAIN, RBP_PLACE, RBPS = range(_SAVED + 8 * len(_INTERRUPTED), _SAVED + 8 * len(_INTERRUPTED) + 32, 8)
"""What :mod:`pytrace.codegen.walkers.known_stacks` needs: the first stack pointer; 1 if all frames so far were found by
rsp and rbp, and by words of the stack that are still there; where the current rbp was read; how many frames it found.
"""
RBP_LIST = RBPS + 8
"""For each of these, in 16 bits each: where rbp was read, and to where it pointed."""
RBP_LIMIT = 64
RBP_FIRST, RBP_FAR, _RBP_LISTED = 0xFFFF, 0x1_0000, 0x1_0001
"""Places that are none: rbp is that of the innermost frame; it was read far away; it is in the list.

Places are distances from the first stack pointer."""
STATE_SIZE = RBP_LIST + 4 * RBP_LIMIT

_SIGNAL = 40
"""Offset in the signal frame of ``uc_mcontext`` of ``struct ucontext``, which is one."""

TRAMPOLINE = 1
"""The bit of a frame's stack pointer in the array of them that marks a function which does nothing but call another."""
_ADD_MASK, _ADD_AND_RETURN, _POP_AND_RETURN = 0xFF_87FF_FFFF, 0xC3_00C4_8348, 0xC35D
"""``add $8n, %rsp; ret`` of less than 128 bytes, and ``pop %rbp; ret``."""


_RETURN_PROBES = 64
"""Maximum nesting of uretprobed functions of a task: ``MAX_URETPROBE_DEPTH`` of the kernel."""


class _Members(msgspec.Struct, frozen=True):
    """Member offsets of the kernel's list of replaced return addresses (``kernel/events/uprobes.c``)."""

    first: Number
    stack: Number
    original: Number
    next: Number


class Choice(msgspec.Struct, frozen=True):
    """A stack that chooses; *entry*: the probe is at the first instruction of a function.

    *code* is the scratch offset of :mod:`pytrace.codegen.walkers.unwinding`.
    """

    entry: bool
    code: int


class UnwindStep(msgspec.Struct, frozen=True):
    """One iteration: store the frame, then step to its caller; ends the loop if there is none.

    At most *limit* frames are stored. *out* and *state* are scratch offsets of the stack and of the unwinder's state,
    *site* is the script location for which failures are counted. *choice* is None for unwinding by tables alone.
    *tops* is the scratch offset of an array to which the stack pointer in each frame is written.
    """

    e: Emitter
    kind: Stack
    limit: int
    out: int
    state: int
    site: int
    choice: Choice | None
    tops: int

    def emit(self, index: I64) -> None:
        """The body of the loop."""
        b = self.e.b
        place = b.at_most(index, self.limit - 1)
        ip = self._load(IP)
        b.store(ip, self._place(place))
        b.store(self._load(SP), b.offset(self.e.area(self.tops), b.op("shl", place, 3)))
        self._store(COUNT, b.add(place, 1))
        rule = self._rule(place, ip)
        base = b.op("and", rule, 15)
        self._leave_if(b.icmp("eq", base, Rule.LAST.value))
        plain = 1 << Rule.RSP.value | 1 << Rule.RBP.value | 1 << Rule.PLT.value
        with b.unless(b.truth(b.op("and", b.op("lshr", plain, base), 1)), likely=True):
            self._store(PLAIN, 0)
        with b.when(self._either(base, Rule.FRAME, Rule.UNMAPPED), likely=False):
            with b.unless(b.truth(self._load(EXACT))):
                self._trampoline(place, ip)
        if self.choice is not None:
            self._without_table(self.choice, place, base)
            self._cut_if(b.icmp("eq", base, Rule.NONE.value))
        else:
            self._cut_if(b.either(b.icmp("eq", base, Rule.FRAME.value), b.icmp("uge", base, Rule.NONE.value)))
        with b.when(b.icmp("eq", base, Rule.SIGNAL.value), likely=False):
            self._signal_frame()
            b.ret(0)
        with b.when(self._either(base, Rule.RETURN, Rule.REGISTER), likely=False):
            self._by_registers(rule, base)
            b.ret(0)
        self._plain_frame(rule, base, ip)

    def _rule(self, place: Number, ip: Number) -> I64:
        """The rule at an address; if there is none, the address may be a return address replaced by a uretprobe."""
        b = self.e.b
        rule = b.register()
        b.store(self._find(b.sub(b.add(ip, self._load(EXACT)), 1)), rule)
        members = FrameReads(self.e)._members()
        if members is None:
            return b.load(rule)
        done = b.block()
        b.jump_unless(b.icmp("eq", b.load(rule), Rule.UNMAPPED.value), done, likely=False)
        b.jump_if(b.truth(self._load(EXACT)), done)
        original = b.call(FrameReads(self.e)._original(members), numbers=[b.sub(self._load(SP), 8)])
        b.jump_unless(b.truth(original), done)
        self._store(PLAIN, 0)
        b.store(original, self._place(place))
        b.store(self._find(b.sub(original, 1)), rule)
        b.jump(done)
        b.start(done)
        return b.load(rule)

    def _without_table(self, choice: Choice, place: Number, base: Number) -> None:
        """Step by the frame pointer where no table covers the address.

        A return address outside of all code is none: the frame pointer before it was a number. The process may also
        have mapped new code, so its tables are asked for.
        """
        b = self.e.b
        with b.when(b.icmp("eq", base, Rule.UNMAPPED.value), likely=False):
            b.call(ASK_FUNCTION, numbers=[self.e.tasks.process_ids("tracer")[0], self._load(MEMORY)])
            with b.unless(b.truth(self._load(EXACT))):
                b.store(0, self._place(place))
                self._store(COUNT, place)
                self._cut()
        with b.when(self._either(base, Rule.FRAME, Rule.UNMAPPED), likely=False):
            with b.when(b.truth(self._load(EXACT)), likely=False):
                if choice.entry:
                    self._at_entry()
                    b.ret(0)
                else:
                    self._innermost(choice.code)
            self._by_frame_pointer()
            b.ret(0)

    def _trampoline(self, place: Number, ip: Number) -> None:
        """Step out of a function that returns right after the call, and keeps no frame: rbp is its caller's.

        ``python -X perf`` has one for each function (``Python/asm_trampoline.S``); later ones keep a frame.
        """
        b = self.e.b
        failed = b.helper(helpers.PROBE_READ_USER, self.e.cell, 8, ip)
        with b.unless(b.truth(failed), likely=True):
            code = b.load(self.e.cell)
            plain = b.icmp("eq", b.op("and", code, _ADD_MASK), _ADD_AND_RETURN)
            framed = b.icmp("eq", b.op("and", code, 0xFFFF), _POP_AND_RETURN)
            top = b.offset(self.e.area(self.tops), b.op("shl", place, 3))
            b.store(b.op("or", self._load(SP), b.number(b.either(plain, framed))), top)
            with b.when(plain):
                returned = b.add(self._load(SP), b.op("and", b.op("lshr", code, 24), 0x78))
                self._store(IP, self._read(returned))
                self._store(SP, b.add(returned, 8))
                b.ret(0)

    def _either(self, base: Number, one: Rule, other: Rule) -> I1:
        return self.e.b.either(self.e.b.icmp("eq", base, one.value), self.e.b.icmp("eq", base, other.value))

    def _at_entry(self) -> None:
        """At the first instruction of a function the return address is on top of the stack."""
        sp = self._load(SP)
        self._store(IP, self._read(sp))
        self._store(SP, self.e.b.add(sp, 8))
        self._store(EXACT, 0)

    def _innermost(self, code: int) -> None:
        """The caller by the instructions ahead, if these say where the return address is."""
        b, e, sp = self.e.b, self.e, self._load(SP)
        CodeAhead(e).find(e.span, code, self._load(IP), sp, self._load(BP))
        found, saved = (b.load(e.area(code + offset), again=True) for offset in (_FOUND, SAVED))
        with b.unless(b.icmp("eq", found, NOWHERE)):
            with b.unless(b.icmp("eq", saved, NOWHERE)):
                self._store(BP, self._read(b.add(sp, saved)))
            place = b.add(sp, found)
            self._store(IP, self._read(place))
            self._store(SP, b.add(place, 8))
            self._store(EXACT, 0)
            b.ret(0)

    def _by_frame_pointer(self) -> None:
        """The caller by rbp; 0, and a frame that points to itself, end the stack.

        Go's system calls go on with the frames of another stack, which may lie anywhere.
        """
        b, fp = self.e.b, self._load(BP)
        self._leave_if(b.icmp("ult", fp, frame_pointers.LOWEST))
        caller = self._read(b.add(fp, 8))
        self._leave_if(b.icmp("eq", caller, 0))
        following = self._read(fp)
        self._store(BP, b.select(b.icmp("eq", following, fp), 0, following))
        self._store(IP, caller)
        self._store(SP, b.add(fp, frame_pointers.FRAME))
        self._store(EXACT, 0)

    def _place(self, place: Number) -> Ptr:
        """Where a frame is stored."""
        return self.e.b.offset(self.e.area(self.out + self.kind.header), self.e.b.op("shl", place, 3))

    def _find(self, address: Number) -> I64:
        return self.e.b.call(RULE_FUNCTION, numbers=[address, self._load(SPACE)])

    def _load(self, offset: int) -> I64:
        return self.e.b.load(self.e.area(self.state + offset))

    def _store(self, offset: int, value: Number) -> None:
        self.e.b.store(value, self.e.area(self.state + offset))

    def _leave_if(self, condition: I1) -> None:
        with self.e.b.when(condition, likely=False):
            self.e.loops.leave()

    def _cut_if(self, condition: I1) -> None:
        """End with the frames so far, and count a truncated stack."""
        with self.e.b.when(condition, likely=False):
            self._cut()

    def _cut(self) -> None:
        self._store(PLAIN, 0)
        self.e.counter("stack_cut" if self.choice is None else "stack_end", self.site)
        self.e.loops.leave()

    def _read(self, address: Number) -> I64:
        """A word of user memory; if it cannot be read, the stack is truncated."""
        failed = self.e.b.helper(helpers.PROBE_READ_USER, self.e.cell, 8, address)
        self._cut_if(self.e.b.truth(failed))
        return self.e.b.load(self.e.cell)

    def _signal_frame(self) -> None:
        b, saved = self.e.b, self.e.area(self.state + _SAVED)
        source = b.add(self._load(SP), _SIGNAL)
        self._cut_if(b.truth(b.helper(helpers.PROBE_READ_USER, saved, 8 * len(_INTERRUPTED), source)))
        values = {name: b.load(b.offset(saved, 8 * index), again=True) for index, name in enumerate(_INTERRUPTED)}
        for number, name in enumerate(REGISTERS):
            self._store(VALUES + 8 * number, values[name])
        for register, name in ((BP, "bp"), (SP, "sp"), (IP, "ip")):
            self._store(register, values[name])
        self._store(EXACT, 1)

    def _by_registers(self, rule: Number, base: Number) -> None:
        """The caller by a register that only an innermost frame has."""
        b, sp = self.e.b, self._load(SP)
        self._cut_if(b.icmp("eq", self._load(EXACT), 0))
        by_base = b.block()
        b.jump_if(b.icmp("eq", base, Rule.REGISTER.value), by_base)
        caller = self._value(b.op("lshr", rule, 4))
        self._store(SP, b.add(sp, b.op("shl", b.op("lshr", rule, 12), 3)))
        self._continue(caller)
        b.ret(0)
        b.start(by_base)
        distance = b.op("ashr", b.op("shl", rule, 32), 48)
        self._by_address(rule, b.add(self._value(b.op("lshr", rule, 12)), b.op("shl", distance, 3)))

    def _value(self, number: Number) -> I64:
        """The register of a number."""
        b = self.e.b
        place = b.op("shl", b.at_most(b.op("and", number, 15), len(REGISTERS) - 1), 3)
        return b.load(b.offset(self.e.area(self.state + VALUES), place))

    def _plain_frame(self, rule: Number, base: Number, ip: Number) -> None:
        self._by_address(rule, self._frame_address(rule, base, ip))

    def _by_address(self, rule: Number, cfa: Number) -> None:
        """The caller by the canonical frame address."""
        b = self.e.b
        # The stack grows down: a caller's frame that is not higher would make the walk loop.
        self._cut_if(b.icmp("ule", cfa, self._load(SP)))
        caller = self._read(b.sub(cfa, 8))
        self._caller_rbp(b.op("and", b.op("lshr", rule, 4), 255), cfa)
        self._store(SP, cfa)
        self._continue(caller)

    def _continue(self, caller: Number) -> None:
        """Go on at a return address."""
        self._store(IP, caller)
        self._store(EXACT, 0)
        self._leave_if(self.e.b.icmp("eq", caller, 0))

    def _frame_address(self, rule: Number, base: Number, ip: Number) -> I64:
        """The canonical frame address (CFA) by the rule."""
        b, sp = self.e.b, self._load(SP)
        distance = b.op("ashr", b.op("shl", rule, 32), 44)
        by_bp, in_memory = self._either(base, Rule.RBP, Rule.AT_RBP), self._either(base, Rule.AT_RBP, Rule.AT_RSP)
        with b.when(b.icmp("eq", base, Rule.RBP.value)):
            self._note_rbp()
        cfa = b.register()
        b.store(b.add(b.select(by_bp, self._load(BP), sp), b.op("shl", distance, 3)), cfa)
        other, done = b.block(), b.block()
        b.jump_unless(b.icmp("eq", base, Rule.PLT.value), other, likely=False)
        pushed = b.number(b.icmp("uge", b.op("and", ip, 15), distance))
        b.store(b.add(b.add(sp, 8), b.op("shl", pushed, 3)), cfa)
        b.jump(done)
        b.start(other)
        b.jump_unless(in_memory, done, likely=False)
        b.store(self._read(b.load(cfa)), cfa)
        b.jump(done)
        b.start(done)
        return b.load(cfa)

    def _caller_rbp(self, rule: Number, cfa: Number) -> None:
        b = self.e.b
        with b.when(b.truth(rule)):
            at_rbp = b.icmp("eq", rule, WHERE_RBP_POINTS)
            place = b.select(at_rbp, self._load(BP), b.sub(cfa, b.op("shl", rule, 3)))
            distance = b.sub(place, self._load(START))
            self._store(RBP_PLACE, b.select(b.icmp("ult", distance, RBP_FIRST), distance, RBP_FAR))
            self._store(BP, self._read(place))

    def _note_rbp(self) -> None:
        """Put the current rbp, by which a frame is found, into the list."""
        b, place = self.e.b, self._load(RBP_PLACE)
        with b.unless(b.icmp("eq", place, _RBP_LISTED)):
            distance, number = b.sub(self._load(BP), self._load(START)), self._load(RBPS)
            far = b.either(b.icmp("uge", distance, RBP_FIRST), b.icmp("eq", place, RBP_FAR))
            with b.when(b.either(far, b.icmp("uge", number, RBP_LIMIT)), likely=False):
                self._store(PLAIN, 0)
            entry = b.offset(self.e.area(self.state + RBP_LIST), b.op("shl", b.at_most(number, RBP_LIMIT - 1), 2))
            b.store(b.op("or", place, b.op("shl", distance, 16)), entry, 32)
            self._store(RBPS, b.add(number, 1))
            self._store(RBP_PLACE, _RBP_LISTED)


class CodeAhead(Part):
    """Finds the caller by the instructions that follow."""

    def find(self, span: Span, area: int, ip: Number, sp: Number, bp: Number) -> None:
        """Look for the return address, with the registers of the frame.

        Args:
            span: of the stack in the script.
            area: scratch offset of :data:`CODE_STATE_SIZE` bytes; the result is at :data:`_FOUND` and :data:`SAVED`.
            ip: the next instruction.
            sp: the stack pointer.
            bp: rbp.
        """
        if not self.script.reads_ahead:
            self.script.reads_ahead = True
            _ahead_function(self.module, span)
        self.b.call(_AHEAD_FUNCTION, [self.e.area(area)], [ip, sp, bp])


_AHEAD_FUNCTION = "unwind_ahead"


def _ahead_function(module: Module, span: Span) -> None:
    """``unwind_ahead(state, ip, sp, bp)``: look for the return address, for all stacks of the script."""
    sizes = {"state": CODE_STATE_SIZE}
    b = module.function(_AHEAD_FUNCTION, ("*state", "ip", "sp", "bp"), span, apart=True, sizes=sizes)
    state, ip = pointer_parameter("state"), number_parameter("ip")
    for offset, value in (
        (_AT, 0), (_DEPTH, 0), (_FOUND, NOWHERE), (SAVED, NOWHERE), (_POPPED, NOWHERE),
        (_SP, number_parameter("sp")), (_BP, number_parameter("bp")),
    ):  # fmt: skip
        b.store(value, b.offset(state, offset))
    # At the end of what is mapped, the rest of the page: the zeros after it lead nowhere.
    with b.when(b.truth(b.helper(helpers.PROBE_READ_USER, state, _BYTES, ip)), likely=False):
        left = b.at_most(b.sub(_PAGE, b.op("and", ip, _PAGE - 1)), _BYTES)
        b.helper(helpers.PROBE_READ_USER, state, left, ip)
    frame, callback = b.alloca(8), f"{_AHEAD_FUNCTION}_step"
    b.store_pointer(state, frame)
    b.helper(helpers.LOOP, _INSTRUCTIONS, global_pointer(callback), frame, 0)
    b.ret(0)
    step = module.function(callback, ("index", "*frame"), span)
    _Step(step, module, step.load_pointer(pointer_parameter("frame")), step.alloca(8)).emit()
    step.ret(0)


class FrameReads(Part):
    """Reads what the unwinding of a frame needs of the kernel."""

    def read_kernel(self, address: Number) -> I64:
        """A word of kernel memory; 0 on a fault."""
        self.b.helper(helpers.PROBE_READ_KERNEL, self.e.cell, 8, address)
        return self.b.load(self.e.cell)

    def _members(self) -> _Members | None:
        task, instance = (self.script.kernel.struct("struct", name) for name in ("uprobe_task", "return_instance"))
        if task is None or instance is None:
            return None
        first = self.e.load_time.struct_offset(task, "return_instances")
        return _Members(
            first, *(self.e.load_time.struct_offset(instance, name) for name in ("stack", "orig_ret_vaddr", "next"))
        )

    def _original(self, members: _Members) -> str:
        """A function of where a return address was that returns it; 0 if no uretprobe replaced it.

        The kernel keeps them in a list, innermost first, each with the stack pointer at the function's entry.
        """
        if self.script.original_function:
            return self.script.original_function
        self.script.original_function = "unwind_original"
        b = self.module.function(self.script.original_function, ("place",), None, apart=True)
        inner = Emitter(self.program, b, self.e.span, 0, None)
        instance = b.register()
        utask = FrameReads(inner).read_kernel(
            b.add(b.helper(helpers.GET_CURRENT_TASK), inner.tasks.task_field("utask"))
        )
        b.store(FrameReads(inner).read_kernel(b.add(utask, members.first)), instance)

        def step(_index: I64, leave: Callable[[], None]) -> None:
            address = b.load(instance)
            other, found = b.block(), b.block()
            with b.unless(b.truth(address)):
                leave()
            at = FrameReads(inner).read_kernel(b.add(address, members.stack))
            b.branch(b.icmp("eq", at, number_parameter("place")), found, other)
            b.start(found)
            b.ret(FrameReads(inner).read_kernel(b.add(address, members.original)))
            b.start(other)
            b.store(FrameReads(inner).read_kernel(b.add(address, members.next)), instance)

        inner.loops.counted(_RETURN_PROBES, step)
        b.ret(0)
        return self.script.original_function
