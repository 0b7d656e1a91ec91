"""Reading and downloads of debug information for which a user waits: both are stopped on request."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pytrace.base.interruption import EndRequests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOLD_AFTER = 1.0
"""Seconds of waiting after which a message says what is being read."""
ENDING = 0.4
"""Seconds of reading after the user has asked for the end: most has been read while the run went on."""


class LineReading:
    """Runs readings in steps. Until :meth:`hurry` nobody waits: the run goes on meanwhile.

    When the user has asked for the end of the run (*requests*), readings have :data:`ENDING` seconds from then on.
    """

    def __init__(self, requests: EndRequests | None = None) -> None:
        self.given_up = False
        """The rest is shown without source lines."""
        self.late = False
        """That is so because there was no more time."""
        self._requests = requests or EndRequests()
        self._deadline: float | None = None
        self._say: Callable[[str], None] | None = None
        self._what = ""
        self._awaited = False
        self._running = False
        self._downloading = self._no_downloads = False
        self._stop: Callable[[], bool] = bool
        self._told = False
        self._spent = 0.0

    def hurry(self, say: Callable[[str], None] | None, what: str, stop: Callable[[], bool] = bool) -> None:
        """The run is ending, and the user waits; *say* is called with a message when reading *what* takes long.

        *stop* says whether the user waits for downloads no more.
        """
        self._awaited, self._say, self._what, self._stop = True, say, what, stop

    def name(self, what: str) -> None:
        """Set what the message says is being read."""
        self._what = what

    def give_up(self) -> bool:
        """Stop reading, as the user does not want to wait; False when they do not wait for any of this."""
        if self._downloading and not self._no_downloads:
            self._no_downloads = self.given_up = True
            return True
        if not self._awaited or self.given_up or not (self._running or self._told):
            return False
        self.given_up = True
        return True

    def download(self, ask: Callable[[Callable[[], bool]], None]) -> bool:
        """Call *ask*, whose argument says whether to stop, once the user waits for the end. Returns if it was called.

        Before that nothing is downloaded: events would be lost meanwhile.
        """
        if not self._awaited or self._no_downloads or self._stop():
            return False
        self._downloading = True
        try:
            ask(lambda: self._no_downloads or self._stop())
        finally:
            self._downloading = False
            self._deadline = None  # the user waited for the download: what it brought is read, too
        return True

    def no_downloads(self) -> None:
        """Download nothing any more."""
        self._no_downloads = True

    def run(self, steps: Iterator[None]) -> bool:
        """Run a reading to its end; False when it was stopped."""
        if self._stopped():
            # What needs no reading any more is shown all the same, where there is time to look.
            return not self.late and all(False for _ in steps)
        started = time.monotonic()
        self._running = True
        try:
            for _ in steps:
                if self._stopped():
                    return False
                if self._awaited and not self._told and self._spent + time.monotonic() - started > TOLD_AFTER:
                    self._tell()
        finally:
            self._running = False
            if self._awaited:
                self._spent += time.monotonic() - started
        return True

    def _stopped(self) -> bool:
        # A signal may say so at any time.
        if not self.given_up and self._requests.ending:
            now = time.monotonic()
            if self._deadline is None:
                self._deadline = now + ENDING
            self.given_up = self.late = now >= self._deadline
        return self.given_up

    def _tell(self) -> None:
        self._told = True
        if self._say is not None:
            self._say(f"reading source lines of {self._what}; Ctrl-C prints the rest without lines\n")
