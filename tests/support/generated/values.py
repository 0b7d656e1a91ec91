"""Kinds of values, as the language reference defines them, and how their values print as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.support.numbers import Integers


@dataclass(frozen=True)
class Kind:
    """A type of the language."""

    @property
    def name(self) -> str:
        """As casts and declarations write it; empty where there is no such form."""
        return ""

    @property
    def zero(self) -> Any:
        """What a variable or missing map entry of this kind reads as."""
        raise NotImplementedError

    def shown(self, value: Any) -> Any:
        """A value of a kind that this module does not know, as JSON prints it."""
        raise NotImplementedError


@dataclass(frozen=True)
class Int(Integers, Kind):
    """An integer of 1, 2, 4 or 8 bytes; its values are Python integers."""


@dataclass(frozen=True)
class Bool(Kind):
    """Truth values."""

    @property
    def name(self) -> str:
        return "bool"

    @property
    def zero(self) -> bool:
        return False


@dataclass(frozen=True)
class Text(Kind):
    """Strings of at least *room* bytes with the NUL; values are bytes."""

    room: int = 1

    @property
    def zero(self) -> bytes:
        return b""


@dataclass(frozen=True)
class Group(Kind):
    """Tuples, and records when there are names; values are Python tuples."""

    members: tuple[Kind, ...]
    names: tuple[str, ...] = ()

    @property
    def zero(self) -> tuple[Any, ...]:
        return tuple(member.zero for member in self.members)


@dataclass(frozen=True)
class Row(Kind):
    """Arrays of integers; values are Python tuples."""

    element: Int
    count: int

    @property
    def name(self) -> str:
        return f"{self.element.name}[{self.count}]"

    @property
    def zero(self) -> tuple[int, ...]:
        return (0,) * self.count


BOOL = Bool()
TEXT = Text()
INTEGERS = tuple(Int(width, signed) for width in (8, 4, 2, 1) for signed in (True, False))
INT64, UINT64 = INTEGERS[:2]
INT8, UINT8 = Int(1, True), Int(1, False)


def joined(first: Int, second: Int) -> Int:
    """The integer kind that holds values of both; int64 where none does."""
    if first.signed == second.signed:
        return first if first.width >= second.width else second
    signed, unsigned = (first, second) if first.signed else (second, first)
    return Int(min(8, max(signed.width, 2 * unsigned.width)), True)


def as_json(kind: Kind, value: Any) -> Any:
    """*value* as JSON prints it: large integers are text."""
    match kind:
        case Int():
            return value if abs(value) < 1 << 53 else str(value)
        case Bool():
            return bool(value)
        case Text():
            return str(value.decode("latin-1"))
        case Group(members, ()):
            return [as_json(member, item) for member, item in zip(members, value, strict=True)]
        case Group(members, names):
            found = zip(names, members, value, strict=True)
            return {name: as_json(member, item) for name, member, item in found}
        case Row(element, _):
            return [as_json(element, item) for item in value]
    return kind.shown(value)


def as_text(kind: Kind, value: Any, outermost: bool = False) -> str:
    """*value* as printf's ``%s`` shows it; a key of several parts is *outermost* and has no parentheses."""
    match kind:
        case Int():
            return str(value)
        case Bool():
            return "true" if value else "false"
        case Text():
            return str(value.decode("latin-1"))
        case Group(members, ()):
            parts = [as_text(member, item) for member, item in zip(members, value, strict=True)]
            return ",".join(parts) if outermost else f"({', '.join(parts)})"
        case Group(members, names):
            found = zip(names, members, value, strict=True)
            return "{ " + ", ".join(f".{name} = {as_text(member, item)}" for name, member, item in found) + " }"
        case Row(element, _):
            return "[" + ",".join(as_text(element, item) for item in value) + "]"
    raise TypeError(kind)
