"""Makes small BTF objects by hand, so that every form of type can be tested on every machine."""

from __future__ import annotations

import struct

from pytrace.runtime.binaries.btf_types import Kind


class BtfBuilder:
    """Collects types; ids count from *first* (1, or the end of a base)."""

    def __init__(self, first: int = 1, first_string: int = 0) -> None:
        self._types = bytearray()
        self._strings = bytearray(b"\0" if first_string == 0 else b"")
        self._first_string = first_string
        self._next = first
        self._known: dict[str, int] = {}

    def string(self, text: str) -> int:
        if not text:
            return 0
        if text not in self._known:
            self._known[text] = self._first_string + len(self._strings)
            self._strings += text.encode() + b"\0"
        return self._known[text]

    def add(self, kind: Kind, name: str = "", last: int = 0, *words: int, count: int = 0, flag: bool = False) -> int:
        """One type; *last* is its size or type, *words* what follows."""
        info = int(flag) << 31 | kind << 24 | count
        self._types += struct.pack("=III", self.string(name), info, last)
        self._types += b"".join(struct.pack("=I", word & 0xFFFFFFFF) for word in words)
        self._next += 1
        return self._next - 1

    def integer(self, name: str, size: int, encoding: int = 0, bits: int = 0) -> int:
        return self.add(Kind.INT, name, size, encoding << 24 | (bits or 8 * size))

    def pointer(self, target: int) -> int:
        return self.add(Kind.PTR, "", target)

    def array(self, element: int, count: int) -> int:
        return self.add(Kind.ARRAY, "", 0, element, element, count)

    def struct(
        self, name: str, size: int, *members: tuple[str, int, int] | tuple[str, int, int, int], union: bool = False
    ) -> int:
        """Members are (name, type, bit offset[, bit size])."""
        flag = any(len(member) == 4 for member in members)
        words: list[int] = []
        for member in members:
            bits = member[3] if len(member) == 4 else 0
            words += [self.string(member[0]), member[1], bits << 24 | member[2]]
        return self.add(Kind.UNION if union else Kind.STRUCT, name, size, *words, count=len(members), flag=flag)

    def enum(self, name: str, size: int, *members: tuple[str, int], signed: bool = False) -> int:
        words = [part for text, value in members for part in (self.string(text), value)]
        return self.add(Kind.ENUM, name, size, *words, count=len(members), flag=signed)

    def enum64(self, name: str, *members: tuple[str, int], signed: bool = False) -> int:
        words = [part for text, value in members for part in (self.string(text), value & 0xFFFFFFFF, value >> 32)]
        return self.add(Kind.ENUM64, name, 8, *words, count=len(members), flag=signed)

    def prototype(self, result: int, *parameters: tuple[str, int]) -> int:
        words = [part for name, kind in parameters for part in (self.string(name), kind)]
        return self.add(Kind.FUNC_PROTO, "", result, *words, count=len(parameters))

    def function(self, name: str, proto: int) -> int:
        return self.add(Kind.FUNC, name, proto)

    def build(self) -> bytes:
        types, strings = bytes(self._types), bytes(self._strings)
        return struct.pack("=HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(types), len(types), len(strings)) + types + strings


def small_types() -> bytes:
    """One of each kind of type."""
    builder = BtfBuilder()
    integer = builder.integer("int", 4, 1)
    letter = builder.integer("char", 1)
    node = builder.struct("node", 24, ("next", 5, 0), ("value", integer, 64), ("bits", integer, 96, 3))
    builder.array(letter, 16)
    builder.pointer(node)
    builder.enum("state", 4, ("A", 0), ("B", -1))
    builder.enum64("wide", ("C", 1 << 40))
    builder.add(Kind.TYPEDEF, "u32", integer)
    builder.add(Kind.FWD, "absent")
    builder.add(Kind.FLOAT, "double", 8)
    builder.struct("either", 8, ("a", integer, 0), ("", node, 0), union=True)
    builder.function("work", builder.prototype(integer, ("p", 5), ("n", integer)))
    return builder.build()
