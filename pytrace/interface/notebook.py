"""``%load_ext pytrace``: the cell magic ``%%pytrace`` of IPython and Jupyter. The only module that imports IPython."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
from IPython.display import DisplayHandle

from pytrace.core.diagnostics import TraceError
from pytrace.interface.errors import ScriptError
from pytrace.interface.tracing import LONGEST, Trace
from pytrace.interface.tracing import open as open_trace

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from pytrace.interface.events import Event
    from pytrace.interface.snapshots import Snapshot

EVERY = 1.0
"""Seconds between two states of the maps that are shown."""
MOST_LINES = 1000
"""Maximum printed lines of one cell: a notebook keeps what a cell printed in its file."""


def _unquoted(word: str) -> str:
    """A word as a shell would give it: IPython leaves the quotes."""
    return word[1:-1] if len(word) > 1 and word[0] == word[-1] and word[0] in "'\"" else word


@magics_class
class TraceMagics(Magics):
    """Cells that are scripts."""

    @magic_arguments("%pytrace")
    @argument("-c", "--command", metavar="COMMAND", type=_unquoted, help="run this; the run ends with it")
    @argument("-p", "--pid", type=int, help="trace one process; the run ends with it")
    @argument("--comm", action="append", type=_unquoted, help="trace only threads with this name")
    @argument("--follow", action="store_true", help="also trace processes that are started by those")
    @argument("--for", dest="duration", metavar="SECONDS", type=float, help="end the run after this time")
    @argument("--unsafe", action="store_true", help="allow functions that change the system")
    @argument("-o", "--output", metavar="NAME", help="keep the snapshot in this variable")
    @argument("parameters", nargs="*", type=_unquoted, help="$1, $2 …")
    @cell_magic("pytrace")
    def trace(self, line: str, cell: str) -> None:
        """Run the cell as a tracing script, and show its maps while it runs.

        What the script prints is printed; tables and pictures of maps follow once a second, and at the end. The run
        ends with ``exit()``, with the command, after ``--for``, or when the cell is interrupted.
        """
        asked = parse_argstring(self.trace, line)
        try:
            with open_trace(
                cell + "\n",  # a text, not a path
                command=asked.command or None,
                pid=asked.pid,
                comm=asked.comm or (),
                follow=asked.follow,
                unsafe=asked.unsafe,
                parameters=asked.parameters,
                duration=asked.duration,
                own_threads=False,
            ) as trace:
                # A terminal shows each state below the last one.
                snapshot = _shown(trace, moving=hasattr(self.shell, "kernel"))
        except (ScriptError, TraceError, ValueError) as error:
            # Without a traceback, and cells that follow are not run.
            raise UsageError(str(error)) from None
        if asked.output and self.shell is not None:
            self.shell.user_ns[asked.output] = snapshot


def _shown(trace: Trace, moving: bool) -> Snapshot:
    """The result of a run, which is shown at its end, and while it runs where a cell can change (*moving*)."""
    lines, page, due = _Lines(), None, time.monotonic() + EVERY
    while not trace.ended:
        try:
            lines.print(trace.batch(LONGEST))
        except KeyboardInterrupt:
            trace.request_end()
        if moving and trace.maps and time.monotonic() >= due:
            page = _displayed(trace.snapshot(), page)
            due = time.monotonic() + EVERY
    lines.print(trace.events())
    trace.close()
    lines.end()
    snapshot = trace.snapshot()
    if snapshot.maps or snapshot.data.tables or trace.losses:
        _displayed(snapshot, page)
    return snapshot


def _displayed(snapshot: Snapshot, page: DisplayHandle | None) -> DisplayHandle:
    text = snapshot.format("text").decode(errors="backslashreplace")
    forms = {"text/plain": text, "text/html": snapshot._repr_html_()}
    if page is None:
        page = DisplayHandle()
        page.display(forms, raw=True)
    else:
        page.update(forms, raw=True)
    return page


class _Lines:
    """What a script prints, up to :data:`MOST_LINES`."""

    def __init__(self) -> None:
        self._count = 0

    def print(self, events: list[Event]) -> None:
        for event in events:
            self._count += 1
            if self._count <= MOST_LINES:
                sys.stdout.write(f"{event.text}\n")

    def end(self) -> None:
        if self._count > MOST_LINES:
            sys.stdout.write(f"{self._count - MOST_LINES} further outputs are not shown\n")


def load_ipython_extension(shell: InteractiveShell) -> None:
    """``%load_ext pytrace``."""
    shell.register_magics(TraceMagics)
