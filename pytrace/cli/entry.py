"""The command ``pytrace`` from its first statement on.

Until probes are attached there is nothing that the kernel would not clear away by itself, so signals have their default
action: they end the process at once, wherever it is, also in a file that cannot be opened yet or in LLVM. Python's own
handler of SIGINT would raise in the middle of imports and callbacks, where nobody can catch it.
"""

from __future__ import annotations

# The built-in module: ``signal`` would be imported first, which takes longer than all that stands here.
import _signal  # type: ignore[import-not-found]
import os


def command() -> None:
    """The command line of this process, to its end."""
    # Ignored (a job in the background of a script, nohup) stays ignored.
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    # Blocked by the launcher of scripts/setup.sh, as Python would show a traceback while it starts.
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, (_signal.SIGINT,))
    try:
        from pytrace.cli import main

        main.command()
    except MemoryError:
        # There is not even room for finding out more.
        os.write(2, b"ERROR: out of memory\n")
        os._exit(1)
