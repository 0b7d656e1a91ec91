"""Setup of the standard streams, and colour of messages."""

from __future__ import annotations

import io
import os
import sys

from pytrace.base import progress


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
            from pytrace.base.control_characters import printable_message  # only on terminals

            text = printable_message(text)
        return super().write(text)


class _Messages(_Shown):
    """Standard error with write errors ignored: a message that cannot be written does not end the run."""

    def write(self, text: str) -> int:
        progress.make_room(text[-1:])
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
