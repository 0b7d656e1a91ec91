"""Tests of rows from Go's tables of stack sizes."""

from __future__ import annotations

import struct
from bisect import bisect_right

import pytest

from pytrace.core.stacks.unwind_format import Rule
from pytrace.runtime.elf.go_functions import Layout
from pytrace.runtime.unwind import go_tables
from tests.support.waiting import finished

TEXT, ENTRIES, STEPS = 0x401000, 64, 512
LAYOUT = Layout(TEXT, 4, 0, ENTRIES, 4, STEPS, 37)


def folded(difference: int) -> int:
    """A difference as an unsigned number."""
    return difference * 2 if difference >= 0 else -difference * 2 - 1


def data(*functions: tuple[int, list[tuple[int, int]], int]) -> bytes:
    """A table of functions: length, sizes of the stack (for how many bytes of code), flags."""
    found = bytearray(2048)
    struct.pack_into("<Q", found, 8, len(functions))
    start, steps, info = 0, 1, 200
    for at, (length, sizes, flags) in enumerate(functions):
        struct.pack_into("<II", found, ENTRIES + 8 * at, start, info)
        struct.pack_into("<IIIII", found, ENTRIES + info, start, 0, 0, 0, steps)
        found[ENTRIES + info + 37] = flags
        before = -1
        for size, code in sizes:
            number = folded(size - before)
            row = bytes([number & 0x7F | 0x80, number >> 7]) if number > 0x7F else bytes([number])
            found[STEPS + steps : STEPS + steps + len(row) + 1] = row + bytes([code])
            steps, before = steps + len(row) + 1, size
        steps += 1  # a zero ends them
        start, info = start + length, info + 48
    struct.pack_into("<I", found, ENTRIES + 8 * len(functions), start)
    return bytes(found)


def rule(rows: list[int], offset: int) -> tuple[Rule, int, int]:
    """Kind, distance in bytes and place of rbp that hold at an offset of the code."""
    rows = sorted(rows)
    row = rows[bisect_right(rows, (TEXT + offset) << 32 | 0xFFFFFFFF) - 1] & 0xFFFFFFFF
    return Rule(row & 15), 8 * (row >> 12), row >> 4 & 255


def test_sizes_of_the_stack_are_distances_to_the_return_address() -> None:
    sizes = [(0, 4), (8, 3), (0x140, 0x28), (0, 1)]
    rows = finished(go_tables.rows(data((0x30, sizes, 0), (0x10, [(0, 16)], 4)), LAYOUT))
    assert rule(rows, 0) == (Rule.RSP, 8, 0)
    assert rule(rows, 4) == (Rule.RSP, 16, 2), "rbp was pushed"
    assert rule(rows, 7) == rule(rows, 0x2E) == (Rule.RSP, 0x148, 2)
    assert rule(rows, 0x2F) == (Rule.RSP, 8, 0)
    assert rule(rows, 0x35) == (Rule.RSP, 8, 0), "a function without a frame"


@pytest.mark.parametrize(("flags", "kind"), [(1, Rule.LAST), (2, Rule.FRAME), (3, Rule.LAST)])
def test_functions_without_a_caller_and_such_that_switch_stacks(flags: int, kind: Rule) -> None:
    rows = finished(go_tables.rows(data((0x20, [(0, 32)], flags)), LAYOUT))
    assert rule(rows, 0x10)[0] is kind
    assert rule(rows, 0x20)[0] is Rule.FRAME


def test_the_frame_of_a_signal_leads_on() -> None:
    """The handler says that it has no caller, and returns to the first instruction of a function of the runtime."""
    table = bytearray(data((0x20, [(0, 4), (0x30, 28)], 1), (0x20, [(0, 32)], 0), (0x20, [(0, 32)], 0)))
    names = b"\0runtime.sigtramp\0runtime.sigreturn__sigaction\0"
    table[1500 : 1500 + len(names)] = names
    for place, name in ((200, b"runtime.sigtramp"), (248, b"runtime.sigreturn__sigaction")):
        struct.pack_into("<I", table, ENTRIES + place + LAYOUT.name_at, 1500 + names.index(name))
    rows = finished(go_tables.rows(bytes(table), LAYOUT))
    assert rule(rows, 4) == (Rule.RSP, 0x38, 2)
    assert rule(rows, 0x1F)[0] is rule(rows, 0x20)[0] is rule(rows, 0x3F)[0] is Rule.SIGNAL
    assert rule(rows, 0x40) == (Rule.RSP, 8, 0)


def test_damage_ends_it() -> None:
    whole = data((0x20, [(0, 32)], 0), (0x20, [(8, 32)], 0))
    for end in range(0, len(whole), 7):
        for row in finished(go_tables.rows(whole[:end], LAYOUT)):
            Rule(row & 15)
