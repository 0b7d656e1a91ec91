"""Functions as IR text: blocks, definitions, and the call graph of a module's text."""

from __future__ import annotations

import re
from collections.abc import Container

import msgspec

from pytrace.codegen.ir.ir_values import LateInstruction

_SYMBOL = re.compile(r"@(\w+)")


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


def callees(text: str, names: Container[str]) -> dict[str, set[str]]:
    """The functions that each of *names* calls or passes to the kernel as a callback, in the IR *text* of a module."""
    calls: dict[str, set[str]] = {}
    for part in text.split("\ndefine ")[1:]:
        head, _, rest = part.partition("(")
        body = rest.partition("\n}\n")[0]
        name = head.rpartition("@")[2]
        if name in names:
            calls[name] = {callee for callee in _SYMBOL.findall(body) if callee in names}
    return calls
