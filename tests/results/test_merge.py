"""Snapshots of several runs: merged, joined, compared, sorted outside of memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from copy import deepcopy
from itertools import permutations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pytrace.core import types
from pytrace.core.costs import ProbeCost, RunCost
from pytrace.core.diagnostics import TraceError
from pytrace.render.values import value_kind_of
from pytrace.results import external_sort, file_form
from pytrace.results.difference import Change, ManyChanges, difference
from pytrace.results.formats import text_and_json
from pytrace.results.merge import ManyEntries, merge
from pytrace.results.snapshot import Frame, MapData, SnapshotData, StackTrace, Value
from tests.support.examples import examples
from tests.support.portable import I64, KEYS, U64, VALUES, maps, snapshots
from tests.support.rows import each_row
from tests.support.snapshots import COUNT, STRING, map_data, run, snapshot, stack, stored, table

# ---------------------------------------------------------------------------------------------- merge
# .


U64_MAX = (1 << 64) - 1


def test_samples_name_every_type() -> None:
    shown = {type(kind) for kinds, _ in VALUES.values() for kind in kinds}
    assert shown == set(types.ALL) - {types.Void}


# ---------------------------------------------------------------------------------------------- laws


@examples(60)
@given(snapshots(3))
def test_order_and_grouping_do_not_matter(found: list[SnapshotData]) -> None:
    before = deepcopy(found)
    expected = merge(found)
    for order in permutations(found):
        assert merge(order) == expected
        first, second, third = order
        assert merge([merge([first, second]), third]) == expected
        assert merge([first, merge([second, third])]) == expected
    assert merge([merge([item]) for item in found]) == expected
    assert found == before


@pytest.mark.parametrize("name", VALUES)
@examples(15)
@given(data=st.data())
def test_order_does_not_matter_for_any_type(name: str, data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(KEYS))
    ends = data.draw(st.lists(st.integers(4, 6), min_size=3, max_size=3))
    found = [
        snapshot(item, of=run(f"run-{number}", start=1, end=ends[number]))
        for number, item in enumerate(data.draw(maps("@", key, VALUES[name], 3)))
    ]
    expected = merge(found)
    for first, second, third in permutations(found):
        assert merge([merge([first, second]), third]) == expected
        assert merge([third, merge([first, second])]) == expected


def test_nothing_merges_to_nothing() -> None:
    assert merge([]) == SnapshotData(())
    assert merge([SnapshotData(()), SnapshotData(())]) == SnapshotData(())


# ---------------------------------------------------------------------------------------------- one big run

Sample = tuple[str, int, int]
"""Key, time, number."""


def wrapped(value: int) -> int:
    return ((value + (1 << 63)) & U64_MAX) - (1 << 63)


def aggregated(kind: types.Type, samples: list[Sample]) -> Value:
    """What one run has of these, computed in another way than joining does."""
    numbers = [number for _, _, number in samples]
    if isinstance(kind, types.Count):
        return len(numbers)
    if isinstance(kind, types.Sum):
        return wrapped(sum(numbers))
    if isinstance(kind, types.Avg | types.Stats):
        return wrapped(sum(numbers)), len(numbers)
    if isinstance(kind, types.Min):
        return min(numbers)
    if isinstance(kind, types.Max):
        return max(numbers)
    if isinstance(kind, types.Hist):
        buckets = [0 if number < 0 else number.bit_length() + 1 for number in numbers]
        return {bucket: buckets.count(bucket) for bucket in buckets}
    assert isinstance(kind, types.TSeries)
    return {at: _interval(kind, [item for item in samples if item[1] // 10 == at]) for _, time, _ in samples
            for at in (time // 10,)}  # fmt: skip


def _interval(kind: types.TSeries, samples: list[Sample]) -> tuple[int, int]:
    numbers = [number for _, _, number in samples]
    if not kind.reduce:
        time, number = max((time, number) for _, time, number in samples)
        return number, time
    value = {"min": min(numbers), "max": max(numbers)}.get(kind.reduce, wrapped(sum(numbers)))
    return value, len(numbers)


BIG = [
    types.Count(), types.Sum(), types.Avg(), types.Stats(), types.Min(), types.Max(), types.Hist(),
    *(types.TSeries(10, 100, reduce) for reduce in ("", "sum", "avg", "min", "max")),
]  # fmt: skip


@pytest.mark.parametrize("kind", BIG, ids=lambda kind: f"{kind} {getattr(kind, 'reduce', '')}")
@examples(60)
@given(
    samples=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 40), I64), max_size=30),
    parts=st.integers(1, 5),
    seed=st.randoms(use_true_random=False),
)
def test_several_runs_have_together_what_one_run_has(
    kind: types.Type, samples: list[Sample], parts: int, seed: Any
) -> None:
    def whole(of: list[Sample]) -> dict[Any, Value]:
        return {key: aggregated(kind, [item for item in of if item[0] == key]) for key in {item[0] for item in of}}

    shares: list[list[Sample]] = [[] for _ in range(parts)]
    for sample in samples:
        seed.choice(shares).append(sample)
    found = merge(
        snapshot(map_data("@", STRING, kind, whole(share)), of=run(f"run-{number}"))
        for number, share in enumerate(shares)
    )
    assert found.maps["@"].entries == whole(samples)


def two(kind: types.Type, first: Value, second: Value, other: types.Type | None = None) -> Value:
    found = merge(
        [
            snapshot(map_data("@", None, kind, {None: first}), of=run("run-1")),
            snapshot(map_data("@", None, other or kind, {None: second}), of=run("run-2")),
        ]
    )
    return found.maps["@"].entries[None]


def test_sums_wrap_as_in_the_kernel() -> None:
    assert two(COUNT, U64_MAX, 2) == 1
    assert two(types.Sum(True), (1 << 63) - 1, 1) == -(1 << 63)
    assert two(types.Sum(False), U64_MAX, 1) == 0
    assert two(types.Avg(False), (U64_MAX, U64_MAX), (1, 1)) == (0, 0)
    assert two(types.Hist(), {3: U64_MAX}, {3: 1, 4: 2}) == {3: 0, 4: 2}


@given(U64, U64)
def test_of_a_signed_and_an_unsigned_sum_the_signed_one_is_taken(first: int, second: int) -> None:
    found = merge(
        [
            snapshot(map_data("@", None, types.Sum(False), {None: first}), of=run("run-1")),
            snapshot(map_data("@", None, types.Sum(True), {None: wrapped(second)}), of=run("run-2")),
        ]
    ).maps["@"]
    assert found.value == types.Sum(True)
    assert found.entries[None] == wrapped(first + second)


# ---------------------------------------------------------------------------------------------- plain values


def plain(identity: str, end: int, **entries: int) -> SnapshotData:
    return snapshot(map_data("@", STRING, types.INT64, entries), of=run(identity, start=1, end=end))


def test_of_plain_values_the_last_or_the_greater_stays() -> None:
    found = merge([plain("run-1", 20, a=1, b=1), plain("run-2", 10, a=9, c=9)]).maps["@"]
    assert found.entries == {"a": 1, "b": 1, "c": 9}
    assert found.times == {"a": 20, "b": 20, "c": 10}
    assert merge([plain("run-1", 20, a=1), plain("run-2", 20, a=9)]).maps["@"].entries == {"a": 9}


def test_a_value_is_as_old_as_its_own_snapshot() -> None:
    """The merge of old and new ends with the new one; what only the old one has loses against what is between."""
    old_and_new = merge([plain("run-1", 10, a=1), plain("run-2", 30, b=2)])
    found = merge([old_and_new, plain("run-3", 20, a=3, b=3)]).maps["@"]
    assert found.entries == {"a": 3, "b": 2}


# ---------------------------------------------------------------------------------------------- types


def merged_types(first: types.Type | None, second: types.Type | None) -> types.Type | None:
    found = merge([
        snapshot(MapData("@", first, COUNT), of=run("run-1")), snapshot(MapData("@", second, COUNT), of=run("run-2"))
    ])  # fmt: skip
    return found.maps["@"].key


def test_what_may_differ_takes_the_larger() -> None:
    assert merged_types(types.String(16), types.String(64)) == types.String(64)
    assert merged_types(types.INT32, types.UINT64) == types.INT64
    assert merged_types(types.UINT32, types.UINT64) == types.UINT64
    assert merged_types(types.Stack(True, 3), types.Stack(True, 127)) == types.Stack(True, 127)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (types.String(16), types.INT64, r"map @: keys differ and cannot be merged: string\[16\] in A, int64 in B"),
        (types.INT64, None, "keys differ .*: int64 in A, no key in B"),
        (types.Tuple((types.INT64, types.INT8)), types.Tuple((types.INT64,)), r"\(int64, int8\) in A, \(int64\) in B"),
        (types.Stack(True), types.Stack(False), r"ustack\(bpftrace\) in A, kstack\(bpftrace\) in B"),
        (types.Stack(True), types.Stack(True, 127, types.StackMode.PERF), r"ustack\(bpftrace\) in A, ustack\(perf\)"),
    ],
)  # fmt: skip
def test_keys_that_differ_are_named(first: types.Type, second: types.Type | None, message: str) -> None:
    found = [snapshot(MapData("@", kind, COUNT), of=run(f"{kind!r}")) for kind in (first, second)]
    with pytest.raises(TraceError, match=message):
        merge(found, ["A", "B"])


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (types.Hist(0), types.Hist(3), "map @x: values differ .*: hist with 0 bits in A, hist with 3 bits in B"),
        (types.LHist(0, 100, 10), types.LHist(0, 200, 10), "lhist from 0 to 100 by 10 in A, lhist from 0 to 200 by 10"),
        (types.TSeries(10, 3, "sum"), types.TSeries(20, 3, "avg"), "tseries of 10 ns, sum in A, tseries of 20 ns, avg"),
        (COUNT, types.Sum(), "count_t in A, sum_t in B"),
    ],
)  # fmt: skip
def test_values_that_differ_are_named_with_their_parameters(
    first: types.Type, second: types.Type, message: str
) -> None:
    found = [snapshot(MapData("@x", STRING, kind), of=run(repr(kind))) for kind in (first, second)]
    with pytest.raises(TraceError, match=message):
        merge(found, ["A", "B"])


# ---------------------------------------------------------------------------------------------- the rest


def test_stacks_are_equal_by_their_frames() -> None:
    key = types.Stack(True)
    found = merge(
        snapshot(map_data("@", key, COUNT, {stack("f", "main"): 2, stack("g", host): 1}), of=run(host, host=host))
        for host in ("one", "two")
    )
    assert found.maps["@"].entries == {stack("f", "main"): 4, stack("g", "one"): 1, stack("g", "two"): 1}
    moved = StackTrace((Frame("f", 8, "/bin/program"),))
    assert stack("f") != moved


def test_rows_stay_in_the_order_of_their_run_and_runs_in_theirs() -> None:
    def part(identity: str, start: int, *pids: int) -> SnapshotData:
        rows = table(["pid"], [types.INT64], [(pid,) for pid in pids], identity)
        return snapshot(of=run(identity, start=start), tables=(rows,))

    found = merge([part("later", 2, 5, 4), part("earlier", 1, 9, 8)])
    assert [one.identity for one in found.runs] == ["earlier", "later"]
    assert len(found.tables) == 1
    assert list(found.tables[0].rows.items()) == [("earlier", [(9,), (8,)]), ("later", [(5,), (4,)])]


def test_of_two_marks_the_weaker_promise_stays() -> None:
    marks = ("", "estimate", "sample")
    for one, other, expected in ((0, 0, 0), (0, 1, 1), (1, 2, 2), (2, 0, 2)):
        items = [snapshot(map_data("@", None, COUNT, {None: 1}), of=run(str(at))) for at in (1, 2)]
        items[0].maps["@"].mark, items[1].maps["@"].mark = marks[one], marks[other]
        assert merge(items).maps["@"].mark == merge(items[::-1]).maps["@"].mark == marks[expected]


def test_costs_and_losses_add_up() -> None:
    first, second, third = snapshot(of=run("1")), snapshot(of=run("2")), snapshot(of=run("3"))
    costs = [RunCost(10, 2, (ProbeCost("k:f", 1, 2, 3),), 4, 5, 6), RunCost(20, 2, (), 4, 5, 6)]
    first.costs, second.costs = {"1": costs[0]}, {"2": costs[1]}
    assert merge([first, third, second]).costs == {"1": costs[0], "2": costs[1]}
    first, second = snapshot(of=run("run-1")), snapshot(of=run("run-2"))
    first.losses = {"lost": {"begin": 1}}
    second.losses = {"lost": {"begin": 2, "end": 3}, "map_full": {"@": 4}}
    assert merge([first, second]).losses == {"lost": {"begin": 3, "end": 3}, "map_full": {"@": 4}}


def test_two_states_of_one_run_are_refused() -> None:
    with pytest.raises(TraceError, match=r"a.pts and b.pts hold the same run \(x.bt on here\)") as found:
        merge([snapshot(), snapshot(of=run(end=5))], ["a.pts", "b.pts"])
    assert "pytrace diff" in found.value.hints[0]
    with pytest.raises(TraceError, match=r"x\.bt on here and x.bt on here hold the same run"):
        merge([snapshot(), snapshot()])


# ---------------------------------------------------------------------------------------------- work


class Key(int):
    """A key that counts how often somebody looks for it."""

    looked: int = 0

    def __hash__(self) -> int:
        Key.looked += 1
        return int(self)


def test_entries_are_looked_at_a_few_times() -> None:
    found = [
        snapshot(map_data("@", types.INT64, COUNT, {Key(key): 1 for key in range(50)}), of=run(f"run-{number}"))
        for number in range(20)
    ]
    Key.looked = 0
    assert merge(found).maps["@"].entries == dict.fromkeys(range(50), 20)
    assert Key.looked <= 3 * 20 * 50


# ---------------------------------------------------------------------------------------------- joining
# Joining two values of one map and one key.


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
        assert value_kind_of(kind).join()(one, other) == both
    assert (first, second) == before


def test_a_value_that_has_no_other_is_of_the_type_of_both() -> None:
    assert value_kind_of(types.Sum(True)).join()(None, U64_MAX) == -1
    assert value_kind_of(types.Hist()).join()(None, {1: 3}) == {1: 3}
    assert value_kind_of(types.TSeries(10, 5, "sum")).join()(None, {1: (U64_MAX, 1)}) == {1: (-1, 1)}
    assert value_kind_of(types.Min()).join()(None, 5) == 5
    assert value_kind_of(STRING).join()(None, "a") == "a"


@pytest.mark.parametrize("name", VALUES)
@examples(10)
@given(data=st.data())
def test_two_values_join_as_two_maps_do(name: str, data: st.DataObject) -> None:
    kinds, values = VALUES[name]
    first, second = data.draw(values), data.draw(values)
    before = deepcopy((first, second))
    both = value_kind_of(kinds[0]).join()(first, second)
    end = run().end
    found = merge(
        [
            snapshot(map_data("@", None, kinds[0], {None: value}), of=run(f"run-{number}", end=end))
            for number, value in enumerate((first, second))
        ]
    )
    assert found.maps["@"].entries == {None: both}
    assert (first, second) == before


# ---------------------------------------------------------------------------------------------- difference
# .


def changes(kind: types.Type, before: dict[Any, Any], after: dict[Any, Any]) -> Mapping[Any, Change]:
    found = difference(
        snapshot(map_data("@", STRING, kind, before)), snapshot(map_data("@", STRING, kind, after), of=run("run-2"))
    )
    return found.maps["@"].changes if found.maps else {}


def many_changes(before: dict[str, int], after: dict[str, int]) -> Mapping[Any, Change]:
    sides = [stored(snapshot(map_data("@", STRING, COUNT, side))) for side in (before, after)]
    found = difference(sides[0], sides[1])
    return found.maps["@"].changes if found.maps else {}


def test_counts_subtract_key_by_key() -> None:
    found = changes(COUNT, {"same": 4, "more": 1, "gone": 7}, {"same": 4, "more": 3, "new": 2})
    assert found == {
        "more": Change(1, 3, 2, 2),
        "gone": Change(7, None, -7, 7),
        "new": Change(None, 2, 2, 2),
    }


@pytest.mark.parametrize(
    ("kind", "before", "after", "delta", "size"),
    [
        (types.Sum(), 5, -7, -12, 12),
        (types.INT64, 5, 9, 4, 4),
        (types.Min(), 5, 3, -2, 2),
        (types.Avg(), (10, 2), (40, 4), (30, 2), 5),
        (types.Stats(), (10, 2), (-40, 4), (-50, 2), 15),
        (types.Hist(), {1: 5, 2: 3}, {1: 5, 2: 1, 4: 2}, {2: -2, 4: 2}, 4),
        (types.LHist(0, 10, 1), {}, {3: 2}, {3: 2}, 2),
        (types.TSeries(10, 5, "sum"), {1: (5, 1)}, {1: (7, 2), 2: (1, 1)}, {1: 2, 2: 1}, 3),
        (types.TSeries(10, 5, "avg"), {1: (5, 1)}, {1: (9, 3)}, {1: -2}, 2),
        (STRING, "a", "b", None, 0),
        (types.Tuple((types.INT64,)), (1,), (2,), None, 0),
    ],
)
def test_each_type_has_its_change(kind: types.Type, before: Any, after: Any, delta: Any, size: int) -> None:
    assert changes(kind, {"k": before}, {"k": after}) == {"k": Change(before, after, delta, size)}


def test_stacks_are_compared_by_frames_and_give_signed_counts() -> None:
    key = types.Stack(True)
    before = snapshot(map_data("@", key, COUNT, {stack("f", "main"): 5, stack("g", "main"): 5}))
    after = snapshot(map_data("@", key, COUNT, {stack("f", "main"): 2, stack("g", "main"): 5, stack("h"): 1}))
    signed = difference(before, after).signed().maps["@"]
    assert signed.entries == {stack("f", "main"): -3, stack("h"): 1}
    assert signed.value == types.Sum(True)


def test_maps_of_one_side_count_as_empty_on_the_other() -> None:
    found = difference(snapshot(), snapshot(map_data("@", STRING, COUNT, {"a": 1})))
    assert found.maps["@"].changes == {"a": Change(None, 1, 1, 1)}
    assert difference(snapshot(), snapshot(map_data("@", STRING, COUNT, {}))).maps == {}


def test_losses_subtract() -> None:
    before, after = snapshot(), snapshot()
    before.losses = {"lost": {"a": 1, "b": 2}}
    after.losses = {"lost": {"a": 4, "b": 2}, "map_full": {"@": 1}}
    assert difference(before, after).losses == {"lost": {"a": 3}, "map_full": {"@": 1}}


def test_what_cannot_be_compared_is_named() -> None:
    first = snapshot(map_data("@", STRING, types.Hist(0), {}))
    second = snapshot(map_data("@", STRING, types.Hist(2), {}))
    with pytest.raises(TraceError, match=r"map @: values differ .*: hist with 0 bits in A, hist with 2 bits in B"):
        difference(first, second, ("A", "B"))
    third = snapshot(map_data("@", None, types.Hist(0), {}))
    with pytest.raises(TraceError, match=r"map @: keys differ .*: string\[16\] in x.bt on here, no key in x.bt on"):
        difference(first, third)


@pytest.mark.parametrize("name", VALUES)
@examples(15)
@given(data=st.data())
def test_every_type_is_compared(name: str, data: st.DataObject) -> None:
    before, after = (
        snapshot(item, of=run(f"run-{number}"))
        for number, item in enumerate(data.draw(maps("@", data.draw(st.sampled_from(KEYS)), VALUES[name], 2)))
    )
    there, back = difference(before, after), difference(after, before)
    assert not difference(before, before).maps
    assert restored(before, there) == after.maps["@"].entries
    assert {key: item.size for key, item in one(there).items()} == {key: item.size for key, item in one(back).items()}
    assert all((item.before, item.after) == (one(back)[key].after, one(back)[key].before)
               for key, item in one(there).items())  # fmt: skip


def one(found: Any) -> dict[Any, Change]:
    return found.maps["@"].changes if found.maps else {}


def restored(before: SnapshotData, found: Any) -> dict[Any, Any]:
    """*before* with the changes made to it."""
    entries = dict(before.maps["@"].entries)
    for key, change in one(found).items():
        if change.after is None:
            del entries[key]
        else:
            entries[key] = change.after
    return entries


def shown(before: SnapshotData, after: SnapshotData) -> list[Any]:
    """All that is made of a difference."""
    found = difference(before, after)
    forms = [b"".join(form(found)) for form in (text_and_json.difference_text, text_and_json.difference_json)]
    changes = [(name, [*map(repr, part.changes.items())]) for name, part in found.maps.items()]
    return [*forms, changes, repr(found.signed())]


@pytest.mark.parametrize("name", VALUES)
@examples(8)
@given(data=st.data())
def test_many_keys_are_compared_in_parts_with_the_same_result(name: str, data: st.DataObject) -> None:
    key = data.draw(st.sampled_from([key for key in KEYS if key is not None]))
    before, after = map(snapshot, data.draw(maps("@", key, VALUES[name], 2)))
    # NaN as a key has no place in an order, which then depends on how it is made.
    assume("nan" not in repr([*before.maps["@"].entries, *after.maps["@"].entries]))
    run, chunk = external_sort.RUN, external_sort.CHUNK
    whole = shown(before, after)
    try:
        external_sort.RUN, external_sort.CHUNK = 1, data.draw(st.integers(1, 2))
        assert shown(stored(before), stored(after)) == whole
        assert not difference(stored(before), stored(before)).maps
    finally:
        external_sort.RUN, external_sort.CHUNK = run, chunk


def test_changes_of_many_keys_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external_sort, "RUN", 2)
    found = many_changes({"same": 4, "more": 1, "gone": 7}, {"new": 2, "same": 4, "more": 3})
    assert isinstance(found, ManyChanges)
    assert list(found) == ["more", "gone", "new"]
    assert (found["more"], len(found), "same" in found) == (Change(1, 3, 2, 2), 3, False)
    assert not many_changes({"a": 1, "b": 2, "c": 3}, {"b": 2, "a": 1, "c": 3})


# ---------------------------------------------------------------------------------------------- external sort
# .


PAIR = types.Tuple((types.INT64, types.INT64))


@pytest.mark.parametrize(("run", "chunk"), [(1, 1), (3, 2), (7, 100), (1000, 10)])
@given(st.lists(st.integers(0, 9), max_size=40))
def test_items_are_sorted_as_in_memory(run: int, chunk: int, items: list[int]) -> None:
    before = external_sort.RUN, external_sort.CHUNK
    external_sort.RUN, external_sort.CHUNK = run, chunk
    try:
        numbered = list(enumerate(items))
        blocks = list(external_sort.in_order(iter(numbered), lambda item: item[1], PAIR))
        assert [item for block in blocks for item in block] == sorted(numbered, key=lambda item: item[1])
        assert all(0 < len(block) <= max(run, chunk) for block in blocks)
    finally:
        external_sort.RUN, external_sort.CHUNK = before


def test_all_values_survive_and_no_file_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(external_sort, "RUN", 2)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    type_ = types.Tuple((types.INT64, types.Stack(True), types.Buffer(4), STRING, types.Int(16, True), types.Hist()))
    items = [
        (number, stack("f", f"main{number}"), b"\xff", "a\udcff", -(1 << 100), {number: 3})
        for number in range(9, 0, -1)
    ]
    blocks = external_sort.in_order(items, lambda item: item[0], type_)
    first = next(blocks)
    assert os.listdir(tmp_path) == []
    assert first + [item for block in blocks for item in block] == items[::-1]


@examples(30)
@given(snapshots(3))
def test_maps_in_files_merge_as_those_in_memory(found: list[SnapshotData]) -> None:
    """What is merged from files and in files is the same, in the same order."""
    run_, chunk = external_sort.RUN, external_sort.CHUNK
    with TemporaryDirectory() as folder, ExitStack() as stack:
        paths = [f"{folder}/{number}" for number in range(len(found))]
        for item, path in zip(found, paths, strict=True):
            file_form.write(item, path)
        # Files do not say what pointers point to.
        expected = merge([file_form.read(path) for path in paths])
        try:
            external_sort.RUN, external_sort.CHUNK = 1, 2
            merged = merge([stack.enter_context(file_form.opened(path)) for path in paths])
            file_form.write(merged, f"{folder}/merged")
        finally:
            external_sort.RUN, external_sort.CHUNK = run_, chunk
        read = file_form.read(f"{folder}/merged")
        assert read == expected
        for name, data in expected.maps.items():
            assert list(merged.maps[name].entries.items()) == list(data.entries.items()), name


def test_entries_joined_in_files_are_looked_up() -> None:
    sides = [dict.fromkeys(range(3), 1), dict.fromkeys(range(2, 5), 5)]
    entries = ManyEntries(sides, types.INT64, types.Count())
    assert dict(entries) == {0: 1, 1: 1, 2: 6, 3: 5, 4: 5}
    assert (len(entries), entries[2], entries.get(9)) == (5, 6, None)
