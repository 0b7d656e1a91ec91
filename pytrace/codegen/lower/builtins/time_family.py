"""Builtins that read clocks."""

from __future__ import annotations

from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.emit.storage import SESSION
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.values import I64, Made, Operand, Ptr, Scalar
from pytrace.codegen.lower.builtins.families import Emission
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


def _nsecs(e: Emitter, node: Node) -> Operand:
    clock = e.checked.fact(node, Clock).name
    if clock == "sw_tai":
        # The session writes the offset of the atomic clock from the boot clock.
        return Scalar(e.b.add(_time(e, helpers.KTIME_GET_BOOT_NS), e.b.load(e.session(SESSION.tai))), UINT64)
    return Scalar(_time(e, _CLOCKS[clock]), UINT64)


def _elapsed(e: Emitter, _node: Node) -> Operand:
    return Scalar(e.b.sub(_time(e, helpers.KTIME_GET_BOOT_NS), e.b.load(e.session(SESSION.start))), UINT64)


def _time(e: Emitter, clock: helpers.Helper[[], I64]) -> I64:
    """The time of the hit by a clock."""
    now = e.b.helper(clock)
    return now if e.kept is None else e.b.sub(now, e.deferred.kept_age())


def _jiffies(e: Emitter, _node: Node) -> Operand:
    return Scalar(e.b.helper(helpers.JIFFIES64), UINT64)


def _strftime(e: Emitter, node: nodes.Call) -> Operand:
    format_ = e.checked.fact(node, DateFormat)
    if not isinstance(node.args[1], nodes.Expr):
        raise InternalError("strftime takes a time")
    when = e.number(node.args[1])

    def write(pointer: Ptr, _align: int) -> None:
        e.b.store(when, pointer)
        e.b.store(format_.string, e.b.offset(pointer, 8), 32)
        e.b.store(format_.clock, e.b.offset(pointer, 12), 32)

    return Made(Timestamp(), write)


EMIT: dict[str, Emission] = {
    "elapsed": _elapsed,
    "jiffies": _jiffies,
    "nsecs": _nsecs,
    "strftime": _strftime,
}
