"""Maps of a run as output: views of them, their text in the format of the output, and what is kept of their prints."""

from __future__ import annotations

import operator
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING

import msgspec

from pytrace.core import types
from pytrace.core.diagnostics import InternalError
from pytrace.core.event_layout import PrintedMap
from pytrace.core.types import Hist, LHist
from pytrace.render import csv
from pytrace.render.histogram import HeatScale
from pytrace.render.map_printer import Block, Entry, MapView, Reader, Shown
from pytrace.render.stack_layout import StackLayout
from pytrace.render.text import Bars
from pytrace.render.value_kind import Held
from pytrace.render.values import value_kind_of
from pytrace.runtime.machine.syscalls import can_sort_records, sort_records

if TYPE_CHECKING:
    from pytrace.render import histogram
    from pytrace.render.large_maps import LargeMap
    from pytrace.runtime.output.renderer import Renderer


class MapOutput:
    """Shows the maps of a script, which *reader* reads."""

    def __init__(self, renderer: Renderer, reader: Reader) -> None:
        self._renderer = renderer
        self._output = renderer.output
        self._reader = reader
        self._views: dict[str, MapView] = {}
        self._specs = {item.name: item for item in renderer.manifest.maps}

    def view(self, name: str) -> MapView:
        """The view of a map of the script."""
        view = self._views.get(name)
        if view is None:
            spec = self._specs.get(name)
            if spec is None:
                raise InternalError(f"an event names {name}, a map that the script does not have")
            forms, marks = self._renderer.forms, self._renderer.state.marks
            texts = forms.raw_texts if self._output.csv else forms.texts  # tables have escapes of their own
            view = self._views[name] = MapView(
                spec, self._reader, forms.decoders, texts, forms.jsons, _large_map, marks, self._layout
            )
        return view

    @cached_property
    def _layout(self) -> StackLayout | None:
        """The layout of maps with stacks, where the script asks for one."""
        words = self._renderer.manifest.stack_layout
        if not words:
            return None
        return StackLayout.of(words)

    def printer(self, static: PrintedMap) -> Callable[[], bytes]:
        """The text of ``print()`` of a map."""
        shown = Shown(static.top, static.div, static.order, static.clear)
        view = self.view(static.map)
        keeper = self._renderer.state.prints
        if keeper is not None and keeper.keeps(view) and not self._output.csv:
            text = partial(self._kept, keeper, view, shown)
        else:
            text = partial(self._form(view), shown, always=True)
        if keeper is not None:
            text = partial(self._result, keeper, view, shown, text)
        if self._renderer.options.heat is None or not isinstance(view.value_type, Hist | LHist):
            return text
        return lambda: text() if self._renderer.state.resumed else self.heat.text(view, shown)

    def _result(self, keeper: PrintKeeper, view: MapView, shown: Shown, text: Callable[[], bytes]) -> bytes:
        """The text of a map; what an end probe prints is the result of the run, also where it empties the map."""
        if self._renderer.state.resumed:
            keeper.results.add(view.name)
            if shown.clear:
                keeper.emptied_at_end(view)
        return text()

    def _kept(self, keeper: PrintKeeper, view: MapView, shown: Shown) -> bytes:
        """The text of a map, whose entries are kept, too."""
        entries = view.entries(shown, always=True)
        keeper.keep(view, entries, div=shown.div, clear=shown.clear and not self._renderer.state.resumed)
        return view.entries_json(entries, shown) if self._output.json else view.entries_text(entries, shown)

    def _form(self, view: MapView) -> Callable[..., bytes]:
        """The form of a map: ``form(shown, always=…)``."""
        if self._output.csv:
            return partial(csv.map_table, view, self._renderer.rows.page)
        return view.json if self._output.json else view.text

    @cached_property
    def heat(self) -> HeatOutput:
        """The lines of ``--heat``."""
        return HeatOutput(self._renderer)

    def heat_line(self, name: str, *, rest: bool) -> bytes:
        """The line of a map; *rest*: empty if it has counted nothing since the last one."""
        return self.heat.text(self.view(name), Shown(), rest=rest)

    def clear(self, name: str) -> None:
        """Empty a map, unless it is a result."""
        if name not in self._renderer.state.shown_at_end:
            self._emptied(name)
            self.view(name).clear()

    def zero(self, name: str) -> None:
        """Set all values of a map to zero."""
        self._emptied(name)
        self.view(name).zero()

    def _emptied(self, name: str) -> None:
        """Note that a map is about to be emptied."""
        if self._renderer.options.heat is not None:
            self.heat.forget(name)
        keeper = self._renderer.state.prints
        if keeper is None:
            return
        if name in keeper.results:
            keeper.emptied_at_end(self.view(name))
        else:
            keeper.emptied(name)

    def parts(self, name: str) -> Iterator[bytes]:
        """The whole text of a map, in parts."""
        view = self.view(name)
        if self._output.csv:
            return iter((self._form(view)(),))
        return view.json_parts() if self._output.json else view.text_parts()

    def quantiles(self, name: str) -> Callable[[Sequence[str]], bytes]:
        """The text of percentiles of a map."""
        view, keeper = self.view(name), self._renderer.state.prints
        form = view.quantiles_json if self._output.json else view.quantiles_text
        if self._output.csv:
            form = partial(csv.quantiles_table, view, self._renderer.rows.page)
        if keeper is None:
            return form
        return lambda percents: self._result(keeper, view, Shown(), partial(form, percents))


def _large_map(view: MapView, block: Block, shown: Shown) -> LargeMap | None:
    """The printer of a map with very many keys; *block* has some of them."""
    from pytrace.render import large_maps  # few runs have such maps

    return large_maps.large_map(view, block, shown, sort_records if can_sort_records() else None)


# ---------------------------------------------------------------------------------------------- --heat
# The histograms of a run, a line of a heat map for each interval.

_MARGIN = 2
"""Buckets beyond what a scale has to grow by."""


class _HeatLines(msgspec.Struct):
    """What has been printed of a map."""

    before: list[int]
    """Its buckets at the last line."""
    scale: HeatScale | None = None
    """None until there was a value."""


class HeatOutput:
    """Prints the changes of histograms, each as one line below that of the interval before."""

    def __init__(self, renderer: Renderer) -> None:
        self._output = renderer.output
        self._colour = renderer.options.heat is Bars.COLOUR
        self._known: dict[str, _HeatLines] = {}
        self._headed = ""
        """The map whose heading is above the next line."""
        self._lines = 0
        """Lines since that heading."""

    def text(self, view: MapView, shown: Shown, *, rest: bool = False) -> bytes:
        """The line of a map, with a heading where the scale above it is another one, or has left the screen.

        A map with keys is one histogram, of all of them. The text is empty as long as the map has counted nothing, and
        with *rest* if it has counted nothing since the last line.
        """
        shape = view.shape()
        counts = _sums(view, shape.buckets, Shown(clear=shown.clear))
        known = self._known.setdefault(view.name, _HeatLines([0] * shape.buckets))
        change = [now - was for now, was in zip(counts, known.before, strict=True)]
        if min(change) < 0:
            change = counts  # the map was emptied
        known.before = [0] * shape.buckets if shown.clear else counts
        if shown.div > 1 and shape.divisible:
            change = [count // shown.div for count in change]
        return b"" if rest and not any(change) else self._lines_of(view, shape, known, change)

    def _lines_of(self, view: MapView, shape: histogram.Shape, known: _HeatLines, change: list[int]) -> bytes:
        used = [bucket for bucket, count in enumerate(change) if count]
        if used and (known.scale is None or not known.scale.covers(used[0], used[-1])):
            known.scale = HeatScale.of(*_wider(known.scale, used, shape.buckets), self._output.width())
            self._headed = ""
        if known.scale is None:
            return b""
        heading = b""
        height = self._output.height()
        if self._headed != view.name or (height and self._lines >= max(4, height - 3)):
            heading = known.scale.heading(view.label, shape, colour=self._colour)
            self._headed, self._lines = view.name, 0
        self._lines += 1
        return heading + known.scale.line(time.strftime("%H:%M:%S").encode(), change, colour=self._colour)

    def forget(self, name: str) -> None:
        """A map has been emptied: its next line has all that it counts from now on."""
        if known := self._known.get(name):
            known.before = [0] * len(known.before)


def _wider(scale: HeatScale | None, used: list[int], buckets: int) -> tuple[int, int]:
    """The first and last bucket of a scale for *used* ones; one that grows gets some more, so that it rarely does."""
    if scale is None:
        return used[0], used[-1]
    low, high = scale.first, scale.end - 1
    if used[0] < low:
        low = used[0] and max(1, used[0] - _MARGIN)
    if used[-1] > high:
        high = used[-1] + _MARGIN
    return low, min(high, buckets - 1)


def _sums(view: MapView, buckets: int, shown: Shown) -> list[int]:
    """The buckets of all keys together."""
    sums = [0] * buckets
    for _, counts in view.entries(shown) if shown.clear else view.contents():
        assert isinstance(counts, tuple)
        sums = list(map(operator.add, sums, counts))
    return sums


# ---------------------------------------------------------------------------------------------- prints that are kept

MOST = 1 << 21
"""Numbers of all prints that are kept: the older ones of a map go when there are more."""


class KeptPrint(msgspec.Struct):
    """What a map had when it was printed: decoded, and divided by *div* as ``print()`` does; *number*: which print."""

    time: int
    entries: list[Entry]
    div: int
    cleared: bool
    number: int


class _PrintedMap(msgspec.Struct):
    view: MapView
    kept: deque[KeptPrint]
    count: int = 0


class PrintKeeper:
    """Keeps the entries of prints as they were decoded; names are resolved when a snapshot is taken."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._size = 0
        self._maps: dict[str, _PrintedMap] = {}
        self.results: set[str] = set()
        """The maps that end probes printed."""
        self.at_end: dict[str, list[Entry]] = {}
        """What those held that end probes printed and emptied."""

    def keeps(self, view: MapView) -> bool:
        """True for maps of histograms and of numbers; of those by stack the end is shown."""
        kind = value_kind_of(view.value_type)
        by_stack = view.key_type is not None and any(
            isinstance(part, types.Stack) for part in types.parts((view.key_type,))
        )
        return (kind.held is Held.COUNTS or kind.number) and not by_stack

    def keep(self, view: MapView, entries: list[Entry], *, div: int, clear: bool) -> None:
        """Keep one print of a map, which *clear* emptied; older ones go when there are too many."""
        printed = self._maps.get(view.name)
        if printed is None:
            printed = self._maps[view.name] = _PrintedMap(view, deque())
        printed.count += 1
        printed.kept.append(KeptPrint(time.time_ns(), entries, div, clear, printed.count))
        self._size += _size(entries)
        while self._size > self._most and len(printed.kept) > 1:
            self._size -= _size(printed.kept.popleft().entries)

    def emptied(self, name: str) -> None:
        """A map was emptied, or set to zero."""
        if name in self._maps:
            self._maps[name].kept[-1].cleared = True

    def emptied_at_end(self, view: MapView) -> None:
        """An end probe that printed a map is about to empty it: the snapshot of the end has what it held."""
        if entries := view.contents():
            self.at_end.setdefault(view.name, entries)

    def __iter__(self) -> Iterator[tuple[MapView, KeptPrint]]:
        """Each print that is kept, with the view of its map."""
        return ((printed.view, kept) for printed in self._maps.values() for kept in printed.kept)


def _size(entries: list[Entry]) -> int:
    return 1 + sum(len(value) if isinstance(value, tuple) else 1 for _, value in entries)
