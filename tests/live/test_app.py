"""The live view as a process: keys, messages, files."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import signal
import socket
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn
from xml.etree import ElementTree

import msgspec
import pytest
from textual.events import Key
from textual.pilot import Pilot

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.live import answer_view, messages, view_process
from pytrace.live.app import KEYS, LiveApp, Panels
from pytrace.live.arrangement import Log
from pytrace.live.glyphs import Glyphs
from pytrace.live.messages import Answer, Command, Incoming, Lines, Message, Notice, Start
from pytrace.live.processes import read
from pytrace.live.view_process import Streams, ViewProcess
from pytrace.results import file_form
from pytrace.results.snapshot import MapData, SnapshotData
from tests.support import live_pictures
from tests.support.live_samples import HOSTILE, NAME, counts, histogram, state, total
from tests.support.patience import patience
from tests.support.snapshots import COUNT, STRING, map_data, snapshot
from tests.support.waiting import until

# ---------------------------------------------------------------------------------------------- app
# The view, driven by textual's pilot at three sizes.


PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"
SVG = "{http://www.w3.org/2000/svg}"
SIZES = ((80, 24), (120, 40), (200, 60))

Steps = Callable[[LiveApp, "Pilot[None]"], Coroutine[Any, Any, None]]


class View:
    """A view without a run: what it sends is in :attr:`sent`."""

    def __init__(self, *, unicode: bool = True, colour: bool = True) -> None:
        self.sent: list[Command] = []
        self.app = LiveApp(Start("tool.bt", unicode, colour), self.sent.append)

    def drive(self, steps: Steps, size: tuple[int, int] = SIZES[0]) -> None:
        async def run() -> None:
            async with self.app.run_test(size=size) as pilot:
                self.app.take([first(), Lines(b"hello\nworld\n")])
                await pilot.pause()
                await steps(self.app, pilot)

        asyncio.run(run())

    @property
    def commands(self) -> list[tuple[str, str]]:
        return [(command.do, command.name) for command in self.sent if command.do != "shown"]


def first(second: float = 1, factor: int = 1) -> messages.State:
    maps = (counts("@calls", {"bash": 5 * factor, "cat": 30 * factor}), total("@n", 7 * factor))
    return state(second, *maps, histogram("@h", {None: {3: 4 * factor, 5: factor}}))


def screen(app: LiveApp) -> list[str]:
    """The lines of the terminal."""
    widths = app.size.width
    lines = app.screen._compositor.render_strips()
    return [strip.text.ljust(widths) for strip in lines]


async def settled(app: LiveApp, pilot: Pilot[None], holds: Callable[[], bool]) -> None:
    """Wait until something holds: on a busy machine what was asked for is laid out a second later."""
    end = time.monotonic() + patience(10)
    while not holds():
        assert time.monotonic() < end, (screen(app), app.inquiry)
        await pilot.pause(0.01)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("plain", [False, True])
def test_it_shows_the_numbers_of_the_run(size: tuple[int, int], plain: bool) -> None:
    view = View(unicode=not plain, colour=not plain)

    async def steps(app: LiveApp, pilot: Pilot[None]) -> None:
        app.take([first(3, 2)])
        await pilot.pause()
        lines = screen(app)
        assert len(lines) == size[1]
        assert lines[0].startswith("pytrace tool.bt  00:01:01")
        text = "\n".join(lines)
        for shown in ("@calls, 2 rows, by rate", "@n 14", "10  p50", "hello", "world", "1,234 hits/s", "? help"):
            assert shown in text, shown
        (row,) = [line for line in lines if " cat " in line]
        assert {"15/s", "60"} <= set(row[: row.index("cat")].split())
        assert not plain or text.isascii()

    view.drive(steps, size)
    assert [(command.do, command.states, command.lines) for command in view.sent] == [("shown", 1, 1), ("shown", 2, 1)]


@pytest.mark.parametrize("size", [(80, 1), (80, 2), (200, 3), (9, 4), (1, 1)])
def test_the_lowest_windows(size: tuple[int, int]) -> None:
    view = View()

    async def steps(app: LiveApp, pilot: Pilot[None]) -> None:
        await pilot.press("tab", "down", "z", "question_mark", "escape", "right", "tab", "z")
        app.take([first(2, 3), Lines(b"more\n")])
        await pilot.pause()
        assert app.is_running

    view.drive(steps, size)


def test_keys_send_commands_or_change_what_is_shown() -> None:
    view = View()

    async def steps(app: LiveApp, pilot: Pilot[None]) -> None:
        await pilot.press("c", "C", "w", "r", "q", "ctrl+c")
        app.take([state(2, counts("@calls", {"bash": 5}), total("@m", 3), total("@n", 7))])
        await pilot.press("left", "c", "right", "right", "right", "c", "left")
        await pilot.press("left", "s", "z", "h")
        assert app.arrangement.zoomed
        assert app.board.panels["@calls"].order == "total"
        await pilot.press("enter", "3", "p")
        assert app.arrangement.hidden == {"@h"}
        assert "PAUSED" in screen(app)[0]
        app.take([first(9, 100)])
        await pilot.pause()
        assert not any("3000" in line for line in screen(app)), "paused"
        await pilot.press("space", "0")
        assert any("3000" in line for line in screen(app))
        assert not app.arrangement.hidden

    view.drive(steps)
    assert view.commands == [
        ("clear", "@calls"), ("clear", ""), ("save", ""), ("report", ""), ("end", ""), ("end", ""),
        ("clear", "@n @m"),
    ]  # fmt: skip


def test_lines_of_the_frame_are_shortened_by_words() -> None:
    view = View()
    view.app = LiveApp(Start("begin { " * 20, True, True), view.sent.append)

    async def steps(app: LiveApp, pilot: Pilot[None]) -> None:
        await pilot.press("ctrl+z")
        assert "there is no shell to go back to" in screen(app)[-1]
        await pilot.press("tab", "p")
        lines = screen(app)
        assert lines[0].startswith("pytrace begin { begin {")
        assert lines[0].rstrip().endswith("…  00:01:01  PAUSED")
        assert lines[-1].rstrip().endswith(("z zoom", "t tree", "[ back", "w save"))

    for size in ((80, 24), (75, 10), (120, 40)):
        view.drive(steps, size)
        view = View()
        view.app = LiveApp(Start("begin { " * 20, True, True), view.sent.append)


def test_the_filter_takes_all_keys_until_it_is_left() -> None:
    view = View()

    async def steps(app: LiveApp, pilot: Pilot[None]) -> None:
        await pilot.press("slash", *"csq")
        assert app.arrangement.filter == "csq"
        await pilot.press("backspace", "backspace", *"at", "enter")
        assert any(line.rstrip().endswith("cat") for line in screen(app))
        assert not any(line.rstrip().endswith("bash") for line in screen(app))
        await pilot.press("escape")
        assert app.arrangement.filter == ""
        await pilot.press("slash", "x", "escape")
        assert app.arrangement.filter == ""
        assert isinstance(app.focused, Panels)

    view.drive(steps)
    assert view.commands == []


def test_help_names_each_key() -> None:
    async def steps(app: LiveApp, pilot: Pilot[None]) -> None:
        await pilot.press("question_mark")
        text = "\n".join(screen(app))
        assert all(keys in text and meaning in text for keys, meaning in KEYS)
        app.take([first(2)])
        await pilot.press("x")
        assert "Keys of the live view" not in "\n".join(screen(app))

    View().drive(steps)


def test_help_scrolls_where_it_does_not_fit() -> None:
    async def steps(app: LiveApp, pilot: Pilot[None]) -> None:
        await pilot.press("question_mark", "pagedown", "pagedown", "pagedown")
        assert any("mouse" in line for line in screen(app))
        await pilot.press("escape", "x")
        assert "x does nothing: ? lists the keys" in screen(app)[-1]

    View().drive(steps, (70, 10))


def test_a_key_that_is_typed_while_the_help_goes_is_for_the_view() -> None:
    async def steps(app: LiveApp, pilot: Pilot[None]) -> None:
        await pilot.press("question_mark")
        help_ = app.screen
        for key in ("x", "y"):
            help_.post_message(Key(key, key))
        await pilot.pause()
        await pilot.pause()
        assert "y does nothing: ? lists the keys" in screen(app)[-1]

    View().drive(steps)


PID = os.getpid()
OF_PROCESSES = MapData("@cpu", types.Tuple((types.INT64, NAME)), types.Count(), key_names=("pid", "comm"))


def of_processes(second: float, *rows: tuple[int, str, int]) -> messages.State:
    entries = {(pid, name): count for pid, name, count in rows}
    return state(second, msgspec.structs.replace(OF_PROCESSES, entries=entries), counts("@calls", {"cat": 3}))


def looking(view: View) -> None:
    view.app = LiveApp(Start("top", unicode=True, colour=False, asks=True), view.sent.append)


def test_enter_looks_at_a_process_and_escape_goes_back() -> None:
    view = View()
    looking(view)
    start = read(PID)
    assert start is not None

    async def steps(app: LiveApp, pilot: Pilot[None]) -> None:
        child = os.fork() or os._exit(0)
        os.waitpid(child, 0)
        own = app.board.selection.own
        app.board.selection.own = frozenset()
        app.take([of_processes(2, (PID, HOSTILE, 1), (child, "gone", 9))])
        app.take([of_processes(3, (PID, HOSTILE, 5), (child, "gone", 90))])
        app.arrangement.choose("@cpu")
        await pilot.press("enter")
        assert f"process {child} has ended" in screen(app)[-1]
        await pilot.press("down", "enter")
        text = "\n".join(screen(app))
        assert f" process {PID} {start.name}" in text
        assert "What do its threads do?" in text
        rows = [("11", "running", "99 %", "1.20 s", HOSTILE), ("12", "sleeping", "100 %", "0.10 s", "b")]
        app.take([Answer("threads", PID, start.start, rows, note="2 threads")])
        await pilot.pause()
        assert [line.split()[0] for line in screen(app)[4:7]] == ["TID", "11", "12"]
        await pilot.press("s", "s", "s")
        assert [line.split()[0] for line in screen(app)[4:7]] == ["TID", "12", "11"], "by share of a CPU"
        await pilot.press("slash", *"run", "enter")
        assert [line.split()[:1] for line in screen(app)[5:7]] == [["11"], []]
        await pilot.press("escape", "5")
        app.take([Answer("flame", PID, start.start + 1, note="of another process with the number")])
        app.take([Answer("flame", PID, start.start, own=(4242,), begun=True)])
        await pilot.pause()
        assert "It is traced for 5 s." in screen(app)[3]
        assert 4242 in app.board.selection.own
        stacks = [(("main", "loop", "read"), 30), (("main", "loop", HOSTILE), 60), (("main", "loop", "x"), 10)]
        app.take([Answer("flame", PID, start.start, stacks=stacks, note="100 samples")])
        await pilot.pause()
        lines = screen(app)
        assert lines[4].startswith("|main > loop ")
        assert lines[5].startswith("|\\x1b]0;owned")
        assert [line.split()[:4] for line in lines if "%" in line and "hits" not in line] == [
            ["60.0", "%", "60.0", "%"], ["30.0", "%", "30.0", "%"], ["10.0", "%", "10.0", "%"],
            ["0.0", "%", "100.0", "%"], ["0.0", "%", "100.0", "%"],
        ]  # fmt: skip
        assert all(line.isprintable() for line in lines)
        await pilot.resize_terminal(30, 8)
        await pilot.pause()
        assert len(screen(app)) == 8
        await pilot.press("escape")
        assert "What do" not in "\n".join(screen(app))
        app.board.selection.own = own

    view.drive(steps)
    asked = [(command.name, command.pid, command.start) for command in view.sent if command.do == "ask"]
    assert asked == [("threads", PID, start.start), ("flame", PID, start.start)]


def test_questions_and_their_columns_are_clicked_and_fit_narrow_screens() -> None:
    view = View()
    looking(view)
    start = read(PID)
    assert start is not None

    async def steps(app: LiveApp, pilot: Pilot[None]) -> None:
        app.board.selection.own = frozenset()
        app.take([of_processes(second, (PID, "b", 9 * second)) for second in (2, 3)])
        app.arrangement.choose("@cpu")
        await pilot.press("z", "enter")
        rows = [("7", "running", "3 %", "1 s", "a"), ("8", "running", "9 %", "2 s", "b")]
        app.take([Answer("threads", PID, start.start, rows=rows, note="2 threads")])
        await settled(app, pilot, lambda: "CPU time" in screen(app)[4])
        await pilot.click(Panels, offset=(screen(app)[4].index("CPU time"), 3))
        assert "CPU time*" in screen(app)[4]
        assert screen(app)[5].split()[0] == "8", "the largest first"
        await pilot.click(Panels, offset=(screen(app)[2].index("sockets"), 1))
        assert app.inquiry is not None
        assert app.inquiry.question == "sockets"
        await pilot.resize_terminal(30, 8)
        await pilot.pause()
        assert "3 sockets" in screen(app)[2]
        await pilot.press("escape", "question_mark")
        await pilot.pause()
        assert "choose a panel" in " ".join(screen(app))

    view.drive(steps, (120, 40))


def test_users_processes_and_moments_are_chosen_by_keys_and_columns_by_clicks() -> None:
    view = View()
    looking(view)

    async def steps(app: LiveApp, pilot: Pilot[None]) -> None:
        app.board.selection.own = frozenset()
        app.take([of_processes(second, (1, "init", second), (PID, "b", 9 * second)) for second in (2, 3, 4)])
        app.arrangement.choose("@cpu")
        await pilot.press("z", "u")
        assert "processes of root only: u shows all" in screen(app)[-1]
        await pilot.press("u", "f")
        assert f"process {PID} only: f shows all" in screen(app)[-1]
        assert app.arrangement.panel is not None
        assert len(app.arrangement.panel.chosen()) == 1
        await pilot.press("f", "t", "t", "left_square_bracket")
        assert "1 s ago" in screen(app)[0]
        await pilot.press("left_curly_bracket", "end")
        assert "ago" not in screen(app)[0]
        titles = screen(app)[2]
        await pilot.click(Panels, offset=(titles.index("PID"), 1))
        assert app.arrangement.panel.order == "key0"
        before = app.arrangement.panel.cursor
        await pilot.click(Panels, offset=(3, 3))
        assert app.arrangement.panel.cursor == 1 != before
        await pilot.click(Panels, offset=(3, 3), times=2)
        assert app.inquiry is not None

    view.drive(steps)


def test_the_title_says_that_children_are_not_traced() -> None:
    view = View()

    async def steps(app: LiveApp, pilot: Pilot[None]) -> None:
        shown = state(2, counts("@calls", {"a": 9}))
        app.take([msgspec.structs.replace(shown, snapshot=msgspec.structs.replace(
            shown.snapshot, losses={"untraced": {"710": 3}}))])  # fmt: skip
        await pilot.pause()
        assert "(3 child processes not traced: --follow)" in screen(app)[0]

    view.drive(steps, SIZES[1])


def test_nothing_of_others_reaches_the_terminal_raw() -> None:
    view = View()
    view.app = LiveApp(Start(HOSTILE, unicode=True, colour=True), view.sent.append)

    async def steps(app: LiveApp, pilot: Pilot[None]) -> None:
        app.take([state(2, counts("@calls", {HOSTILE: 9})), Lines(HOSTILE.encode()), Notice(HOSTILE, error=True)])
        await pilot.pause()
        lines = screen(app)
        assert sum("evil" in line for line in lines) == 4
        assert all(line.isprintable() for line in lines)

    view.drive(steps)


def test_it_ends_when_the_run_closes_the_channel() -> None:
    read, write = os.pipe()
    app = LiveApp(Start("x", unicode=True, colour=True), [].append, read)

    async def run() -> None:
        async with app.run_test() as pilot:
            os.write(write, messages.packed(Notice("hi there")))
            await settled(app, pilot, lambda: "hi there" in screen(app)[-1])
            os.close(write)
            await settled(app, pilot, lambda: not app.is_running or app._exit)

    asyncio.run(run())
    os.close(read)


def test_pictures_of_the_documents_are_svg_of_this_view(tmp_path: Path) -> None:
    live_pictures.main(tmp_path)
    for name in (*live_pictures.PICTURES, live_pictures.MOVING):
        drawn, kept = (ElementTree.parse(folder / name).getroot() for folder in (tmp_path, PICTURES))
        texts = [["".join(item.itertext()) for item in root.iter(f"{SVG}text")] for root in (drawn, kept)]
        assert texts[0] == texts[1], f"scripts/screenshots draws {name} anew"
        assert any("hits/s" in text for text in texts[0])


# ---------------------------------------------------------------------------------------------- view process
# The view's process and its channel, without a view: the child is a function of the test.


START = Start("x", unicode=True, colour=True)
Child = Callable[[socket.socket], int]


class Standard:
    """Standard input and output on a pseudo-terminal."""

    def __init__(self) -> None:
        self._theirs, ours = pty.openpty()
        self._before = [os.dup(number) for number in range(3)]
        for number in range(3):
            os.dup2(ours, number)
        os.close(ours)
        os.set_blocking(self._theirs, False)
        self.shown = b""
        """What was written to it by the end."""

    def close(self) -> None:
        with suppress(BlockingIOError):
            self.shown = os.read(self._theirs, 1 << 16)
        for number, before in enumerate(self._before):
            os.dup2(before, number)
            os.close(before)
        os.close(self._theirs)


@contextmanager
def on_terminal() -> Iterator[Standard]:
    """Within the body of a test, as pytest captures these descriptors between the phases of one."""
    made = Standard()
    try:
        yield made
    finally:
        made.close()


def started(child: Child, stack: ExitStack, monkeypatch: pytest.MonkeyPatch, printed: list[bytes]) -> ViewProcess:
    def become(channel: socket.socket, confine: Callable[[], None]) -> NoReturn:
        try:
            confine()
            os._exit(child(channel))
        finally:
            os._exit(99)

    monkeypatch.setattr(view_process, "_become", become)
    return ViewProcess(Streams(stack), lambda: None, printed.append, stack)


def received(channel: socket.socket, count: int) -> list[Message]:
    incoming, found = messages.Incoming(), list[Message]()
    while len(found) < count:
        found += incoming.add(channel.recv(1 << 16))
    return found


def to_the_end(channel: socket.socket) -> None:
    while channel.recv(1 << 16):
        pass


def test_messages_reach_it_whole_though_it_reads_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = [START, Lines(b"x" * 3_000_000), Lines(b"end")]

    def child(channel: socket.socket) -> int:
        good = received(channel, 3) == sent
        for command in (Command("shown", states=3, lines=4, used=1.5), Command("clear", "@x")):
            channel.sendall(messages.line(command))
        to_the_end(channel)
        return 0 if good else 7

    with on_terminal() as standard, ExitStack() as stack:
        view = started(child, stack, monkeypatch, [])
        view.begin(START)
        for message in sent[1:]:
            view.send(message)
        until(view.flush)
        assert view.commands.get(timeout=patience(30)) == Command("clear", "@x")
        assert (view.used, view.states, view.lines, view.gone) == (1.5, 3, 4, False)
        view.close()
        assert view.error == ""
        assert view.gone
    assert standard.shown == b"", "a view that ends in order restores the terminal itself"


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (lambda _channel: os.kill(os.getpid(), signal.SIGKILL), "signal 9"),
        (lambda _channel: 3, "status 3"),
        (lambda channel: channel.sendall(messages.line(Command("failed", "KeyError: 1"))) or 1, "KeyError: 1"),
    ],
)
def test_after_a_view_that_fails_the_terminal_is_restored(
    end: Child, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with on_terminal() as standard, ExitStack() as stack:
        view = started(end, stack, monkeypatch, [])
        view.begin(START)
        until(lambda: view.gone)
        view.send(Lines(b"nobody reads it"))
        view.close()
        assert view.error == error
    assert b"\x1b[?1049l" in standard.shown


def test_ctrl_c_while_the_terminal_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def child(channel: socket.socket) -> int:
        to_the_end(channel)
        os.kill(os.getppid(), signal.SIGINT)
        time.sleep(0.1)
        return 3

    with on_terminal() as standard, ExitStack() as stack:
        view = started(child, stack, monkeypatch, [])
        view.begin(START)
        with pytest.raises(KeyboardInterrupt):
            view.close()
    assert b"\x1b[?1049l" in standard.shown


def test_a_view_that_was_not_shown_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with on_terminal() as standard, ExitStack() as stack:
        view = started(lambda channel: to_the_end(channel) or 0, stack, monkeypatch, [])
    assert view.error == ""
    assert standard.shown == b""


def test_ctrl_c_is_a_signal_for_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: seen.append(number))

    def child(channel: socket.socket) -> int:
        channel.sendall(b"not a command\n" + messages.line(Command("end")))
        to_the_end(channel)
        return 0

    try:
        with on_terminal(), ExitStack() as stack:
            started(child, stack, monkeypatch, []).begin(START)
            until(lambda: seen)
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.SIGINT]


def test_what_children_print_goes_to_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[bytes] = []
    with on_terminal() as standard, ExitStack() as stack:
        view = started(lambda channel: to_the_end(channel) or 0, stack, monkeypatch, printed)
        view.begin(START)
        os.system("echo out; echo err >&2; cat")
        until(lambda: b"".join(printed).count(b"\n") == 2)
        view.close()
        os.write(1, b"the terminal again\n")
    assert sorted(b"".join(printed).split()) == [b"err", b"out"]
    assert standard.shown == b"the terminal again\r\n"


def test_streams_that_are_no_terminal_stay(tmp_path: Path) -> None:
    with on_terminal(), open(tmp_path / "errors", "wb") as file, ExitStack() as stack:
        os.dup2(file.fileno(), 2)
        streams = Streams(stack)
        with streams.redirected():
            os.write(1, b"away\n")
            os.write(2, b"to the file\n")
            assert os.read(0, 10) == b""
        assert streams.read() == b"away\n"
        assert streams.read() == b""
    assert (tmp_path / "errors").read_text() == "to the file\n"


# ---------------------------------------------------------------------------------------------- messages
# .


def test_messages_arrive_as_they_were_sent_however_they_are_cut() -> None:
    sent = [Lines(b"a\n", 2), state(1, counts("@", {"a": 1}), histogram("@h", {None: {3: 4}})), Notice("x", error=True)]
    data = b"".join(map(messages.packed, sent))
    incoming = Incoming()
    found = [message for at in range(0, len(data), 7) for message in incoming.add(data[at : at + 7])]
    assert found == sent


def test_commands_are_lines_of_json() -> None:
    command = Command("clear", "@a\n")
    data = messages.line(command)
    assert data.count(b"\n") == 1
    assert messages.command(data[:-1]) == command


@pytest.mark.parametrize("data", [b"", b"{}", b'{"do": "run"}', b'{"do": "end", "used": "x"}', b"\x80\x04."])
def test_the_run_takes_no_other_commands(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        messages.command(data)


# ---------------------------------------------------------------------------------------------- log
# .


def log(*parts: bytes, kept: int = 100) -> Log:
    made = Log(Glyphs(), kept)
    for part in parts:
        made.add(part)
    return made


def test_lines_may_come_in_parts() -> None:
    assert log(b"one\ntw", b"o\nthree").lines() == ["one", "two"]


def test_the_newest_lines_are_kept() -> None:
    assert log(b"".join(b"%d\n" % number for number in range(10)), kept=3).lines() == ["7", "8", "9"]


def test_colours_are_left_out_and_other_controls_escaped() -> None:
    assert log(b"\x1b[36mbar\x1b[0m\tx\n", b"\x1b]0;title\x07\r\n").lines() == ["bar     x", "\\x1b]0;title\\x07"]


def test_a_script_that_clears_the_screen_clears_the_log() -> None:
    assert log(b"old\n", b"older\n\x1b[H\x1b[2Jnew\n").lines() == ["new"]


def test_the_filter_is_of_any_case() -> None:
    found = log(b"Alpha\nbeta\nalphabet\n")
    found.filter = "ALPHA"
    assert found.lines() == ["Alpha", "alphabet"]
    assert found.last(1) == ["alphabet"]
    assert len(found) == 3


def test_what_was_dropped_is_counted_and_joins_no_lines() -> None:
    found = log(b"begin")
    found.add(b"end\nnext\n", dropped=10)
    assert found.dropped == 10
    assert found.lines() == ["end", "next"]


# ---------------------------------------------------------------------------------------------- saved files
# pytrace.live.answer_view: what a view says of files that were asked for.


def test_files_are_named_by_the_time() -> None:
    assert re.fullmatch(r"pytrace-\d{8}-\d{6}\.html", answer_view.new_path("html"))


def test_snapshots_and_reports(tmp_path: Path) -> None:
    data = snapshot(map_data("@", STRING, COUNT, {"a": 3}))
    for name, write in (("x.pts", file_form.write), ("x.html", answer_view.write_report)):
        path = str(tmp_path / name)
        assert answer_view.written(data, path, write) == Notice(f"written: {path}")
    assert file_form.read(str(tmp_path / "x.pts")).maps["@"].entries == {"a": 3}
    assert "<html" in (tmp_path / "x.html").read_text()


def test_why_a_file_was_not_written() -> None:
    data = snapshot(map_data("@", STRING, COUNT, {}))

    def refused(_data: SnapshotData, _path: str) -> None:
        raise TraceError("too large", hints=("write less",))

    said = answer_view.written(data, "/nowhere/x.pts", file_form.write)
    assert said == Notice("/nowhere/x.pts cannot be written: No such file or directory", error=True)
    assert answer_view.written(data, "x", refused) == Notice("x was not written: too large; write less", error=True)
