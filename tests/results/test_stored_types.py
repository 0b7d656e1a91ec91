from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pytrace.core import types
from pytrace.results import stored_types
from pytrace.results.stored_types import type_from, type_to
from tests.support.portable import VALUES
from tests.support.rows import each_row


@each_row("type_", [kind for kinds, _ in VALUES.values() for kind in kinds], ids=str)
def test_types_of_scripts_are_read(type_: types.Type) -> None:
    again = type_from(type_to(type_))
    assert again is not None
    assert again == types.settled(type_)


def test_names_of_any_bytes() -> None:
    type_ = types.Record(("\udcff",), (types.INT64,))
    assert type_from(type_to(type_)) == type_


def test_a_map_without_keys_has_none() -> None:
    assert type_from(type_to(None), key=True) is None
    for wrong in (types.Hist(), types.Tuple((types.TSeries(),))):
        with pytest.raises(ValueError, match="none can be"):
            type_from(type_to(wrong), key=True)


def test_large_types_are_refused_before_they_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = type_to(types.Enum("e", 4, False, tuple((f"member_{at}", at) for at in range(100))))
    assert type_from(stored)
    monkeypatch.setattr(stored_types, "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match="a type of"):
        type_from(stored)


@each_row(
    "data",
    [
        None, 5, [], ["invented"], ["int"], ["int", "8", True], ["string", -1.5],
        ["array", ["int", 8, True], "2"], ["array", ["int", 8], 2], ["array", 5, 2],
        ["tuple", ["int"]], ["record", ["a"], []], ["record", [1], [["int", 8, True]]],
        ["enum", "e", 4, True, [["a", "b"]]], ["enum", "e", 4, True, [["a"]]],
        msgspec.to_builtins(types.Hist(100)), msgspec.to_builtins(types.Hist(-1)), msgspec.to_builtins(types.Hist(40)),
        msgspec.to_builtins(types.LHist(0, 1 << 60, 1)), msgspec.to_builtins(types.LHist(0, 10, 0)),
        msgspec.to_builtins(types.LHist(9, 0, 1)),
        msgspec.to_builtins(types.TSeries(1, 1 << 40)), msgspec.to_builtins(types.TSeries(0, 5)),
        msgspec.to_builtins(types.Fixed(1, 1 << 40)), msgspec.to_builtins(types.Fixed(0, 1)),
        ["array", ["int", 1, False], (1 << 16) + 1],
    ],
    ids=repr,
)  # fmt: skip
def test_what_no_script_has_is_refused(data: Any) -> None:
    with pytest.raises(ValueError):
        type_from(stored(data))


def stored(data: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode(packed(data)))


def packed(data: Any) -> Any:
    """Data of a type with texts as bytes, as in files."""
    if isinstance(data, list | tuple):
        return list(map(packed, data))
    if isinstance(data, dict):
        return {name: packed(item) for name, item in data.items()}
    return data.encode() if isinstance(data, str) else data
