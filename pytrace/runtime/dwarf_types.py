"""DWARF types as value types of the language.

Structs load their members when they are looked at; pointers point into user memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytrace.runtime.btf_types import place_field
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


class DwarfTypes:
    """Makes :mod:`pytrace.types` of the type DIEs of one file; *origin* names the file in struct identities."""

    def __init__(self, origin: str) -> None:
        self._origin = origin
        self._made: dict[int, Type] = {}
        same, pointer, struct = self._same, self._pointer, self._struct
        self._rows: dict[str, Callable[[Any], Type]] = {
            "DW_TAG_base_type": self._base,
            "DW_TAG_pointer_type": pointer,
            "DW_TAG_reference_type": pointer,
            "DW_TAG_rvalue_reference_type": pointer,
            "DW_TAG_structure_type": struct,
            "DW_TAG_class_type": struct,
            "DW_TAG_union_type": struct,
            "DW_TAG_enumeration_type": self._enum,
            "DW_TAG_array_type": self._array,
            "DW_TAG_typedef": same,
            "DW_TAG_const_type": same,
            "DW_TAG_volatile_type": same,
            "DW_TAG_restrict_type": same,
            "DW_TAG_atomic_type": same,
            "DW_TAG_subroutine_type": lambda _: VOID,
            "DW_TAG_unspecified_type": lambda _: Pointer(VOID, AddressSpace.USER),
            "DW_TAG_ptr_to_member_type": lambda _: INT64,
        }

    def of(self, die: Any) -> Type:
        """The type that a DIE's ``DW_AT_type`` refers to; void without one."""
        if "DW_AT_type" not in die.attributes:
            return VOID
        return self.type(die.get_DIE_from_attribute("DW_AT_type"))

    def type(self, die: Any) -> Type:
        """The type that a type DIE describes; kinds without a counterpart become bytes."""
        made = self._made.get(die.offset)
        if made is None:
            row = self._rows.get(die.tag)
            made = row(die) if row is not None else Array(UINT8, _number(die, "DW_AT_byte_size"))
            self._made[die.offset] = made
        return made

    def _same(self, die: Any) -> Type:
        return self.of(die)

    def _pointer(self, die: Any) -> Type:
        return Pointer(self.of(die), AddressSpace.USER)

    def _base(self, die: Any) -> Type:
        size, encoding = _number(die, "DW_AT_byte_size"), _number(die, "DW_AT_encoding")
        if encoding == _BOOLEAN and size == 1:
            return BOOL
        if encoding in _FLOAT_ENCODINGS or size not in (1, 2, 4, 8, 16):
            return Array(UINT8, size)
        return INT8 if _name(die) == "char" else Int(size, encoding in _SIGNED_ENCODINGS)

    def _enum(self, die: Any) -> Type:
        members = tuple(
            (_name(child), _number(child, "DW_AT_const_value"))
            for child in die.iter_children()
            if child.tag == "DW_TAG_enumerator"
        )
        size = _number(die, "DW_AT_byte_size") or 4
        return Enum(_name(die), size, any(value < 0 for _, value in members), members)

    def _array(self, die: Any) -> Type:
        counts = []
        for child in die.iter_children():
            if child.tag == "DW_TAG_subrange_type":
                upper = child.attributes.get("DW_AT_upper_bound")
                fixed = upper is not None and isinstance(upper.value, int)
                counts.append(upper.value + 1 if fixed else _number(child, "DW_AT_count"))
        made = self.of(die)
        element = die.get_DIE_from_attribute("DW_AT_type")
        while element.tag in ("DW_TAG_typedef", "DW_TAG_const_type", "DW_TAG_volatile_type"):
            element = element.get_DIE_from_attribute("DW_AT_type")
        if (
            len(counts) == 1
            and counts[0]
            and element.tag == "DW_TAG_base_type"
            and _name(element) in ("char", "signed char")
        ):
            return String(counts[0])
        for count in reversed(counts):
            made = Array(made, count)
        return made

    def _struct(self, die: Any) -> Type:
        kind = "union" if die.tag == "DW_TAG_union_type" else "struct"
        size, name = _number(die, "DW_AT_byte_size"), _name(die)
        origin = self._origin if name else f"{self._origin}#{die.offset}"
        return Struct(kind, name, size, lambda: self._fields(die, size), origin=origin)

    def _fields(self, die: Any, size: int) -> tuple[Field, ...]:
        found = []
        for child in die.iter_children():
            if child.tag == "DW_TAG_inheritance":
                # Members of a base class are found as those of an anonymous member are.
                found.append(Field("", self.of(child), _number(child, "DW_AT_data_member_location")))
            elif child.tag == "DW_TAG_member" and "DW_AT_external" not in child.attributes:
                found.append(self._member(child, size))
        return tuple(found)

    def _member(self, die: Any, size: int) -> Field:
        kind, bits = self.of(die), _number(die, "DW_AT_bit_size")
        start = 8 * _number(die, "DW_AT_data_member_location")
        if bits and "DW_AT_data_bit_offset" in die.attributes:
            start = _number(die, "DW_AT_data_bit_offset")
        elif bits and "DW_AT_bit_offset" in die.attributes:
            # DWARF 2 and 3 count from the most significant bit of the storage unit.
            unit = _number(die, "DW_AT_byte_size") or kind.size
            start += 8 * unit - _number(die, "DW_AT_bit_offset") - bits
        return place_field(_name(die), kind, start, bits, size)


_WORDS = {
    "DW_TAG_structure_type": "struct ",
    "DW_TAG_union_type": "union ",
    "DW_TAG_enumeration_type": "enum ",
}
_BEHIND = {"DW_TAG_pointer_type": " *", "DW_TAG_reference_type": " &", "DW_TAG_rvalue_reference_type": " &&"}
_BEFORE = {"DW_TAG_const_type": "const ", "DW_TAG_volatile_type": "volatile "}


def type_text(die: Any) -> str:
    """The type of what a DIE describes, as C text: ``const char *``."""
    if "DW_AT_type" not in die.attributes:
        return "void"
    target = die.get_DIE_from_attribute("DW_AT_type")
    if target.tag in _BEFORE:
        inner = type_text(target)
        # The qualifier of a pointer stands behind the star.
        return f"{inner} {_BEFORE[target.tag].strip()}" if inner.endswith("*") else _BEFORE[target.tag] + inner
    if target.tag in _BEHIND:
        return type_text(target) + _BEHIND[target.tag]
    if target.tag == "DW_TAG_array_type":
        return f"{type_text(target)}[]"
    if target.tag == "DW_TAG_subroutine_type":
        return f"{type_text(target)} ()"
    return _WORDS.get(target.tag, "") + (_name(target) or "{…}")


def _number(die: Any, attribute: str) -> int:
    found = die.attributes.get(attribute)
    return int(found.value) if found is not None and isinstance(found.value, int) else 0


def _name(die: Any) -> str:
    found = die.attributes.get("DW_AT_name")
    return found.value.decode(errors="replace") if found is not None else ""
