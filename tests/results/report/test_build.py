from __future__ import annotations

import re
from io import BytesIO
from typing import Any

import pytest

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.results.formats import about, text_and_json
from pytrace.results.formats.format_row import WriteOptions
from pytrace.results.formats.portable_forms import Printers
from pytrace.results.report import build
from pytrace.results.snapshot import Print
from tests.results.report.test_document import read
from tests.support.report_samples import many_stacks
from tests.support.snapshots import COUNT, SECOND, STRING, map_data, run, snapshot, stack, table

FORMS = build.Forms(Printers(), about.lines, about.losses)
STACKS = map_data("@stacks", types.Stack(True), COUNT, {stack("f"): 1})


def data_of(made: bytes) -> dict[str, Any]:
    """What the viewer of a report reads."""
    packed = re.search(rb'id="data">([^<]*)<', made)
    assert packed is not None
    return read(packed[1])


def parts(made: bytes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = data_of(made)["parts"]
    return found


def kinds(made: bytes) -> dict[str, str]:
    """The kind of the part of each map."""
    data = data_of(made)
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
        map_data("@negative", types.Stack(True), types.Sum(True), {stack("f"): -1, stack("g"): 2}),
        tables=(table(("pid",), (types.INT32,), [(1,)]),),
    )
    assert kinds(build.single(found, FORMS)) == {
        "@stacks": "flame", "@n": "table", "@lat": "histogram", "@lin": "histogram", "@t": "lines", "@where": "table",
        "@negative": "table", "rows": "table",
    }  # fmt: skip


def test_a_difference_shows_what_differs() -> None:
    hist = types.Hist(0)
    before, after = (
        snapshot(
            map_data("@stacks", types.Stack(True), COUNT, {stack("f"): count}),
            map_data("@same", STRING, COUNT, {"a": 1}),
            map_data("@n", STRING, COUNT, {"a": count}),
            map_data("@lat", None, hist, {None: {3: count}}),
            map_data("@negative", types.Stack(True), types.Sum(True), {stack("f"): 1 - count}),
            map_data("@inner", STRING, COUNT, {"a": count}),
        )
        for count in (1, 2)
    )
    for state in (before, after):
        state.maps["@inner"].hidden = True
    assert kinds(build.differential(before, after, FORMS)) == {
        "@stacks": "flame", "@n": "table", "@lat": "histogram", "@negative": "table",
    }  # fmt: skip
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


def test_a_series_has_what_was_printed_in_place_of_states_between() -> None:
    prints = [Print("@lat", (100 + at) * SECOND, {None: {3: at}}, cleared=True, number=at) for at in (1, 2, 3)]
    last = map_data("@lat", None, types.Hist(0), {None: {3: 1}})
    states = [snapshot(last, of=run(end=(100 + at) * SECOND)) for at in (2, 4)]
    states[-1].prints = tuple(prints)
    (part,) = parts(build.series(states, FORMS))
    assert [counts for _, counts in part["steps"][0]] == [[1], [2], [3], [1]]
    assert parts(build.single(states[-1], FORMS)) == [part]
    states[-1].prints = tuple(prints[1:])
    assert parts(build.single(states[-1], FORMS))[0]["note"] == "What was printed first was not kept."


def test_a_report_of_many_stacks_is_smaller_than_its_json() -> None:
    found = many_stacks(2000)
    lines = BytesIO()
    text_and_json.write_json(found, WriteOptions(), lines)
    assert len(build.single(found, FORMS)) < len(lines.getvalue()) / 4


def test_a_series_of_unlike_maps_is_an_error() -> None:
    states = [snapshot(map_data("@", None, type_, {None: {3: 1}})) for type_ in (types.Hist(0), types.Hist(2))]
    with pytest.raises(TraceError, match="map @: values"):
        build.series(states, FORMS)


def test_a_series_tells_of_each_run() -> None:
    states = [snapshot(map_data("@", None, COUNT, {None: 1}), of=run(name, host=name)) for name in ("one", "other")]
    text = build.series(states, FORMS)
    assert b"on one, Linux" in text
    assert b"on other, Linux" in text
