"""Decoders give back what was encoded, for every type and nesting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytrace.core import types
from pytrace.render.decoders import file_number
from pytrace.render.forms import Decoders
from pytrace.render.value_types import divided
from tests.support.encode import encode

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
@settings(max_examples=400, deadline=None)
def test_decoding_gives_back_what_was_encoded(case: tuple[types.Type, Any], offset: int) -> None:
    kind, value = case
    memory = b"\xaa" * offset + encode(kind, value) + b"\xbb" * 3
    decode = Decoders(b"..").decoder(kind)
    assert decode(memory, offset) == value
    assert decode(memoryview(memory), offset) == value


@given(VALUES)
@settings(max_examples=200, deadline=None)
def test_a_type_that_went_through_a_file_decodes_the_same(case: tuple[types.Type, Any]) -> None:
    kind, value = case
    again = types.settled(kind)
    assert Decoders().decoder(again)(encode(kind, value), 0) == value


def test_only_the_longest_string_can_have_been_cut() -> None:
    some = Decoders(b"..", max_strlen=5)
    assert some.decoder(types.String(4))(b"abcd", 0) == b"abcd"
    assert some.decoder(types.String(5))(b"abcde", 0) == b"abcde.."


def test_a_string_without_end_shows_the_trailer() -> None:
    decode = Decoders(b"..").decoder(types.String(4))
    assert decode(b"abcd", 0) == b"abcd.."
    assert decode(b"abc\0", 0) == b"abc"
    assert decode(b"\0bcd", 0) == b""
    assert Decoders(b"").decoder(types.String(4))(b"abcd", 0) == b"abcd"


def test_a_buffer_is_as_long_as_it_says_but_not_longer_than_it_can_be() -> None:
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


def test_wide_integers_are_struct_members() -> None:
    kind = types.Int(16, True)
    assert Decoders().decoder(kind)(encode(kind, -(1 << 100)), 0) == -(1 << 100)


def test_div_reaches_numbers_at_any_nesting() -> None:
    kind = types.Tuple((types.INT64, types.String(4), types.Record(("a",), (types.INT32,)), types.BOOL))
    assert divided(kind, 10)((-25, b"ab", (39,), True)) == (-2, b"ab", (3,), True)


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
