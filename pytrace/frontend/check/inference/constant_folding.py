"""Constant folding: the machine's arithmetic on Python integers."""

from __future__ import annotations

from collections.abc import Callable
from operator import eq, ge, gt, le, lt, ne

from pytrace.core.types import INT64, UINT64, Int
from pytrace.frontend.check.inference.conversions import INT64_MIN, UINT64_MAX


class FoldError(Exception):
    """The operation has no result: division by zero, or a result of more than 64 bits."""


def wrap(value: int, type_: Int) -> int:
    """*value* truncated to the width of *type_*, with its signedness."""
    value &= (1 << (8 * type_.width)) - 1
    return value - (1 << (8 * type_.width)) if type_.signed and value > type_.high else value


def _divide(a: int, b: int) -> int:
    if b == 0:
        raise FoldError("division by zero")
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _modulo(a: int, b: int) -> int:
    return a - b * _divide(a, b)


def _left(a: int, b: int) -> int:
    # Bits shifted out are lost, as at run time.
    return wrap(a << (b & 63), INT64 if a < 0 else UINT64)


def _right(a: int, b: int) -> int:
    return a >> (b & 63)


_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "+": int.__add__,
    "-": int.__sub__,
    "*": int.__mul__,
    "/": _divide,
    "%": _modulo,
    "&": int.__and__,
    "|": int.__or__,
    "^": int.__xor__,
    "<<": _left,
    ">>": _right,
}

_ORDERS: dict[str, Callable[[int | bytes, int | bytes], bool]] = {
    "==": eq,
    "!=": ne,
    "<": lt,
    ">": gt,
    "<=": le,
    ">=": ge,
}


def arithmetic(operator: str, left: int, right: int, type_: Int | None) -> int:
    """``left operator right`` of integers of *type_*, or exact for literals (*type_* None).

    Raises:
        FoldError: division by zero, or a result of literals that does not fit 64 bits.
    """
    if type_ is not None:
        # A shift count does not affect the type of the result.
        right = right if operator in ("<<", ">>") else wrap(right, type_)
        return wrap(_ARITHMETIC[operator](wrap(left, type_), right), type_)
    value = _ARITHMETIC[operator](left, right)
    if not INT64_MIN <= value <= UINT64_MAX:
        raise FoldError(f"the result of {left} {operator} {right} does not fit 64 bits")
    return value


def comparison(operator: str, left: int, right: int, type_: Int | None) -> bool:
    """``left operator right`` of integers of *type_*, or by value for literals (*type_* None)."""
    if type_ is not None:
        left, right = wrap(left, type_), wrap(right, type_)
    return _ORDERS[operator](left, right)


def compare_bytes(operator: str, left: bytes, right: bytes) -> bool:
    """Compare two strings up to their first NUL."""
    return _ORDERS[operator](left.split(b"\0", 1)[0], right.split(b"\0", 1)[0])
