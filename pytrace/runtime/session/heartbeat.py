"""The heartbeat of a run: when it stops, the programs of the run return at once (``codegen.walkers.processes``).

A thread moves the deadline of programs forward. The loop of the run does not: it may print a million keys, read debug
information or wait for a slow reader of the output, and none of that is a reason to skip events. The thread stops with
the process: when that is stopped, swapped out or gets no processor time. It also stops beating when the thread of the
run is stuck: it has neither used processor time nor returned from a call for a while (a file system that hangs).
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from threading import Event, Lock, Thread, get_ident

from pytrace.core.manifest import SessionData
from pytrace.runtime.load.loaded_script import NEVER, LoadedScript
from pytrace.runtime.machine import clocks
from pytrace.runtime.session.services import Gap, NoHeartbeat

ATTACHING = 60.0
"""Seconds that attaching one more target may take: the kernel may wait for all processors meanwhile."""
LONGEST = 1.0
"""Maximum seconds between two beats."""
IDLE = 2.0
"""Seconds that the thread of the run may wait for at least: its waits for events take up to half of that."""
_AGAIN = 0.05
"""Seconds between two checks whether a stuck thread runs again."""


class Heartbeat(NoHeartbeat):
    """Moves the deadline of *loaded* on by *seconds* from each beat; *stack* ends it.

    *embedded*: the thread of the run is that of another program, which may do nothing for as long as it likes.
    """

    def __init__(
        self, loaded: LoadedScript, data: SessionData, seconds: float, stack: ExitStack, *, embedded: bool
    ) -> None:
        memory = stack.enter_context(loaded.section(data.section)[data.deadline : data.deadline + 8])
        # The store must be one of eight bytes, which struct.pack_into does not promise.
        self._memory = stack.enter_context(memory.cast("Q"))
        self._tick = clocks.tick_length()
        self._seconds = seconds
        self._deadline = NEVER
        self._embedded = self._lenient = embedded
        self._clock = time.pthread_getcpuclockid(get_ident())
        self._used = 0
        self._progress = time.monotonic()
        """Processor time of the thread of the run, and when it was seen to change."""
        self._lock = Lock()
        self._over = Event()
        self._thread: Thread | None = None
        self._gaps: list[Gap] = []
        stack.callback(self.close)

    def beat(self, more: float = 0.0) -> None:
        """Move the deadline on, for *more* seconds longer than usual, and note if it had passed."""
        with self._lock:
            if self._over.is_set():
                return
            now = clocks.tick_count(self._tick)
            late, self._deadline = now - self._deadline, now + self._in_ticks(self._seconds + more)
            self._memory[0] = self._deadline
            if late > 0:
                self._gaps.append((time.time_ns() - late * self._tick, late * self._tick))

    def _in_ticks(self, seconds: float) -> int:
        return round((seconds + clocks.RESOLUTION) * 1_000_000_000 / self._tick)

    def attaching(self) -> None:
        """A target is about to be attached, or was attached."""
        self.beat(ATTACHING)

    def begin(self) -> None:
        """From now on a thread beats. It is not started earlier, so that it has the privileges of the run."""
        self.beat()
        if self._thread is not None:
            return
        thread = Thread(target=self._run, name="pytrace-heartbeat", daemon=True)
        thread.start()
        # One that could not be started (ulimit -u) cannot be waited for.
        self._thread = thread
        self.thread = thread.native_id or 0

    def stop(self) -> None:
        """The run ends: the kernel may take its time to detach probes.

        The thread ends before programs stop: a map of calls that have begun would keep the one that it waits in.
        """
        self.close()
        with self._lock:
            self._memory[0] = self._deadline = NEVER

    def close(self) -> None:
        """End the thread."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def gaps(self) -> list[Gap]:
        """The gaps since the last call, all of them over: the caller's asking is a beat, too."""
        self.beat()
        with self._lock:
            ended, self._gaps = self._gaps, []
        return ended

    # ---- the thread

    def _run(self) -> None:
        every = min(LONGEST, self._seconds / 4)
        pause = every
        while not self._over.wait(pause):
            alive = self._alive()
            if alive:
                self.beat()
            pause = every if alive else _AGAIN

    def _alive(self) -> bool:
        """Whether the thread of the run has worked a moment ago."""
        used, now = time.clock_gettime_ns(self._clock), time.monotonic()
        if used != self._used:
            self._used, self._progress = used, now
        return self._lenient or now - self._progress <= max(self._seconds, IDLE)

