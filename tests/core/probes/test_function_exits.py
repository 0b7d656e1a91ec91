"""Functions are decoded from their start to their end, or not at all: a breakpoint elsewhere would corrupt them."""

from __future__ import annotations

import struct

import pytest

from pytrace.core.probes.instructions import BadCodeError, Jump, control_flow
from pytrace.core.probes.targets import ALWAYS
from tests.support.rows import each_row

START = 0x1000


@each_row(
    ("code", "returns", "jumps"),
    [
        pytest.param("90 c3", [1], [], id="ret"),
        pytest.param("48c7c0c3909090 c3", [7], [], id="a number with the byte of a ret"),
        pytest.param("7402 f3c3 f2c3 c20800", [2, 4, 6], [], id="rep ret, bnd ret, ret N"),
        pytest.param("c3 0f1f00 c3 9090", [0, 4], [], id="padding at the end"),
        pytest.param("7401 c3 0f0b", [2], [], id="ends by ud2"),
        pytest.param("7401 c3 e800000000", [2], [], id="ends by a call that does not return"),
        pytest.param("eb00 c3 e9f8ffffff", [2], [], id="jumps inside"),
        pytest.param("31c0 e9f9efffff", [], [Jump(0x1002, 0)], id="tail call"),
        pytest.param("0f84fa000000 c3", [6], [Jump(0x1000, 0x1100, 4)], id="conditional tail call"),
        pytest.param("75fb c3", [2], [Jump(0x1000, 0xFFD, 5)], id="short conditional tail call"),
        pytest.param("ffe0", [], [Jump(0x1000, None)], id="tail call of a pointer"),
        pytest.param("ff2500000000", [], [Jump(0x1000, None)], id="tail call by the GOT"),
        pytest.param("ff6010", [], [Jump(0x1000, None)], id="tail call of a virtual method"),
        pytest.param("4863048a 4801d0 ffe0 c3", [9], [Jump(0x1007, None, ALWAYS, True)], id="table of distances"),
        pytest.param("ff24c500000000 c3", [7], [Jump(0x1000, None, ALWAYS, True)], id="table of addresses"),
        pytest.param("3effe0 c3", [3], [], id="notrack jump by a table"),
        pytest.param("ffd0 c3", [2], [], id="call of a pointer"),
    ],
)
def test_exits_of_x86_code(code: str, returns: list[int], jumps: list[Jump]) -> None:
    found = control_flow(bytes.fromhex(code), START, "x86_64")
    assert list(found.returns) == [START + at for at in returns]
    assert list(found.jumps) == jumps


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("", "no code"),
        ("31c0", "continues in what follows"),
        ("c3 31c0", "continues in what follows"),
        ("c3 90 06", "is not an instruction"),
        ("c3 48b8 0011", "ends inside an instruction"),
        ("7401 48c3 c3", "a branch leads into an instruction"),
        ("66e900000000 c3", "operand size prefix"),
        ("cb", "unusual branch"),
        ("cf", "unusual branch"),
        ("ff28 c3", "another segment"),
        ("e3fb c3", "loop instruction leads out"),
    ],
)
def test_code_that_is_in_doubt(code: str, reason: str) -> None:
    with pytest.raises(BadCodeError, match=reason):
        control_flow(bytes.fromhex(code), START, "x86_64")


def words(*instructions: int) -> bytes:
    return struct.pack(f"<{len(instructions)}I", *instructions)


def test_exits_of_aarch64_code() -> None:
    # cbz x0, +8; ret; retaa; b -16 (out of the function)
    found = control_flow(words(0xB4000040, 0xD65F03C0, 0xD65F0BFF, 0x17FFFFFC), START, "aarch64")
    assert (found.returns, found.jumps) == ((START + 4, START + 8), (Jump(START + 12, START - 4),))
    for code in (words(0xD61F0000), words(0xB4000080, 0xD65F03C0), words(0xD503201F), b"\xc0\x03"):
        with pytest.raises(BadCodeError):
            control_flow(code, START, "aarch64")
    with pytest.raises(BadCodeError, match="not supported"):
        control_flow(b"\0\0", START, "s390x")
