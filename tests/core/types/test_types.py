"""Types of values: basic ones, those of builtins, and their tables."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.base import typed_json
from pytrace.core import types
from pytrace.core.types import (
    BOOL,
    INT8,
    INT32,
    INT64,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    AddressSpace,
    Array,
    Avg,
    Buffer,
    Count,
    Enum,
    Field,
    FieldLoader,
    Fixed,
    Hist,
    Int,
    Joined,
    LHist,
    Max,
    Min,
    Pointer,
    Record,
    Stack,
    StackMode,
    Stats,
    String,
    Struct,
    Sum,
    TSeries,
    Tuple,
    Type,
    parts,
    plainly_read,
)
from pytrace.core.value_tables import (
    JOINED_TEXTS,
    Column,
    TableSchema,
    key_columns,
    map_unit,
    row_tables,
    value_columns,
)
from pytrace.render.values import fixed_text
from tests.support.rows import each_row

# ---------------------------------------------------------------------------------------------- basic types
# Value types: layout and the serialisable form.


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


def test_layouts_and_ranges() -> None:
    kind = Tuple((INT8, INT64, UINT16, String(3)))
    assert kind.offsets == (0, 8, 16, 18)
    assert (kind.size, kind.align) == (24, 8)
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


# ---------------------------------------------------------------------------------------------- builtin types
# Types that builtins produce: sizes of what they hold.


def test_bucket_counts_match_the_reference() -> None:
    assert Hist(0).buckets == 66
    assert Hist(5).buckets == ((65 - 5) << 5) + 1
    assert LHist(0, 10, 2).buckets == 7


@pytest.mark.parametrize(
    ("bounds", "buckets"), [((0, 10, 2), 7), ((0, 10, 10), 3), ((5, 6, 1), 3), ((0, 10, 3), 5), ((10, 110, 25), 6)]
)
def test_linear_buckets_have_two_more_for_what_is_outside(bounds: tuple[int, int, int], buckets: int) -> None:
    assert LHist(*bounds).buckets == buckets


@pytest.mark.parametrize("kind", [Min, Max])
@pytest.mark.parametrize("signed", [True, False])
def test_ranks_order_the_samples_of_extremes(kind: type[Min | Max], signed: bool) -> None:
    """Zero is the rank of the least wanted sample, so that memory that is zero holds no sample."""
    numbers = [-(2**63), -5, -1, 0, 7, 2**63 - 1] if signed else [0, 1, 2**63, 2**64 - 1]
    type_ = kind(signed)
    ranks = [type_.rank(number) for number in numbers]
    assert ranks == sorted(ranks, reverse=kind is Min)
    assert min(ranks) == 0
    assert [type_.value(rank) for rank in ranks] == numbers


@pytest.mark.parametrize(
    ("mode", "user", "frame"),
    [
        (StackMode.BPFTRACE, False, 8),
        (StackMode.PERF, True, 8),
        (StackMode.RAW, True, 8),
        (StackMode.BUILD_ID, True, 32),
    ],
)
def test_stacks(mode: StackMode, user: bool, frame: int) -> None:
    stack = Stack(user, 5, mode)
    assert stack.frame_size == frame
    assert stack.size >= 5 * frame
    assert stack.size % stack.align == 0
    assert Stack(user, 6, mode).size - stack.size == frame


def test_names() -> None:
    assert [str(item) for item in (Sum(), Sum(False), Avg(False), Count(), Stats(False), Hist(3))] == [
        "sum_t", "usum_t", "uavg_t", "count_t", "ustats_t", "hist_t",
    ]  # fmt: skip


@given(st.integers(-(2**63), 2**64 - 1), st.sampled_from([1, 2, 3, 1000, 1024, 10**12]), st.integers(0, 9))
def test_decimal_numbers_are_rounded_half_away_from_zero(value: int, divisor: int, digits: int) -> None:
    kind = Fixed(divisor, digits)
    with localcontext() as context:
        context.prec = 60
        exact = Decimal(value) / divisor
        expected = exact.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
        scaled = int(expected.scaleb(digits))
    assert kind.scaled(value) == scaled
    text = fixed_text(kind)(value).decode()
    assert text == f"{expected:f}" or (expected == 0 and text == f"{abs(expected):f}")
    assert kind.number(value) == float(expected)


# ---------------------------------------------------------------------------------------------- tables
# Tables: columns of nested values, units, what makes two schemas one table.


@each_row(
    ("name", "kind", "title", "unit"),
    [
        ("pid", UINT32, "PID", ""),
        ("lat_us", INT64, "LAT(us)", "us"),
        ("lat_ns", INT64, "LAT(ns)", "ns"),
        ("max_lat_ms", UINT64, "MAX_LAT(ms)", "ms"),
        ("age_s", INT64, "AGE(s)", "s"),
        ("rss_kb", INT64, "RSS(KB)", "KB"),
        ("rss_mb", INT64, "RSS(MB)", "MB"),
        ("size_bytes", INT64, "SIZE(bytes)", "bytes"),
        ("a.lat_us", INT64, "A.LAT(us)", "us"),
        ("bytes", INT64, "BYTES", ""),
        ("_us", INT64, "_US", ""),
        ("menus", INT64, "MENUS", ""),
        ("plural_s", String(16), "PLURAL_S", ""),
        ("seen_s", BOOL, "SEEN_S", ""),
    ],
)
def test_titles_have_the_units_of_numbers(name: str, kind: Type, title: str, unit: str) -> None:
    column = Column.of(name, kind)
    assert (column.title, column.unit) == (title, unit)


def test_members_of_records_and_tuples_are_columns() -> None:
    inner = Record(("x", "y"), (INT8, Tuple((BOOL, INT64))))
    schema = TableSchema.of(["a", "b", "c.d"], [UINT32, inner, String(4)])
    assert schema.names == ("a", "b.x", "b.y.0", "b.y.1", "c.d")
    assert [column.type for column in schema.columns] == [UINT32, INT8, BOOL, INT64, String(4)]
    assert TableSchema.of([""], [inner]).names == ("x", "y.0", "y.1")
    assert TableSchema.of(["e"], [Tuple(())]).names == ("e",)


def test_joined_values_share_a_table_whatever_their_parts() -> None:
    first, second = (TableSchema.of(["at"], [Joined(":", parts)]) for parts in ((INT8, INT8), (String(4),)))
    assert first.shape == second.shape
    assert first.joined(first).columns[0].type == first.columns[0].type
    mixed = first.joined(second)
    assert mixed.columns[0].type == JOINED_TEXTS
    assert mixed.joined(first) == mixed


def test_statements_of_one_shape_share_a_table() -> None:
    """How wide integers and strings are makes no difference, names, their order and kinds of values do."""
    first = TableSchema.of(["op", "n"], [String(5), UINT8])
    wider = TableSchema.of(["op", "n"], [String(64), INT32])
    others = [
        TableSchema.of(["n", "op"], [UINT8, String(5)]),
        TableSchema.of(["op", "m"], [String(5), UINT8]),
        TableSchema.of(["op", "n"], [String(5), BOOL]),
        TableSchema.of(["op"], [String(5)]),
    ]
    tables = row_tables(enumerate([first, others[0], wider, *others[1:]], 10))
    assert [table.number for table in tables.values()] == [1, 2, 1, 3, 4, 5]
    assert list(tables) == [10, 11, 12, 13, 14, 15]
    assert tables[10] is tables[12]
    assert [column.type for column in tables[10].schema.columns] == [String(64), INT32]


@pytest.mark.parametrize(
    ("one", "other", "joined"),
    [
        (UINT8, UINT64, UINT64),
        (INT8, INT32, INT32),
        (UINT8, INT32, INT32),
        (UINT32, INT32, INT64),
        (INT64, UINT8, INT64),
        (UINT64, INT64, INT64),
    ],
)
def test_integers_of_one_column_become_as_wide_as_needed(one: Int, other: Int, joined: Int) -> None:
    for first, second in ((one, other), (other, one)):
        schema = TableSchema.of(["n"], [first]).joined(TableSchema.of(["n"], [second]))
        assert schema.columns[0].type == joined


def test_enums_are_told_apart_by_name() -> None:
    state, colour = Enum("state", 4, False, (("ON", 1),)), Enum("colour", 4, False, (("RED", 1),))
    assert TableSchema.of(["a"], [state]).shape != TableSchema.of(["a"], [colour]).shape


def test_columns_of_maps() -> None:
    def names(columns: tuple[Column, ...]) -> list[str]:
        return [column.name for column in columns]

    pair, record = Tuple((UINT32, String(16))), Record(("pid", "comm"), (UINT32, String(16)))
    assert names(key_columns(None)) == []
    assert names(key_columns(UINT32)) == ["key"]
    assert names(key_columns(pair)) == ["key1", "key2"]
    assert names(key_columns(record, ("a", "b"))) == names(key_columns(record)) == ["pid", "comm"]
    assert names(key_columns(UINT32, ("str args.name",))) == ["str_args_name"]
    assert names(key_columns(pair, ("pid", ""))) == ["pid", "key2"]
    assert names(key_columns(pair, ("flags", "flags"))) == ["flags", "key2"]
    assert names(key_columns(pair, ('"waker"', "key1"))) == ["key1", "key2"], "what is quoted is a value"
    assert names(key_columns(Tuple((pair, INT8)), ("a", "b"))) == ["key1.0", "key1.1", "key2"]
    assert names(key_columns(Tuple((pair, INT8)))) == ["key1.0", "key1.1", "key2"]
    assert names(value_columns("@a", INT64)) == names(value_columns("@a", Count())) == ["@a"]
    assert names(value_columns("@a", Stats())) == ["@a.count", "@a.average", "@a.total"]
    assert names(value_columns("@a", Hist())) == ["@a.min", "@a.max", "@a.count"]
    assert names(value_columns("@a", TSeries())) == ["@a.start", "@a.value"]
    assert names(value_columns("@", pair)) == ["@.0", "@.1"]
    assert names(value_columns("@", record)) == ["@.pid", "@.comm"]


@each_row(
    ("name", "unit"),
    [
        ("@usecs", "us"), ("@nsecs", "ns"), ("@total_msecs", "ms"), ("@lat_us", "us"), ("@bytes", "bytes"),
        ("@read_bytes", "bytes"), ("@kb", "KB"), ("@wait_s", "s"), ("@s", ""), ("@", ""), ("@status", ""),
        ("@msecs_seen", ""),
    ],
)  # fmt: skip
def test_units_of_maps(name: str, unit: str) -> None:
    assert map_unit(name) == unit
