"""A bash in a pseudo-terminal that somebody types into."""

from __future__ import annotations

import os
import pty
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.patience import patience


class Shell:
    """An interactive bash."""

    def __init__(self, pid: int, terminal: int) -> None:
        self.pid = pid
        self._terminal = terminal
        self._until(b"ready> ")

    def type(self, line: str) -> None:
        """Type a line, and wait for the next prompt."""
        os.write(self._terminal, line.encode() + b"\n")
        self._until(b"ready> ")

    def _until(self, text: bytes) -> None:
        seen, end = b"", time.monotonic() + patience(20)
        while not seen.endswith(text):
            assert select.select([self._terminal], [], [], max(end - time.monotonic(), 0))[0], f"bash printed {seen!r}"
            seen += os.read(self._terminal, 4096)


@contextmanager
def bash() -> Iterator[Shell]:
    """A bash that reads no start-up files and writes no history."""
    pid, terminal = pty.fork()
    if pid == 0:
        try:
            os.environ.update({"PS1": "ready> ", "TERM": "dumb", "HISTFILE": "/dev/null", "INPUTRC": "/dev/null"})
            os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
        finally:
            os._exit(127)
    try:
        yield Shell(pid, terminal)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


def typed(*lines: str) -> int:
    """Type these lines into a new bash; its number."""
    with bash() as shell:
        for line in lines:
            shell.type(line)
        return shell.pid
