"""Maps that are too large: the largest entries stay, and the bound of the error holds."""

from __future__ import annotations

import random

import pytest

from pytrace.core import types
from pytrace.core.types import Type
from pytrace.remote.answer import Answer
from pytrace.remote.top_keys import BOUND, LEFT_OUT, fitting, trimmed, warnings
from pytrace.results import file_form
from pytrace.results.merge import merge
from pytrace.results.snapshot import SnapshotData
from pytrace.results.values import Portable, Value
from tests.support.snapshots import COUNT, STRING, map_data, run, snapshot, table

NUMBER = types.Int(8, False)


@pytest.mark.parametrize(
    ("type_", "entries", "kept", "bound"),
    [
        (COUNT, {"a": 5, "b": 9, "c": 7}, {"b"}, 7),
        (types.Sum(), {"a": -9, "b": 3, "c": 8}, {"a"}, 8),
        (types.Avg(), {"a": (100, 2), "b": (1, 5), "c": (1, 3)}, {"b"}, 3),
        (types.Stats(), {"a": (100, 2), "b": (1, 5)}, {"b"}, 2),
        (types.Hist(), {"a": {1: 5, 2: 5}, "b": {9: 9}}, {"a"}, 9),
        (types.Max(), {"a": -5, "b": 3}, {"b"}, 0),
        (types.Min(), {"a": -5, "b": 3}, {"a"}, 0),
    ],
)
def test_the_largest_stay(type_: Type, entries: dict[Portable, Value], kept: set[str], bound: int) -> None:
    made = trimmed(snapshot(map_data("@", STRING, type_, entries)), 1)
    assert set(made.maps["@"].entries) == kept
    assert made.losses.get(LEFT_OUT) == {"@": len(entries) - 1}
    assert made.losses.get(BOUND, {}).get("@", 0) == bound


def test_nothing_is_left_out_of_what_is_small_enough() -> None:
    small = snapshot(map_data("@", STRING, COUNT, {"a": 5}), map_data("@n", None, COUNT, {None: 3}))
    assert trimmed(small, 1) == small
    assert warnings(small) == []


def of_host(number: int, chance: random.Random) -> SnapshotData:
    counts: dict[Portable, Value] = {f"k{chance.randrange(300)}": chance.randrange(1, 1000) for _ in range(60)}
    return snapshot(map_data("@", STRING, COUNT, counts), of=run(f"run-{number}"))


def test_the_bound_holds_for_answers_of_many_hosts() -> None:
    """Trimmed on the hosts, in each level of the tree, and at last."""
    chance = random.Random(5)
    hosts = [of_host(number, chance) for number in range(100)]
    exact = merge(hosts).maps["@"].entries
    answer = Answer(None, most=50)
    for number, host in enumerate(hosts):
        answer.add(f"web{number}", trimmed(host, 40))
    found = answer.result()
    bound = found.losses[BOUND]["@"]
    entries = found.maps["@"].entries
    assert len(entries) == 50
    assert all(0 <= exact[key] - value <= bound for key, value in entries.items())  # type: ignore[operator]
    assert all(value <= bound for key, value in exact.items() if key not in entries)  # type: ignore[operator]
    (line,) = warnings(found)
    assert line.endswith(f" left out, as the answer was too large; numbers may be wrong by {bound} at most")


def test_a_snapshot_that_fits_a_message() -> None:
    chance = random.Random(1)
    counts: dict[Portable, Value] = {f"{chance.random()}": number for number in range(20_000)}
    rows = table(["n"], [NUMBER], [(chance.randrange(1 << 60),) for number in range(20_000)])
    large = snapshot(map_data("@", STRING, COUNT, counts), map_data("@n", None, COUNT, {None: 3}), tables=(rows,))
    whole = file_form.to_bytes(large)
    assert fitting(large, len(whole)) == whole
    data = fitting(large, 50_000)
    assert 25_000 < len(data) <= 50_000
    small = file_form.from_bytes(data, "x")
    assert small.losses[LEFT_OUT]["@"] == 20_000 - len(small.maps["@"].entries)
    assert min(small.maps["@"].entries.values()) == small.losses[BOUND]["@"] + 1  # type: ignore[type-var,operator]
    assert small.maps["@n"].entries == {None: 3}
    (kept,) = small.tables
    (newest,) = kept.rows.values()
    assert list(newest) == list(next(iter(rows.rows.values())))[-len(newest) :]
    assert kept.dropped == 20_000 - len(newest)
