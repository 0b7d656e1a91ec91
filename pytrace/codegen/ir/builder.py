"""LLVM IR as text: functions, blocks and a builder whose methods each append one instruction.

A value is the text that names it (``%v7``, ``42``, ``@events``).  By convention every integer in a register is an
``i64`` that is already extended as its type says, every truth value that a branch takes an ``i1``, and every address in
the program's own memory a ``ptr``; so the type of an operand follows from the operation and need not be carried.
Writing text costs a fraction of building an object for each instruction, and start-up time is a feature.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pytrace.base.fast_dataclass import dataclass, field
from pytrace.codegen.ir.helpers import HELPERS

Value = str

INLINE_BYTES = 256
"""Memory up to this size is copied and cleared by inline moves, more by a helper call."""

AT_ONCE = 5
"""Loads and stores of one copy."""

_NATURAL = {8: 1, 16: 2, 32: 4, 64: 8}


@dataclass(slots=True, eq=False)
class Block:
    """A basic block: its label and instructions, closed by a terminator."""

    label: str
    lines: list[str] = field(default_factory=list)
    closed: bool = False


@dataclass(slots=True, eq=False)
class FunctionText:
    """One function. *head* is everything between ``define`` and the brace."""

    name: str
    head: str
    blocks: list[Block] = field(default_factory=list)
    allocas: list[str] = field(default_factory=list)
    prologue: list[str] = field(default_factory=list)
    stack: int = 0
    """Bytes of allocas that stay in memory (objects whose address is taken)."""

    def text(self) -> str:
        """The definition."""
        lines = [f"define {self.head} {{", "entry:", *self.allocas, *self.prologue]
        lines.append(f"  br label %{self.blocks[0].label}")
        for block in self.blocks:
            lines.append(f"{block.label}:")
            lines.extend(block.lines)
        lines.append("}\n")
        return "\n".join(lines)


class Builder:
    """Appends instructions to the current block of one function."""

    def __init__(self, function: FunctionText) -> None:
        self.function = function
        self.location = ""
        self._numbers = 0
        self._target: list[str] = []
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
        """True after a terminator: nothing can be reached here."""
        return self._block.closed

    @property
    def current(self) -> Block:
        """The block that instructions go to."""
        return self._block

    @contextmanager
    def at_prologue(self) -> Iterator[None]:
        """Emit into the function's first block, which runs before everything else."""
        target, closed, location = self._target, self._block.closed, self.location
        self._target, self._block.closed = self.function.prologue, False
        yield
        self._target, self._block.closed, self.location = target, closed, location

    def label(self, name: str) -> None:
        """Start a block inside the prologue."""
        self._target.append(f"{name}:")

    def emit(self, text: str) -> None:
        """Append an instruction without result; dropped where nothing can be reached."""
        if not self._block.closed:
            self._target.append(f"  {text}{self.location}")

    def define(self, text: str) -> Value:
        """Append an instruction and name its result."""
        name = self._name()
        self.emit(f"{name} = {text}")
        return name

    def jump(self, block: Block) -> None:
        """Continue at *block* (unless this place cannot be reached)."""
        self.emit(f"br label %{block.label}")
        self._block.closed = True

    def branch(self, condition: Value, then: Block, other: Block, *, likely: bool | None = None) -> None:
        """Two-way branch on an ``i1``; *likely* tells which way is laid out (and verified) first."""
        hint = "" if likely is None else f", !prof {'!0' if likely else '!1'}"
        self.emit(f"br i1 {condition}, label %{then.label}, label %{other.label}{hint}")
        self._block.closed = True

    def ret(self, value: Value) -> None:
        """Leave the function."""
        self.emit(f"ret i64 {value}")
        self._block.closed = True

    # ------------------------------------------------------------------ integers

    def op(self, name: str, left: Value, right: Value) -> Value:
        """A two-operand integer instruction on ``i64``."""
        return self.define(f"{name} i64 {left}, {right}")

    def add(self, left: Value, right: Value) -> Value:
        """Sum."""
        return self.op("add", left, right)

    def sub(self, left: Value, right: Value) -> Value:
        """Difference."""
        return self.op("sub", left, right)

    def mul(self, left: Value, right: Value) -> Value:
        """Product."""
        return self.op("mul", left, right)

    def icmp(self, predicate: str, left: Value, right: Value) -> Value:
        """Compare two ``i64``; gives an ``i1``."""
        return self.define(f"icmp {predicate} i64 {left}, {right}")

    def is_null(self, pointer: Value) -> Value:
        """Whether a ``ptr`` is null; gives an ``i1``."""
        return self.define(f"icmp eq ptr {pointer}, null")

    def there(self, pointer: Value) -> Value:
        """1 when a ``ptr`` is not null, else 0, as an ``i64``.

        LLVM does not see where the number comes from: two of these joined would else become one comparison of the
        pointers' ``|``, which the verifier refuses.
        """
        return self.opaque(self.number(self.define(f"icmp ne ptr {pointer}, null")))

    def truth(self, value: Value) -> Value:
        """``i64`` to ``i1``: not zero."""
        return self.icmp("ne", value, "0")

    def number(self, truth: Value) -> Value:
        """``i1`` to ``i64``."""
        return self.define(f"zext i1 {truth} to i64")

    def select(self, condition: Value, then: Value, other: Value, kind: str = "i64") -> Value:
        """Choose by an ``i1``."""
        return self.define(f"select i1 {condition}, {kind} {then}, {kind} {other}")

    def phi(self, kind: str, incoming: Sequence[tuple[Value, Block]]) -> Value:
        """Join values that come from several blocks."""
        ways = ", ".join(f"[ {value}, %{block.label} ]" for value, block in incoming)
        return self.define(f"phi {kind} {ways}")

    def fit(self, value: Value, bits: int, signed: bool) -> Value:
        """Cut an ``i64`` to *bits* and extend it again."""
        if bits >= 64:
            return value
        cut = self.define(f"trunc i64 {value} to i{bits}")
        return self.define(f"{'sext' if signed else 'zext'} i{bits} {cut} to i64")

    def opaque(self, value: Value) -> Value:
        """The same value, about which LLVM knows nothing: range checks on it stay in the code for the verifier.

        Empty assembler code, because LLVM looks through ``llvm.bpf.passthrough`` when it selects instructions, and
        then adds a small index to an aligned address by ``|``, which the verifier refuses.
        """
        return self.define(f'call i64 asm sideeffect "", "=r,0"(i64 {value})')

    def at_most(self, value: Value, limit: int) -> Value:
        """The unsigned minimum, in a form that the verifier can follow."""
        hidden = self.opaque(value)
        good = self.icmp("ule", hidden, str(limit))
        return self.opaque(self.select(good, hidden, str(limit)))

    def low_bits(self, value: Value, bits: int) -> Value:
        """The low *bits* of a number, the others zero."""
        if bits >= 64:
            return value
        return self.op("lshr", self.op("shl", value, str(64 - bits)), str(64 - bits))

    # ------------------------------------------------------------------ memory

    def pointer(self, address: Value) -> Value:
        """``i64`` to ``ptr``."""
        return self.define(f"inttoptr i64 {address} to ptr")

    def address(self, pointer: Value) -> Value:
        """``ptr`` to ``i64``."""
        return self.define(f"ptrtoint ptr {pointer} to i64")

    def offset(self, pointer: Value, distance: int | Value) -> Value:
        """*pointer* plus bytes."""
        if distance == 0:
            return pointer
        return self.define(f"getelementptr i8, ptr {pointer}, i64 {distance}")

    def load(
        self, pointer: Value, bits: int = 64, signed: bool = False, align: int | None = None, *, again: bool = False
    ) -> Value:
        """Load an integer of *bits* and extend it to ``i64``; *again* although it may be in a register already."""
        load = "load volatile" if again else "load"
        got = self.define(f"{load} i{bits}, ptr {pointer}, align {align or _NATURAL[bits]}")
        if bits == 64:
            return got
        return self.define(f"{'sext' if signed else 'zext'} i{bits} {got} to i64")

    def load_pointer(self, pointer: Value) -> Value:
        """Load a ``ptr`` that the program stored."""
        return self.define(f"load ptr, ptr {pointer}, align 8")

    def store(self, value: Value, pointer: Value, bits: int = 64, align: int | None = None) -> None:
        """Store the low *bits* of an ``i64``."""
        if bits != 64:
            value = self.define(f"trunc i64 {value} to i{bits}")
        self.emit(f"store i{bits} {value}, ptr {pointer}, align {align or _NATURAL[bits]}")

    def store_pointer(self, value: Value, pointer: Value) -> None:
        """Store a ``ptr``."""
        self.emit(f"store ptr {value}, ptr {pointer}, align 8")

    def atomic_add(self, pointer: Value, value: Value) -> None:
        """Add to 64 bits of memory that other CPUs change too."""
        self.define(f"atomicrmw add ptr {pointer}, i64 {value} monotonic")

    def fetch(self, operation: str, pointer: Value, value: Value) -> Value:
        """``add``, ``or``, ``and`` or ``xor`` atomically and give the old value."""
        return self.define(f"atomicrmw {operation} ptr {pointer}, i64 {value} seq_cst")

    def fetch_bits(self, operation: str, pointer: Value, value: Value, bits: int, signed: bool) -> Value:
        """As :meth:`fetch`, in 32 or 64 bits."""
        if bits == 64:
            return self.fetch(operation, pointer, value)
        cut = self.define(f"trunc i64 {value} to i{bits}")
        old = self.define(f"atomicrmw {operation} ptr {pointer}, i{bits} {cut} seq_cst")
        return self.define(f"{'sext' if signed else 'zext'} i{bits} {old} to i64")

    def exchange_if(self, pointer: Value, expected: Value, value: Value) -> Value:
        """Store a 64-bit *value* atomically where *expected* is; gives what was there."""
        got = self.define(f"cmpxchg ptr {pointer}, i64 {expected}, i64 {value} seq_cst seq_cst")
        return self.define(f"extractvalue {{ i64, i1 }} {got}, 0")

    def alloca(self, size: int) -> Value:
        """Stack memory that lives as long as the function."""
        name = self._name()
        self.function.allocas.append(f"  {name} = alloca [{max(size, 1)} x i8], align 8")
        self.function.stack += (size + 7) & ~7
        return name

    def register(self) -> Value:
        """An ``i64`` variable that LLVM turns into a register."""
        name = self._name()
        self.function.allocas.append(f"  {name} = alloca i64, align 8")
        return name

    def clear(self, pointer: Value, size: int, align: int = 8) -> None:
        """Zero a few bytes inline."""
        if size:
            self.emit(f"call void @llvm.memset.p0.i64(ptr align {align} {pointer}, i8 0, i64 {size}, i1 false)")

    def copy(self, target: Value, source: Value, size: int, align: int = 8) -> None:
        """Copy a few bytes inline; both ends have the alignment.

        LLVM may load all of a copy before it stores any of it, and what registers do not hold would go to the stack.
        """
        step = AT_ONCE * align
        for at in range(0, size, step):
            self.emit(
                f"call void @llvm.memcpy.p0.p0.i64(ptr align {align} {self.offset(target, at)}, "
                f"ptr align {align} {self.offset(source, at)}, i64 {min(step, size - at)}, i1 false)"
            )

    # ------------------------------------------------------------------ calls

    def helper(self, name: str, *args: Value) -> Value:
        """Call a BPF helper of :data:`~pytrace.codegen.ir.helpers.HELPERS`."""
        row = HELPERS[name]
        passed = ", ".join(f"{kind} {arg}" for kind, arg in zip(row.parameters, args, strict=True))
        return self.define(f"call {row.result} inttoptr (i64 {row.number} to ptr)({passed})")

    def call(self, name: str, args: Sequence[tuple[str, Value]]) -> Value:
        """Call a function of the module; gives an ``i64``."""
        return self.define(f"call i64 @{name}({', '.join(f'{kind} {value}' for kind, value in args)})")
