"""The view, driven by textual's pilot at three sizes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from textual.pilot import Pilot

from pytrace.live import messages
from pytrace.live.app import KEYS, LiveApp, Panels
from pytrace.live.messages import Command, Lines, Notice, Start
from tests.support import live_pictures
from tests.support.live_samples import HOSTILE, counts, histogram, state, total

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
        for shown in ("@calls, 2 keys, by rate", "@n 14", "10  p50", "hello", "world", "1,234 hits/s", "? help"):
            assert shown in text, shown
        (row,) = [line for line in lines if line.lstrip().startswith("cat") or " cat " in line]
        assert row[row.index("cat") :].split()[:3] == ["cat", "60", "+15/s"]
        assert not plain or text.isascii()

    view.drive(steps, size)
    assert [(command.do, command.states, command.lines) for command in view.sent] == [("shown", 1, 1), ("shown", 2, 1)]


def test_keys_send_commands_or_change_what_is_shown() -> None:
    view = View()

    async def steps(app: LiveApp, pilot: Pilot[None]) -> None:
        await pilot.press("c", "C", "w", "r", "q", "ctrl+c")
        app.take([state(2, counts("@calls", {"bash": 5}), total("@m", 3), total("@n", 7))])
        await pilot.press("left", "c", "right", "right", "right", "c", "left")
        await pilot.press("left", "s", "z", "h")
        assert app.arrangement.zoomed
        assert app.board.panels["@calls"].order == "key"
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
    view.app._start = Start("begin { " * 20, True, True)

    async def steps(app: LiveApp, pilot: Pilot[None]) -> None:
        await pilot.press("ctrl+z")
        assert "there is no shell to go back to" in screen(app)[-1]
        await pilot.press("tab", "p")
        lines = screen(app)
        assert lines[0].startswith("pytrace begin { begin {")
        assert lines[0].rstrip().endswith("…  00:01:01  PAUSED")
        assert lines[-1].rstrip().endswith(("r report", "w save", "c reset"))

    for size in ((80, 24), (75, 10), (120, 40)):
        view.drive(steps, size)
        view = View()
        view.app._start = Start("begin { " * 20, True, True)


def test_the_filter_takes_all_keys_until_it_is_left() -> None:
    view = View()

    async def steps(app: LiveApp, pilot: Pilot[None]) -> None:
        await pilot.press("slash", *"csq")
        assert app.arrangement.filter == "csq"
        await pilot.press("backspace", "backspace", *"at", "enter")
        assert any(line.startswith("cat") for line in screen(app))
        assert not any(line.startswith("bash") for line in screen(app))
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
            for _ in range(100):
                await pilot.pause(0.01)
                if "hi there" in screen(app)[-1]:
                    break
            else:
                pytest.fail("the notice is not shown")
            os.close(write)
            for _ in range(100):
                await pilot.pause(0.01)
                if not app.is_running or app._exit:
                    return
            pytest.fail("it goes on")

    asyncio.run(run())
    os.close(read)


def test_pictures_of_the_documents_are_svg_of_this_view(tmp_path: Path) -> None:
    live_pictures.main(tmp_path)
    for name in (*live_pictures.PICTURES, live_pictures.MOVING):
        drawn, kept = (ElementTree.parse(folder / name).getroot() for folder in (tmp_path, PICTURES))
        texts = [["".join(item.itertext()) for item in root.iter(f"{SVG}text")] for root in (drawn, kept)]
        assert texts[0] == texts[1], f"scripts/screenshots draws {name} anew"
        assert any("hits/s" in text for text in texts[0])
