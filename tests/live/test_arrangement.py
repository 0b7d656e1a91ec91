from __future__ import annotations

from msgspec.structs import replace

from pytrace.live.arrangement import COUNTERS, LOG, Arrangement
from pytrace.live.board import Board
from pytrace.live.glyphs import Glyphs, columns
from pytrace.live.log import Log
from pytrace.live.pictures import HistogramPanel
from pytrace.results.snapshot import MapData
from tests.support.live_samples import counts, histogram, state, stored, total
from tests.support.rows import each_row

PLAIN = Glyphs(unicode=False, colour=False)


def arrangement(maps: int = 1, *, glyphs: Glyphs = PLAIN) -> Arrangement:
    board, log = Board(glyphs), Log(glyphs)
    keyed = [counts(f"@m{number}", {f"key{key}": key for key in range(30)}) for number in range(maps)]
    board.update(state(1, *keyed, total("@n", 3), histogram("@z", {None: {2: 3, 5: 1}})))
    log.add(b"".join(b"line %d\n" % number for number in range(50)))
    return Arrangement(board, log, glyphs)


def texts(made: Arrangement, width: int, height: int) -> list[str]:
    return ["".join(text for text, _ in line) for line in made.lines(width, height)]


@each_row("maps", [1, 3, 9])
@each_row("size", [(80, 21), (40, 8), (200, 60), (20, 3)])
@each_row("zoomed", [False, True])
def test_the_screen_is_filled_and_nothing_leaves_it(size: tuple[int, int], maps: int, zoomed: bool) -> None:
    made = arrangement(maps, glyphs=Glyphs())
    made.zoomed = zoomed
    for _ in range(len(made.names())):
        made.turn(1)
        lines = texts(made, *size)
        assert len(lines) == size[1]
        assert max(map(columns, lines)) <= size[0]
        number = made.names().index(made.focus) + 1
        assert any(f"─{number} " in line for line in lines), "the panel with the focus is not shown"


def test_the_focus_goes_round_and_skips_what_is_hidden() -> None:
    made = arrangement()
    assert made.names() == [COUNTERS, "@m0", "@z", LOG]
    assert made.focus == "@m0"
    assert made.toggle(3) == "@z"
    seen = []
    for _ in range(4):
        seen.append(made.focus)
        made.turn(1)
    assert seen == ["@m0", LOG, COUNTERS, "@m0"]
    assert made.toggle(3) == "@z"
    assert "@z" in made.visible()
    assert made.toggle(9) == ""


def test_what_scripts_store_comes_after_aggregations_and_only_if_there_is_some() -> None:
    board, log = Board(PLAIN), Log(PLAIN)
    made = Arrangement(board, log, PLAIN)
    board.update(state(1, stored("@a", {}), counts("@z", {}), stored("@n", {None: 1}, key=None)))
    assert made.names() == ["@z", COUNTERS]
    board.update(state(2, stored("@a", {"x": 5}), counts("@z", {"x": 5}), stored("@n", {None: 1}, key=None)))
    assert made.names() == ["@z", "@a", COUNTERS]
    board.update(state(3, stored("@a", {}), counts("@z", {"x": 5}), total("@m", 2)))
    assert made.names() == [COUNTERS, "@z", "@a"], "a panel stays"


def own(data: MapData) -> MapData:
    return replace(data, hidden=True)


def test_what_scripts_print_nowhere_is_shown_if_asked_for_or_if_there_is_nothing_else() -> None:
    board, log = Board(PLAIN), Log(PLAIN)
    made = Arrangement(board, log, PLAIN)
    stores = [own(stored("@outputs", {None: 1}, key=None)), own(stored("@start", {"x": 5}))]
    board.update(state(1, *stores))
    assert made.names() == ["@start", COUNTERS]
    log.add(b"a line\n")
    assert made.names() == [LOG]
    board.update(state(2, *stores, own(counts("@calls", {"x": 5})), total("@m", 2)))
    assert made.names() == [COUNTERS, "@calls", LOG], "what it aggregates are results"
    assert not any("@outputs" in line for line in texts(made, 60, 20))
    made.turn(-1)
    assert made.maps() == ["@m"]
    made.show_all()
    assert made.names() == [COUNTERS, "@start", "@calls", LOG]
    assert any("@outputs" in line for line in texts(made, 60, 20))


def test_counters_scroll_and_have_a_filter() -> None:
    board, log = Board(PLAIN), Log(PLAIN)
    made = Arrangement(board, log, PLAIN)
    board.update(state(1, *(total(f"@n{number:02}", number) for number in range(30))))
    assert made.focus == COUNTERS
    assert "30 counters" in texts(made, 60, 10)[0]
    assert [line[:4] for line in texts(made, 60, 10)[1:]] == [f"@n{number:02}" for number in range(9)]
    made.move(10)
    assert [line[:4] for line in texts(made, 60, 10)[1:]] == [f"@n{number}" for number in range(10, 19)]
    made.move(100)
    assert texts(made, 60, 10)[-1].startswith("@n29")
    made.set_filter("N1")
    assert made.filter == "N1"
    assert "10 counters, filter 'N1'" in texts(made, 60, 10)[0]
    assert texts(made, 60, 20)[1].startswith("@n10")
    made.set_filter("none")
    assert "no name matches the filter" in texts(made, 60, 10)[1]


def test_a_hidden_panel_gives_its_room_to_others() -> None:
    made = arrangement()
    before = sum("key" in line for line in texts(made, 80, 24))
    made.toggle(4)
    made.toggle(3)
    assert sum("key" in line for line in texts(made, 80, 24)) > before
    for number in (1, 2):
        made.toggle(number)
    assert "all panels are hidden" in texts(made, 80, 24)[0]


def test_before_the_first_state_it_waits() -> None:
    made = Arrangement(Board(PLAIN), Log(PLAIN), PLAIN)
    assert "waiting" in texts(made, 40, 10)[0]
    assert made.focus == ""
    made.turn(1)


def test_keys_act_on_the_panel_with_the_focus() -> None:
    made = arrangement()
    made.move(2)
    assert made.board.panels["@m0"].cursor == 2
    made.set_filter("key1")
    assert made.filter == made.board.panels["@m0"].filter == "key1"
    made.turn(2)
    assert made.focus == LOG
    assert texts(made, 80, 24)[-1].startswith("line 49")
    made.move(-10)
    assert texts(made, 80, 24)[-1].startswith("line 39")
    made.set_filter("line 7")
    assert "line 7".ljust(80) in texts(made, 80, 24)
    assert "filter 'line 7'" in "".join(texts(made, 80, 24))


def test_long_lines_of_the_log_are_whole_on_the_whole_screen() -> None:
    board, log = Board(Glyphs()), Log(Glyphs())
    made = Arrangement(board, log, Glyphs())
    log.add("first\n{}END\n".format("漢字" * 20).encode())
    assert made.focus == LOG
    assert texts(made, 30, 10)[2].rstrip().endswith("…")
    made.zoomed = True
    lines = texts(made, 30, 10)
    assert "".join(line.strip() for line in lines[1:]) == "first" + "漢字" * 20 + "END"
    assert max(map(columns, lines)) <= 30
    made.move(-1)
    assert "END" not in "".join(texts(made, 30, 10))
    assert texts(made, 1, 3)


def test_heat_is_of_the_panel_with_the_focus_or_of_all() -> None:
    made = arrangement()
    histogram_panel = made.board.panels["@z"]
    assert isinstance(histogram_panel, HistogramPanel)
    made.toggle_heat()
    assert histogram_panel.heat, "the table that has the focus is none"
    made.turn(1)
    made.toggle_heat()
    assert not histogram_panel.heat


def test_wide_screens_have_two_columns() -> None:
    lines = texts(arrangement(3), 160, 40)
    assert any(" counters" in line and " @m0" in line for line in lines)
