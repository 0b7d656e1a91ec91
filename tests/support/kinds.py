"""Kinds of values of the models for random scripts: how they are written and ordered, how they print as text and JSON.

Written from the language reference and ``docs/reference/output.md``, not from pytrace: texts are bytes.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from pytrace.base.control_characters import UNSEEN
from tests.support.generated.choices import Choices

EDGES = (0, 1, -1, 2, 5, 7, 8, 10, 100, 127, 128, 255, 256, -128, -129, 1000, 1023, 1024, 32767, 32768, 65535, 65536,
         2**31 - 1, 2**31, -(2**31), 2**32 - 1, 2**32, 2**53, 2**53 + 1, -(2**53), -(2**53) - 1, 2**62 + 1, 2**63 - 1,
         2**63, -(2**63), 2**64 - 1)  # fmt: skip
PIECES = (
    b"a", b"b", b"ab", b" ", b"  x", b"", b'"q"', b"'", b"\\", b"\n", b"\t", b"\r", b"\x01", b"\x1b[0m", b"\x7f",
    "é".encode(), "日本".encode(), "\U0001f600".encode(), b"\xff", b"\xfe\x80", "\uffff".encode(), b"\xed\xa0\x80",
    "\u2028".encode(), "\x85".encode(), b"\xc3", b", ", b"]: ", b"%d", b"1", b"-1", b"#2", b" #2", b"(1)", b"{", b"/",
    b"0x10", b"true", b"longer than most of the others", 70 * b"long ", 300 * b"x",
)  # fmt: skip
"""Parts of random strings."""


@dataclass(frozen=True)
class Kind:
    """A kind of values; *numeric* ones are what maps are ordered by."""

    @property
    def name(self) -> str:
        """As casts and declarations write it; empty where there is no such form."""
        return ""

    @property
    def numeric(self) -> bool:
        return False

    @property
    def zero(self) -> Any:
        """What a variable or missing map entry of this kind reads as."""
        raise NotImplementedError

    def pick(self, choices: Choices) -> Any:
        """Some value."""
        raise NotImplementedError

    def source(self, value: Any, choices: Choices) -> str:
        """*value* as a script writes it."""
        raise NotImplementedError

    def text(self, value: Any) -> bytes:
        """As ``print`` and ``%s`` show it."""
        raise NotImplementedError

    def json(self, value: Any) -> str:
        """As JSON has it."""
        raise NotImplementedError

    def key(self, value: Any) -> bytes:
        """As part of a key in JSON."""
        return self.text(value)

    def order(self, value: Any) -> Any:
        """What is compared for the order of keys."""
        return value


@dataclass(frozen=True)
class Int(Kind):
    """An integer of 1, 2, 4 or 8 bytes; values are Python integers."""

    width: int
    signed: bool

    @property
    def name(self) -> str:
        return f"{'' if self.signed else 'u'}int{8 * self.width}"

    @property
    def zero(self) -> int:
        return 0

    @property
    def low(self) -> int:
        return -(1 << (8 * self.width - 1)) if self.signed else 0

    @property
    def high(self) -> int:
        return (1 << (8 * self.width - self.signed)) - 1

    def wrap(self, value: int) -> int:
        """*value* cut to the width, and read with the sign."""
        value &= (1 << (8 * self.width)) - 1
        return value - (1 << (8 * self.width)) if value > self.high else value

    @property
    def numeric(self) -> bool:
        return True

    def holds(self, value: int) -> bool:
        return self.low <= value <= self.high

    def pick(self, choices: Choices) -> int:
        if choices.chance(50):
            return self.wrap(choices.pick(EDGES) + choices.below(3))
        return self.wrap(choices.below(6) - 1) if choices.chance(70) else self.wrap(choices.below(1 << 40) - (1 << 39))

    def source(self, value: int, choices: Choices) -> str:
        form = choices.below(4)
        if form == 0 and value != Int(8, True).low:
            return str(value)
        if form == 1 and value >= 0:
            return f"({self.name}){value:#x}"
        fitting = [kind for kind in INTEGERS if kind.holds(value) and self._widens(kind)]
        return f"({choices.pick([self, *fitting]).name}){_literal(value)}"

    def _widens(self, other: Int) -> bool:
        """Whether values of *other* fit a place of this kind."""
        return other.width <= self.width if other.signed == self.signed else self.signed and other.width < self.width

    def text(self, value: int) -> bytes:
        return b"%d" % value

    def json(self, value: int) -> str:
        return number(value)


@dataclass(frozen=True)
class Bool(Kind):
    """Truth values."""

    @property
    def name(self) -> str:
        return "bool"

    @property
    def zero(self) -> bool:
        return False

    def pick(self, choices: Choices) -> bool:
        return bool(choices.below(2))

    def source(self, value: bool, choices: Choices) -> str:
        yes, no = ("true", "(1 == 1)", "!false", "(nsecs > 0)"), ("false", "(1 == 2)", "!true", "(nsecs == 0)")
        return choices.pick(yes if value else no)

    def text(self, value: bool) -> bytes:
        return b"true" if value else b"false"

    def json(self, value: bool) -> str:
        return "true" if value else "false"


@dataclass(frozen=True)
class Enum(Kind):
    """Values of ``enum color``, also those without a name."""

    MEMBERS = {0: "RED", 5: "GREEN", 6: "BLUE"}
    DEFINITION = "enum color { RED, GREEN = 5, BLUE };"

    @property
    def numeric(self) -> bool:
        return True

    @property
    def zero(self) -> int:
        return 0

    def pick(self, choices: Choices) -> int:
        return choices.pick((0, 5, 6, 1, 77))

    def source(self, value: int, choices: Choices) -> str:
        if value not in self.MEMBERS:
            return f"(enum color)(ncpus * 0 + nsecs * 0 + {value})"
        return self.MEMBERS[value] if choices.chance(70) else f"(enum color){value}"

    def text(self, value: int) -> bytes:
        return self.MEMBERS.get(value, str(value)).encode()

    def json(self, value: int) -> str:
        return str(value)


@dataclass(frozen=True)
class Pointer(Kind):
    """Addresses."""

    @property
    def zero(self) -> int:
        return 0

    def pick(self, choices: Choices) -> int:
        return choices.pick((16, 0, 255, 2**32, 2**53 + 1, 2**64 - 1, 0xFFFF888000000000))

    def source(self, value: int, choices: Choices) -> str:
        return f"(int8 *){value:#x}"

    def text(self, value: int) -> bytes:
        return b"0x%x" % value

    def json(self, value: int) -> str:
        return number(value)


@dataclass(frozen=True)
class Text(Kind):
    """Strings, as bytes without NUL; *room* is what they have at least, with the NUL."""

    room: int = 1

    @property
    def zero(self) -> bytes:
        return b""

    def pick(self, choices: Choices) -> bytes:
        return b"".join(choices.pick(PIECES) for _ in range(choices.pick((1, 1, 1, 2, 3, 0))))

    def source(self, value: bytes, choices: Choices) -> str:
        match choices.below(4):
            case 2 if 0 < len(value) < 8:
                at = choices.below(len(value))
                return f"str_concat({quoted(value[:at], choices)}, {quoted(value[at:], choices)})"
            case 3:
                return f'({quoted(b"xyz" + value, choices)} + 3)'
        return quoted(value, choices)

    def text(self, value: bytes) -> bytes:
        return value

    def json(self, value: bytes) -> str:
        return json_text(value)


@dataclass(frozen=True)
class Buffer(Kind):
    """Results of ``buf()``."""

    @property
    def zero(self) -> bytes:
        return b""

    def pick(self, choices: Choices) -> bytes:
        return (TEXT.pick(choices) or b"x")[:30]

    def source(self, value: bytes, choices: Choices) -> str:
        return f"buf({quoted(value, choices)}, {len(value)})"

    def text(self, value: bytes) -> bytes:
        return b"".join(bytes([byte]) if 32 <= byte < 127 else b"\\x%02x" % byte for byte in value)

    def json(self, value: bytes) -> str:
        return "[" + ",".join(str(byte - 256 if byte > 127 else byte) for byte in value) + "]"


@dataclass(frozen=True)
class Inet(Kind):
    """Results of ``ntop()`` of IPv4 addresses; no bytes stand for the one that was never stored."""

    @property
    def zero(self) -> bytes:
        return b""

    def pick(self, choices: Choices) -> bytes:
        return bytes((choices.pick((127, 10, 9, 255)), choices.below(3), 0, choices.below(256)))

    def source(self, value: bytes, choices: Choices) -> str:
        if value and choices.chance(50):
            return f'ntop(pton("{self.text(value).decode()}"))'
        return f"ntop((uint32){int.from_bytes(value, 'little'):#x})"

    def text(self, value: bytes) -> bytes:
        return b"%d.%d.%d.%d" % tuple(value) if value else b""

    def json(self, value: bytes) -> str:
        return f'"{self.text(value).decode()}"'


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

    def pick(self, choices: Choices) -> tuple[int, ...]:
        return tuple(self.element.pick(choices) for _ in range(self.count))

    def source(self, value: tuple[int, ...], choices: Choices) -> str:
        size = self.element.width
        data = b"".join((item & ((1 << (8 * size)) - 1)).to_bytes(size, "little") for item in value)
        whole = int.from_bytes(data, "little")
        return f"({self.name})(uint{8 * len(data)}){whole}"

    def text(self, value: tuple[int, ...]) -> bytes:
        return b"[" + b",".join(b"%d" % item for item in value) + b"]"

    def json(self, value: tuple[int, ...]) -> str:
        return "[" + ",".join(map(number, value)) + "]"


@dataclass(frozen=True)
class Group(Kind):
    """Tuples, and records when there are names."""

    members: tuple[Kind, ...]
    names: tuple[str, ...] = ()

    @property
    def zero(self) -> tuple[Any, ...]:
        return tuple(member.zero for member in self.members)

    def pick(self, choices: Choices) -> tuple[Any, ...]:
        return tuple(member.pick(choices) for member in self.members)

    def source(self, value: tuple[Any, ...], choices: Choices) -> str:
        parts = [member.source(item, choices) for member, item in zip(self.members, value, strict=True)]
        if self.names:
            parts = [f"{name}={part}" for name, part in zip(self.names, parts, strict=True)]
        return f"({', '.join(parts)}{',' if len(parts) == 1 and not self.names else ''})"

    def text(self, value: tuple[Any, ...]) -> bytes:
        parts = [member.text(item) for member, item in zip(self.members, value, strict=True)]
        if not self.names:
            return b"(" + b", ".join(parts) + b")"
        found = zip(self.names, parts, strict=True)
        return b"{ " + b", ".join(b".%s = %s" % (name.encode(), part) for name, part in found) + b" }"

    def json(self, value: tuple[Any, ...]) -> str:
        parts = [member.json(item) for member, item in zip(self.members, value, strict=True)]
        if not self.names:
            return "[" + ",".join(parts) + "]"
        return "{" + ", ".join(f'"{name}": {part}' for name, part in zip(self.names, parts, strict=True)) + "}"

    def key(self, value: tuple[Any, ...]) -> bytes:
        parts = [member.key(item) for member, item in zip(self.members, value, strict=True)]
        if not self.names:
            return b"(" + b",".join(parts) + b")"
        found = zip(self.names, parts, strict=True)
        return b"{" + b",".join(b".%s=%s" % (name.encode(), part) for name, part in found) + b"}"

    def order(self, value: tuple[Any, ...]) -> Any:
        return tuple(member.order(item) for member, item in zip(self.members, value, strict=True))


@dataclass(frozen=True)
class Struct(Group):
    """Values of ``struct pair``, which is laid over eight bytes."""

    DEFINITION = "struct pair { short a; unsigned char b; unsigned low : 3, high : 5; char name[4]; };"

    def pick(self, choices: Choices) -> tuple[Any, ...]:
        name = choices.pick((b"", b"a", b"abc", b"abcd", b"\xff\n", b"\xc3\xa9 \x01"))
        numbers = self.members[0].pick(choices), self.members[1].pick(choices), choices.below(8), choices.below(32)
        return (*numbers, name)

    def source(self, value: tuple[Any, ...], choices: Choices) -> str:
        assert value == self.zero, "others need a variable"
        return "*(struct pair *)0"

    @staticmethod
    def word(value: tuple[Any, ...]) -> int:
        """The eight bytes as an integer."""
        a, b, low, high, name = value
        data = (a & 0xFFFF).to_bytes(2, "little") + bytes((b, low | high << 3)) + name.ljust(4, b"\0")
        return int.from_bytes(data, "little")


BOOL, ENUM, POINTER, TEXT, BUFFER, INET = Bool(), Enum(), Pointer(), Text(), Buffer(), Inet()
INTEGERS = tuple(Int(width, signed) for width in (8, 4, 2, 1) for signed in (True, False))
INT64, UINT64 = INTEGERS[:2]
INT8, UINT8 = Int(1, True), Int(1, False)
PAIR = Struct((Int(2, True), Int(1, False), Int(1, False), Int(1, False), TEXT), ("a", "b", "low", "high", "name"))
ROWS = (Row(Int(1, True), 4), Row(Int(1, False), 2), Row(Int(2, True), 2), Row(Int(4, False), 2))


def scalar(choices: Choices) -> Kind:
    """A kind without members."""
    if choices.chance(45):
        return choices.pick(INTEGERS)
    return choices.pick((TEXT, TEXT, BOOL, ENUM, POINTER))


def some(choices: Choices, depth: int = 2) -> Kind:
    """Any kind that can be a key and a value."""
    match choices.below(12):
        case 9 if depth:
            return Group(tuple(some(choices, depth - 1) for _ in range(1 + choices.below(3))))
        case 10 if depth:
            names = ("a", "b", "name", "x_1")
            count = 1 + choices.below(3)
            return Group(tuple(some(choices, depth - 1) for _ in range(count)), names[:count])
        case 11:
            return choices.pick(ROWS)
        case 8:
            return INET
    return scalar(choices)


def joined(first: Int, second: Int) -> Int:
    """The integer kind that holds values of both; int64 where none does."""
    if first.signed == second.signed:
        return first if first.width >= second.width else second
    signed, unsigned = (first, second) if first.signed else (second, first)
    return Int(min(8, max(signed.width, 2 * unsigned.width)), True)


def as_json(kind: Kind, value: Any) -> Any:
    """*value* as a reader of JSON gets it."""
    return json.loads(kind.json(value))


def _literal(value: int) -> str:
    # The least integer has no literal of its own.
    return f"({value + 1} - 1)" if value == INT64.low else str(value)


def number(value: int) -> str:
    """An integer in JSON: text when a double does not have it."""
    return str(value) if int(float(value)) == value else f'"{value}"'


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


_UNSEEN = re.compile(f"[{UNSEEN}]")


def json_text(value: bytes) -> str:
    """A string in JSON, without characters that control or are not seen.

    A byte that is not UTF-8 is U+FFFF, ``ff`` and two hex digits.
    """
    parts = []
    for char in value.decode("utf-8", "surrogateescape"):
        if "\udc80" <= char <= "\udcff":
            parts.append(f"\\uffffff{ord(char) - 0xDC00:02x}")
        elif char == "\uffff":
            parts.append("".join(f"\\uffffff{byte:02x}" for byte in char.encode()))
        elif _UNSEEN.fullmatch(char):
            units = char.encode("utf-16-be").hex()
            parts.append("".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)))
        else:
            control = char < " " or "\x7f" <= char <= "\x9f"
            parts.append(_ESCAPES.get(char) or (f"\\u{ord(char):04x}" if control else char))
    return f'"{"".join(parts)}"'


_IN_SCRIPT = {ord('"'): '\\"', ord("\\"): "\\\\", ord("\n"): "\\n", ord("\t"): "\\t", ord("\r"): "\\r"}


def quoted(value: bytes, choices: Choices | None = None) -> str:
    """A string literal of a script."""
    try:
        plain = value.decode()
    except UnicodeDecodeError:
        plain = ""
    if plain and plain.isprintable() and '"' not in plain and "\\" not in plain:
        return f'"{plain}"'
    octal = choices is not None and choices.chance(30)
    parts = []
    for byte in value:
        escaped = f"\\{byte:03o}" if octal else f"\\x{byte:02x}"
        parts.append(_IN_SCRIPT.get(byte) or (chr(byte) if 32 <= byte < 127 else escaped))
    return _separated(parts)


def _separated(parts: list[str]) -> str:
    """The parts of a literal; a hexadecimal digit behind ``\\xNN`` is written as an escape, too."""
    found = ""
    for part in parts:
        follows = found[-4:-2] == "\\x" and part in "0123456789abcdefABCDEF"
        found += f"\\x{ord(part):02x}" if follows and len(part) == 1 else part
    return f'"{found}"'
