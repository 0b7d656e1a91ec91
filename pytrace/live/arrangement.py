"""The screen of the live view as lines: panels below and beside each other, the one with the focus, and the log."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from itertools import chain, zip_longest

from pytrace.live.board import Board
from pytrace.live.glyphs import Glyphs, Line, columns, wrapped
from pytrace.live.panels import CALLS, Counters, Panel
from pytrace.live.pictures import HistogramPanel

LINES_KEPT = 5000
"""Lines of the log that are kept."""

_CLEAR = b"\x1b[H\x1b[2J"
"""What ``clear()`` of a script without a map prints (``runtime.output.handlers``)."""
_COLOUR = re.compile(rb"\x1b\[[0-9;]*m")


class Log:
    """Lines of output, without colours and control characters. The end of a line may come later."""

    def __init__(self, glyphs: Glyphs, kept: int = LINES_KEPT) -> None:
        self._glyphs = glyphs
        self._lines: deque[str] = deque(maxlen=kept)
        self._rest = b""
        self.dropped = 0
        """Bytes that came faster than they could be shown."""
        self.filter = ""

    def add(self, data: bytes, dropped: int = 0) -> None:
        """Add output; *dropped* bytes before it are missing."""
        if dropped:
            self.dropped += dropped
            self._rest = b""
        data = self._rest + data
        before, cleared, after = data.rpartition(_CLEAR)
        if cleared:
            self._lines.clear()
        *whole, self._rest = (after if cleared else before + after).split(b"\n")
        self._lines.extend(map(self._line, whole))

    def _line(self, data: bytes) -> str:
        text = _COLOUR.sub(b"", data).decode("utf-8", "surrogateescape").expandtabs()
        return self._glyphs.text(text.rstrip("\r"))

    def lines(self) -> list[str]:
        """The lines that have the filter's text, the oldest first."""
        return list(self._matching(self._lines))

    def last(self, count: int) -> list[str]:
        """The last *count* of :meth:`lines`, the oldest first."""
        found = []
        for line in self._matching(reversed(self._lines)):
            found.append(line)
            if len(found) == count:
                break
        return found[::-1]

    def _matching(self, lines: Iterable[str]) -> Iterable[str]:
        wanted = self.filter.casefold()
        return (line for line in lines if wanted in line.casefold())

    def __len__(self) -> int:
        return len(self._lines)

COUNTERS, LOG = "counters", "log"
"""Names of the panels that are not of one map; those of maps begin with ``@``."""
_LEAST = 4
"""Lines of a panel, the heading included; where there is room for fewer panels, the others are not shown."""
_WIDE = 120
"""Columns from which on panels are in two columns."""


def counter_lines(counters: list[Counters], width: int) -> list[Line]:
    """All counters below each other."""
    name_width = min(max(columns(item.title) for item in counters), max(width // 2, 1))
    value_width = max(columns(item.shown()) for item in counters)
    return [item.line(name_width, min(value_width, max(width - name_width - 13, 1)), width) for item in counters]


class Arrangement:
    """What is on the screen: which panels, which of them has the focus, whether it has all the room."""

    def __init__(self, board: Board, log: Log, glyphs: Glyphs) -> None:
        self.board, self.log = board, log
        self._glyphs = glyphs
        self._focus = ""
        self.hidden: set[str] = set()
        self.all_shown = False
        """Whether what the script keeps for itself is shown, too."""
        self.zoomed = False
        self.log_title = LOG
        self.log_offset = 0
        """Lines that the end of the log is scrolled up."""
        self.counter_filter, self._first_counter = "", 0
        self.areas: list[tuple[int, int, int, int, str]] = []
        """Where panels were drawn: left, top, width, height, name."""

    # ---- choosing

    def names(self) -> list[str]:
        """All panels, in order."""
        shown = self._shown_counters()
        counters = [COUNTERS] if shown else []
        panels = [name for name, panel in self.board.panels.items() if panel.used and self._is_shown(panel)]
        # Numbers that are no aggregations are what the script keeps for itself, more often than results.
        first = any(counter.aggregation for counter in shown)
        return [*(counters + panels if first else panels + counters), *([LOG] if len(self.log) else [])]

    def _is_shown(self, panel: Panel) -> bool:
        """Whether a map is shown: not one of the script's own, unless asked for or there is nothing else."""
        return not panel.own or self.all_shown or not (len(self.log) or self.board.has_results)

    def _shown_counters(self) -> list[Counters]:
        return [counter for counter in self.board.counters.values() if self._is_shown(counter)]

    def show_all(self) -> None:
        """Show all panels, and all maps."""
        self.hidden.clear()
        self.all_shown = True

    def visible(self) -> list[str]:
        """The panels that are not hidden."""
        return [name for name in self.names() if name not in self.hidden]

    @property
    def focus(self) -> str:
        """The panel that keys are for; empty if there is none."""
        visible = self.visible()
        if self._focus not in visible:
            self._focus = next((name for name in visible if name in self.board.panels), visible[0] if visible else "")
        return self._focus

    @property
    def panel(self) -> Panel | None:
        """The panel of a map that has the focus."""
        return self.board.panels.get(self.focus)

    def maps(self) -> list[str]:
        """The maps of the panel that has the focus."""
        if self.focus == COUNTERS:
            return [counter.name for counter in self._shown_counters()]
        return [self.panel.name] if self.panel and self.panel.name != CALLS else []

    def turn(self, by: int) -> None:
        """Give the focus to another panel."""
        visible = self.visible()
        if visible:
            self._focus = visible[(visible.index(self.focus) + by) % len(visible)]

    def toggle(self, number: int) -> str:
        """Hide or show the panel *number*, from 1. Returns its name; empty if there is none."""
        names = self.names()
        if not 1 <= number <= len(names):
            return ""
        self.hidden ^= {names[number - 1]}
        return names[number - 1]

    def move(self, by: int) -> None:
        """Choose another row of the panel, or scroll the log."""
        if self.focus == LOG:
            self.log_offset = min(max(self.log_offset - by, 0), max(len(self.log) - 1, 0))
        elif self.focus == COUNTERS:
            self._first_counter = min(max(self._first_counter + by, 0), max(len(self._counters()) - 1, 0))
        elif self.panel is not None:
            self.panel.move(by)

    def set_filter(self, text: str) -> None:
        """Filter the panel that has the focus."""
        if self.focus == LOG:
            self.log.filter, self.log_offset = text, 0
        elif self.focus == COUNTERS:
            self.counter_filter, self._first_counter = text, 0
        elif self.panel is not None:
            self.panel.filter, self.panel.cursor = text, 0

    @property
    def filter(self) -> str:
        """The filter of the panel that has the focus."""
        if self.focus in (LOG, COUNTERS):
            return self.log.filter if self.focus == LOG else self.counter_filter
        return "" if self.panel is None else self.panel.filter

    def toggle_heat(self) -> None:
        """Show histograms as bars or over time: of the panel with the focus, or of all if it is none."""
        panels = [panel for panel in self.board.panels.values() if isinstance(panel, HistogramPanel)]
        chosen = [panel for panel in panels if panel is self.panel] or panels
        for panel in chosen:
            panel.heat = not panel.heat

    # ---- lines

    def lines(self, width: int, height: int) -> list[Line]:
        """The whole screen in *height* lines."""
        names = self.visible()
        if not names:
            text = " nothing to show: all panels are hidden" if self.names() else " waiting for the first events"
            return [[(self._glyphs.fit(text, width), "dim")]]
        self.areas = []
        if self.zoomed:
            return self._placed(self.focus, 0, 0, width, height)
        full, short = self._rows(names, width)
        rows, hidden = self._fitting(full, height - len(short))
        if hidden:
            short = short[: max(height - 1 - _LEAST, 0)]
        room = height - len(short) - bool(hidden)
        lines: list[Line] = []
        for row, given in zip(rows, self._heights(rows, room) if rows else (), strict=True):
            inner = (width - len(row) + 1) // len(row)
            parts = [
                self._placed(name, place * (inner + 1), len(lines), inner if len(row) > 1 else width, given)
                for place, name in enumerate(row)
            ]
            lines += parts[0] if len(row) == 1 else self._side_by_side(parts, inner)
        if not rows:
            lines += [[]] * (room - len(short)) if room > len(short) else []
        for name in short:
            lines += self._placed(name, 0, len(lines), width, 1)
        if hidden:
            lines.append([(self._glyphs.fit(self._named(hidden), width), "dim")])
        lines += [[]] * (height - len(lines))
        return lines[:height]

    def _rows(self, names: list[str], width: int) -> tuple[list[list[str]], list[str]]:
        """Panels below and beside each other; and those that have nothing to show, a line each."""
        short = [name for name in names if name in self.board.panels and self.board.panels[name].empty]
        full = [name for name in names if name not in short]
        if width < _WIDE or len(full) < 3:
            return [[name] for name in full], short
        # What has columns about processes takes the whole width.
        first = full[:1] if full[0] in self.board.panels and self.board.panels[full[0]].period else []
        rest = full[len(first) :]
        rows = [rest[index : index + 2] for index in range(0, len(rest), 2)]
        return ([first] if first else []) + rows, short

    def _named(self, hidden: list[str]) -> str:
        """A line on the panels that there is no room for."""
        titles = [self.title(name) for name in hidden]
        return f" {len(hidden)} more: {', '.join(titles)} (tab)"

    def title(self, name: str) -> str:
        """What people call a panel."""
        return name if name in (COUNTERS, LOG) else self.board.panels[name].heading_title

    def _placed(self, name: str, left: int, top: int, width: int, height: int) -> list[Line]:
        self.areas.append((left, top, width, height, name))
        return self._panel(name, width, height)

    def at(self, column: int, line: int) -> tuple[str, int, int] | None:
        """The panel at a place of the screen, and the column and line in it: 0 is its heading."""
        for left, top, width, height, name in self.areas:
            if left <= column < left + width and top <= line < top + height:
                return name, column - left, line - top
        return None

    def choose(self, name: str) -> None:
        """Give the focus to a panel."""
        self._focus = name

    def _fitting(self, rows: list[list[str]], height: int) -> tuple[list[list[str]], list[str]]:
        """Rows of panels that there is room for, the one with the focus among them; and the panels of others."""
        if len(rows) * _LEAST <= height or len(rows) < 2:
            return rows, []
        most = max((height - 1) // _LEAST, 1)
        place = next((index for index, row in enumerate(rows) if self.focus in row), 0)
        first = max(min(place - most // 2, len(rows) - most), 0)
        hidden = [name for row in (*rows[:first], *rows[first + most :]) for name in row]
        return rows[first : first + most], hidden

    def _heights(self, rows: list[list[str]], height: int) -> list[int]:
        """Lines of each row of panels: as many as it needs, or an equal share of what the others leave."""
        wanted = [max(map(self._wanted, row)) for row in rows]
        given = [0] * len(rows)
        left, order = height, sorted(range(len(rows)), key=lambda index: wanted[index])
        for position, index in enumerate(order):
            given[index] = min(max(wanted[index], _LEAST), left // (len(order) - position))
            left -= given[index]
        given[-1] += left
        return given

    def _wanted(self, name: str) -> int:
        """Lines that a panel can make use of."""
        if name == COUNTERS:
            return len(self._shown_counters()) + 2
        if name == LOG or not (panel := self.board.panels[name]).key_type:
            return 1 << 20
        return 1 << 20 if isinstance(panel, HistogramPanel) else len(panel.chosen()) + 3

    def _panel(self, name: str, width: int, height: int) -> list[Line]:
        focused = name == self.focus
        inside = max(height - 1, 0)
        if name == COUNTERS:
            title, lines = self._counter_heading(inside), self._counter_lines(width, inside)
        elif name == LOG:
            title, lines = self._log_heading(), self._log_lines(width, inside)
        else:
            panel = self.board.panels[name]
            title = panel.heading()
            lines = panel.lines(width, inside, focused=focused, zoomed=self.zoomed)
        return [self._heading(name, title, width, focused=focused), *lines, *[[]] * inside][:height]

    def _heading(self, name: str, title: str, width: int, *, focused: bool) -> Line:
        rule = self._glyphs.rule
        before = f"{rule}{self.names().index(name) + 1}"
        text = self._glyphs.fit(title, min(columns(title), max(width - len(before), 0)))
        rest = rule * max(width - len(before) - columns(text), 0)
        return [(before, "dim"), (text, "focus" if focused else "title"), (rest, "dim")]

    def _counters(self) -> list[Counters]:
        wanted = self.counter_filter.casefold()
        return [item for item in self._shown_counters() if wanted in item.title.casefold()]

    def _counter_heading(self, height: int) -> str:
        total = len(self._counters())
        parts = [COUNTERS if total <= height else f"{total} {COUNTERS}"]
        if self.counter_filter:
            parts.append(f"filter {self._glyphs.text(self.counter_filter)!r}")
        return f" {', '.join(parts)} "

    def _counter_lines(self, width: int, height: int) -> list[Line]:
        found = self._counters()
        self._first_counter = min(self._first_counter, max(len(found) - height, 0))
        shown = found[self._first_counter : self._first_counter + height]
        if not shown:
            return [[(self._glyphs.fit(" no name matches the filter", width), "dim")]]
        return counter_lines(shown, width)

    def _log_heading(self) -> str:
        parts = [self.log_title]
        if self.log.filter:
            parts.append(f"filter {self._glyphs.text(self.log.filter)!r}")
        if self.log_offset:
            parts.append(f"{self.log_offset} lines above the end")
        if self.log.dropped:
            parts.append(f"{self.log.dropped} bytes came too fast to be shown")
        return f" {', '.join(parts)} "

    def _log_lines(self, width: int, height: int) -> list[Line]:
        found = self.log.last(height + self.log_offset)
        shown = found[: len(found) - self.log_offset] if self.log_offset else found
        if self.zoomed:
            shown = list(chain.from_iterable(wrapped(line, max(width, 2)) for line in shown))
        return [[(self._glyphs.fit(line, width), "")] for line in shown[-height:]]

    def _side_by_side(self, panels: list[list[Line]], width: int) -> list[Line]:
        lines: list[Line] = []
        for left, right in zip_longest(*panels, fillvalue=list[tuple[str, str]]()):
            used = sum(columns(text) for text, _ in left)
            lines.append([*left, (" " * max(width - used, 0) + " ", ""), *right])
        return lines
