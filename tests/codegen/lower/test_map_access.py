"""Maps in the ELF file: kinds, sizes, look-ups, and updates that fail."""

from __future__ import annotations

import errno

import pytest

from pytrace.codegen.lower import map_access
from pytrace.core.manifest import MapType
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source, Span
from pytrace.core.types import INT8, INT64, Avg, Count, Hist, LHist, Stats, String, TSeries, Tuple, Type
from pytrace.frontend.syntax.typed_program import MapInfo
from tests.codegen.running import helpers, machine, ran

SPAN = Span(Source("stdin", "@"), 0, 1)


@pytest.mark.parametrize(
    ("kind", "key", "value", "wanted"),
    [
        ("hash", INT8, INT64, (MapType.HASH, 1, 8)),
        ("lruhash", INT64, String(20), (MapType.LRU_HASH, 8, 20)),
        ("percpuhash", String(3), Count(), (MapType.PERCPU_HASH, 3, 8)),
        ("hash", String(3), Count(), (MapType.HASH, 3, 8)),
        ("hash", INT64, Hist(5), (MapType.HASH, 16, 8)),
        ("percpulruhash", String(3), Avg(), (MapType.LRU_PERCPU_HASH, 3, 16)),
        ("percpuhash", String(3), Stats(), (MapType.PERCPU_HASH, 3, 16)),
        ("percpuhash", String(3), Hist(5), (MapType.PERCPU_HASH, 16, 8)),
        ("percpuhash", INT64, LHist(0, 10, 1), (MapType.PERCPU_HASH, 16, 8)),
        ("percpuhash", INT64, TSeries(1, 5), (MapType.PERCPU_HASH, 16, 24)),
        ("hash", Tuple(()), INT8, (MapType.HASH, 1, 1)),
    ],
)
def test_sizes(kind: str, key: Type, value: Type, wanted: tuple[int, int, int]) -> None:
    """Histograms and time series have the bucket number after the padded key."""
    assert map_access.sizes(MapInfo("@m", key, value, kind, 5, SPAN)) == wanted


def test_names() -> None:
    assert (map_access.symbol("@"), map_access.symbol("@ab")) == ("map_", "map_ab")


@pytest.mark.parametrize("checks", [0, 1])
@pytest.mark.parametrize("value", ["1", "count()", "(1, 2)"])
def test_full_maps(value: str, checks: int) -> None:
    """Each update that is refused is counted; a CPU's first one is reported."""
    kind = "percpuhash" if "count" in value else "hash"
    script = f"let @m = {kind}(2); begin {{ @m[1] = {value}; @m[2] = {value}; @m[3] = {value}; @m[4] = {value}; }}"
    found = ran(script, options=CompileOptions(checks=checks))
    assert found.counts()["map_full"] == 2
    assert [(kind, code) for kind, (code,) in found.values()] == [("helper_error", -errno.E2BIG)] * checks


def test_another_program_that_was_faster() -> None:
    """The value that it stored is changed, and not replaced."""
    found = machine("begin { @m[1] = count(); }")
    other = found.region((41).to_bytes(8, "little"))

    def update(map_: int, key: int, _value: int, flags: int, *_: int) -> int:
        assert flags == 1
        found.maps[map_].entries[found.read(key, 8)[: found.maps[map_].key_size], 0] = other
        return -errno.EEXIST

    found.helpers[2] = update
    found.run()
    assert found.entries("@m") == {1: 42}
    assert found.counts().get("map_full", 0) == 0


@pytest.mark.parametrize(("checks", "events"), [(1, 0), (2, 1)])
def test_missing_keys_are_reported_on_request(checks: int, events: int) -> None:
    found = ran("begin { @ = @m[1]; @m[2] = 1; }", options=CompileOptions(checks=checks))
    assert len(found.events) == events


def test_a_key_that_is_there_is_changed_in_place() -> None:
    found = ran("begin { @m[1] = 1; @m[1] = 2; }")
    assert helpers(found).count(2) == 1
    found = ran('begin { @m[1] = "a"; @m[1] = "b"; }')
    assert helpers(found).count(2) == 2


def test_maps_that_are_printed_and_cleared_are_double_buffered() -> None:
    (spec,) = machine("begin { @m[1] = 1; print(@m); clear(@m); }").script.manifest.maps
    assert spec.inner == (MapType.HASH, 1, 1)
    (spec,) = machine("begin { @m[1] = 1; print(@m); }").script.manifest.maps
    assert spec.inner is None
