"""Set-up of the standard streams, and whether messages are coloured."""

from __future__ import annotations

import io
import os
import sys


def colour(descriptor: int = 2) -> bool:
    """Whether to colour: as ``PYTRACE_COLOR`` (or ``BPFTRACE_COLOR``) says, else whether *descriptor* is a terminal.

    ``NO_COLOR`` is honoured, see https://no-color.org.
    """
    wanted = os.environ.get("PYTRACE_COLOR", os.environ.get("BPFTRACE_COLOR", "auto")).lower()
    if wanted in ("always", "never"):
        return wanted == "always"
    return os.isatty(descriptor) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class _Messages(io.TextIOWrapper):
    """Standard error whose write errors are ignored: a message that cannot be written does not end the run.

    On a terminal control characters are shown as escapes: messages name files and symbols.
    """

    def write(self, text: str) -> int:
        if self.isatty():
            from pytrace.base.control_characters import printable_message  # only on terminals

            text = printable_message(text)
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
    """Set up standard streams that are always open and encode as UTF-8.

    Closed streams are opened on the null device, so that no file opened later gets descriptor 0, 1 or 2; writing to a
    standard output that was closed still fails.  Text is written as UTF-8 in any locale; bytes of scripts and file
    names that are not UTF-8 are written unchanged.
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
    elif isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    messages = io.BufferedWriter(io.FileIO(2, "w", closefd=False))
    sys.stderr = _Messages(messages, encoding="utf-8", errors="surrogateescape", line_buffering=True)
