"""The terminal of a live view: whether there is one, what it shows, and its state before."""

from __future__ import annotations

import os
from importlib.util import find_spec

from pytrace.base import extras
from pytrace.base.terminal import colour, unicode
from pytrace.core.diagnostics import TraceError

_HINT = "without --live the run prints to files and pipes, too; -o FILE writes its output beside a live view"


def check() -> None:
    """Check that a live view can be shown.

    Raises:
        TraceError: the standard streams are not a terminal, or it cannot place its cursor.
    """
    missing = [name for number, name in enumerate(("input", "output")) if not os.isatty(number)]
    if missing:
        verb = "are" if len(missing) > 1 else "is"
        message = f"a live view needs a terminal, and standard {' and '.join(missing)} {verb} not one"
        raise TraceError(message, hints=(_HINT,))
    if not _capability("cup"):
        term = os.environ.get("TERM", "")
        raise TraceError(f"a live view needs a terminal with a cursor, and TERM is {term!r}", hints=(_HINT,))


def check_application() -> None:
    """Check that the view's application can run.

    Raises:
        TraceError: textual is not installed.
    """
    if find_spec("textual") is None:
        raise TraceError("--live needs the Python package textual", hints=(extras.hint("live"),))


def coloured() -> bool:
    """Whether the view may use colours: as for messages, where the terminal has some."""
    return colour(1) and bool(_capability("colors"))


def characters() -> bool:
    """Whether the terminal shows Unicode."""
    return unicode()


def _capability(name: str) -> bool:
    """Whether the terminal has a capability of terminfo(5); one that nobody knows is taken for a usual one."""
    term = os.environ.get("TERM", "")
    if term in ("", "dumb"):
        return False
    try:
        import curses  # not in every build of Python
    except ImportError:
        return True
    try:
        curses.setupterm(term, 1)
    except curses.error:
        return True
    return bool(curses.tigetstr(name)) if name == "cup" else curses.tigetnum(name) > 2
