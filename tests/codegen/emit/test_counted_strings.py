"""Strings of Go: an address and a length, in two registers or in memory."""

from __future__ import annotations

import pytest

from pytrace.core.kernel_info import RegisterPart, UserParameter
from pytrace.core.types import INT32, UINT64, Field, Struct
from tests.codegen.running import machine
from tests.support.bpf_machine import Machine
from tests.support.facts import RecordedKernel

TEXT = Struct("struct", "string", 16, (Field("str", UINT64, 0), Field("len", UINT64, 8)), origin="app")
MIXED = Struct("struct", "mixed", 24, (Field("a", INT32, 0), Field("b", TEXT, 8)), origin="app")
AX, BX, CX, SP = 80, 40, 88, 152
"""Offsets in ``struct pt_regs``."""


def ran(body: str, *parameters: UserParameter, memory: bytes, registers: dict[int, int]) -> Machine:
    """A probe of a function with parameters. Values of registers that are not positive are in memory."""
    found = machine(f"uprobe:/bin/app:work {{ {body} }}", RecordedKernel(parameters={("/bin/app", "work"): parameters}))
    start = found.region(memory)
    context = bytearray(168)
    for offset, value in registers.items():
        context[offset : offset + 8] = (value if value > 0 else start - value).to_bytes(8, "little")
    found.run(context=bytes(context))
    return found


IN_REGISTERS = UserParameter("s", TEXT, "", "string", (RegisterPart(0, 8, "ax"), RegisterPart(8, 8, "bx")), True)


@pytest.mark.parametrize(
    ("body", "length", "wanted"),
    [
        ("print(args.s);", 4, b"abcd"),
        ("print(args.s);", 0x1000, b"abcdefgh"),
        ("@[args.s] = 1; for ($kv : @) { print($kv.0); }", 3, b"abc"),
        ("print(strlen(args.s));", 5, 5),
        ('print(args.s == "ab");', 2, True),
    ],
)
def test_strings_in_registers(body: str, length: int, wanted: object) -> None:
    found = ran(body, IN_REGISTERS, memory=b"abcdefgh".ljust(4096, b"\0"), registers={AX: 0, BX: length})
    assert found.printed() == [wanted]


def test_strings_on_the_stack() -> None:
    parameter = UserParameter("s", TEXT, "sp+16", "string", text=True)
    kernel = RecordedKernel(parameters={("/bin/app", "work"): (parameter,)})
    found = machine("uprobe:/bin/app:work { print(args.s); }", kernel)
    text = found.region(b"abcdef".ljust(64, b"\0"))
    stack = found.region(bytes(16) + text.to_bytes(8, "little") + (3).to_bytes(8, "little") + bytes(8))
    context = bytearray(168)
    context[SP : SP + 8] = stack.to_bytes(8, "little")
    found.run(context=bytes(context))
    assert found.printed() == [b"abc"]


def test_structs_in_registers() -> None:
    parts = (RegisterPart(0, 4, "ax"), RegisterPart(8, 8, "bx"), RegisterPart(16, 8, "cx"))
    parameter = UserParameter("m", MIXED, "", "main.Mixed", parts)
    registers = {AX: 2**64 - 5, BX: 0, CX: 2}
    body = "print((args.m.a, str(args.m.b.str, args.m.b.len)));"
    found = ran(body, parameter, memory=b"xyz".ljust(64, b"\0"), registers=registers)
    assert found.printed() == [(-5, b"xy")]
