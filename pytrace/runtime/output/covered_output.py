"""Output of a run whose terminal a live view has: what would go there is collected for the view's log."""

from __future__ import annotations

import os
from collections import deque
from threading import Lock

from pytrace.base.interruption import EndRequests
from pytrace.runtime.output.streams import Batch, Flush, Output

_MOST = 1 << 17
"""Bytes that are collected between two refreshes of the view; older ones are dropped."""
_MESSAGES = 1000
"""Messages that are kept for the end."""


class CoveredOutput(Output):
    """While :attr:`covered`, parts and messages for the terminal are collected.

    Afterwards those that the view has not shown are printed, and all messages: these are what a user reads when the
    view is gone.
    """

    def __init__(
        self,
        descriptor: int,
        *,
        messages: int,
        flush: Flush,
        json: bool,
        csv: bool,
        colour: bool,
        raw: bool,
        requests: EndRequests,
        owned: bool,
    ) -> None:
        super().__init__(
            descriptor, messages=messages, flush=flush, json=json, csv=csv, colour=colour, raw=raw,
            requests=requests, owned=owned,
        )  # fmt: skip
        self.covered = False
        self._before: bytes | None = b""
        """What the terminal got before it was covered: headings of ``begin`` probes, warnings. None afterwards."""
        self._messages_shown = os.isatty(messages)
        self._collected: deque[tuple[bool, bytes]] = deque()
        """Whether it is a message, and its bytes."""
        self._unseen: deque[bytes] = deque()
        """What :meth:`take` has returned and the view has not shown, without messages."""
        self._seen = 0
        self._collected_size = self._dropped = 0
        self._lock = Lock()
        """What children of the run print is collected by a thread."""
        self._told: deque[bytes] = deque(maxlen=_MESSAGES)

    def cover(self) -> None:
        """Collect from now on; the log begins with what has been printed so far."""
        self.flush()
        self.covered = True
        before, self._before = self._before, None
        self.collect(before or b"", message=True)

    def collect(self, data: bytes, *, message: bool = False) -> None:
        """Add to what the log shows next."""
        with self._lock:
            self._collected.append((message, data))
            self._collected_size += len(data)
            while self._collected_size > _MOST and len(self._collected) > 1:
                _, old = self._collected.popleft()
                self._collected_size -= len(old)
                self._dropped += len(old)

    def take(self) -> tuple[bytes, int]:
        """What has been collected since the last call, and how many bytes before it were dropped."""
        with self._lock:
            parts, dropped = list(self._collected), self._dropped
            self._collected.clear()
            self._collected_size = self._dropped = 0
        if parts:
            self._unseen.append(b"".join(part for message, part in parts if not message))
        return b"".join(part for _, part in parts), dropped

    def seen(self, count: int) -> None:
        """The view has shown so many of the results of :meth:`take` that were not empty."""
        while self._seen < count and self._unseen:
            self._unseen.popleft()
            self._seen += 1

    def uncover(self) -> None:
        """The terminal is free again: print what nobody has seen, and the messages."""
        if not self.covered:
            return
        self.covered = False
        self.take()
        unseen = b"".join(self._unseen)
        if unseen and self.terminal:
            self.write(unseen)
            self.flush()
        elif unseen:
            # The results are in a file, and this is what the command and system() have printed: it belongs elsewhere.
            super()._send_message(unseen)
        for text in self._told:
            super()._send_message(text)
        self._told.clear()

    def _send(self, batch: Batch) -> bool:
        if not self.covered or not self.terminal:
            sent = super()._send(batch)
            self._remember(batch.data if sent and self.terminal else b"")
            return sent
        self.collect(bytes(batch.data[-_MOST:]))
        if batch.data:
            self._in_line = not batch.ends_line
        self._written += len(batch.parts)
        self._writing = None
        if self._late:
            self._release_messages()
        return True

    def _send_message(self, text: bytes) -> bool:
        if not self.covered or not self._messages_shown:
            # How many probes are attached is no news for the log.
            self._remember(text if self._messages_shown and text.startswith(b"WARNING") else b"")
            return super()._send_message(text)
        self.collect(text, message=True)
        self._told.append(text)
        return True

    def _remember(self, data: bytes | bytearray | memoryview) -> None:
        if self._before is not None:
            self._before = (self._before + bytes(data))[-_MOST:]
