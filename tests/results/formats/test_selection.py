"""Which maps and tables of a snapshot a format shows."""

from __future__ import annotations

import pytest

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.results.formats import table
from pytrace.results.formats.format_row import Content, Format
from pytrace.results.formats.selection import select
from pytrace.results.snapshot import SnapshotData
from tests.support.snapshots import COUNT, map_data, snapshot, stack
from tests.support.snapshots import table as rows

USTACK = types.Stack(True)
FOLDED = Format("folded", "", (".folded",), frozenset({Content.STACKS}), table.named("text").write)


def test_what_does_not_fit_is_left_out_and_told() -> None:
    whole = snapshot(
        map_data("@s", USTACK, COUNT, {stack("f"): 1}),
        map_data("@h", None, types.Hist(), {None: {1: 2}}),
        tables=(rows(["pid"], [types.INT64], [(1,)]),),
    )
    chosen = select(whole, FOLDED)
    assert list(chosen.snapshot.maps) == ["@s"]
    assert not chosen.snapshot.tables
    assert chosen.left_out == (
        "format folded cannot show @h (histograms)",
        "format folded cannot show rows",
    )
    assert select(whole, FOLDED, ["s"]).left_out == ()
    assert select(whole, table.named("text"), ["rows"]).snapshot.tables == whole.tables


def test_what_cannot_be_shown_at_all_is_an_error_that_names_what_can() -> None:
    whole = snapshot(map_data("@s", USTACK, COUNT, {}), map_data("@h", None, types.Hist(), {None: {1: 2}}))
    with pytest.raises(TraceError, match=r"format folded cannot show @h \(histograms\)") as found:
        select(whole, FOLDED, ["@h"])
    assert found.value.hints[0] == "it shows numbers by stack"
    assert found.value.hints[1].startswith("formats that show histograms: text, json")
    with pytest.raises(TraceError, match="cannot show"):
        select(snapshot(whole.maps["@h"]), FOLDED)
    with pytest.raises(TraceError, match="there is no map '@x'"):
        select(whole, FOLDED, ["@x"])
    assert select(SnapshotData(()), FOLDED).left_out == ()
