"""The live view in a terminal: the process that has it, as an application of textual."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import time
from collections.abc import Callable
from typing import ClassVar

from rich.console import Console
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Key
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Input, Static

from pytrace.live.arrangement import Arrangement
from pytrace.live.board import Board, footer
from pytrace.live.glyphs import Glyphs, Line, columns
from pytrace.live.log import Log
from pytrace.live.messages import Command, Incoming, Lines, Message, Notice, Start, State

STYLES = {
    "": "", "key": "", "dim": "bright_black", "title": "bold", "focus": "bold reverse", "chosen": "reverse",
    "number": "bold", "rate": "green", "bar": "cyan", "error": "bold red",
    "heat0": "", "heat1": "on color(17)", "heat2": "on color(19)", "heat3": "on color(26)", "heat4": "on color(37)",
    "heat5": "on color(71)", "heat6": "on color(142)", "heat7": "on color(172)", "heat8": "on color(196)",
}  # fmt: skip
"""Styles of the roles of :mod:`pytrace.live.glyphs`."""

KEYS = (
    ("tab, left, right", "choose a panel"),
    ("up, down, page keys", "choose a row, scroll the log"),
    ("enter, z", "give the panel the whole screen, and back"),
    ("s", "sort by value, rate or key"),
    ("/", "filter the panel or the log (escape: no filter)"),
    ("h", "histograms as bars, or over time as a heat map"),
    ("1 … 9", "hide or show the panel of that number; 0 shows all"),
    ("p, space", "pause, go on"),
    ("c, C", "reset the panel's maps; all that can be reset"),
    ("w", "save a snapshot (pytrace show reads it)"),
    ("r", "write a report in HTML"),
    ("ctrl+z", "stop the run and go back to the shell; fg goes on"),
    ("q, ctrl+c", "end the run: its maps are printed"),
)
"""What the help shows."""


HINTS = (
    "? help", "q end", "tab panel", "enter zoom", "s sort", "/ filter", "p pause", "c reset", "w save", "r report",
)  # fmt: skip
"""Keys that the last line names, as many as it has room for."""


def styled(lines: list[Line]) -> Text:
    """Lines of parts as text with styles."""
    text = Text(no_wrap=True, overflow="crop", end="")
    for number, line in enumerate(lines):
        if number:
            text.append("\n")
        for part, role in line:
            text.append(part, STYLES[role])
    return text


class Panels(Widget, can_focus=True):
    """All panels, and the keys that act on them; while the filter is typed, it has the focus and all keys."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "app.end"), Binding("question_mark,f1", "app.help"),
        Binding("tab,right", "app.turn(1)"), Binding("shift+tab,left", "app.turn(-1)"),
        Binding("up", "app.move(-1)"), Binding("down", "app.move(1)"),
        Binding("pageup", "app.move(-10)"), Binding("pagedown", "app.move(10)"),
        Binding("enter,z", "app.zoom"), Binding("s", "app.sort"), Binding("slash", "app.filter"),
        Binding("escape", "app.leave"), Binding("h", "app.heat"), Binding("p,space", "app.pause"),
        Binding("c", "app.clear"), Binding("C", "app.clear_all"), Binding("w", "app.save"), Binding("r", "app.report"),
        *(Binding(str(number), f"app.show({number})") for number in range(10)),
    ]  # fmt: skip

    def __init__(self, arrangement: Arrangement) -> None:
        super().__init__()
        self._arrangement = arrangement

    def render(self) -> Text:
        """The lines for the widget's size."""
        return styled(self._arrangement.lines(self.size.width, self.size.height))


class Help(ModalScreen[None]):
    """The keys; any of them closes it."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__()
        self._glyphs = glyphs

    def compose(self) -> ComposeResult:
        """The list of keys."""
        width = max(len(keys) for keys, _ in KEYS)
        lines: list[Line] = [[(" Keys of the live view", "title")], []]
        for keys, meaning in KEYS:
            shown = keys if self._glyphs.unicode else keys.replace("…", "to")
            lines.append([(f" {shown:<{width}}  ", "number"), (meaning, "")])
        yield Static(styled([*lines, [], [(" any key goes back", "dim")]]))

    def on_key(self) -> None:
        """Go back."""
        self.dismiss()


class LiveApp(App[None]):
    """The live view. *send* sends a command to the run; *channel* is the descriptor that its messages come from."""

    CSS = """
    Screen { layers: base; overflow: hidden; }
    Panels { height: 1fr; }
    #header, #footer, #hints { height: 1; }
    #filter { height: 1; border: none; padding: 0; display: none; }
    Help { align: center middle; }
    Help Static { width: auto; height: auto; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c,ctrl+q", "end", priority=True), Binding("ctrl+z", "stop", priority=True),
    ]  # fmt: skip

    def __init__(self, start: Start, send: Callable[[Command], None], channel: int | None = None) -> None:
        super().__init__(ansi_color=True)
        self._start, self._send, self._channel = start, send, channel
        self.glyphs = Glyphs(start.unicode, start.colour)
        self.board = Board(self.glyphs)
        self.log_lines = Log(self.glyphs)
        self.arrangement = Arrangement(self.board, self.log_lines, self.glyphs)
        self.paused = False
        self._incoming = Incoming()
        self._waiting: State | None = None
        """While paused: the last state."""
        self._notice = Notice("")
        self._used, self._looked = time.process_time(), time.monotonic()
        self._share = 0.0
        self._states = self._lines = 0
        self.errors = io.StringIO()
        self.error_console = Console(file=self.errors, width=200, no_color=True)

    # ---- the screen

    def compose(self) -> ComposeResult:
        """Header, panels, filter, footer."""
        yield Static(id="header", markup=False)
        yield Panels(self.arrangement)
        yield Input(id="filter", placeholder="text to look for")
        yield Static(id="footer", markup=False)
        yield Static(id="hints", markup=False)

    def on_mount(self) -> None:
        """Read the run's messages from now on."""
        self.query_one(Panels).focus()
        if self._channel is not None:
            asyncio.get_running_loop().add_reader(self._channel, self._readable, self._channel)
        self.redraw()

    def redraw(self) -> None:
        """Show what there is now."""
        if not self.is_running or len(self.screen_stack) > 1:
            return
        width = self.size.width
        heading, footing = self.glyphs.fit(self._heading(width), width), self.glyphs.fit(self._footing(), width)
        parts: dict[str, Line] = {"#header": [(heading, "title")], "#footer": [(footing, "")]}
        for name, line in {**parts, "#hints": self._hints(width)}.items():
            self.query_one(name, Static).update(styled([line]), layout=False)
        self.query_one(Panels).refresh()

    def _heading(self, width: int) -> str:
        """The script, as far as there is room beside the time that has passed."""
        meters = self.board.meters
        elapsed = "" if meters is None else f"  {time.strftime('%H:%M:%S', time.gmtime(meters.elapsed))}"
        rest = f"{elapsed}{'  PAUSED' if self.paused else ''}"
        title = f"pytrace {self.glyphs.text(self._start.title)}"
        return self.glyphs.fit(title, min(columns(title), max(width - len(rest), 8))) + rest

    def _footing(self) -> str:
        return "" if self.board.meters is None else footer(self.board.meters, self._share)

    def _hints(self, width: int) -> Line:
        if self._notice.text:
            text = self.glyphs.fit(self.glyphs.text(self._notice.text), width)
            return [(text, "error" if self._notice.error else "")]
        shown = HINTS[0]
        for hint in HINTS[1:]:
            if len(shown) + 2 + len(hint) <= width:
                shown += f"  {hint}"
        return [(self.glyphs.fit(shown, width), "dim")]

    # ---- messages of the run

    def _readable(self, channel: int) -> None:
        try:
            data = os.read(channel, 1 << 20)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            self.exit()
            return
        self.take(self._incoming.add(data))

    def take(self, messages: list[Message]) -> None:
        """Take messages of the run."""
        for message in messages:
            if isinstance(message, State):
                self._take_state(message)
            elif isinstance(message, Lines):
                self.log_lines.add(message.data, message.dropped)
                self._lines += 1
            elif isinstance(message, Notice):
                self._notice = message
        if messages and not (self.paused and all(isinstance(message, State | Lines) for message in messages)):
            self.redraw()
        if any(isinstance(message, State | Lines) for message in messages):
            self._send(Command("shown", states=self._states, lines=self._lines, used=time.process_time()))

    def _take_state(self, state: State) -> None:
        used, now = time.process_time(), time.monotonic()
        if now > self._looked:
            self._share = (used - self._used) / (now - self._looked)
        self._used, self._looked = used, now
        if self.paused:
            self._waiting = state
        else:
            self.board.update(state)
        self._states += 1

    # ---- keys

    def action_end(self) -> None:
        """End the run, as Ctrl-C does."""
        self._tell("the run ends")
        self._send(Command("end"))

    def action_stop(self) -> None:
        """Give the terminal to the shell, and stop, until it continues the run (``fg``)."""
        driver = self._driver
        if driver is None or not driver.can_suspend or os.getpgrp() == os.getsid(0):
            self._tell("there is no shell to go back to")
            return
        driver.suspend_application_mode()
        # The driver's handler would give the terminal back once more; its handler of SIGCONT takes it again.
        before = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        self._send(Command("stop"))
        os.kill(os.getpid(), signal.SIGSTOP)
        signal.signal(signal.SIGTSTP, before)

    def _tell(self, text: str) -> None:
        self._notice = Notice(text)
        self.redraw()

    def action_help(self) -> None:
        """Show the keys."""
        self.push_screen(Help(self.glyphs), lambda _: self.redraw())

    def action_turn(self, by: int) -> None:
        """Choose another panel."""
        self.arrangement.turn(by)
        self._tell("")

    def action_move(self, by: int) -> None:
        """Choose another row."""
        self.arrangement.move(by)
        self.redraw()

    def action_zoom(self) -> None:
        """Give the panel the whole screen, or take it back."""
        self.arrangement.zoomed = not self.arrangement.zoomed
        self.redraw()

    def action_sort(self) -> None:
        """Sort by something else."""
        if self.arrangement.panel is not None:
            self.arrangement.panel.turn_order()
        self.redraw()

    def action_heat(self) -> None:
        """Switch between bars and heat maps."""
        self.arrangement.toggle_heat()
        self.redraw()

    def action_show(self, number: int) -> None:
        """Hide or show a panel."""
        if not number:
            self.arrangement.show_all()
            self._tell("all panels are shown")
        elif name := self.arrangement.toggle(number):
            hidden = name in self.arrangement.hidden
            self._tell(f"{name} is {'hidden: the same key shows it' if hidden else 'shown'}")

    def action_pause(self) -> None:
        """Pause what is shown, or go on; the run goes on."""
        self.paused = not self.paused
        if not self.paused and self._waiting is not None:
            self.board.update(self._waiting)
            self._waiting = None
        self.redraw()

    def action_clear(self) -> None:
        """Reset the panel's maps."""
        if names := self.arrangement.maps():
            self._send(Command("clear", " ".join(names)))
        else:
            self._tell("choose the panel of a map first; C resets all")

    def action_clear_all(self) -> None:
        """Reset all aggregations."""
        self._send(Command("clear"))

    def action_save(self) -> None:
        """Save a snapshot."""
        self._tell("saving a snapshot")
        self._send(Command("save"))

    def action_report(self) -> None:
        """Write a report."""
        self._tell("writing a report")
        self._send(Command("report"))

    # ---- the filter

    def action_filter(self) -> None:
        """Ask for the text of the filter."""
        entry = self.query_one("#filter", Input)
        entry.value = self.arrangement.filter
        entry.display = True
        entry.focus()

    def action_leave(self) -> None:
        """Leave the filter, or the zoom."""
        if self.query_one("#filter", Input).display or self.arrangement.filter:
            self.arrangement.set_filter("")
            self._close_filter()
        else:
            self.arrangement.zoomed = False
        self._tell("")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while it is typed."""
        if event.input.display:
            self.arrangement.set_filter(event.value)
            self.redraw()

    def on_key(self, event: Key) -> None:
        """Escape leaves the filter."""
        if event.key == "escape" and self.query_one("#filter", Input).display:
            self.action_leave()

    def on_input_submitted(self, _event: Input.Submitted) -> None:
        """Keep the filter."""
        self._close_filter()

    def _close_filter(self) -> None:
        entry = self.query_one("#filter", Input)
        entry.display = False
        self.query_one(Panels).focus()


def run(start: Start, send: Callable[[Command], None], channel: int) -> int:
    """Show the view until the run closes the channel. Returns the exit status."""
    app = LiveApp(start, send, channel)
    app.run(mouse=False)
    if app.return_code:
        send(Command("failed", app.errors.getvalue().strip().rpartition("\n")[2]))
    return app.return_code or 0
