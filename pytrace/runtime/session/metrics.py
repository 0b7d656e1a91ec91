"""``--metrics``: the maps of a running script, served to monitoring systems."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

from pytrace.core.diagnostics import TraceError
from pytrace.core.options import Address, Config
from pytrace.results.formats.metrics_server import Answer, Exchange, Exposition, Server, uncollected
from pytrace.results.snapshot import SnapshotData
from pytrace.runtime.session.services import Service

FRESH = 1.0
"""Seconds for which a snapshot is reused for further requests."""
PATIENCE = 8.0
"""Seconds that a request waits for a snapshot; Prometheus waits ten for the answer by default."""
_LAST_ANSWERS = 0.5
"""Grace period in seconds for answers that are being written when the run ends."""
PATH = "/metrics"

_TEXT = "text/plain; charset=utf-8"


class Metrics(Service):
    """Listens from the start, and serves what *take* returns after :meth:`begin`; *tell* prints a message.

    Raises:
        TraceError: the address cannot be listened on; nothing has been traced by then.
    """

    def __init__(
        self, address: Address, config: Config, take: Callable[[], SnapshotData], tell: Callable[[str], None]
    ) -> None:
        self._tell = tell
        self._exchange = Exchange(take)
        self._exposition = Exposition(config.max_metric_series)
        self._lock = Lock()
        self._last: tuple[float, SnapshotData] | None = None
        """The time of the last snapshot, and the snapshot."""
        self._failure = ""
        self._told = ""
        """The last error of another thread, and the last one that was reported."""
        try:
            self._server = Server(address, self._answer, self._failed)
        except BaseException:
            self._exchange.close()
            raise

    # ---- the session

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Descriptors that are readable if there is work for :meth:`work`."""
        return (self._exchange.fileno(),)

    def begin(self) -> None:
        """The run has given up what it does not need: start the threads that answer requests."""
        self._server.begin()
        self._tell(f"Metrics at http://{self._server.address.text}{PATH}\n")

    def pause(self, longest: float) -> float:
        """Seconds until the next snapshot may be taken, if one is wanted, at most *longest*."""
        return self._exchange.pause(longest)

    def work(self, _handled: int) -> None:
        """Take a snapshot when a request waits for one."""
        self._exchange.work()
        if self._failure != self._told:
            self._told = self._failure
            self._tell(f"WARNING: metrics could not be served: {self._told}\n")

    def exited(self) -> None:
        """The thread that answers ends."""
        self.stop()

    def stop(self) -> None:
        """The run ends; of its threads no map of calls that have begun is to keep any."""
        self.close()

    def close(self) -> None:
        """Stop the server; waiting requests get an error that the run is over."""
        self._exchange.close()
        self._server.end(_LAST_ANSWERS)

    # ---- threads of requests

    def _answer(self, path: str, accept: str) -> Answer:
        if path == "/":
            return Answer(200, _TEXT, f"pytrace: metrics are at {PATH}\n".encode())
        if path != PATH:
            return Answer(404, _TEXT, f"there are metrics at {PATH} only\n".encode())
        try:
            snapshot = self._recent() or self._asked()
        except TimeoutError:
            return Answer(503, _TEXT, f"no snapshot was taken within {PATIENCE:g} seconds\n".encode())
        except TraceError as error:
            return Answer(503, _TEXT, f"{error.message}\n".encode())
        # One at a time: only one thread holds the interpreter lock, which should mostly be the tracing one.
        try:
            with self._lock, uncollected():
                return Answer(200, *self._exposition.of(snapshot, accept))
        except TraceError as error:
            return Answer(500, _TEXT, f"{error.message}\n".encode())

    def _recent(self) -> SnapshotData | None:
        last = self._last
        return last[1] if last is not None and time.monotonic() - last[0] < FRESH else None

    def _asked(self) -> SnapshotData:
        snapshot = self._exchange.ask(PATIENCE)
        last = self._last
        if last is None or last[1] is not snapshot:
            self._last = time.monotonic(), snapshot
        return snapshot

    def _failed(self, error: Exception) -> None:
        self._failure = f"{type(error).__name__}: {error}"
