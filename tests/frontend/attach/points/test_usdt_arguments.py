from __future__ import annotations

import time
from contextlib import suppress

import pytest

from pytrace.frontend.probes.usdt import BadArgumentError, argument_locations
from pytrace.frontend.syntax.typed_program import RegisterLocation as At
from tests.support.rows import each_row


def symbol(name: str) -> int | None:
    return {"counter": 0x4000}.get(name)


@each_row(
    ("text", "place"),
    [
        ("-4@%edi", At("di", size=4, signed=True)),
        ("8@%r12", At("r12")),
        ("1@%al", At("ax", size=1)),
        ("2@%r9w", At("r9", size=2)),
        ("1@%sil", At("si", size=1)),
        ("8@-24(%rbp)", At("bp", -24, True)),
        ("-4@0x10(%rsp)", At("sp", 16, True, 4, True)),
        ("8@(%rax)", At("ax", 0, True)),
        ("4@$5", At("", 5, size=4)),
        ("-8@$-1", At("", -1, signed=True)),
        ("8@(%rax,%rbx,8)", At("ax", 0, True, index="bx", scale=8)),
        ("4@-4(%rdi,%rcx)", At("di", -4, True, 4, index="cx", scale=1)),
        ("4@8(,%rcx,4)", At("", 8, True, 4, index="cx", scale=4)),
        ("-4@4+counter(%rip)", At("ip", 0x4004 - 0x1000, True, 4, True)),
        ("-4@counter(%rip)", At("ip", 0x3000, True, 4, True)),
        ("-4@counter+8(%rip)", At("ip", 0x3008, True, 4, True)),
        ("8@16(%rip)", At("ip", 16, True)),
        ("%rdi", At("di")),
        ("-8f@%rdx", At("dx", signed=True, fraction=True)),
    ],
)
def test_x86(text: str, place: At) -> None:
    assert argument_locations(text, "x86_64", symbol, 0x1000) == (place,)


@each_row(
    ("text", "place"),
    [
        ("4@x0", At("r0", size=4)),
        ("-4@w3", At("r3", size=4, signed=True)),
        ("8@sp", At("sp")),
        ("8@[sp]", At("sp", 0, True)),
        ("8@[sp, 16]", At("sp", 16, True)),
        ("-4@[x29, #-20]", At("r29", -20, True, 4, True)),
        ("8@[x1, x2]", At("r1", 0, True, index="r2")),
        ("4@[x1, x2, lsl 2]", At("r1", 0, True, 4, index="r2", scale=4)),
        ("4@5", At("", 5, size=4)),
        ("8@xzr", At("", 0)),
    ],
)
def test_arm64(text: str, place: At) -> None:
    assert argument_locations(text, "aarch64", symbol) == (place,)


def test_several() -> None:
    assert argument_locations("-4@%edi 8@8(%rsp) 4@$1", "x86_64", symbol) == (
        At("di", size=4, signed=True),
        At("sp", 8, True),
        At("", 1, size=4),
    )
    assert len(argument_locations("4@[sp, 12] 8@x1", "aarch64", symbol)) == 2
    assert argument_locations("", "x86_64", symbol) == ()


@pytest.mark.parametrize(
    ("text", "machine"),
    [
        ("4@%xmm0", "x86_64"),
        ("4@wat", "x86_64"),
        ("3@%edi", "x86_64"),
        ("x@%edi", "x86_64"),
        ("4@nothing(%rip)", "x86_64"),
        ("4@[q1]", "aarch64"),
        ("4@x99", "aarch64"),
        ("4@r0", "vax"),
    ],
)
def test_not_understood(text: str, machine: str) -> None:
    with pytest.raises(BadArgumentError):
        argument_locations(text, machine, symbol)


def test_only_wanted_arguments_must_be_understood() -> None:
    text = "4@%edi 8f@%xmm0 8@%rsi"
    found = argument_locations(text, "x86_64", symbol, wanted=(0, 2))
    assert [item.register for item in found] == ["di", "", "si"]
    with pytest.raises(BadArgumentError, match="xmm0"):
        argument_locations(text, "x86_64", symbol, wanted=(1,))


LONG = ("4" * 40 + "$", f"8@{'1' * 5000}x", f"8@{'a' * 20000}%", "(" * 3000, "[" * 3000, f"8@{'+1' * 3000}?")


@each_row("text", LONG)
@each_row("machine", ["x86_64", "aarch64"])
def test_whatever_a_note_says_is_read_at_once(text: str, machine: str) -> None:
    began = time.process_time()
    with suppress(BadArgumentError):
        argument_locations(text, machine, symbol)
    assert time.process_time() - began < 1


@pytest.mark.parametrize("text", ["8@$08", "8@$" + "9" * 5000, "8@$18446744073709551616", "8@099(%rsp)"])
def test_numbers_that_are_none(text: str) -> None:
    with pytest.raises(BadArgumentError):
        argument_locations(text, "x86_64", symbol)


def test_octal_numbers_and_shifts() -> None:
    assert argument_locations("8@$010 8@-010(%rbp)", "x86_64", symbol) == (At("", 8), At("bp", -8, True))
    with pytest.raises(BadArgumentError, match="shifts by more"):
        argument_locations("8@[x0, x1, lsl 99999]", "aarch64", symbol)
