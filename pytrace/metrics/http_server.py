"""A small HTTP server with a thread per connection, which slow clients cannot block."""

from __future__ import annotations

import ipaddress
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import NamedTuple

from pytrace.core.diagnostics import TraceError
from pytrace.core.options.run_options import Address
from pytrace.metrics.address import shown

MOST_CONNECTIONS = 32
"""Maximum simultaneous connections; a further one closes the oldest."""
PATIENCE = 5.0
"""Timeout in seconds of reading a request and of writing the answer."""
BACKLOG = 64
LOOPBACK_NAMES = frozenset({
    "localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback", "::", "0.0.0.0",
})  # fmt: skip
"""Names of loopback addresses in ``/etc/hosts`` of distributions, and what connects to them."""
MISDIRECTED = 421
LONGEST_NAME = 100


class Answer(NamedTuple):
    """The answer to a request."""

    status: int
    content_type: str
    body: bytes


class _Handler(BaseHTTPRequestHandler):
    timeout = PATIENCE
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
        names = self.headers.get_all("Host", [])
        if not names or not _is_loopback(self.connection.getsockname()[0]):
            return None
        host = _host(names[0])
        if len(names) == 1 and (host in self.server.names | LOOPBACK_NAMES or _is_loopback(host)):
            return None
        text = f"this is no server of {names[0][:LONGEST_NAME]!a}: ask {shown(self.server.address)}\n"
        return Answer(MISDIRECTED, "text/plain; charset=utf-8", text.encode())

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
                f"metrics cannot be served at {shown(address)}: {error.strerror or error}", hints=hints
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
