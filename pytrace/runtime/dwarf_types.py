"""DWARF types as value types of the language.

Structs load their members when they are looked at; pointers point into user memory.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from pytrace.runtime.btf_types import place_field
from pytrace.runtime.dwarf_constants import At, Tag
from pytrace.runtime.dwarf_forms import DwarfError, uleb128
from pytrace.runtime.dwarf_units import Die, Unit
from pytrace.types import (
    BOOL,
    INT8,
    INT64,
    UINT8,
    VOID,
    AddressSpace,
    Array,
    Enum,
    Field,
    Int,
    Pointer,
    String,
    Struct,
    Type,
)

_SIGNED_ENCODINGS = frozenset((0x05, 0x06, 0x0D))
"""``DW_ATE_signed``, ``DW_ATE_signed_char``, ``DW_ATE_signed_fixed``."""
_BOOLEAN, _FLOAT_ENCODINGS = 0x02, frozenset((0x03, 0x04, 0x09, 0x0F))
_CHARACTERS = frozenset((0x06, 0x08, 0x10))
"""``DW_ATE_signed_char``, ``DW_ATE_unsigned_char``, ``DW_ATE_UTF``."""
_ALIASES = frozenset((Tag.TYPEDEF, Tag.CONST_TYPE, Tag.VOLATILE_TYPE))
_MOST_LINKS = 64
"""Links from an entry to what it is an instance or another name of; compilers make a handful of them at most."""
_OP_PLUS_UCONST = b"\x23"


class DwarfTypes:
    """Makes :mod:`pytrace.types` of the type DIEs of one file; *origin* names the file in struct identities.

    *reading* is entered where members of structs are read later on, to name the file in what may be wrong with it.
    """

    def __init__(self, origin: str, reading: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self._origin = origin
        self._reading = reading
        self._made: dict[tuple[Unit, int], Type] = {}
        same, pointer, struct = self._same, self._pointer, self._struct
        self._rows: dict[int, Callable[[Die], Type]] = {
            Tag.BASE_TYPE: self._base,
            Tag.POINTER_TYPE: pointer,
            Tag.REFERENCE_TYPE: pointer,
            Tag.RVALUE_REFERENCE_TYPE: pointer,
            Tag.STRUCTURE_TYPE: struct,
            Tag.CLASS_TYPE: struct,
            Tag.UNION_TYPE: struct,
            Tag.ENUMERATION_TYPE: self._enum,
            Tag.ARRAY_TYPE: self._array,
            Tag.TYPEDEF: same,
            Tag.CONST_TYPE: same,
            Tag.VOLATILE_TYPE: same,
            Tag.RESTRICT_TYPE: same,
            Tag.ATOMIC_TYPE: same,
            Tag.SUBROUTINE_TYPE: lambda _: VOID,
            Tag.UNSPECIFIED_TYPE: lambda _: Pointer(VOID, AddressSpace.USER),
            Tag.PTR_TO_MEMBER_TYPE: lambda _: INT64,
        }

    def of(self, die: Die) -> Type:
        """The type that a DIE's ``DW_AT_type`` refers to; void without one."""
        return self.type(die.follow(At.TYPE)) if At.TYPE in die else VOID

    def type(self, die: Die) -> Type:
        """The type that a type DIE describes; kinds without a counterpart become bytes."""
        die = definition(die)
        key = die.unit, die.offset
        made = self._made.get(key)
        if made is None:
            row = self._rows.get(die.tag)
            made = row(die) if row is not None else Array(UINT8, die.number(At.BYTE_SIZE))
            self._made[key] = made
        return made

    def _same(self, die: Die) -> Type:
        return self.of(die)

    def _pointer(self, die: Die) -> Type:
        return Pointer(self.of(die), AddressSpace.USER)

    def _base(self, die: Die) -> Type:
        size, encoding = die.number(At.BYTE_SIZE), die.number(At.ENCODING)
        if encoding == _BOOLEAN and size == 1:
            return BOOL
        if encoding in _FLOAT_ENCODINGS or size not in (1, 2, 4, 8, 16):
            return Array(UINT8, size)
        return INT8 if die.text(At.NAME) == "char" else Int(size, encoding in _SIGNED_ENCODINGS)

    def _enum(self, die: Die) -> Type:
        members = tuple(
            (child.text(At.NAME), child.number(At.CONST_VALUE))
            for child in die.children()
            if child.tag == Tag.ENUMERATOR
        )
        size = die.number(At.BYTE_SIZE) or 4
        return Enum(die.text(At.NAME), size, any(value < 0 for _, value in members), members)

    def _array(self, die: Die) -> Type:
        counts = [
            child.number(At.UPPER_BOUND, child.number(At.COUNT) - 1) + 1
            for child in die.children()
            if child.tag == Tag.SUBRANGE_TYPE
        ]
        made = self.of(die)
        element = plain(die.follow(At.TYPE))
        if (
            len(counts) == 1
            and counts[0]
            and element.tag == Tag.BASE_TYPE
            and element.text(At.NAME) in ("char", "signed char")
        ):
            return String(counts[0])
        for count in reversed(counts):
            made = Array(made, count)
        return made

    def _struct(self, die: Die) -> Type:
        kind = "union" if die.tag == Tag.UNION_TYPE else "struct"
        size, name = die.number(At.BYTE_SIZE), die.text(At.NAME)
        origin = self._origin if name else f"{self._origin}#{die.unit.label}+{die.offset}"
        return Struct(kind, name, size, lambda: self._fields(die, size), origin=origin)

    def _fields(self, die: Die, size: int) -> tuple[Field, ...]:
        found = []
        with self._reading():
            for child in die.children():
                if child.tag == Tag.INHERITANCE:
                    # Members of a base class are found as those of an anonymous member are.
                    found.append(Field("", self.of(child), _location(child)))
                elif child.tag == Tag.MEMBER and At.EXTERNAL not in child:
                    found.append(self._member(child, size))
        return tuple(found)

    def _member(self, die: Die, size: int) -> Field:
        kind, bits = self.of(die), die.number(At.BIT_SIZE)
        if bits and not kind.size:
            raise DwarfError("a bit field has a type without a size")
        start = 8 * _location(die)
        if bits and At.DATA_BIT_OFFSET in die:
            start = die.number(At.DATA_BIT_OFFSET)
        elif bits and At.BIT_OFFSET in die:
            # DWARF 2 and 3 count from the most significant bit of the storage unit.
            unit = die.number(At.BYTE_SIZE) or kind.size
            start += 8 * unit - die.number(At.BIT_OFFSET) - bits
        return place_field(die.text(At.NAME), kind, start, bits, size)


_WORDS: dict[int, str] = {
    Tag.STRUCTURE_TYPE: "struct ",
    Tag.UNION_TYPE: "union ",
    Tag.ENUMERATION_TYPE: "enum ",
}
_BEHIND: dict[int, str] = {Tag.POINTER_TYPE: "*", Tag.REFERENCE_TYPE: "&", Tag.RVALUE_REFERENCE_TYPE: "&&"}
_BEFORE: dict[int, str] = {Tag.CONST_TYPE: "const ", Tag.VOLATILE_TYPE: "volatile "}


def described(die: Die, attribute: At) -> Die:
    """The entry that carries an attribute: itself, or what it is an instance or the definition of."""
    for _ in range(_MOST_LINKS):
        link = next((key for key in (At.ABSTRACT_ORIGIN, At.SPECIFICATION) if key in die), None)
        if attribute in die or link is None:
            return die
        die = die.follow(link)
    raise DwarfError("entries describe each other in a circle")


def definition(die: Die) -> Die:
    """The entry that describes a type: the one in a type unit, where *die* only stands for it."""
    return die.follow(At.SIGNATURE) if At.SIGNATURE in die else die


def plain(die: Die) -> Die:
    """The type behind names and qualifiers."""
    for _ in range(_MOST_LINKS):
        die = definition(die)
        if die.tag not in _ALIASES or At.TYPE not in die:
            return die
        die = die.follow(At.TYPE)
    raise DwarfError("a type is an alias of itself")


def _location(die: Die) -> int:
    """Distance of a member from the start of its struct."""
    _, value = die.values.get(At.DATA_MEMBER_LOCATION, (0, 0))
    if isinstance(value, bytes):
        # DWARF 2 has an expression; that of a plain member adds a constant. Virtual base classes have no fixed place.
        return uleb128(value, 1)[0] if value[:1] == _OP_PLUS_UCONST else 0
    return int(value)


def type_text(die: Die) -> str:
    """The type of what a DIE describes, as C text: ``const char*``."""
    if At.TYPE not in die:
        return "void"
    target = definition(die.follow(At.TYPE))
    if target.tag in _BEFORE:
        inner = type_text(target)
        # The qualifier of a pointer stands behind the star.
        return f"{inner} {_BEFORE[target.tag].strip()}" if inner.endswith("*") else _BEFORE[target.tag] + inner
    if target.tag in _BEHIND:
        return type_text(target) + _BEHIND[target.tag]
    if target.tag == Tag.ARRAY_TYPE:
        return f"{type_text(target)}[]"
    if target.tag == Tag.SUBROUTINE_TYPE:
        return f"{type_text(target)} ()"
    return _WORDS.get(target.tag, "") + (target.text(At.NAME) or "{…}")
