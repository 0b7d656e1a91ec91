"""Unwind rows of Go programs, by the sizes of the stack in ``.gopclntab`` (Go 1.18 and later).

A function that calls none has no frame record, so a walk by frame pointers misses its caller; by the size of its frame
it is found. Source: ``src/runtime/symtab.go`` (``pcvalue``, ``funcFlag``) and ``src/cmd/internal/obj/x86`` of Go.
"""

from __future__ import annotations

import re
import struct
from itertools import islice
from typing import TYPE_CHECKING

from pytrace.core.stacks.unwind_format import CFA_LIMIT, WORD, Rule
from pytrace.runtime.elf import go_functions
from pytrace.runtime.elf.leb128 import unsigned

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from pytrace.runtime.elf.file import ElfFile
    from pytrace.runtime.elf.go_functions import Layout

_TOP, _WRITES_SP = 1, 2
"""Flags: it has no caller; it switches stacks, and only its frame pointer leads to its caller."""
_STEPS_AT = 16
"""Offset of the place of the stack sizes in what is known of a function."""
_SAVED_BP = 2
"""Words below the CFA at which a function with a frame saves rbp."""
_STEP = 512
MOST_ROWS = 5 << 20
"""Rows of all functions. A table of more is none: those of its functions overlap."""
_MOST_ROWS = 1 << 14
"""Rows of one function: the largest have some hundred."""
_SIGNAL_ENTRY = re.compile(rb"\0(runtime\.sigtramp(\.abi0)?)\0")
"""The function that the kernel calls for a signal: it says that it has no caller."""
_SIGNAL_RETURN = re.compile(rb"\0(runtime\.sigreturn(__sigaction)?(\.abi0)?)\0")
"""The function that it returns to, at the kernel's frame."""


def rows(data: bytes | memoryview, layout: Layout) -> Generator[None, None, list[int]]:
    """In steps, the rows of a table, in no order; those up to the first damage."""
    found: list[int] = []
    entry, back = _name(data, layout, _SIGNAL_ENTRY), _name(data, layout, _SIGNAL_RETURN)
    try:
        places = go_functions.entries(data, layout)
        for number, at in enumerate(range(0, len(places) - 1, 2)):
            info, start, end = layout.functions + places[at + 1], layout.text + places[at], layout.text + places[at + 2]
            (name,) = struct.unpack_from("<I", data, info + layout.name_at)
            if name == back:
                # A caller is looked up by the byte before its return address; there is padding before the function.
                found += ((start - 1) << 32 | Rule.SIGNAL, start << 32 | Rule.SIGNAL, end << 32 | Rule.FRAME)
            else:
                found += islice(_function(data, layout, info, start, end, ends=name != entry), _MOST_ROWS)
            if len(found) > MOST_ROWS:
                return []
            if not number % _STEP:
                yield
    except (struct.error, IndexError):
        pass
    return found


def _name(data: bytes | memoryview, layout: Layout, pattern: re.Pattern[bytes]) -> int:
    """Where a function's name is in the table of names; -1 if no function has it."""
    match = pattern.search(data, layout.names)
    return -1 if match is None else match.start(1) - layout.names


def _function(
    data: bytes | memoryview, layout: Layout, info: int, start: int, end: int, *, ends: bool
) -> Iterator[int]:
    """The rows of a function; *ends* is False if it has a caller whatever its flags say."""
    if not 0 < start < end <= 0xFFFFFFFF:
        return
    flags = data[info + layout.flags] & (-1 if ends else ~_TOP)
    if flags & (_TOP | _WRITES_SP):
        yield start << 32 | (Rule.LAST if flags & _TOP else Rule.FRAME)
    else:
        (steps,) = struct.unpack_from("<I", data, info + _STEPS_AT)
        for address, size in _sizes(data, layout.steps + steps, start, end):
            yield address << 32 | _rule(size)
    yield end << 32 | Rule.FRAME


def _sizes(data: bytes | memoryview, at: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Addresses, and the bytes on the stack from there on: pairs of differences, the first of which has a sign."""
    address, size = start, -1
    while address < end:
        change, at = unsigned(data, at)
        if not change and address > start:
            return
        size += -(change >> 1) - 1 if change & 1 else change >> 1
        yield address, size
        distance, at = unsigned(data, at)
        if not distance:
            return
        address += distance


def _rule(size: int) -> int:
    words = size // WORD + 1
    if size % WORD or not 0 < words < CFA_LIMIT:
        return Rule.FRAME
    return words << 12 | (_SAVED_BP if size else 0) << 4 | Rule.RSP


def parsed(file: ElfFile) -> tuple[memoryview, Layout] | None:
    """The table of a Go program of a format with stack sizes that are understood."""
    found = go_functions.parsed(file)
    return found if found is not None and found[1].flags else None
