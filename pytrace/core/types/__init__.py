"""All value types of the language: identity, size and alignment in memory, and a serialisable form.

The code generator and the decoder both take all layouts from here.
"""

from __future__ import annotations

from enum import Enum as PyEnum
from typing import TYPE_CHECKING

from msgspec.structs import astuple

from pytrace.core.types.basic_types import (
    AddressSpace,
    Array,
    Bool,
    Buffer,
    Enum,
    Field,
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

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

__all__ = [
    "AF_INET", "AF_INET6", "ALL", "BOOL", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64",
    "VOID", "AddressSpace", "Array", "Avg", "Bool", "Buffer", "CgroupPath", "Count", "Enum", "Field", "Fixed",
    "Hist", "Inet", "Int", "InterfaceName", "Joined", "KSym", "LHist", "Mac", "Max", "Members", "Min",
    "NetworkNamespace", "Pointer", "Record", "Signed", "Stack", "StackMode", "Stats", "String", "Struct", "Sum",
    "TSeries", "Timestamp", "Tuple", "Type", "USym", "Username", "Void", "from_data", "named_fields", "parts",
    "shown_name", "to_data",
]  # fmt: skip

# ---------------------------------------------------------------------------------------------- common instances

VOID = Void()
BOOL = Bool()
INT8, INT16, INT32, INT64 = Int(1, True), Int(2, True), Int(4, True), Int(8, True)
UINT8, UINT16, UINT32, UINT64 = Int(1, False), Int(2, False), Int(4, False), Int(8, False)

ALL: tuple[type[Type], ...] = (
    Void, Bool, Int, Enum, Pointer, String, Buffer, Array, Tuple, Record, Struct, Stack, KSym, USym, Inet, Mac,
    Timestamp, Username, InterfaceName, NetworkNamespace, CgroupPath, Fixed, Joined, Count, Sum, Avg, Stats, Min, Max,
    Hist, LHist, TSeries,
)
"""Every concrete type; a renderer, decoder or LLVM table that lacks one of them is incomplete."""

_BY_TAG: dict[str, type[Type]] = {kind.tag: kind for kind in ALL}


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


def named_fields(kind: Struct, base: int = 0) -> Iterator[Field]:
    """The members of a struct as printed: anonymous members are flattened, offsets are relative to the struct.

    Character arrays are strings, as when a script reads the member alone.
    """
    for field in kind.fields:
        inner = field.type
        if field.name:
            text = isinstance(inner, Array) and inner.element == INT8 and inner.count > 0
            shown = String(inner.size) if text else inner
            yield Field(field.name, shown, base + field.offset, field.bit_offset, field.bit_size)
        elif isinstance(inner, Struct):
            yield from named_fields(inner, base + field.offset)


# ---------------------------------------------------------------------------------------------- serialisable form


def to_data(value: Type) -> list[object]:
    """The type as JSON-serialisable lists; the target of a pointer is reduced to its name."""
    if isinstance(value, Struct):
        members = [[f.name, to_data(f.type), f.offset, f.bit_offset, f.bit_size] for f in value.fields]
        return [value.tag, value.kind, value.name, value.size, value.align, members]
    if isinstance(value, Pointer):
        return [value.tag, value.space.value]
    return [value.tag, *(_pack(item) for item in astuple(value))]


def from_data(data: list[Any]) -> Type:
    """Inverse of :func:`to_data`, except that pointer targets are :data:`VOID`."""
    tag, *rest = data
    if tag == Struct.tag:
        kind, name, size, align, members = rest
        loaded = tuple(Field(m[0], from_data(m[1]), m[2], m[3], m[4]) for m in members)
        return Struct(kind, name, size, loaded, alignment=align)
    if tag == Pointer.tag:
        return Pointer(VOID, AddressSpace(rest[0]))
    kind_ = _BY_TAG[tag]
    return kind_(*(_unpack(item) for item in rest))


def _pack(item: object) -> object:
    if isinstance(item, Type):
        return {"t": to_data(item)}
    if isinstance(item, PyEnum):
        return {"mode": item.value}
    if isinstance(item, tuple):
        return [_pack(inner) for inner in item]
    return item


def _unpack(item: object) -> Any:
    if isinstance(item, dict):
        return from_data(item["t"]) if "t" in item else StackMode(item["mode"])
    if isinstance(item, list):
        return tuple(_unpack(inner) for inner in item)
    return item
