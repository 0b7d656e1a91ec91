"""Messages on standard error (diagnostics, errors without a position, warnings), and output files."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from pytrace.base import whole_files
from pytrace.base.control_characters import printable_lines, printable_text
from pytrace.base.terminal import colour
from pytrace.core.diagnostics import Diagnostics, TraceError, bytes_shown, render_all, render_error
from pytrace.core.options import RunOptions


def show_error(error: TraceError) -> None:
    """Print an error without a script position."""
    sys.stderr.write(render_error(error, colour=colour()))


def show(diagnostics: Diagnostics, *, warnings: bool) -> None:
    """Print the errors of a script, and with *warnings* its warnings."""
    sys.stderr.write(render_all(diagnostics.items if warnings else diagnostics.errors, colour=colour()))


def check(diagnostics: Diagnostics) -> None:
    """Print the errors of a script.

    Raises:
        ScriptError: there are errors.
    """
    show(diagnostics, warnings=False)
    diagnostics.check()


def warn(texts: Iterable[str], options: RunOptions) -> None:
    """Print warnings, unless the user does not want them."""
    if options.warnings:
        sys.stderr.write(bytes_shown("".join(f"WARNING: {text}\n" for text in texts)))


def write_output(data: bytes, *, raw: bool = False) -> None:
    """Write bytes to standard output; on a terminal control characters are escaped unless *raw*."""
    if not raw and os.isatty(1):
        data = printable_lines(data)
    sys.stdout.flush()
    sys.stdout.buffer.write(data)


def write_pages(text: str) -> None:
    """Write a text that is read: by ``$PAGER``, or less, on a terminal that it does not fit; never into a pipe."""
    sys.stdout.flush()
    if os.isatty(0) and os.isatty(1) and text.count("\n") >= (os.get_terminal_size(1).lines or 24):
        import shutil  # with subprocess: few read pages
        import signal
        import subprocess

        command = os.environ.get("PAGER") or shutil.which("less")
        if command and os.environ.get("TERM", "dumb") != "dumb":
            signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C is the pager's
            defaults = {"LESS": "FRX", "LV": "-c"}  # as git sets them
            shell = ("/bin/sh", "-c", command)
            with subprocess.Popen(shell, stdin=subprocess.PIPE, env=defaults | dict(os.environ)) as pager:
                pager.communicate(text.encode())
            if pager.returncode not in (126, 127):  # not found, as sh has said
                return
    sys.stdout.write(text)


def write_file(path: str, data: bytes, *, executable: bool = False) -> None:
    """Write a file atomically; ``-`` is standard output.

    Raises:
        TraceError: it cannot be written.
    """
    if path == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        return
    try:
        whole_files.write(path, data, executable=executable)
    except OSError as error:
        raise TraceError(f"cannot write {path!r}: {error.strerror}") from error


def lines(rows: Iterable[str]) -> bytes:
    """Rows of a report as text: a name with a line end stays on its row."""
    return "".join(f"{printable_text(row)}\n" for row in rows).encode()


def write_report(data: bytes, path: str | None) -> None:
    """Write the text of a report to a file, or to standard output without control characters.

    Raises:
        TraceError: the file cannot be written.
    """
    if path is not None and path != "-":
        write_file(path, data)
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(printable_lines(data))
    sys.stdout.buffer.flush()
