"""Merging of intervals and the graph."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytrace.core.types import TSeries
from pytrace.render import tseries
from tests.support.zone import zone


@pytest.fixture(autouse=True)
def _zone() -> Iterator[None]:
    with zone("UTC"):
        yield


@pytest.mark.parametrize(
    ("reduce", "first", "second", "expected"),
    [
        ("sum", (5, 2), (7, 1), 12),
        ("avg", (5, 2), (8, 1), 4),
        ("avg", (-5, 2), (-8, 2), -3),
        ("min", (5, 0), (7, 0), 5),
        ("max", (5, 0), (7, 0), 7),
        ("", (5, 900), (7, 800), 5),
    ],
)
def test_merging(reduce: str, first: tuple[int, int], second: tuple[int, int], expected: int) -> None:
    kind = TSeries(10, 4, reduce)
    assert tseries.merged(kind, [(3, *first), (3, *second), (0, 99, 99)]) == {2: expected}


def test_window_begins_with_the_first_value_and_ends_with_the_last_interval() -> None:
    kind = TSeries(10, 4, "sum")
    series = tseries.window(kind, {1: 5, 7: 1, 9: 2}, 10)
    assert series.points == ((70, 1), (80, None), (90, 2), (100, None))
    assert tseries.window(kind, {1: 5}, 10).points == ()


def test_graph() -> None:
    kind = TSeries(1_000_000_000, 10, "sum")
    found = tseries.text(tseries.whole(kind, [(1, -10, 0), (2, 0, 0), (4, 40, 0)])).decode()
    under = "_" * 51
    assert found.splitlines() == [
        "         -10                                                40",
        f"hh:mm:ss |{under}|",
        "00:00:00 *         .                                         | -10",
        "00:00:01 |         *                                         | 0",
        "00:00:02 |         .                                         | -",
        "00:00:03 |         .                                         * 40",
        f"         v{under}v",
        "         -10                                                40",
    ]


def test_graph_of_one_value_and_of_none() -> None:
    kind = TSeries(1_000_000, 2, "")
    lines = tseries.text(tseries.whole(kind, [(1501, 7, 1)])).decode().splitlines()
    assert lines[0].split() == ["6", "8"]
    assert lines[1].startswith("hh:mm:ss.ms ")
    assert lines[2] == "00:00:01.500 |" + " " * 25 + "*" + " " * 25 + "| 7"
    assert tseries.text(tseries.whole(kind, [])) == b"<no data>"


def test_moments_are_iso() -> None:
    assert tseries.moment(1_500_000_001) == b"1970-01-01T00:00:01.500000001"
