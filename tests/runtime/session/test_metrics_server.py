"""The HTTP server of metrics: clients that are slow, many, or gone."""

from __future__ import annotations

import gc
import select
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as classic

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.core.options import Address
from pytrace.results.snapshot import MapData, Portable, SnapshotData, Value
from pytrace.runtime.session import metrics
from pytrace.runtime.session.metrics import (
    MOST_CONNECTIONS,
    SHARE,
    Answer,
    Exchange,
    Exposition,
    SeriesCap,
    Server,
    uncollected,
)
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
        request = urllib.request.Request(f"http://{self.server.address.text}{path}", method=method)
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


def test_a_request_without_headers(served: Served) -> None:
    """As HTTP/0.9 has it, for which Python 3.14 reads none."""
    for request in (b"GET /x\r\n\r\n", b"GET /x/1.1\r\nHost: localhost\r\n\r\n"):
        with closing(served.connect()) as connection:
            connection.sendall(request)
            text = b"".join(iter(lambda: connection.recv(4096), b""))
        assert b"/x" in text
    assert not served.failures


def test_one_that_fails_holds_nobody_up(served: Served) -> None:
    assert served.get("/bug") == (500, "text/plain; charset=utf-8", b"ZeroDivisionError: bug\n")
    assert isinstance(served.failures[0], ZeroDivisionError)
    assert served.get()[0] == 200
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
    monkeypatch.setattr(metrics._Handler, "timeout", 0.05)
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
    monkeypatch.setattr(metrics.socket, "socket", NoIpv6)
    assert metrics._everywhere(5) == (socket.AF_INET, ("0.0.0.0", 5))


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


# ---------------------------------------------------------------------------------------------- test address


@pytest.mark.parametrize(
    ("text", "host", "port", "shown"),
    [
        (":9435", "", 9435, ":9435"),
        ("127.0.0.1:9435", "127.0.0.1", 9435, "127.0.0.1:9435"),
        ("localhost:0", "localhost", 0, "localhost:0"),
        ("[::1]:65535", "::1", 65535, "[::1]:65535"),
        ("[::]:1", "::", 1, "[::]:1"),
    ],
)
def test_addresses(text: str, host: str, port: int, shown: str) -> None:
    assert Address.parsed(text) == Address(host, port)
    assert Address(host, port).text == shown


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("9435", "needs an address and a port"),
        ("", "needs an address and a port"),
        ("::1:9435", "in brackets"),
        ("::1", "in brackets"),
        ("localhost:", "a port of 0 to 65535, not ''"),
        (":65536", "a port of 0 to 65535, not '65536'"),
        (":-1", "a port of 0 to 65535"),
        (":http", "a port of 0 to 65535, not 'http'"),
        (":٣", "a port of 0 to 65535"),
    ],
)
def test_what_is_no_address(text: str, message: str) -> None:
    with pytest.raises(TraceError, match=message) as caught:
        Address.parsed(text)
    assert ":9435" in caught.value.hints[0]


# ---------------------------------------------------------------------------------------------- test exchange


class Takes:
    """Takes snapshots that tell their number."""

    def __init__(self, seconds: Callable[[], None] = lambda: None) -> None:
        self.number = 0
        self._seconds = seconds

    def __call__(self) -> SnapshotData:
        self._seconds()
        self.number += 1
        return SnapshotData((), losses={"number": {"": self.number}})


class Asking(threading.Thread):
    """A thread that asks, and what it got."""

    def __init__(self, exchange: Exchange, seconds: float = 60) -> None:
        super().__init__(daemon=True)
        self._exchange, self._seconds = exchange, seconds
        self.result: SnapshotData | Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            self.result = self._exchange.ask(self._seconds)
        except (TraceError, TimeoutError) as error:
            self.result = error

    def end(self) -> SnapshotData | Exception | None:
        self.join(patience(20))
        assert not self.is_alive()
        return self.result


def readable(exchange: Exchange, seconds: float = 0) -> bool:
    return bool(select.select([exchange], [], [], seconds)[0])


def test_all_who_wait_get_one_snapshot_that_is_newer_than_their_question() -> None:
    takes = Takes()
    exchange = Exchange(takes)
    exchange.work()
    assert takes.number == 0
    assert not readable(exchange)
    asking = [Asking(exchange) for _ in range(5)]
    assert readable(exchange, patience(20))
    # All of them have asked once nobody runs any more but to wait.
    until(lambda: all(thread.is_alive() for thread in asking) and exchange._wanted is not None)
    time.sleep(0.05)
    exchange.work()
    results = [thread.end() for thread in asking]
    assert all(result is results[0] for result in results)
    assert not readable(exchange)
    second = Asking(exchange)
    assert readable(exchange, patience(20))
    until(lambda: exchange.work() or not second.is_alive())
    assert second.end() is not results[0]
    assert takes.number == 2
    exchange.close()


def test_who_asks_while_a_snapshot_is_taken_gets_it() -> None:
    late: list[Asking] = []

    def ask() -> None:
        late.append(Asking(exchange))
        until(late[0].is_alive)
        time.sleep(0.05)

    takes = Takes(ask)
    exchange = Exchange(takes)
    first = Asking(exchange)
    assert readable(exchange, patience(20))
    exchange.work()
    assert late[0].end() is first.end()
    assert not readable(exchange)
    assert takes.number == 1
    exchange.close()


def test_tracing_has_its_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(metrics.time, "monotonic", lambda: now[0])

    def take_a_second() -> None:
        now[0] += 1

    takes = Takes(take_a_second)
    exchange = Exchange(takes)
    asking = Asking(exchange)
    assert readable(exchange, patience(20))
    assert exchange.pause(5) == 0
    exchange.work()
    asking.end()
    assert exchange.pause(5) == 5
    asking = Asking(exchange)
    assert readable(exchange, patience(20))
    exchange.work()
    assert takes.number == 1
    assert not readable(exchange), "it would wake the session all the time"
    assert exchange.pause(100) == SHARE
    assert exchange.pause(2) == 2
    now[0] += SHARE
    assert exchange.pause(100) == 0
    exchange.work()
    asking.end()
    assert takes.number == 2
    exchange.close()


def test_a_snapshot_that_cannot_be_taken() -> None:
    def fail() -> SnapshotData:
        raise TraceError("no memory")

    exchange = Exchange(fail)
    asking = Asking(exchange)
    assert readable(exchange, patience(20))
    exchange.work()
    assert str(asking.end()) == "no memory"
    exchange.close()


def test_an_interrupt_while_it_is_taken_leaves_nobody_waiting() -> None:
    def interrupted() -> SnapshotData:
        raise KeyboardInterrupt

    exchange = Exchange(interrupted)
    asking = Asking(exchange)
    assert readable(exchange, patience(20))
    with pytest.raises(KeyboardInterrupt):
        exchange.work()
    assert isinstance(asking.end(), TraceError)
    exchange.close()


def test_collections_begin_again() -> None:
    with uncollected():
        assert not gc.isenabled()
        with uncollected():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    first, second = uncollected(), uncollected()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert gc.isenabled()


def test_nobody_waits_for_ever() -> None:
    exchange = Exchange(Takes())
    assert isinstance(Asking(exchange, 0.01).end(), TimeoutError)
    asking = Asking(exchange)
    until(asking.is_alive)
    exchange.close()
    exchange.close()
    assert isinstance(asking.end(), TraceError)
    with pytest.raises(TraceError, match="the run is over"):
        exchange.ask(1)


# ---------------------------------------------------------------------------------------------- test exposition


OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
ACCEPT = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"
"""As Prometheus 2.42 asks."""


def snapshot() -> SnapshotData:
    maps = [
        MapData("@calls", types.String(16), types.Count(), {"ls": 3, 'a"b\\\n': 1, "cat": 2}, help="Calls\nby name"),
        MapData("@size_bytes", None, types.Hist(0), {None: {1: 2, 4: 5}}),
        MapData("@level", None, types.INT64, {None: -7}),
    ]
    return SnapshotData((), {data.name: data for data in maps}, (), {"ring": {"events": 4}})


def values(metrics: object) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for metric in metrics
        for sample in metric.samples
    }  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("accept", "content_type", "parse"),
    [
        (ACCEPT, OPENMETRICS, openmetrics),
        ("application/openmetrics-text", OPENMETRICS, openmetrics),
        ("", "text/plain; version=0.0.4; charset=utf-8", classic),
        ("*/*", "text/plain; version=0.0.4; charset=utf-8", classic),
        ("text/html", "text/plain; version=0.0.4; charset=utf-8", classic),
    ],
)
def test_both_formats_say_the_same(accept: str, content_type: str, parse: object) -> None:
    got, text = Exposition(2).of(snapshot(), accept)
    assert got.startswith(content_type)
    found = values(parse(text.decode()))  # type: ignore[operator]
    assert found["pytrace_calls_total", (("key", "ls"),)] == 3
    assert found["pytrace_calls_total", (("key", "cat"),)] == 2
    assert ("pytrace_calls_total", (("key", 'a"b\\\n'),)) not in found
    assert found["pytrace_map_series_left_out", (("map", "@calls"),)] == 1
    assert found["pytrace_size_bytes_bucket", (("le", "+Inf"),)] == 7
    assert found["pytrace_level", ()] == -7
    assert found["pytrace_lost_events_total", (("kind", "ring"), ("subject", "events"))] == 4


def test_types_and_help() -> None:
    _, text = Exposition(10).of(snapshot(), ACCEPT)
    found = {metric.name: metric for metric in openmetrics(text.decode())}
    assert found["pytrace_calls"].type == "counter"
    assert found["pytrace_calls"].documentation == "Calls\nby name"
    assert found["pytrace_size_bytes"].type == "histogram"
    assert found["pytrace_level"].type == "gauge"
    calls = {sample.labels["key"]: sample.value for sample in found["pytrace_calls"].samples}
    assert calls == {"ls": 3, 'a"b\\\n': 1, "cat": 2}


def test_one_snapshot_is_written_once_for_each_format() -> None:
    exposition, taken = Exposition(10), snapshot()
    first = exposition.of(taken, ACCEPT)[1]
    assert exposition.of(taken, ACCEPT)[1] is first
    assert exposition.of(taken, "")[1] != first
    assert exposition.of(snapshot(), ACCEPT)[1] is not first


def test_names_and_times_of_maps() -> None:
    taken = snapshot()
    taken.read = {"@calls": 1_500_000_000, "@level": 2_000_000_000}
    found = values(openmetrics(Exposition(10).of(taken, ACCEPT)[1].decode()))
    assert found["pytrace_map_read_seconds", (("map", "@calls"),)] == 1.5
    assert found["pytrace_map_read_seconds", (("map", "@level"),)] == 2
    maps = {"@map_series_left_out": MapData("@map_series_left_out", None, types.INT64, {None: 5})}
    _, text = Exposition(10).of(SnapshotData((), maps), ACCEPT)
    found = values(openmetrics(text.decode()))
    assert found == {("pytrace_map_series_left_out", ()): 5}
    text = Exposition(10).of(snapshot(), "")[1].decode()
    assert "# HELP pytrace_calls_total Calls\\nby name\n# TYPE pytrace_calls_total counter\n" in text
    assert "# UNIT" not in text
    assert "# EOF" not in text


# ---------------------------------------------------------------------------------------------- the number of series

COUNT = types.Count()


def of_maps(
    value: types.Type = COUNT, key: types.Type | None = types.INT64, **maps: dict[Portable, Value]
) -> SnapshotData:
    return SnapshotData((), {f"@{name}": MapData(f"@{name}", key, value, entries) for name, entries in maps.items()})


def test_the_largest_values_come_first() -> None:
    before = of_maps(a={1: 5, 2: 9, 3: 7}, b={1: 1, 2: 2})
    after, left_out = SeriesCap(2).capped(before)
    assert after.maps["@a"].entries == {2: 9, 3: 7}
    assert after.maps["@b"] is before.maps["@b"]
    assert left_out == {"@a": 1, "@b": 0}
    assert len(before.maps["@a"].entries) == 3


def test_a_key_that_was_shown_stays_until_the_map_has_lost_it() -> None:
    cap = SeriesCap(2)
    cap.capped(of_maps(a={1: 5, 2: 6}))
    after, left_out = cap.capped(of_maps(a={1: 5, 2: 6, 3: 100}))
    assert (after.maps["@a"].entries, left_out) == ({1: 5, 2: 6}, {"@a": 1})
    after, _ = cap.capped(of_maps(a={2: 6, 3: 100, 4: 50}))
    assert after.maps["@a"].entries == {2: 6, 3: 100}
    cap.capped(of_maps(a={}))
    after, _ = cap.capped(of_maps(a={2: 6, 3: 100, 4: 50}))
    assert after.maps["@a"].entries == {3: 100, 4: 50}


def test_what_the_cap_joins() -> None:
    after, _ = SeriesCap(1).capped(of_maps(types.Avg(), a={1: (1000, 1), 2: (10, 5)}))
    assert after.maps["@a"].entries == {2: (10, 5)}
    after, _ = SeriesCap(1).capped(of_maps(types.Hist(0), a={1: {60: 1}, 2: {1: 2, 2: 2}}))
    assert after.maps["@a"].entries == {2: {1: 2, 2: 2}}
    after, left_out = SeriesCap(1).capped(of_maps(COUNT, None, a={None: 3}))
    assert after.maps["@a"].entries == {None: 3}
    assert left_out == {}
