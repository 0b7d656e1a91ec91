"""Output of a run: to standard output or a file, in blocks, by the flush policy of ``-B``.

Writes do not block: a pipe that is read slowly and a stopped terminal must not hold up the tracer.  Whether writes
block is a property of the open file, which other processes share, so it is not changed.  A pipe or a terminal is opened
once more instead, for this process only (``/proc/self/fd``); where that is refused, and for sockets, no more is written
at once than there is room for.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import Enum
from functools import cached_property
from itertools import accumulate

from pytrace.base import control_characters, terminal, whole_files
from pytrace.base.interruption import EndRequests
from pytrace.core.diagnostics import TraceError

_AT_ONCE = 4096
"""Bytes that a pipe accepts without blocking when it polls as writable (``PIPE_BUF``)."""
_PAUSE = 0.01
"""Seconds until the next attempt where polling does not tell whether there is room."""

_BLOCK = 1 << 16
_MOST_PARTS = 4096
_FEW_PARTS = 1024

PATIENCE = 0.3
"""Seconds that output may make no progress after the user has asked for the end."""
_PATIENCE_LATER = 0.1
"""The same after :meth:`Output.flush` gave up once."""
_MUCH = 1 << 18
_LOOK_EVERY = 0.01
"""Seconds between two checks whether to go on waiting."""
_LATEST = 1.0
"""Seconds for which messages wait for the end of a line that the script writes in parts."""


class Channel:
    """Writes to a descriptor, which stays open after :meth:`close`."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._own = -1
        self._polls = False
        self._prepared = False
        self._terminal = False
        self.unsure = False
        """Whether it polls as writable although nothing could be written (a terminal does when little room is left)."""

    def fileno(self) -> int:
        """The descriptor that polls as writable when there is room."""
        return self.descriptor if self._own < 0 else self._own

    def prepare(self) -> None:
        """Open what writing needs; the first write does it otherwise."""
        if self._prepared:
            return
        self._prepared = True
        mode = os.fstat(self.descriptor).st_mode
        self._terminal = stat.S_ISCHR(mode) and os.isatty(self.descriptor)
        if not stat.S_ISFIFO(mode) and not stat.S_ISSOCK(mode) and not self._terminal:
            return
        if not os.get_blocking(self.descriptor):
            return
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        try:
            self._own = os.open(f"/proc/self/fd/{self.descriptor}", flags)
        except OSError:
            self._polls = True

    def send(self, data: memoryview, done: list[int]) -> bool:
        """Write as much of *data* as there is room for, and append its length to *done*; False when nobody reads.

        Raises:
            TraceError: the device is full or failed.
        """
        try:
            self.prepare()
            if self._polls:
                if not self.wait(0):
                    return True
                data = data[:_AT_ONCE]
            if self._terminal:
                terminal.make_room(bytes(data[-1:]))
            # Without a step of the interpreter in between: a signal's exception must not come before it is noted.
            done.extend(map(os.write, (self.fileno(),), (data,)))
            self.unsure = False
        except BlockingIOError:
            self.unsure = False
            self.unsure = self.wait(0)
            return True
        except OSError as error:
            if error.errno in (errno.EPIPE, errno.EIO):
                return False
            raise TraceError(f"cannot write output: {error.strerror}") from error
        return True

    def wait(self, seconds: float) -> bool:
        """Wait for room, at most *seconds*. Returns whether there is some."""
        if self.unsure:
            time.sleep(min(seconds, _PAUSE))
            return True
        poll = select.poll()
        poll.register(self.fileno(), select.POLLOUT)
        return bool(poll.poll(seconds * 1000))

    def close(self) -> None:
        """Close the own descriptor."""
        if self._own >= 0:
            os.close(self._own)
            self._own = -1
        self._prepared = False


class Batch:
    """Parts that are being written together."""

    __slots__ = ("data", "done", "parts", "stop")

    def __init__(self, parts: list[bytes]) -> None:
        self.parts = parts
        self.data = memoryview(b"".join(parts))
        self.done: list[int] = []
        """Number of bytes that each call has written so far."""
        self.stop = 0
        """The end of the line after which messages are written; 0 when none wait."""

    @property
    def rest(self) -> memoryview:
        """The bytes to write next."""
        return self.data[self.written : self.stop or None]

    @property
    def ends_line(self) -> bool:
        """Whether the last byte ends a line."""
        return bytes(self.data[-1:]) == b"\n"

    def stop_at_line_end(self) -> None:
        """Stop at the end of the current line, for messages to be written there."""
        if not self.stop:
            written = self.written
            self.stop = bytes(self.data[written:]).find(b"\n") + 1
            if self.stop:
                self.stop += written

    @property
    def written(self) -> int:
        """Number of written bytes."""
        return sum(self.done)


class Flush(Enum):
    """When output is written; the value is the argument of ``-B``."""

    NONE = "none"
    """Each part at once."""
    LINE = "line"
    """All that a batch of events printed, when the batch is done: nothing ever waits for later events."""
    FULL = "full"
    """When a block is full, and at the end."""


class Output:
    """The tracer's output, and its messages on standard error.

    The two keep their order: messages are written after the output before them, but not in the middle of a line where
    both go to the same place: they wait for its end. When the reader goes away, :attr:`broken` is set, and further
    output is dropped.

    Parts that a reader has no room for wait here: :meth:`advance` writes as much as there is room for, :meth:`flush`
    waits for the reader. While :attr:`congested` nothing more should be printed.
    """

    def __init__(
        self,
        descriptor: int = 1,
        *,
        messages: int = 2,
        flush: Flush = Flush.LINE,
        json: bool = False,
        csv: bool = False,
        colour: bool = False,
        raw: bool = False,
        requests: EndRequests | None = None,
        owned: bool = False,
    ) -> None:
        self.descriptor = descriptor
        self.json = json
        self.csv = csv
        """Whether output consists of tables as CSV; other text goes to standard error (:meth:`beside`)."""
        self.colour = colour
        """Whether messages are coloured."""
        self.raw = raw
        """Whether control characters go to a terminal as they are."""
        self.broken = False
        self.captured: list[bytes] | None = None
        self._held: list[str] = []
        """Messages while capturing."""
        self._messages = Channel(messages)
        self._flush = flush
        self._parts: list[bytes] = []
        self._counted, self._size = 0, 0
        """Number of parts that have been counted, and their bytes."""
        self._writing: Batch | None = None
        self._written = 0
        self._owned = owned
        """Whether :meth:`close` closes the descriptor."""
        self._requests = requests or EndRequests()
        self.events_over = False
        """Whether all events have been printed or dropped, so that only maps follow."""
        self.left = 0
        """Events that were not printed: dropped here and by the consumer of events."""
        self._any_dropped = False
        """Whether anything was dropped."""
        self.gave_up = False
        """Whether the last :meth:`flush` gave up on the reader."""
        self.cuts = 0
        """Changes when printed parts may never be seen (:meth:`drop`, :meth:`capture`)."""
        self._patience = PATIENCE
        self._in_line = False
        """Whether the last written part did not end its line."""
        self._late: list[str] = []
        """Messages that wait for the end of the line, since :attr:`_late_since`."""
        self._late_since = 0.0

    # ---- writing

    @cached_property
    def channel(self) -> Channel:
        """The channel to :attr:`descriptor`."""
        return Channel(self.descriptor)

    def prepare(self) -> None:
        """Open what writing needs, before the run gives up opening files."""
        self.channel.prepare()
        self._messages.prepare()

    @cached_property
    def terminal(self) -> bool:
        """Whether output goes to a terminal."""
        return os.isatty(self.descriptor)

    def height(self) -> int:
        """Lines of the terminal that output goes to; 0 when it does not say."""
        try:
            return os.get_terminal_size(self.descriptor).lines
        except OSError:
            return 0

    def width(self) -> int:
        """Columns of the terminal that output goes to; 80 when it does not say."""
        try:
            return os.get_terminal_size(self.descriptor).columns or 80
        except OSError:
            return 80

    @property
    def accepted(self) -> int:
        """Number of parts that were printed so far; each event prints one."""
        return self._written + (0 if self._writing is None else len(self._writing.parts)) + len(self._parts)

    @property
    def progress(self) -> tuple[int, int]:
        """A value that changes whenever something is written."""
        return self._written, 0 if self._writing is None else self._writing.written

    @property
    def waiting(self) -> bool:
        """Whether the reader has no room for the current batch."""
        return self._writing is not None

    @property
    def congested(self) -> bool:
        """Whether so much waits for the reader that nothing should be added."""
        batch = self._writing
        return batch is not None and (len(self._parts) > _FEW_PARTS or len(batch.data) > _MUCH)

    @property
    def impatient(self) -> bool:
        """Whether :meth:`flush` gives up on a reader that takes nothing for :data:`PATIENCE` seconds.

        It does when the user has asked for the end; maps are waited for, unless events were left out before them.
        """
        return self._requests.ending and (not self.events_over or self._any_dropped)

    def write(self, data: bytes) -> None:
        """Print *data*."""
        parts = self._parts
        parts.append(data)
        if self._flush is Flush.NONE or len(parts) > _MOST_PARTS:
            self.advance()

    def extend(self, parts: Iterable[bytes]) -> None:
        """Print *parts* one after another."""
        if self._flush is Flush.NONE:
            for part in parts:
                self.write(part)
        else:
            self._parts.extend(parts)
            if len(self._parts) > _MOST_PARTS:
                self.advance()

    def end_batch(self) -> None:
        """All waiting events have been handled: write their output if the flush policy asks for it."""
        if self._late and time.monotonic() - self._late_since > _LATEST:
            self._release_messages()
        if self._flush is Flush.FULL and self.captured is None and self._waiting() < _BLOCK:
            return
        self.advance()

    def _waiting(self) -> int:
        """Number of bytes that wait. Each part is counted once, however many batches make up a block."""
        parts = self._parts
        self._size += sum(map(len, parts[self._counted :]))
        self._counted = len(parts)
        return self._size

    def advance(self) -> bool:
        """Write as much as there is room for. Returns whether everything is written.

        Raises:
            TraceError: the device is full or failed.
        """
        while self._writing is not None or self._parts:
            if self._writing is None:
                if self.captured is not None:
                    self.captured.append(b"".join(self._parts))
                if self.captured is not None or self.broken:
                    self._forget()
                    return True
                batch = Batch(self._parts)
                if self._late:
                    batch.stop_at_line_end()
                # Nothing is called between these two, so that no signal's exception comes between them.
                self._writing, self._parts = batch, []
                self._counted = self._size = 0
            if not self._send(self._writing):
                return False
        return True

    def _send(self, batch: Batch) -> bool:
        """Go on writing *batch*. Returns whether all of it is written, or nobody reads it."""
        while (rest := batch.rest) and not self.broken:
            before = len(batch.done)
            try:
                self.broken = not self.channel.send(rest, batch.done)
            except TraceError:
                self._forget()
                raise
            if len(batch.done) == before and not self.broken:
                return False
            if batch.written == batch.stop:
                batch.stop, self._in_line = 0, False
                self._release_messages()
        if batch.data:
            self._in_line = not batch.ends_line
        self._written += len(batch.parts)
        self._writing = None
        return True

    def flush(self) -> None:
        """Write everything that waits, and wait for the reader."""
        self.gave_up = not self.advance() and not self._wait_for(
            self.advance, self.channel, lambda: 0 if self._writing is None else self._writing.written
        )
        if self.gave_up:
            self.drop(resume=True)

    def _wait_for(self, advance: Callable[[], bool], channel: Channel, written: Callable[[], int]) -> bool:
        """Call *advance* until it is done. Returns False when the reader was given up (:attr:`impatient`)."""
        last = -1
        since = 0.0
        while not advance():
            now = time.monotonic()
            if (count := written()) != last:
                last, since = count, now
            elif now - since > self._patience and self.impatient:
                return False
            channel.wait(_LOOK_EVERY)
        return True

    def _forget(self) -> None:
        """Forget all parts that wait: they were written."""
        self._written = self.accepted
        self._parts, self._writing = [], None
        self._counted, self._size = 0, 0

    def drop(self, *, resume: bool = False) -> None:
        """Drop the parts that wait, and count the events that were not written whole in :attr:`left`.

        With *resume*, later output must not start within a line: the rest of a part that is half written stays, and is
        not counted.
        """
        self._patience = _PATIENCE_LATER
        self._any_dropped = True
        self.cuts += 1
        left = len(self._parts)
        half = b""
        if self._writing is not None:
            written = self._writing.written
            ends = list(accumulate(map(len, self._writing.parts)))
            whole = sum(end <= written for end in ends)
            left += len(ends) - whole
            if resume and written > (ends[whole - 1] if whole else 0):
                half = bytes(self._writing.data[written : ends[whole]])
        rest = Batch([half]) if half else None
        accepted = self.accepted
        # Nothing is called from here on: a signal's exception finds the parts either waiting or counted.
        if rest is not None:
            left -= 1
            accepted -= 1
            self._in_line = True
        if not self.events_over:
            self.left += left
        self._written = accepted
        self._parts, self._writing = [], rest
        self._counted, self._size = 0, 0

    def message(self, text: str) -> None:
        """Print *text*, which ends its line itself, on standard error."""
        if self.captured is not None:
            self._held.append(text)
            return
        self.flush()
        if self._late or (self._in_line and _same_place(self.descriptor, self._messages.descriptor)):
            if not self._late:
                self._late_since = time.monotonic()
            self._late.append(text)
            if self._writing is not None:
                self._writing.stop_at_line_end()
            return
        self._write_message(text)

    def beside(self, parts: list[bytes]) -> None:
        """Print on standard error text that has no place in tables (:attr:`csv`), one part for each event."""
        self.flush()
        text = b"".join(parts)
        if self.escapes:
            text = control_characters.printable_lines(text)
        if self._send_message(text):
            self._written += len(parts)
        else:
            self._any_dropped = True
            self.left += len(parts)

    @cached_property
    def escapes(self) -> bool:
        """Whether messages go to a terminal, which must not get control characters of traced data."""
        return not self.raw and os.isatty(self._messages.descriptor)

    def _write_message(self, text: str) -> None:
        if self.escapes:
            text = control_characters.printable_message(text)
        self._send_message(text.encode("utf-8", "surrogateescape"))

    def _send_message(self, text: bytes) -> bool:
        """Write *text* on standard error. Returns False when its reader was given up."""
        done: list[int] = []
        data = memoryview(text)

        def advance() -> bool:
            # Nobody could be told that a message cannot be written.
            with suppress(TraceError):
                while rest := data[sum(done) :]:
                    before = len(done)
                    if not self._messages.send(rest, done):
                        break
                    if len(done) == before:
                        return False
            return True

        return self._wait_for(advance, self._messages, lambda: sum(done))

    def _release_messages(self) -> None:
        """Write the messages that wait, on lines of their own."""
        late, self._late = self._late, []
        if late and self._in_line:
            late.insert(0, "\n")
            self._in_line = False
        for text in late:
            self._write_message(text)

    def close(self) -> None:
        """Write everything that waits, and close the own descriptors.

        Raises:
            TraceError: the file system refused the rest.
        """
        try:
            self.flush()
        finally:
            self._release_messages()
            self.channel.close()
            self._messages.close()
            if self._owned:
                self._owned = False
                os.close(self.descriptor)

    # ---- capturing

    def capture(self) -> None:
        """Keep further output (``--test`` shows it only when the test failed)."""
        self.flush()
        self.cuts += 1
        self.captured = []

    def release(self) -> bytes:
        """End capturing. Returns the output since :meth:`capture`."""
        self.flush()
        captured = b"".join(self.captured or ())
        self.captured = None
        return captured

    def held_messages(self) -> str:
        """Take the messages that came while capturing."""
        messages = "".join(self._held)
        self._held.clear()
        return messages


def create(path: str) -> int:
    """Open a file for output; an existing one is truncated.

    Raises:
        TraceError: the file cannot be written.
    """
    try:
        return whole_files.create(path)
    except OSError as error:
        raise TraceError(f"cannot write output to {path!r}: {error.strerror}") from error


def _same_place(first: int, second: int) -> bool:
    """Whether two descriptors are of one terminal, file or pipe."""
    try:
        return os.path.sameopenfile(first, second)
    except OSError:
        return False
