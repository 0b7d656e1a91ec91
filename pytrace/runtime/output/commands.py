"""Commands of ``system()``: their output is that of the script, and they end when the user ends the run."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
from typing import TYPE_CHECKING

from pytrace.runtime.output.blocking import BrokenOffError, Wait

if TYPE_CHECKING:
    from pytrace.runtime.output.context import RunState

_PATIENCE = 2000
"""Milliseconds that a command gets to end after SIGTERM."""


def run(command: bytes, state: RunState) -> tuple[bytes, bool]:
    """Run *command* in a shell; gives what it wrote to standard output, and whether it came to its end by itself."""
    # A request that comes while the command is started is one that ends it.
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
    """End a command and what it started; a process that does not heed SIGTERM is killed."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in _family(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)
        if select.select([ended], [], [], _PATIENCE / 1000)[0]:
            return


def _family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    found = [pid]
    for process in found:
        with contextlib.suppress(OSError), os.scandir(f"/proc/{process}/task") as threads:
            for thread in threads:
                with open(f"{thread.path}/children", encoding="utf-8") as file:
                    found += map(int, file.read().split())
    return found
