"""Unwinding by tables of programs and of Go."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytrace.core.stack_formats import CFA_LIMIT, WHERE_RBP_POINTS, Rule
from pytrace.runtime.binaries.go_binaries import Layout
from pytrace.runtime.machine.procfs import Mapping
from pytrace.runtime.stacks import unwind_tables
from pytrace.runtime.stacks import unwinder as unwinder_module
from pytrace.runtime.stacks.unwind_tables import RBP, RETURN, RSP, Interpreter, State, cfa_expression
from pytrace.runtime.stacks.unwinder import _RANGE, Unwinder, _Loaded, _Slices
from tests.support.rows import each_row
from tests.support.waiting import finished

# ---------------------------------------------------------------------------------------------- call frames
# pytrace.runtime.stacks.unwind_tables: each instruction, and rules that a row can hold and cannot.


START = State(Rule.RSP, 8)


def ran(code: bytes, initial: State = START, *, code_step: int = 1, data_step: int = -8) -> Interpreter:
    made = Interpreter(initial, code_step, data_step)
    made.run(code)
    return made


def state(code: bytes, initial: State = START) -> State:
    return ran(code, initial).state


# ---------------------------------------------------------------------------------------------- rows


@each_row(
    ("state_", "rule"),
    [
        (State(Rule.RSP, 8), 1 << 12 | Rule.RSP),
        (State(Rule.RBP, 16, bp=2), 2 << 12 | 2 << 4 | Rule.RBP),
        (State(Rule.RSP, -8), 0xFFFFF << 12 | Rule.RSP),
        (State(Rule.PLT, 11), 11 << 12 | Rule.PLT),
        (State(Rule.RSP, 8, returns=None), Rule.LAST),
        (State(Rule.RSP, 8, returns=-16), Rule.NONE),
        (State(Rule.RSP, 8, bp=None), Rule.NONE),
        (State(Rule.RSP, 8, sane=False), Rule.NONE),
        (State(Rule.RSP, 12), Rule.NONE),
        # The return address is in rdi, and nothing in its place; the frame is at r10.
        (State(Rule.RSP, 0, returned=5), 14 << 4 | Rule.RETURN),
        (State(Rule.RSP, 16, returned=3), 2 << 12 | 5 << 4 | Rule.RETURN),
        (State(Rule.RSP, 0, bp=1, returned=5), Rule.NONE),
        (State(Rule.RSP, 0, returned=17), Rule.NONE),
        (State(Rule.REGISTER, -16, bp=2, register=10), 0xFFFE << 16 | 7 << 12 | 2 << 4 | Rule.REGISTER),
        (State(Rule.REGISTER, 4, register=10), Rule.NONE),
        (State(Rule.REGISTER, 8 << 15, register=10), Rule.NONE),
        (State(Rule.RSP, 8 * CFA_LIMIT), Rule.NONE),
        (State(Rule.RSP, 8 * (CFA_LIMIT - 1)), (CFA_LIMIT - 1) << 12 | Rule.RSP),
        (State(Rule.RSP, -8 * CFA_LIMIT), (-CFA_LIMIT & 0xFFFFF) << 12 | Rule.RSP),
        (State(Rule.RSP, -8 * CFA_LIMIT - 8), Rule.NONE),
    ],
)
def test_what_a_row_can_hold(state_: State, rule: int) -> None:
    assert state_.pack() == rule


@pytest.mark.parametrize(
    ("code", "addresses"),
    [
        (b"", [0]), (b"\x41\x42", [0, 1, 3]), (b"\x02\xc8\x41", [0, 200, 201]), (b"\x03\x00\x01", [0, 256]),
        (b"\x04\x00\x00\x01\x00", [0, 65536]), (b"\x00\x00", [0]),
    ],
)  # fmt: skip
def test_rows_begin_where_code_has_advanced(code: bytes, addresses: list[int]) -> None:
    assert [address for address, _ in ran(code).rows] == addresses
    assert [address for address, _ in ran(code, code_step=4).rows] == [4 * address for address in addresses]


def test_a_row_holds_until_the_next() -> None:
    rows = ran(b"\x0e\x10\x41\x0e\x18").rows
    assert rows == [(0, 2 << 12 | Rule.RSP), (1, 3 << 12 | Rule.RSP)]


# ---------------------------------------------------------------------------------------------- instructions


@pytest.mark.parametrize(
    ("code", "base", "offset", "sane"),
    [
        (b"\x0c\x07\x10", Rule.RSP, 16, True),
        (b"\x0c\x06\x20", Rule.RBP, 32, True),
        (b"\x0c\x03\x20", Rule.REGISTER, 32, True),
        (b"\x0c\x11\x20", Rule.REGISTER, 32, False),
        (b"\x12\x06\x7e", Rule.RBP, 16, True),
        (b"\x0d\x06", Rule.RBP, 8, True),
        (b"\x0e\x90\x01", Rule.RSP, 144, True),
        (b"\x13\x7d", Rule.RSP, 24, True),
        (b"\x0f\x03\x77\x10\x06", Rule.AT_RSP, 16, True),
        (b"\x0f\x02\x77\x10", Rule.NONE, 0, False),
        # A later instruction makes it well again.
        (b"\x0c\x11\x20\x0c\x07\x08", Rule.RSP, 8, True),
    ],
)
def test_where_the_frame_is(code: bytes, base: Rule, offset: int, sane: bool) -> None:
    found = state(code)
    assert (found.base, found.offset, found.sane) == (base, offset, sane)


@each_row(
    ("code", "bp"),
    [
        (b"\x86\x02", 2),
        (b"\x86\x02\xc6", 0),
        (b"\x86\x02\x06\x06", 0),
        (b"\x05\x06\x03", 3),
        (b"\x11\x06\x02", 2),
        # In the other direction, and too far for a row.
        (b"\x11\x06\x7e", None),
        (b"\x86\xff\x01", None),
        (b"\x86\x00", None),
        (b"\x86\x02\x08\x06", 0),
        (b"\x09\x06\x03", None),
        (b"\x14\x06\x03", None),
        (b"\x15\x06\x03", None),
        (b"\x16\x06\x01\x50", None),
        (b"\x10\x06\x02\x76\x00", WHERE_RBP_POINTS),
        (b"\x10\x06\x02\x76\x08", None),
        (b"\x83\x02\x10\x03\x01\x50\x08\x03\x07\x03\x2e\x10", 0),
    ],
)
def test_where_rbp_is(code: bytes, bp: int | None) -> None:
    assert state(code).bp == bp


@pytest.mark.parametrize(
    ("code", "returns"),
    [(b"\x90\x01", -8), (b"\x90\x02", -16), (b"\x90\x02\xd0", -8), (b"\x07\x10", None), (b"\x14\x10\x03", 0)],
)
def test_where_the_return_address_is(code: bytes, returns: int | None) -> None:
    assert state(code).returns == returns


@pytest.mark.parametrize(
    ("code", "register"), [(b"\x09\x10\x05", 5), (b"\x09\x10\x05\xd0", None), (b"\x09\x10\x05\x90\x01", None)]
)
def test_which_register_has_the_return_address(code: bytes, register: int | None) -> None:
    assert state(code).returned == register


def test_rules_are_remembered_and_recalled() -> None:
    found = state(b"\x0a\x0e\x20\x86\x02\x0a\x0e\x30\x0b")
    assert (found.offset, found.bp) == (32, 2)
    found = state(b"\x0a\x0e\x20\x0b\x0e\x18")
    assert found.offset == 24
    assert state(b"\x0b\x0e\x18").offset == 24, "nothing was remembered"


def test_an_unknown_instruction_ends_what_is_known() -> None:
    rows = ran(b"\x41\x3f\x41\x0e\x18").rows
    assert rows == [(0, START.pack()), (1, Rule.NONE)]


def test_the_first_rules_stay_as_they_are() -> None:
    initial = State(Rule.RSP, 8)
    ran(b"\x0e\x20\x86\x02", initial)
    assert initial == State(Rule.RSP, 8)


@pytest.mark.parametrize(
    ("code", "found"),
    [
        (b"\x76\x78\x06", (Rule.AT_RBP, -8)),
        (b"\x77\x80\x01\x06", (Rule.AT_RSP, 128)),
        (b"\x78\x08\x06", None),
        (b"\x76\x08", None),
        (b"\x76\x08\x22\x06", None),
        (bytes.fromhex("770880003f1a3b2a332422"), (Rule.PLT, 11)),
        (bytes.fromhex("770880003f1a3a2a332422"), (Rule.PLT, 10)),
        (bytes.fromhex("770880003f1a3b2a332423"), None),
        (b"", None),
    ],
)
def test_expressions_that_are_known(code: bytes, found: tuple[Rule, int] | None) -> None:
    assert cfa_expression(code) == found


def test_numbers_of_registers() -> None:
    assert (RBP, RSP, RETURN) == (6, 7, 16)


# ---------------------------------------------------------------------------------------------- go tables
# Tests of rows from Go's tables of stack sizes.


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
    rows = finished(unwind_tables.go_rows(data((0x30, sizes, 0), (0x10, [(0, 16)], 4)), LAYOUT))
    assert rule(rows, 0) == (Rule.RSP, 8, 0)
    assert rule(rows, 4) == (Rule.RSP, 16, 2), "rbp was pushed"
    assert rule(rows, 7) == rule(rows, 0x2E) == (Rule.RSP, 0x148, 2)
    assert rule(rows, 0x2F) == (Rule.RSP, 8, 0)
    assert rule(rows, 0x35) == (Rule.RSP, 8, 0), "a function without a frame"


@pytest.mark.parametrize(("flags", "kind"), [(1, Rule.LAST), (2, Rule.FRAME), (3, Rule.LAST)])
def test_functions_without_a_caller_and_such_that_switch_stacks(flags: int, kind: Rule) -> None:
    rows = finished(unwind_tables.go_rows(data((0x20, [(0, 32)], flags)), LAYOUT))
    assert rule(rows, 0x10)[0] is kind
    assert rule(rows, 0x20)[0] is Rule.FRAME


def test_the_frame_of_a_signal_leads_on() -> None:
    """The handler says that it has no caller, and returns to the first instruction of a function of the runtime."""
    table = bytearray(data((0x20, [(0, 4), (0x30, 28)], 1), (0x20, [(0, 32)], 0), (0x20, [(0, 32)], 0)))
    names = b"\0runtime.sigtramp\0runtime.sigreturn__sigaction\0"
    table[1500 : 1500 + len(names)] = names
    for place, name in ((200, b"runtime.sigtramp"), (248, b"runtime.sigreturn__sigaction")):
        struct.pack_into("<I", table, ENTRIES + place + LAYOUT.name_at, 1500 + names.index(name))
    rows = finished(unwind_tables.go_rows(bytes(table), LAYOUT))
    assert rule(rows, 4) == (Rule.RSP, 0x38, 2)
    assert rule(rows, 0x1F)[0] is rule(rows, 0x20)[0] is rule(rows, 0x3F)[0] is Rule.SIGNAL
    assert rule(rows, 0x40) == (Rule.RSP, 8, 0)


def test_damage_ends_it() -> None:
    whole = data((0x20, [(0, 32)], 0), (0x20, [(8, 32)], 0))
    for end in range(0, len(whole), 7):
        for row in finished(unwind_tables.go_rows(whole[:end], LAYOUT)):
            Rule(row & 15)


# ---------------------------------------------------------------------------------------------- unwinder
# .


def test_slices_do_not_overlap() -> None:
    slices = _Slices(1024)
    taken = [(start, size) for size in (1, 16, 17, 40, 100) if (start := slices.take(size)) is not None]
    used = [number for start, size in taken for number in range(start, start + size)]
    assert len(used) == len(set(used)) == 174


def test_slice_rests_before_it_is_used_again() -> None:
    slices = _Slices(1024)
    first, second = slices.take(10), slices.take(10)
    assert first is not None
    assert second is not None
    slices.free(first, 10)
    assert slices.take(10) not in (first, second)
    slices.free(second, 10)
    assert slices.take(10) == first


def test_no_room() -> None:
    slices = _Slices(32)
    first, second = slices.take(16), slices.take(16)
    assert slices.take(1) is None
    assert first is not None
    slices.free(first, 16)
    assert slices.take(9) == first
    assert second == 16


def test_a_file_of_a_process_that_is_gone_is_read_for_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unwinder: Any = Unwinder.__new__(Unwinder)
    unwinder._binaries, unwinder._loading = {}, set()

    unwinder._reader = unwind_tables.TableReader()
    unwinder._rows, unwinder._filled = SimpleNamespace(entries=1 << 20), 0
    monkeypatch.setattr(unwinder, "_fill", lambda _rows, segments, _name: _Loaded(segments, 8, 3))
    program = Path("/proc/self/exe").resolve()
    mapping = Mapping(0x1000, 0x2000, 0, 1, 2, str(program))
    gone = 1 << 22 | 1
    assert unwinder._range(mapping) == _RANGE.pack(0x1000, 0x2000, 0, 0, 0)
    finished(unwinder._read(mapping, f"/proc/{gone}/root", gone))
    assert unwinder._binaries == {}
    finished(unwinder._read(mapping, "", gone))
    assert [loaded.count for loaded in unwinder._binaries.values()] == [3]
    (tmp_path / "text").write_text("no binary")
    other = Mapping(0x1000, 0x2000, 0, 1, 3, f"{tmp_path}/text")
    finished(unwinder._read(other, "", gone))
    assert unwinder._range(other) == _RANGE.pack(0x1000, 0x2000, 0, 0, 0)
    assert [loaded.count for loaded in unwinder._binaries.values()] == [3, 0]


def test_a_file_whose_reading_ended_early_is_read_for_the_next_process(monkeypatch: pytest.MonkeyPatch) -> None:
    unwinder: Any = Unwinder.__new__(Unwinder)
    unwinder._binaries, unwinder._loading = {}, set()
    mapping = Mapping(0x1000, 0x2000, 0, 1, 2, "/bin/true")

    def fill(*_: object) -> Generator[None, None, _Loaded]:
        yield
        return _Loaded((), 0, 0)

    monkeypatch.setattr(unwinder, "_load", fill)
    dropped = unwinder._read(mapping, "", 1)
    next(dropped)
    dropped.close()
    finished(unwinder._read(mapping, "", 1))
    assert len(unwinder._binaries) == 1


def test_tables_of_small_binaries_are_used_while_a_large_one_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    unwinder: Any = Unwinder.__new__(Unwinder)
    unwinder._binaries, unwinder._loading, unwinder._known = {}, set(), {}
    large = Mapping(0x100000, 0x900000, 0, 1, 2, "/lib/large")
    small = Mapping(0x900000, 0x901000, 0, 1, 3, "/lib/small")
    used: list[list[str]] = []

    def load(mapping: Mapping, *_: object) -> Generator[None, None, _Loaded]:
        for _ in range(3 if mapping is large else 1):
            yield
        return _Loaded((), 0, 1)

    monkeypatch.setattr(unwinder_module.procfs, "read_maps", lambda _: b"maps")
    monkeypatch.setattr(unwinder_module, "_code", lambda _: [large, small])
    monkeypatch.setattr(unwinder, "_load", load)
    monkeypatch.setattr(unwinder, "_range", lambda item: item.path if (1, item.inode) in unwinder._binaries else "")
    monkeypatch.setattr(unwinder, "_put", lambda _pid, _space, rows: used.append(rows))
    finished(unwinder._add(1, 0))
    assert used == [["", ""], ["", "/lib/small"], ["/lib/large", "/lib/small"]]


def test_an_earlier_reading_does_not_replace_newer_mappings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program asked for tables; while a large one is read, the kernel reports code that was made executable."""
    unwinder: Any = Unwinder.__new__(Unwinder)
    unwinder._binaries, unwinder._loading, unwinder._known = {}, set(), {}
    large, code = Mapping(0x100000, 0x900000, 0, 1, 2, "/lib/large"), Mapping(0x900000, 0x901000, 0, 0, 0, "")
    maps = [b"1"]
    used: list[int] = []

    def load(*_: object) -> Generator[None, None, _Loaded]:
        yield
        yield
        return _Loaded((), 0, 1)

    monkeypatch.setattr(unwinder_module.procfs, "read_maps", lambda _: maps[0])
    monkeypatch.setattr(unwinder_module, "_code", lambda text: [large] if text == b"1" else [large, code])
    monkeypatch.setattr(unwinder, "_load", load)
    monkeypatch.setattr(unwinder, "_put", lambda _pid, _space, rows: used.append(len(rows)))
    asked = unwinder._add(1, 99)
    next(asked)
    maps[0] = b"2"
    reported = unwinder._add(1, 0)
    next(reported)
    finished(asked)
    finished(reported)
    assert used == [1, 2, 2]
