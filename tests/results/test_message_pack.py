"""What is packed is what the library of MessagePack's authors packs, and what it packs is read."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytrace.results import message_pack
from pytrace.results.message_pack import Cursor, Kind, Memory

INTEGERS = st.integers(-(1 << 63), (1 << 64) - 1) | st.sampled_from(
    [sign * (1 << bits) + more for bits in (5, 7, 8, 15, 16, 31, 32) for sign in (1, -1) for more in (-1, 0, 1)]
)
SIZES = st.sampled_from([0, 1, 15, 16, 31, 32, 255, 256, 65535, 65536])
TEXTS = st.builds(lambda text, size: text * size, st.sampled_from(["a", "é", "\udcff"]), SIZES)
PLAIN = st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False) | TEXTS | SIZES.map(bytes)
NAMES = st.text("abc", max_size=3)
VALUES: st.SearchStrategy[Any] = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=20) | st.dictionaries(NAMES, inner, max_size=17), max_leaves=30
)


class Pages:
    """A document that counts what is read of it."""

    def __init__(self, data: bytes, size: int | None = None) -> None:
        self.data = data
        self.size = len(data) if size is None else size
        self.most = 0

    def read(self, start: int, size: int) -> bytes:
        self.most = max(self.most, size)
        return self.data[start : start + size]


def reference(value: object) -> bytes:
    packed: bytes = msgpack.packb(value, unicode_errors="surrogateescape")
    return packed


@settings(max_examples=200, deadline=None)
@given(VALUES)
def test_documents_are_those_of_the_library(value: Any) -> None:
    data = message_pack.pack(value)
    assert data == reference(value)
    cursor = Cursor(Memory(data))
    assert cursor.value() == value
    assert cursor.position == len(data)
    cursor = Cursor(Memory(data))
    cursor.skip()
    assert cursor.position == len(data)


@pytest.mark.parametrize("value", [1 << 64, -(1 << 63) - 1])
def test_integers_of_more_than_64_bits_are_refused(value: int) -> None:
    with pytest.raises(OverflowError, match="64 bits"):
        message_pack.pack(value)


@pytest.mark.parametrize("window", [8, 64, 1 << 16])
@given(st.lists(st.text(max_size=3) | st.sampled_from([31, 32, 255, 256, 300]).map("x".__mul__), max_size=60))
@settings(max_examples=60, deadline=None)
def test_texts_are_read_some_at_a_time(window: int, texts: list[str]) -> None:
    data = reference([*texts, 5])
    before, message_pack.WINDOW = message_pack.WINDOW, window
    try:
        cursor = Cursor(Memory(data))
        assert cursor.expect(Kind.LIST) == len(texts) + 1
        half = len(texts) // 2
        found = cursor.texts(half) + cursor.texts(len(texts) - half)
        assert [text.decode() for text in found] == texts
        assert cursor.value() == 5
        cursor = Cursor(Memory(data + b"\7"))
        cursor.skip()
        assert cursor.value() == 7
    finally:
        message_pack.WINDOW = before


def test_members_are_found_by_name() -> None:
    data = reference({"a": [["x"] * 100] * 10, "b": 5, "c": {"d": b"1"}})
    found = Cursor(Memory(data)).members()
    assert list(found) == ["a", "b", "c"]
    assert Cursor(Memory(data), found["b"]).value() == 5
    assert [cursor.value() for cursor in message_pack.cursors(Memory(data), found["a"])] == [["x"] * 100] * 10


@pytest.mark.parametrize(
    "data",
    [b"", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\x92\1",
     b"\xa2a", b"\xc1", b"\xd4\0\0", b"\xcf\0", b"\xda\0"],
)  # fmt: skip
def test_sizes_that_are_claimed_are_not_believed(data: bytes) -> None:
    pages = Pages(data)
    for read in (Cursor.value, Cursor.skip, Cursor.members, Cursor.text, lambda cursor: cursor.texts(5)):
        with pytest.raises(ValueError, match=r"ends too early|that are left|where .* should be|element of kind"):
            read(Cursor(pages))
    assert pages.most <= message_pack.WINDOW


def test_lists_in_lists_end_somewhere() -> None:
    data = b"\x91" * 5000 + b"\xc0"
    with pytest.raises(ValueError, match="deeper than 64"):
        Cursor(Memory(data)).value()
    Cursor(Memory(data)).skip()


def test_what_is_passed_over_is_not_read() -> None:
    pages = Pages(b"\x92\xc6\x40\0\0\0", size=(1 << 30) + 6 + 1)
    cursor = Cursor(pages)
    assert cursor.expect(Kind.LIST) == 2
    cursor.skip()
    assert cursor.position == (1 << 30) + 6
    assert pages.most <= message_pack.WINDOW


def test_counts_in_steps() -> None:
    assert list(message_pack.steps(10, 4)) == [4, 4, 2]
    assert list(message_pack.steps(0, 4)) == []
