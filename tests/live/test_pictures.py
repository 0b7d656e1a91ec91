from __future__ import annotations

from pytrace.core import types
from pytrace.live.glyphs import Glyphs, Line, columns
from pytrace.live.pictures import HistogramPanel, SeriesPanel
from pytrace.render import histogram as render
from pytrace.results.formats.portable_forms import Printers
from pytrace.results.snapshot import MapData
from tests.support.live_samples import NAME, histogram
from tests.support.rows import each_row

PLAIN = Glyphs(unicode=False, colour=False)


def texts(lines: list[Line]) -> list[str]:
    return ["".join(text for text, _ in line) for line in lines]


def panel(*states: MapData, glyphs: Glyphs = PLAIN) -> HistogramPanel:
    made = HistogramPanel(states[0], Printers(), glyphs)
    for second, data in enumerate(states):
        made.update(data, 0, 1 + second)
    return made


BUCKETS = {3: 4, 5: 10, 6: 1}


def test_bars_have_the_buckets_of_the_text_output() -> None:
    data = histogram("@", {None: BUCKETS})
    assert isinstance(data.value, types.Hist)
    shape = render.shape(data.value)
    printed = render.text(shape, render.all_buckets(data.value, BUCKETS)).decode().splitlines()
    expected = [(line.split(")")[0].strip(), int(line.split(")")[1].split()[0])) for line in printed]
    lines = texts(panel(data).lines(60, 10))
    assert lines[0].split() == ["15", "p50", "11", "p99", "23"]
    shown = [(line.split(")")[0].strip(), int(line.split(")")[1].split()[0])) for line in lines[1:]]
    assert shown == expected


@each_row("height", range(1, 9))
@each_row("heat", [False, True])
def test_pictures_fit(height: int, heat: bool) -> None:
    many = {number: number + 1 for number in range(40)}
    made = panel(histogram("@", {None: {}}), histogram("@", {None: many}), glyphs=Glyphs())
    made.heat = heat
    for width in (20, 60):
        lines = made.lines(width, height)
        assert len(lines) <= height
        assert all(columns(line) <= width for line in texts(lines))


def test_a_heat_map_has_what_each_interval_added_now_at_the_right() -> None:
    made = panel(*(histogram("@", {None: buckets}) for buckets in ({}, {3: 1}, {3: 1, 5: 50}, {3: 1, 5: 100})))
    made.heat = True
    lines = texts(made.lines(24, 6))[1:]
    assert [line[:16].strip() for line in lines] == ["[8, 16)", "[4, 8)", "[2, 4)"]
    assert [line[17:] for line in lines] == ["     @@", "       ", "    :  "]


def test_joined_buckets_are_labelled_by_their_bounds() -> None:
    made = panel(*(histogram("@", {None: buckets}) for buckets in ({}, dict.fromkeys(range(8), 1))))
    made.heat = True
    assert [line[:16].strip() for line in texts(made.lines(24, 5))[1:]] == ["[16, 64)", "[4, 16)", "[1, 4)", "(..., 0]"]


def test_a_heat_map_of_nothing_says_so() -> None:
    made = panel(histogram("@", {None: BUCKETS}))
    made.heat = True
    assert "nothing yet" in texts(made.lines(60, 6))[1]


def test_keys_are_listed_with_quantiles_and_the_chosen_one_has_a_picture() -> None:
    made = panel(histogram("@", {"cat": BUCKETS, "ls": {3: 1}}))
    lines = texts(made.lines(70, 4))
    assert [line.split()[:6] for line in lines] == [
        ["cat", "15", "p50", "11", "p99", "23"], ["ls", "1", "p50", "2", "p99", "2"],
    ]  # fmt: skip
    made.move(1)
    zoomed = texts(made.lines(70, 20, focused=True, zoomed=True))
    assert zoomed[2] == "-" * 70
    assert zoomed[4].startswith("[2, 4) ")
    assert len(zoomed) == 5


def test_time_series_end_together() -> None:
    kind = types.TSeries(interval=1_000_000_000, count=10, reduce="sum", signed=False)
    data = MapData("@", NAME, kind, {"a": {100: (3, 0), 102: (6, 0)}, "b": {101: (1, 0)}})
    made = SeriesPanel(data, Printers(), PLAIN)
    made.update(data, 0, 1)
    lines = texts(made.lines(20, 5))
    assert [line.rstrip().split()[:2] for line in lines] == [["a", "6"], ["b", "1"]]
    assert lines[0].endswith("= #")
    assert lines[1].endswith("# ")
