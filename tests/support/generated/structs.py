"""Random C structs and unions, laid out as the System V ABI does."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from tests.support.generated.choices import Choices
from tests.support.kinds import INTEGERS, Int, Kind, Row

C_NAMES = {1: "char", 2: "short", 4: "int", 8: "long long"}


@dataclass(frozen=True)
class Member:
    """A member: an integer, an array of integers or a struct; *bits* is the width of a bit-field, else 0."""

    name: str
    kind: Kind
    offset: int
    bits: int = 0
    shift: int = 0
    """Bits before a bit-field, from *offset* on."""

    def read(self, data: bytes) -> Any:
        """The member's value in a struct's bytes."""
        if self.bits and isinstance(self.kind, Int):
            whole = int.from_bytes(data[self.offset :], "little") >> self.shift
            value = whole & ((1 << self.bits) - 1)
            return value - (1 << self.bits) if self.kind.signed and value >> (self.bits - 1) else value
        return from_bytes(self.kind, data[self.offset :])


@dataclass(frozen=True)
class Struct(Kind):
    """A struct or union; its values are bytes."""

    keyword: str
    tag: str
    members: tuple[Member, ...]
    size: int
    align: int
    body: str = field(compare=False)
    packed: bool = False

    @property
    def definition(self) -> str:
        """Its definition in C, without a semicolon."""
        return f"{self.name} {self.body}{' __attribute__((packed))' if self.packed else ''}"

    def unnamed(self) -> str:
        """The type in C, without its tag."""
        return f"{self.keyword} {'__attribute__((packed)) ' if self.packed else ''}{self.body}"

    @property
    def name(self) -> str:
        return f"{self.keyword} {self.tag}"

    @property
    def zero(self) -> bytes:
        return bytes(self.size)

    def json(self, value: bytes) -> str:
        members = (f'"{member.name}": {member.kind.json(member.read(value))}' for member in self.fields())
        return f"{{{', '.join(members)}}}"

    def fields(self) -> list[Member]:
        """The members by name: those of anonymous ones stand in for these."""
        found = []
        for member in self.members:
            if member.name or not isinstance(member.kind, Struct):
                found.append(member)
                continue
            found += [replace(inner, offset=member.offset + inner.offset) for inner in member.kind.fields()]
        return found


@dataclass(frozen=True)
class Pointee(Kind):
    """Pointers to *struct*, which lies over the 64-bit words of the variable or map *holder*."""

    struct: Struct
    holder: str

    def data(self, words: tuple[int, ...]) -> bytes:
        """The bytes that the pointer points to."""
        return b"".join(word.to_bytes(8, "little") for word in words)[: self.struct.size]


def from_bytes(kind: Kind, data: bytes) -> Any:
    """The value that starts at *data*."""
    match kind:
        case Int():
            return int.from_bytes(data[: kind.width], "little", signed=kind.signed)
        case Row(element, count):
            return tuple(from_bytes(element, data[at * element.width :]) for at in range(count))
        case Struct():
            return bytes(data[: kind.size])
    raise TypeError(kind)


class Structs:
    """Makes structs."""

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self.count = 0

    def make(self, nesting: int = 2) -> Struct:
        """A new struct or union."""
        choices = self.choices
        union, packed = choices.chance(20), choices.chance(25)
        members: list[Member] = []
        lines, at, align = [], 0, 1
        for _ in range(1 + choices.below(5)):
            start = 0 if union else at
            member, line, of = self._member(start, packed, nesting)
            members.append(member)
            lines.append(line)
            align = max(align, of)
            size = member.kind.size if isinstance(member.kind, Struct) else _size(member.kind)
            end = 8 * member.offset + (member.shift + member.bits if member.bits else 8 * size)
            at = max(at, end) if union else end
        align = 1 if packed else align
        size = (at + 8 * align - 1) // (8 * align) * align
        self.count += 1
        keyword, tag = "union" if union else "struct", f"S{self.count}"
        return Struct(keyword, tag, tuple(members), size, align, f"{{ {' '.join(lines)} }}", packed)

    def _member(self, at: int, packed: bool, nesting: int) -> tuple[Member, str, int]:
        """A member at bit *at*: it, its line, its alignment."""
        choices = self.choices
        self.count += 1
        name, form = f"x{self.count}", choices.below(6)
        if form == 5 and nesting:
            inner = self.make(nesting - 1)
            anonymous = choices.chance(40)
            offset = _up(at, 8 * (1 if packed else inner.align)) // 8
            line = f"{inner.unnamed()} {'' if anonymous else name};"
            return Member("" if anonymous else name, inner, offset), line, inner.align
        kind = choices.pick(INTEGERS)
        of = 1 if packed else kind.width
        written = ("" if kind.signed else "unsigned ") + C_NAMES[kind.width]
        if kind.signed and kind.width == 1:
            written = "signed char"
        if form in (3, 4):
            bits = 1 + choices.below(8 * kind.width)
            if not packed and at % (8 * kind.width) + bits > 8 * kind.width:
                at = _up(at, 8 * kind.width)
            return Member(name, kind, at // 8, bits, at % 8), f"{written} {name} : {bits};", of
        offset = _up(at, 8 * of) // 8
        if form == 2 and not (kind.signed and kind.width == 1):
            count = 1 + choices.below(4)
            return Member(name, Row(kind, count), offset), f"{written} {name}[{count}];", of
        return Member(name, kind, offset), f"{written} {name};", of


def _size(kind: Kind) -> int:
    if isinstance(kind, Row):
        return kind.element.width * kind.count
    assert isinstance(kind, Int)
    return kind.width


def _up(at: int, step: int) -> int:
    return (at + step - 1) // step * step
