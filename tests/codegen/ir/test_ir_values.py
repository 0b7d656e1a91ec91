from __future__ import annotations

import pytest

from pytrace.codegen.ir.values import Late, LateInstruction, Location, global_pointer, ordering, signed_constant
from pytrace.core.diagnostics import InternalError


def test_constants_have_a_sign() -> None:
    assert signed_constant(0) == 0
    assert signed_constant((1 << 63) - 1) == (1 << 63) - 1
    assert signed_constant(1 << 63) == -(1 << 63)
    assert signed_constant((1 << 64) - 1) == -1


def test_comparisons_know_the_sign() -> None:
    assert [ordering(order, signed=True) for order in ("lt", "le", "gt", "ge")] == ["slt", "sle", "sgt", "sge"]
    assert [ordering(order, signed=False) for order in ("lt", "le", "gt", "ge")] == ["ult", "ule", "ugt", "uge"]


def test_addresses_in_globals() -> None:
    assert global_pointer("events") == "@events"
    assert global_pointer("constants", 0) == "getelementptr (i8, ptr @constants, i64 0)"


def test_a_late_operand_is_written_when_its_value_is_known() -> None:
    late = Late("stride")
    instruction = LateInstruction("  %v1 = mul i64 %v0, ", late, Location(", !dbg !7"))
    with pytest.raises(InternalError, match="stride has no value"):
        str(instruction)
    late.value = 128
    assert str(instruction) == "  %v1 = mul i64 %v0, 128, !dbg !7"
