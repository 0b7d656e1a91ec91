"""TCP between two network namespaces, datagrams, and unix sockets: connections and bytes in known numbers.

All sockets are this process's. The ends come from :func:`tests.support.network.link`.
"""

from __future__ import annotations

import fcntl
import os
import socket
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyroute2 import netns

from tests.support.network import End, heal, lose
from tests.support.patience import patience
from tests.support.waiting import until

IPV4, IPV6 = 4, 6


@dataclass(frozen=True)
class Connection:
    """A connection that was made and closed: its client's side first."""

    address: str
    port: int
    peer: str
    peer_port: int
    sent: int
    """Bytes from client to server."""
    received: int
    """Bytes from server to client."""


def address(end: End, version: int = IPV4) -> str:
    """The address of an end."""
    return end.address if version == IPV4 else end.address6


def tcp_socket(end: End, version: int = IPV4) -> socket.socket:
    """A TCP socket in the namespace of an end, with a limit for its calls."""
    family = socket.AF_INET if version == IPV4 else socket.AF_INET6
    made: socket.socket = netns.create_socket(end.namespace, family, socket.SOCK_STREAM)
    made.settimeout(patience(30))
    return made


@contextmanager
def listening(end: End, version: int = IPV4, backlog: int = 16, port: int = 0) -> Iterator[socket.socket]:
    """A socket that listens at an end, on a port that is free."""
    with tcp_socket(end, version) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((address(end, version), port))
        server.listen(backlog)
        yield server


def connections(
    client: End, server: End, count: int = 1, sent: int = 1000, received: int = 500, version: int = IPV4
) -> list[Connection]:
    """Connections one after the other; each sends and receives that many bytes, and the client closes it first."""
    made = []
    with listening(server, version) as listener:
        for _ in range(count):
            with tcp_socket(client, version) as one:
                one.connect(listener.getsockname()[:2])
                with listener.accept()[0] as other:
                    other.settimeout(patience(30))
                    mine, theirs = one.getsockname(), one.getpeername()
                    _carry(one, other, sent)
                    _carry(other, one, received)
                    one.shutdown(socket.SHUT_WR)
                    assert other.recv(1) == b""
                made.append(Connection(mine[0], mine[1], theirs[0], theirs[1], sent, received))
    return made


def _carry(source: socket.socket, target: socket.socket, size: int) -> None:
    """Send that many bytes, and read them all on the other side."""
    if not size:
        return
    sender = threading.Thread(target=source.sendall, args=(b"x" * size,))
    sender.start()
    left = size
    while left:
        piece = target.recv(min(left, 1 << 16))
        assert piece, f"closed {left} bytes early"
        left -= len(piece)
    sender.join()


def refused(client: End, server: End, count: int = 1, version: int = IPV4) -> int:
    """Try to connect to a port where nobody listens; that port."""
    with listening(server, version) as listener:
        port = int(listener.getsockname()[1])
    for _ in range(count):
        with tcp_socket(client, version) as one:
            try:
                one.connect((address(server, version), port))
            except ConnectionRefusedError:
                continue
            raise AssertionError(f"somebody listens on port {port}")
    return port


def retransmits(client: End, server: End, least: int = 2, version: int = IPV4) -> tuple[Connection, int]:
    """A connection whose client sends while its link loses all; how often it retransmitted, at least *least* times.

    On a slow machine it may send its SYN and FIN again, too: these are not counted.
    """
    with listening(server, version) as listener, tcp_socket(client, version) as one:
        one.connect(listener.getsockname()[:2])
        mine, theirs = one.getsockname(), one.getpeername()
        with listener.accept()[0] as other, retransmits_of_port(mine[1]) as number:
            other.settimeout(patience(20))
            lose(server, 1.0, arriving=True)
            try:
                one.sendall(b"x" * 100)
                until(lambda: number() >= least, 20)
            finally:
                heal(server)
            assert other.recv(100) == b"x" * 100
            # Until it hears that all has arrived it may send it once more.
            until(lambda: not _unacknowledged(one))
            return Connection(mine[0], mine[1], theirs[0], theirs[1], 100, 0), number()


def _unacknowledged(sender: socket.socket) -> int:
    """Bytes that the other end has not acknowledged: ``SIOCOUTQ`` of tcp(7)."""
    return int.from_bytes(fcntl.ioctl(sender, termios.TIOCOUTQ, bytes(4)), sys.byteorder)


@contextmanager
def retransmits_of_port(port: int) -> Iterator[Callable[[], int]]:
    """What tells how many segments a connection of that local port has sent again, since here.

    By the kernel's own recorder of tracepoints: ``tcpi_total_retrans`` was seen on a busy machine (6.18) to count one
    more than the tracepoint was hit.
    """
    folder = Path(f"/sys/kernel/tracing/instances/pytrace-tests-{os.getpid()}-{port}")
    folder.mkdir()
    try:
        event = folder / "events" / "tcp" / "tcp_retransmit_skb" / "enable"
        event.write_text("1")

        def number() -> int:
            lines = (folder / "trace").read_text().splitlines()
            mine = [line for line in lines if f" sport={port} " in line and "state=TCP_ESTABLISHED" in line]
            return sum("err=" not in line or line.endswith("err=0") for line in mine)

        yield number
        event.write_text("0")
    finally:
        folder.rmdir()


@contextmanager
def waiting_to_be_accepted(
    client: End, server: End, count: int, backlog: int = 16, version: int = IPV4
) -> Iterator[int]:
    """Connections that nobody accepts: *count* are in the queue of a socket with that backlog; its port."""
    with ExitStack() as stack:
        listener = stack.enter_context(listening(server, version, backlog))
        for _ in range(count):
            stack.enter_context(tcp_socket(client, version)).connect(listener.getsockname()[:2])
        yield int(listener.getsockname()[1])


@dataclass(frozen=True)
class Datagrams:
    """Datagrams of one size from one end to the other, all received."""

    port: int
    peer_port: int
    count: int
    size: int


def datagrams(source: End, target: End, count: int = 3, size: int = 200) -> Datagrams:
    """Send datagrams and receive each."""
    with source.udp() as one, target.udp() as other:
        other.settimeout(patience(30))
        for _ in range(count):
            one.sendto(b"x" * size, other.getsockname())
            assert len(other.recv(size + 1)) == size
        return Datagrams(one.getsockname()[1], other.getsockname()[1], count, size)
