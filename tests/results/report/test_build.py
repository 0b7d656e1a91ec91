from __future__ import annotations

from pytrace.core import types
from pytrace.results.formats.portable_forms import Printers
from pytrace.results.report import build
from tests.support.snapshots import COUNT, SECOND, STRING, map_data, snapshot, stack, table


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
    document = build.of_snapshot(found, Printers())
    texts = document.texts.all()
    assert {texts[part["name"]]: part["kind"] for part in document.parts} == {
        "@stacks": "flame", "@n": "table", "@lat": "histogram", "@lin": "histogram", "@t": "lines", "@where": "table",
        "rows": "table",
    }  # fmt: skip
