"""``--metrics``: the maps of a running script, served to monitoring systems by a small HTTP server.

The server has a thread per connection, which slow clients cannot block.
"""

from __future__ import annotations

import gc
import ipaddress
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from threading import Lock
from typing import NamedTuple

from msgspec.structs import replace

from pytrace.core.diagnostics import TraceError
from pytrace.core.options import Address, Config
from pytrace.render.value_kind import MetricKind, Sample
from pytrace.results.formats import openmetrics
from pytrace.results.formats.openmetrics import PREFIX, Family, distinct, families
from pytrace.results.snapshot import MapData, Portable, SnapshotData, Value
from pytrace.runtime.session.services import Service

MOST_CONNECTIONS = 32
"""Maximum simultaneous connections; a further one closes the oldest."""
_STALLED = 5.0
"""Timeout in seconds of reading a request and of writing the answer."""
BACKLOG = 64
_LOOPBACK_NAMES = frozenset({
    "localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback", "::", "0.0.0.0",
})  # fmt: skip
"""Names of loopback addresses in ``/etc/hosts`` of distributions, and what connects to them."""
_MISDIRECTED = 421
LONGEST_NAME = 100

_OLDER_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Prometheus' text format, which came before."""

_CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
"""The content type of the format."""


class Answer(NamedTuple):
    """The answer to a request."""

    status: int
    content_type: str
    body: bytes


class _Handler(BaseHTTPRequestHandler):
    timeout = _STALLED
    server: Server

    def version_string(self) -> str:
        return "pytrace"

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> None:
        if (refusal := self._refusal()) is not None:
            self._send(refusal)
            return
        try:
            answer = self.server.answer(self.path.partition("?")[0], self.headers.get("Accept", ""))
        except Exception as error:  # noqa: BLE001  (a bug here shall not end the run)
            self.server.failed(error)
            answer = Answer(500, "text/plain; charset=utf-8", f"{type(error).__name__}: {error}\n".encode())
        self._send(answer)

    def _refusal(self) -> Answer | None:
        """The answer to a request that comes in at a loopback address for a host of another name: a web page whose
        name its owner has made to mean this machine (DNS rebinding). Programs that name no host are no browsers.
        """
        # A request of HTTP/0.9 has none: since Python 3.14 they are a plain dict then.
        names = self.headers.get_all("Host", []) if self.headers else []
        if not names or not _is_loopback(self.connection.getsockname()[0]):
            return None
        host = _host(names[0])
        if len(names) == 1 and (host in self.server.names | _LOOPBACK_NAMES or _is_loopback(host)):
            return None
        text = f"this is no server of {names[0][:LONGEST_NAME]!a}: ask {self.server.address.text}\n"
        return Answer(_MISDIRECTED, "text/plain; charset=utf-8", text.encode())

    def _send(self, answer: Answer) -> None:
        status, content_type, body = answer
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        """Requests are not logged."""


class Server(ThreadingMixIn, TCPServer):
    """Listens from construction on, and answers requests with *answer* (in separate threads) after :meth:`begin`.

    *answer* is called with the path of a request and its ``Accept`` header, *failed* with exceptions that the client
    did not cause.

    Raises:
        TraceError: *address* cannot be listened on.
    """

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = BACKLOG

    def __init__(
        self,
        address: Address,
        answer: Callable[[str, str], Answer],
        failed: Callable[[Exception], None],
    ) -> None:
        self.answer = answer
        self.failed = failed
        self._open: dict[socket.socket, None] = {}
        """Open connections, the oldest first."""
        self.names = frozenset({address.host.lower(), socket.gethostname().lower()})
        """Names of this machine by which it may be asked at its loopback addresses."""
        self._changed = threading.Condition()
        self._closing = False
        self._thread: threading.Thread | None = None
        family, place = _resolved(address)
        self.address_family = family
        super().__init__(("", 0), _Handler, bind_and_activate=False)
        try:
            self._listen(place)
        except OSError as error:
            self.server_close()
            hints = ("port 0 is any free port",) if address.port else ()
            raise TraceError(
                f"metrics cannot be served at {address.text}: {error.strerror or error}", hints=hints
            ) from error

    @property
    def address(self) -> Address:
        """The address it listens on, with the actual port."""
        host, port, *_ = self.socket.getsockname()
        return Address(host, port)

    def _listen(self, place: tuple[str, int]) -> None:
        if self.address_family == socket.AF_INET6 and place[0] == "::":
            # All addresses include those of IPv4, whatever net.ipv6.bindv6only says.
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.server_address = place
        self.server_bind()
        self.server_activate()

    def begin(self) -> None:
        """Start answering requests, including those already waiting."""
        self._thread = threading.Thread(target=self._serve, name="metrics", daemon=True)
        # Its threads inherit its mask: signals must go to the tracing thread, whose waits they interrupt.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._thread.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _serve(self) -> None:
        while not self._closing:
            # Waits for a connection; returns without one when the socket was shut down.
            self.handle_request()

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        assert isinstance(request, socket.socket)
        with self._changed:
            self._open[request] = None
            too_many = list(self._open)[:-MOST_CONNECTIONS]
            for oldest in too_many:
                # Before it can be closed, and its descriptor be reused by another connection.
                _shut(oldest)
                del self._open[oldest]
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        super().shutdown_request(request)
        assert isinstance(request, socket.socket)
        with self._changed:
            self._open.pop(request, None)
            self._changed.notify_all()

    def handle_error(self, _request: object, _client_address: object) -> None:
        error = sys.exception()
        # The client disconnected, or timed out.
        if isinstance(error, Exception) and not isinstance(error, OSError):
            self.failed(error)

    def end(self, seconds: float) -> None:
        """Stop listening; answers that are being written may continue for *seconds*."""
        if self._closing:
            return
        self._closing = True
        _shut(self.socket)
        if self._thread is not None:
            self._thread.join(1.0)
        self.server_close()
        with self._changed:
            for connection in self._open:
                # Those that wait for a request have none, and end.
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RD)
            self._changed.wait_for(lambda: not self._open, seconds)
            rest = list(self._open)
        for connection in rest:
            _shut(connection)


def _host(text: str) -> str:
    """The host in a ``Host`` header, without its port."""
    if text.startswith("["):
        return text[1:].partition("]")[0].lower()
    return text.partition(":")[0].removesuffix(".").lower()


def _is_loopback(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _resolved(address: Address) -> tuple[socket.AddressFamily, tuple[str, int]]:
    """The family and the numeric address to bind."""
    if not address.host:
        return _everywhere(address.port)
    try:
        addresses = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        text = error.strerror if isinstance(error, OSError) else str(error)
        raise TraceError(f"there is no host {address.host!r} to serve metrics at: {text}") from error
    family, _, _, _, place = addresses[0]
    return family, (str(place[0]), address.port)


def _everywhere(port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return socket.AF_INET, ("0.0.0.0", port)
    return socket.AF_INET6, ("::", port)


# ---------------------------------------------------------------------------------------------- exchange


SHARE = 4
"""Minimum time for tracing between two snapshots, as a multiple of the time that the last one took."""


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable the cyclic garbage collector in the block: repeated scans of 100,000 new objects take half of the time.

    Several threads may be in such blocks at once: the one that disabled the collector enables it again.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Exchange:
    """Connects threads that request snapshots (:meth:`ask`) with the one that takes them (:meth:`work`)."""

    def __init__(self, take: Callable[[], SnapshotData]) -> None:
        self._take = take
        self._lock = Lock()
        self._wanted: Future[SnapshotData] | None = None
        self._begun: Future[SnapshotData] | None = None
        """The snapshot that is being taken."""
        self._closed = False
        self._not_before = 0.0
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    # ---- any thread

    def ask(self, seconds: float) -> SnapshotData:
        """A snapshot that is being taken, or is taken after this call.

        Raises:
            TimeoutError: none was completed within *seconds*.
            TraceError: no snapshot can be taken; the message says why.
        """
        with self._lock:
            if self._closed:
                raise TraceError("the run is over")
            request = self._begun or self._wanted
            if request is None:
                request = self._wanted = Future()
                os.eventfd_write(self._event, 1)
        return request.result(seconds)

    # ---- the thread that traces

    def fileno(self) -> int:
        """A descriptor that is readable if a snapshot has been requested."""
        return self._event

    def pause(self, longest: float) -> float:
        """Seconds to wait for events before :meth:`work` is called, at most *longest*."""
        if self._wanted is None:
            return longest
        return max(0.0, min(longest, self._not_before - time.monotonic()))

    def work(self) -> None:
        """Take a snapshot if one has been requested and is due."""
        if self._wanted is None:
            return
        with suppress(BlockingIOError):
            os.eventfd_read(self._event)
        start = time.monotonic()
        if start < self._not_before:
            return
        with self._lock:
            request, self._wanted = self._wanted, None
            self._begun = request
        try:
            with uncollected():
                snapshot = self._take()
        except TraceError as error:
            request.set_exception(error)
        except BaseException:
            # Whatever interrupts the run: waiting threads must be released.
            request.set_exception(TraceError("the run was interrupted"))
            raise
        else:
            request.set_result(snapshot)
        finally:
            with self._lock:
                self._begun = None
        end = time.monotonic()
        self._not_before = end + SHARE * (end - start)

    def close(self) -> bool:
        """Take no more snapshots. Returns whether a request was waiting."""
        with self._lock:
            request, self._wanted = self._wanted, None
            was_open, self._closed = not self._closed, True
        if was_open:
            os.close(self._event)
        if request is None:
            return False
        with suppress(InvalidStateError):
            request.set_exception(TraceError("the run is over"))
        return True


# ---------------------------------------------------------------------------------------------- exposition


LEFT_OUT = f"{PREFIX}map_series_left_out"


class Exposition:
    """Formats one snapshot after another, with at most *most_series* keys of each map."""

    def __init__(self, most_series: int) -> None:
        self._cap = SeriesCap(most_series)
        self._snapshot: SnapshotData | None = None
        self._families: list[Family] = []
        self._texts: dict[bool, bytes] = {}
        """Texts of the last snapshot, by whether they are in the older format: several clients may ask at once."""

    def of(self, snapshot: SnapshotData, accept: str) -> tuple[str, bytes]:
        """Content type and text of a snapshot, for a client whose ``Accept`` header is *accept*."""
        if snapshot is not self._snapshot:
            capped, left_out = self._cap.capped(snapshot)
            self._families = distinct([*families(capped), _left_out(left_out)])
            self._snapshot, self._texts = snapshot, {}
        older = "application/openmetrics-text" not in accept
        if older not in self._texts:
            self._texts[older] = openmetrics.exposition(self._families, older=older)
        return _OLDER_CONTENT_TYPE if older else _CONTENT_TYPE, self._texts[older]


def _left_out(numbers: Mapping[str, int]) -> Family:
    text = "Keys of a map that are too many to be shown (config key max_metric_series)"
    samples = tuple(Sample("", (("map", name),), number) for name, number in sorted(numbers.items()))
    return Family(LEFT_OUT, MetricKind.GAUGE, text, "", samples)


# ---------------------------------------------------------------------------------------------- the number of series


class SeriesCap:
    """Selects at most *most* keys of each map: a monitoring system keeps every series that it has ever seen.

    A key that was selected once stays selected while the map contains it, so that series do not come and go; remaining
    room goes to the keys with the largest values.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._shown: dict[str, set[Portable]] = {}

    def capped(self, snapshot: SnapshotData) -> tuple[SnapshotData, dict[str, int]]:
        """The snapshot without surplus keys, and the number of surplus keys for each keyed map, by name."""
        maps: dict[str, MapData] = {}
        left_out: dict[str, int] = {}
        for name, data in snapshot.maps.items():
            maps[name] = data
            if data.key is None:
                continue
            maps[name] = self._map(data)
            left_out[name] = len(data.entries) - len(maps[name].entries)
        return replace(snapshot, maps=maps), left_out

    def _map(self, data: MapData) -> MapData:
        entries = data.entries
        before = self._shown.pop(data.name, set())
        if len(entries) <= self._most:
            self._shown[data.name] = set(entries)
            return data
        selected = before & entries.keys()
        others = sorted((key for key in entries if key not in selected), key=lambda key: -_size(entries[key]))
        selected.update(others[: self._most - len(selected)])
        self._shown[data.name] = selected
        return replace(data, entries={key: value for key, value in entries.items() if key in selected})


def _size(value: Value) -> int:
    """The rank of a value: the number, the count of an average, the total count of a histogram."""
    if isinstance(value, int):
        return value
    if isinstance(value, tuple) and value and isinstance(value[-1], int):
        return value[-1]
    if isinstance(value, dict):
        return sum(item for item in value.values() if isinstance(item, int))
    return 0


# ---------------------------------------------------------------------------------------------- the service

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
