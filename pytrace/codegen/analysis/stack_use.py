"""The BPF stack use of a compiled script.

The verifier allows 512 bytes for all functions of a call chain (``check_max_stack_depth`` of the kernel). LLVM checks
that limit for each function only, and aborts the process when it is exceeded, so LLVM is given a larger limit.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator

from pytrace.codegen.ir.function_text import callees

LIMIT = 512
"""``MAX_BPF_STACK``."""

STEP = 32
"""The verifier rounds the stack size of a function up to a multiple of this (of 16 if the program is JIT-compiled)."""

_SECTION = struct.Struct("=IIQQQQIIQQ")
_SYMBOL = struct.Struct("=IBBHQQ")
_INSTRUCTION = struct.Struct("=BBhi")
_SYMTAB, _FUNCTION = 2, 2
_LOAD, _STORES = 1, (2, 3)
_MOVE, _ADD = 0xBF, 0x07
_FRAME = 10
"""The register that points to the end of the frame."""


def needed(elf: bytes, text: str) -> int:
    """Upper bound of the stack use of the deepest call chain, in bytes.

    *text* is the IR, which has the call graph; it is used only if all functions together exceed the limit.
    """
    frames = {name: _rounded(_frame(code)) for name, code in _functions(elf)}
    total = sum(frames.values())
    if total <= LIMIT:
        return total
    calls = callees(text, frames)

    def depth(name: str) -> int:
        return frames[name] + max((depth(callee) for callee in calls.get(name, ())), default=0)

    return max(map(depth, frames))


def _rounded(size: int) -> int:
    return max(STEP, -(-size // STEP) * STEP)


def _functions(elf: bytes) -> Iterator[tuple[str, bytes]]:
    """Name and code of each function of an object file."""
    (start,) = struct.unpack_from("=Q", elf, 40)
    step, count = struct.unpack_from("=HH", elf, 58)
    sections = [_SECTION.unpack_from(elf, start + name_offset * step) for name_offset in range(count)]
    table = next(section for section in sections if section[1] == _SYMTAB)
    names = sections[table[6]][4]
    for name, info, _, index, value, size in _SYMBOL.iter_unpack(elf[table[4] : table[4] + table[5]]):
        if info & 15 == _FUNCTION and 0 < index < count:
            name_offset = names + name
            begin = sections[index][4] + value
            yield elf[name_offset : elf.index(b"\0", name_offset)].decode(), elf[begin : begin + size]


def _frame(code: bytes) -> int:
    """Size of a function's frame in bytes: the lowest offset from the frame pointer that its code uses."""
    lowest, copied = 0, -1
    for operation, registers, offset, number in _INSTRUCTION.iter_unpack(code):
        low, high = registers & 15, registers >> 4
        target, source = (low, high) if sys.byteorder == "little" else (high, low)
        instruction_class = operation & 7
        if (instruction_class == _LOAD and source == _FRAME) or (instruction_class in _STORES and target == _FRAME):
            lowest = min(lowest, offset)
        elif operation == _ADD and target == copied:
            lowest = min(lowest, number)
        copied = target if operation == _MOVE and source == _FRAME else -1
    return -lowest
