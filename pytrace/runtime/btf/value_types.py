"""BTF types as value types of the language.

One :class:`TypeReader` for each BTF object; a type is created when it is first asked for, and struct members when
they are first looked at, so ``struct task_struct`` costs no more than the members that a script uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pytrace.core.diagnostics import InternalError
from pytrace.core.kernel_info import FunctionPrototype
from pytrace.core.types import (
    BOOL,
    INT8,
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
from pytrace.runtime.btf.reader import Btf, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_INT_SIGNED, _INT_BOOL = 1, 4
_CHARACTERS = ("char", "signed char")
"""Base types whose arrays are texts; ``unsigned char`` (``u8``) is a number."""

_REFERENCES = frozenset((Kind.TYPEDEF, Kind.VOLATILE, Kind.CONST, Kind.RESTRICT, Kind.TYPE_TAG, Kind.DECL_TAG))
_PLAIN_TAGS = frozenset(("rcu", "percpu"))
"""``btf_type_tag`` texts of pointers into kernel memory (``__rcu``, ``__percpu``)."""


class Member(msgspec.Struct, frozen=True):
    """A member of a struct or union as BTF has it: *bit_offset* from the start, *bit_size* 0 unless a bitfield."""

    name: str
    type_id: int
    bit_offset: int
    bit_size: int


class TypeReader:
    """Converts the types of one BTF object (and of its base) to :mod:`pytrace.core.types`."""

    def __init__(self, btf: Btf) -> None:
        self.btf = btf
        self._made: dict[int, Type] = {0: VOID}
        self.texts: dict[int, str] = {}
        """Types as C text, for listings, which show the same types often."""
        self._rows: dict[int, Callable[[Sequence[int], int, int], Type]] = {
            Kind.INT: self._int,
            Kind.PTR: self._pointer,
            Kind.ARRAY: self._array,
            Kind.STRUCT: self._struct,
            Kind.UNION: self._struct,
            Kind.ENUM: self._enum,
            Kind.ENUM64: self._enum,
            Kind.FWD: self._forward,
            Kind.FUNC: self._nothing,
            Kind.FUNC_PROTO: self._nothing,
            Kind.FLOAT: self._float,
            Kind.VAR: self._referred,
            **dict.fromkeys(_REFERENCES, self._referred),
        }

    def type(self, type_id: int) -> Type:
        """The value type of a type id; qualifiers and typedefs are resolved."""
        type_ = self._made.get(type_id)
        if type_ is None:
            row = self._rows.get(self.btf.kind(type_id))
            if row is None:
                raise InternalError(f"BTF type {type_id} of {self.btf.name} is not a value type")
            words, at = self.place(type_id)
            type_ = self._made[type_id] = row(words, at, type_id)
        return type_

    def place(self, type_id: int) -> tuple[Sequence[int], int]:
        """The words that hold a type, and where it starts in them."""
        owner = self.btf.owner(type_id)
        return owner.words, owner.start(type_id)

    def resolved(self, type_id: int) -> int:
        """The type that typedefs and qualifiers lead to."""
        while self.btf.kind(type_id) in _REFERENCES:
            words, at = self.place(type_id)
            type_id = words[at + 2]
        return type_id

    # ---- rows

    def _int(self, words: Sequence[int], at: int, type_id: int) -> Type:
        size, encoding = words[at + 2], words[at + 3] >> 24
        if encoding & _INT_BOOL and size == 1:
            return BOOL
        # The kernel is built with -funsigned-char; the language's `char` is int8 as in C on most machines.
        if size == 1 and self.btf.type_name(type_id) in _CHARACTERS:
            return INT8
        return Int(size, bool(encoding & _INT_SIGNED))

    def _pointer(self, words: Sequence[int], at: int, _type_id: int) -> Type:
        space, target = AddressSpace.KERNEL, words[at + 2]
        while self.btf.kind(target) in _REFERENCES:
            inner, inside = self.place(target)
            if self.btf.kind(target) == Kind.TYPE_TAG:
                tag = self.btf.type_name(target)
                if tag == "user":
                    space = AddressSpace.USER
                elif tag not in _PLAIN_TAGS:
                    # Memory that no helper of ours can read: without a target type nothing can be read through it.
                    return Pointer(VOID, AddressSpace.KERNEL)
            target = inner[inside + 2]
        return Pointer(self.type(target), space)

    def _array(self, words: Sequence[int], at: int, _type_id: int) -> Type:
        element, count = words[at + 3], words[at + 5]
        base = self.resolved(element)
        # A flexible array has no capacity that a string could take.
        if count and self.btf.kind(base) == Kind.INT and self.btf.type_name(base) in _CHARACTERS:
            return String(count)
        return Array(self.type(element), count)

    def _struct(self, words: Sequence[int], at: int, type_id: int) -> Type:
        name = self.btf.text(words[at])
        kind = "struct" if self.btf.kind(type_id) == Kind.STRUCT else "union"
        origin = self.btf.owner(type_id).name
        size = words[at + 2]
        origin = origin if name else f"{origin}#{type_id}"
        return Struct(kind, name, size, FieldLoader(lambda: self._fields(type_id, size)), origin)

    def _forward(self, words: Sequence[int], at: int, _type_id: int) -> Type:
        kind = "union" if words[at + 1] >> 31 else "struct"
        return Struct(kind, self.btf.text(words[at]), 0, (), origin="forward", alignment=1)

    def _enum(self, words: Sequence[int], at: int, type_id: int) -> Type:
        members = tuple(self.enumerators(type_id))
        return Enum(self.btf.text(words[at]), words[at + 2], bool(words[at + 1] >> 31), members)

    def _float(self, words: Sequence[int], at: int, _type_id: int) -> Type:
        size = words[at + 2]
        return Float(size) if size in (4, 8) else Array(UINT8, size)

    def _nothing(self, _words: Sequence[int], _at: int, _type_id: int) -> Type:
        return VOID

    def _referred(self, words: Sequence[int], at: int, _type_id: int) -> Type:
        return self.type(words[at + 2])

    # ---- parts

    def enumerators(self, type_id: int) -> list[tuple[str, int]]:
        """Members of an enumeration with their values."""
        words, at = self.place(type_id)
        count, signed = words[at + 1] & 0xFFFF, words[at + 1] >> 31
        wide = self.btf.kind(type_id) == Kind.ENUM64
        step, bits, text = (3, 64, self.btf.text) if wide else (2, 32, self.btf.text)
        enumerators = []
        for i in range(at + 3, at + 3 + step * count, step):
            value = words[i + 1] | (words[i + 2] << 32 if wide else 0)
            if signed and value >> (bits - 1):
                value -= 1 << bits
            enumerators.append((text(words[i]), value))
        return enumerators

    def members(self, type_id: int) -> list[Member]:
        """Members of a struct or union in order."""
        words, at = self.place(type_id)
        count, flagged, text = words[at + 1] & 0xFFFF, words[at + 1] >> 31, self.btf.text
        members = []
        for i in range(at + 3, at + 3 + 3 * count, 3):
            packed = words[i + 2]
            size, offset = (packed >> 24, packed & 0xFFFFFF) if flagged else (0, packed)
            members.append(Member(text(words[i]), words[i + 1], offset, size or self._old_bitfield(words[i + 1])))
        return members

    def _old_bitfield(self, type_id: int) -> int:
        """Width of a bitfield in the older form, where the integer type itself is narrower than its size."""
        base = self.resolved(type_id)
        if self.btf.kind(base) != Kind.INT:
            return 0
        words, at = self.place(base)
        bits = words[at + 3] & 0xFF
        return bits if bits != 8 * words[at + 2] and words[at + 2] <= 8 else 0

    def _fields(self, type_id: int, size: int) -> tuple[Field, ...]:
        return tuple(
            place_field(m.name, self.type(m.type_id), m.bit_offset, m.bit_size, size) for m in self.members(type_id)
        )

    def prototype(self, function_id: int, skip: int = 0) -> FunctionPrototype:
        """The prototype of a ``FUNC`` type, without its first *skip* parameters."""
        words, at = self.place(function_id)
        return self.prototype_of(self.btf.text(words[at]), words[at + 2], function_id, skip)

    def prototype_of(self, name: str, proto_id: int, btf_id: int, skip: int = 0) -> FunctionPrototype:
        """A ``FUNC_PROTO`` as the prototype of *name*."""
        words, at = self.place(proto_id)
        parameters = self.parameters(proto_id)
        variadic = bool(parameters) and parameters[-1] == ("", 0)
        named = tuple(
            (text or f"arg{number}", self.type(kind))
            for number, (text, kind) in enumerate(parameters[: len(parameters) - variadic][skip:])
        )
        owner = self.btf.owner(btf_id).name
        return FunctionPrototype(name, owner, named, self.type(words[at + 2]), variadic, btf_id)

    def parameters(self, proto_id: int) -> list[tuple[str, int]]:
        """Names and type ids of a ``FUNC_PROTO``'s parameters; ``("", 0)`` stands for ``…``."""
        words, at = self.place(proto_id)
        count = words[at + 1] & 0xFFFF
        return [(self.btf.text(words[i]), words[i + 1]) for i in range(at + 3, at + 3 + 2 * count, 2)]


def place_field(name: str, type_: Type, bit_offset: int, bit_size: int, struct_size: int) -> Field:
    """A member *bit_offset* bits into a struct; for a bitfield the aligned unit that holds it, where there is one."""
    if not bit_size:
        return Field(name, type_, bit_offset // 8)
    unit = type_.size
    offset = bit_offset // (8 * unit) * unit
    if bit_offset + bit_size > 8 * (offset + unit) or offset + unit > struct_size:
        # Packed: no aligned unit holds it, so count from the byte where it starts.
        offset = bit_offset // 8
    return Field(name, type_, offset, bit_offset - 8 * offset, bit_size)
