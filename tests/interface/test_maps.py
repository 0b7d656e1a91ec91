from __future__ import annotations

import pytest
from msgspec.structs import replace

from pytrace.core import types
from pytrace.interface.maps import Maps, ResultMap
from pytrace.render.python_values import Average
from pytrace.results.snapshot import MapData
from tests.support.snapshots import COUNT, STRING, map_data


def shown(data: MapData) -> ResultMap:
    return ResultMap(data.name, lambda: data)


def test_a_map_with_keys_is_a_mapping() -> None:
    counts = shown(map_data("@a", STRING, COUNT, {"x": 1, "y": 2}))
    assert (counts["x"], len(counts), sorted(counts), dict(counts)) == (1, 2, ["x", "y"], {"x": 1, "y": 2})
    assert (sorted(counts.values()), counts.get("z"), "y" in counts) == ([1, 2], None, True)
    with pytest.raises(KeyError):
        counts["z"]
    with pytest.raises(TypeError, match=r"@a has keys: use @a\[key\]"):
        counts.value


def test_a_map_without_keys_has_a_value() -> None:
    average = shown(map_data("@v", None, types.Avg(), {None: (7, 2)}))
    assert (average.value, average[None]) == (3, 3)
    assert isinstance(average.value, Average)
    assert average.key_type is None
    assert isinstance(average.value_type, types.Avg)
    assert shown(map_data("@v", None, types.Avg(), {})).value is None


def test_it_is_read_when_it_is_asked() -> None:
    contents = [{"x": 1}, {"x": 2}]
    live = ResultMap("@a", lambda: map_data("@a", STRING, COUNT, contents.pop(0)))
    assert [live["x"], live["x"]] == [1, 2]


def test_its_comment_and_its_name() -> None:
    data = replace(map_data("@a", STRING, COUNT, {}), help="what it counts")
    assert shown(data).help == "what it counts"

    def closed() -> MapData:
        raise AssertionError("a repr must not read the kernel")

    assert repr(ResultMap("@a", closed)) == "<map @a>"


def test_maps_by_name_with_or_without_the_sign() -> None:
    maps = Maps({"@a": shown(map_data("@a", STRING, COUNT, {})), "@": shown(map_data("@", STRING, COUNT, {}))})
    assert maps["@a"] is maps["a"]
    assert maps["@"] is maps[""]
    assert (list(maps), len(maps), repr(maps)) == (["@a", "@"], 2, "<maps @a, @>")
    with pytest.raises(KeyError):
        maps["b"]
