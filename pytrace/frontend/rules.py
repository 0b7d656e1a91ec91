"""Which rule types which class of expression."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pytrace.frontend import access, ast, calls, casts, expressions, layout, operators
from pytrace.types import Type

if TYPE_CHECKING:
    from pytrace.frontend.checker import Checker

EXPRESSIONS: dict[type[ast.Expr], Callable[[Checker, Any], Type]] = {
    ast.IntLiteral: expressions.integer,
    ast.BoolLiteral: expressions.boolean,
    ast.StringLiteral: expressions.string,
    ast.OpenParameter: expressions.parameter,
    ast.Identifier: expressions.identifier,
    ast.Variable: expressions.variable,
    ast.MapRef: expressions.map_value,
    ast.MapIndex: expressions.map_index,
    ast.Unary: operators.unary,
    ast.Binary: operators.binary,
    ast.Ternary: expressions.ternary,
    ast.Cast: casts.cast,
    ast.FieldAccess: access.field_access,
    ast.TupleAccess: access.tuple_access,
    ast.Index: access.index,
    ast.Call: calls.call,
    ast.Sizeof: layout.size_of,
    ast.Offsetof: layout.offset_of,
    ast.TypeInfo: layout.type_info,
    ast.Comptime: expressions.comptime,
    ast.TupleLiteral: expressions.tuple_literal,
    ast.RecordLiteral: expressions.record_literal,
    ast.If: expressions.if_value,
    ast.BlockExpr: expressions.block_value,
}
"""Rules by node class."""

