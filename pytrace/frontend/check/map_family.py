"""Checks of builtins on maps, and of map value functions."""

from __future__ import annotations

from collections.abc import Mapping

from pytrace.base.dispatch import handles_names
from pytrace.core.event_layout import EmptiedMap
from pytrace.core.types import (
    BOOL,
    INT64,
    VOID,
    Avg,
    Bool,
    Count,
    Float,
    Hist,
    Int,
    LHist,
    Max,
    Min,
    Stack,
    Stats,
    Sum,
    TSeries,
    Type,
)
from pytrace.frontend.check.checker import Arguments, MapState, Node
from pytrace.frontend.check.conversions import (
    CONVERT,
    INT64_MAX,
    UNKNOWN,
    Flexible,
    Unknown,
    integer_of,
    is_integer,
    settle,
)
from pytrace.frontend.check.expressions import BuiltinChecks
from pytrace.frontend.check.maps import read_type
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import MapAccess

_MAX_BITS = 5
MAX_BUCKETS = 1000
MAX_INTERVALS = 1_000_000
_REDUCERS = ("avg", "max", "min", "sum")


def _is_signed(type_: Type) -> bool:
    carrier = integer_of(type_)
    return carrier.signed if isinstance(carrier, Int) else carrier.high <= INT64_MAX


def _fits_either_sign(type_: Type) -> bool:
    """Whether a value is a constant that both signed and unsigned integers can hold."""
    carrier = integer_of(type_)
    return isinstance(carrier, Flexible) and carrier.low >= 0 and carrier.high <= INT64_MAX


_REDUCTIONS: Mapping[str, type[Sum | Avg | Min | Max | Stats]] = {
    "sum": Sum, "avg": Avg, "min": Min, "max": Max, "stats": Stats,
}  # fmt: skip


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


class Aggregates(BuiltinChecks):
    """Checks of map value functions: count() to tseries()."""

    def _check_place(self, node: Node) -> bool:
        if self.checker.aggregate is node:
            return True
        self.checker.error(
            f"{node.name}() must be assigned to a map directly", node.span, hints=[f"write @name = {node.name}(…)"]
        )
        return False

    def _value_type(self, node: Node, arg: nodes.Expr | nodes.TypeExpr) -> Type | None:
        """Type of the value that is aggregated; None after an error."""
        type_ = self.checker.value(self.checks.expression(arg))
        if isinstance(type_, Unknown):
            return None
        if not is_integer(type_) and not isinstance(type_, Bool):
            hints = [CONVERT] if isinstance(type_, Float) else []
            self.checker.error(f"{node.name}() takes an integer, not {settle(type_)}", node.span, hints=hints)
            return None
        return type_

    @handles_names("count")
    def count(self, node: Node, _arguments: Arguments) -> Type:
        """``count()``."""
        return Count() if self._check_place(node) else UNKNOWN

    @handles_names("sum", "avg", "min", "max", "stats")
    def reduction(self, node: Node, arguments: Arguments) -> Type:
        """``sum(n)``, ``avg(n)``, ``min(n)``, ``max(n)`` and ``stats(n)``."""
        type_ = self._value_type(node, arguments[0])
        if not self._check_place(node) or type_ is None:
            return UNKNOWN
        return _REDUCTIONS[node.name](_is_signed(type_), _fits_either_sign(type_))

    @handles_names("hist")
    def hist(self, node: Node, arguments: Arguments) -> Type:
        """``hist(n[, bits])``."""
        type_ = self._value_type(node, arguments[0])
        bits: int | None = 0
        if len(arguments) > 1:
            bits = self.checks.literal_integer(node, arguments[1], "the number of bits of hist()", 0, _MAX_BITS)
        if not self._check_place(node) or type_ is None or bits is None:
            return UNKNOWN
        return Hist(bits)

    @handles_names("lhist")
    def lhist(self, node: Node, arguments: Arguments) -> Type:
        """``lhist(n, min, max, step)``."""
        type_ = self._value_type(node, arguments[0])
        names = ("the minimum", "the maximum", "the step")
        top = (1 << 63) - 1
        bounds = [
            self.checks.literal_integer(node, arg, f"{name} of lhist()", 0, top)
            for arg, name in zip(arguments[1:], names, strict=True)
        ]
        low, high, step = bounds
        if not self._check_place(node) or type_ is None or low is None or high is None or step is None:
            return UNKNOWN
        problem = _lhist_problem(low, high, step)
        if problem:
            return self.checker.error(problem, node.span)
        return LHist(low, high, step)

    @handles_names("tseries")
    def tseries(self, node: Node, arguments: Arguments) -> Type:
        """``tseries(n, interval_ns, num[, aggregation])``."""
        if not self.checks.unstable("tseries", node):
            return UNKNOWN
        type_ = self._value_type(node, arguments[0])
        interval = self.checks.literal_integer(node, arguments[1], "the interval of tseries()", 1, (1 << 63) - 1)
        number = self.checks.literal_integer(node, arguments[2], "the number of intervals", 1, MAX_INTERVALS - 1)
        reduce: bytes | None = b""
        if len(arguments) > 3:
            reduce = self.checker.constant_text(arguments[3], "the aggregation of tseries()")
        if reduce and reduce.decode(errors="replace") not in _REDUCERS:
            return self.checker.error(f"tseries() aggregates by {', '.join(_REDUCERS)}", node.span)
        if not self._check_place(node) or type_ is None or interval is None or number is None or reduce is None:
            return UNKNOWN
        return TSeries(interval, number, reduce.decode(), _is_signed(type_))


class MapChecks(BuiltinChecks):
    """Checks of builtins that work on maps."""

    def _map_argument(self, node: Node, arg: nodes.Expr | nodes.TypeExpr) -> tuple[nodes.MapRef, MapState] | None:
        if not isinstance(arg, nodes.MapRef):
            self.checker.error(f"{node.name}() takes a map", node.span)
            return None
        return arg, self.checker.map(arg)

    @handles_names("clear", "zero")
    def emptied(self, node: Node, arguments: Arguments) -> Type:
        """``clear(@m)`` and ``zero(@m)``."""
        argument = self._map_argument(node, arguments[0])
        if argument is not None:
            target, state = argument
            self.checker.program.types[target] = self.maps.require(target, state)
            self.events.send(node, node.name, EmptiedMap(target.name))
        return VOID

    @handles_names("delete")
    def delete(self, node: Node, arguments: Arguments) -> Type:
        """``delete(@m, key)``, ``delete(@scalar)`` and the old ``delete(@m[key])``."""
        first = self.checks.expression(arguments[0])
        if isinstance(first, nodes.MapIndex) and len(arguments) == 1:
            return self._key_access(node, first.map, first.keys)
        argument = self._map_argument(node, first)
        if argument is None:
            return BOOL
        target, state = argument
        if len(arguments) > 1:
            return self._key_access(node, target, (self.checks.expression(arguments[1]),))
        self.maps.require(target, state)
        if state.keyed:
            hints = ["clear() removes all"]
            self.checker.error(f"{target.name} has keys: delete() needs the one to remove", node.span, hints=hints)
        self.checker.program.facts[node] = MapAccess(target.name)
        return BOOL

    @handles_names("has_key")
    def has_key(self, node: Node, arguments: Arguments) -> Type:
        """``has_key(@m, key)``."""
        argument = self._map_argument(node, arguments[0])
        if argument is None:
            return BOOL
        return self._key_access(node, argument[0], (self.checks.expression(arguments[1]),))

    def _key_access(self, node: Node, target: nodes.MapRef, keys: tuple[nodes.Expr, ...]) -> Type:
        state = self.checker.map(target)
        if state.keyed is False:
            notes = [("used without key here", state.keyed_at)] if state.keyed_at is not None else []
            self.checker.error(f"{target.name} has no keys", node.span, notes=notes)
            return BOOL
        self.maps.put_key(state, keys, node)
        self.maps.require(target, state)
        self.checker.program.facts[node] = MapAccess(target.name, keys)
        return BOOL

    @handles_names("find")
    def find(self, node: Node, arguments: Arguments) -> Type:
        """``find(@m, key, $v)``."""
        argument = self._map_argument(node, arguments[0])
        if argument is None:
            return BOOL
        target, state = argument
        self._key_access(node, target, (self.checks.expression(arguments[1]),))
        variable = arguments[2]
        if not isinstance(variable, nodes.Variable):
            self.checker.error("the third argument of find() is a variable", node.span)
            return BOOL
        type_ = read_type(state.value.type)
        if type_ is None or isinstance(type_, Stats):
            self.checker.error(f"find() cannot read {state.value.type}", node.span)
            return BOOL
        held = self.checker.scope.find(variable.name)
        if held is None:
            held = self.checker.declare(variable, variable.span)
        self.checker.put(held, type_, node.span)
        self.checker.bind(variable, held)
        return BOOL

    @handles_names("len")
    def length(self, node: Node, arguments: Arguments) -> Type:
        """``len(@m)`` and ``len(stack)``."""
        first = self.checks.expression(arguments[0])
        state = self.checker.map(first) if isinstance(first, nodes.MapRef) else None
        if state is not None and state.keyed is False and isinstance(state.value.type, Stack):
            state = None  # the frames of the stack that it holds
        if isinstance(first, nodes.MapRef) and state is not None:
            self.maps.require(first, state)
            if state.keyed is False:
                self.checker.error(f"{first.name} has no keys to count", node.span)
            elif not self.checker.kernel.feature("for_each_map_elem"):
                hints = ["Linux 5.13 can (bpf_for_each_map_elem)"]
                self.checker.error(
                    "this kernel cannot count the keys of maps in programs", node.span, hints=hints, kernel=True
                )
            self.checker.program.facts[node] = MapAccess(first.name)
            return INT64
        type_ = self.checker.value(first)
        if not isinstance(type_, Stack | Unknown):
            self.checker.error(f"len() takes a map or a stack, not {settle(type_)}", node.span)
        return INT64

    @handles_names("is_scalar")
    def is_scalar(self, node: Node, arguments: Arguments) -> Type:
        """``is_scalar(@m)``."""
        argument = self._map_argument(node, arguments[0])
        if argument is None:
            return BOOL
        keyed = argument[1].keyed
        if keyed is None and not self.checker.final:
            return UNKNOWN
        self.checker.set_constant(node, not keyed)
        return BOOL


FAMILIES = (MapChecks, Aggregates)
