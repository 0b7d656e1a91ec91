"""Register tables against the kernel's and the ABI's documents."""

from __future__ import annotations

import pytest

from pytrace.codegen.ir.machine import registers_of
from pytrace.core.diagnostics import TraceError
from pytrace.frontend.check.context_family import REGISTERS


def test_x86_offsets() -> None:
    # arch/x86/include/asm/ptrace.h
    table = registers_of("x86_64")
    expected = {"r15": 0, "bp": 32, "ax": 80, "di": 112, "orig_rax": 120, "orig_ax": 120, "ip": 128, "sp": 152}
    assert {name: table.offset(name) for name in expected} == expected
    assert table.arguments == ("di", "si", "dx", "cx", "r8", "r9")


@pytest.mark.parametrize("machine", sorted(REGISTERS))
def test_every_register_that_scripts_may_name_has_a_place(machine: str) -> None:
    table = registers_of(machine)
    for name in REGISTERS[machine].values():
        assert table.offset(name) >= 0


def test_unknown_names_are_refused() -> None:
    with pytest.raises(TraceError, match="no register"):
        registers_of("x86_64").offset("x7")
    with pytest.raises(TraceError, match="not known"):
        registers_of("vax")
