"""A fuzz target: a parser, the errors that it documents, and what its inputs are made of."""

from __future__ import annotations

import resource
import sys
import threading
import time
from collections.abc import Callable, Iterable

import msgspec

from pytrace.core.diagnostics import ScriptError, TraceError

SECONDS = 10.0
"""The longest that an input may take."""
MEMORY = 1 << 30
"""How many bytes more an input may take at most."""


class Target(msgspec.Struct, frozen=True):
    """One parser.

    Attributes:
        subject: what is parsed, for the documentation.
        run: parses bytes; raises nothing but *errors*, and :class:`AssertionError` where a second opinion differs.
        errors: the documented errors.
        words: words of the format, which inputs are made of (a dictionary of libFuzzer).
        seeds: inputs that a long run begins with, beside the corpus.
        length: bytes of the longest input.
        guide: a target with the same inputs, whose collected ones are tried too: of what runs in other processes nobody
            sees what it reaches.
    """

    subject: str
    run: Callable[[bytes], None]
    errors: tuple[type[Exception], ...] = (TraceError, ScriptError)
    words: Callable[[], Iterable[str]] = tuple
    seeds: Callable[[], Iterable[bytes]] = tuple
    length: int = 4096
    guide: str = ""


NOTHING: tuple[type[Exception], ...] = ()
"""The errors of parsers that ignore what they cannot read."""


class HarmError(BaseException):
    """A parser wrote a file, started a program or connected to something."""


class TooMuchError(BaseException):
    """An input took too long or too much memory."""


_WRITES = frozenset((
    "os.chmod", "os.chown", "os.exec", "os.fork", "os.forkpty", "os.kill", "os.link", "os.mkdir", "os.posix_spawn",
    "os.remove", "os.rename", "os.rmdir", "os.spawn", "os.symlink", "os.system", "os.utime",
    "shutil.rmtree", "socket.bind", "socket.connect", "socket.sendto", "subprocess.Popen",
))  # fmt: skip
_WRITING_FLAGS = 0o1 | 0o2 | 0o100 | 0o1000 | 0o2000
"""``O_WRONLY``, ``O_RDWR``, ``O_CREAT``, ``O_TRUNC``, ``O_APPEND``."""


class _Watch:
    """The audit hook, which cannot be removed: it only looks while an input is parsed, and at that thread."""

    thread = 0
    installed = False


_COMPILED = "/__pycache__"


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if _Watch.thread != threading.get_ident():
        return
    if arguments and _COMPILED in str(arguments[0]):
        return  # a module that is imported for the first time
    if event in _WRITES:
        raise HarmError(f"{event} {arguments!r}")
    if event == "open" and isinstance(arguments[0], int):
        return  # what it was opened as was looked at
    if event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITING_FLAGS:
        raise HarmError(f"opens {arguments[0]!r} to write")


def attempt(target: Target, data: bytes) -> None:
    """Parse *data*, and judge what the parser does.

    Raises:
        Exception: one that the target does not document, or :class:`AssertionError` of its second opinion.
        HarmError: it wrote a file, started a program, or connected to something.
        TooMuchError: it took too long, or too much memory.
    """
    if not _Watch.installed:
        _Watch.installed = True
        sys.addaudithook(_audit)
    started, memory = time.process_time(), _memory()
    _Watch.thread = threading.get_ident()
    try:
        target.run(data)
    except target.errors:
        pass
    finally:
        _Watch.thread = 0
    seconds, more = time.process_time() - started, _memory() - memory
    if seconds > SECONDS:
        raise TooMuchError(f"{seconds:.1f} s for {len(data)} bytes")
    if more > MEMORY:
        raise TooMuchError(f"{more >> 20} MiB for {len(data)} bytes")


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def parts(data: bytes, most: int = 64) -> list[str]:
    """The texts of an input, which NUL bytes separate."""
    return [part.decode("utf-8", "surrogateescape") for part in data.split(b"\0")[:most]]
