"""``pytrace fleet --live``, ``pytrace calls --live``: the answer of many hosts so far, calls that have not returned,
shown by a process that has the terminal; and the files that the user of a live view asks for.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack

from msgspec.structs import replace

from pytrace.base import whole_files
from pytrace.core.diagnostics import TraceError
from pytrace.core.failures import UnderWay
from pytrace.live.messages import Command, Lines, Meters, Notice, Start, State
from pytrace.live.terminal import characters, coloured
from pytrace.live.view_process import Streams, ViewProcess
from pytrace.results import file_form
from pytrace.results.formats import table
from pytrace.results.snapshot import WITHOUT_ANSWER, SnapshotData

REFRESH = 1.0
"""Seconds between two looks for news."""
SHARE = 0.05
"""Part of a processor that merging for the view may take: of large answers there are fewer pictures."""
_LONGEST = 30.0
"""Seconds between two pictures of an answer that takes long to merge."""
_LINES_EVERY = 0.5
"""Seconds between two messages with lines of the log."""
_LONGEST_PIECE = 1 << 17
MOST_LINES = 1000
"""Pieces of the log that wait for the view."""

Trim = Callable[[SnapshotData], SnapshotData]


class AnswerView:
    """Sends the answer so far to the view, and does what the view asks for.

    Args:
        title: of the screen.
        take: returns the answer so far.
        trim: leaves the largest entries of each map, which are shown.
        answered: returns the line that says who answered.
        calls: returns the calls that are under way, if the run follows some: as members of :class:`State`.
        confine: as of :class:`ViewProcess`.
        stack: gives the terminal back.
    """

    def __init__(
        self, title: str, take: Callable[[], SnapshotData], trim: Trim, answered: Callable[[], str],
        confine: Callable[[], None], stack: ExitStack,
        calls: Callable[[], tuple[tuple[UnderWay, ...], int]] | None = None,
    ) -> None:  # fmt: skip
        self._title, self._take, self._trim, self._answered, self._calls = title, take, trim, answered, calls
        self._log: deque[bytes] = deque(maxlen=MOST_LINES)
        self.streams = Streams(stack)
        self._view = ViewProcess(self.streams, confine, self._log.append, stack)
        self._started = self._looked = time.monotonic()
        self._next = self._next_lines = 0.0
        self._interval = REFRESH
        self._states = self._lost = 0
        self._own = time.process_time()

    @property
    def error(self) -> str:
        """Why the view ended by itself."""
        return self._view.error

    @property
    def over(self) -> bool:
        """Whether the view has ended by itself."""
        return self._view.gone

    def begin(self) -> None:
        """The view takes the terminal. What others print goes to its log."""
        self._view.begin(Start(self._title, characters(), coloured()))

    def log(self, data: bytes) -> None:
        """Add to what the log shows; of very much the end."""
        self._log.append(data[-_LONGEST_PIECE:])

    def work(self) -> None:
        """Do what the view asks for, and send what is new."""
        if not self._view.flush():
            return
        while not self._view.commands.empty():
            self._do(self._view.commands.get())
        now = time.monotonic()
        if self._log and now >= self._next_lines:
            self._next_lines = now + _LINES_EVERY
            self._view.send(Lines(b"".join(self._log.popleft() for _ in range(len(self._log)))))
        if now >= self._next and self._view.states == self._states:
            self._send_state(now)

    def close(self) -> None:
        """Give the terminal back."""
        self._view.close()

    def _send_state(self, now: float) -> None:
        used = time.thread_time()
        whole = self._take()
        shown = self._trim(whole)
        calls, younger = (None, 0) if self._calls is None else self._calls()
        used = time.thread_time() - used
        self._interval = min(max(REFRESH, used / SHARE), _LONGEST)
        self._next = now + self._interval
        self._states += 1
        # What is read from files as it is needed is sent as it is.
        maps = {name: replace(data, entries=dict(data.entries), times=None) for name, data in shown.maps.items()}
        others = {name: len(whole.maps[name].entries) - len(data.entries) for name, data in maps.items()}
        state = replace(whole, maps=maps, tables=(), prints=())
        self._view.send(State(state, others, self._meters(whole, now), calls, younger))

    def _meters(self, snapshot: SnapshotData, now: float) -> Meters:
        own = time.process_time()
        # The line of who answered has the hosts.
        losses = [counts for kind, counts in snapshot.losses.items() if kind != WITHOUT_ANSWER]
        lost = sum(sum(counts.values()) for counts in losses)
        passed = max(now - self._looked, 1e-3)
        meters = Meters(
            elapsed=now - self._started, hits=0, lost=lost, losing=max(lost - self._lost, 0) / passed,
            own=(own - self._own) / passed, programs=None, interval=self._interval, answered=self._answered(),
        )  # fmt: skip
        self._own, self._lost, self._looked = own, lost, now
        return meters

    # ---- commands

    def _do(self, command: Command) -> None:
        if command.do == "clear":
            self._view.send(Notice("maps are not reset here", error=True))
        elif command.do == "save":
            self._write("pts", file_form.write)
        elif command.do == "report":
            self._write("html", write_report)

    def _write(self, suffix: str, write: Write) -> None:
        """Write the answer so far to a new file of the working directory."""
        self._view.send(written(self._take(), new_path(suffix), write))


# ---------------------------------------------------------------------------------------- files that the user asks for

Write = Callable[[SnapshotData, str], None]
"""Writes a snapshot to a path."""


def new_path(suffix: str) -> str:
    """The name of a new file, by the time of day."""
    return time.strftime(f"pytrace-%Y%m%d-%H%M%S.{suffix}")


def written(snapshot: SnapshotData, path: str, write: Write) -> Notice:
    """Write a snapshot. Returns what the view says of it."""
    try:
        write(snapshot, path)
    except OSError as error:
        return Notice(f"{path} cannot be written: {error.strerror or error}", error=True)
    except TraceError as error:
        return Notice(f"{path} was not written: {'; '.join((error.message, *error.hints))}", error=True)
    return Notice(f"written: {path}")


def write_report(snapshot: SnapshotData, path: str) -> None:
    """Write a snapshot as a report in HTML."""
    row, settings = table.chosen("html", None)
    write = row.writer()
    with whole_files.replacing(os.path.abspath(path)) as file:
        write(snapshot, settings, file)
