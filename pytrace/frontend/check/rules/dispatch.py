"""The dispatch table of typing rules, by class of expression."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytrace.base.dispatch import by_class, late, on
from pytrace.frontend.ast import nodes
from pytrace.frontend.check.rules import calls, casts, expressions, members, operators, type_queries

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytrace.core.types import Type
    from pytrace.frontend.check.inference.checker import Checker

EXPRESSIONS: Mapping[type[nodes.Expr], Callable[[Checker, nodes.Expr], Type]] = by_class(
    on(nodes.IntLiteral, late(lambda: expressions.integer)),
    on(nodes.BoolLiteral, late(lambda: expressions.boolean)),
    on(nodes.StringLiteral, late(lambda: expressions.string)),
    on(nodes.OpenParameter, late(lambda: expressions.parameter)),
    on(nodes.PositionalParam, late(lambda: expressions.unreplaced_parameter)),
    on(nodes.ParamCount, late(lambda: expressions.unreplaced_parameter)),
    on(nodes.Identifier, late(lambda: expressions.identifier)),
    on(nodes.Variable, late(lambda: expressions.variable)),
    on(nodes.MapRef, late(lambda: expressions.map_value)),
    on(nodes.MapIndex, late(lambda: expressions.map_index)),
    on(nodes.Unary, late(lambda: operators.unary)),
    on(nodes.Binary, late(lambda: operators.binary)),
    on(nodes.Ternary, late(lambda: expressions.ternary)),
    on(nodes.Cast, late(lambda: casts.cast)),
    on(nodes.FieldAccess, late(lambda: members.field_access)),
    on(nodes.TupleAccess, late(lambda: members.tuple_access)),
    on(nodes.Index, late(lambda: members.index)),
    on(nodes.Call, late(lambda: calls.call)),
    on(nodes.Sizeof, late(lambda: type_queries.size_of)),
    on(nodes.Offsetof, late(lambda: type_queries.offset_of)),
    on(nodes.TypeInfo, late(lambda: type_queries.type_info)),
    on(nodes.Comptime, late(lambda: expressions.comptime)),
    on(nodes.TupleLiteral, late(lambda: expressions.tuple_literal)),
    on(nodes.RecordLiteral, late(lambda: expressions.record_literal)),
    on(nodes.If, late(lambda: expressions.if_value)),
    on(nodes.BlockExpr, late(lambda: expressions.block_value)),
)
"""Rules by node class."""

