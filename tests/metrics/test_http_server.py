"""The HTTP server of metrics: clients that are slow, many, or gone."""

from __future__ import annotations

import signal
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.core.options.run_options import Address
from pytrace.metrics import http_server
from pytrace.metrics.address import shown
from pytrace.metrics.http_server import MOST_CONNECTIONS, Answer, Server
from tests.support.patience import patience
from tests.support.waiting import until


class Served:
    """A server that answers with what it was asked, and breaks at ``/bug``."""

    def __init__(self, address: Address) -> None:
        self.failures: list[Exception] = []
        self.server = Server(address, self.answer, self.failures.append)

    def answer(self, path: str, accept: str) -> Answer:
        if path == "/bug":
            raise ZeroDivisionError("bug")
        return Answer(404 if path == "/no" else 200, "text/x", f"{path} {accept}".encode())

    def get(self, path: str = "/x", method: str = "GET") -> tuple[int, str, bytes]:
        request = urllib.request.Request(f"http://{shown(self.server.address)}{path}", method=method)
        request.add_header("Accept", "this")
        try:
            with urllib.request.urlopen(request, timeout=patience(20)) as answer:
                return answer.status, answer.headers["Content-Type"], answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers["Content-Type"], error.read()

    def connect(self) -> socket.socket:
        where = self.server.address
        return socket.create_connection((where.host, where.port), timeout=patience(20))


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served(Address("127.0.0.1", 0))
    made.server.begin()
    yield made
    made.server.end(0)


def test_requests(served: Served) -> None:
    assert served.get() == (200, "text/x", b"/x this")
    assert served.get("/x?y=1") == (200, "text/x", b"/x this")
    assert served.get("/no")[0] == 404
    assert served.get(method="HEAD") == (200, "text/x", b"")
    assert served.get(method="POST")[0] == 501


@pytest.mark.parametrize(
    ("hosts", "status"),
    [
        ((), 200), (("localhost:9435",), 200), (("LOCALHOST",), 200), (("127.0.0.1:1",), 200), (("127.9.9.9",), 200),
        (("[::1]:80",), 200),
        (("[::]:80",), 200), (("0.0.0.0:1",), 200),
        ((socket.gethostname(),), 200), (("localhost.",), 200), (("evil.example:9435",), 421),
        (("localhost.evil.example",), 421), (("10.0.0.1",), 421), (("",), 421), (("\x1b[2J",), 421),
        (("localhost", "evil.example"), 421), (("[::1", "x"), 421), (("127.0.0.1.evil.example",), 421),
    ],
)  # fmt: skip
def test_a_loopback_server_answers_to_known_names_only(served: Served, hosts: tuple[str, ...], status: int) -> None:
    """A web page reads what a browser lets it read of its own name, which its owner can make to mean 127.0.0.1."""
    with closing(served.connect()) as client:
        lines = ["GET /x HTTP/1.1", *(f"Host: {host}" for host in hosts), "Connection: close", "", ""]
        client.sendall("\r\n".join(lines).encode())
        answer = client.makefile("rb").read()
    assert int(answer.split()[1]) == status
    assert b"\x1b" not in answer


@pytest.mark.parametrize("host", ["localhost", "", "::1"])
def test_the_name_that_was_asked_for_counts_wherever_it_listens(host: str) -> None:
    made = Served(Address(host, 0))
    made.server.begin()
    try:
        local = "127.0.0.1" if host != "::1" else "::1"
        for name, status in (("evil.example", 421), ("localhost", 200)):
            with closing(socket.create_connection((local, made.server.address.port), patience(20))) as client:
                client.sendall(f"GET /x HTTP/1.0\r\nHost: {name}\r\n\r\n".encode())
                assert int(client.makefile("rb").read().split()[1]) == status
    finally:
        made.server.end(0)


def test_one_that_fails_is_told_and_the_others_go_on(served: Served) -> None:
    assert served.get("/bug") == (500, "text/plain; charset=utf-8", b"ZeroDivisionError: bug\n")
    assert isinstance(served.failures[0], ZeroDivisionError)
    assert served.get()[0] == 200


def test_clients_that_say_nothing_hold_nobody_up(served: Served) -> None:
    with ExitStack() as stack:
        for _ in range(3 * MOST_CONNECTIONS):
            stack.enter_context(closing(served.connect())).sendall(b"GET /x HT")
        assert served.get() == (200, "text/x", b"/x this")
        until(lambda: len(served.server._open) <= MOST_CONNECTIONS)


def test_a_client_that_goes_away_is_no_failure(served: Served) -> None:
    for _ in range(5):
        with closing(served.connect()) as connection:
            connection.sendall(b"GET /x HTTP/1.0\r\n\r\n")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    assert served.get()[0] == 200
    until(lambda: not served.server._open)
    assert not served.failures


def test_a_client_that_dawdles_is_left(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server._Handler, "timeout", 0.05)
    with closing(served.connect()) as connection:
        connection.sendall(b"GET")
        assert connection.recv(1) == b""


def test_the_end_closes_all(served: Served) -> None:
    where = served.server.address
    with closing(served.connect()) as connection:
        connection.sendall(b"GET /x HT")
        until(lambda: served.server._open)
        served.server.end(patience(5))
        assert not served.server._open, "one that waits for the rest of a request is not waited for"
        while connection.recv(1000):
            pass
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((where.host, where.port))


def test_who_comes_before_the_start_waits() -> None:
    made = Served(Address("127.0.0.1", 0))
    with closing(made.connect()) as connection:
        connection.sendall(b"GET /early HTTP/1.0\r\n\r\n")
        made.server.begin()
        assert connection.recv(100).startswith(b"HTTP/1.0 200")
    made.server.end(0)


def test_signals_are_not_for_its_threads(served: Served) -> None:
    (number,) = [thread.native_id for thread in threading.enumerate() if thread.name == "metrics"]
    blocked = next(
        line.split()[1] for line in Path(f"/proc/self/task/{number}/status").read_text().splitlines()
        if line.startswith("SigBlk:")
    )  # fmt: skip
    for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        assert int(blocked, 16) >> (signal_number - 1) & 1
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    assert served.get()[0] == 200


def test_a_server_that_never_began_can_be_closed() -> None:
    Served(Address("127.0.0.1", 0)).server.end(0)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_where_it_listens(host: str) -> None:
    made = Served(Address(host, 0))
    made.server.begin()
    assert made.server.address.port
    assert made.get()[0] == 200
    made.server.end(0)


@pytest.mark.parametrize("family", ["127.0.0.1", "::1"])
def test_without_a_host_it_listens_at_all_addresses(family: str) -> None:
    made = Served(Address("", 0))
    made.server.begin()
    with closing(socket.create_connection((family, made.server.address.port), timeout=patience(20))) as connection:
        connection.sendall(b"GET /x HTTP/1.0\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.0 200")
    made.server.end(0)


def test_without_ipv6_it_listens_at_all_addresses_of_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoIpv6(socket.socket):
        def __init__(self, family: int = -1, *rest: int) -> None:
            if family == socket.AF_INET6:
                raise OSError(97, "Address family not supported by protocol")
            super().__init__(family, *rest)

    # Threads of requests of other tests see the other class too.
    until(lambda: not any("process_request" in thread.name for thread in threading.enumerate()))
    monkeypatch.setattr(http_server.socket, "socket", NoIpv6)
    assert http_server._everywhere(5) == (socket.AF_INET, ("0.0.0.0", 5))


def test_a_port_in_use(served: Served) -> None:
    taken = served.server.address
    with pytest.raises(TraceError, match=rf"cannot be served at 127.0.0.1:{taken.port}: Address already in use"):
        Served(taken)


@pytest.mark.parametrize("host", ["203.0.113.7", "2001:db8::7"])
def test_an_address_of_another_machine(host: str) -> None:
    with pytest.raises(TraceError, match=r"metrics cannot be served at .*: (Cannot assign|Network is unreach)"):
        Served(Address(host, 0))


@pytest.mark.parametrize("host", ["no.such.host.invalid", "a" * 300, "x..y"])
def test_a_host_that_is_none(host: str) -> None:
    with pytest.raises(TraceError, match="there is no host"):
        Served(Address(host, 0))
