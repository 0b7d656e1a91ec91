"""All value types of the language: identity, size and alignment in memory, and a serialisable form.

The code generator and the decoder both take all layouts from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from operator import or_

import msgspec
from msgspec.structs import replace

from pytrace.core.types.basic_types import (
    AddressSpace,
    Array,
    Bool,
    Buffer,
    Data,
    Enum,
    Field,
    FieldLoader,
    Float,
    Int,
    Members,
    Pointer,
    Record,
    String,
    Struct,
    Tuple,
    Type,
    Void,
    shown_name,
)
from pytrace.core.types.builtin_types import (
    AF_INET,
    AF_INET6,
    TRUNCATED,
    TRUNCATED_NAME,
    Aggregate,
    Avg,
    CgroupPath,
    Count,
    Fixed,
    Hist,
    Inet,
    InterfaceName,
    Joined,
    KSym,
    LHist,
    Mac,
    Max,
    Min,
    NetworkNamespace,
    Signed,
    Stack,
    StackMode,
    Stats,
    Sum,
    Timestamp,
    TSeries,
    Username,
    USym,
)

__all__ = [
    "AF_INET", "AF_INET6", "AGGREGATIONS", "ALL", "BOOL", "DOUBLE", "FLOAT", "INT16", "INT32", "INT64", "INT8", "SUMS",
    "TRUNCATED",
    "TRUNCATED_NAME", "UINT16", "UINT32", "UINT64", "UINT8", "VOID", "AddressSpace", "Array", "Avg", "Bool", "Buffer",
    "CgroupPath", "Count", "Data", "Enum", "Field", "FieldLoader", "Fixed", "Float", "Hist", "Inet", "Int",
    "InterfaceName",
    "Joined", "KSym", "LHist", "Mac", "Max", "Members", "Min", "NetworkNamespace", "Pointer", "Record", "Signed",
    "Stack", "StackMode", "Stats", "String", "Struct", "Sum", "TSeries", "Timestamp", "Tuple", "Type", "USym",
    "Username", "Void",
    "decoded", "member_types", "named_fields", "parts", "rebuilt", "settled", "shown_name",
]  # fmt: skip

# ---------------------------------------------------------------------------------------------- common instances

VOID = Void()
BOOL = Bool()
INT8, INT16, INT32, INT64 = Int(1, True), Int(2, True), Int(4, True), Int(8, True)
FLOAT, DOUBLE = Float(4), Float(8)
UINT8, UINT16, UINT32, UINT64 = Int(1, False), Int(2, False), Int(4, False), Int(8, False)

ALL: tuple[type[Type], ...] = (
    Void, Bool, Int, Float, Enum, Pointer, String, Buffer, Array, Tuple, Record, Struct, Stack, KSym, USym, Inet, Mac,
    Timestamp, Username, InterfaceName, NetworkNamespace, CgroupPath, Fixed, Joined, Count, Sum, Avg, Stats, Min, Max,
    Hist, LHist, TSeries,
)
"""Every concrete type; a renderer, decoder or LLVM table that lacks one of them is incomplete."""

AGGREGATIONS = tuple(kind for kind in ALL if issubclass(kind, Aggregate))
SUMS = (Count, Sum, Avg, Stats, Hist, LHist)
"""Aggregations that only add to their value or buckets."""

_ANY = reduce(or_, ALL)

def parts(roots: Iterable[Type]) -> Iterator[Type]:
    """*roots* and the types of all parts of their values (without the targets of pointers)."""
    for type_ in roots:
        yield type_
        if isinstance(type_, Array):
            yield from parts((type_.element,))
        elif isinstance(type_, Members):
            yield from parts(type_.members)
        elif isinstance(type_, Struct):
            yield from parts(field.type for field in type_.fields)


def named_fields(type_: Struct, base: int = 0) -> Iterator[Field]:
    """The members of a struct as printed: anonymous members are flattened, offsets are relative to the struct.

    Character arrays are strings, as when a script reads the member alone.
    """
    for field in type_.fields:
        inner = field.type
        if field.name:
            text = isinstance(inner, Array) and inner.element == INT8 and inner.count > 0
            shown = String(inner.size) if text else inner
            yield Field(field.name, shown, base + field.offset, field.bit_offset, field.bit_size)
        elif isinstance(inner, Struct):
            yield from named_fields(inner, base + field.offset)


def member_types(type_: Type) -> Sequence[Type]:
    """The types of the members of a tuple, a record, or a struct as printed; none of other types."""
    if isinstance(type_, Struct):
        return tuple(field.type for field in named_fields(type_))
    return type_.members if isinstance(type_, Members) else ()


# ---------------------------------------------------------------------------------------------- encoding


def rebuilt(type_: Type, change: Callable[[Type], Type]) -> Type:
    """*type_* with *change* applied to it and to all types that values of it hold, innermost first."""
    if isinstance(type_, Array):
        type_ = replace(type_, element=rebuilt(type_.element, change))
    elif isinstance(type_, Tuple | Record | Joined):
        type_ = replace(type_, members=tuple(rebuilt(member, change) for member in type_.members))
    elif isinstance(type_, Struct):
        fields = tuple(replace(field, type=rebuilt(field.type, change)) for field in type_.fields)
        type_ = Struct(type_.kind, type_.name, type_.size, fields, type_.origin, type_.align)
    return change(type_)


def settled(type_: Type) -> Type:
    """*type_* as data that can be encoded: with all members of structs, without what pointers point to.

    It is the same for a script that was just compiled and for a cached one.
    """
    return rebuilt(type_, _settled)


def _settled(type_: Type) -> Type:
    if isinstance(type_, Pointer):
        return Pointer(VOID, type_.space)
    return replace(type_, origin="") if isinstance(type_, Struct) else type_


def decoded(wanted: type, data: object) -> Type:
    """The type that was encoded as *data*: ``dec_hook`` of msgspec for what is declared as :class:`Type`.

    Raises:
        msgspec.ValidationError: *data* does not describe a type.
    """
    if wanted is not Type:
        raise NotImplementedError(wanted)
    found: Type = msgspec.convert(data, _ANY, dec_hook=decoded)
    return found
