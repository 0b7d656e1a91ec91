"""Processes that begin, end and signal in known ways. Each returns the numbers of the processes that it started."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Ended:
    """A process that has ended."""

    pid: int
    code: int = 0
    """Exit status; 0 after a signal."""
    signal: int = 0


def child(work: Callable[[], int | None]) -> Ended:
    """Fork a process that calls *work* and exits with what it gives, without anything of Python's own exit."""
    pid = os.fork()
    if pid == 0:
        status = 127
        try:
            status = work() or 0
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    ended = os.waitstatus_to_exitcode(status)
    return Ended(pid, max(ended, 0), max(-ended, 0))


def forks(count: int) -> list[Ended]:
    """Processes that end at once."""
    return [child(lambda: 0) for _ in range(count)]


def exits(codes: Sequence[int]) -> list[Ended]:
    """Processes that end with these statuses."""
    return [child(lambda code=code: code) for code in codes]  # type: ignore[misc]


def dies_by(numbers: Sequence[int]) -> list[Ended]:
    """Processes that end by these signals, sent by themselves (SIGKILL, SIGTERM, …; none that dumps core)."""

    def work(number: int) -> None:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    numbers_ = [number for number in numbers if number != signal.SIGKILL]
    ended = [child(lambda number=number: work(number)) for number in numbers_]  # type: ignore[misc]
    killed = [child(lambda: os.kill(os.getpid(), signal.SIGKILL)) for number in numbers if number == signal.SIGKILL]
    return ended + killed


def execs(commands: Sequence[Sequence[str]]) -> list[Ended]:
    """Processes that become these programs, by full path."""
    return [child(lambda words=words: os.execv(words[0], list(words))) for words in commands]  # type: ignore[misc]


def failing_exec(path: Path | str) -> Ended:
    """A process that tries to become a program that is not there, and exits with 3."""

    def work() -> int:
        try:
            os.execv(path, [str(path), "argument"])
        except OSError:
            return 3

    return child(work)


def kills(target: int, numbers: Sequence[int]) -> int:
    """Send these signals (0 only asks) from this process; how many calls failed as there is no such process."""
    failed = 0
    for number in numbers:
        try:
            os.kill(target, number)
        except ProcessLookupError:
            failed += 1
    return failed


def no_process() -> int:
    """A number that no process has."""
    return int(Path("/proc/sys/kernel/pid_max").read_text()) - 1


def changes_user(uid: int) -> Ended:
    """A process of root that calls ``setuid`` once, then once more for root, which is refused; exits with 1 then."""

    def work() -> int:
        os.setuid(uid)
        try:
            os.setuid(0)
        except PermissionError:
            return 1
        return 0

    return child(work)


def wants_capability() -> Ended:
    """A process that calls ``sethostname`` with the name that there is: one check of CAP_SYS_ADMIN (21)."""
    return child(set_own_hostname)


def set_own_hostname() -> None:
    """``sethostname`` with the name that there is."""
    import socket

    socket.sethostname(socket.gethostname())


def shell(line: str) -> subprocess.CompletedProcess[str]:
    """A command line of sh."""
    return subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=False)
