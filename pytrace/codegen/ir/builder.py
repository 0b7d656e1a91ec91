"""LLVM IR as text: functions, blocks, and a builder whose methods each append one instruction.

Writing text takes a fraction of the time of building an object for each instruction, which shortens start-up. The
types of values are in :mod:`pytrace.codegen.ir.values`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import msgspec

from pytrace.codegen.ir.helpers import TRACE_PRINTK, Helper
from pytrace.codegen.ir.values import (
    I1,
    I64,
    AtomicOperation,
    Late,
    LateInstruction,
    Location,
    Number,
    Operation,
    Predicate,
    Ptr,
    Scope,
)


class Prologue(msgspec.Struct, eq=False):
    """Instructions that run before the code after it; it grows while that code is emitted."""

    lines: list[str | LateInstruction | Prologue] = msgspec.field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join(map(str, self.lines))


Instruction = str | LateInstruction | Prologue


class Block(msgspec.Struct, eq=False):
    """A basic block: its label and instructions, closed by a terminator."""

    label: str
    lines: list[Instruction] = msgspec.field(default_factory=list)
    closed: bool = False


class FunctionText(msgspec.Struct, eq=False):
    """One function. *head* is everything between ``define`` and the brace."""

    name: str
    head: str
    blocks: list[Block] = msgspec.field(default_factory=list)
    allocas: list[str] = msgspec.field(default_factory=list)
    entry: Prologue = msgspec.field(default_factory=Prologue)
    later: Prologue | None = None
    """The current prologue, if it is not at the function's start."""
    stack: int = 0
    """Bytes of allocas that stay in memory (objects whose address is taken)."""

    @property
    def prologue(self) -> Prologue:
        """The current prologue."""
        return self.later or self.entry

    def text(self) -> str:
        """The definition."""
        lines = [f"define {self.head} {{", "entry:", *self.allocas, *map(str, self.entry.lines)]
        lines.append(f"  br label %{self.blocks[0].label}")
        for block in self.blocks:
            lines.append(f"{block.label}:")
            lines.extend(map(str, block.lines))
        lines.append("}\n")
        return "\n".join(lines)


_NO_SCOPE = Scope("")


P = ParamSpec("P")
R = TypeVar("R")

AT_ONCE = 5
"""Loads and stores of a single ``memcpy``."""

_NATURAL = {8: 1, 16: 2, 32: 4, 64: 8}


class Builder:
    """Appends instructions, blocks and branches to one function; *atomics* as for :class:`~..module.Module`."""

    def __init__(self, function: FunctionText, scope: Scope = _NO_SCOPE, *, atomics: bool = True) -> None:
        self.function = function
        self.atomics = atomics
        self.scope = scope
        """The debug scope of the function's instructions."""
        self.location = Location("")
        self._numbers = 0
        self._target: list[Instruction] = []
        self._block: Block
        self.start(self.block())

    # ------------------------------------------------------------------ blocks

    def _name(self) -> str:
        self._numbers += 1
        return f"%v{self._numbers}"

    def block(self) -> Block:
        """A new block, not placed yet."""
        self._numbers += 1
        return Block(f"b{self._numbers}")

    def start(self, block: Block) -> None:
        """Place *block* next and continue there."""
        self.function.blocks.append(block)
        self._block = block
        self._target = block.lines

    @property
    def closed(self) -> bool:
        """True after a terminator: code here is unreachable."""
        return self._block.closed

    @property
    def current(self) -> Block:
        """The block that instructions go to."""
        return self._block

    def new_prologue(self) -> None:
        """Start a new prologue here: :meth:`at_prologue` emits into it from now on.

        Used where computing values earlier would be wasted on paths that do not get here. This position must dominate
        all code that is emitted later and uses the prologue's values.
        """
        # In a separate block, as it may grow into several.
        place, after = self.block(), self.block()
        self.jump(place)
        self.start(place)
        self.function.later = Prologue()
        self._target.append(self.function.later)
        self.jump(after)
        self.start(after)

    @contextmanager
    def at_prologue(self) -> Iterator[None]:
        """Emit into the current prologue, which runs before everything after its position."""
        target, closed, location = self._target, self._block.closed, self.location
        self._target, self._block.closed = self.function.prologue.lines, False
        yield
        self._target, self._block.closed, self.location = target, closed, location

    @contextmanager
    def unlikely(self, condition: I1, what: str, *, when: bool) -> Iterator[None]:
        """In the prologue, emit a branch that is taken if *condition* is *when* and ends by returning 0.

        *what* names the branch and is unique in a function.
        """
        exit_label, on = f"no_{what}", f"on_{what}"
        ways = f"label %{exit_label}, label %{on}, !prof !1" if when else f"label %{on}, label %{exit_label}, !prof !0"
        self._emit(f"br i1 {condition}, {ways}")
        self._target.append(f"{exit_label}:")
        yield
        self._emit("ret i64 0")
        self._target.append(f"{on}:")

    def _emit(self, text: str) -> None:
        """Append an instruction without result; dropped in unreachable code."""
        if not self._block.closed:
            self._target.append(f"  {text}{self.location}")

    def _define(self, text: str) -> str:
        """Append an instruction and name its result."""
        self._numbers += 1
        name = f"%v{self._numbers}"
        if not self._block.closed:
            self._target.append(f"  {name} = {text}{self.location}")
        return name

    _i1: Callable[[str], I1]
    _i64: Callable[[str], I64]
    _ptr: Callable[[str], Ptr]
    if not TYPE_CHECKING:
        # A result's name is a value of its type.
        _i1 = _i64 = _ptr = _define

    def jump(self, block: Block) -> None:
        """Branch to *block* (dropped in unreachable code)."""
        self._emit(f"br label %{block.label}")
        self._block.closed = True

    def branch(self, condition: I1, then: Block, other: Block, *, likely: bool | None = None) -> None:
        """Conditional branch on an ``i1``; *likely* says which target is laid out (and verified) first."""
        hint = "" if likely is None else f", !prof {'!0' if likely else '!1'}"
        self._emit(f"br i1 {condition}, label %{then.label}, label %{other.label}{hint}")
        self._block.closed = True

    def jump_if(self, condition: I1, target: Block, *, likely: bool | None = None) -> None:
        """Branch to *target* if *condition* holds, and continue here otherwise."""
        on = self.block()
        self.branch(condition, target, on, likely=likely)
        self.start(on)

    def jump_unless(self, condition: I1, target: Block, *, likely: bool | None = None) -> None:
        """Branch to *target* unless *condition* holds."""
        on = self.block()
        self.branch(condition, on, target, likely=likely)
        self.start(on)

    @contextmanager
    def when(self, condition: I1, *, likely: bool | None = None) -> Iterator[None]:
        """Emit code that runs if *condition* holds; what is emitted after it runs in either case."""
        after = self.block()
        self.jump_unless(condition, after, likely=likely)
        yield
        self.jump(after)
        self.start(after)

    @contextmanager
    def unless(self, condition: I1, *, likely: bool | None = None) -> Iterator[None]:
        """Emit code that runs if *condition* does not hold."""
        after = self.block()
        self.jump_if(condition, after, likely=likely)
        yield
        self.jump(after)
        self.start(after)

    def switch(self, value: Number, cases: Sequence[tuple[int, Block]], other: Block) -> None:
        """Branch to the block of the case equal to *value*, or to *other*."""
        ways = " ".join(f"i64 {case}, label %{block.label}" for case, block in cases)
        self._emit(f"switch i64 {value}, label %{other.label} [ {ways} ]")
        self._block.closed = True

    def ret(self, value: Number) -> None:
        """Return from the function."""
        self._emit(f"ret i64 {value}")
        self._block.closed = True

    def _define_late(self, text: str, operand: Late) -> str:
        """Append an instruction with a late last operand."""
        name = self._name()
        if not self._block.closed:
            self._target.append(LateInstruction(f"  {name} = {text}", operand, self.location))
        return name

    def _extend(self, value: str, bits: int, signed: bool) -> I64:
        """An integer of *bits* as an ``i64``."""
        return self._i64(f"{'sext' if signed else 'zext'} i{bits} {value} to i64")

    def _truncate(self, value: Number, bits: int) -> str:
        """The low *bits* of an ``i64``, in a register of that width."""
        return self._define(f"trunc i64 {value} to i{bits}")

    # ------------------------------------------------------------------ integers

    def op(self, name: Operation, left: Number, right: Number) -> I64:
        """A two-operand integer instruction on ``i64``."""
        return self._i64(f"{name} i64 {left}, {right}")

    def add(self, left: Number, right: Number) -> I64:
        """Sum."""
        return self.op("add", left, right)

    def sub(self, left: Number, right: Number) -> I64:
        """Difference."""
        return self.op("sub", left, right)

    def mul(self, left: Number, right: Number | Late) -> I64:
        """Product."""
        if isinstance(right, Late):
            return I64(self._define_late(f"mul i64 {left}, ", right))
        return self.op("mul", left, right)

    def icmp(self, predicate: Predicate, left: Number, right: Number) -> I1:
        """Compare two ``i64``."""
        return self._i1(f"icmp {predicate} i64 {left}, {right}")

    def is_null(self, pointer: Ptr) -> I1:
        """Whether an address is null."""
        return self._i1(f"icmp eq ptr {pointer}, null")

    def there(self, pointer: Ptr) -> I64:
        """1 if an address is not null, else 0.

        The number is opaque to LLVM: otherwise two of these combined become one comparison of the pointers' ``|``,
        which the verifier rejects.
        """
        return self.opaque(self.number(self._i1(f"icmp ne ptr {pointer}, null")))

    def truth(self, value: Number) -> I1:
        """Whether an integer is not zero."""
        return self.icmp("ne", value, 0)

    def number(self, truth: I1) -> I64:
        """1 for true, 0 for false."""
        return self._i64(f"zext i1 {truth} to i64")

    def nonzero(self, value: Number) -> I64:
        """1 for an integer that is not zero, else 0, by arithmetic alone.

        BPF has no instruction for the result of a comparison, and the verifier follows both sides of the branch in its
        place: with 8 of them that are joined later it goes 256 ways through all that follows.
        """
        return self.op("lshr", self.opaque(self.op("or", value, self.op("sub", 0, value))), 63)

    def both(self, left: I1, right: I1) -> I1:
        """Whether two truth values are true."""
        return self._i1(f"and i1 {left}, {right}")

    def either(self, left: I1, right: I1) -> I1:
        """Whether one of two truth values is true."""
        return self._i1(f"or i1 {left}, {right}")

    def differ(self, left: I1, right: I1) -> I1:
        """Whether one of two truth values is true and the other is not."""
        return self._i1(f"xor i1 {left}, {right}")

    def select(self, condition: I1, then: Number, other: Number) -> I64:
        """One of two integers."""
        return self._i64(f"select i1 {condition}, i64 {then}, i64 {other}")

    def phi(self, incoming: Sequence[tuple[Number, Block]]) -> I64:
        """Join integers that come from several blocks."""
        return self._i64(f"phi i64 {_incoming(incoming)}")

    def phi_pointer(self, incoming: Sequence[tuple[Ptr, Block]]) -> Ptr:
        """Join addresses that come from several blocks."""
        return self._ptr(f"phi ptr {_incoming(incoming)}")

    def fit(self, value: Number, bits: int, signed: bool) -> Number:
        """Truncate an ``i64`` to *bits* and extend it again."""
        return value if bits >= 64 else self._extend(self._truncate(value, bits), bits, signed)

    def swap_bytes(self, value: Number, bits: int) -> I64:
        """The low 16, 32 or 64 *bits* of a number, with their bytes in reverse order."""
        low = value if bits == 64 else self._truncate(value, bits)
        swapped = self._define(f"call i{bits} @llvm.bswap.i{bits}(i{bits} {low})")
        return I64(swapped) if bits == 64 else self._extend(swapped, bits, signed=False)

    def leading_zeros(self, value: Number) -> I64:
        """Number of leading zero bits of a number other than zero."""
        return self._i64(f"call i64 @llvm.ctlz.i64(i64 {value}, i1 true)")

    def opaque(self, value: Number) -> I64:
        """The same value, opaque to LLVM: range checks on it stay in the code for the verifier.

        Uses empty inline assembly, because LLVM looks through ``llvm.bpf.passthrough`` at instruction selection, and
        then adds a small index to an aligned address by ``|``, which the verifier rejects.
        """
        return self._i64(f'call i64 asm sideeffect "", "=r,0"(i64 {value})')

    def at_most(self, value: Number, limit: int) -> I64:
        """The unsigned minimum, in a form that the verifier can follow."""
        hidden = self.opaque(value)
        good = self.icmp("ule", hidden, limit)
        return self.opaque(self.select(good, hidden, limit))

    def low_bits(self, value: Number, bits: int) -> Number:
        """The low *bits* of a number, the others zero."""
        if bits >= 64:
            return value
        return self.op("lshr", self.op("shl", value, 64 - bits), 64 - bits)

    # ------------------------------------------------------------------ memory

    def pointer(self, address: Number) -> Ptr:
        """An integer as an address."""
        return self._ptr(f"inttoptr i64 {address} to ptr")

    def address(self, pointer: Ptr) -> I64:
        """An address as an integer."""
        return self._i64(f"ptrtoint ptr {pointer} to i64")

    def offset(self, pointer: Ptr, distance: Number | Late) -> Ptr:
        """*pointer* plus *distance* bytes."""
        if distance == 0:
            return pointer
        if isinstance(distance, Late):
            return Ptr(self._define_late(f"getelementptr i8, ptr {pointer}, i64 ", distance))
        return self._ptr(f"getelementptr i8, ptr {pointer}, i64 {distance}")

    def unfolded(self, pointer: Ptr) -> Ptr:
        """The same address, for loads whose constant offsets LLVM keeps in the load instructions.

        The verifier rejects loads at addresses that were computed from the context pointer beforehand.
        """
        return self._ptr(f"call ptr @llvm.preserve.static.offset(ptr {pointer})")

    def load(
        self, pointer: Ptr, bits: int = 64, signed: bool = False, align: int | None = None, *, again: bool = False
    ) -> I64:
        """Load an integer of *bits* and extend it to ``i64``; *again* forces a load even if LLVM has the value."""
        load = "load volatile" if again else "load"
        text = f"{load} i{bits}, ptr {pointer}, align {align or _NATURAL[bits]}"
        return self._i64(text) if bits == 64 else self._extend(self._define(text), bits, signed)

    def load_pointer(self, pointer: Ptr) -> Ptr:
        """Load an address that the program stored."""
        return self._ptr(f"load ptr, ptr {pointer}, align 8")

    def store(self, value: Number, pointer: Ptr, bits: int = 64, align: int | None = None) -> None:
        """Store the low *bits* of an ``i64``."""
        low = value if bits == 64 else self._truncate(value, bits)
        self._emit(f"store i{bits} {low}, ptr {pointer}, align {align or _NATURAL[bits]}")

    def store_pointer(self, value: Ptr, pointer: Ptr) -> None:
        """Store an address."""
        self._emit(f"store ptr {value}, ptr {pointer}, align 8")

    def through(self, value: Number, pointer: Ptr) -> I64:
        """Store a number and load it again; LLVM does not optimise this away."""
        self._emit(f"store volatile i64 {value}, ptr {pointer}, align 8")
        return self.load(pointer, again=True)

    def atomic_add(self, pointer: Ptr, value: Number) -> None:
        """Atomically add to 64 bits of memory."""
        self._define(f"atomicrmw add ptr {pointer}, i64 {value} monotonic")

    def fetch(self, operation: AtomicOperation, pointer: Ptr, value: Number) -> I64:
        """Atomically change 64 bits. Returns the old value.

        Kernels before 5.12 only have an addition that returns nothing: there the old value is loaded before, and other
        operations are a load and a store. Their programs are not preempted, so the CPU's own memory stays exact.
        """
        if self.atomics:
            return self._i64(f"atomicrmw {operation} ptr {pointer}, i64 {value} seq_cst")
        return self._load_and_change(operation, pointer, value, 64, signed=False)

    def fetch_bits(self, operation: AtomicOperation, pointer: Ptr, value: Number, bits: int, signed: bool) -> I64:
        """As :meth:`fetch`, in 32 or 64 bits."""
        if bits == 64:
            return self.fetch(operation, pointer, value)
        if not self.atomics:
            return self._load_and_change(operation, pointer, value, bits, signed=signed)
        low = self._truncate(value, bits)
        return self._extend(self._define(f"atomicrmw {operation} ptr {pointer}, i{bits} {low} seq_cst"), bits, signed)

    def exchange_if(self, pointer: Ptr, expected: Number, value: Number) -> I64:
        """Atomically replace *expected* by *value* (64 bits). Returns the old value. See :meth:`fetch`."""
        if not self.atomics:
            old = self.load(pointer, again=True)
            self.store(self.select(self.icmp("eq", old, expected), value, old), pointer)
            return old
        pair = self._define(f"cmpxchg ptr {pointer}, i64 {expected}, i64 {value} seq_cst seq_cst")
        return self._i64(f"extractvalue {{ i64, i1 }} {pair}, 0")

    def _load_and_change(
        self, operation: AtomicOperation, pointer: Ptr, value: Number, bits: int, *, signed: bool
    ) -> I64:
        old = self.load(pointer, bits, signed, again=True)
        if operation == "add":
            low = value if bits == 64 else self._truncate(value, bits)
            # Of an order that asks for less, LLVM emits the instruction of all kernels.
            self._define(f"atomicrmw add ptr {pointer}, i{bits} {low} monotonic")
        else:
            self.store(self.op(operation, old, value), pointer, bits)
        return old

    def alloca(self, size: int) -> Ptr:
        """Stack memory for the duration of the function."""
        name = self._name()
        self.function.allocas.append(f"  {name} = alloca [{max(size, 1)} x i8], align 8")
        self.function.stack += (size + 7) & ~7
        return Ptr(name)

    def register(self) -> Ptr:
        """Stack memory of an ``i64`` variable, which LLVM promotes to a register."""
        name = self._name()
        self.function.allocas.append(f"  {name} = alloca i64, align 8")
        return Ptr(name)

    def clear(self, pointer: Ptr, size: int, align: int = 8) -> None:
        """Zero a few bytes inline."""
        if size:
            self._emit(f"call void @llvm.memset.p0.i64(ptr align {align} {pointer}, i8 0, i64 {size}, i1 false)")

    def copy(self, target: Ptr, source: Ptr, size: int, align: int = 8) -> None:
        """Copy a few bytes inline; source and destination are aligned to *align*.

        LLVM may load a whole copy before storing any of it, which would spill to the stack.
        """
        step = AT_ONCE * align
        for offset in range(0, size, step):
            self._emit(
                f"call void @llvm.memcpy.p0.p0.i64(ptr align {align} {self.offset(target, offset)}, "
                f"ptr align {align} {self.offset(source, offset)}, i64 {min(step, size - offset)}, i1 false)"
            )

    # ------------------------------------------------------------------ calls

    def helper(self, row: Helper[P, R], *args: P.args, **_none: P.kwargs) -> R:
        """Call a BPF helper."""
        passed = ", ".join([f"{type_} {value}" for type_, value in zip(row.parameters, args, strict=True)])
        text = f"call {row.result} inttoptr (i64 {row.number} to ptr)({passed}){row.attributes}"
        if row.result != "void":
            return row.value(self._define(text))
        self._emit(text)
        return row.value("")

    def trace_printk(self, text: Ptr, size: Number, values: Sequence[Number]) -> I64:
        """Write a line with at most three values to the kernel's trace."""
        return self.helper(TRACE_PRINTK[len(values)], text, size, *values)

    def call(self, name: str, pointers: Sequence[Ptr] = (), numbers: Sequence[Number] = ()) -> I64:
        """Call a function of the module; pointer parameters come first, then integers."""
        passed = [*(f"ptr {value}" for value in pointers), *(f"i64 {value}" for value in numbers)]
        return self._i64(f"call i64 @{name}({', '.join(passed)})")

    def kernel_call(self, name: str, pointers: Sequence[Ptr]) -> I64:
        """Call a kfunc that takes pointers and returns an ``int``."""
        passed = ", ".join(f"ptr {value}" for value in pointers)
        return self._extend(self._define(f"call i32 @{name}({passed})"), 32, signed=True)

    def kernel_read(self, name: str, target: Ptr, size: Number, address: Number, task: Ptr, flags: int) -> I64:
        """Call a kfunc that reads memory of a task."""
        source = self.pointer(address)
        passed = f"ptr {target}, i32 {self._truncate(size, 32)}, ptr {source}, ptr {task}, i32 {flags}"
        return self._extend(self._define(f"call i32 @{name}({passed})"), 32, signed=True)

    def kernel_object(self, name: str, number: Number) -> Ptr:
        """Call a kfunc that takes an ``int`` and returns an object or null."""
        return self._ptr(f"call ptr @{name}(i32 {self._truncate(number, 32)})")

    def release(self, name: str, pointer: Ptr) -> None:
        """Call a kfunc that releases an object."""
        self._emit(f"call void @{name}(ptr {pointer})")


def _incoming(ways: Sequence[tuple[Number | Ptr, Block]]) -> str:
    return ", ".join(f"[ {value}, %{block.label} ]" for value, block in ways)
