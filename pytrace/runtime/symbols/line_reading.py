"""Reading and downloads of debug information for which a user waits: both are stopped on request."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pytrace.base.interruption import EndRequests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_RECENT = 0.5
"""Seconds since a name was asked for, within which names are what takes long."""
TOLD_AFTER = 1.0
"""Seconds of waiting after which a message says what is being read."""
ENDING = 0.4
"""Seconds of reading after the user has asked for the end: most has been read while the run went on."""
NAMING = 30.0
"""Seconds that the end of a run looks up names: thousands of processes may have ended, and the machine be busy."""


class LineReading:
    """Runs readings in steps. Until :meth:`hurry` nobody waits: the run goes on meanwhile.

    When the user has asked for the end of the run (*requests*), readings have :data:`ENDING` seconds from then on.
    Names have limits of their own (:meth:`names_left`).
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
        self.awaited = False
        """The run is ending, and the user waits."""
        self._running = False
        self._downloading = self._no_downloads = False
        self._stop: Callable[[], bool] = bool
        self._told = False
        self._spent = 0.0
        self.names_over = ""
        """Why no more names are looked up."""
        self._end_began = self._named = 0.0
        self._asked_before = False
        self._asked: float | None = None
        self._names_told = False

    def hurry(self, say: Callable[[str], None] | None, what: str, stop: Callable[[], bool] = bool) -> None:
        """The run is ending, and the user waits; *say* is called with a message when reading *what* takes long.

        *stop* says whether the user waits for downloads no more.
        """
        self.awaited, self._say, self._what, self._stop = True, say, what, stop
        self._end_began, self._asked_before = time.monotonic(), self._requests.ending

    def names_left(self) -> bool:
        """Whether there is time to look up a name: always while the run goes on, :data:`NAMING` seconds at its end.

        A user who asks for the end while the run ends gets it at once.
        """
        if self.names_over or not self.awaited:
            return not self.names_over
        now = self._named = time.monotonic()
        if self._requests.ending and not self._asked_before:
            if self._asked is None:
                self._asked = now
            if now - self._asked >= ENDING:
                self.names_over = "you asked for the end"
        elif now - self._end_began >= NAMING:
            self.names_over = f"names were looked up for {NAMING:g} s after the end"
        elif not (self._told or self._names_told) and self._say is not None and now - self._end_began >= TOLD_AFTER:
            self._names_told = True
            self._say("looking up names of user functions; Ctrl-C prints the rest as numbers\n")
        return not self.names_over

    def name(self, what: str) -> None:
        """Set what the message says is being read."""
        self._what = what

    def give_up(self) -> bool:
        """Stop reading, as the user does not want to wait; False when they do not wait for any of this."""
        if self._downloading and not self._no_downloads:
            self._no_downloads = self.given_up = True
            return True
        if not self.awaited:
            return False
        if not self.given_up and (self._running or self._told):
            self.given_up = True
            return True
        now = time.monotonic()
        if not self.names_over and now - self._end_began >= TOLD_AFTER and now - self._named < _RECENT:
            self.names_over = "you asked for the end"
            return True
        return False

    def download(self, ask: Callable[[Callable[[], bool]], None]) -> bool:
        """Call *ask*, whose argument says whether to stop, once the user waits for the end. Returns if it was called.

        Before that nothing is downloaded: events would be lost meanwhile.
        """
        if not self.awaited or self._no_downloads or self._stop():
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
                if self.awaited and not self._told and self._spent + time.monotonic() - started > TOLD_AFTER:
                    self._tell()
                if not self.names_left():
                    return False
        finally:
            self._running = False
            if self.awaited:
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
