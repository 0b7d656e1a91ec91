"""Files of ``cat()`` and commands of ``system()``, which a run waits for until the user asks for its end."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import stat
import subprocess
from collections.abc import Callable

from pytrace.runtime.output.run_state import RunState

_LOOK_EVERY = 50
"""Milliseconds between two looks at whether the user has asked for the end."""


class BrokenOffError(Exception):
    """The user asked for the end of the run while something was waited for."""


class Wait:
    """A wait for one file or command; requests to end the run that come after its creation end it.

    Once the user has asked for the end, only files and commands of end probes are waited for. *prepare* is called
    before a wait.
    """

    def __init__(self, state: RunState, prepare: Callable[[], None] = lambda: None) -> None:
        self._state = state
        self._before = state.requests.count
        self._prepare = prepare

    def until_readable(self, descriptor: int) -> None:
        """Wait until *descriptor* has something to read, or its end.

        Raises:
            BrokenOffError: the user asked for the end before.
        """
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if poll.poll(0):
            return
        self._prepare()
        while not (self._state.hurry or self._state.requests.count != self._before):
            if poll.poll(_LOOK_EVERY):
                return
        if not poll.poll(0):
            raise BrokenOffError


def read_file(path: bytes, most: int, wait: Wait) -> bytes:
    """The first *most* bytes of a file, which may be a FIFO or terminal where they come when somebody writes.

    Raises:
        OSError: the file cannot be read.
        BrokenOffError: the user asked for the end before all of them came.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            # One that nobody writes to yet would read as empty.
            wait.until_readable(descriptor)
        data = b""
        while len(data) < most:
            try:
                piece = os.read(descriptor, most - len(data))
            except BlockingIOError:
                wait.until_readable(descriptor)
                continue
            if not piece:
                break
            data += piece
        return data
    finally:
        os.close(descriptor)


_PATIENCE = 2000
"""Milliseconds that a command gets to end after SIGTERM."""


def run_command(command: bytes, state: RunState) -> tuple[bytes, bool]:
    """Run *command* in a shell. Returns its standard output, and whether it ended by itself.

    When the user ends the run, the command and its descendants are ended.

    Raises:
        OSError: the shell cannot be started.
    """
    # A request that comes while the command is started ends it, too.
    wait = Wait(state)
    with contextlib.ExitStack() as stack:
        process = subprocess.Popen([b"/bin/sh", b"-c", command], stdout=subprocess.PIPE)
        stack.callback(process.wait)
        assert process.stdout is not None
        stack.callback(process.stdout.close)
        ended = os.pidfd_open(process.pid)
        stack.callback(os.close, ended)
        parts: list[bytes] = []
        try:
            _read_all(process.stdout.fileno(), parts, wait)
            wait.until_readable(ended)
        except BrokenOffError:
            _end(process.pid, ended)
            return b"".join(parts), False
        except BaseException:
            _end(process.pid, ended)
            raise
        return b"".join(parts), True


def _read_all(descriptor: int, parts: list[bytes], wait: Wait) -> None:
    while True:
        wait.until_readable(descriptor)
        piece = os.read(descriptor, 1 << 16)
        if not piece:
            return
        parts.append(piece)


def _end(pid: int, ended: int) -> None:
    """End a command and its descendants: by SIGTERM, and by SIGKILL those that are still alive after it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in _family(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)
        if select.select([ended], [], [], _PATIENCE / 1000)[0]:
            return


def _family(pid: int) -> list[int]:
    """A process and its descendants."""
    family = [pid]
    for process in family:
        with contextlib.suppress(OSError), os.scandir(f"/proc/{process}/task") as threads:
            for thread in threads:
                with open(f"{thread.path}/children", encoding="utf-8") as file:
                    family += map(int, file.read().split())
    return family
