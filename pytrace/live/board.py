"""All panels of the live view, made of the states that the run sends."""

from __future__ import annotations

from pytrace.core import types
from pytrace.live import changes
from pytrace.live.glyphs import Glyphs
from pytrace.live.messages import Meters, State
from pytrace.live.panels import Counters, Panel
from pytrace.live.pictures import HistogramPanel, SeriesPanel
from pytrace.results.formats.portable_forms import Printers
from pytrace.results.snapshot import MapData


class Board:
    """The panels by the names of their maps: aggregations, then other maps, each in the order of names."""

    def __init__(self, glyphs: Glyphs) -> None:
        self._glyphs = glyphs
        self._printers = Printers()
        self.panels: dict[str, Panel] = {}
        """Panels of one map each."""
        self.counters: dict[str, Counters] = {}
        """Numbers without keys, which share a panel."""
        self.meters: Meters | None = None

    @property
    def has_results(self) -> bool:
        """Whether any map is not the script's own."""
        return not all(panel.own for panel in (*self.panels.values(), *self.counters.values()))

    def update(self, state: State) -> None:
        """Take a state of the run."""
        self.meters = state.meters
        moment = state.snapshot.end / 1e9
        for name, data in sorted(state.snapshot.maps.items(), key=_place):
            panel = self._panel(name, data)
            read = state.snapshot.read.get(name)
            panel.update(data, state.others.get(name, 0), moment if read is None else read / 1e9)

    def _panel(self, name: str, data: MapData) -> Panel:
        """The panel of a map; its types are those of the first state."""
        found = self.panels.get(name) or self.counters.get(name)
        if found is not None:
            return found
        if data.key is None and isinstance(data.value, changes.NUMBERS):
            counter = self.counters[name] = Counters(data, self._printers, self._glyphs)
            return counter
        made = self.panels[name] = _kind(data)(data, self._printers, self._glyphs)
        return made


def _place(item: tuple[str, MapData]) -> tuple[bool, str]:
    name, data = item
    return not isinstance(data.value, types.AGGREGATIONS), name


def _kind(data: MapData) -> type[Panel]:
    if isinstance(data.value, types.Hist | types.LHist):
        return HistogramPanel
    return SeriesPanel if isinstance(data.value, types.TSeries) else Panel


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


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"
