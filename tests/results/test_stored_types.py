from __future__ import annotations

from typing import Any

import pytest

from pytrace.core import types
from pytrace.results.stored_types import type_from
from tests.support.portable import VALUES


@pytest.mark.parametrize("type_", [kind for kinds, _ in VALUES.values() for kind in kinds], ids=str)
def test_types_of_scripts_are_read(type_: types.Type) -> None:
    data: Any = types.to_data(type_)
    assert types.to_data(type_from(data)) == data


@pytest.mark.parametrize(
    "data",
    [
        None, 5, [], ["invented"], ["int"], ["int", "8", True], ["string", -1.5],
        ["array", {"t": ["int", 8, True]}, "2"],
        ["tuple", ["int"]], ["record", ["a"], []], ["record", [1], [{"t": ["int", 8, True]}]],
        ["enum", "e", 4, True, [["a", "b"]]], ["enum", "e", 4, True, [["a"]]],
        types.to_data(types.Hist(100)), types.to_data(types.Hist(-1)), types.to_data(types.Hist(40)),
        types.to_data(types.LHist(0, 1 << 60, 1)), types.to_data(types.LHist(0, 10, 0)),
        types.to_data(types.LHist(9, 0, 1)),
        types.to_data(types.TSeries(1, 1 << 40)), types.to_data(types.TSeries(0, 5)),
        types.to_data(types.Fixed(1, 1 << 40)), types.to_data(types.Fixed(0, 1)),
    ],
    ids=repr,
)  # fmt: skip
def test_what_no_script_has_is_refused(data: Any) -> None:
    with pytest.raises((ValueError, LookupError, TypeError, AttributeError)):
        type_from(data)
