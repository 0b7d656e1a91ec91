from __future__ import annotations

from pytrace.core import types
from pytrace.live import changes


def test_rates_are_per_second_and_of_keys_that_are_known() -> None:
    count = types.Count()
    assert changes.rates(count, {"a": 10}, {"a": 30, "b": 4}, 2, whole=True) == {"a": 10, "b": 2}
    assert changes.rates(count, {"a": 10}, {"a": 30, "b": 4}, 2, whole=False) == {"a": 10}
    assert changes.rates(count, {"a": 10}, {"a": 4}, 2, whole=True) == {"a": 2}, "it was cleared in between"
    assert changes.rates(types.INT64, {"a": 10}, {"a": 4, "b": 1}, 2, whole=True) == {"a": -3}
    assert changes.rates(types.Sum(signed=True), {"a": 10}, {"a": 4}, 2, whole=True) == {"a": -3}
    assert changes.rates(types.Avg(), {"a": (100, 4)}, {"a": (500, 8)}, 2, whole=True) == {"a": 2}
    assert changes.rates(types.Max(), {"a": 10}, {"a": 30}, 2, whole=True) == {}
    assert changes.rates(count, {"a": 10}, {"a": 30}, 0, whole=True) == {}


def test_buckets_gain_what_was_added() -> None:
    assert changes.added({1: 5, 2: 1}, {1: 7, 2: 1, 3: 4}) == {1: 2, 3: 4}
    assert changes.added(None, {1: 7}) == {1: 7}
    assert changes.added({1: 5}, {1: 2}) == {1: 2}, "it was cleared in between"
    assert changes.added({1: 5}, None) == {}
