from __future__ import annotations

import re

import pytest

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.results.formats import about
from pytrace.results.formats.portable_forms import Printers
from pytrace.results.report import build
from tests.results.report.test_document import read
from tests.support.snapshots import COUNT, SECOND, STRING, map_data, run, snapshot, stack, table

FORMS = build.Forms(Printers(), about.lines, about.losses)
STACKS = map_data("@stacks", types.Stack(True), COUNT, {stack("f"): 1})


def kinds(made: bytes) -> dict[str, str]:
    """The kind of the part of each map."""
    packed = re.search(rb'id="data">([^<]*)<', made)
    assert packed is not None
    data = read(packed[1])
    return {data["texts"][part["name"]]: part["kind"] for part in data["parts"]}


def test_each_map_has_the_picture_of_its_kind() -> None:
    found = snapshot(
        map_data("@stacks", types.Stack(True), COUNT, {stack("f"): 1}),
        map_data("@n", STRING, COUNT, {"a": 1}),
        map_data("@lat", None, types.Hist(0), {None: {3: 1}}),
        map_data("@lin", None, types.LHist(0, 100, 10), {None: {3: 1}}),
        map_data("@t", None, types.TSeries(SECOND, 10, "sum", True), {None: {5: (3, 1)}}),
        map_data("@where", STRING, types.Stack(True), {"a": stack("f")}),
        map_data("@empty", STRING, COUNT, {}),
        tables=(table(("pid",), (types.INT32,), [(1,)]),),
    )
    assert kinds(build.single(found, FORMS)) == {
        "@stacks": "flame", "@n": "table", "@lat": "histogram", "@lin": "histogram", "@t": "lines", "@where": "table",
        "rows": "table",
    }  # fmt: skip


def test_a_difference_shows_what_differs() -> None:
    hist = types.Hist(0)
    before, after = (
        snapshot(
            map_data("@stacks", types.Stack(True), COUNT, {stack("f"): count}),
            map_data("@same", STRING, COUNT, {"a": 1}),
            map_data("@n", STRING, COUNT, {"a": count}),
            map_data("@lat", None, hist, {None: {3: count}}),
        )
        for count in (1, 2)
    )
    assert kinds(build.differential(before, after, FORMS)) == {"@stacks": "flame", "@n": "table", "@lat": "histogram"}
    assert b"No map differs." in build.differential(before, before, FORMS)


def test_a_series_is_shown_over_time() -> None:
    states = [
        snapshot(
            STACKS, map_data("@n", STRING, COUNT, {"a": at}), map_data("@lat", None, types.Hist(0), {None: {3: at}}),
            map_data("@text", STRING, STRING, {"a": "b"}), of=run(end=(100 + at) * SECOND),
        )
        for at in (2, 1)
    ]  # fmt: skip
    assert kinds(build.series(states, FORMS)) == {"@stacks": "flame", "@n": "lines", "@lat": "heat", "@text": "table"}


def test_a_series_of_unlike_maps_is_an_error() -> None:
    states = [snapshot(map_data("@", None, type_, {None: {3: 1}})) for type_ in (types.Hist(0), types.Hist(2))]
    with pytest.raises(TraceError, match="map @: values"):
        build.series(states, FORMS)


def test_a_series_tells_of_each_run() -> None:
    states = [snapshot(map_data("@", None, COUNT, {None: 1}), of=run(name, host=name)) for name in ("one", "other")]
    text = build.series(states, FORMS)
    assert b"on one, Linux" in text
    assert b"on other, Linux" in text
