"""Where output goes: standard output or a file, in blocks, by the flush policy of ``-B``."""

from __future__ import annotations

import contextlib
import errno
import os
import select
from collections.abc import Iterable
from enum import Enum
from itertools import accumulate

from pytrace.diagnostics import TraceError

_BLOCK = 1 << 16
_MOST_PARTS = 4096


class Flush(Enum):
    """When output is written; the value is the argument of ``-B``."""

    NONE = "none"
    """Each piece at once."""
    LINE = "line"
    """All that a batch of events printed, when the batch is done: nothing ever waits for later events."""
    FULL = "full"
    """When a block is full, and at the end."""


class Output:
    """The tracer's output, and its messages on standard error.

    The two keep their order: messages are written after the output before them. A reader that goes away sets
    :attr:`broken`, and what would be written afterwards is dropped.
    """

    def __init__(
        self,
        descriptor: int = 1,
        *,
        messages: int = 2,
        flush: Flush = Flush.LINE,
        json: bool = False,
        colour: bool = False,
    ) -> None:
        self.descriptor = descriptor
        self.json = json
        self.colour = colour
        """Whether messages are coloured."""
        self.broken = False
        self.captured: list[bytes] | None = None
        self._held: list[str] = []
        """Messages while capturing."""
        self._messages = messages
        self._flush = flush
        self._parts: list[bytes] = []
        self._counted, self._size = 0, 0
        """How many of the parts have been counted, and how many bytes these have."""
        self._writing: tuple[list[bytes], list[int]] | None = None
        """Parts that are being written, and how many bytes each call has written so far."""
        self._written = 0
        self._owned = False

    @classmethod
    def to_file(
        cls, path: str, *, flush: Flush = Flush.LINE, json: bool = False, colour: bool = False
    ) -> Output:
        """Output to a new file; an existing one is emptied.

        Raises:
            TraceError: the file cannot be written.
        """
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise TraceError(f"cannot write output to {path!r}: {error.strerror}") from error
        made = cls(descriptor, flush=flush, json=json, colour=colour)
        made._owned = True
        return made

    # ---- writing

    @property
    def accepted(self) -> int:
        """How many parts were handed over so far; each event prints one."""
        return self._written + len(self._parts)

    def write(self, data: bytes) -> None:
        """Print *data*."""
        parts = self._parts
        parts.append(data)
        if self._flush is Flush.NONE or len(parts) > _MOST_PARTS:
            self.flush()

    def extend(self, parts: Iterable[bytes]) -> None:
        """Print *parts* one after another."""
        if self._flush is Flush.NONE:
            for part in parts:
                self.write(part)
        else:
            self._parts.extend(parts)
            if len(self._parts) > _MOST_PARTS:
                self.flush()

    def end_batch(self) -> None:
        """All events that were waiting have been handled: let their output be seen, as the policy asks."""
        if self._flush is Flush.FULL and self.captured is None and self._waiting() < _BLOCK:
            return
        self.flush()

    def _waiting(self) -> int:
        """Bytes that wait. Each part is looked at once, however many batches there are until a block is full."""
        parts = self._parts
        self._size += sum(map(len, parts[self._counted :]))
        self._counted = len(parts)
        return self._size

    def flush(self) -> None:
        """Write everything that waits."""
        if not self._parts:
            return
        data = b"".join(self._parts)
        if self.captured is not None:
            self.captured.append(data)
        elif not self.broken:
            done: list[int] = []
            self._writing = self._parts, done
            self.broken = not _write(self.descriptor, data, done)
        self._forget()

    def _forget(self) -> None:
        """What waited was written, or is not wanted any more."""
        self._written += len(self._parts)
        self._parts, self._writing = [], None
        self._counted, self._size = 0, 0

    def drop(self) -> int:
        """Forget what waits, after a write was interrupted; gives the number of parts that were not written whole."""
        left = len(self._parts)
        if self._writing is not None:
            parts, done = self._writing
            written = sum(done)
            left -= sum(end <= written for end in accumulate(map(len, parts)))
        self._forget()
        return left

    def message(self, text: str) -> None:
        """Print *text*, which ends its line itself, on standard error."""
        if self.captured is not None:
            self._held.append(text)
            return
        self.flush()
        # Nobody could be told that a message cannot be written.
        with contextlib.suppress(TraceError):
            _write(self._messages, text.encode("utf-8", "surrogateescape"), [])

    def close(self) -> None:
        """Write what waits, and close a file that was opened here.

        Raises:
            TraceError: the file system refused the rest.
        """
        self.flush()
        if self._owned:
            self._owned = False
            os.close(self.descriptor)

    # ---- capturing

    def capture(self) -> None:
        """From now on keep what is printed (``--test`` shows it only when the test failed)."""
        self.flush()
        self.captured = []

    def release(self) -> bytes:
        """End capturing; gives what was printed meanwhile."""
        self.flush()
        kept = b"".join(self.captured or ())
        self.captured = None
        return kept

    def held_messages(self) -> str:
        """Messages that came while capturing; they are forgotten."""
        said = "".join(self._held)
        self._held.clear()
        return said


def _write(descriptor: int, data: bytes, done: list[int]) -> bool:
    """Write all of *data*, and put into *done* how many bytes each call has written; False when nobody reads it.

    Raises:
        TraceError: the device is full or failed.
    """
    rest = memoryview(data)
    while rest:
        try:
            # Without a step of the interpreter in between: a signal's exception must not come before it is noted.
            done.extend(map(os.write, (descriptor,), (rest,)))
            rest = rest[done[-1] :]
        except BlockingIOError:
            # Somebody who shares the terminal or pipe made it non-blocking.
            select.select([], [descriptor], [])
        except OSError as error:
            if error.errno in (errno.EPIPE, errno.EIO):
                return False
            raise TraceError(f"cannot write output: {error.strerror}") from error
    return True
