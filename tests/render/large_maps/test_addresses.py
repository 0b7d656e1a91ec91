"""User addresses in maps."""

from __future__ import annotations

import struct

from pytrace.core.manifest import MapSpec
from pytrace.core.types import UINT64, Array, Count, Stack, StackMode, Tuple, Type, USym
from pytrace.render.large_maps.addresses import Place, collect, places
from tests.support.encode import encode


def spec(key: Type, value: Type = Count()) -> MapSpec:  # noqa: B008
    return MapSpec("@", "m", "hash", key, value, 10)


def test_places() -> None:
    assert places(spec(Tuple((UINT64, Tuple((Stack(True, 3),)))))) == [Place(False, 8, 3)]
    assert places(spec(USym(), Stack(True, 4))) == [Place(False, 0, 0), Place(True, 0, 4)]
    assert places(spec(Stack(False, 3), Stack(True, 3, StackMode.BUILD_ID))) == []
    assert places(spec(Array(USym(), 2))) is None


def test_collecting() -> None:
    kind = Tuple((Stack(True, 3), USym()))
    rows = [((7, (1, 2), 0), (8, 5)), ((7, (2, 3, 4), 0), (7, 9)), ((6, (), -14), (8, 6))]
    keys = b"".join(encode(kind, row) for row in rows)
    found: dict[int, set[int]] = {}
    wanted = places(spec(kind))
    assert wanted is not None
    collect([(keys, struct.pack("=3Q", 1, 1, 1), 3)], wanted, found)
    assert found == {7: {1, 2, 3, 4, 9}, 8: {5, 6}}
