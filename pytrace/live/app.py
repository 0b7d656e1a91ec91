"""The live view in a terminal: the process that has it, as an application of textual."""

from __future__ import annotations

import asyncio
import inspect
import io
import os
import signal
import textwrap
import time
from collections.abc import Callable
from typing import ClassVar

from rich.console import Console
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Click, Key
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Input, Static

from pytrace.live.arrangement import Arrangement, Log
from pytrace.live.board import Board
from pytrace.live.glyphs import Glyphs, Line, columns
from pytrace.live.inquiry import QUESTIONS, Inquiry
from pytrace.live.messages import Answer, Command, Incoming, Lines, Message, Meters, Notice, Start, State
from pytrace.live.panels import Panel
from pytrace.live.processes import Machine
from pytrace.results.findings import question

STYLES = {
    "": "", "key": "", "dim": "bright_black", "heading": "underline", "title": "bold", "focus": "bold reverse",
    "chosen": "reverse", "number": "bold", "rate": "green", "bar": "cyan", "error": "bold red",
    "heat0": "", "heat1": "on color(17)", "heat2": "on color(19)", "heat3": "on color(26)", "heat4": "on color(37)",
    "heat5": "on color(71)", "heat6": "on color(142)", "heat7": "on color(172)", "heat8": "on color(196)",
    "flame0": "color(16) on color(214)", "flame1": "color(16) on color(220)", "flame2": "color(16) on color(208)",
    "flame3": "color(16) on color(215)", "flame4": "color(16) on color(221)",
}  # fmt: skip
"""Styles of the roles of :mod:`pytrace.live.glyphs`."""

KEYS = (
    ("tab, left, right", "choose a panel"),
    ("up, down, page keys", "choose a row, scroll the log"),
    ("enter", "look at the row's process: threads, files, calls …"),
    ("z", "give the panel the whole screen, and back"),
    ("escape, backspace", "go back"),
    ("s, S, i", "sort by the next column, the one before, reversed"),
    ("/", "filter the panel or the log (escape: no filter)"),
    ("u", "only processes of the row's user, and back"),
    ("f", "only the row's process in all panels, and back"),
    ("t, -, +", "a tree of processes; hide and show those below"),
    ("[ ], { }", "back and forward in time by 1, 60; end: now"),
    ("h", "histograms over time; the flame graph alone"),
    ("1 … 9", "hide or show the panel of that number; 0 shows all"),
    ("p, space", "pause, go on"),
    ("c, C", "reset the panel's maps; all that can be reset"),
    ("w, r", "save a snapshot (pytrace show reads it), a report"),
    ("ctrl+z", "stop the run, back to the shell; fg goes on"),
    ("q, ctrl+c", "end the run: its maps, or a summary, are printed"),
    ("mouse", "a row, a heading, a panel; twice: enter"),
)
"""What the help shows."""


_IN_PLACE: dict[str, bool] = {"layout": False} if "layout" in inspect.signature(Static.update).parameters else {}
"""For a line that stays one line; textual 2 lays everything out again."""

HINTS = (
    "? help", "q end", "tab panel", "enter look", "s sort", "/ filter", "t tree", "[ back", "z zoom", "p pause",
    "u user", "f follow", "w save", "r report",
)  # fmt: skip
"""Keys that the last line names, as many as it has room for."""
INQUIRY_HINTS = (
    "escape back", "tab next", "enter ask again", "s sort", "/ filter", "h graph", "? help", "q end",
)  # fmt: skip
"""The same while a process is looked at."""
MINUTE = 60
_NAMED = 60
"""Columns from which on its title begins with the program's name."""
_TALL = 24
"""Lines from which on CPUs have a line of bars."""
_LEAST_BAR, _LONGEST_BAR = 4, 24
_WIDE = 100
"""Columns from which on the first line says how busy the machine is."""


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
        Binding("enter", "app.look"), Binding("z", "app.zoom"), Binding("slash", "app.filter"),
        Binding("s", "app.sort(1)"), Binding("S", "app.sort(-1)"), Binding("i", "app.sort(0)"),
        Binding("escape,backspace", "app.leave"), Binding("h", "app.heat"), Binding("p,space", "app.pause"),
        Binding("u", "app.user"), Binding("f", "app.follow"), Binding("t", "app.tree"),
        Binding("minus", "app.fold(True)"), Binding("plus,equals_sign", "app.fold(False)"),
        Binding("left_square_bracket", "app.past(1)"), Binding("right_square_bracket", "app.past(-1)"),
        Binding("left_curly_bracket", f"app.past({MINUTE})"), Binding("right_curly_bracket", f"app.past(-{MINUTE})"),
        Binding("end", "app.now"),
        Binding("c", "app.clear"), Binding("C", "app.clear_all"), Binding("w", "app.save"), Binding("r", "app.report"),
        *(Binding(str(number), f"app.show({number})") for number in range(10)),
    ]  # fmt: skip

    def __init__(self, lines: Callable[[int, int], list[Line]]) -> None:
        super().__init__()
        self._lines = lines

    def render(self) -> Text:
        """The lines for the widget's size."""
        return styled(self._lines(self.size.width, self.size.height))


class Help(ModalScreen[None]):
    """The keys; any of them closes it."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__()
        self._glyphs = glyphs

    def compose(self) -> ComposeResult:
        """The list of keys."""
        width = max(len(keys) for keys, _ in KEYS)
        narrow = self.app.size.width < width + max(len(meaning) for _, meaning in KEYS) + 5
        lines: list[Line] = [[(" Keys of the live view", "title")], []]
        for keys, meaning in KEYS:
            shown, text = keys, meaning
            if not self._glyphs.unicode:
                shown, text = keys.replace("…", "to"), meaning.replace("…", "...")
            if narrow:
                lines += [[(f" {shown}", "number")], *([(part, "")] for part in self._indented(text))]
            else:
                lines.append([(f" {shown:<{width}}  ", "number"), (text, "")])
        yield Static(styled([*lines, [], [(" any other key goes back; arrows scroll", "dim")]]))

    def _indented(self, text: str) -> list[str]:
        """What a key does, in lines below it."""
        return textwrap.wrap(text, max(self.app.size.width - 4, 12), initial_indent="   ", subsequent_indent="   ")

    def on_key(self, event: Key) -> None:
        """Go back."""
        event.stop()
        if event.key in ("up", "down", "pageup", "pagedown"):
            self.scroll_relative(y={"up": -1, "down": 1, "pageup": -10}.get(event.key, 10), animate=False)
        elif self.is_current:
            self.dismiss()
        else:
            # It was typed while the list was going.
            self.app.simulate_key(event.key)


def footer(meters: Meters, used: float) -> str:
    """What tracing costs and loses; *used* is the share of the view."""
    programs = "not timed" if meters.programs is None else _percent(meters.programs)
    lost = f"lost {meters.lost}" + (f" (+{meters.losing:.0f}/s)" if meters.losing else "")
    every = f"every {meters.interval:.0f} s" if meters.interval >= 1.5 else ""
    if meters.answered:
        parts = [meters.answered, lost, f"pytrace {_percent(meters.own)}", f"view {_percent(used)}", every]
        return "  ".join(filter(None, parts))
    parts = [
        f"{meters.hits:,.0f} hits/s", lost, f"pytrace {_percent(meters.own)}", f"view {_percent(used)}",
        f"BPF {programs}", every,
    ]  # fmt: skip
    return "  ".join(filter(None, parts))


class LiveApp(App[None]):
    """The live view. *send* sends a command to the run; *channel* is the descriptor that its messages come from."""

    CSS = """
    Screen { layers: base; overflow: hidden; }
    Panels { height: 1fr; }
    #header, #cores, #footer, #hints { height: 1; }
    #filter { height: 1; border: none; padding: 0; display: none; }
    Help { align: center middle; overflow-y: auto; }
    Help Static { width: auto; height: auto; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c,ctrl+q", "end", priority=True), Binding("ctrl+z", "stop", priority=True),
    ]  # fmt: skip

    def __init__(self, start: Start, send: Callable[[Command], None], channel: int | None = None) -> None:
        super().__init__(ansi_color=True)
        self._start, self._send, self._channel = start, send, channel
        self._title = start.title
        """What the run was asked; before the first state the name of its script."""
        self._aside = ""
        """What the title is to be read with."""
        self.glyphs = Glyphs(start.unicode, start.colour)
        self.board = Board(self.glyphs)
        self.log_lines = Log(self.glyphs)
        self.arrangement = Arrangement(self.board, self.log_lines, self.glyphs)
        self.board.selection.own = frozenset((*start.own, os.getpid()))
        self.inquiry: Inquiry | None = None
        """The process that is looked at."""
        self._machine = Machine() if start.asks else None
        self.paused = False
        self._incoming = Incoming()
        self._waiting: State | None = None
        """While paused: the last state."""
        self._notice = Notice("")
        self._used, self._looked = time.process_time(), time.monotonic()
        self._share = 0.0
        self._states = self._lines = 0
        bindings = (item for item in (*Panels.BINDINGS, *self.BINDINGS) if isinstance(item, Binding))
        self._bound = {key for binding in bindings for key in binding.key.split(",")}
        self.errors = io.StringIO()
        self.error_console = Console(file=self.errors, width=200, no_color=True)

    # ---- the screen

    def compose(self) -> ComposeResult:
        """Header, panels, filter, footer."""
        yield Static(id="header", markup=False)
        yield Static(id="cores", markup=False)
        yield Panels(self._lines_of_screen)
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
        cores = self._cores(width)
        self.query_one("#cores").display = bool(cores)
        for name, line in {**parts, "#cores": cores, "#hints": self._hints(width)}.items():
            self.query_one(name, Static).update(styled([line]), **_IN_PLACE)
        self.query_one(Panels).refresh()

    def _lines_of_screen(self, width: int, height: int) -> list[Line]:
        return (self.inquiry or self.arrangement).lines(width, height)

    def _heading(self, width: int) -> str:
        """The script, as far as there is room beside the time that has passed."""
        meters = self.board.meters
        elapsed = "" if meters is None else f"  {time.strftime('%H:%M:%S', time.gmtime(meters.elapsed))}"
        rest = f"{elapsed}{'  PAUSED' if self.paused else ''}"
        if (past := self.board.ago()) is not None:
            rest = f"  {time.strftime('%H:%M:%S', time.localtime(past[0]))}, {past[1]:.0f} s ago"
        elif self._machine is not None and width >= _WIDE:
            rest = f"  {self._machine.text}{rest}"
        title = f"{self.glyphs.text(self._title)}{self._aside}"
        title = f"pytrace {title}" if width >= _NAMED else title
        return self.glyphs.fit(title, min(columns(title), max(width - len(rest), 8))) + rest

    def _cores(self, width: int) -> Line:
        """A bar for each CPU, of very many one character; nothing where there is little room."""
        if self._machine is None or width < _WIDE or self.size.height < _TALL or self.board.back is not None:
            return []
        cores = self._machine.cores
        room = width // max(len(cores), 1) - max((len(name) for name, _ in cores), default=0) - len("  100 %  ")
        if room < _LEAST_BAR:
            heights = self.glyphs.sparkline([*(busy for _, busy in cores), 1.0], len(cores) + 1)[:-1]
            return [("CPUs ", "dim"), (self.glyphs.fit(heights, min(len(heights), width - 5)), "bar")] if cores else []
        line: Line = []
        for name, busy in cores:
            line += [(f"{name} ", "dim"), (self.glyphs.bar(busy, min(room, _LONGEST_BAR)), "bar")]
            line.append((f" {100 * busy:3.0f} %  ", ""))
        return line

    def _footing(self) -> str:
        return "" if self.board.meters is None else footer(self.board.meters, self._share)

    def _hints(self, width: int) -> Line:
        if self._notice.text:
            text = self.glyphs.fit(self.glyphs.text(self._notice.text), width)
            return [(text, "error" if self._notice.error else "")]
        hints = HINTS if self.inquiry is None else INQUIRY_HINTS
        shown = hints[0]
        for hint in hints[1:]:
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
            elif isinstance(message, Answer):
                self.board.selection.own |= {*message.own}
                if self.inquiry is not None:
                    self.inquiry.take(message)
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
            if self._machine is not None:
                self._machine.look()
            if self.inquiry is not None:
                self.inquiry.refresh()
        runs = state.snapshot.runs
        if len(runs) == 1 and runs[0].script != "-e":
            self._title = question(runs[0], runs[0].host)
        if untraced := sum(state.snapshot.losses.get("untraced", {}).values()):
            self._aside = f" ({untraced} child process{'' if untraced == 1 else 'es'} not traced: --follow)"
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

    def _tell(self, text: str, *, error: bool = False) -> None:
        self._notice = Notice(text, error)
        self.redraw()

    def action_help(self) -> None:
        """Show the keys."""
        self.push_screen(Help(self.glyphs), lambda _: self.redraw())

    def action_turn(self, by: int) -> None:
        """Choose another panel, or another question about the process."""
        (self.inquiry or self.arrangement).turn(by)
        self._tell("")

    def action_move(self, by: int) -> None:
        """Choose another row."""
        (self.inquiry or self.arrangement).move(by)
        self.redraw()

    def action_look(self) -> None:
        """Look at the process of the row; where there is none, give the panel the whole screen."""
        if self.inquiry is not None:
            self.inquiry.ask()
            self._tell("")
            return
        panel = self.arrangement.panel
        pid = None if panel is None else panel.chosen_pid()
        if pid is None or not self._start.asks:
            self.action_zoom()
        elif self.board.selection.processes.known(pid) is None:
            self._tell(f"process {pid} has ended", error=True)
        else:
            self.inquiry = Inquiry(pid, self.board.selection.processes, self.glyphs, self._send)
            self._tell("")

    def action_zoom(self) -> None:
        """Give the panel the whole screen, or take it back."""
        if self.inquiry is None:
            self.arrangement.zoomed = not self.arrangement.zoomed
        self.redraw()

    def action_sort(self, by: int) -> None:
        """Sort by another column, or (0) the other way round."""
        panel = self.arrangement.panel
        if self.inquiry is not None:
            self.inquiry.turn_order(by)
        elif panel is None:
            self._tell("this panel has no columns")
        elif by:
            panel.turn_order(by)
        else:
            panel.reverse = not panel.reverse
        self.redraw()

    def _process_panel(self) -> tuple[Panel, int] | None:
        """The panel with the focus and the process of its row, if it has one; tells if not."""
        panel = None if self.inquiry is not None else self.arrangement.panel
        pid = None if panel is None else panel.chosen_pid()
        if panel is None or pid is None:
            self._tell("choose a row with a PID first")
            return None
        return panel, pid

    def action_user(self) -> None:
        """Show processes of one user only, or all again."""
        selection = self.board.selection
        if selection.user is not None:
            selection.user = None
            self._tell("processes of all users")
        elif (found := self._process_panel()) is not None:
            process = selection.processes.known(found[1])
            if process is None:
                self._tell(f"process {found[1]} has ended", error=True)
                return
            selection.user = process.uid
            self._tell(f"processes of {selection.processes.user_name(process.uid)} only: u shows all")

    def action_follow(self) -> None:
        """Show one process only, in all panels, or all again."""
        selection = self.board.selection
        if selection.pid is not None:
            selection.pid = None
            self._tell("all processes")
        elif (found := self._process_panel()) is not None:
            selection.pid = found[1]
            self._tell(f"process {found[1]} only: f shows all")

    def action_tree(self) -> None:
        """Show processes below their parents, or in order again."""
        selection = self.board.selection
        selection.tree = not selection.tree
        self._tell("processes below their parents" if selection.tree else "")

    def action_fold(self, fold: bool) -> None:
        """Hide the processes below that of the row, or show them again."""
        folded = self.board.selection.folded
        if not self.board.selection.tree:
            self._tell("this is for the tree of processes: t shows it")
        elif (found := self._process_panel()) is not None:
            (folded.add if fold else folded.discard)(found[1])
            self._tell(f"processes below {found[1]} are hidden: + shows them" if fold else "")

    def action_past(self, by: int) -> None:
        """Show an earlier or a later moment."""
        self.board.scroll(by)
        self._tell("" if self.board.back is not None else "now")

    def action_now(self) -> None:
        """Follow the run again."""
        self.action_past(-(self.board.back or 0))

    def action_heat(self) -> None:
        """Switch between bars and heat maps, between a flame graph with functions and alone."""
        if self.inquiry is not None:
            self.inquiry.whole_graph = not self.inquiry.whole_graph
        else:
            self.arrangement.toggle_heat()
        self.redraw()

    def action_show(self, number: int) -> None:
        """Hide or show a panel; choose a question."""
        if self.inquiry is not None:
            if 1 <= number <= len(QUESTIONS):
                self.inquiry.choose([*QUESTIONS][number - 1])
            self.redraw()
        elif not number:
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

    # ---- the mouse

    def on_click(self, event: Click) -> None:
        """Choose a panel, a row, a column to sort by; twice: look at the row."""
        if not isinstance(event.widget, Panels):
            return
        if self.inquiry is not None:
            self.inquiry.click(event.screen_x, event.screen_y - event.widget.region.y)
            self._tell("")
            return
        found = self.arrangement.at(event.screen_x, event.screen_y - event.widget.region.y)
        if found is None:
            return
        name, column, line = found
        self.arrangement.choose(name)
        panel = self.arrangement.panel
        if panel is not None and line:
            panel.click(column, line - 1)
            if event.chain == 2 and line > 1:
                self.action_look()
        self._tell("")

    def on_mouse_scroll_up(self) -> None:
        """Scroll."""
        self.action_move(-3)

    def on_mouse_scroll_down(self) -> None:
        """Scroll."""
        self.action_move(3)

    # ---- the filter

    def action_filter(self) -> None:
        """Ask for the text of the filter."""
        entry = self.query_one("#filter", Input)
        entry.value = (self.inquiry or self.arrangement).filter
        entry.display = True
        entry.focus()

    def action_leave(self) -> None:
        """Leave the filter, the process that is looked at, the zoom, the past."""
        shown = self.inquiry or self.arrangement
        if self.query_one("#filter", Input).display or shown.filter:
            self._set_filter("")
            self._close_filter()
        elif self.inquiry is not None:
            self.inquiry = None
        elif self.arrangement.zoomed:
            self.arrangement.zoomed = False
        else:
            self.board.scroll(-len(KEYS) * MINUTE)
        self._tell("")

    def _set_filter(self, text: str) -> None:
        if self.inquiry is not None:
            self.inquiry.filter = text
        else:
            self.arrangement.set_filter(text)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while it is typed."""
        if event.input.display:
            self._set_filter(event.value)
            self.redraw()

    def on_key(self, event: Key) -> None:
        """Escape leaves the filter; a key that does nothing says so."""
        if self.query_one("#filter", Input).display:
            if event.key == "escape":
                self.action_leave()
        elif event.key not in self._bound:
            shown = event.character if event.is_printable and event.character else event.key
            self._tell(f"{self.glyphs.text(shown)} does nothing: ? lists the keys")

    def on_input_submitted(self, _event: Input.Submitted) -> None:
        """Keep the filter."""
        self._close_filter()

    def _close_filter(self) -> None:
        entry = self.query_one("#filter", Input)
        entry.display = False
        self.query_one(Panels).focus()


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def run(start: Start, send: Callable[[Command], None], channel: int) -> int:
    """Show the view until the run closes the channel. Returns the exit status."""
    app = LiveApp(start, send, channel)
    app.run()
    if app.return_code:
        send(Command("failed", app.errors.getvalue().strip().rpartition("\n")[2]))
    return app.return_code or 0
