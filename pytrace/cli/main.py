"""The command line: parses options, selects the mode, prints diagnostics of passes and sessions.

Only this module prints diagnostics and maps exceptions to exit statuses: 0 success, 1 a user error or a limit of the
machine, 2 a bug in pytrace, else the status of the script's ``exit()``. Modules that not every run needs are imported
where they are used.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import pytrace
from pytrace.base.terminal import prepare_streams
from pytrace.cli import messages, script_finder
from pytrace.cli.options import SHORTCUTS, SUBCOMMANDS, CommandLine, help_text, read
from pytrace.core.diagnostics import InternalError, Interrupted, ScriptError, TraceError

LANGUAGE = "0.27.1"
"""The version of bpftrace whose language is implemented."""


def command() -> NoReturn:
    """The command ``pytrace``: :func:`main` in a process of its own."""
    # A start allocates many objects and hardly any garbage; sessions enable the collector before they wait.
    gc.disable()
    prepare_streams()
    status = main()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        status = 0
    except OSError as error:
        if not status:
            messages.show_error(TraceError(f"cannot write output: {error.strerror}"))
            status = 1
    # All resources are closed, so finalising the interpreter object by object would only cost time.
    os._exit(status)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line *argv* (default: the process's) and return the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    _name_process()
    try:
        if words and words[0] in SUBCOMMANDS:
            from pytrace.cli import subcommands

            return subcommands.run(words)
        shortcut = bool(words) and words[0] in SHORTCUTS
        if shortcut:
            from pytrace.cli.scripts import shortcuts

            words = shortcuts.expand(words)
        if words[:1] == ["--complete"] and len(words) == 3:
            from pytrace.cli import completion

            sys.stdout.write(completion.answer(words[1], words[2]))
            return 0
        line = read(words, script_finder.find)
        if shortcut:
            line.bcc_letters.clear()  # the user has not named the tool
        try:
            script_finder.complete(line)
            return _dispatch(line)
        except TraceError as error:
            raise line.explained(error) from None
    except TraceError as error:
        messages.show_error(error)
        return error.status
    except ScriptError:
        return 1
    except Interrupted as error:
        return error.status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output has gone; Python must not report that when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001  (no traceback ever reaches a user)
        return _failed(error)


def _failed(error: Exception) -> int:
    """Report an error that no step expected: a limit of the machine, files of pytrace that are gone, or a bug."""
    known: TraceError | None = None
    try:
        from pytrace.core import limits

        known = limits.met_by(error)
    except ImportError as other:
        # The package was removed, and the module for the error with it.
        error = error if isinstance(error, ImportError) else other
    if known is None and isinstance(error, ImportError):
        hint = "pytrace was upgraded or removed while it ran, or is not completely installed"
        known = TraceError(f"a part of pytrace is missing: {error}", hints=(hint,))
    if known is None:
        return _bug(error)
    messages.show_error(known)
    return known.status


def _bug(error: Exception) -> int:
    if os.environ.get("PYTRACE_TRACEBACK"):
        raise error
    name = "" if isinstance(error, InternalError) else f"{type(error).__name__}: "
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    place = "" if frame is None else f" ({os.path.basename(frame.tb_frame.f_code.co_filename)}:{frame.tb_lineno})"
    sys.stderr.write(
        f"BUG: {name}{error}{place}\n"
        "HINT: this is a bug in pytrace, not in the script; PYTRACE_TRACEBACK=1 shows where, please report it\n"
    )
    return 2


def _name_process() -> None:
    """Set the process name to the command's, so that ``ps`` and ``comm`` in scripts show it instead of ``python3``."""
    name = os.path.basename(sys.argv[0]) if sys.argv else ""
    if name in ("", "-c", "-m", "__main__.py") or name.endswith(".py"):
        name = "pytrace"
    try:
        with open("/proc/self/comm", "w", encoding="utf-8") as file:
            file.write(name[:15])
    except OSError:
        # Cosmetic: without /proc the name is not changed.
        return


def _version() -> str:
    """Under the name ``bpftrace``, bpftrace's version comes first: callers of that name parse it."""
    own = f"pytrace {pytrace.__version__}"
    if os.path.basename(sys.argv[0]) == "bpftrace":
        return f"bpftrace v{LANGUAGE} ({own})\n"
    return f"{own}\n"


def _dispatch(line: CommandLine) -> int:
    if line.flag("help"):
        sys.stdout.write(help_text())
        return 0
    if line.flag("version"):
        sys.stdout.write(_version())
        return 0
    from pytrace.cli import commands

    return commands.run(line)
