"""``--heat``: lines of a heat map at an interval, for histograms that the script does not print at one."""

from __future__ import annotations

import time

from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import Manifest
from pytrace.runtime.output.heat_output import histograms, unprinted
from pytrace.runtime.output.renderer import Renderer
from pytrace.runtime.session.services.service import Service

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
