"""A line on the terminal that says what takes long: it appears after a second, and goes away.

Only the command shows it (:func:`show_on`), and only on a terminal. It is drawn by a thread, as much of what takes long
is in C, and without blocking: a terminal that is stopped holds nobody up. Signals that would kill the process at once
are blocked meanwhile: the thread waits for them, clears the line and sends them again. Whoever writes to the terminal
calls :func:`make_room` before.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pytrace.base.control_characters import printable_message
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
        self._thread = threading.Thread(target=self._draw, name="pytrace-progress", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # no more threads (ulimit -u): it is done without a line
            self._thread = None
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
    try:
        _LINE.begin(current)  # a Ctrl-C may come as soon as it draws
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
        _LINE.free = False  # nothing is drawn until it is known when the line is due again
        _LINE.hide()
        _LINE.free = last in (b"\n", "\n")


# ------------------------------------------------------------------------------------------------------------- terminal

# Setup of the standard streams, and colour of messages.


def colour(descriptor: int = 2) -> bool:
    """Whether to use colour: by ``PYTRACE_COLOR`` (or ``BPFTRACE_COLOR``), else if *descriptor* is a terminal.

    ``NO_COLOR`` is honoured, see https://no-color.org.
    """
    setting = os.environ.get("PYTRACE_COLOR", os.environ.get("BPFTRACE_COLOR", "auto")).lower()
    if setting in ("always", "never"):
        return setting == "always"
    return os.isatty(descriptor) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


_COERCED = ("C.UTF-8", "C.utf8", "UTF-8")
"""Values of ``LC_CTYPE`` that Python itself sets in place of the C locale (PEP 538)."""


def unicode() -> bool:
    """Whether the locale of the environment is one of UTF-8, so that a terminal shows more than ASCII."""
    every, characters, language = (os.environ.get(name, "") for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    if characters in _COERCED:
        characters = ""
    return (every or characters or language).lower().replace("-", "").endswith("utf8")


class _Shown(io.TextIOWrapper):
    """A stream that escapes control characters on a terminal: messages have names of files, symbols, processes."""

    def write(self, text: str) -> int:
        if self.isatty():
            text = printable_message(text)
        return super().write(text)


class _Messages(_Shown):
    """Standard error with write errors ignored: a message that cannot be written does not end the run."""

    def write(self, text: str) -> int:
        make_room(text[-1:])
        try:
            return super().write(text)
        except OSError:
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError:
            return


def prepare_streams() -> None:
    """Make sure that the standard streams are open and use UTF-8.

    Closed streams are opened on the null device, so that no file opened later gets descriptor 0, 1 or 2; writing to a
    standard output that was closed still fails.  Text is encoded as UTF-8 in any locale; bytes of scripts and file
    names that are not UTF-8 are written unchanged, except on a terminal, where they and control characters are escaped.
    """
    closed = []
    for number, flags in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            closed.append(number)
            # open() returns the lowest free descriptor, which is this one.
            os.open(os.devnull, flags)
    if sys.stdin is None or 0 in closed:
        entry = io.BufferedReader(io.FileIO(0, closefd=False))
        sys.stdin = io.TextIOWrapper(entry, encoding="utf-8", errors="surrogateescape")
    output = io.FileIO(1, "w", closefd=False) if sys.stdout is None or 1 in closed else None
    if output is not None:
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(output), encoding="utf-8", errors="surrogateescape")
    elif os.isatty(1):
        sys.stdout = _Shown(io.BufferedWriter(io.FileIO(1, "w", closefd=False)), "utf-8", "surrogateescape")
    elif isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    messages = io.BufferedWriter(io.FileIO(2, "w", closefd=False))
    sys.stderr = _Messages(messages, encoding="utf-8", errors="surrogateescape", line_buffering=True)
