"""Blocks, branches and returns of a function of IR text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pytrace.codegen.ir.function_text import Block, FunctionText, Instruction, Prologue
from pytrace.codegen.ir.ir_values import I1, I64, Location, Number, Ptr, Scope

NO_SCOPE = Scope("")


class ControlFlow:
    """Appends blocks and branches to one function; *atomics* as for :class:`pytrace.codegen.ir.module.Module`."""

    def __init__(self, function: FunctionText, scope: Scope = NO_SCOPE, *, atomics: bool = True) -> None:
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
