"""How differences of snapshots print."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytrace.core import types
from pytrace.results.difference import Difference, difference
from pytrace.results.formats import difference_forms
from pytrace.results.values import Value
from tests.support.snapshots import COUNT, STRING, map_data, run, snapshot
from tests.support.zone import zone


def compared(kind: types.Type, before: Value | None, after: Value | None) -> Difference:
    """The key ``k`` of a map; None is a key that is not there."""
    first, second = ({} if value is None else {"k": value} for value in (before, after))
    return difference(
        snapshot(map_data("@", STRING, kind, first)), snapshot(map_data("@", STRING, kind, second), of=run("run-2"))
    )


def text_of(found: Difference) -> bytes:
    return b"".join(difference_forms.text(found))


def lines_of(found: Difference) -> bytes:
    return b"".join(difference_forms.json_lines(found))


@pytest.mark.parametrize(
    ("kind", "before", "after", "text"),
    [
        (COUNT, 3, 9, "@[k]: +6 (3 → 9)\n"),
        (COUNT, None, 2, "@[k]: +2 (new)\n"),
        (COUNT, 4, None, "@[k]: -4 (was 4)\n"),
        (STRING, "a", "b", "@[k]: a → b\n"),
        (STRING, None, "b", "@[k]: b (new)\n"),
        (STRING, "a", None, "@[k]: removed (was a)\n"),
        (types.Avg(), (10, 2), (40, 4), "@[k]: +5 (5 → 10; count +2)\n"),
        (types.Avg(), None, (40, 4), "@[k]: +10 (new; count +4)\n"),
        (types.Stats(), (10, 2), (-40, 4), "@[k]: count +2 (2 → 4), average -15 (5 → -10), total -50 (10 → -40)\n"),
        (types.Min(), None, 7, "@[k]: 7 (new)\n"),
        (types.TSeries(10**9, 5, "avg"), {1: (6, 2)}, {1: (9, 1), 2: (1, 1)},
         "@[k]:\n1970-01-01T00:00:01.000000000 +6 (3 → 9)\n1970-01-01T00:00:02.000000000 +1 (- → 1)\n\n"),
    ],
)  # fmt: skip
def test_text_says_the_change_and_both_values(kind: types.Type, before: Value, after: Value, text: str) -> None:
    with zone("UTC"):
        assert text_of(compared(kind, before, after)).decode() == text


def test_buckets_that_gained_and_lost_have_bars() -> None:
    found = text_of(compared(types.LHist(0, 9, 3), {1: 4}, {1: 2, 2: 1})).decode().splitlines()
    assert found[0] == "@[k]:"
    assert found[1].split() == ["[0,", "3)", "-2", "|" + "-" * 52 + "|"]
    assert found[2].split()[:4] == ["[3,", "6)", "+1", "|" + "+" * 26]


@pytest.mark.parametrize(
    ("kind", "before", "after", "entry"),
    [
        (COUNT, 3, 9, {"before": 3, "after": 9, "change": 6}),
        (COUNT, None, 9, {"before": None, "after": 9, "change": 9}),
        (STRING, "a", "b", {"before": "a", "after": "b", "change": None}),
        (types.Avg(), (10, 2), (40, 4), {"before": 5, "after": 10, "change": 5}),
        (types.Stats(), (10, 2), None, {
            "before": {"count": 2, "average": 5, "total": 10}, "after": None,
            "change": {"count": -2, "average": -5, "total": -10},
        }),
        (types.LHist(0, 9, 3), {1: 4}, {1: 2}, {
            "before": [{"min": 0, "max": 2, "count": 4}], "after": [{"min": 0, "max": 2, "count": 2}],
            "change": [{"min": 0, "max": 2, "count": -2}],
        }),
    ],
)  # fmt: skip
def test_json_has_before_after_and_change(kind: types.Type, before: Value, after: Value, entry: Any) -> None:
    (line,) = lines_of(compared(kind, before, after)).splitlines()
    assert json.loads(line) == {"type": "difference", "data": {"@": {"k": entry}}}


def test_the_largest_change_is_the_last_and_losses_follow() -> None:
    before = snapshot(map_data("@", types.INT64, COUNT, {1: 5, 2: 5, 3: 5}))
    after = snapshot(map_data("@", types.INT64, COUNT, {1: 15, 2: 4, 3: 8}), of=run("run-2"))
    after.losses = {"lost": {"begin": 2}}
    found = difference(before, after)
    assert text_of(found).decode() == (
        "@[2]: -1 (5 → 4)\n@[3]: +3 (5 → 8)\n@[1]: +10 (5 → 15)\n# lost: +2 (begin)\n"
    )
    maps, losses = map(json.loads, lines_of(found).splitlines())
    assert list(maps["data"]["@"]) == ["2", "3", "1"]
    assert losses == {"type": "difference_losses", "data": {"lost": {"begin": 2}}}


def test_nothing_is_a_line_of_text_and_none_of_json() -> None:
    found = compared(COUNT, 3, 3)
    assert text_of(found) == b"no map differs\n"
    assert lines_of(found) == b""


@pytest.mark.parametrize("key", [types.INT64, types.Tuple((STRING, STRING))])
def test_lines_of_many_keys_are_written_in_parts(key: types.Type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that may have the same text need all of them at once to be told apart."""
    texts = [("a", f"{number}") for number in range(5)] + [("a,b", ""), ("a", "b,")]
    keys: list[Any] = [*range(7)] if key is types.INT64 else texts
    maps = [map_data("@", key, COUNT, {name: number + add for number, name in enumerate(keys)}) for add in (1, 2)]
    found = difference(snapshot(maps[0]), snapshot(maps[1], of=run("run-2")))
    whole = lines_of(found)
    monkeypatch.setattr(difference_forms, "_BLOCK", 3)
    parts = list(difference_forms.json_lines(found))
    assert b"".join(parts) == whole
    assert len(parts) == (4 if key is types.INT64 else 2)
    changes = json.loads(whole)["data"]["@"]
    assert len(changes) == len(keys)
    assert {item["change"] for item in changes.values()} == {1}
