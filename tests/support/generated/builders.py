"""Expressions with their text and their value, made of smaller ones.

Values follow the language reference and ``docs/start/differences.md``, not the compiler: arithmetic has 64 bits, is
signed when an operand is (and always for ``-``), ``~`` is unsigned, division truncates as in C, and by zero gives 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support.kinds import BOOL, INT64, UINT64, Bool, Int, Kind, Text
from tests.support.numbers import divided

LEVELS = ("?", "||", "&&", "|", "^", "&", "==", "<", "<<", "+", "*", "unary", "postfix")
"""Binding strength of operators, loosest first."""

ARITHMETIC = {"+": "+", "-": "+", "*": "*", "/": "*", "%": "*", "&": "&", "|": "|", "^": "^", "<<": "<<", ">>": "<<"}
ORDER = ("<", ">", "<=", ">=")


@dataclass
class Frame:
    """A running function: its variables, and what it shares with all others."""

    maps: dict[str, Any]
    lines: list[Any]
    variables: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Expr:
    """An expression: *literal* is the value of a bare integer literal."""

    kind: Kind
    text: str
    run: Callable[[Frame], Any]
    level: str = "postfix"
    literal: int | None = None
    constant: bool = False

    def within(self, level: str, *, tighter: bool = False) -> str:
        """The text as operand of an operator of *level*, or of one that binds *tighter*."""
        mine, wanted = LEVELS.index(self.level), LEVELS.index(level) + tighter
        return self.text if mine >= wanted else f"({self.text})"


@dataclass
class Variable:
    """A variable in scope; *fixed* ones were declared with a type."""

    name: str
    kind: Kind
    fixed: bool = False
    frozen: bool = False
    """Not to be assigned: counters of loops."""


@dataclass
class Map:
    """A map of the script: without key when *key* is None."""

    name: str
    key: Kind | None
    value: Kind
    aggregate: str = ""
    busy: bool = False
    """A loop goes over it."""


@dataclass
class Function:
    """A ``fn`` or macro that returns an integer."""

    name: str
    parameters: tuple[Int, ...]
    result: Int
    run: Callable[[Frame, list[int]], int]
    macro: bool = False


def quotient(a: int, b: int) -> int:
    """C's quotient; 1 for a division by zero."""
    return divided(a, b) if b else 1


def remainder(a: int, b: int) -> int:
    """C's remainder; 1 for a division by zero."""
    return a - b * divided(a, b) if b else 1


COMPUTE: dict[str, Callable[[int, int], int]] = {
    "+": int.__add__, "-": int.__sub__, "*": int.__mul__, "/": quotient, "%": remainder, "&": int.__and__,
    "|": int.__or__, "^": int.__xor__, "<<": lambda a, b: a << (b & 63), ">>": lambda a, b: a >> (b & 63),
}  # fmt: skip
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b, ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b, ">=": lambda a, b: a >= b,
}  # fmt: skip


def carrier(left: Expr, right: Expr, operator: str = "+") -> Int:
    """The 64-bit kind in which two integers meet."""
    if operator == "-":
        return INT64
    if operator in ("<<", ">>"):
        right = left
    return INT64 if any(_signed(side) for side in (left, right)) else UINT64


def _signed(side: Expr) -> bool:
    """Literals have no sign of their own unless they are negative."""
    if side.literal is not None:
        return side.literal < 0
    return isinstance(side.kind, Int) and side.kind.signed


def binary(operator: str, left: Expr, right: Expr) -> Expr:
    """Integer arithmetic."""
    kind = carrier(left, right, operator)
    compute = COMPUTE[operator]

    def run(frame: Frame) -> int:
        a, b = kind.wrap(left.run(frame)), right.run(frame)
        return kind.wrap(compute(a, b if operator in ("<<", ">>") else kind.wrap(b)))

    level = ARITHMETIC[operator]
    text = f"{left.within(level)} {operator} {right.within(level, tighter=True)}"
    return Expr(kind, text, run, level, constant=left.constant and right.constant)


def compared(operator: str, left: Expr, right: Expr) -> Expr:
    """Comparison of integers by their 64 bits, or of other values of the same kind."""
    compare = COMPARE[operator]
    level = "<" if operator in ORDER else "=="
    text = f"{left.within(level, tighter=True)} {operator} {right.within(level, tighter=True)}"
    if isinstance(left.kind, Int) and isinstance(right.kind, Int):
        kind = carrier(left, right)

        def run(frame: Frame) -> bool:
            return compare(kind.wrap(left.run(frame)), kind.wrap(right.run(frame)))

        return Expr(BOOL, text, run, level, constant=left.constant and right.constant)
    return Expr(BOOL, text, lambda frame: compare(left.run(frame), right.run(frame)), level)


def cast(kind: Int | Bool, operand: Expr) -> Expr:
    """``(kind)operand`` of an integer or truth value."""
    convert = bool if isinstance(kind, Bool) else kind.wrap
    text = f"({kind.name}){operand.within('unary')}"
    return Expr(kind, text, lambda frame: convert(operand.run(frame)), "unary", constant=operand.constant)


def literal(value: int) -> Expr:
    """A bare integer."""
    level = "unary" if value < 0 else "postfix"
    kind = INT64 if value <= INT64.high else UINT64
    return Expr(kind, str(value), lambda _: value, level, literal=value, constant=True)


def quoted(text: str) -> Expr:
    """A string literal."""
    value = text.encode().decode("unicode_escape").encode("latin-1")
    return Expr(Text(len(value) + 1), f'"{text}"', lambda _: value, constant=True)


def chosen(condition: Expr, then: Expr, other: Expr, kind: Kind, form: int) -> Expr:
    """A ternary, or an ``if`` that gives a value."""

    def run(frame: Frame) -> Any:
        return then.run(frame) if condition.run(frame) else other.run(frame)

    if form:
        text = f"(if ({condition.text}) {{ {then.text} }} else {{ {other.text} }})"
        return Expr(kind, text, run)
    text = f"{condition.within('||')} ? {then.within('||')} : {other.within('?')}"
    return Expr(kind, text, run, "?")


def same(one: Kind, other: Kind) -> bool:
    """Whether values of both kinds fit the same places."""
    return one == other or (isinstance(one, Text) and isinstance(other, Text))


def _total(values: tuple[int, ...]) -> int:
    """The sum in 64 bits: of the sign of the values, which are all not negative when they are unsigned."""
    return INT64.wrap(sum(values)) if any(value < 0 for value in values) else UINT64.wrap(sum(values))


READ: dict[str, Callable[[Any], int]] = {
    "count": len,
    "sum": sum,
    "min": lambda values: min(values, default=0),
    "max": lambda values: max(values, default=0),
    "avg": lambda values: divided(_total(values), len(values)) if values else 0,
}
"""What an aggregation of those values reads as."""
