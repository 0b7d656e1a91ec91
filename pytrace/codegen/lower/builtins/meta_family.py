"""Compile-time builtins: all are constants before code is generated, except for records."""

from __future__ import annotations

from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir.operands import Operand, Parts
from pytrace.codegen.lower import expressions
from pytrace.codegen.lower.builtins.families import Emission
from pytrace.core.diagnostics import InternalError
from pytrace.core.types import Record
from pytrace.frontend.ast import nodes


def _config(e: Emitter, node: nodes.Call | nodes.Identifier) -> Operand:
    type_ = e.type(node)
    if not isinstance(type_, Record):
        raise InternalError("one key of config() is a constant")
    values = e.checked.config.to_data().values()
    given = (value.encode() if isinstance(value, str) else value for value in values)
    members = zip(given, type_.members, strict=True)
    return Parts(type_, tuple(expressions.constant(e, value, of) for value, of in members))


EMIT: dict[str, Emission] = {"config": _config}
