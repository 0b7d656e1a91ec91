"""A controller for tests: starts ``pytrace agent`` and speaks to it over pipes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from pytrace.remote import messages
from pytrace.remote.messages import End, FromAgent, Limits, Request, Snapshot
from pytrace.results import file_form
from pytrace.results.snapshot import SnapshotData
from tests.support.patience import patience

ROOT = Path(__file__).resolve().parents[2]

_M = TypeVar("_M")


class Agent:
    """A running agent, and what it has said."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.heard: list[FromAgent] = []

    def say(self, *said: messages.ToAgent) -> None:
        """Send messages."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"".join(map(messages.encode, said)))
        self.process.stdin.flush()

    def hang_up(self) -> None:
        """Close the agent's input."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def next(self, wanted: type[_M]) -> _M:
        """The next message of a class; those before it are kept in :attr:`heard`."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message = messages.from_agent(line)
            self.heard.append(message)
            if isinstance(message, wanted):
                return message
        raise EOFError(f"no {wanted.__name__}, but {self.heard}")

    def end(self) -> tuple[End, int]:
        """The last message, and the exit status."""
        last = self.next(End)
        return last, self.wait()

    def wait(self) -> int:
        """The exit status; nothing is said after the last message."""
        status = self.process.wait(patience(30))
        assert self.process.stdout is not None
        assert self.process.stdout.read() == b""
        return status

    def last(self) -> SnapshotData:
        """The newest snapshot."""
        newest = [message for message in self.heard if isinstance(message, Snapshot)][-1]
        return file_form.from_bytes(newest.data, "agent")


@contextmanager
def agent(program: str = "", variables: Mapping[str, str] = MappingProxyType({})) -> Iterator[Agent]:
    """An agent that waits for its request; *program* is run instead of it. *variables*: of its environment."""
    command = [sys.executable, *(("-c", program) if program else ("-m", "pytrace", "agent"))]
    environment = {**os.environ, **variables}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=environment
    ) as process:
        try:
            yield Agent(process)
        finally:
            process.kill()


def request(text: str, *, compiled: bytes = b"", duration: float = 60, protocol: int = messages.PROTOCOL,
            **limits: object) -> Request:  # fmt: skip
    """A request to run a script."""
    bounds = Limits(duration=duration, **limits)  # type: ignore[arg-type]
    return Request(protocol=protocol, script="x.bt", text=text, compiled=compiled, limits=bounds)


COUNTING = f"tracepoint:syscalls:sys_enter_getppid /pid == {os.getpid()}/ {{ @ = count(); }}"
"""Counts the calls of :func:`call`."""


def call(times: int) -> None:
    """Calls that :data:`COUNTING` counts, if its process has imported it."""
    for _ in range(times):
        os.getppid()
