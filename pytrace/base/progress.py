"""A line on the terminal that says what takes long: it appears after a second, and goes away.

Only the command shows it (:func:`show_on`), and only on a terminal. It is drawn by a thread, as much of what takes long
is in C, and without blocking: a terminal that is stopped holds nobody up. Signals that would kill the process at once
are blocked meanwhile: the thread waits for them, clears the line and sends them again. Whoever writes to the terminal
calls :func:`make_room` before.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pytrace.base.interruption import ENDING

DELAY = 1.0
"""Seconds until the line appears, and until it appears again after other output."""
_EVERY = 0.2
"""Seconds between two states of the line."""
_CLEAR = b"\r\x1b[K"
_WAKE = signal.SIGURG
"""Ends a wait of the thread."""


class Step:
    """Something that may take long: *text* says what, *done* of *total* (0: unknown) how far it is."""

    def __init__(self, text: str, total: int, unit: str) -> None:
        self.text = text
        self.done = 0
        self.total = total
        self._unit = unit
        self._began = time.monotonic()

    def shown(self, columns: int) -> str:
        """The line in at most *columns*: how far it is remains, of a long text the middle is left out."""
        from pytrace.base.control_characters import printable_message  # only on terminals

        size = 1 << 20 if self._unit == "MB" else 1
        unit = f" {self._unit}" if self._unit else ""
        state = f": {self.done // size:,}" if self.total or self.done else ""
        if self.total:
            state += f" of {self.total // size:,}"
        state = f"{state}{unit if state else ''} ({time.monotonic() - self._began:.0f} s)"
        text, room = printable_message(self.text.replace("\n", " ")), max(columns - len(state), 8)
        if len(text) > room:
            text = f"{text[: room // 2 - 3]}...{text[len(text) - (room - room // 2) :]}"
        return f"{text}{state}"[:columns]


class _Line:
    """The line of this process's terminal, and the steps that are under way, the innermost last."""

    def __init__(self) -> None:
        self.terminal = -1
        self.free = True
        """Whether the cursor is at the beginning of a line."""
        self._steps: list[Step] = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._signals: set[int] = set()
        """Signals that the thread waits for."""
        self._mask: set[int] = set()
        """The blocked signals of the thread that begins steps, as they were."""
        self._due = 0.0
        self._shown = b""

    @property
    def busy(self) -> bool:
        """Whether any step is under way."""
        return bool(self._steps)

    def begin(self, step: Step) -> None:
        """A step has begun; with the first one a thread draws."""
        if self.terminal < 0:
            return
        self._steps.append(step)
        if len(self._steps) > 1:
            return
        self._due = time.monotonic() + DELAY
        self._signals = {_WAKE, *(number for number in ENDING if signal.getsignal(number) is signal.SIG_DFL)}
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._signals)
        thread = threading.Thread(target=self._draw, name="pytrace-progress", daemon=True)
        try:
            thread.start()
            self._thread = thread
        except RuntimeError:  # no more threads (ulimit -u): it is done without a line
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def end(self, step: Step) -> None:
        """A step has ended; after the last one the line is gone, and so is the thread."""
        with self._lock:
            if step in self._steps:
                # With it those that it had begun: a generator may never end its own.
                del self._steps[self._steps.index(step) :]
            thread = self._thread
            if self._steps or thread is None or thread.ident is None:
                return
            signal.pthread_kill(thread.ident, _WAKE)  # it cannot end before the lock is free
            self._thread = None
        thread.join()
        self.hide()
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def _draw(self) -> None:
        while True:
            came = signal.sigtimedwait(self._signals, _EVERY)
            if came is not None and came.si_signo != _WAKE:
                self.hide()
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {came.si_signo})
                os.kill(os.getpid(), came.si_signo)
            with self._lock:
                if not self._steps:
                    return
                if self.free and time.monotonic() >= self._due:
                    self._show(self._steps[-1].shown(self._columns() - 1).encode("utf-8", "replace"))

    def _show(self, text: bytes) -> None:
        if text != self._shown:
            self._write(b"\r" + text + b"\x1b[K")
            self._shown = text

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self.terminal).columns or 80
        except OSError:
            return 80

    def _write(self, data: bytes) -> None:
        with suppress(OSError):
            os.write(self.terminal, data)

    def hide(self) -> None:
        """Clear the line, if it is there."""
        with self._lock:
            if self._shown:
                self._write(_CLEAR)
                self._shown = b""
            self._due = time.monotonic() + DELAY


_LINE = _Line()


def show_on(descriptor: int) -> None:
    """Show progress on a terminal from now on; nothing happens if *descriptor* is of something else."""
    if _LINE.terminal >= 0 or not os.isatty(descriptor) or os.environ.get("TERM") == "dumb":
        return
    with suppress(OSError):
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        _LINE.terminal = os.open(f"/proc/self/fd/{descriptor}", flags)


@contextmanager
def step(text: str, total: int = 0, unit: str = "") -> Iterator[Step]:
    """What is within takes long, perhaps: *text* says what is done, *total* how much (in bytes for the *unit* MB)."""
    current = Step(text, total, unit)
    _LINE.begin(current)
    try:
        yield current
    finally:
        _LINE.end(current)


@contextmanager
def detail(text: str) -> Iterator[None]:
    """What is within is a part of a step that is named by itself; nothing where no step is under way."""
    if not _LINE.busy:
        yield
        return
    with step(text):
        yield


def make_room(last: bytes | str) -> None:
    """Something is about to be written to a terminal, with *last* as its end: the line appears below whole lines."""
    if last and _LINE.terminal >= 0:
        _LINE.free = last in (b"\n", "\n")
        _LINE.hide()
