from __future__ import annotations

import pytest

from pytrace.core import types
from pytrace.live.glyphs import Glyphs, Line, columns
from pytrace.live.panels import Counters, Panel, counter_lines
from pytrace.results.formats.portable_forms import Printers
from pytrace.results.snapshot import MapData
from pytrace.results.values import Frame, StackTrace
from tests.support.live_samples import HOSTILE, NAME, counts, total

PLAIN = Glyphs(unicode=False, colour=False)


def panel(data: MapData, glyphs: Glyphs = PLAIN) -> Panel:
    made = Panel(data, Printers(), glyphs)
    made.update(data, 0, 1)
    return made


def texts(lines: list[Line]) -> list[str]:
    return ["".join(text for text, _ in line) for line in lines]


def words(made: Panel, width: int = 60, height: int = 10) -> list[list[str]]:
    return [line.split() for line in texts(made.lines(width, height))]


DATA = counts("@", {"bash": 5, "cat": 30, "ls": 7})


def test_rows_are_sorted_by_value_rate_or_key() -> None:
    """By rate at first, where values add up: what is busy now comes first, and what is idle is dimmed."""
    made = panel(DATA)
    assert [line[:2] for line in words(made)] == [["cat", "30"], ["ls", "7"], ["bash", "5"]]
    made.update(counts("@", {"bash": 25, "cat": 34, "ls": 7, "new": 2}), 0, 3)
    assert [{role for _, role in line} - {"", "bar"} for line in made.lines(60, 10)] == [
        {"key", "number", "rate"}, {"key", "number", "rate"}, {"key", "number", "rate"}, {"dim"},
    ]  # fmt: skip
    assert [line.count("#") for line in texts(made.lines(60, 10))] == sorted(
        (line.count("#") for line in texts(made.lines(60, 10))), reverse=True
    )
    assert [line[:3] for line in words(made)] == [
        ["bash", "25", "+10/s"], ["cat", "34", "+2/s"], ["new", "2", "+1/s"], ["ls", "7", "0/s"],
    ]  # fmt: skip
    made.turn_order()
    assert [line[0] for line in words(made)] == ["bash", "cat", "ls", "new"]
    made.turn_order()
    assert [line[0] for line in words(made)] == ["cat", "bash", "ls", "new"]


@pytest.mark.parametrize("width", [10, 30, 48, 80, 200])
def test_lines_fit_their_width(width: int) -> None:
    made = panel(counts("@", {"x" * 100: 5, "日本語": 3}), Glyphs())
    made.update(made_data := counts("@", {"x" * 100: 50, "日本語": 30}), 0, 2)
    assert made.entries == made_data.entries
    for line in texts(made.lines(width, 5)):
        assert columns(line) <= width


VALUES = {
    "count": (types.Count(), 7), "negative": (types.INT64, -3), "average": (types.Avg(), (10, 4)),
    "stats": (types.Stats(), (10, 4)), "max": (types.Max(), 9), "text": (types.String(8), "abc"),
    "tuple": (types.Tuple((types.INT64, types.String(8))), (1, "a")), "flag": (types.BOOL, True),
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_values_are_those_of_the_text_output(name: str) -> None:
    type_, value = VALUES[name]
    data = MapData("@", NAME, type_, {"key": value})
    printed = Printers().portable_text(type_)(value).decode()
    assert panel(data).row("key", value).text == printed
    assert printed in texts(panel(data).lines(80, 3))[0]


def test_a_stack_is_one_line() -> None:
    frames = (Frame("inner", 1, address=1), Frame("outer", 2, address=2))
    data = MapData("@", types.Stack(user=False), types.Count(), {StackTrace(frames, user=False): 3})
    assert texts(panel(data).lines(80, 3))[0].startswith("inner+1 < outer+2 ")


def test_names_of_others_never_reach_the_terminal_raw() -> None:
    data = MapData("@", NAME, types.String(64), {HOSTILE: HOSTILE})
    data.help = HOSTILE
    made = panel(data)
    made.filter = "\x1b"
    assert all(text.isprintable() for text in (*texts(made.lines(80, 3)), made.heading(), made.help))


def test_the_filter_is_of_keys_and_the_chosen_row_stays_in_sight() -> None:
    made = panel(counts("@", {f"key{number}": number for number in range(100)}))
    made.move(50)
    lines = made.lines(40, 5, focused=True)
    assert [line[0] for line in lines][-1] == (lines[-1][0][0], "chosen")
    assert texts(lines)[-1].startswith("key49 ")
    made.filter = "KEY9"
    assert [line[0] for line in words(made, height=20)] == [
        "key99", "key98", "key97", "key96", "key95", "key94", "key93", "key92", "key91", "key90", "key9",
    ]  # fmt: skip
    made.filter = "none"
    assert texts(made.lines(60, 5)) == [" no entries match the filter".ljust(60)]


def test_the_heading_says_how_many_keys_there_are() -> None:
    made = panel(DATA)
    assert made.heading() == " @, 3 keys, by rate "
    made.help = "calls by process"
    assert made.heading() == " @: calls by process, 3 keys, by rate "
    made.help = ""
    made.update(DATA, 997, 2)
    assert made.heading() == " @, 3 of 1000 keys, by rate "


def test_counters_share_their_columns() -> None:
    made = [Counters(data, Printers(), PLAIN) for data in (total("@opens", 5), total("@x", 1000))]
    for second, values in ((1, (5, 1000)), (2, (15, 1000))):
        for counter, value in zip(made, values, strict=True):
            counter.update(total(counter.name, value), 0, second)
    assert [line.rstrip() for line in texts(counter_lines(made, 40))] == [
        "@opens   15    +10/s                   #", "@x     1000      0/s",
    ]  # fmt: skip


def test_a_counter_that_was_not_written_shows_none() -> None:
    made = Counters(total("@", 0), Printers(), PLAIN)
    made.update(MapData("@", None, types.Count()), 0, 1)
    assert texts(counter_lines([made], 30))[0].split() == ["@", "-"]
