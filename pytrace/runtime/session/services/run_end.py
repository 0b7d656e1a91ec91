"""The end of a run by the end of the traced processes, or when its time is over."""

from __future__ import annotations

import os
import struct
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from pytrace.core.diagnostics import TraceError
from pytrace.core.options.process_filters import NOT_YET
from pytrace.core.options.run_options import RunOptions
from pytrace.runtime.load.loaded_script import LoadedScript
from pytrace.runtime.machine import procfs
from pytrace.runtime.session.services.service import Service

if TYPE_CHECKING:
    from pytrace.runtime.session.consumer import EventLoop

LOOK_EVERY = 0.1
"""Seconds between two checks whether the program of ``--exec-wait`` was executed."""


class RunEnd(Service):
    """Ends the run when the processes of ``-p``, ``-c`` or ``--exec-wait`` have ended, or the time is over.

    *command* is the descriptor of the process of ``-c``, if there is one.

    Raises:
        TraceError: there is no such process.
    """

    def __init__(
        self, options: RunOptions, command: tuple[int, ...], loaded: LoadedScript, loop: EventLoop, stack: ExitStack
    ) -> None:
        self._stack = stack
        self._loaded = loaded
        self._duration = options.duration
        self._deadline: float | None = None
        self._waits = bool(options.filters.exec_wait)
        self._targets = set(command) or {_process(pid, stack) for pid in options.filters.pids}
        self._loop = loop
        self._over = False

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Descriptors of the processes (pidfds)."""
        return tuple(self._targets)

    @property
    def over(self) -> bool:
        """Whether the processes have ended, or the time is over."""
        return self._over

    def begin(self) -> None:
        """The time of the run begins."""
        if self._duration is not None:
            self._deadline = time.monotonic() + self._duration

    def pause(self, longest: float) -> float:
        """Seconds until the time is over or the program has to be looked for, at most *longest*."""
        if self._waits:
            longest = min(longest, LOOK_EVERY)
        if self._deadline is not None:
            longest = min(longest, max(0.0, self._deadline - time.monotonic()))
        return longest

    def woken(self, ready: list[int]) -> None:
        """Check which processes have ended."""
        self._over = self._over or self._reached(ready)

    def _reached(self, ready: list[int]) -> bool:
        if self._deadline is not None and time.monotonic() >= self._deadline:
            return True
        if self._waits and self._executed():
            return True
        ended = self._targets.intersection(ready)
        if not ended:
            return False
        self._targets -= ended
        for descriptor in ended:
            self._loop.unwatch(descriptor)
        return not self._targets

    def _executed(self) -> bool:
        """Check whether the program of ``--exec-wait`` was executed. Returns whether its process has ended already."""
        data = self._loaded.manifest.session
        if data is None:
            return False
        (number,) = struct.unpack_from("=Q", self._loaded.section(data.section), data.root)
        if number == NOT_YET:
            return False
        self._waits = False
        try:
            descriptor = os.pidfd_open(number)
        except (OSError, OverflowError):
            return True
        self._stack.callback(os.close, descriptor)
        self._targets.add(descriptor)
        self._loop.watch(descriptor)
        return False


def _process(pid: int, stack: ExitStack) -> int:
    """A descriptor that becomes readable when a process has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError as error:
        # pidfd_open() of a thread that leads no process: EINVAL until Linux 6.13, ENOENT since (kernel/pid.c).
        if (leader := procfs.leader(pid)) not in (None, pid):
            hint = f"-p {leader} traces its process; the predicate /tid == {pid}/ selects the thread"
            raise TraceError(f"{pid} is a thread of process {leader}, and -p takes a process", hints=(hint,)) from error
        procfs.check_exists(pid)
        raise TraceError(f"cannot trace process {pid}: {error.strerror}") from error
    stack.callback(os.close, descriptor)
    return descriptor
