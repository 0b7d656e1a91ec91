"""Joining two values of one map and one key."""

from __future__ import annotations

from copy import deepcopy
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytrace.core import types
from pytrace.render.value_types import ROWS
from pytrace.results import joining
from pytrace.results.joining import joiner
from pytrace.results.merge import merge
from pytrace.results.values import Value
from tests.support.portable import VALUES
from tests.support.rows import each_row
from tests.support.snapshots import COUNT, STRING, map_data, run, snapshot

U64_MAX = (1 << 64) - 1


@each_row(
    ("kind", "first", "second", "both"),
    [
        (COUNT, U64_MAX, 2, 1),
        (types.Sum(True), (1 << 63) - 1, 1, -(1 << 63)),
        (types.Sum(False), 3, 4, 7),
        (types.Avg(True), (-5, 2), (3, 1), (-2, 3)),
        (types.Stats(False), (U64_MAX, 1), (1, U64_MAX), (0, 0)),
        (types.Min(), -5, 3, -5),
        (types.Max(), -5, 3, 3),
        (types.Hist(), {1: 5, 2: U64_MAX}, {2: 1, 4: 2}, {1: 5, 2: 0, 4: 2}),
        (types.LHist(0, 9, 1), {1: 5}, {}, {1: 5}),
        (types.TSeries(10, 5, "sum"), {1: (5, 1)}, {1: (2, 3), 2: (1, 1)}, {1: (7, 4), 2: (1, 1)}),
        (types.TSeries(10, 5, "min"), {1: (5, 1)}, {1: (2, 3)}, {1: (2, 4)}),
        (types.TSeries(10, 5, ""), {1: (5, 30)}, {1: (9, 20)}, {1: (5, 30)}),
        (STRING, "a", "b", "b"),
        (types.Tuple((types.INT64, STRING)), (2, "a"), (1, "b"), (2, "a")),
    ],
)
def test_each_type_joins_in_its_way(kind: types.Type, first: Value, second: Value, both: Value) -> None:
    before = deepcopy((first, second))
    for one, other in permutations((first, second)):
        assert joiner(kind)(one, other) == both
    assert (first, second) == before


def test_aggregations_have_a_row_and_plain_values_none() -> None:
    for kind, row in ROWS.items():
        assert (row.merging in joining.ROWS) is (kind in types.AGGREGATIONS), kind


def test_a_value_that_has_no_other_is_of_the_type_of_both() -> None:
    assert joiner(types.Sum(True))(None, U64_MAX) == -1
    assert joiner(types.Hist())(None, {1: 3}) == {1: 3}
    assert joiner(types.TSeries(10, 5, "sum"))(None, {1: (U64_MAX, 1)}) == {1: (-1, 1)}
    assert joiner(types.Min())(None, 5) == 5
    assert joiner(STRING)(None, "a") == "a"


@pytest.mark.parametrize("name", VALUES)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_two_values_join_as_two_maps_do(name: str, data: st.DataObject) -> None:
    kinds, values = VALUES[name]
    first, second = data.draw(values), data.draw(values)
    before = deepcopy((first, second))
    both = joiner(kinds[0])(first, second)
    end = run().end
    found = merge([
        snapshot(map_data("@", None, kinds[0], {None: value}), of=run(f"run-{number}", end=end))
        for number, value in enumerate((first, second))
    ])
    assert found.maps["@"].entries == {None: both}
    assert (first, second) == before
