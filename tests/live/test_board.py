from __future__ import annotations

from msgspec.structs import replace

from pytrace.core import types
from pytrace.live.board import Board, footer
from pytrace.live.glyphs import Glyphs
from pytrace.live.panels import Panel
from pytrace.live.pictures import HistogramPanel, SeriesPanel
from pytrace.results.snapshot import MapData
from tests.support.live_samples import METERS, NAME, counts, histogram, state, total


def test_each_map_has_a_panel_and_counters_share_one() -> None:
    board = Board(Glyphs())
    series = MapData("@s", NAME, types.TSeries(interval=1, count=1, reduce="sum", signed=False))
    text = MapData("@t", None, types.String(8), {None: "x"})
    maps = (histogram("@h", {None: {1: 1}}), counts("@c", {"a": 1}), total("@n", 1), series, text)
    board.update(state(1, *maps))
    assert [(name, type(panel)) for name, panel in board.panels.items()] == [
        ("@c", Panel), ("@h", HistogramPanel), ("@s", SeriesPanel), ("@t", Panel),
    ]  # fmt: skip
    assert list(board.counters) == ["@n"]


def test_panels_live_on_and_know_how_many_keys_are_left_out() -> None:
    board = Board(Glyphs())
    board.update(state(1, counts("@", {"a": 1})))
    before = board.panels["@"]
    board.update(state(3, counts("@", {"a": 5}), others={"@": 7}))
    assert board.panels["@"] is before
    assert before.others == 7
    assert before.rates == {"a": 2.0}


def test_the_footer_says_what_tracing_costs_and_loses() -> None:
    assert footer(METERS, 0.004) == "1,234 hits/s  lost 0  pytrace 1.2%  view 0.4%  BPF 3.4%"
    worse = replace(METERS, lost=12, losing=5.0, programs=None, interval=4.2)
    assert footer(worse, 0) == "1,234 hits/s  lost 12 (+5/s)  pytrace 1.2%  view 0.0%  BPF not timed  every 4 s"
    many = replace(METERS, answered="1 of 2 hosts answered; 1 running", lost=3)
    assert footer(many, 0) == "1 of 2 hosts answered; 1 running  lost 3  pytrace 1.2%  view 0.0%"
