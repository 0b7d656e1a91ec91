"""All panels of the live view, made of the states that the run sends."""

from __future__ import annotations

import pickle
import re
import zlib
from collections import deque

from pytrace.core import types
from pytrace.live import changes
from pytrace.live.glyphs import Glyphs, columns
from pytrace.live.messages import Meters, State
from pytrace.live.panels import CALLS, RATE, TOTAL, CallsPanel, Counters, Moment, Panel, Selection, calls_map
from pytrace.live.pictures import HistogramPanel, SeriesPanel
from pytrace.live.processes import Processes
from pytrace.results.findings import counted, readable
from pytrace.results.formats.portable_forms import Printers
from pytrace.results.snapshot import MapData, Run, SnapshotData

HISTORY = 600.0
"""Seconds that one can scroll back."""
MOST_BYTES = 32 << 20
"""Of what is kept for that; of very many rows it is less than ten minutes."""


class Board:
    """The panels by the names of their maps: aggregations, then other maps, each in the order of the script; calls."""

    def __init__(self, glyphs: Glyphs, processes: Processes | None = None) -> None:
        self._glyphs = glyphs
        self.selection = Selection(processes or Processes())
        self._printers = Printers()
        self.panels: dict[str, Panel] = {}
        """Panels of one map each."""
        self.counters: dict[str, Counters] = {}
        """Numbers without keys, which share a panel."""
        self.meters: Meters | None = None
        self._moments: deque[tuple[float, bytes]] = deque()
        """Time, and what panels had, compressed: numbers of thousands of rows are alike."""
        self._size = 0
        self.back: int | None = None
        """How many moments before the latest one the panels show; None: they follow the run."""
        self.end = 0.0
        """Wall time of the latest state, in seconds."""

    @property
    def has_results(self) -> bool:
        """Whether any map is not the script's own."""
        panels = (panel for name, panel in self.panels.items() if name != CALLS)
        return not all(panel.own for panel in (*panels, *self.counters.values()))

    def update(self, state: State) -> None:
        """Take a state of the run."""
        snapshot = state.snapshot
        self.meters, self.end = state.meters, snapshot.end / 1e9
        text = "".join(run.text for run in snapshot.runs[:1])
        for name, data in sorted(snapshot.maps.items(), key=lambda item: _place(item[1], text)):
            panel = self._panel(name, data, snapshot)
            read = snapshot.read.get(name)
            moment = self.end if read is None else read / 1e9
            panel.update(data, state.others.get(name, 0), moment, shown=self.back is None)
        if state.calls is not None:
            if CALLS not in self.panels:
                self.panels[CALLS] = CallsPanel(self._printers, self._glyphs, self.selection)
            self.panels[CALLS].update(calls_map(state.calls), state.younger_calls, self.end, shown=self.back is None)
        self._keep()

    def _keep(self) -> None:
        moments = {panel.name: panel.kept() for panel in (*self.panels.values(), *self.counters.values())}
        data = zlib.compress(pickle.dumps(moments, protocol=pickle.HIGHEST_PROTOCOL), 1)
        self._moments.append((self.end, data))
        self._size += len(data)
        if self.back is not None:
            self.back = min(self.back + 1, len(self._moments) - 1)
        while len(self._moments) > 1 and (self._size > MOST_BYTES or self.end - self._moments[0][0] > HISTORY):
            self._size -= len(self._moments.popleft()[1])
            self.back = None if self.back is None else min(self.back, len(self._moments) - 1)

    def scroll(self, by: int) -> None:
        """Show a moment that is *by* earlier (later where it is negative); beyond the latest one follow the run."""
        back = (self.back or 0) + by
        self.back = None if back <= 0 or not self._moments else min(back, len(self._moments) - 1)
        moments: dict[str, Moment] = {}
        if self.back is not None:
            moments = pickle.loads(zlib.decompress(self._moments[-1 - self.back][1]))
        for panel in (*self.panels.values(), *self.counters.values()):
            panel.show(None if self.back is None else moments.get(panel.name, Moment()))

    def ago(self) -> tuple[float, float] | None:
        """Wall time of the earlier moment that is shown, and how many seconds ago it was."""
        if self.back is None:
            return None
        time = self._moments[-1 - self.back][0]
        return time, self.end - time

    def _panel(self, name: str, data: MapData, snapshot: SnapshotData) -> Panel:
        """The panel of a map; its types are those of the first state."""
        found = self.panels.get(name) or self.counters.get(name)
        if found is not None:
            return found
        period = sampled(snapshot.runs[0], data) if len(snapshot.runs) == 1 else 0.0
        if data.key is None and isinstance(data.value, changes.NUMBERS):
            counter = self.counters[name] = Counters(data, self._printers, self._glyphs, period, self.selection)
            return counter
        made = self.panels[name] = _kind(data)(data, self._printers, self._glyphs, period, self.selection)
        return made


_STRINGS = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_SAMPLES = re.compile(r"(p(?:rofile)?):(hz|s|ms|us):")


def sampled(run: Run, data: MapData) -> float:
    """The seconds of processor time that one in a map of counts stands for; 0 of what counts no samples.

    These are counts that only probes of samples at one rate name.
    """
    count, period = counted(run)
    if count != "samples" or not period or not isinstance(data.value, types.Count):
        return 0.0
    if not run.text:
        return period
    text = _STRINGS.sub(" ", run.text)
    name = re.compile(rf"{re.escape(data.name)}(?![\w@])")
    depth, start, head = 0, 0, ""
    for place, letter in enumerate(text):
        if letter == "{":
            head, start = (text[start:place], place) if not depth else (head, start)
            depth += 1
        elif letter == "}" and depth:
            depth -= 1
            if not depth:
                if name.search(text, start, place) and not _SAMPLES.search(head):
                    return 0.0
                start = place + 1
    return period


def _place(data: MapData, text: str) -> tuple[bool, int, str]:
    return not isinstance(data.value, types.AGGREGATIONS), text.find(data.name), data.name


def _kind(data: MapData) -> type[Panel]:
    if isinstance(data.value, types.Hist | types.LHist):
        return HistogramPanel
    return SeriesPanel if isinstance(data.value, types.TSeries) else Panel


SUMMARY = 5
"""Rows of each map that the summary has."""


def summary(snapshot: SnapshotData, glyphs: Glyphs, own: frozenset[int], width: int) -> list[str]:
    """What stays on the terminal of a run whose maps are not printed: the largest entries of each, as lines.

    Args:
        snapshot: the maps at the end.
        glyphs: of the terminal.
        own: processes of pytrace, which are left out.
        width: columns of a line.
    """
    board = Board(glyphs)
    board.selection.own = own
    seconds = max((snapshot.end - snapshot.start) / 1e9, 1e-3)
    board.update(State(snapshot, {}, Meters(seconds, 0, 0, 0, 0, None, 0)))
    lines = [f"In {readable(round(seconds, 3), 's')}:"]
    for panel in board.panels.values():
        panel.order = TOTAL
        if panel.own or panel.empty or not isinstance(panel.type, changes.NUMBERS):
            continue
        lines.append(f"  {panel.heading_title}")
        rows = []
        for key, value in panel.top(SUMMARY):
            number = panel.number(value)
            rate = panel.rate_text(number / seconds) if panel.grows and number else ""
            rows.append((rate, panel.value_text(value), *panel.members(key)))
        if any(row[0] for row in rows):
            rows.insert(0, (panel.column_title(RATE), panel.column_title(TOTAL), *panel.keys))
        sizes = [max(map(columns, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            fitted = enumerate(zip(row, sizes, strict=True))
            cells = [glyphs.fit(text, size, right=place < 2) for place, (text, size) in fitted]
            lines.append(glyphs.fit("    " + "  ".join(filter(None, cells)), width).rstrip())
    return lines if len(lines) > 1 else []
