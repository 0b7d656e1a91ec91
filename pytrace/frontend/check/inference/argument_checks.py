"""Argument checks shared by several builtins: literals, unstable features, types of arguments, formats of printf."""

from __future__ import annotations

from collections.abc import Callable

from pytrace.core.formats import UNSUPPORTED, WIDEST, Conversion, Format, parse
from pytrace.core.types import Array, Bool, Buffer, Float, Int, Pointer, String, Struct, Type, Void
from pytrace.frontend.check.inference.checker import Arguments, Checker, Node
from pytrace.frontend.check.inference.conversions import Unknown, is_integer, settle
from pytrace.frontend.syntax import nodes


def unstable(checker: Checker, name: str, node: nodes.Expr) -> bool:
    """Whether the configuration allows an unstable feature; reports an error or a warning as configured."""
    setting = getattr(checker.config, f"unstable_{name}")
    hint = f"set unstable_{name} = enable in the config block"
    if setting == "error":
        checker.error(f"{name} is unstable and disabled", node.span, hints=[hint])
        return False
    if setting == "warn":
        checker.warn(f"{name} is unstable: its behaviour may change", node.span, hints=[hint])
    return True


def expression(checker: Checker, arg: nodes.Expr | nodes.TypeExpr) -> nodes.Expr:
    """An argument that must be an expression."""
    if isinstance(arg, nodes.Expr):
        return arg
    checker.error("a type cannot be an argument here", arg.span)
    return nodes.IntLiteral(arg.span, 0)


def expressions(checker: Checker, args: Arguments) -> tuple[nodes.Expr, ...]:
    """Arguments that must all be expressions."""
    return tuple(expression(checker, arg) for arg in args)


def literal_integer(
    checker: Checker, node: Node, arg: nodes.Expr | nodes.TypeExpr, what: str, low: int, high: int
) -> int | None:
    """The value of an argument that must be an integer constant in a range; reported at the call."""
    value = expression(checker, arg)
    type_ = checker.value(value)
    constant = checker.constant(value)
    if isinstance(constant, bool) or not isinstance(constant, int):
        if not isinstance(type_, Unknown):
            checker.error(f"{what} must be an integer literal", node.span, hints=checker.constant_hints(value))
        return None
    if not low <= constant <= high:
        checker.error(f"{what} must be {low} to {high}, not {constant}", node.span)
        return None
    return constant


CONVERT = "BPF has no floating-point arithmetic: convert the number first, by (int64)$d or scaled($d, 1000)"


def integer_argument(checker: Checker, node: Node, arg: nodes.Expr | nodes.TypeExpr, what: str) -> Type:
    """Type of an argument that must be an integer; reported at the call."""
    value = expression(checker, arg)
    type_ = checker.value(value)
    if not isinstance(type_, Unknown) and not is_integer(type_):
        hints = [CONVERT] if isinstance(type_, Float) else []
        return checker.error(f"{what} must be an integer, not {settle(type_)}", node.span, hints=hints)
    return type_


def is_text(type_: Type) -> bool:
    """True for strings and arrays of characters."""
    return isinstance(type_, String) or (
        isinstance(type_, Array) and isinstance(type_.element, Int) and type_.element.width == 1
    )


def is_text_pointer(type_: Type) -> bool:
    """True for pointers to characters."""
    return isinstance(type_, Pointer) and isinstance(type_.target, Int) and type_.target.width == 1


def text_argument(checker: Checker, node: Node, arg: nodes.Expr | nodes.TypeExpr, what: str) -> Type:
    """Type of an argument that must be a string."""
    value = expression(checker, arg)
    type_ = checker.value(value)
    if not isinstance(type_, Unknown) and not is_text(type_):
        return checker.error(f"{what} must be a string, not {settle(type_)}", node.span, hints=["str() reads one"])
    return type_


def pointer_argument(checker: Checker, node: Node, arg: nodes.Expr | nodes.TypeExpr, what: str) -> Type:
    """Type of an argument that must be an address."""
    value = expression(checker, arg)
    type_ = checker.value(value)
    if not isinstance(type_, Unknown | Pointer) and not is_integer(type_):
        return checker.error(f"{what} must be a pointer or an integer, not {settle(type_)}", node.span)
    return type_


def literal_text(checker: Checker, arg: nodes.Expr | nodes.TypeExpr, what: str) -> str | None:
    """The text of an argument that must be a string literal; None after an error."""
    text = checker.constant_text(arg, what)
    return None if text is None else text.decode(errors="replace")


def struct_argument(checker: Checker, node: Node, arg: nodes.Expr | nodes.TypeExpr, *names: str) -> Type:
    """Type of an argument that must be a pointer to a struct of one of these *names*; reported at the call."""
    type_ = checker.value(expression(checker, arg))
    fits = isinstance(type_, Pointer) and isinstance(type_.target, Struct) and type_.target.name in names
    if not fits and not isinstance(type_, Unknown):
        return checker.error(f"{node.name}() takes a struct {names[0]} *, not {settle(type_)}", node.span)
    return type_


def size_of_text(type_: Type) -> int:
    """Capacity of a string or character array."""
    return type_.capacity if isinstance(type_, String) else type_.size


def require_args(checker: Checker, node: nodes.Identifier) -> bool:
    """Whether the probe has ``args``; reports an error otherwise."""
    unit = checker.unit
    if unit is None:
        checker.error("a function has no args", node.span, hints=["pass the value as a parameter"])
        return False
    if unit.context.args_type is None and not unit.context.arguments:
        hints = [*unit.context.missing]
        if unit.kind.positional and not unit.kind.typed:
            hints.append("use arg0, arg1 …")
        checker.error(f"{unit.kind.name} probes have no args here", node.span, hints=hints)
        return False
    return True


def report_lost(checker: Checker, node: nodes.Node) -> bool:
    """Report that an argument, a member of one or ``retval`` is in a register that programs cannot read, if it is."""
    if checker.unit is None or not checker.unit.context.lost:
        return False
    names: list[str] = []
    inner = node
    while isinstance(inner, nodes.FieldAccess | nodes.Index):
        names += [inner.name] if isinstance(inner, nodes.FieldAccess) else []
        inner = inner.base
    if not isinstance(inner, nodes.Identifier):
        return False
    name = ".".join([inner.name, *reversed(names)])
    if name not in checker.unit.context.lost:
        return False
    checker.error(f"{name} is in a floating-point register, which BPF programs cannot read", node.span)
    return True


# ---------------------------------------------------------------------------------------------- formats of printf


def _is_number(type_: Type) -> bool:
    return is_integer(type_) or isinstance(type_, Bool | Pointer)


def _is_fraction(type_: Type) -> bool:
    return isinstance(type_, Float)


def _is_buffer(type_: Type) -> bool:
    return isinstance(type_, Buffer)


def _has_text(type_: Type) -> bool:
    return not isinstance(type_, Void) and not type_.aggregate


_NUMBERS = ("d", "i", "u", "o", "x", "X", "c", "p")

CONVERSIONS: dict[str, tuple[Callable[[Type], bool], str]] = {
    **dict.fromkeys(_NUMBERS, (_is_number, "an integer")),
    **dict.fromkeys(("f", "F", "e", "E", "g", "G"), (_is_fraction, "a floating-point number")),
    "gr": (is_integer, "an integer of GFP flags"),
    "s": (_has_text, "a value"),
    "r": (_is_buffer, "a buffer"),
    "rx": (_is_buffer, "a buffer"),
    "rh": (_is_buffer, "a buffer"),
}
"""For each conversion, a test of accepted types and their name for messages."""


def formatted(checker: Checker, node: Node, arguments: Arguments) -> tuple[Format | None, tuple[nodes.Expr, ...]]:
    """The format of a call, and the values for it, which are checked against it; no format after an error."""
    text = checker.constant_text(arguments[0], f"the format of {node.name}()")
    values = expressions(checker, arguments[1:])
    return None if text is None else _checked(checker, node, parse(text), values), values


def _checked(checker: Checker, node: Node, format_: Format, values: tuple[nodes.Expr, ...]) -> Format | None:
    name, types = node.name, [checker.value(value) for value in values]
    wanted = format_.conversions
    refused = next((item for item in wanted if item.name in UNSUPPORTED), None)
    if refused is not None:
        checker.error(f"{name}(): conversion {refused.text!r} is not supported", node.span)
        return None
    wide = next((item for item in wanted if max(item.columns, item.digits or 0) > WIDEST), None)
    if wide is not None:
        checker.error(f"{name}(): the width or precision of {wide.text!r} is more than {WIDEST}", node.span)
        return None
    for part in format_.stray:
        checker.warn(
            f"{name}(): {part!r} is not a conversion: the % is printed as it is",
            node.span,
            hints=["write %% for a % sign"],
        )
    if len(wanted) != len(values):
        less = "not enough" if len(wanted) > len(values) else "too many"
        checker.error(
            f"{less} values for {name}(): the format takes {len(wanted)}, {len(values)} given",
            node.span,
            hints=_spaced_hints(wanted),
        )
        return None
    fine = True
    for conversion, type_ in zip(wanted, types, strict=True):
        test, what = CONVERSIONS[conversion.name]
        if not isinstance(type_, Unknown) and not test(type_):
            hints = ["%f and %g take one"] if isinstance(type_, Float) else []
            checker.error(f"{name}(): {conversion.text} takes {what}, not {settle(type_)}", node.span, hints=hints)
            fine = False
    return format_ if fine else None


def _spaced_hints(conversions: list[Conversion]) -> list[str]:
    """``100% done``: the space is a flag, and ``d`` the conversion."""
    spaced = next((item.text for item in conversions if " " in item.text), None)
    return [] if spaced is None else [f"{spaced!r} is a conversion; write %% for a % sign"]
