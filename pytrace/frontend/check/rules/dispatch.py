"""Which rule types which class of expression."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pytrace.core.types import Type
from pytrace.frontend.ast import nodes
from pytrace.frontend.check.rules import calls, casts, expressions, members, operators, type_queries

if TYPE_CHECKING:
    from pytrace.frontend.check.inference.checker import Checker

EXPRESSIONS: dict[type[nodes.Expr], Callable[[Checker, Any], Type]] = {
    nodes.IntLiteral: expressions.integer,
    nodes.BoolLiteral: expressions.boolean,
    nodes.StringLiteral: expressions.string,
    nodes.OpenParameter: expressions.parameter,
    nodes.Identifier: expressions.identifier,
    nodes.Variable: expressions.variable,
    nodes.MapRef: expressions.map_value,
    nodes.MapIndex: expressions.map_index,
    nodes.Unary: operators.unary,
    nodes.Binary: operators.binary,
    nodes.Ternary: expressions.ternary,
    nodes.Cast: casts.cast,
    nodes.FieldAccess: members.field_access,
    nodes.TupleAccess: members.tuple_access,
    nodes.Index: members.index,
    nodes.Call: calls.call,
    nodes.Sizeof: type_queries.size_of,
    nodes.Offsetof: type_queries.offset_of,
    nodes.TypeInfo: type_queries.type_info,
    nodes.Comptime: expressions.comptime,
    nodes.TupleLiteral: expressions.tuple_literal,
    nodes.RecordLiteral: expressions.record_literal,
    nodes.If: expressions.if_value,
    nodes.BlockExpr: expressions.block_value,
}
"""Rules by node class."""

