"""Columns of integers, and the tables of strings, frames and stacks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.results.stored_tables import Numbers, TablesReader, TablesWriter, raw, text
from tests.support.snapshots import stack

INTEGERS = st.integers(-(1 << 70), 1 << 70) | st.sampled_from([-129, -128, 127, 128, 255, 256, (1 << 64) - 1, 1 << 64])


@given(st.lists(INTEGERS, max_size=20))
def test_integers(values: list[int]) -> None:
    assert Numbers.of(values).values(len(values)) == values


def test_columns_are_as_narrow_as_their_numbers() -> None:
    for most, size in ((255, 1), (256, 2), (70_000, 4), (1 << 32, 8), (1 << 64, 16)):
        assert Numbers.of([0, most]).data == bytes(size) + most.to_bytes(size, "little")
    with pytest.raises(OverflowError, match="128 bits"):
        Numbers.of([1 << 128])


@given(st.binary())
def test_texts_keep_all_bytes(data: bytes) -> None:
    assert raw(text(data)) == data


def test_stacks_of_which_parts_are_missing_are_refused() -> None:
    writer = TablesWriter()
    writer.stack(stack("f", "main"))
    (frames, pack_frames), (stacks, pack_stacks), (strings, pack_strings) = writer.tables
    frame, one, names = pack_frames(list(frames)), pack_stacks(list(stacks)), pack_strings(list(strings))
    assert isinstance(one, tuple)
    assert isinstance(names, list)

    def read(strings: object, frames: object, stacks: object) -> object:
        reader = TablesReader()
        reader.add_strings(strings, len(strings))  # type: ignore[arg-type]
        reader.add_frames(frames, 2)  # type: ignore[arg-type]
        reader.add_stacks(stacks, 1)  # type: ignore[arg-type]
        return reader.stack(0)

    assert read(names, frame, one) == stack("f", "main")
    for changed in (
        (Numbers("B", b"\3"), *one[1:]),
        (Numbers("b", b"\xff"), *one[1:]),
        (one[0], Numbers("B", b"\0\7"), *one[2:]),
        (one[0], Numbers("b", b"\0\xff"), *one[2:]),
        (*one[:2], Numbers("B", b""), one[3]),
        (*one[:3], Numbers("B", b"\x63")),
    ):
        with pytest.raises((ValueError, LookupError, OverflowError)):
            read(names, frame, changed)
    with pytest.raises(LookupError):
        read([], frame, one)
    with pytest.raises(ValueError, match="a frame that there is not"):
        TablesReader().add_stacks(one, 1)  # type: ignore[arg-type]
