"""Branches around code: what they look like in IR that LLVM takes."""

from __future__ import annotations

import pytest

from pytrace.codegen.ir.module import Module
from pytrace.codegen.ir.values import number_parameter
from tests.codegen.ir.test_instructions import body, function


@pytest.mark.parametrize(("method", "targets"), [("when", "label %b5, label %b4"), ("unless", "label %b4, label %b5")])
def test_code_under_a_condition(method: str, targets: str) -> None:
    module = Module(None, "GPL")
    b = function(module, "*ctx", "count")
    cell = b.alloca(8)
    with getattr(b, method)(b.icmp("eq", number_parameter("count"), 5), likely=False):
        b.store(1, cell)
    b.ret(0)
    lines = body(module)
    (branch,) = [line for line in lines if line.startswith("br i1")]
    assert branch.startswith(f"br i1 %v3, {targets}, !prof !1")
    assert "br label %b4" in lines


@pytest.mark.parametrize(
    ("method", "value"), [("jump_if", "label %b2, label %b4"), ("jump_unless", "label %b4, label %b2")]
)
def test_conditional_jumps_continue_after_them(method: str, value: str) -> None:
    module = Module(None, "GPL")
    b = function(module, "*ctx", "count")
    target = b.block()
    getattr(b, method)(b.icmp("eq", number_parameter("count"), 5), target)
    b.ret(1)
    b.start(target)
    b.ret(0)
    (branch,) = [line for line in body(module) if line.startswith("br i1")]
    assert branch.startswith(f"br i1 %v3, {value}")


def test_a_closed_branch_is_not_joined() -> None:
    module = Module(None, "GPL")
    b = function(module, "*ctx", "count")
    with b.when(b.truth(number_parameter("count"))):
        b.ret(1)
    b.ret(0)
    assert [line for line in body(module) if line.startswith("ret")] == ["ret i64 1", "ret i64 0"]
