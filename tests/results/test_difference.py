from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.results import external_sort
from pytrace.results.difference import Change, ManyChanges, difference
from pytrace.results.formats import difference_forms
from pytrace.results.snapshot import SnapshotData
from tests.support.portable import KEYS, VALUES, maps
from tests.support.snapshots import COUNT, STRING, map_data, run, snapshot, stack, stored


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
@settings(max_examples=15, deadline=None)
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
    forms = [b"".join(form(found)) for form in (difference_forms.text, difference_forms.json_lines)]
    changes = [(name, [*map(repr, part.changes.items())]) for name, part in found.maps.items()]
    return [*forms, changes, repr(found.signed())]


@pytest.mark.parametrize("name", VALUES)
@settings(max_examples=8, deadline=None)
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
