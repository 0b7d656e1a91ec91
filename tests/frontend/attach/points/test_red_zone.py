"""The red zone, and nops that become calls."""

from __future__ import annotations

import pytest

from pytrace.frontend.attach.points import red_zone

NOP5 = "0f1f440000"


@pytest.mark.parametrize(
    ("code", "offset", "expected"),
    [
        (NOP5, 0x1000, True),
        (NOP5, 0x1FFB, True),  # the last place in a page
        (NOP5, 0x1FFC, False),
        ("6666666690", 0, True),
        ("90", 0, False),
        ("0f1f4000", 0, False),  # four bytes
        ("660f1f440000", 0, False),  # six bytes
        ("0f1f4c0000", 0, False),  # another instruction of the group
        ("e800000000", 0, False),
        ("b811223344", 0, False),
        ("0f1f44", 0, False),  # cut off
        ("", 0, False),
        ("06", 0, False),
    ],
)
def test_becomes_call(code: str, offset: int, expected: bool) -> None:
    assert red_zone.becomes_call(bytes.fromhex(code), offset) is expected


def test_at_entry() -> None:
    assert red_zone.at_entry(b"")
    assert red_zone.at_entry(bytes.fromhex("f30f1efa"))
    assert not red_zone.at_entry(bytes.fromhex("55"))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (f"48897c24f8{NOP5}c3", True),  # mov [rsp-8], rdi
        (f"4889bc2478ffffff{NOP5}c3", True),  # mov [rsp-136], rdi
        (f"554889e5488945f8{NOP5}c3", True),  # mov [rbp-8], rax
        (f"488985f0feffff{NOP5}c3", True),  # mov [rbp-272], rax
        (f"4c8b44cdf8{NOP5}c3", True),  # mov r8, [rbp+rcx*8-8]
        (f"c5fa7f4424f0{NOP5}c3", True),  # vmovdqu [rsp-16], xmm0
        (f"48897c24f8{NOP5}e800000000c3", False),  # calls
        (f"48897c24f8{NOP5}ff5008c3", False),  # call [rax+8]
        (f"48897c24f8{NOP5}ffe0", True),  # jmp rax
        (f"48897c2408{NOP5}c3", False),  # mov [rsp+8], rdi
        (f"488947f8{NOP5}c3", False),  # mov [rdi-8], rax
        (f"4889f8{NOP5}c3", False),  # between registers
        (f"{NOP5}06", True),  # not an instruction
        (f"{NOP5}48", True),  # cut off
    ],
)
def test_used(code: str, expected: bool) -> None:
    assert red_zone.used(bytes.fromhex(code)) is expected
