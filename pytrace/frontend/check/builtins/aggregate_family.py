"""Map value functions: count() to tseries()."""

from __future__ import annotations

from collections.abc import Callable

from pytrace.core.types import Avg, Bool, Count, Float, Hist, Int, LHist, Max, Min, Stats, Sum, TSeries, Type
from pytrace.frontend.check.inference.argument_checks import CONVERT, expression, literal_integer, unstable
from pytrace.frontend.check.inference.checker import Arguments, Checker, Node
from pytrace.frontend.check.inference.conversions import (
    INT64_MAX,
    UNKNOWN,
    Flexible,
    Unknown,
    integer_of,
    is_integer,
    settle,
)
from pytrace.frontend.syntax import nodes

MAX_BITS = 5
MAX_BUCKETS = 1000
MAX_INTERVALS = 1_000_000
REDUCERS = ("avg", "max", "min", "sum")


def _in_place(checker: Checker, node: Node) -> bool:
    if checker.aggregate is node:
        return True
    checker.error(
        f"{node.name}() must be assigned to a map directly", node.span, hints=[f"write @name = {node.name}(…)"]
    )
    return False


def _number(checker: Checker, node: Node, arg: nodes.Expr | nodes.TypeExpr) -> Type | None:
    """Type of the value that is aggregated; None after an error."""
    type_ = checker.value(expression(checker, arg))
    if isinstance(type_, Unknown):
        return None
    if not is_integer(type_) and not isinstance(type_, Bool):
        hints = [CONVERT] if isinstance(type_, Float) else []
        checker.error(f"{node.name}() takes an integer, not {settle(type_)}", node.span, hints=hints)
        return None
    return type_


def _is_signed(type_: Type) -> bool:
    carrier = integer_of(type_)
    return carrier.signed if isinstance(carrier, Int) else carrier.high <= INT64_MAX


def _is_either(type_: Type) -> bool:
    """Whether a value is a constant that both signed and unsigned integers can hold."""
    carrier = integer_of(type_)
    return isinstance(carrier, Flexible) and carrier.low >= 0 and carrier.high <= INT64_MAX


def count(checker: Checker, node: Node, _arguments: Arguments) -> Type:
    """``count()``."""
    return Count() if _in_place(checker, node) else UNKNOWN


def _signed(make: type[Sum | Avg | Min | Max | Stats]) -> Callable[[Checker, Node, Arguments], Type]:
    def check(checker: Checker, node: Node, arguments: Arguments) -> Type:
        type_ = _number(checker, node, arguments[0])
        if not _in_place(checker, node) or type_ is None:
            return UNKNOWN
        return make(_is_signed(type_), _is_either(type_))

    return check


sum_ = _signed(Sum)
avg = _signed(Avg)
min_ = _signed(Min)
max_ = _signed(Max)
stats = _signed(Stats)


def hist(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``hist(n[, bits])``."""
    type_ = _number(checker, node, arguments[0])
    bits: int | None = 0
    if len(arguments) > 1:
        bits = literal_integer(checker, node, arguments[1], "the number of bits of hist()", 0, MAX_BITS)
    if not _in_place(checker, node) or type_ is None or bits is None:
        return UNKNOWN
    return Hist(bits)


def lhist(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``lhist(n, min, max, step)``."""
    type_ = _number(checker, node, arguments[0])
    names = ("the minimum", "the maximum", "the step")
    top = (1 << 63) - 1
    bounds = [
        literal_integer(checker, node, arg, f"{name} of lhist()", 0, top)
        for arg, name in zip(arguments[1:], names, strict=True)
    ]
    low, high, step = bounds
    if not _in_place(checker, node) or type_ is None or low is None or high is None or step is None:
        return UNKNOWN
    problem = _lhist_problem(low, high, step)
    if problem:
        return checker.error(problem, node.span)
    return LHist(low, high, step)


def _lhist_problem(low: int, high: int, step: int) -> str:
    if low >= high:
        return f"the minimum of lhist() must be less than the maximum, but {low} is not less than {high}"
    if step < 1:
        return f"the step of lhist() must be 1 or more, not {step}"
    if step > high - low:
        return f"the step of lhist() ({step}) is greater than the range ({high - low})"
    if (high - low) // step > MAX_BUCKETS:
        return f"lhist() would have {(high - low) // step} buckets, the limit is {MAX_BUCKETS}"
    return ""


def tseries(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``tseries(n, interval_ns, num[, aggregation])``."""
    if not unstable(checker, "tseries", node):
        return UNKNOWN
    type_ = _number(checker, node, arguments[0])
    interval = literal_integer(checker, node, arguments[1], "the interval of tseries()", 1, (1 << 63) - 1)
    number = literal_integer(checker, node, arguments[2], "the number of intervals", 1, MAX_INTERVALS - 1)
    reduce: bytes | None = b""
    if len(arguments) > 3:
        reduce = checker.constant_text(arguments[3], "the aggregation of tseries()")
    if reduce and reduce.decode(errors="replace") not in REDUCERS:
        return checker.error(f"tseries() aggregates by {', '.join(REDUCERS)}", node.span)
    if not _in_place(checker, node) or type_ is None or interval is None or number is None or reduce is None:
        return UNKNOWN
    return TSeries(interval, number, reduce.decode(), _is_signed(type_))
