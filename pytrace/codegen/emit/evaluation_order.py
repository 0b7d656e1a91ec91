"""Evaluation of several expressions in source order."""

from __future__ import annotations

from collections.abc import Sequence

from pytrace.codegen.analysis.aliasing import changes
from pytrace.codegen.emit import memory
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir.operands import Operand, Scalar
from pytrace.frontend.ast import nodes


def settled(e: Emitter, operand: Operand) -> Operand:
    """The operand in a form that is unaffected by evaluating later expressions."""
    return Scalar(memory.number(e, operand), operand.type) if operand.type.scalar else operand


def in_order(e: Emitter, expressions: Sequence[nodes.Expr]) -> list[Operand]:
    """The values of several expressions, each unaffected by evaluating the next ones."""
    operands = []
    for index, node in enumerate(expressions):
        operand = settled(e, e.value(node))
        if not operand.type.scalar and any(changes(e.checked, later) for later in expressions[index + 1 :]):
            operand = memory.copied(e, operand)
        operands.append(operand)
    return operands
