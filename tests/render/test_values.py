"""Values are decoded, and kept in portable forms."""

from __future__ import annotations

import socket
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.core import types
from pytrace.core.types import INT8, INT64, UINT8, UINT64, Array, Field, Record, String, Struct, Tuple
from pytrace.render.aggregations import Average, Stats
from pytrace.render.forms import Decoders, TextForms
from pytrace.render.histogram import Bucket, Histogram
from pytrace.render.tseries import Series
from pytrace.render.value_kind import Held, ValueKind, itself
from pytrace.render.values import KINDS, file_number, value_kind_of
from pytrace.results import columns
from pytrace.results.formats.portable_forms import PortableNames
from pytrace.results.snapshot import StackTrace
from tests.support import encode as value_types_encode
from tests.support.captured import Places, forms
from tests.support.encode import Frame, Run, encode
from tests.support.rows import each_row

# ---------------------------------------------------------------------------------------------- decoders
# Decoders give back what was encoded, for every type and nesting.


COLOUR = types.Enum("colour", 4, False, (("RED", 0), ("GREEN", 5)))


def integers(width: int, signed: bool) -> st.SearchStrategy[tuple[types.Type, Any]]:
    kind = types.Int(width, signed)
    return st.tuples(st.just(kind), st.integers(kind.low, kind.high))


STRINGS = st.binary(max_size=15).filter(lambda data: b"\0" not in data)

LEAVES = st.one_of(
    *(integers(width, signed) for width in (1, 2, 4, 8) for signed in (True, False)),
    st.tuples(st.just(types.BOOL), st.booleans()),
    st.tuples(st.just(COLOUR), st.sampled_from((0, 5, 7))),
    st.tuples(st.just(types.Pointer(types.VOID)), st.integers(0, 2**64 - 1)),
    st.tuples(st.just(types.String(16)), STRINGS),
    st.tuples(st.just(types.Buffer(10)), st.binary(max_size=10)),
    st.tuples(st.just(types.KSym()), st.integers(0, 2**64 - 1)),
    st.tuples(st.just(types.USym()), st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1))),
    st.tuples(st.just(types.Mac()), st.binary(min_size=6, max_size=6)),
    st.tuples(st.just(types.Inet()), st.tuples(st.just(2), st.binary(min_size=4, max_size=4))),
    st.tuples(st.just(types.Inet()), st.tuples(st.just(10), st.binary(min_size=16, max_size=16))),
    st.tuples(st.just(types.Fixed(1000, 3)), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just(types.Fixed(7, 0, False)), st.integers(0, 2**64 - 1)),
    st.tuples(st.just(types.Joined(":", (types.INT8, types.INT64))), st.tuples(st.integers(-128, 127), st.just(5))),
    st.tuples(st.just(types.Username()), st.integers(0, 2**64 - 1)),
    st.tuples(st.just(types.InterfaceName()), st.integers(0, 2**64 - 1)),
    st.tuples(st.just(types.NetworkNamespace()), st.integers(0, 2**64 - 1)),
    st.tuples(
        st.just(types.Stack(False, 5)),
        st.lists(st.integers(0, 2**64 - 1), max_size=5).map(lambda frames: (0, tuple(frames), 0)),
    ),
    st.just((types.Stack(True, 5), (7, (), -14))),
)


def is_text(kind: types.Type) -> bool:
    return isinstance(kind, types.Array) and kind.element == types.INT8


def nested(inner: st.SearchStrategy[tuple[types.Type, Any]]) -> st.SearchStrategy[tuple[types.Type, Any]]:
    members = st.lists(inner, max_size=4)

    def as_tuple(parts: list[tuple[types.Type, Any]]) -> tuple[types.Type, Any]:
        return types.Tuple(tuple(kind for kind, _ in parts)), tuple(value for _, value in parts)

    def as_record(parts: list[tuple[types.Type, Any]]) -> tuple[types.Type, Any]:
        names = tuple(f"m{index}" for index in range(len(parts)))
        return types.Record(names, tuple(kind for kind, _ in parts)), tuple(value for _, value in parts)

    def as_array(part: tuple[types.Type, Any], count: int) -> tuple[types.Type, Any]:
        return types.Array(part[0], count), (part[1],) * count

    def as_struct(parts: list[tuple[types.Type, Any]]) -> tuple[types.Type, Any]:
        # Character arrays in structs are text.
        parts = [(kind, value) for kind, value in parts if not is_text(kind)]
        row = types.Tuple(tuple(kind for kind, _ in parts))
        fields = tuple(
            types.Field(f"f{index}", kind, offset)
            for index, (kind, offset) in enumerate(zip(row.members, row.offsets, strict=True))
        )
        return types.Struct("struct", "s", row.size, fields), tuple(value for _, value in parts)

    return st.one_of(
        members.map(as_tuple),
        members.map(as_record),
        st.builds(as_array, inner, st.integers(0, 3)),
        members.map(as_struct),
    )


VALUES = st.recursive(LEAVES, nested, max_leaves=8)


@given(VALUES, st.integers(0, 9))
def test_decoding_gives_back_what_was_encoded(case: tuple[types.Type, Any], offset: int) -> None:
    kind, value = case
    memory = b"\xaa" * offset + encode(kind, value) + b"\xbb" * 3
    decode = Decoders(b"..").decoder(kind)
    assert decode(memory, offset) == value
    assert decode(memoryview(memory), offset) == value


@given(VALUES)
def test_a_type_that_went_through_a_file_decodes_the_same(case: tuple[types.Type, Any]) -> None:
    kind, value = case
    again = types.settled(kind)
    assert Decoders().decoder(again)(encode(kind, value), 0) == value


def test_ends_of_strings_and_buffers() -> None:
    some = Decoders(b"..", max_strlen=5)
    assert some.decoder(types.String(4))(b"abcd", 0) == b"abcd"
    assert some.decoder(types.String(5))(b"abcde", 0) == b"abcde.."
    decode = Decoders(b"..").decoder(types.String(4))
    assert decode(b"abcd", 0) == b"abcd.."
    assert decode(b"abc\0", 0) == b"abc"
    assert decode(b"\0bcd", 0) == b""
    assert Decoders(b"").decoder(types.String(4))(b"abcd", 0) == b"abcd"
    decode = Decoders().decoder(types.Buffer(4))
    assert decode(b"\2\0\0\0abcd", 0) == b"ab"
    assert decode(b"\xff\0\0\0abcdefgh", 0) == b"abcd"


def test_bitfields() -> None:
    fields = (
        types.Field("a", types.UINT32, 0, 0, 3),
        types.Field("b", types.INT32, 0, 3, 5),
        types.Field("c", types.UINT32, 0, 8, 13),
        types.Field("d", types.UINT64, 4, 30, 20),
        types.Field("e", types.BOOL, 0, 31, 1),
    )
    kind = types.Struct("struct", "bits", 16, fields)
    value = (5, -16, 8191, 1 << 19, True)
    assert Decoders().decoder(kind)(encode(kind, value), 0) == value


def test_anonymous_members_appear_in_place() -> None:
    union = types.Struct("union", "", 4, (types.Field("u", types.INT32, 0), types.Field("v", types.INT8, 0)))
    kind = types.Struct("struct", "out", 12, (types.Field("a", types.INT32, 0), types.Field("", union, 4),
                                              types.Field("z", types.INT32, 8)))  # fmt: skip
    memory = encode(types.Tuple((types.INT32, types.INT32, types.INT32)), (1, 258, 3))
    assert [field.name for field in types.named_fields(kind)] == ["a", "u", "v", "z"]
    assert Decoders().decoder(kind)(memory, 0) == (1, 258, 2, 3)


def test_equal_looking_anonymous_structs_keep_their_own_fields() -> None:
    one = types.Struct("struct", "", 4, (types.Field("a", types.INT32, 0),))
    two = types.Struct("struct", "", 4, (types.Field("a", types.UINT8, 0),))
    assert one == two
    some = Decoders()
    assert some.decoder(one)(b"\1\1\0\0", 0) == (257,)
    assert some.decoder(two)(b"\1\1\0\0", 0) == (1,)


def test_numbers_at_any_nesting() -> None:
    kind = types.Int(16, True)
    assert Decoders().decoder(kind)(encode(kind, -(1 << 100)), 0) == -(1 << 100)
    kind = types.Tuple((types.INT64, types.String(4), types.Record(("a",), (types.INT32,)), types.BOOL))
    assert value_kind_of(kind).divided(10)((-25, b"ab", (39,), True)) == (-2, b"ab", (3,), True)


# ---------------------------------------------------------------------------------------------- numbers in files


WORDS = "0.52 1.5 -2.25 7/146 1e400 4194304\n"


@pytest.mark.parametrize(
    ("word", "digits", "value"),
    [(1, 2, 52), (2, 2, 150), (3, 1, -22), (4, 2, 0), (5, 0, 10**400), (6, 0, 4194304), (7, 2, 0)],
)
def test_words(tmp_path: Path, word: int, digits: int, value: int) -> None:
    path = tmp_path / "words"
    path.write_text(WORDS)
    assert file_number(str(path), word, 10**digits) == value


def test_no_file_is_zero(tmp_path: Path) -> None:
    assert file_number(str(tmp_path / "none"), 1, 1) == 0
    path = tmp_path / "bytes"
    path.write_bytes(b"\xff\xfe\n")
    assert file_number(str(path), 1, 1) == 0


def test_values_are_read_when_they_are_decoded(tmp_path: Path) -> None:
    path = tmp_path / "words"
    kind = types.Fixed(100, 2, True, str(path), 1)
    decode = Decoders().decoder(kind)
    for text, value in (("0.5", 50), ("3.25", 325)):
        path.write_text(text)
        assert decode(bytes(8), 0) == value
    assert Decoders().convert(kind)[0] == "8s", "not as the number that was sent"


# ---------------------------------------------------------------------------------------------- forms
# Makers: a form is made once for each type, by its row.


def test_forms_are_made_once() -> None:
    made = TextForms(PortableNames())
    assert made.form(types.INT64) is made.form(types.INT64)
    first, second = types.Struct("struct", "", 8, ()), types.Struct("struct", "", 8, ())
    assert first == second
    assert made.form(first) is not made.form(second), "anonymous structs compare equal"


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (types.BOOL, "?"), (types.INT8, "b"), (types.UINT32, "I"), (types.Pointer(types.VOID), "Q"),
        (types.Count(), "Q"), (types.Fixed(10, 1, True), "q"), (types.KSym(), "Q"),
    ],
)  # fmt: skip
def test_numbers_are_fields_of_structures(kind: types.Type, code: str) -> None:
    assert Decoders().convert(kind) == (code, None)


def test_python_programs_get_numbers_at_any_nesting() -> None:
    fixed = types.Fixed(100, 2, True)
    kind = types.Tuple((types.INT64, types.Record(("a",), (fixed,))))
    assert value_kind_of(kind).python()((1, (150,))) == (1, (fixed.number(150),))
    plain = (1, 2)
    assert value_kind_of(types.Tuple((types.INT64, types.INT64))).python()(plain) is plain


def test_restored_values_decode_as_before() -> None:
    assert value_kind_of(types.Tuple((types.String(4), types.Inet()))).restored()(("a", "127.0.0.1")) == (
        b"a", (types.AF_INET, bytes((127, 0, 0, 1))),
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------- portable
# Portable values of every type.


PAIR = Struct(
    "struct", "pair", 24,
    (
        Field("x", types.Int(4, True), 0),
        Field("flags", types.Int(4, False), 4, 3, 5),
        Field("", Struct("union", "", 8, (Field("a", UINT64, 0), Field("b", UINT8, 0))), 8),
        Field("name", Array(INT8, 8), 16),
    ),
)  # fmt: skip

PORTABLE_VALUES: list[tuple[types.Type, Any, Any]] = [
    (types.BOOL, True, True),
    (INT64, -5, -5),
    (types.DOUBLE, 2.5, 2.5),
    (types.FLOAT, 0.10000000149011612, 0.10000000149011612),
    (types.Enum("e", 4, False, (("A", 1),)), 1, 1),
    (types.Pointer(types.VOID), 0xFFFF_8000_0000_0000, 0xFFFF_8000_0000_0000),
    (String(8), b"ab", "ab"),
    (String(8), b"a\xffb", "a\udcffb"),
    (types.Buffer(8), b"\0\1\xff", b"\0\1\xff"),
    (Array(UINT8, 3), (1, 2, 3), (1, 2, 3)),
    (Array(String(4), 2), (b"a", b"b"), ("a", "b")),
    (Tuple((INT64, UINT64)), (1, 2), (1, 2)),
    (Tuple((INT64, String(4))), (1, b"x"), (1, "x")),
    (Tuple((String(4),)), (b"x",), ("x",)),
    (Tuple((String(4), INT64, Tuple((String(4), INT64)))), (b"x", 1, (b"y", 2)), ("x", 1, ("y", 2))),
    (Record(("pid", "comm"), (INT64, String(4))), (1, b"x"), (1, "x")),
    (PAIR, (-1, 21, 7, 7, b"text"), (-1, 21, 7, 7, "text")),
    (types.Stack(True, 2), (7, (), 0), StackTrace(())),
    (types.KSym(), 0x1000, "do_work"),
    (types.USym(), (7, 0x9), "0x9"),
    (types.Inet(), (socket.AF_INET, bytes((127, 0, 0, 1))), "127.0.0.1"),
    (types.Mac(), bytes(range(6)), "00:01:02:03:04:05"),
    (types.Username(), 0, "root"),
    (types.InterfaceName(), 1, "lo"),
    (types.NetworkNamespace(), 5, "5"),
    (types.CgroupPath(), (1 << 62, 1), ""),
    (types.Fixed(1000, 3), -1500, -1500),
    (types.Joined(":", (types.Inet(), INT64)), ((socket.AF_INET, bytes((127, 0, 0, 1))), 80), "127.0.0.1:80"),
    (types.Count(), 1 << 63, 1 << 63),
    (types.Sum(), -7, -7),
    (types.Avg(), (10, 4), (10, 4)),
    (types.Stats(), (-10, 4), (-10, 4)),
    (types.Min(), (3, 1), 3),
    (types.Max(), (-3, 1), -3),
    (types.LHist(0, 30, 10), (0, 2, 0, 0, 1), {1: 2, 4: 1}),
    (types.TSeries(10**9, 2), ((5, 8, 70), (0, 0, 0)), {4: (8, 70)}),
]


def run() -> Run:
    return Run(symbols=Places({0x1000: [Frame("do_work", 16)]}), strings=("%Y", "nothing*"))


def converted(kind: types.Type, value: Any) -> Any:
    made = run()
    return forms(made, Places()).form(kind)(Decoders().decoder(kind)(encode(kind, value), 0))


@each_row(("kind", "value", "expected"), PORTABLE_VALUES)
def test_values(kind: types.Type, value: Any, expected: Any) -> None:
    found = converted(kind, value)
    assert found == expected
    assert type(found) is type(expected)


def test_times_are_what_they_print_as() -> None:
    found = converted(types.Timestamp(), (time.clock_gettime_ns(time.CLOCK_BOOTTIME), 0, 0))
    assert found == time.strftime("%Y")


def test_histograms_have_the_buckets_that_counted() -> None:
    kind = types.Hist(0)
    counts = [0] * kind.buckets
    counts[3], counts[-1] = 5, 1
    assert converted(kind, counts) == {3: 5, kind.buckets - 1: 1}


def test_every_type_has_a_value_here() -> None:
    tried = {type(kind) for kind, _, _ in PORTABLE_VALUES}
    assert set(types.ALL) - tried == {types.Void, types.Timestamp, types.Hist}


def test_what_is_portable_already_is_not_taken_apart() -> None:
    made = forms(run())
    for kind in (Tuple((INT64, Array(UINT8, 4))), Record(("a",), (types.Stats(),)), Array(types.BOOL, 2)):
        assert made.form(kind) is itself


@pytest.mark.parametrize(
    ("reduce", "expected"),
    [("sum", (12, 2)), ("avg", (12, 2)), ("min", (5, 1)), ("max", (7, 1)), ("", (5, 90))],
)
def test_intervals_of_all_cpus_are_one(reduce: str, expected: tuple[int, int]) -> None:
    meta = (90, 80) if not reduce else (1, 1)
    form = forms(run()).form(types.TSeries(10**9, 4, reduce))
    assert form(((11, 5, meta[0]), (11, 7, meta[1]))) == {10: expected}


def test_results_of_aggregations() -> None:
    # The ring of a CPU has room for two: what one still has of interval 1, another has overwritten with 3.
    form = forms(run()).form(types.TSeries(10**9, 2, "sum"))
    assert form(((2, 1, 1), (3, 1, 1), (3, 5, 1), (4, 5, 1))) == {2: (6, 2), 3: (5, 1)}
    average = value_kind_of(types.Avg()).python()((-7, 2))
    assert isinstance(average, Average)
    assert (average, average.total, average.count, average.mean) == (-3, -7, 2, -3.5)
    assert Average(0, 0).mean == 0.0
    assert value_kind_of(types.Stats()).python()((10, 4)) == Stats(count=4, average=2, total=10)
    for kind, value in ((types.Count(), 3), (types.String(4), "x"), (types.Tuple((types.INT64,)), (1,))):
        assert value_kind_of(kind).python()(value) is value


# ---------------------------------------------------------------------------------------------- python values
# .


def test_a_linear_histogram() -> None:
    histogram = Histogram(types.LHist(0, 10, 2), {1: 3, 3: 1})
    assert list(histogram) == [Bucket(0, 2, 3), Bucket(2, 4, 0), Bucket(4, 6, 1)]
    assert (histogram.count, len(histogram), histogram[0].count) == (4, 3, 3)
    assert 0 <= (histogram.quantile(0.5) or 0) < 2 <= 4 <= (histogram.quantile(1.0) or 0) < 6
    assert "[4, 6)" in str(histogram)
    assert repr(histogram) == "<Histogram of 4 values>"


def test_buckets_of_histograms() -> None:
    histogram = Histogram(types.LHist(0, 10, 5), {0: 1, 3: 1})
    assert [(bucket.low, bucket.high) for bucket in histogram] == [(None, 0), (0, 5), (5, 10), (10, None)]
    assert histogram.quantile(1.0) is None
    histogram = Histogram(types.LHist(0, 10, 2), {})
    assert (list(histogram), histogram.count, histogram.quantile(0.5)) == ([], 0, None)
    first, other = Histogram(types.LHist(0, 10, 2), {1: 3}), Histogram(types.LHist(0, 10, 5), {1: 3})
    assert first == Histogram(types.LHist(0, 10, 2), {1: 3})
    assert first != other
    assert len({first, Histogram(types.LHist(0, 10, 2), {1: 3}), other}) == 2


def test_a_series_has_points_in_time() -> None:
    second = 1_000_000_000
    series = Series.of(types.TSeries(second, 3), {100: (5, 1), 102: (7, 1)})
    assert series.interval == second
    assert [(point.nanoseconds // second, point.value) for point in series] == [(100, 5), (101, None), (102, 7)]
    assert series[0].start == datetime.fromtimestamp(100, UTC)


# ---------------------------------------------------------------------------------------------- value types
# One row for each value type, and what each of them must have.


def test_every_type_has_a_kind_and_a_row_in_the_tests() -> None:
    lacking = [kind.__name__ for kind in types.ALL if kind not in KINDS]
    assert not lacking, "classes of pytrace/render/values.py"
    assert set(KINDS) == set(types.ALL)
    lacking = [kind.__name__ for kind in types.ALL if kind not in value_types_encode.ROWS]
    assert not lacking, "rows of tests/support/encode.py"


@each_row("type_", types.ALL, ids=lambda kind: kind.__name__)
def test_what_snapshots_hold_has_a_way_back(type_: type[types.Type]) -> None:
    kind = KINDS[type_]
    changed = kind.portable is not ValueKind.portable
    # Stacks stay as they are in snapshots: the names of snapshots print them.
    assert (kind.restored is not ValueKind.restored) == (changed and type_ is not types.Stack), "portable and restored"


@each_row("type_", types.ALL, ids=lambda kind: kind.__name__)
def test_what_is_resolved_late_is_traced(type_: type[types.Type]) -> None:
    kind = KINDS[type_]
    if kind.held is Held.TEXT and not kind.durable:
        assert kind.traced, "a name may have control characters"


@each_row("type_", types.ALL, ids=lambda kind: kind.__name__)
def test_aggregations_merge_in_a_way_of_their_own(type_: type[types.Type]) -> None:
    kind = KINDS[type_]
    aggregation = issubclass(type_, types.Aggregate)
    own = kind.merge is not ValueKind.merge and type_ is not types.Int
    assert own is aggregation
    assert (kind.change is not ValueKind.change) is (aggregation or type_ is types.Int)
    assert (kind.join is not ValueKind.join) is (aggregation and type_ is not types.Max), "the greater value stays"
    assert kind.held in columns.ROWS, "row of pytrace/results/columns.py"
