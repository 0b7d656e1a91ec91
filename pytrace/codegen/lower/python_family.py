"""Objects of Python."""

from __future__ import annotations

from pytrace.base.dispatch import handles_names
from pytrace.codegen.ir.values import Operand, Scalar
from pytrace.codegen.lower.expressions import Builtins
from pytrace.codegen.walkers.python_objects import PythonObjects
from pytrace.core.diagnostics import InternalError
from pytrace.core.types import DOUBLE, INT64, String
from pytrace.frontend.syntax import nodes


class PythonBuiltins(Builtins):
    """Objects of Python."""

    @handles_names("pystr")
    def _pystr(self, node: nodes.Call) -> Operand:
        type_ = self.e.type(node)
        if not isinstance(type_, String):
            raise InternalError("pystr returns a string")
        return PythonObjects(self.e).text(self.argument(node), type_)

    @handles_names("pyint")
    def _pyint(self, node: nodes.Call) -> Operand:
        return Scalar(PythonObjects(self.e).integer(self.argument(node)), INT64)

    @handles_names("pyfloat")
    def _pyfloat(self, node: nodes.Call) -> Operand:
        return Scalar(PythonObjects(self.e).fraction(self.argument(node)), DOUBLE)
