"""Types where an expression could stand."""

from __future__ import annotations

import pytest

from pytrace.core.diagnostics import Diagnostics
from pytrace.core.source import Source
from pytrace.frontend.syntax import nodes, parser
from tests.support.rows import each_row


def expression(text: str) -> nodes.Expr:
    diagnostics = Diagnostics()
    found = parser.parse_expression(Source("t", text), diagnostics)
    assert found is not None, [item.message for item in diagnostics.items]
    return found


@each_row(
    "text",
    [
        "(uint8)1", "(uint8)-1", "(uint8)!$a", "(uint8)~$a", "(uint8)*$a", "(uint8)&$a", "(uint8)++$a", "(uint8)--$a",
        "(uint8)--@a", '(string[4])"a"', "(uint8)(1)", "(uint8)true", "(uint8)pid", "(uint8)$1", "(uint8)$#",
        "(struct a *)1", "(struct a)$x", "(enum e)1", "(name *)1", "(name)1", "(int8[])$a",
        "(int8[4][N])$a", "(uint8 * *)1", "( /* a */ uint8 // b\n * ) /* c */ 1", "(typeof($a))1",
    ],
)  # fmt: skip
def test_casts(text: str) -> None:
    assert isinstance(expression(text), nodes.Cast)


@each_row(
    "text",
    ["(pid) * 2", "(pid) - 1", "(name)", "(name) + 1", "(name) != 1", "(name) && 1", "($a) * 2", "(a * 2)", "(a, b)",
     "(a[1])", "(a[1] * b)", "(name) -- "],
)  # fmt: skip
def test_no_casts(text: str) -> None:
    assert not isinstance(parser.parse_expression(Source("t", text), Diagnostics()), nodes.Cast)


TYPES = ["uint8", "struct a", "name *", "name[]", "uint8[4]", "typeof($a)", "/* a */ name * // b\n"]


@pytest.mark.parametrize("text", TYPES)
def test_types_as_operands_and_arguments(text: str) -> None:
    for call in (f"sizeof({text})", f"typeinfo({text})"):
        node = expression(call)
        assert isinstance(node, (nodes.Sizeof, nodes.TypeInfo))
        assert isinstance(node.operand, nodes.TypeExpr)
    call = expression(f"f(1, {text}, {text})")
    assert isinstance(call, nodes.Call)
    assert [isinstance(argument, nodes.TypeExpr) for argument in call.args] == [False, True, True]


@pytest.mark.parametrize("text", ["name", "pid", "$a", "name[4].x", "name + 1", "(name)", "a * b"])
def test_values_as_operands_and_arguments(text: str) -> None:
    operand = expression(f"sizeof({text})")
    assert isinstance(operand, nodes.Sizeof)
    assert not isinstance(operand.operand, nodes.TypeExpr)
    call = expression(f"f({text}, {text})")
    assert isinstance(call, nodes.Call)
    assert not any(isinstance(argument, nodes.TypeExpr) for argument in call.args)


def test_a_name_with_a_size_is_a_type_in_sizeof_and_an_element_in_a_call() -> None:
    operand = expression("sizeof(name[4])")
    assert isinstance(operand, nodes.Sizeof)
    assert isinstance(operand.operand, nodes.TypeExpr)
    call = expression("f(name[4])")
    assert isinstance(call, nodes.Call)
    assert not isinstance(call.args[0], nodes.TypeExpr)


def test_a_wrong_character_behind_a_cast_is_one_error() -> None:
    diagnostics = Diagnostics()
    parser.parse_expression(Source("t", "(uint8)é$a"), diagnostics)
    assert [error.message for error in diagnostics.errors] == ["syntax: unexpected 'é'"]
