"""pytrace.runtime.unwind.call_frames: each instruction, and rules that a row can hold and cannot."""

from __future__ import annotations

import pytest

from pytrace.core.stacks.unwind_format import CFA_LIMIT, WHERE_RBP_POINTS, Rule
from pytrace.runtime.unwind.call_frames import RBP, RETURN, RSP, Interpreter, State, cfa_expression
from tests.support.rows import each_row

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
