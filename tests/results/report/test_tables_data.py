from __future__ import annotations

from typing import Any

import pytest

from pytrace.core import types
from pytrace.results.difference import difference
from pytrace.results.formats.portable_forms import Printers
from pytrace.results.report import tables_data
from pytrace.results.report.document import Document
from pytrace.results.report.states import State, of_snapshots
from tests.support.snapshots import COUNT, SECOND, STRING, map_data, run, snapshot, table


def texts_of(document: Document, part: Any, rows: list[list[Any]]) -> list[list[Any]]:
    texts = document.texts.all()
    return [
        [cell if column[2] else texts[cell] for column, cell in zip(part.columns, row, strict=True)] for row in rows
    ]


def test_a_map_has_the_columns_of_csv() -> None:
    document = Document()
    key = types.Record(("comm", "cpu"), (STRING, types.INT32))
    part: Any = tables_data.map_part(
        document, Printers(), map_data("@n", key, COUNT, {("a\x01", 3): 1 << 60, ("b", -1): 2})
    )
    assert [document.texts.all()[column[0]] for column in part.columns] == ["comm", "cpu", "@n"]
    assert texts_of(document, part, part.rows) == [["a\\x01", 3, str(1 << 60)], ["b", -1, 2]]
    assert part.sort == 2


def test_stats_have_three_columns() -> None:
    part: Any = tables_data.map_part(Document(), Printers(), map_data("@", None, types.Stats(), {None: (7, 2)}))
    assert part.rows == [[2, 3, 7]]


def test_rows_keep_their_order() -> None:
    document = Document()
    rows = [(2, "b"), (1, "a")]
    part: Any = tables_data.rows_part(
        document, Printers(), table(("pid", "comm"), (types.INT32, STRING), rows), rows, "rows"
    )
    assert texts_of(document, part, part.rows) == [[2, "b"], [1, "a"]]
    assert part.sort == -1


HIST = types.Hist(0)


def test_buckets_of_histograms() -> None:
    document = Document()
    before, after = (map_data("@", STRING, HIST, {"k": counts}) for counts in ({3: 1}, {3: 2, 4: 7}))
    part: Any = tables_data.histogram_part(document, Printers(), after, before)
    assert part.buckets[0] == (None, -1, "(..., 0)")
    assert part.buckets[4] == (4, 7, "[4, 8)")
    assert (part.counts, part.before) == ([([3, 4], [2, 7])], [([3], [1])])


def test_points_of_time_series() -> None:
    type_ = types.TSeries(SECOND, 10, "sum", True)
    part: Any = tables_data.series_part(
        Document(), Printers(), map_data("@", None, type_, {None: {5: (3, 1), 7: (4, 1)}})
    )
    assert part.lines == [([5.0, 7.0], [3, 4])]


def states_of(type_: types.Type, *values: Any) -> list[State]:
    states = [
        snapshot(
            map_data("@", STRING, type_, {} if value is None else {"k": value}),
            of=run(start=100 * SECOND, end=(100 + at) * SECOND),
        )
        for at, value in enumerate(values, 1)
    ]
    return of_snapshots("@", states)


def test_a_heat_map_has_what_each_interval_added() -> None:
    part: Any = tables_data.heat_part(
        Document(), Printers(), states_of(HIST, {3: 1}, {3: 4, 5: 1}, {3: 4, 5: 1}, {3: 2})
    )
    # The last one is less: the map was cleared.
    assert part.steps == [[([3], [1]), ([3, 5], [3, 1]), ([], []), ([3], [2])]]
    assert part.starts == [100.0, 101.0, 102.0, 103.0]
    assert part.times == [101.0, 102.0, 103.0, 104.0]


@pytest.mark.parametrize(("type_", "values", "shown"), [
    (COUNT, (5, 7, 7, 2), [5, 2, 0, 2]),
    (types.INT64, (5, 7, None, 2), [5, 7, None, 2]),
    (types.Sum(True), (-5, -5, 3), [-5, 0, 8]),
    (types.Max(), (5, 9), [5, 9]),
    (types.Avg(), ((10, 2), (40, 5), (8, 1)), [5, 10, 8]),
])  # fmt: skip
def test_numbers_over_time(type_: types.Type, values: tuple[Any, ...], shown: list[int]) -> None:
    part: Any = tables_data.counter_part(Document(), Printers(), states_of(type_, *values))
    assert part.lines[0][1] == shown


@pytest.mark.parametrize(("type_", "before", "after", "rows"), [
    (COUNT, {"a": 3, "b": 1}, {"a": 9, "c": 2}, [["a", 3, 9, 6], ["b", 1, "", -1], ["c", "", 2, 2]]),
    (types.Stats(), {"a": (10, 2)}, {"a": (30, 3)}, [["a", 2, 5, 10, 3, 10, 30, 5]]),
    (STRING, {"a": "x"}, {"a": "y", "b": "z"}, [["a", "x", "y", ""], ["b", "", "z", ""]]),
])  # fmt: skip
def test_a_difference_has_both_values(type_: types.Type, before: Any, after: Any, rows: list[list[Any]]) -> None:
    sides = [snapshot(map_data("@", STRING, type_, entries)) for entries in (before, after)]
    document = Document()
    part: Any = tables_data.difference_part(document, Printers(), difference(sides[0], sides[1]).maps["@"])
    assert sorted(texts_of(document, part, part.rows), key=str) == rows
    assert document.texts.all()[part.columns[-1][0]] == "change"
