from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.results import file_form
from pytrace.results.merge import merge
from pytrace.results.snapshot import Print, SnapshotData
from pytrace.results.stored_columns import StoredEntries, StoredRows, StoredTimes, stored_prints
from pytrace.results.stored_document import Block, Blocks
from pytrace.results.stored_tables import Numbers, TablesReader, TablesWriter
from tests.support.snapshots import COUNT, STRING, map_data, run, snapshot


def blocks(*parts: tuple[int, Any], form: Any) -> Blocks:
    """A document of these blocks: number of rows, and columns."""
    packed = [(rows, msgspec.msgpack.encode(columns)) for rows, columns in parts]
    places = [Block(rows, len(data)) for rows, data in packed]
    return Blocks("x.pts", "map @", BytesIO(b"".join(data for _, data in packed)), 0, places, form)


def numbers(*columns: Sequence[int]) -> tuple[int, tuple[Numbers, ...]]:
    return len(columns[0]), tuple(map(Numbers.of, columns))


def test_entries_are_a_mapping_that_is_read_again_and_again() -> None:
    data = blocks(numbers([5, 6], [1, 2]), numbers([5], [3]), form=tuple[Numbers, Numbers])
    found = StoredEntries(data, TablesReader(), types.INT64, types.INT64)
    assert len(found) == 3
    assert list(found) == [5, 6, 5]
    for _ in range(2):
        assert list(found.items()) == [(5, 1), (6, 2), (5, 3)]
        assert list(found.values()) == [1, 2, 3]
    assert found[6] == 2
    assert found.get(7) is None


def test_a_map_without_keys_has_one_value() -> None:
    found = StoredEntries(blocks(numbers([7]), form=tuple[Numbers]), TablesReader(), None, types.INT64)
    assert dict(found.items()) == {None: 7}


def test_times_that_keys_lack() -> None:
    data = blocks(numbers([5, 6, 7], [0, 0, 0], [10, -1, 30]), form=tuple[Numbers, Numbers, Numbers])
    found = StoredTimes(data, TablesReader(), types.INT64, types.INT64)
    assert dict(found.items()) == {5: 10, 7: 30}
    assert list(found) == [5, 7]
    assert len(found) == 2


def test_rows_are_a_collection() -> None:
    found = StoredRows(
        blocks(numbers([1, 2]), form=tuple[Numbers]), TablesReader(), types.Record(("a",), (types.INT64,))
    )
    assert len(found) == 2
    assert list(found) == list(found) == [(1,), (2,)]
    assert (2,) in found
    assert (3,) not in found


def test_damage_that_is_found_late_is_reported_as_such() -> None:
    data = blocks(numbers([1]), (2, [["B", b"1"]]), form=tuple[Numbers])
    rows = iter(StoredRows(data, TablesReader(), types.Record(("a",), (types.INT64,))))
    assert next(rows) == (1,)
    with pytest.raises(TraceError, match="damaged or truncated: map @, block 2: 1 bytes of integers where 2"):
        next(rows)


# ---------------------------------------------------------------------------------------------- prints


def made() -> SnapshotData:
    found = snapshot(
        map_data("@h", STRING, types.Hist(0), {}), map_data("@n", None, types.Stats(), {None: (4, 2)}),
        map_data("@inner", None, COUNT, {}),
    )  # fmt: skip
    found.maps["@inner"].hidden = True
    found.prints = (
        Print("@h", 5, {"\udcff": {3: 1 << 63}, "b": {}}, cleared=True),
        Print("@n", 6, {None: (-4, 2)}, cleared=False, number=9),
        Print("@h", 7, {}, cleared=True, number=2),
    )
    return found


def test_prints_and_hidden_maps_are_read_back() -> None:
    found = made()
    again = file_form.from_bytes(file_form.to_bytes(found), "x")
    assert again.prints == found.prints
    assert [name for name, data in again.maps.items() if data.hidden] == ["@inner"]


@pytest.mark.parametrize(("change", "message"), [
    ({"map": 9}, "map 9, which there is not"), ({"map": -1}, "map -1"), ({"rows": 1 << 40}, "@h has 1099511627776 row"),
    ({"rows": -1}, "-1 rows"), ({"columns": msgspec.Raw(b"\x90")}, None), ({"map": 1}, None),
])  # fmt: skip
def test_damaged_ones_are_refused(change: dict[str, Any], message: str | None) -> None:
    found = made()
    stored = stored_prints(TablesWriter(), found)[0]
    with pytest.raises((ValueError, LookupError, msgspec.ValidationError), match=message):
        replace(stored, **change).read(TablesReader(), list(found.maps.values()))


def test_a_merge_has_none() -> None:
    other = made()
    merged = merge([made(), replace(other, runs=(run("run-2"),))])
    assert merged.prints == ()
    assert merged.maps["@inner"].hidden
