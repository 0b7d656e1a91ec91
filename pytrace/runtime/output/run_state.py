"""State of a run that events change and the session reads, and options of its output."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pytrace.base.interruption import EndRequests
from pytrace.render.text import Bars

if TYPE_CHECKING:
    from pytrace.runtime.capture.prints import PrintKeeper


class RunState(msgspec.Struct):
    """Requests of events to the session."""

    exit_requested: bool = False
    """``exit()`` was called: end probes run, then the maps print."""
    exit_code: int = 0
    timed: bool = False
    """A timer called ``exit()``: it was time to end."""
    errors: int = 0
    """Number of calls of ``errorf``; a test with one has failed."""
    assertion_failed: bool = False
    """An assertion of the script failed: maps are not printed."""
    unwatched: list[int] = msgspec.field(default_factory=list)
    """Addresses whose watchpoints are to be detached; the session removes them from here."""
    requests: EndRequests = msgspec.field(default_factory=EndRequests)
    """Requests of the user to end the run."""
    resumed: bool = False
    """End probes run: their output and commands are waited for, although the user has asked for the end."""
    marks: dict[str, str] = msgspec.field(default_factory=dict)
    """Marks of maps whose values are estimates, as hits were left out (``runtime.output.marks``)."""
    event_marks: dict[int, str] = msgspec.field(default_factory=dict)
    """The same for events by their id."""
    not_run: int = 0
    """Commands of ``system()`` that were not run because the user had asked for the end."""
    shown_at_end: set[str] = msgspec.field(default_factory=set)
    """Maps that end probes have printed to a Python program: what they empty then stays, as it is the result."""
    prints: PrintKeeper | None = None
    """Keeps what is printed of maps, where snapshots are taken."""

    @property
    def hurry(self) -> bool:
        """Whether the user has asked for the end: waiting events are still printed, but commands are not run."""
        return self.requests.ending and not self.resumed


class RenderOptions(msgspec.Struct, frozen=True):
    """*quiet*: no notices of the tracer's own. *warnings*: show warnings (``--no-warnings`` does not).

    *namespace*: the open network namespace that interfaces are in, where that is not the tracer's. *printable*: the
    output is text or CSV on a terminal, so that control characters of traced data are shown as escapes.
    *bars*: how histograms are drawn. *heat*: how the cells of heat maps are, which are printed in place of histograms
    until the run ends.
    *tool*: the script is a shipped tool, whose messages are shown without their place in it.
    """

    quiet: bool = False
    warnings: bool = True
    namespace: int | None = None
    printable: bool = False
    bars: Bars = Bars.SIGNS
    heat: Bars | None = None
    tool: bool = False
