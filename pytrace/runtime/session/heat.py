"""``--heat``: lines of a heat map at an interval, for histograms that the script does not print at one."""

from __future__ import annotations

import time

from pytrace.core.diagnostics import TraceError
from pytrace.core.event_layout import PrintedMap
from pytrace.core.manifest import Manifest
from pytrace.core.probe_kinds import INTERVAL as INTERVALS
from pytrace.core.probe_kinds import PROFILE
from pytrace.core.types import Hist, LHist
from pytrace.runtime.output.renderer import Renderer
from pytrace.runtime.session.services import Service

INTERVAL = 1.0
"""Seconds."""


class Heat(Service):
    """Prints a line for each histogram of the script that its timers do not print.

    Raises:
        TraceError: the script has no histogram.
    """

    def __init__(self, manifest: Manifest, renderer: Renderer) -> None:
        if not histograms(manifest):
            hints = ("hist() and lhist() make one",)
            raise TraceError("--heat shows histograms, and the script has no map of them", hints=hints)
        self._names = unprinted(manifest)
        self._renderer = renderer
        self._next = float("inf")

    def begin(self) -> None:
        """The first interval begins."""
        if self._names:
            self._next = time.monotonic() + INTERVAL

    def pause(self, longest: float) -> float:
        """Seconds until the next line, at most *longest*."""
        return max(0.0, min(longest, self._next - time.monotonic()))

    def work(self, _handled: int) -> None:
        """Print a line when it is time to."""
        now = time.monotonic()
        if now >= self._next:
            self._next += INTERVAL * (1 + (now - self._next) // INTERVAL)
            self._renderer.print_heat(self._names)

    def stop(self) -> None:
        """Print the rest of the last interval, so that the lines together have all that the map has."""
        self._renderer.print_heat(self._names, rest=True)


def histograms(manifest: Manifest) -> list[str]:
    """The maps of histograms."""
    return [spec.name for spec in manifest.maps if isinstance(spec.value, Hist | LHist)]


def unprinted(manifest: Manifest) -> list[str]:
    """Histograms that no timer of the script can print, so that they are printed at an interval of their own."""
    if not any(program.kind in (INTERVALS, PROFILE) for program in manifest.programs):
        return histograms(manifest)
    printed = {spec.static.map for spec in manifest.events if isinstance(spec.static, PrintedMap)}
    return [name for name in histograms(manifest) if name not in printed]
