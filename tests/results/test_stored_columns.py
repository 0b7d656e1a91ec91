from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.core.diagnostics import TraceError
from pytrace.results import columns, message_pack, stored_columns
from pytrace.results.message_pack import Cursor, Memory, Packed
from pytrace.results.stored_columns import Stored, StoredEntries, StoredRows, StoredTimes

INTEGERS = st.integers(-(1 << 70), 1 << 70) | st.sampled_from([-129, -128, 127, 128, 255, 256, (1 << 64) - 1, 1 << 64])


def cursor(column: Packed) -> Cursor:
    return Cursor(Memory(message_pack.pack(column)))


@given(st.lists(INTEGERS, max_size=20), st.integers(1, 7))
def test_integers_in_blocks(values: list[int], size: int) -> None:
    at = cursor(columns.pack_integers(values))
    found = stored_columns.integers(at)
    assert found.count == len(values)
    assert found.all() == values
    blocks = list(found.blocks(size))
    assert [value for block in blocks for value in block] == values
    assert all(len(block) == size for block in blocks[:-1])
    assert at.position == at.pages.size


@given(st.lists(st.text(max_size=3) | st.just("\udcff") | st.just("x" * 300), max_size=20), st.integers(1, 7))
def test_texts_in_blocks(values: list[str], size: int) -> None:
    at = cursor(values)
    found = stored_columns.texts(at)
    assert found.all() == values
    assert [value for block in found.blocks(size) for value in block] == values
    assert at.position == at.pages.size


def test_binaries() -> None:
    found = stored_columns.binaries(cursor([b"a", b"", b"ccc"]))
    assert list(found.blocks(2)) == [[b"a", b""], [b"ccc"]]


def stored(*values: int) -> Stored[int]:
    return stored_columns.integers(cursor(columns.pack_integers(values)))


def test_tuples_and_lists() -> None:
    pairs = stored_columns.zipped((stored(1, 2, 3), stored(4, 5, 6)), 3)
    assert list(pairs.blocks(2)) == [[(1, 4), (2, 5)], [(3, 6)]]
    assert stored_columns.zipped((), 3).all() == [(), (), ()]
    assert stored_columns.split(stored(2, 0, 1), stored(7, 8, 9), 2).all() == [[7, 8], [], [9]]
    with pytest.raises(ValueError, match="differ in length"):
        stored_columns.zipped((stored(1), stored(1, 2)), 1)


@pytest.mark.parametrize(
    ("lengths", "message"),
    [((1,), "more elements"), ((3,), "end too early"), ((-1,), "list of -1"), ((9,), "list of 9")],
)
def test_lists_that_do_not_add_up(lengths: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        stored_columns.split(stored(*lengths), stored(1, 2), 4).all()


def test_numbers_of_very_many_digits_are_refused() -> None:
    with pytest.raises(ValueError, match="4000 digits"):
        stored_columns.integers(cursor(["s", ["9" * 4000]])).all()


# ---------------------------------------------------------------------------------------------- maps and tables


@contextmanager
def guard() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise TraceError(f"damaged: {error}") from None


def test_entries_are_a_mapping_that_is_read_again_and_again() -> None:
    found = StoredEntries(columns.keys(stored(5, 6, 5)), stored(1, 2, 3), guard)
    assert len(found) == 3
    assert list(found) == [5, 6, 5]
    for _ in range(2):
        assert list(found.items()) == [(5, 1), (6, 2), (5, 3)]
        assert list(found.values()) == [1, 2, 3]
    assert found[6] == 2
    assert found.get(7) is None


def test_times_that_keys_lack() -> None:
    found = StoredTimes(columns.keys(stored(5, 6, 7)), stored(10, -1, 30), guard)
    assert dict(found.items()) == {5: 10, 7: 30}
    assert list(found) == [5, 7]
    assert len(found) == 2


def test_rows_are_a_collection() -> None:
    found = StoredRows(stored(1, 2), guard)
    assert len(found) == 2
    assert list(found) == list(found) == [1, 2]
    assert 2 in found
    assert 3 not in found


def test_damage_that_is_found_late_is_reported_as_such() -> None:
    split = stored_columns.split(stored(1, 3), stored(1, 2), 4).map(len)
    with pytest.raises(TraceError, match="damaged: lists end"):
        list(StoredRows(split, guard))
