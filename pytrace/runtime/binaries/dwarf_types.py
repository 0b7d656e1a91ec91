"""DWARF types as value types of the language.

Structs load their members when they are looked at; pointers point into user memory.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from elftools.common.exceptions import DWARFError

from pytrace.core.types import (
    BOOL,
    INT8,
    INT64,
    UINT8,
    VOID,
    AddressSpace,
    Array,
    Enum,
    Field,
    FieldLoader,
    Float,
    Int,
    Pointer,
    String,
    Struct,
    Type,
)
from pytrace.runtime.binaries.btf_types import place_field

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytrace.runtime.binaries.dwarf_units import Die, Unit


_SIGNED_ENCODINGS = frozenset((0x05, 0x06, 0x0D))
"""``DW_ATE_signed``, ``DW_ATE_signed_char``, ``DW_ATE_signed_fixed``."""
_BOOLEAN, _FLOAT, _FLOAT_ENCODINGS = 0x02, 0x04, frozenset((0x03, 0x04, 0x09, 0x0F))
_CHARACTERS = frozenset((0x06, 0x08, 0x10))
"""``DW_ATE_signed_char``, ``DW_ATE_unsigned_char``, ``DW_ATE_UTF``."""
_ALIASES = frozenset(("DW_TAG_typedef", "DW_TAG_const_type", "DW_TAG_volatile_type"))
_MOST_LINKS = 64
"""Links from an entry to what it is an instance or another name of; compilers make a handful of them at most."""


class DwarfTypes:
    """Makes :mod:`pytrace.core.types` of the type DIEs of one file; *origin* names the file in struct identities.

    *reading* is entered where members of structs are read later on, to name the file in what may be wrong with it.
    """

    def __init__(self, origin: str, reading: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self._origin = origin
        self._reading = reading
        self._made: dict[tuple[Unit, int], Type] = {}
        same, pointer, struct = self._same, self._pointer, self._struct
        self._rows: dict[str | int | None, Callable[[Die], Type]] = {
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
            "DW_TAG_subroutine_type": self._function,
            "DW_TAG_unspecified_type": lambda _: Pointer(VOID, AddressSpace.USER),
            "DW_TAG_ptr_to_member_type": lambda _: INT64,
        }

    def of(self, die: Die) -> Type:
        """The type that a DIE's ``DW_AT_type`` refers to; void without one."""
        return self.type(die.follow("DW_AT_type")) if "DW_AT_type" in die else VOID

    def type(self, die: Die) -> Type:
        """The type that a type DIE describes; kinds without a counterpart become bytes."""
        die = definition(die)
        key = die.cu, die.offset
        type_ = self._made.get(key)
        if type_ is None:
            row = self._rows.get(die.tag)
            type_ = row(die) if row is not None else Array(UINT8, die.number("DW_AT_byte_size"))
            self._made[key] = type_
        return type_

    def _same(self, die: Die) -> Type:
        return self.of(die)

    def _pointer(self, die: Die) -> Type:
        return Pointer(self.of(die), AddressSpace.USER)

    def _function(self, die: Die) -> Type:
        """In C only pointers to functions have values; in Go functions have, of a size: an address."""
        return Pointer(VOID, AddressSpace.USER) if die.number("DW_AT_byte_size") else VOID

    def _base(self, die: Die) -> Type:
        size, encoding = die.number("DW_AT_byte_size"), die.number("DW_AT_encoding")
        if encoding == _BOOLEAN and size == 1:
            return BOOL
        if encoding == _FLOAT and size in (4, 8):
            return Float(size)
        if encoding in _FLOAT_ENCODINGS or size not in (1, 2, 4, 8, 16):
            return Array(UINT8, size)
        return INT8 if die.text("DW_AT_name") == "char" else Int(size, encoding in _SIGNED_ENCODINGS)

    def _enum(self, die: Die) -> Type:
        members = tuple(
            (child.text("DW_AT_name"), child.number("DW_AT_const_value"))
            for child in die.children(lambda shape: shape.tag == "DW_TAG_enumerator")
        )
        size = die.number("DW_AT_byte_size") or 4
        return Enum(die.text("DW_AT_name"), size, any(value < 0 for _, value in members), members)

    def _array(self, die: Die) -> Type:
        counts = [
            child.number("DW_AT_upper_bound", child.number("DW_AT_count") - 1) + 1
            for child in die.children(lambda shape: shape.tag == "DW_TAG_subrange_type")
        ]
        type_ = self.of(die)
        element = plain(die.follow("DW_AT_type"))
        if (
            len(counts) == 1
            and counts[0]
            and element.tag == "DW_TAG_base_type"
            and element.text("DW_AT_name") in ("char", "signed char")
        ):
            return String(counts[0])
        for count in reversed(counts):
            type_ = Array(type_, count)
        return type_

    def _struct(self, die: Die) -> Type:
        kind = "union" if die.tag == "DW_TAG_union_type" else "struct"
        size, name = die.number("DW_AT_byte_size"), die.text("DW_AT_name")
        origin = self._origin if name else f"{self._origin}#{die.cu.label}+{die.offset}"
        return Struct(kind, name, size, FieldLoader(lambda: self._fields(die, size)), origin)

    def _fields(self, die: Die, size: int) -> tuple[Field, ...]:
        fields = []
        with self._reading():
            for child in die.children(lambda shape: shape.tag in ("DW_TAG_inheritance", "DW_TAG_member")):
                if child.tag == "DW_TAG_inheritance":
                    # Members of a base class are found as those of an anonymous member are.
                    fields.append(Field("", self.of(child), _location(child)))
                elif "DW_AT_external" not in child:
                    fields.append(self._member(child, size))
        return tuple(fields)

    def _member(self, die: Die, size: int) -> Field:
        kind, bits = self.of(die), die.number("DW_AT_bit_size")
        if bits and not kind.size:
            raise DWARFError("a bit field has a type without a size")
        start = 8 * _location(die)
        if bits and "DW_AT_data_bit_offset" in die:
            start = die.number("DW_AT_data_bit_offset")
        elif bits and "DW_AT_bit_offset" in die:
            # DWARF 2 and 3 count from the most significant bit of the storage unit.
            unit = die.number("DW_AT_byte_size") or kind.size
            start += 8 * unit - die.number("DW_AT_bit_offset") - bits
        return place_field(die.text("DW_AT_name"), kind, start, bits, size)


def described(die: Die, attribute: str) -> Die:
    """The entry that carries an attribute: itself, or what it is an instance or the definition of."""
    for _ in range(_MOST_LINKS):
        link = next((key for key in ("DW_AT_abstract_origin", "DW_AT_specification") if key in die), None)
        if attribute in die or link is None:
            return die
        die = die.follow(link)
    raise DWARFError("entries refer to each other in a cycle")


def definition(die: Die) -> Die:
    """The entry that describes a type: the one in a type unit, where *die* only stands for it."""
    return die.follow("DW_AT_signature") if "DW_AT_signature" in die else die


def plain(die: Die) -> Die:
    """The type behind names and qualifiers."""
    for _ in range(_MOST_LINKS):
        die = definition(die)
        if die.tag not in _ALIASES or "DW_AT_type" not in die:
            return die
        die = die.follow("DW_AT_type")
    raise DWARFError("a type is an alias of itself")


def _location(die: Die) -> int:
    """Distance of a member from the start of its struct."""
    value = die.value("DW_AT_data_member_location")
    if value is None or isinstance(value, int):
        return value or 0
    # DWARF 2 has an expression; that of a plain member adds a constant. Virtual base classes have no fixed place.
    operations = die.operations(bytes(value))
    return int(operations[0].args[0]) if operations and operations[0].op_name == "DW_OP_plus_uconst" else 0
