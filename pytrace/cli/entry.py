"""The command ``pytrace`` from its first statement on.

Until probes are attached there is nothing that the kernel would not clear away by itself, so signals have their default
action: they end the process at once, wherever it is, also in a file that cannot be opened yet or in LLVM. Python's own
handler of SIGINT would raise in the middle of imports and callbacks, where nobody can catch it.
"""

# The built-in module: ``signal`` would be imported first, which takes longer than all that stands here.
import _signal  # type: ignore[import-not-found]
import gc
import os
import sys


def command() -> None:
    """The command line of this process, to its end."""
    # Ignored (a job in the background of a script, nohup) stays ignored.
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    # Blocked by the launcher of scripts/setup.sh, as Python would show a traceback while it starts.
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, (_signal.SIGINT,))
    # A start allocates many objects and hardly any garbage; sessions enable the collector before they wait.
    gc.disable()
    try:
        from pytrace.base import module_archive

        if sys.flags.no_site:
            sys.meta_path.append(module_archive.Site())
        module_archive.install()
        from pytrace.cli import main

        main.command(_save_modules)
    except (MemoryError, SystemError, ImportError) as error:
        # Without memory imports fail in several ways, and there is no room for finding out more.
        if not isinstance(error, MemoryError) and not _memory_is_limited():
            raise
        os.write(2, b"ERROR: out of memory\n")
        os._exit(1)


def _save_modules() -> None:
    from pytrace.base import module_archive

    archive = module_archive.unsaved()
    if archive is not None:
        from pytrace.base import module_archive_writer

        module_archive_writer.write(archive)


def _memory_is_limited() -> bool:
    """The same as ``pytrace.core.limits.memory_is_limited``, which may be what could not be imported."""
    try:
        from resource import RLIM_INFINITY, RLIMIT_AS, RLIMIT_DATA, getrlimit
    except (MemoryError, SystemError, ImportError):
        return True
    return any(getrlimit(kind)[0] != RLIM_INFINITY for kind in (RLIMIT_AS, RLIMIT_DATA))
