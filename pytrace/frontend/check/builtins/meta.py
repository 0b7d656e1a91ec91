"""Builtins that are evaluated at compile time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytrace.core.diagnostics import did_you_mean
from pytrace.core.formats import Format
from pytrace.core.types import BOOL, UINT64, VOID, Array, Enum, Int, Pointer, Record, String, Type
from pytrace.frontend.ast import nodes
from pytrace.frontend.check.inference import format_checks
from pytrace.frontend.check.inference.argument_checks import Arguments, Node, expression, expressions, is_text
from pytrace.frontend.check.inference.conversions import UNKNOWN, Unknown, literal, settle
from pytrace.frontend.check.inference.type_names import operand_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytrace.frontend.check.inference.checker import Checker

_LITERALS = (nodes.IntLiteral, nodes.BoolLiteral, nodes.StringLiteral)


# ---------------------------------------------------------------------------------------------- queries


def _question(test: Callable[[Type], bool]) -> Callable[[Checker, Node, Arguments], Type]:
    def check(checker: Checker, node: Node, arguments: Arguments) -> Type:
        type_ = operand_type(checker, arguments[0])
        if not isinstance(type_, Unknown):
            checker.set_constant(node, test(type_))
        return BOOL

    return check


is_array = _question(lambda kind: isinstance(kind, Array))
is_integer = _question(lambda kind: isinstance(kind, Int | Enum))
is_ptr = _question(lambda kind: isinstance(kind, Pointer))
is_str = _question(lambda kind: isinstance(kind, String))
is_unsigned_integer = _question(lambda kind: isinstance(kind, Int) and not kind.signed)


def is_literal(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``is_literal(x)``."""
    value = arguments[0]
    if isinstance(value, nodes.Expr):
        checker.value(value)
    checker.set_constant(node, isinstance(value, _LITERALS) or _negative_literal(value))
    return BOOL


def _negative_literal(value: nodes.Node) -> bool:
    return isinstance(value, nodes.Unary) and value.operator == "-" and isinstance(value.operand, nodes.IntLiteral)


# ---------------------------------------------------------------------------------------------- assertions


def assert_str(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``assert_str(x)``."""
    type_ = checker.value(expression(checker, node, arguments[0]))
    if not isinstance(type_, Unknown) and not is_text(type_):
        checker.error(f"this must be a string, not {settle(type_)}", arguments[0].span)
    return VOID


def static_assert(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``static_assert(condition, message)``."""
    condition = expression(checker, node, arguments[0])
    message = checker.constant_text(arguments[1], "the message of static_assert()")
    holds = checker.condition(condition)
    if holds is None:
        if not isinstance(checker.program.types[condition], Unknown):
            checker.error("the condition of static_assert() must be known at compile time", condition.span)
    elif not holds:
        checker.error((message or b"").decode(errors="replace") or "static_assert() does not hold", node.span)
    return VOID


def fail(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``fail(fmt, …)``."""
    text = checker.constant_text(arguments[0], "the format of fail()")
    values = expressions(checker, node, arguments[1:])
    format_ = format_checks.check(checker, node, "fail", text, values) if text is not None else None
    if format_ is None:
        return VOID
    shown = []
    for value in values:
        constant = checker.constant(value)
        if constant is None:
            return checker.error("the values of fail() must be literals", value.span)
        shown.append(constant)
    checker.error(_fill(format_, shown), node.span)
    return VOID


def _fill(format_: Format, values: list[int | bool | bytes]) -> str:
    waiting = iter(values)
    return "".join(
        part.decode(errors="replace") if isinstance(part, bytes) else _shown(part.name, next(waiting))
        for part in format_.parts
    )


def _shown(name: str, value: int | bool | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else conversion_text(name, value)


def conversion_text(name: str, value: int) -> str:
    """A number as a conversion shows it."""
    if name in ("x", "p"):
        return f"{value:#x}" if name == "p" else f"{value:x}"
    if isinstance(value, bool):
        return str(value).lower()
    return {"X": f"{value:X}", "o": f"{value:o}"}.get(name, str(value))


# ---------------------------------------------------------------------------------------------- settings


def default_str_length(checker: Checker, node: Node, _arguments: Arguments) -> Type:
    """``default_str_length()``."""
    checker.set_constant(node, checker.config.max_strlen)
    return UINT64


def config(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``config("key")``, or ``config()`` for a record of all keys."""
    values = checker.config.to_data()
    if not arguments:
        return Record(tuple(values), tuple(settle(_config_type(value)) for value in values.values()))
    key = checker.constant_text(arguments[0], "the key of config()")
    if key is None:
        return UNKNOWN
    name = key.decode(errors="replace")
    if name not in values:
        return checker.error(f"there is no configuration key {name!r}", node.span, hints=did_you_mean(name, values))
    value = values[name]
    checker.set_constant(node, value.encode() if isinstance(value, str) else value)
    return _config_type(value)


def _config_type(value: str | int | bool) -> Type:
    if isinstance(value, str):
        return String(len(value.encode()) + 1)
    return BOOL if isinstance(value, bool) else literal(value)


def getopt(checker: Checker, node: Node, _arguments: Arguments) -> Type:
    """``getopt(…)``, which the pass over parameters replaces unless its arguments are wrong."""
    return checker.error("the arguments of getopt() must be literals", node.span)


def kfunc_exist(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``kfunc_exist("f")``."""
    name = checker.constant_text(arguments[0], "the argument of kfunc_exist()")
    if name is not None:
        checker.set_constant(node, checker.kernel.function(name.decode(errors="replace")) is not None)
    return BOOL


def kfunc_allowed(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``kfunc_allowed("f")``: whether programs of the probe's type may call kernel functions of general use."""
    name = checker.constant_text(arguments[0], "the argument of kfunc_allowed()")
    if name is not None:
        exists = checker.kernel.function(name.decode(errors="replace")) is not None
        kind = checker.unit.kind if checker.unit is not None else None
        allowed = kind is not None and checker.kernel.feature(f"kfunc_{kind.program_type}")
        checker.set_constant(node, exists and allowed)
    return BOOL
