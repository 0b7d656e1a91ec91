"""What the live view shows, and where."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import termios
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import pytest
from msgspec.structs import replace

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.core.failures import UnderWay
from pytrace.live import answer_view, changes, pictures, processes, terminal, view_process
from pytrace.live.answer_view import AnswerView
from pytrace.live.app import footer
from pytrace.live.arrangement import COUNTERS, LOG, Arrangement, Log, counter_lines
from pytrace.live.board import Board, sampled, summary
from pytrace.live.glyphs import LEVELS, Glyphs, Line, columns
from pytrace.live.messages import Command, Lines, Message, Notice, Start, State
from pytrace.live.panels import FADE, TOTAL, Counters, Panel, Selection, quantity
from pytrace.live.pictures import HistogramPanel, SeriesPanel
from pytrace.remote.answer import trimmed
from pytrace.render import histogram as render
from pytrace.results import file_form
from pytrace.results.formats.portable_forms import Printers
from pytrace.results.snapshot import Frame, MapData, Portable, SnapshotData, StackTrace, Value
from tests.support.live_samples import HOSTILE, METERS, NAME, SECOND, START, counts, histogram, state, stored, total
from tests.support.rows import each_row
from tests.support.snapshots import COUNT, STRING, map_data, snapshot

# ---------------------------------------------------------------------------------------------- panels
# .


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


def rows(made: Panel, width: int = 60, height: int = 10) -> list[list[str]]:
    """The words of the rows below the headings, without bars."""
    return [[word for word in line if word.strip("#")] for line in words(made, width, height)[1:]]


def test_what_is_busy_now_comes_first_and_any_column_sorts() -> None:
    made = panel(DATA)
    assert rows(made) == [["30", "cat"], ["7", "ls"], ["5", "bash"]]
    made.update(counts("@", {"bash": 25, "cat": 34, "ls": 7, "new": 2}), 0, 3)
    assert words(made)[0] == ["ratev", "total", "key"]
    assert rows(made) == [["10/s", "25", "bash"], ["2/s", "34", "cat"], ["1/s", "2", "new"], ["0", "7", "ls"]]
    idle = made.lines(60, 10)[-1]
    assert {role for text, role in idle if text.strip()} == {"dim"}
    assert [line.count("#") for line in texts(made.lines(60, 10))] == [0, 7, 1, 1, 0]
    made.turn_order()
    assert [row[-1] for row in rows(made)] == ["cat", "bash", "ls", "new"]
    made.turn_order()
    assert [row[-1] for row in rows(made)] == ["bash", "cat", "ls", "new"]
    made.sort_by("key0")
    assert [row[-1] for row in rows(made)] == ["new", "ls", "cat", "bash"], "the other way round"
    made.turn_order(-1)
    assert (made.order, made.reverse) == (TOTAL, False)


def test_idle_rows_go_and_come_back() -> None:
    made = panel(DATA)
    made.update(counts("@", {"bash": 25, "cat": 34, "ls": 7}), 0, 3)
    made.update(counts("@", {"bash": 26, "cat": 34, "ls": 7}), 0, 3.5 + FADE)
    assert [row[-1] for row in rows(made)] == ["bash"]
    assert made.heading() == " @, 1 of 3 rows, by rate "
    made.update(counts("@", {"bash": 26, "cat": 35, "ls": 7}), 0, 9 + 2 * FADE)
    assert [row[-1] for row in rows(made)] == ["cat"]
    made.update(counts("@", {"bash": 26, "cat": 35, "ls": 7}), 0, 15 + 3 * FADE)
    assert made.lines(60, 10) == []
    assert made.heading() == " @, nothing now, 3 rows so far: s sorts by total "
    made.turn_order()
    assert len(rows(made)) == 3


def keyed(name: str, names: tuple[str, ...], entries: Mapping[Portable, Value], value: types.Type) -> MapData:
    kinds = tuple(types.INT64 if name == "pid" else types.String(64) for name in names)
    return MapData(name, types.Tuple(kinds), value, dict(entries), key_names=names)


def test_columns_have_the_names_and_units_of_pictures() -> None:
    names = ("pid", "comm", "filename")
    before = keyed("@disk_bytes", names, {(7, "dd", "/a"): 1000, (99, "cat", "/b"): 5}, types.Sum())
    after = replace(before, entries={(7, "dd", "/a"): 2_501_000, (99, "cat", "/b"): 5})
    made = panel(before)
    made.update(after, 0, 3)
    made.order = TOTAL
    assert words(made, 80) == [
        ["rate", "totalv", "PID", "command", "filename"],
        ["1.25", "MB/s", "##########", "2.5", "MB", "7", "dd", "/a"], ["0", "#", "5", "bytes", "99", "cat", "/b"],
    ]  # fmt: skip
    made.sort_by("key0")
    assert [line[-3] for line in words(made, 80)[1:]] == ["7", "99"], "by number"


def test_samples_are_shares_of_a_cpu() -> None:
    text = "profile:hz:99 / pid != 0 / { @cpu[pid, comm] = count(); } t:x:y { @calls[pid, comm] = count(); }"
    board = Board(PLAIN, NoProcesses())
    for second, count in ((1, 99), (3, 99 + 149)):
        names = ("pid", "comm")
        made = state(second, *(keyed(name, names, {(7, "x"): count}, COUNT) for name in ("@calls", "@cpu")))
        run = replace(made.snapshot.runs[0], text=text)
        board.update(replace(made, snapshot=replace(made.snapshot, runs=(run,))))
    assert [*board.panels] == ["@cpu", "@calls"], "in the order of the script"
    assert texts(board.panels["@cpu"].lines(70, 9))[1].split()[:2] == ["75.3", "%"]
    assert texts(board.panels["@calls"].lines(70, 9))[1].split()[0] == "74/s"


SAMPLED = (
    ("profile:hz:100 { @ = count(); }", 0.01), ("p:ms:10 { if (1) { @ = count(); } }", 0.01),
    ('profile:hz:100 { @ = count(); } // } t:x:y { @ = 1 }', 0.01),
    ("profile:hz:100 { @ = count(); } t:x:y { @ = count(); }", 0.0),
    ("profile:hz:100 { @a = count(); } t:x:y { @ab = count(); }", 0.01),
    ("profile:hz:100 { @ = count(); } profile:hz:99 { @ = count(); }", 0.0),
)  # fmt: skip


@each_row("row", SAMPLED)
def test_only_counts_of_samples_at_one_rate_are_time(row: tuple[str, float]) -> None:
    run = replace(state(1).snapshot.runs[0], text=row[0])
    assert sampled(run, counts("@", {})) == row[1]


class NoProcesses(processes.Processes):
    """A machine with the processes of a test."""

    def __init__(self, *known: processes.Process) -> None:
        super().__init__()
        self.all = {process.pid: process for process in known}

    def known(self, pid: int) -> processes.Process | None:
        return self.all.get(pid)

    def ended(self, pid: int) -> bool:
        return pid not in self.all

    def user_name(self, uid: int) -> str:
        return {0: "root"}.get(uid, f"user{uid}")


def task(pid: int, parent: int, uid: int = 0, name: str = "x") -> processes.Process:
    return processes.Process(pid, name, "S", parent, uid, pid * 1000, 1, pid, f"/bin/{name} {HOSTILE}")


def busy(*known: processes.Process) -> Panel:
    made = Panel(DATA_OF_PROCESSES, Printers(), PLAIN, 0.01, Selection(NoProcesses(*known)))
    made.update(DATA_OF_PROCESSES, 0, 1)
    made.update(replace(DATA_OF_PROCESSES, entries={(7, "a"): 60, (8, "b"): 150, (9, "c"): 3}), 0, 2)
    return made


DATA_OF_PROCESSES = keyed("@cpu", ("pid", "comm"), {(7, "a"): 10, (8, "b"): 50, (9, "c"): 3}, types.Count())


def test_rows_of_processes_have_memory_state_user_and_command_line() -> None:
    made = busy(task(7, 1), task(8, 7, 5))
    lines = texts(made.lines(120, 9))
    assert lines[0].split() == ["CPUv", "CPU", "time", "PID", "command", "user", "state", "memory", "command", "line"]
    assert "1.5 s   8 b       user5 sleeping   8 kB /bin/x" in lines[1]
    assert len(lines) == 3, "of an ended process that gained nothing there is no row"
    assert all(line.isprintable() for line in lines)
    for width in (30, 50, 70):
        assert max(map(len, texts(made.lines(width, 9)))) <= width
        assert texts(made.lines(width, 9))[1].startswith("100.0 %"), "what is asked is never dropped"
    made.sort_by("memory")
    assert [line.split("command line")[0].split()[0] for line in texts(made.lines(120, 9))[1:3]] == ["100.0", "50.0"]


def test_a_user_a_process_a_tree() -> None:
    made = busy(task(1, 0, name="init"), task(5, 1, name="sh"), task(7, 5), task(8, 1, 5), task(9, 1))
    selection = made.selection
    selection.user = 5
    assert [made.pid(key) for key, _ in made.chosen()] == [8]
    assert "user user5" in made.heading()
    selection.user, selection.pid = None, 9
    assert [made.pid(key) for key, _ in made.chosen()] == [9], "also while it is idle"
    selection.pid, selection.own = None, frozenset((8,))
    assert [made.pid(key) for key, _ in made.chosen()] == [7, 9]
    selection.own, selection.tree = frozenset(), True
    assert [(pid, depth) for pid, _, depth, _ in made.tree(10)] == [(1, 0), (8, 1), (5, 1), (7, 2), (9, 1)]
    selection.folded.add(5)
    assert [(pid, hidden) for pid, _, _, hidden in made.tree(10)] == [(1, 0), (8, 0), (5, 1), (9, 0)]
    assert "sh (+1)" in texts(made.lines(120, 9))[3]
    selection.folded.add(1)
    assert [(pid, hidden) for pid, _, _, hidden in made.tree(10)] == [(1, 4)]
    selection.folded.clear()
    made.move(3)
    assert made.chosen_pid() == 7
    selection.processes.all[1] = task(1, 7)  # type: ignore[attr-defined]
    assert {pid for pid, *_ in made.tree(10)} <= {1, 5, 7, 8, 9}, "parents in a circle"
    selection.folded.update((1, 5, 7))
    assert {pid for pid, *_ in made.tree(10)} <= {1, 5, 7, 8, 9}


def test_calls_that_have_not_returned_are_a_panel_of_their_own() -> None:
    board = Board(PLAIN, NoProcesses())
    names = [*board.panels]
    board.update(state(1, counts("@", {"a": 1})))
    assert names == [], "of a run without calls there is none"
    ages = {9: 0, 8: 1, 3: 0}
    calls = tuple(UnderWay(age * SECOND, 70 + age, "work", f"libc:{HOSTILE}", depth) for age, depth in ages.items())
    board.update(replace(state(2, counts("@", {"a": 1})), calls=calls, younger_calls=5))
    assert [*board.panels] == ["@", "calls under way"]
    panel = board.panels["calls under way"]
    assert panel.heading() == " calls under way, 3 of 8 rows, by age "
    lines = texts(panel.lines(90, 9))
    assert lines[0].split() == ["agev", "TID", "thread", "call", "depth"]
    assert [line.split()[0] for line in lines[1:]] == ["9", "8", "3"]
    assert [line.split()[-1] for line in lines[1:]] == ["0", "1", "0"]
    assert panel.chosen_pid() == 79
    shown = Arrangement(board, Log(PLAIN), PLAIN)
    shown.choose("calls under way")
    assert shown.maps() == [], "there is nothing to reset"
    board.update(replace(state(3, counts("@", {"a": 1})), calls=()))
    assert panel.heading() == " calls under way, none "
    board.scroll(1)
    assert len(panel.entries) == 3


def test_ten_minutes_are_kept_and_shown_again() -> None:
    board = Board(PLAIN)
    for second in range(4, 801, 4):
        board.update(state(second, counts("@", {f"key{second}": 5, **{f"k{number}": second for number in range(210)}})))
    board.scroll(15)
    assert board.ago() == (START / SECOND + 740, 60.0)
    made = board.panels["@"]
    assert "key740" in made.entries
    assert (len(made.entries), made.others) == (200, 11)
    board.update(state(804, counts("@", {"x": 1})))
    assert made.now.time == START / SECOND + 740, "it stays while the run goes on"
    board.scroll(10_000)
    assert board.ago() == (START / SECOND + 204, 600.0)
    board.scroll(-10_000)
    assert board.ago() is None
    assert "x" in made.entries


def test_the_summary_has_the_largest_of_each_map() -> None:
    data = keyed("@disk_bytes", ("pid", "comm"), {(n, HOSTILE): n * 1000 for n in range(9)}, types.Sum())
    data.help = "Who writes to disks?"
    made = state(10, data, own(stored("@start", {"x": 1})), counts("@empty", {}))
    lines = summary(made.snapshot, PLAIN, frozenset((8,)), 60)
    assert lines[:2] == ["In 10 s:", "  Who writes to disks?"]
    assert lines[2].split()[:3] == ["rate", "total", "PID"]
    assert [line.split()[4] for line in lines[3:]] == ["7", "6", "5", "4", "3"]
    assert lines[3].startswith("    700 bytes/s   7 kB  7    ")
    assert all(line.isprintable() and len(line) <= 60 for line in lines)
    assert summary(state(3).snapshot, PLAIN, frozenset(), 60) == []


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
    assert panel(data).value_text(value) == printed
    assert printed in texts(panel(data).lines(80, 3))[1]


def test_a_stack_is_one_line() -> None:
    frames = (Frame("inner", 1, address=1), Frame("outer", 2, address=2))
    data = MapData("@", types.Stack(user=False), types.Count(), {StackTrace(frames, user=False): 3})
    assert texts(panel(data).lines(80, 3))[1].endswith("inner+1 < outer+2")


def test_names_of_others_never_reach_the_terminal_raw() -> None:
    data = MapData("@", NAME, types.String(64), {HOSTILE: HOSTILE})
    data.help = HOSTILE
    made = panel(data)
    made.filter = "\x1b"
    assert all(text.isprintable() for text in (*texts(made.lines(80, 3)), made.heading(), made.help))
    assert made.key_text("a\nb") == "a\\x0ab", "not as the functions of a stack"


def test_the_filter_is_of_keys_and_the_chosen_row_stays_in_sight() -> None:
    made = panel(counts("@", {f"key{number}": number for number in range(100)}))
    made.move(50)
    lines = made.lines(40, 5, focused=True)
    assert lines[-1][-1] == ("key49", "chosen")
    made.filter = "KEY9"
    assert [line[-1] for line in words(made, height=20)[1:]] == [
        "key99", "key98", "key97", "key96", "key95", "key94", "key93", "key92", "key91", "key90", "key9",
    ]  # fmt: skip
    made.filter = "none"
    assert made.lines(60, 5) == []
    assert "nothing matches, filter 'none'" in made.heading()


def test_the_heading_says_how_many_keys_there_are() -> None:
    made = panel(DATA)
    assert made.heading() == " @, 3 rows, by rate "
    made.help = "calls by process"
    assert made.heading() == " calls by process, 3 rows, by rate "
    data = replace(DATA, mark="estimate")
    assert panel(data).heading() == " estimate @, 3 rows, by rate "
    assert panel(replace(data, help="Who calls?")).heading() == " estimate: Who calls?, 3 rows, by rate "
    made.help = ""
    made.update(DATA, 997, 2)
    assert made.heading() == " @, 3 of 1000 rows, by rate "


def test_counters_share_their_columns() -> None:
    made = [Counters(data, Printers(), PLAIN) for data in (total("@opens", 5), total("@x", 1000))]
    for second, values in ((1, (5, 1000)), (2, (15, 1000))):
        for counter, value in zip(made, values, strict=True):
            counter.update(total(counter.name, value), 0, second)
    assert [line.rstrip() for line in texts(counter_lines(made, 40))] == [
        "@opens   15       10/s                 #", "@x     1000          0",
    ]  # fmt: skip


def test_a_counter_that_was_not_written_shows_none() -> None:
    made = Counters(total("@", 0), Printers(), PLAIN)
    made.update(MapData("@", None, types.Count()), 0, 1)
    assert texts(counter_lines([made], 30))[0].split() == ["@", "-"]


# ---------------------------------------------------------------------------------------------- arrangement
# .


def arrangement(maps: int = 1, *, glyphs: Glyphs = PLAIN) -> Arrangement:
    board, log = Board(glyphs), Log(glyphs)
    keyed = [counts(f"@m{number}", {f"key{key}": key for key in range(30)}) for number in range(maps)]
    board.update(state(1, *keyed, total("@n", 3), histogram("@z", {None: {2: 3, 5: 1}})))
    log.add(b"".join(b"line %d\n" % number for number in range(50)))
    return Arrangement(board, log, glyphs)


def arrangement_texts(made: Arrangement, width: int, height: int) -> list[str]:
    return ["".join(text for text, _ in line) for line in made.lines(width, height)]


@each_row("maps", [1, 3, 9])
@each_row("size", [(80, 21), (40, 8), (200, 60), (20, 3)])
@each_row("zoomed", [False, True])
def test_the_screen_is_filled_and_nothing_leaves_it(size: tuple[int, int], maps: int, zoomed: bool) -> None:
    made = arrangement(maps, glyphs=Glyphs())
    made.zoomed = zoomed
    for _ in range(len(made.names())):
        made.turn(1)
        lines = arrangement_texts(made, *size)
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
    assert not any("@outputs" in line for line in arrangement_texts(made, 60, 20))
    made.turn(-1)
    assert made.maps() == ["@m"]
    made.show_all()
    assert made.names() == [COUNTERS, "@start", "@calls", LOG]
    assert any("@outputs" in line for line in arrangement_texts(made, 60, 20))


def test_counters_scroll_and_have_a_filter() -> None:
    board, log = Board(PLAIN), Log(PLAIN)
    made = Arrangement(board, log, PLAIN)
    board.update(state(1, *(total(f"@n{number:02}", number) for number in range(30))))
    assert made.focus == COUNTERS
    assert "30 counters" in arrangement_texts(made, 60, 10)[0]
    assert [line[:4] for line in arrangement_texts(made, 60, 10)[1:]] == [f"@n{number:02}" for number in range(9)]
    made.move(10)
    assert [line[:4] for line in arrangement_texts(made, 60, 10)[1:]] == [f"@n{number}" for number in range(10, 19)]
    made.move(100)
    assert arrangement_texts(made, 60, 10)[-1].startswith("@n29")
    made.set_filter("N1")
    assert made.filter == "N1"
    assert "10 counters, filter 'N1'" in arrangement_texts(made, 60, 10)[0]
    assert arrangement_texts(made, 60, 20)[1].startswith("@n10")
    made.set_filter("none")
    assert "no name matches the filter" in arrangement_texts(made, 60, 10)[1]


def test_a_hidden_panel_gives_its_room_to_others() -> None:
    made = arrangement()
    before = sum("key" in line for line in arrangement_texts(made, 80, 24))
    made.toggle(4)
    made.toggle(3)
    assert sum("key" in line for line in arrangement_texts(made, 80, 24)) > before
    for number in (1, 2):
        made.toggle(number)
    assert "all panels are hidden" in arrangement_texts(made, 80, 24)[0]


def test_before_the_first_state_it_waits() -> None:
    made = Arrangement(Board(PLAIN), Log(PLAIN), PLAIN)
    assert "waiting" in arrangement_texts(made, 40, 10)[0]
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
    assert arrangement_texts(made, 80, 24)[-1].startswith("line 49")
    made.move(-10)
    assert arrangement_texts(made, 80, 24)[-1].startswith("line 39")
    made.set_filter("line 7")
    assert "line 7".ljust(80) in arrangement_texts(made, 80, 24)
    assert "filter 'line 7'" in "".join(arrangement_texts(made, 80, 24))


def test_long_lines_of_the_log_are_whole_on_the_whole_screen() -> None:
    board, log = Board(Glyphs()), Log(Glyphs())
    made = Arrangement(board, log, Glyphs())
    log.add("first\n{}END\n".format("漢字" * 20).encode())
    assert made.focus == LOG
    assert arrangement_texts(made, 30, 10)[2].rstrip().endswith("…")
    made.zoomed = True
    lines = arrangement_texts(made, 30, 10)
    assert "".join(line.strip() for line in lines[1:]) == "first" + "漢字" * 20 + "END"
    assert max(map(columns, lines)) <= 30
    made.move(-1)
    assert "END" not in "".join(arrangement_texts(made, 30, 10))
    assert arrangement_texts(made, 1, 3)


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
    lines = arrangement_texts(arrangement(3), 160, 40)
    assert any(" counters" in line and " @m0" in line for line in lines)


# ---------------------------------------------------------------------------------------------- board
# .


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


# ---------------------------------------------------------------------------------------------- changes
# .


def test_rates_are_per_second_and_of_keys_that_are_known() -> None:
    count = types.Count()
    assert changes.rates(count, {"a": 10}, {"a": 30, "b": 4}, 2, whole=True) == {"a": 10, "b": 2}
    assert changes.rates(count, {"a": 10}, {"a": 30, "b": 4}, 2, whole=False) == {"a": 10}
    assert changes.rates(count, {"a": 10}, {"a": 4}, 2, whole=True) == {"a": 2}, "it was cleared in between"
    assert changes.rates(types.INT64, {"a": 10}, {"a": 4, "b": 1}, 2, whole=True) == {"a": -3}
    assert changes.rates(types.Sum(signed=True), {"a": 10}, {"a": 4}, 2, whole=True) == {"a": -3}
    assert changes.rates(types.Avg(), {"a": (100, 4)}, {"a": (500, 8)}, 2, whole=True) == {"a": 2}
    assert changes.rates(types.Max(), {"a": 10}, {"a": 30}, 2, whole=True) == {}
    assert changes.rates(count, {"a": 10}, {"a": 30}, 0, whole=True) == {}


def test_buckets_gain_what_was_added() -> None:
    assert pictures.added({1: 5, 2: 1}, {1: 7, 2: 1, 3: 4}) == {1: 2, 3: 4}
    assert pictures.added(None, {1: 7}) == {1: 7}
    assert pictures.added({1: 5}, {1: 2}) == {1: 2}, "it was cleared in between"
    assert pictures.added({1: 5}, None) == {}


# ---------------------------------------------------------------------------------------------- glyphs
# .


UNICODE, GLYPHS_PLAIN = Glyphs(), Glyphs(unicode=False, colour=False)


@pytest.mark.parametrize("glyphs", [UNICODE, GLYPHS_PLAIN])
def test_bars_have_their_width_and_anything_shows(glyphs: Glyphs) -> None:
    for share in (0, 0.001, 0.3, 0.999, 1, 7):
        assert columns(glyphs.bar(share, 10)) == 10
    assert glyphs.bar(0, 4) == "    "
    assert glyphs.bar(1e-9, 4).strip()
    assert " " not in glyphs.bar(1, 4)


def test_sparklines_end_with_the_last_value() -> None:
    assert UNICODE.sparkline([0, 1, 8, 4], 6) == "   ▂█▅"
    assert GLYPHS_PLAIN.sparkline([0, 1, 8, 4], 4) == " .#="
    assert UNICODE.sparkline([1, 2, 3], 2) == "▆█"
    assert UNICODE.sparkline([], 3) == "   "


def test_cells_say_how_much_by_colour_or_by_a_character() -> None:
    assert UNICODE.cell(0) == (" ", "heat0")
    assert UNICODE.cell(1) == (" ", f"heat{LEVELS - 1}")
    shades = [GLYPHS_PLAIN.cell(share / 8)[0] for share in range(9)]
    assert shades[0] == " "
    assert " " not in shades[1:]
    assert all(cell.isascii() for cell in shades)
    assert Glyphs(colour=False).cell(1) == ("█", "")


def test_text_fits_in_columns_not_in_characters() -> None:
    assert UNICODE.fit("ab", 4) == "ab  "
    assert UNICODE.fit("ab", 4, right=True) == "  ab"
    assert UNICODE.fit("abcdef", 4) == "abc…"
    assert GLYPHS_PLAIN.fit("abcdef", 4) == "abc~"
    assert UNICODE.fit("日本語", 4) == "日… "
    assert UNICODE.fit("abc", 0) == ""
    assert columns("e\u0301") == 1


def test_text_of_others_is_printable() -> None:
    assert UNICODE.text("a\x1b[31m\nb\u202e") == "a\\x1b[31m\\x0ab\\xe2\\x80\\xae"
    assert UNICODE.text("é") == "é"
    assert GLYPHS_PLAIN.text("é") == "\\xe9"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.5, "0.5"), (12.3, "12"), (999, "999"), (1200, "1.2k"), (35e6, "35M"), (-4000, "-4.0k")],
)
def test_quantities_are_short(value: float, text: str) -> None:
    assert quantity(value) == text


# ---------------------------------------------------------------------------------------------- pictures
# .


def pictures_panel(*states: MapData, glyphs: Glyphs = PLAIN) -> HistogramPanel:
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
    lines = texts(pictures_panel(data).lines(60, 10))
    assert lines[0].split() == ["15", "p50", "11", "p99", "23"]
    shown = [(line.split(")")[0].strip(), int(line.split(")")[1].split()[0])) for line in lines[1:]]
    assert shown == expected


@each_row("height", range(1, 9))
@each_row("heat", [False, True])
def test_pictures_fit(height: int, heat: bool) -> None:
    many = {number: number + 1 for number in range(40)}
    made = pictures_panel(histogram("@", {None: {}}), histogram("@", {None: many}), glyphs=Glyphs())
    made.heat = heat
    for width in (20, 60):
        lines = made.lines(width, height)
        assert len(lines) <= height
        assert all(columns(line) <= width for line in texts(lines))


def test_a_heat_map_has_what_each_interval_added_now_at_the_right() -> None:
    made = pictures_panel(*(histogram("@", {None: buckets}) for buckets in ({}, {3: 1}, {3: 1, 5: 50}, {3: 1, 5: 100})))
    made.heat = True
    lines = texts(made.lines(24, 6))[1:]
    assert [line[:16].strip() for line in lines] == ["[8, 16)", "[4, 8)", "[2, 4)"]
    assert [line[17:] for line in lines] == ["     @@", "       ", "    :  "]


def test_joined_buckets_are_labelled_by_their_bounds() -> None:
    made = pictures_panel(*(histogram("@", {None: buckets}) for buckets in ({}, dict.fromkeys(range(8), 1))))
    made.heat = True
    assert [line[:16].strip() for line in texts(made.lines(24, 5))[1:]] == ["[16, 64)", "[4, 16)", "[1, 4)", "(..., 0]"]


def test_a_heat_map_of_nothing_says_so() -> None:
    made = pictures_panel(histogram("@", {None: BUCKETS}))
    made.heat = True
    assert "nothing yet" in texts(made.lines(60, 6))[1]


def test_keys_are_listed_with_quantiles_and_the_chosen_one_has_a_picture() -> None:
    made = pictures_panel(histogram("@", {"cat": BUCKETS, "ls": {3: 1}}))
    lines = texts(made.lines(70, 4))
    assert [line.split()[:6] for line in lines[1:]] == [
        ["cat", "15", "p50", "11", "p99", "23"], ["ls", "1", "p50", "2", "p99", "2"],
    ]  # fmt: skip
    made.move(1)
    zoomed = texts(made.lines(70, 20, focused=True, zoomed=True))
    assert zoomed[3] == "-" * 70
    assert zoomed[5].startswith("[2, 4) ")
    assert len(zoomed) == 6


def test_time_series_end_together() -> None:
    kind = types.TSeries(interval=1_000_000_000, count=10, reduce="sum", signed=False)
    data = MapData("@", NAME, kind, {"a": {100: (3, 0), 102: (6, 0)}, "b": {101: (1, 0)}})
    made = SeriesPanel(data, Printers(), PLAIN)
    made.update(data, 0, 1)
    lines = texts(made.lines(20, 5))
    assert [line.rstrip().split()[:2] for line in lines] == [["key", "last"], ["a", "6"], ["b", "1"]]
    assert lines[1].endswith("= #")
    assert lines[2].endswith("# ")


# ---------------------------------------------------------------------------------------------- answer view
# The live view of an answer, without a process. tests/kernel/test_fleet.py has one, on a terminal.


class Process:
    """In place of the process: keeps what it is sent, and has the commands that a test gives."""

    def __init__(self, _streams: object, _confine: object, collect: object, _stack: object) -> None:
        self.sent: list[Message] = []
        self.commands: SimpleQueue[Command] = SimpleQueue()
        self.states, self.gone, self.error, self.room = 0, False, "", True
        self.collect = collect

    def begin(self, start: Start) -> None:
        self.sent.append(start)

    def send(self, message: Message) -> None:
        self.sent.append(message)

    def flush(self) -> bool:
        return self.room


def of(count: int) -> SnapshotData:
    made = snapshot(map_data("@", STRING, COUNT, {"a": count, "b": 1, "c": 2}))
    made.losses = {"lost events": {"web1: t:x:y": count}, "hosts without an answer": {"silent": 3}}
    return made


@pytest.fixture
def view(monkeypatch: pytest.MonkeyPatch) -> AnswerView:
    monkeypatch.setattr(answer_view, "ViewProcess", Process)
    monkeypatch.setattr(answer_view, "Streams", lambda _stack: None)
    counts = iter(range(10, 100, 10))
    made = AnswerView(
        "x.bt", lambda: of(next(counts)), partial(trimmed, most=2), lambda: "1 of 2 hosts answered", lambda: None,
        ExitStack(),
    )  # fmt: skip
    made.begin()
    return made


def process(view: AnswerView) -> Process:
    made = view._view
    assert isinstance(made, Process)
    return made


def test_states_have_the_largest_keys_and_who_answered(view: AnswerView) -> None:
    view._log.append(b"attached on 2 of 2 hosts\n")
    view.work()
    start, lines, state = process(view).sent
    assert isinstance(start, Start)
    assert start.title == "x.bt"
    assert lines == Lines(b"attached on 2 of 2 hosts\n")
    assert isinstance(state, State)
    assert state.snapshot.maps["@"].entries == {"a": 10, "c": 2}
    assert state.others == {"@": 1}
    assert (state.meters.answered, state.meters.lost) == ("1 of 2 hosts answered", 10)
    view._next = 0
    view.work()
    assert len(process(view).sent) == 3, "the view has not shown the last one"
    process(view).states = 1
    view.work()
    assert len(process(view).sent) == 4
    process(view).states, process(view).room, view._next = 2, False, 0
    view.work()
    assert len(process(view).sent) == 4, "there is no room for more"


def test_commands(view: AnswerView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    view._next = float("inf")
    for name in ("clear", "save", "report"):
        process(view).commands.put(Command(name))  # type: ignore[arg-type]
    view.work()
    notices = [message for message in process(view).sent if isinstance(message, Notice)]
    assert notices[0] == Notice("maps are not reset here", error=True)
    assert all(notice.text.startswith("written: pytrace-") for notice in notices[1:])
    (saved,) = tmp_path.glob("*.pts")
    assert file_form.read(str(saved)).maps["@"].entries == {"a": 10, "b": 1, "c": 2}
    assert next(tmp_path.glob("*.html")).read_bytes().startswith(b"<!DOCTYPE html>")
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    process(view).commands.put(Command("save"))
    view.work()
    notice = process(view).sent[-1]
    assert isinstance(notice, Notice)
    assert notice.error
    assert "cannot be written" in notice.text


# ---------------------------------------------------------------------------------------------- terminal
# .


ROOT = Path(__file__).resolve().parent.parent.parent


def standard(monkeypatch: pytest.MonkeyPatch, *terminals: int) -> None:
    monkeypatch.setattr(os, "isatty", lambda number: number in terminals)


@pytest.mark.parametrize(
    ("terminals", "message"),
    [
        ((), "standard input and output are not one"),
        ((0,), "standard output is not one"),
        ((1,), "standard input is not one"),
    ],
)
def test_it_needs_a_terminal(monkeypatch: pytest.MonkeyPatch, terminals: tuple[int, ...], message: str) -> None:
    standard(monkeypatch, *terminals)
    monkeypatch.setenv("TERM", "xterm")
    with pytest.raises(TraceError, match=message) as raised:
        terminal.check()
    assert "-o FILE" in raised.value.hints[0]


@pytest.mark.parametrize(
    ("term", "shows", "coloured"),
    [("xterm-256color", True, True), ("vt100", True, False), ("dumb", False, False), ("", False, False)],
)
def test_what_a_terminal_can_do(term: str, shows: bool, coloured: bool) -> None:
    """In a process of its own: a process reads one entry of terminfo."""
    assert asked(TERM=term) == [shows, coloured, True]
    assert asked(TERM=term, NO_COLOR="1", LC_ALL="C") == [shows, False, False]


ASK = """
import json, os
from pytrace.core.diagnostics import TraceError
from pytrace.live import terminal
os.isatty = lambda _number: True
try:
    terminal.check()
    shows = True
except TraceError:
    shows = False
print(json.dumps([shows, terminal.coloured(), terminal.characters()]))
"""


def asked(**variables: str) -> list[bool]:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8", **variables}
    done = subprocess.run([sys.executable, "-c", ASK], env=environment, capture_output=True, check=True)
    found: list[bool] = json.loads(done.stdout)
    return found


def test_a_terminal_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs, ours = pty.openpty()
    attributes = termios.tcgetattr(ours)
    monkeypatch.setattr(termios, "tcgetattr", lambda _number: attributes)
    saved = view_process.SavedTerminal()
    changed = [*attributes[:3], attributes[3] & ~(termios.ECHO | termios.ISIG), *attributes[4:]]
    termios.tcsetattr(ours, termios.TCSANOW, changed)
    saved.restore(ours, modes=True)
    monkeypatch.undo()
    assert termios.tcgetattr(ours) == attributes
    assert b"\x1b[?1049l" in os.read(theirs, 1000)
    os.close(ours)
    os.close(theirs)
