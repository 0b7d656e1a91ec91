"""``--heat``: the histograms of a run, a line of a heat map for each interval."""

from __future__ import annotations

import operator
import time
from typing import TYPE_CHECKING

import msgspec

from pytrace.core.event_layout import PrintedMap
from pytrace.core.probes.kinds import INTERVAL, PROFILE
from pytrace.core.types import Hist, LHist
from pytrace.render import histogram
from pytrace.render.maps import heat_lines
from pytrace.render.maps.heat_lines import Scale
from pytrace.render.maps.map_printer import MapView, Shown
from pytrace.render.text import Bars

if TYPE_CHECKING:
    from pytrace.core.manifest import Manifest
    from pytrace.runtime.output.context import Context


_MARGIN = 2
"""Buckets beyond what a scale has to grow by."""


class _Printed(msgspec.Struct):
    """What has been printed of a map."""

    before: list[int]
    """Its buckets at the last line."""
    scale: Scale | None = None
    """None until there was a value."""


class HeatOutput:
    """Prints the changes of histograms, each as one line below that of the interval before."""

    def __init__(self, context: Context) -> None:
        self._output = context.output
        self._colour = context.options.heat is Bars.COLOUR
        self._known: dict[str, _Printed] = {}
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
        known = self._known.setdefault(view.name, _Printed([0] * shape.buckets))
        change = [now - was for now, was in zip(counts, known.before, strict=True)]
        if min(change) < 0:
            change = counts  # the map was emptied
        known.before = [0] * shape.buckets if shown.clear else counts
        if shown.div > 1 and shape.divisible:
            change = [count // shown.div for count in change]
        return b"" if rest and not any(change) else self._lines_of(view, shape, known, change)

    def _lines_of(self, view: MapView, shape: histogram.Shape, known: _Printed, change: list[int]) -> bytes:
        used = [bucket for bucket, count in enumerate(change) if count]
        if used and (known.scale is None or not known.scale.covers(used[0], used[-1])):
            known.scale = heat_lines.scale(*_wider(known.scale, used, shape.buckets), self._output.width())
            self._headed = ""
        if known.scale is None:
            return b""
        heading = b""
        height = self._output.height()
        if self._headed != view.name or (height and self._lines >= max(4, height - 3)):
            heading = heat_lines.heading(view.label, shape, known.scale, colour=self._colour)
            self._headed, self._lines = view.name, 0
        self._lines += 1
        return heading + heat_lines.line(_now(), known.scale, change, colour=self._colour)

    def forget(self, name: str) -> None:
        """A map has been emptied: its next line has all that it counts from now on."""
        if known := self._known.get(name):
            known.before = [0] * len(known.before)


def _wider(scale: Scale | None, used: list[int], buckets: int) -> tuple[int, int]:
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


def _now() -> bytes:
    return time.strftime("%H:%M:%S").encode()


def histograms(manifest: Manifest) -> list[str]:
    """The maps of histograms."""
    return [spec.name for spec in manifest.maps if isinstance(spec.value, Hist | LHist)]


def unprinted(manifest: Manifest) -> list[str]:
    """Histograms that no timer of the script can print, so that they are printed at an interval of their own."""
    if not any(program.kind in (INTERVAL, PROFILE) for program in manifest.programs):
        return histograms(manifest)
    printed = {spec.static.map for spec in manifest.events if isinstance(spec.static, PrintedMap)}
    return [name for name in histograms(manifest) if name not in printed]
