"""Reading of debug information that a user waits for: said when it takes long, and given up when they ask for that."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOLD_AFTER = 1.0
"""Seconds of waiting after which a message says what is being read."""


class LineReading:
    """Runs readings in steps. Until :meth:`hurry` nobody waits: the run goes on meanwhile."""

    def __init__(self) -> None:
        self.given_up = False
        """The rest is shown without source lines."""
        self._say: Callable[[str], None] | None = None
        self._what = ""
        self._awaited = False
        self._running = False
        self._told = False
        self._spent = 0.0

    def hurry(self, say: Callable[[str], None] | None, what: str) -> None:
        """From now on somebody waits for the end; *say* tells them about *what* (addresses of stacks)."""
        self._awaited, self._say, self._what = True, say, what

    def name(self, what: str) -> None:
        """What is being read from now on."""
        self._what = what

    def give_up(self) -> bool:
        """Somebody does not want to wait any longer; False when it is not source lines that they wait for."""
        if not self._awaited or self.given_up or not (self._running or self._told):
            return False
        self.given_up = True
        return True

    def run(self, steps: Iterator[None]) -> bool:
        """Run a reading to its end; False when it was given up."""
        if self.given_up:
            # What needs no reading any more is shown all the same.
            return all(False for _ in steps)
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
        return self.given_up

    def _tell(self) -> None:
        self._told = True
        if self._say is not None:
            self._say(f"reading source lines of {self._what}; Ctrl-C prints the rest without lines\n")
