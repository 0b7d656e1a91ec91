"""The dispatch table of typing rules, by class of expression."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytrace.base.dispatch import by_class, on
from pytrace.frontend.ast import nodes
from pytrace.frontend.check.rules import calls, casts, expressions, members, operators, type_queries

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytrace.core.types import Type
    from pytrace.frontend.check.inference.checker import Checker

EXPRESSIONS: Mapping[type[nodes.Expr], Callable[[Checker, nodes.Expr], Type]] = by_class(
    on(nodes.IntLiteral, expressions.integer),
    on(nodes.BoolLiteral, expressions.boolean),
    on(nodes.StringLiteral, expressions.string),
    on(nodes.OpenParameter, expressions.parameter),
    on(nodes.PositionalParam, expressions.unreplaced_parameter),
    on(nodes.ParamCount, expressions.unreplaced_parameter),
    on(nodes.Identifier, expressions.identifier),
    on(nodes.Variable, expressions.variable),
    on(nodes.MapRef, expressions.map_value),
    on(nodes.MapIndex, expressions.map_index),
    on(nodes.Unary, operators.unary),
    on(nodes.Binary, operators.binary),
    on(nodes.Ternary, expressions.ternary),
    on(nodes.Cast, casts.cast),
    on(nodes.FieldAccess, members.field_access),
    on(nodes.TupleAccess, members.tuple_access),
    on(nodes.Index, members.index),
    on(nodes.Call, calls.call),
    on(nodes.Sizeof, type_queries.size_of),
    on(nodes.Offsetof, type_queries.offset_of),
    on(nodes.TypeInfo, type_queries.type_info),
    on(nodes.Comptime, expressions.comptime),
    on(nodes.TupleLiteral, expressions.tuple_literal),
    on(nodes.RecordLiteral, expressions.record_literal),
    on(nodes.If, expressions.if_value),
    on(nodes.BlockExpr, expressions.block_value),
)
"""Rules by node class."""

