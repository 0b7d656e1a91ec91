"""Objects of Python."""

from __future__ import annotations

from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir.values import Operand, Scalar
from pytrace.codegen.lower.builtins.families import Emission
from pytrace.codegen.lower.builtins.symbol_family import argument
from pytrace.codegen.services.python import objects as python_objects
from pytrace.core.diagnostics import InternalError
from pytrace.core.types import DOUBLE, INT64, String
from pytrace.frontend.syntax import nodes


def _pystr(e: Emitter, node: nodes.Call) -> Operand:
    type_ = e.type(node)
    if not isinstance(type_, String):
        raise InternalError("pystr returns a string")
    return python_objects.text(e, argument(e, node), type_)


def _pyint(e: Emitter, node: nodes.Call) -> Operand:
    return Scalar(python_objects.integer(e, argument(e, node)), INT64)


def _pyfloat(e: Emitter, node: nodes.Call) -> Operand:
    return Scalar(python_objects.fraction(e, argument(e, node)), DOUBLE)


EMIT: dict[str, Emission] = {"pystr": _pystr, "pyint": _pyint, "pyfloat": _pyfloat}
