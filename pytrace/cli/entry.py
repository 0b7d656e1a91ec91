"""The entry point of the command ``pytrace`` and of ``python -m pytrace``."""

from __future__ import annotations

# The part of `signal` that is built into the interpreter: what the rest imports takes milliseconds, in which Ctrl-C
# would show a traceback. The same on all versions.
import _signal as signal  # type: ignore[import-not-found]
import os


def command() -> None:
    """Run the command line of this process."""
    # Until a session handles SIGINT it ends the process at once, in LLVM and in a blocking open() too. Python's own
    # handler would raise inside of imports and of callbacks from C. If SIGINT is ignored (nohup, background jobs), it
    # stays ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        from pytrace.cli import main  # once SIGINT ends the process

        main.command()
    except (MemoryError, SystemError, ImportError) as error:
        # Without memory imports fail in several ways, and nothing more can be imported for a diagnosis.
        if not isinstance(error, MemoryError) and not _memory_is_limited():
            raise
        os.write(2, b"ERROR: out of memory\n")
        os._exit(1)


def _memory_is_limited() -> bool:
    """As ``pytrace.core.diagnostics.memory_is_limited``, whose import may be what failed."""
    try:
        from resource import RLIM_INFINITY, RLIMIT_AS, RLIMIT_DATA, getrlimit
    except (MemoryError, SystemError, ImportError):
        return True
    return any(getrlimit(resource)[0] != RLIM_INFINITY for resource in (RLIMIT_AS, RLIMIT_DATA))
