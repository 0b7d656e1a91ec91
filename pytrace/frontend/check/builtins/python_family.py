"""Builtins that read objects of Python."""

from __future__ import annotations

from pytrace.core.types import DOUBLE, INT64, Pointer, String, Type
from pytrace.frontend.check.inference.argument_checks import expression, literal_integer
from pytrace.frontend.check.inference.checker import Arguments, Checker, Node
from pytrace.frontend.check.inference.conversions import Unknown, is_integer, settle


def pystr(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``pystr(object[, size])``."""
    _check_object(checker, node, arguments)
    capacity = checker.config.max_strlen
    if len(arguments) > 1:
        size = literal_integer(checker, node, arguments[1], "the size of pystr()", 1, capacity - 1)
        capacity = size + 1 if size is not None else capacity
    return String(capacity)


def pyint(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``pyint(object)``."""
    _check_object(checker, node, arguments)
    return INT64


def pyfloat(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``pyfloat(object)``."""
    _check_object(checker, node, arguments)
    return DOUBLE


def _check_object(checker: Checker, node: Node, arguments: Arguments) -> None:
    type_ = checker.value(expression(checker, arguments[0]))
    if not isinstance(type_, Unknown | Pointer) and not is_integer(type_):
        message = f"{node.name}() takes an argument or result of a Python function, not {settle(type_)}"
        checker.error(message, node.span, hints=["args.NAME and retval are such objects"])
