"""Type information is read, checked, and turned into types."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from pytrace.base import private_files
from pytrace.core.diagnostics import TraceError
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
from pytrace.runtime.binaries.btf_types import Btf, Kind, TypeReader, check, place_field
from pytrace.runtime.machine import fingerprints
from tests.support.btf_builder import BtfBuilder, small_types

# ---------------------------------------------------------------------------------------------- reader
# pytrace.runtime.binaries.btf_types: names, kinds and ids of types, split BTF, the kept index.


def _base() -> BtfBuilder:
    builder = BtfBuilder()
    number = builder.integer("int", 4, 1)
    builder.struct("node", 16, ("value", number, 0), ("name", number, 64))
    builder.add(Kind.TYPEDEF, "name", number)
    builder.function("act", builder.prototype(number, ("node", number)))
    return builder


def test_types_are_found_by_name_and_kind() -> None:
    btf = Btf(_base().build())
    assert btf.end_id == 6
    assert btf.find("int", Kind.INT) == 1
    assert btf.find("node", Kind.STRUCT) == 2
    assert btf.find("node", Kind.UNION) == 0
    assert btf.find("name", Kind.TYPEDEF) == 3, "members of that name are no types"
    assert btf.find("nam", Kind.TYPEDEF) == 0
    assert btf.find("", Kind.FUNC_PROTO) == 0
    assert [btf.type_name(i) for i in range(6)] == ["void", "int", "node", "name", "", "act"]
    assert btf.names(Kind.STRUCT, Kind.FUNC) == ["node", "act"]


def test_names_that_end_alike_are_told_apart() -> None:
    builder = BtfBuilder()
    builder.integer("long int", 8, 1)
    builder.integer("int", 4, 1)
    btf = Btf(builder.build())
    assert btf.find("int", Kind.INT) == 2


def test_strings_with_prefix() -> None:
    builder = BtfBuilder()
    number = builder.integer("int", 4, 1)
    for name in ("btf_trace_one", "other_btf_trace_x", "btf_trace_two"):
        builder.add(Kind.TYPEDEF, name, number)
    assert Btf(builder.build()).strings_with_prefix("btf_trace_") == ["btf_trace_one", "btf_trace_two"]


def test_module_types_build_on_the_kernel() -> None:
    base = Btf(_base().build())
    builder = BtfBuilder(first=base.end_id, first_string=base.end_string)
    # The first string of a module is not empty, and its types may use the kernel's strings and types.
    builder.struct("holder", 8, ("value", 1, 0))
    module = Btf(builder.build(), "mod", base)
    assert module.find("holder", Kind.STRUCT) == 6
    assert module.find("node", Kind.STRUCT) == 0, "only what the module defines"
    assert module.type_name(2) == "node"
    assert module.type_name(6) == "holder"
    assert module.kind(2) == Kind.STRUCT
    assert module.owner(2) is base


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "truncated"),
        (b"\x7fELF" + bytes(40), "magic"),
        (_base().build()[:-5], "truncated"),
    ],
)
def test_damaged_data_is_named(data: bytes, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        Btf(data)


def test_index_is_kept_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    data = _base().build()
    assert Btf(data, index="sample").find("int", Kind.INT) == 1
    kept = Path(private_files.directory(fingerprints.KEPT)) / "sample"
    assert kept.stat().st_mode & 0o077 == 0
    assert Btf(data, index="sample").find("act", Kind.FUNC) == 5
    kept.write_bytes(kept.read_bytes()[:-3])
    assert Btf(data, index="sample").find("act", Kind.FUNC) == 5, "a damaged index is made again"
    Path(private_files.directory(fingerprints.KEPT)).chmod(0o777)
    assert fingerprints.read_kept("sample") is None, "others could have written it"


def test_kernel_lookup_is_quick() -> None:
    path = Path("/sys/kernel/btf/vmlinux")
    if not path.exists():
        pytest.skip("this kernel shows no type information")
    btf = Btf(path.read_bytes())
    task = btf.find("task_struct", Kind.STRUCT)
    assert task
    assert btf.type_name(task) == "task_struct"
    assert btf.find("vfs_read", Kind.FUNC)


def test_a_module_is_not_indexed_for_a_name_that_it_lacks() -> None:
    base = Btf(_base().build())
    builder = BtfBuilder(first=base.end_id, first_string=base.end_string)
    builder.struct("holder", 8, ("value", 1, 0))
    module = Btf(builder.build(), "mod", base)
    assert module.find("nothing", Kind.STRUCT) == 0
    assert module.find("node", Kind.STRUCT) == 0
    assert "_tables" not in vars(module)
    assert module.find("holder", Kind.STRUCT) == base.end_id
    assert "_tables" in vars(module)


def test_many_lookups_do_not_search_the_data_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Listings ask for 60,000 functions; a search for one of them takes milliseconds."""
    builder = _base()
    number = 1
    for item in range(500):
        builder.function(f"function_{item}", builder.prototype(number))
    for name in ("function_7", "function_499"):
        builder.function(name, builder.prototype(number))
    btf, other = Btf(builder.build()), Btf(builder.build())
    searches = 0
    plain = Btf.string_offsets

    def counted(self: Btf, name: str) -> Iterator[int]:
        nonlocal searches
        searches += self is btf
        return plain(self, name)

    monkeypatch.setattr(Btf, "string_offsets", counted)
    names = [*(f"function_{item}" for item in range(500)), "node", "name", "missing", "act", "value"]
    found = [btf.find(name, Kind.FUNC, Kind.STRUCT) for name in names]
    assert 0 < searches < 100
    for name, type_id in zip(names, found, strict=True):
        other._searches = 0
        assert other.find(name, Kind.FUNC, Kind.STRUCT) == type_id, name
    assert found[-3:] == [0, btf.find("act", Kind.FUNC), 0]


def test_many_lookups_in_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    base = Btf(_base().build())
    builder = BtfBuilder(first=base.end_id, first_string=base.end_string)
    for item in range(200):
        builder.struct(f"holder_{item}", 8, ("value", 1, 0))
    module = Btf(builder.build(), "mod", base)
    for _ in range(2):
        assert [module.find(f"holder_{item}", Kind.STRUCT) for item in range(200)] == list(range(6, 206))
        assert module.find("node", Kind.STRUCT) == 0, "only what the module defines"


@pytest.mark.parametrize(("size", "message"), [(8, "truncated"), (13, "not BTF's")])
def test_types_that_are_cut_are_refused(size: int, message: str) -> None:
    builder = BtfBuilder()
    builder.integer("int", 4)
    data = bytearray(builder.build())
    struct.pack_into("=I", data, 12, size)
    with pytest.raises(TraceError, match=message):
        Btf(bytes(data)).ids(Kind.INT).__next__()


# ---------------------------------------------------------------------------------------------- validation
# Type information that is damaged is refused before it is read.


def test_what_is_whole_is_accepted() -> None:
    check(Btf(small_types()))


def _typedef_of_itself(builder: BtfBuilder) -> None:
    builder.add(Kind.TYPEDEF, "a", 1)


def _pointers_in_a_ring(builder: BtfBuilder) -> None:
    builder.pointer(2)
    builder.pointer(1)


def _struct_in_itself(builder: BtfBuilder) -> None:
    builder.struct("a", 8, ("b", 2, 0))
    builder.array(1, 2)


def _long_chain(builder: BtfBuilder) -> None:
    builder.integer("int", 4)
    for number in range(1, 40):
        builder.pointer(number)


def _type_outside(builder: BtfBuilder) -> None:
    builder.struct("a", 8, ("b", 70, 0))


def _section_as_member(builder: BtfBuilder) -> None:
    builder.add(Kind.DATASEC, ".data")
    builder.struct("a", 8, ("b", 1, 0))


def _bits_of_nothing(builder: BtfBuilder) -> None:
    builder.add(Kind.FWD, "absent")
    builder.struct("a", 8, ("b", 1, 0, 3))


def _void(builder: BtfBuilder) -> None:
    builder.add(Kind.VOID)


def _odd_size(builder: BtfBuilder) -> None:
    builder.integer("int", 3)


def _no_prototype(builder: BtfBuilder) -> None:
    builder.function("f", builder.integer("int", 4))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_typedef_of_itself, "type 1 contains itself"),
        (_pointers_in_a_ring, "contains itself"),
        (_struct_in_itself, "contains itself"),
        (_long_chain, "leads to more than 32 types"),
        (_type_outside, "type 1 leads to type 70, and there are 2"),
        (_section_as_member, "which is none of a value"),
        (_bits_of_nothing, "a bitfield of type 2 is no integer"),
        (_void, "type 1 is void"),
        (_odd_size, "type 1 has 3 bytes"),
        (_no_prototype, "function 2 has no prototype"),
    ],
)
def test_what_is_damaged_is_refused(make: Callable[[BtfBuilder], None], message: str) -> None:
    builder = BtfBuilder()
    make(builder)
    with pytest.raises(TraceError, match=message):
        check(Btf(builder.build()))


def test_a_list_may_contain_pointers_to_itself() -> None:
    builder = BtfBuilder()
    builder.struct("node", 8, ("next", 2, 0))
    builder.pointer(1)
    check(Btf(builder.build()))


def test_names_outside_of_the_data_are_refused() -> None:
    data = bytearray(small_types())
    struct.pack_into("=I", data, 24, 0xFFFF)
    with pytest.raises(TraceError, match="outside of its names"):
        check(Btf(bytes(data)))
    whole = small_types()
    with pytest.raises(TraceError, match="its last name does not end"):
        check(Btf(whole[:-1] + b"x"))


# ---------------------------------------------------------------------------------------------- value types
# pytrace.runtime.binaries.btf_types: BTF as value types.


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
