"""pytrace.runtime.btf.value_types: BTF as value types."""

from __future__ import annotations

from typing import cast

import pytest

from pytrace.core.types import (
    BOOL,
    INT8,
    INT32,
    INT64,
    UINT8,
    UINT32,
    UINT64,
    VOID,
    AddressSpace,
    Array,
    Enum,
    Field,
    Int,
    Pointer,
    String,
    Struct,
)
from pytrace.runtime.btf.reader import Btf, Kind
from pytrace.runtime.btf.value_types import TypeReader, place_field
from tests.support.btf_builder import BtfBuilder

SIGNED, CHAR, BOOLEAN = 1, 2, 4


def _reader(builder: BtfBuilder) -> TypeReader:
    return TypeReader(Btf(builder.build()))


def test_integers() -> None:
    builder = BtfBuilder()
    ids = [
        builder.integer("int", 4, SIGNED),
        builder.integer("unsigned long", 8),
        builder.integer("_Bool", 1, BOOLEAN),
        builder.integer("char", 1),
        builder.integer("unsigned char", 1),
        builder.integer("__int128", 16, SIGNED),
    ]
    reader = _reader(builder)
    assert [reader.type(i) for i in ids] == [INT32, UINT64, BOOL, INT8, UINT8, Int(16, True)]


def test_typedefs_and_qualifiers_are_resolved() -> None:
    builder = BtfBuilder()
    number = builder.integer("int", 4, SIGNED)
    chain = builder.add(Kind.TYPEDEF, "pid_t", builder.add(Kind.CONST, "", builder.add(Kind.VOLATILE, "", number)))
    assert _reader(builder).type(chain) == INT32


def test_arrays_of_characters_are_strings() -> None:
    builder = BtfBuilder()
    char, byte = builder.integer("char", 1), builder.integer("unsigned char", 1)
    name = builder.array(builder.add(Kind.CONST, "", char), 16)
    raw, flexible, grid = builder.array(byte, 6), builder.array(char, 0), builder.array(builder.array(byte, 2), 3)
    reader = _reader(builder)
    assert reader.type(name) == String(16)
    assert reader.type(raw) == Array(UINT8, 6)
    assert reader.type(flexible) == Array(INT8, 0)
    assert reader.type(grid) == Array(Array(UINT8, 2), 3)


@pytest.mark.parametrize(
    ("tag", "space", "void"),
    [("", "kernel", False), ("user", "user", False), ("rcu", "kernel", False), ("percpu", "kernel", False),
     ("iomem", "kernel", True)],
)  # fmt: skip
def test_pointer_spaces(tag: str, space: str, void: bool) -> None:
    builder = BtfBuilder()
    target = builder.integer("int", 4, SIGNED)
    if tag:
        target = builder.add(Kind.TYPE_TAG, tag, target)
    pointer = builder.pointer(builder.add(Kind.CONST, "", target))
    assert _reader(builder).type(pointer) == Pointer(VOID if void else INT32, AddressSpace(space))


def test_a_struct_may_refer_to_itself() -> None:
    builder = BtfBuilder()
    pointer = builder.pointer(2)
    assert builder.struct("list", 16, ("next", pointer, 0), ("prev", pointer, 64)) == 2
    kind = cast(Struct, _reader(builder).type(2))
    inner = kind.fields[0].type
    assert isinstance(inner, Pointer)
    assert inner.target is kind
    assert [field.offset for field in kind.fields] == [0, 8]
    assert kind.origin == "vmlinux"


def test_anonymous_members_keep_an_empty_name() -> None:
    builder = BtfBuilder()
    number = builder.integer("int", 4, SIGNED)
    inner = builder.struct("", 4, ("a", number, 0), ("b", number, 0), union=True)
    whole = builder.struct("outer", 8, ("x", number, 0), ("", inner, 32))
    outer = cast(Struct, _reader(builder).type(whole))
    assert [field.name for field in outer.fields] == ["x", ""]
    assert outer.find("b") == Field("b", INT32, 4)
    assert str(outer.fields[1].type) == "union {…}"


def test_bitfields_in_both_forms() -> None:
    builder = BtfBuilder()
    number, narrow = builder.integer("unsigned int", 4), builder.integer("unsigned int", 4, 0, bits=3)
    new = builder.struct(
        "new", 8, ("a", number, 0, 3), ("b", number, 3, 13), ("c", number, 32, 1), ("d", number, 32, 0)
    )
    old = builder.struct("old", 4, ("a", narrow, 5))
    reader = _reader(builder)
    assert cast(Struct, reader.type(new)).fields == (
        Field("a", UINT32, 0, 0, 3), Field("b", UINT32, 0, 3, 13), Field("c", UINT32, 4, 0, 1), Field("d", UINT32, 4),
    )  # fmt: skip
    assert cast(Struct, reader.type(old)).fields == (Field("a", UINT32, 0, 5, 3),)


def test_packed_bitfield_starts_at_its_byte() -> None:
    # 20 bits from bit 20 cross the 4-byte unit that they are declared as.
    assert place_field("f", UINT32, 20, 20, 8) == Field("f", UINT32, 2, 4, 20)
    # The aligned unit would reach beyond the struct.
    assert place_field("f", UINT32, 33, 3, 5) == Field("f", UINT32, 4, 1, 3)


def test_enums() -> None:
    builder = BtfBuilder()
    plain = builder.enum("plain", 4, ("A", 0), ("B", 0xFFFFFFFF))
    signed = builder.enum("signed", 4, ("LESS", -1), ("MORE", 1), signed=True)
    wide = builder.enum64("wide", ("BIG", 1 << 40), ("TOP", (1 << 64) - 1))
    reader = _reader(builder)
    assert reader.type(plain) == Enum("plain", 4, False, (("A", 0), ("B", 0xFFFFFFFF)))
    assert reader.type(signed) == Enum("signed", 4, True, (("LESS", -1), ("MORE", 1)))
    assert reader.type(wide) == Enum("wide", 8, False, (("BIG", 1 << 40), ("TOP", (1 << 64) - 1)))


def test_prototypes() -> None:
    builder = BtfBuilder()
    number = builder.integer("long", 8, SIGNED)
    callback = builder.pointer(builder.prototype(0, ("", number)))
    function = builder.function("f", builder.prototype(number, ("a", number), ("cb", callback), ("", 0)))
    found = _reader(builder).prototype(function)
    assert found.parameters == (("a", INT64), ("cb", Pointer(VOID, AddressSpace.KERNEL)))
    assert (found.result, found.variadic, found.module, found.btf_id) == (INT64, True, "vmlinux", function)
