"""Entries of large maps, decoded, in order."""

from __future__ import annotations

import struct

from pytrace.core import types
from pytrace.core.manifest import MapSpec
from pytrace.core.types import INT64, UINT64, Count
from pytrace.render.forms import Decoders
from pytrace.render.large_maps.sorted_entries import sorted_entries
from pytrace.render.maps.map_printer import Shown

KEYS, VALUES = struct.pack("=4q", 5, -6, 7, 8), struct.pack("=8Q", 1, 1, 2, 0, 0, 1, 9, 9)


def test_entries_by_value_then_key() -> None:
    spec = MapSpec("@", "m", "percpuhash", INT64, Count(), 10)
    for shown, wanted in (
        (Shown(), [(7, 1), (-6, 2), (5, 2), (8, 18)]),
        (Shown(top=2), [(5, 2), (8, 18)]),
        (Shown(order="-key", top=3), [(7, 1), (5, 2), (-6, 2)]),
    ):
        found = sorted_entries(spec, (KEYS, VALUES, 4), Decoders(), shown, None)
        assert found is not None
        found.fill([(KEYS[:16], VALUES[:32], 2), (KEYS[16:], VALUES[32:], 2)])
        assert list(found.entries()) == wanted


def test_types_without_such_an_order_go_the_other_way() -> None:
    kind = types.Struct("struct", "s", 8, (types.Field("a", UINT64, 0),))
    assert sorted_entries(MapSpec("@", "m", "hash", kind, INT64, 9), (KEYS, KEYS, 4), Decoders(), Shown(), None) is None
    by_value = Shown(order="value")
    spec = MapSpec("@", "m", "hash", INT64, kind, 9)
    assert sorted_entries(spec, (KEYS, KEYS, 4), Decoders(), by_value, None) is None
    assert sorted_entries(spec, (KEYS, KEYS, 4), Decoders(), Shown(), None) is not None
