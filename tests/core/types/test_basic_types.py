"""Value types: layout and the serialisable form."""

from __future__ import annotations

from pytrace.base import typed_json
from pytrace.core import types
from pytrace.core.types import (
    INT8,
    INT32,
    INT64,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    AddressSpace,
    Array,
    Buffer,
    Enum,
    Field,
    FieldLoader,
    Hist,
    Int,
    LHist,
    Pointer,
    Record,
    Stack,
    StackMode,
    String,
    Struct,
    TSeries,
    Tuple,
    parts,
)
from pytrace.core.types.basic_types import plainly_read
from tests.support.rows import each_row

SAMPLES: dict[str, types.Type] = {
    "void": types.VOID,
    "bool": types.BOOL,
    "int": Int(2, False),
    "float": types.FLOAT,
    "enum": Enum("e", 4, False, (("A", 0), ("B", 7))),
    "pointer": Pointer(types.VOID, AddressSpace.USER),
    "string": String(16),
    "buffer": Buffer(9),
    "array": Array(UINT16, 3),
    "tuple": Tuple((INT8, String(3), Tuple((INT64,)))),
    "record": Record(("a", "b"), (INT32, UINT8)),
    "struct": Struct("struct", "s", 8, (Field("x", INT32, 0), Field("f", UINT8, 4, 3, 5))),
    "stack": Stack(True, 5, StackMode.PERF),
    "ksym_t": types.KSym(),
    "usym_t": types.USym(),
    "inet": types.Inet(),
    "macaddr_t": types.Mac(),
    "timestamp": types.Timestamp(),
    "username": types.Username(),
    "ifname_t": types.InterfaceName(),
    "netns_t": types.NetworkNamespace(),
    "cgroup_path_t": types.CgroupPath(),
    "fixed_t": types.Fixed(1_000_000, 3, False),
    "joined_t": types.Joined(":", (types.Inet(), UINT16, Tuple((INT8,)))),
    "count": types.Count(),
    "sum": types.Sum(False),
    "avg": types.Avg(),
    "stats": types.Stats(),
    "min": types.Min(),
    "max": types.Max(False),
    "hist": Hist(3),
    "lhist": LHist(0, 100, 10),
    "tseries": TSeries(1000, 5, "avg", False),
}


def test_every_type_has_a_sample() -> None:
    assert set(SAMPLES) == {kind.__struct_config__.tag for kind in types.ALL}


@each_row("tag", SAMPLES)
def test_serialised_form_round_trips(tag: str) -> None:
    kind = SAMPLES[tag]
    settled = types.settled(kind)
    again = typed_json.decode(typed_json.encode(settled), types.Type, types.decoded)
    assert again == settled
    assert type(again) is type(kind)
    assert (again.size, again.align) == (kind.size, kind.align)
    assert kind.size % kind.align == 0 or tag == "buffer"


def test_tuples_are_laid_out_like_c_structs() -> None:
    kind = Tuple((INT8, INT64, UINT16, String(3)))
    assert kind.offsets == (0, 8, 16, 18)
    assert (kind.size, kind.align) == (24, 8)


def test_ranges_of_integers() -> None:
    assert (INT8.low, INT8.high) == (-128, 127)
    assert (UINT64.low, UINT64.high) == (0, 2**64 - 1)


def test_members_of_anonymous_members_are_found_with_their_offset() -> None:
    inner = Struct("union", "", 8, (Field("u", INT32, 0), Field("v", INT64, 0)), origin="1")
    outer = Struct("struct", "o", 16, (Field("a", INT64, 0), Field("", inner, 8)))
    found = outer.find("v")
    assert found is not None
    assert (found.offset, found.type) == (8, INT64)
    assert outer.find("w") is None
    assert list(outer.names()) == ["a", "u", "v"]


def test_structs_load_their_fields_once_and_may_refer_to_themselves() -> None:
    calls = []

    def load() -> tuple[Field, ...]:
        calls.append(1)
        return (Field("next", Pointer(node), 0),)

    node = Struct("struct", "node", 8, FieldLoader(load))
    assert calls == []
    assert node.fields[0].type == Pointer(node)
    assert node.align == 8
    assert calls == [1]
    assert list(parts([Array(node, 2)])) == [Array(node, 2), node, Pointer(node)]


def test_settled_types_refer_to_nothing() -> None:
    def members() -> tuple[Field, ...]:
        return Field("next", Pointer(lazy), 0), Field("n", INT64, 8)

    lazy = Struct("struct", "node", 16, FieldLoader(members), "vmlinux")
    found = types.settled(Tuple((lazy, Pointer(lazy, types.AddressSpace.USER, trusted=True))))
    assert isinstance(found, Tuple)
    struct, pointer = found.members
    assert isinstance(struct, Struct)
    assert [field.type for field in struct.fields] == [Pointer(types.VOID), INT64]
    assert (struct.name, struct.size, struct.origin) == ("node", 16, "")
    assert pointer == Pointer(types.VOID, types.AddressSpace.USER)


def test_plain_loads_that_the_verifier_refuses() -> None:
    pair = Struct("struct", "", 8, (Field("hash", UINT32, 0), Field("len", UINT32, 4)), origin="a")
    both = Struct("union", "", 8, (Field("", pair, 0), Field("hash_len", UINT64, 0)), origin="b")
    name = Struct("struct", "qstr", 16, (Field("", both, 0), Field("name", Pointer(INT8), 8)), origin="c")
    names = Struct("struct", "names", 48, (Field("kind", INT8, 0), Field("each", Array(name, 2), 16)), origin="d")
    assert plainly_read(name, 0, 4)
    assert plainly_read(name, 4, 4)
    assert not plainly_read(name, 0, 8)
    assert plainly_read(name, 8, 8)
    assert [plainly_read(names, offset, 8) for offset in (16, 24, 32, 40)] == [False, True, False, True]
    assert plainly_read(names, 36, 4)
