"""Compile-time builtins are constants before code is generated, but for records."""

from __future__ import annotations

from pytrace.codegen import expressions
from pytrace.codegen.builtins import Emission
from pytrace.codegen.emitter import Emitter
from pytrace.codegen.operands import Operand, Parts
from pytrace.diagnostics import InternalError
from pytrace.frontend import ast
from pytrace.types import Record


def _config(e: Emitter, node: ast.Call | ast.Identifier) -> Operand:
    kind = e.type(node)
    if not isinstance(kind, Record):
        raise InternalError("one key of config() is a constant")
    values = e.checked.config.values()
    given = (value.encode() if isinstance(value, str) else value for value in values)
    return Parts(kind, tuple(expressions.constant(e, value, of) for value, of in zip(given, kind.members, strict=True)))


EMIT: dict[str, Emission] = {"config": _config}
