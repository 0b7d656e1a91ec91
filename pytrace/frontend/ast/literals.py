"""Evaluation of expressions that consist of literals only."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from pytrace.frontend.ast import nodes

Value = bool | int | bytes

_INTEGERS: Mapping[str, Callable[[int, int], Value]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge,
}  # fmt: skip
_TEXTS: Mapping[str, Callable[[bytes, bytes], Value]] = {"==": operator.eq, "!=": operator.ne}


def value(node: nodes.Node | None) -> Value | None:
    """The value of *node*: a literal, a comparison of literals, or these joined by ``&& || !``; None if it is unknown.

    ``false && x`` and ``true || x`` are known for any x. Texts are neither true nor false.
    """
    if isinstance(node, nodes.IntLiteral | nodes.BoolLiteral | nodes.StringLiteral):
        return node.value
    if isinstance(node, nodes.Unary):
        return _unary(node)
    return _binary(node) if isinstance(node, nodes.Binary) else None


def is_false(node: nodes.Node | None) -> bool:
    """Whether the value of *node* is known and false."""
    return truth(node) is False


def truth(node: nodes.Node | None) -> bool | None:
    """Whether *node* is true; None if it is unknown, or a text."""
    return _truth(value(node))


def _truth(known: Value | None) -> bool | None:
    return bool(known) if isinstance(known, int) else None


def _unary(node: nodes.Unary) -> Value | None:
    operand = value(node.operand)
    if node.operator == "!":
        truth = _truth(operand)
        return None if truth is None else not truth
    return -operand if node.operator == "-" and isinstance(operand, int) else None


def _binary(node: nodes.Binary) -> Value | None:
    left, right = value(node.left), value(node.right)
    if node.operator in ("&&", "||"):
        decisive = node.operator == "||"
        sides = (_truth(left), _truth(right))
        return decisive if decisive in sides else None if None in sides else not decisive
    if isinstance(left, bytes) and isinstance(right, bytes):
        text = _TEXTS.get(node.operator)
        return text(left, right) if text is not None else None
    if isinstance(left, int) and isinstance(right, int):
        number = _INTEGERS.get(node.operator)
        return number(left, right) if number is not None else None
    return None
