"""Builtins that read clocks."""

from __future__ import annotations

from pytrace.base.dispatch import handles_names
from pytrace.codegen.emit.storage import SESSION
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.values import I64, Made, Operand, Ptr, Scalar
from pytrace.codegen.lower.expressions import Builtins
from pytrace.core.diagnostics import InternalError
from pytrace.core.types import UINT64, Timestamp
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import Clock, DateFormat

Node = nodes.Call | nodes.Identifier

_CLOCKS = {
    "boot": helpers.KTIME_GET_BOOT_NS,
    "monotonic": helpers.KTIME_GET_NS,
    "tai": helpers.KTIME_GET_TAI_NS,
}


class TimeBuiltins(Builtins):
    """Clocks."""

    @handles_names("nsecs")
    def _nsecs(self, node: Node) -> Operand:
        clock = self.checked.fact(node, Clock).name
        if clock == "sw_tai":
            # The session writes the offset of the atomic clock from the boot clock.
            return Scalar(
                self.b.add(self._time(helpers.KTIME_GET_BOOT_NS), self.b.load(self.e.session(SESSION.tai))), UINT64
            )
        return Scalar(self._time(_CLOCKS[clock]), UINT64)

    @handles_names("elapsed")
    def _elapsed(self, _node: Node) -> Operand:
        return Scalar(
            self.b.sub(self._time(helpers.KTIME_GET_BOOT_NS), self.b.load(self.e.session(SESSION.start))), UINT64
        )

    def _time(self, clock: helpers.Helper[[], I64]) -> I64:
        """The time of the hit by a clock."""
        now = self.b.helper(clock)
        return now if self.e.kept is None else self.b.sub(now, self.e.deferred.kept_age())

    @handles_names("jiffies")
    def _jiffies(self, _node: Node) -> Operand:
        return Scalar(self.b.helper(helpers.JIFFIES64), UINT64)

    @handles_names("strftime")
    def _strftime(self, node: nodes.Call) -> Operand:
        format_ = self.checked.fact(node, DateFormat)
        if not isinstance(node.args[1], nodes.Expr):
            raise InternalError("strftime takes a time")
        when = self.e.number(node.args[1])

        def write(pointer: Ptr, _align: int) -> None:
            self.b.store(when, pointer)
            self.b.store(format_.string, self.b.offset(pointer, 8), 32)
            self.b.store(format_.clock, self.b.offset(pointer, 12), 32)

        return Made(Timestamp(), write)
