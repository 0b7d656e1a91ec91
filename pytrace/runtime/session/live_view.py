"""``--live``: the maps and the output of a running script, shown by a process that has the terminal."""

from __future__ import annotations

import os
import shutil
import time
from collections import deque
from queue import SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING

from pytrace.base.interruption import EndRequests
from pytrace.core.manifest import Manifest
from pytrace.core.options import RunOptions
from pytrace.live import answer_view, board
from pytrace.live.answer_view import Write
from pytrace.live.glyphs import Glyphs
from pytrace.live.inspector import Inspector, answers_for
from pytrace.live.messages import Answer, Command, Lines, Meters, Notice, Start, State
from pytrace.live.terminal import characters, coloured
from pytrace.live.view_process import Streams, ViewProcess
from pytrace.results import file_form
from pytrace.results.snapshot import SnapshotData
from pytrace.runtime.output.streams import Batch, Flush, Output
from pytrace.runtime.session.calls import CallRecords, records_of
from pytrace.runtime.session.confinement import confine_view
from pytrace.runtime.session.costs import Costs, Measured
from pytrace.runtime.session.services import EndOfRun, Service

if TYPE_CHECKING:
    from contextlib import ExitStack

    from pytrace.runtime.session.session import Resources
    from pytrace.runtime.session.snapshots import Snapshots

REFRESH = 1.0
"""Seconds between two snapshots."""
SHARE = 0.05
"""Part of a processor that snapshots may take: where maps are very large, there are fewer."""
SHOWN = 4096
"""Entries of each map that are sent, the greatest: all of the maps of ``pytrace top``, as what is busy now may be small
in the sum."""
CALLS_SHOWN = 200
"""Calls under way that are sent, the oldest."""
LOOK_EVERY = 0.2
"""Seconds between two looks for commands."""
_LINES_EVERY = 0.5
"""Seconds between two messages with lines of the log."""
_SECOND = 5.0
"""Longest time between the first two snapshots."""
_NO_LOSSES = ("unfinished", "untraced")
"""Kinds of counters that the footer does not sum up as lost."""
_SOON = 0.01
"""The same while the channel has no room for what is to be sent."""
_MOST = 1 << 17
"""Bytes that are collected between two refreshes of the view; older ones are dropped."""
_MESSAGES = 1000
"""Messages that are kept for the end."""


class CoveredOutput(Output):
    """The output of a run whose terminal a live view has: what would go there is collected for the view's log.

    While :attr:`covered`, parts and messages for the terminal are collected.

    Afterwards those that the view has not shown are printed, and all messages: these are what a user reads when the
    view is gone.
    """

    def __init__(
        self,
        descriptor: int,
        *,
        messages: int,
        flush: Flush,
        json: bool,
        csv: bool,
        colour: bool,
        raw: bool,
        requests: EndRequests,
        owned: bool,
    ) -> None:
        super().__init__(
            descriptor, messages=messages, flush=flush, json=json, csv=csv, colour=colour, raw=raw,
            requests=requests, owned=owned,
        )  # fmt: skip
        self.covered = False
        self._before: bytes | None = b""
        """What the terminal got before it was covered: headings of ``begin`` probes, warnings. None afterwards."""
        self._messages_shown = os.isatty(messages)
        self._collected: deque[tuple[bool, bytes]] = deque()
        """Whether it is a message, and its bytes."""
        self._unseen: deque[bytes] = deque()
        """What :meth:`take` has returned and the view has not shown, without messages."""
        self._seen = 0
        self._collected_size = self._dropped = 0
        self._lock = Lock()
        """What children of the run print is collected by a thread."""
        self._told: deque[bytes] = deque(maxlen=_MESSAGES)

    def cover(self) -> None:
        """Collect from now on; the log begins with what has been printed so far."""
        self.flush()
        self.covered = True
        before, self._before = self._before, None
        self.collect(before or b"", message=True)

    def collect(self, data: bytes, *, message: bool = False) -> None:
        """Add to what the log shows next."""
        with self._lock:
            self._collected.append((message, data))
            self._collected_size += len(data)
            while self._collected_size > _MOST and len(self._collected) > 1:
                _, old = self._collected.popleft()
                self._collected_size -= len(old)
                self._dropped += len(old)

    def take(self) -> tuple[bytes, int]:
        """What has been collected since the last call, and how many bytes before it were dropped."""
        with self._lock:
            parts, dropped = list(self._collected), self._dropped
            self._collected.clear()
            self._collected_size = self._dropped = 0
        if parts:
            self._unseen.append(b"".join(part for message, part in parts if not message))
        return b"".join(part for _, part in parts), dropped

    def seen(self, count: int) -> None:
        """The view has shown so many of the results of :meth:`take` that were not empty."""
        while self._seen < count and self._unseen:
            self._unseen.popleft()
            self._seen += 1

    def uncover(self) -> None:
        """The terminal is free again: print what nobody has seen, and the messages."""
        if not self.covered:
            return
        self.covered = False
        self.take()
        unseen = b"".join(self._unseen)
        if unseen and self.terminal:
            self.write(unseen)
            self.flush()
        elif unseen:
            # The results are in a file, and this is what the command and system() have printed: it belongs elsewhere.
            super()._send_message(unseen)
        for text in self._told:
            super()._send_message(text)
        self._told.clear()

    def _send(self, batch: Batch) -> bool:
        if not self.covered or not self.terminal:
            sent = super()._send(batch)
            self._remember(batch.data if sent and self.terminal else b"")
            return sent
        self.collect(bytes(batch.data[-_MOST:]))
        if batch.data:
            self._in_line = not batch.ends_line
        self._written += len(batch.parts)
        self._writing = None
        if self._late:
            self._release_messages()
        return True

    def _send_message(self, text: bytes) -> bool:
        if not self.covered or not self._messages_shown:
            # How many probes are attached is no news for the log.
            self._remember(text if self._messages_shown and text.startswith(b"WARNING") else b"")
            return super()._send_message(text)
        self.collect(text, message=True)
        self._told.append(text)
        return True

    def _remember(self, data: bytes | bytearray | memoryview) -> None:
        if self._before is not None:
            self._before = (self._before + bytes(data))[-_MOST:]


class Screen:
    """The terminal of a run with ``--live``: the streams of the run, and the process that has the terminal."""

    output = CoveredOutput
    """The class of the output that the view covers."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.streams = Streams(stack)

    def cover(self, written: Output, manifest: Manifest, *, keep_privileges: bool) -> None:
        """Start the process of the view, which imports what it needs while the programs are loaded."""
        assert isinstance(written, CoveredOutput)
        self._written = written
        self._stack.callback(written.uncover)
        confine = (lambda: None) if keep_privileges else confine_view
        self._view = ViewProcess(self.streams, confine, written.collect, self._stack)
        self._inspector = Inspector(self._stack) if answers_for(manifest) else None

    def service(self, run: Resources, costs: Costs) -> LiveView:
        """The service that feeds the view; the programs leave its processes out."""
        inspector, manifest = self._inspector, run.loaded.manifest
        run.loaded.add_own_processes(self._view.pid, None if inspector is None else inspector.pid)
        calls = None
        if records_of(manifest):
            calls = CallRecords(run.loaded)
        return LiveView(self._view, self._written, run.snapshots, costs, manifest, run.options, inspector, calls)


class LiveView(Service):
    """Sends snapshots of a run to the view, and does what the view asks for. Files go to the working directory."""

    def __init__(
        self,
        view: ViewProcess,
        output: CoveredOutput,
        snapshots: Snapshots,
        costs: Costs,
        manifest: Manifest,
        options: RunOptions,
        inspector: Inspector | None = None,
        calls: CallRecords | None = None,
    ) -> None:
        self._inspector, self._calls = inspector, calls
        self._own: set[int] = set()
        """Processes of pytrace itself, which are left out of what is shown."""
        self._view, self._output, self._snapshots, self._costs = view, output, snapshots, costs
        self._manifest = manifest
        self._options = options
        self._next_state = self._next_lines = self._next_look = 0.0
        self._interval = REFRESH
        self._started = time.monotonic()
        self._before: Measured | None = None
        self._lost = self._states = 0
        self._resets: deque[str] = deque()
        """Maps that are still to be emptied."""
        self._results: SimpleQueue[Notice] = SimpleQueue()
        """Messages of the thread that writes files."""

    # ---- phases of the run

    @property
    def over(self) -> bool:
        """Whether the view has ended by itself."""
        return self._view.gone

    def begin(self) -> None:
        """The view takes the terminal."""
        self._started = time.monotonic()
        self._before = self._costs.measured()
        title = " ".join((self._name(), *self._options.parameters))
        places = self._options.output or ""
        self._output.cover()
        self._own = {os.getpid(), self._view.pid, *(() if self._inspector is None else (self._inspector.pid,))}
        asks = self._inspector is not None
        self._view.begin(Start(title, characters(), coloured(), places, tuple(self._own), asks))

    def _name(self) -> str:
        """The name of the script; of a program of the command line its comment in the first line, or its text."""
        if self._options.script != "-e":
            return self._options.script
        first = self._options.text.strip().partition("\n")[0]
        return first.removeprefix("//").strip() if first.startswith("//") else " ".join(self._options.text.split())

    def pause(self, longest: float) -> float:
        """Seconds until there is something to send, at most *longest*."""
        if not self._view.flush():
            return min(longest, _SOON)
        if self._resets:
            return 0.0
        return max(0.0, min(longest, self._next_look - time.monotonic()))

    def work(self, _handled: int) -> None:
        """Do what the view asks for, and send what is new."""
        now = time.monotonic()
        if self._resets:
            self._reset_next()
        if now < self._next_look or not self._view.flush():
            return
        self._next_look = now + LOOK_EVERY
        while not self._view.commands.empty():
            self._do(self._view.commands.get())
        for answer in () if self._inspector is None else self._inspector.answers():
            self._own |= {*answer.own} if isinstance(answer, Answer) else set()
            self._view.send(answer)
        while not self._results.empty():
            self._view.send(self._results.get())
        if now >= self._next_lines:
            self._next_lines = now + _LINES_EVERY
            self._output.seen(self._view.lines)
            data, dropped = self._output.take()
            if data:
                self._view.send(Lines(data, dropped))
        if now >= self._next_state and self._view.states == self._states:
            self._send_state(now)

    def exited(self) -> None:
        """The view ends, and the thread that reads what the user wants."""
        self._view.close()

    def stop(self) -> None:
        """Give the terminal back: the end of the run is printed as that of any run."""
        self._view.close()
        self._output.seen(self._view.lines)
        self._output.uncover()

    def break_off(self) -> None:
        """The same, where the user does not wait for the end."""
        self.stop()

    def finish(self, end: EndOfRun) -> None:
        """Report why the view ended, if it did so by itself; of maps that are not printed a summary stays."""
        if end.print_maps and not self._manifest.config.print_maps_on_exit:
            snapshot, _ = self._snapshots.greatest(SHOWN)
            width = shutil.get_terminal_size().columns
            end.found += board.summary(snapshot, Glyphs(characters()), frozenset(self._own), width)
        if self._view.error:
            end.errors.append(f"the live view failed ({self._view.error}), so the run was ended")

    # ---- states

    def _send_state(self, now: float) -> None:
        used = time.thread_time()
        snapshot, others = self._snapshots.greatest(SHOWN)
        calls, younger = (None, 0) if self._calls is None else self._calls.oldest(CALLS_SHOWN)
        used = time.thread_time() - used
        # The first one reads the symbols of everything; later ones know them.
        self._interval = max(REFRESH, used / SHARE if self._states else min(used / SHARE, _SECOND))
        self._next_state = now + self._interval
        self._states += 1
        self._view.send(State(snapshot, others, self._meters(snapshot, now), calls, younger))

    def _meters(self, snapshot: SnapshotData, now: float) -> Meters:
        measured, before = self._costs.measured(), self._before
        assert before is not None
        self._before = measured
        passed = max(measured.time - before.time, 1)
        nothing = (0, 0)
        times, hits = (
            sum(numbers[at] - before.programs.get(index, nothing)[at] for index, numbers in measured.programs.items())
            for at in (0, 1)
        )
        losses = [sum(subjects.values()) for kind, subjects in snapshot.losses.items() if kind not in _NO_LOSSES]
        lost = sum(losses)
        losing, self._lost = max(lost - self._lost, 0), lost
        return Meters(
            elapsed=now - self._started,
            hits=hits * 1e9 / passed,
            lost=lost,
            losing=losing * 1e9 / passed,
            own=(measured.own - before.own) / passed,
            programs=None if self._costs.refused else times / passed,
            interval=self._interval,
        )

    # ---- commands

    def _do(self, command: Command) -> None:
        if command.do == "clear":
            self._clear(command.name.split())
        elif command.do == "save":
            self._write("pts", file_form.write)
        elif command.do == "report":
            self._write("html", answer_view.write_report)
        elif command.do == "ask" and self._inspector is not None:
            self._inspector.ask(command)

    def _clear(self, wanted: list[str]) -> None:
        """Empty maps, or all that may be emptied: what programs store and read again stays."""
        specs = [spec for spec in self._manifest.maps if spec.name in wanted or not wanted]
        emptied = [spec.name for spec in specs if spec.resettable]
        kept = [spec.name for spec in specs if wanted and not spec.resettable]
        # One in each turn: the kernel waits each time until no program uses the older buffer.
        self._resets.extend(emptied)
        parts = [f"{', '.join(emptied) or 'nothing'} was reset"] if emptied or not wanted else []
        parts += [f"{', '.join(kept)} was not reset: the script may read what it has stored there"] if kept else []
        self._view.send(Notice("; ".join(parts), error=not emptied))

    def _reset_next(self) -> None:
        self._snapshots.clear(self._resets.popleft())
        if not self._resets:
            self._next_state = 0.0

    def _write(self, suffix: str, write: Write) -> None:
        """Write a snapshot to a new file; a thread does, as that may take long."""
        arguments = self._snapshots.take(), answer_view.new_path(suffix), write
        Thread(target=self._written, args=arguments, name="pytrace-saving", daemon=True).start()

    def _written(self, snapshot: SnapshotData, path: str, write: Write) -> None:
        self._results.put(answer_view.written(snapshot, path, write))
