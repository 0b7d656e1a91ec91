"""Standard streams as pytrace wants them, and whether messages are coloured."""

from __future__ import annotations

import io
import os
import sys


def colour(descriptor: int = 2) -> bool:
    """What ``PYTRACE_COLOR`` (or ``BPFTRACE_COLOR``) says, else whether a terminal shows what *descriptor* gets.

    ``NO_COLOR`` is what many programs go by, see https://no-color.org.
    """
    wanted = os.environ.get("PYTRACE_COLOR", os.environ.get("BPFTRACE_COLOR", "auto")).lower()
    if wanted in ("always", "never"):
        return wanted == "always"
    return os.isatty(descriptor) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class _Messages(io.TextIOWrapper):
    """Standard error: there is nobody who could be told that a message cannot be written, so the run goes on."""

    def write(self, text: str) -> int:
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
    """Make standard streams that can be relied on, whatever this process was started with.

    Streams that were closed stand on the null device, so that no file that is opened later gets the number of one; what
    is written to a standard output that was closed fails as before.  Texts go out as UTF-8 in any locale, and bytes of
    scripts and file names that are not UTF-8 as they came in.
    """
    closed = []
    for number, flags in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            closed.append(number)
            # The lowest number that is free is this one.
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
