"""Tools about what connections and datagrams carry: tcptop, tcprtt, tcpsynbl, udpsnoop."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.kernel_features import Where, needs, needs_tracepoint
from tests.support.network import End
from tests.support.server import Running
from tests.support.tools import Row, ToolRun, check_columns
from tests.support.workloads import sockets
from tests.support.workloads.sockets import Connection
from tests.tools.conftest import Tool

Ends = tuple[End, End]
BOTH = pytest.mark.parametrize("version", [sockets.IPV4, sockets.IPV6])
ME = ("--pid", os.getpid())
_AT_RTT = 68
"""``tcpi_rtt`` in ``struct tcp_info``: microseconds."""


def endpoint(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def outputs(running: Running, text: str, more: int = 2) -> None:
    """Wait for further outputs, so that the last of them has all that was made before."""
    running.until_printed(text, running.stdout().count(text) + more, 20)


# ------------------------------------------------------------------------------------------------ tcptop


def kilobytes(run: ToolRun, local: str, remote: str) -> tuple[float, float]:
    """Received and sent in all intervals by one side of a connection."""
    rows = run.of(LADDR=local, RADDR=remote)
    assert rows, f"no row of {local} to {remote}: {run.result}"
    return sum(row["RX_KB"] for row in rows), sum(row["TX_KB"] for row in rows)


@pytest.mark.tool("tcptop", kernel="rawtracepoint")
@BOTH
def test_bytes_of_connections(tool: Tool, ends: Ends, version: int) -> None:
    made: list[Connection] = []

    def work(running: Running) -> None:
        made.extend(sockets.connections(*ends, count=2, sent=300 * 1024, received=20 * 1024, version=version))

    run = tool("tcptop", "-C", *ME, f"-{version}", work=work)
    check_columns(run)
    for one in made:
        client, server = endpoint(one.address, one.port), endpoint(one.peer, one.peer_port)
        assert kilobytes(run, client, server) == pytest.approx((20, 300), abs=0.5)
        assert kilobytes(run, server, client) == pytest.approx((300, 20), abs=0.5)
    assert {(row["PID"], row["COMM"]) for row in run.rows} == {
        (os.getpid(), Path("/proc/self/comm").read_text().strip())
    }
    for number, row in enumerate(run.rows[1:]):
        assert row["TOTAL_KB"] == pytest.approx(row["RX_KB"] + row["TX_KB"], abs=0.11), number


@pytest.mark.tool("tcptop")
def test_what_was_only_looked_at_does_not_count(tool: Tool, ends: Ends) -> None:
    names: list[tuple[str, str]] = []

    def work(running: Running) -> None:
        with sockets.listening(ends[1]) as listener, sockets.tcp_socket(ends[0]) as one:
            one.connect(listener.getsockname())
            with listener.accept()[0] as other:
                one.sendall(b"x" * 10240)
                for _ in range(3):
                    assert len(other.recv(10240, socket.MSG_PEEK | socket.MSG_WAITALL)) == 10240
                assert len(other.recv(10240, socket.MSG_WAITALL)) == 10240
            names.append((endpoint(*other_name(one)), endpoint(*one.getsockname())))
        outputs(running, '"row"', 1)

    run = tool("tcptop", "-C", *ME, work=work)
    assert kilobytes(run, *names[0]) == (10, 0)


def other_name(one: socket.socket) -> tuple[str, int]:
    name = one.getpeername()
    return name[0], name[1]


@pytest.mark.tool("tcptop")
@pytest.mark.parametrize("without", ["", "fentry"])
def test_files_that_are_sent(tool: Tool, ends: Ends, tmp_path: Path, without: str) -> None:
    if without:
        needs("kprobe")
    path = tmp_path / "file"
    path.write_bytes(b"x" * 40960)
    names: list[tuple[str, str]] = []

    def work(running: Running) -> None:
        with sockets.listening(ends[1]) as listener, sockets.tcp_socket(ends[0]) as one, path.open("rb") as file:
            one.connect(listener.getsockname())
            with listener.accept()[0] as other:
                assert one.sendfile(file) == 40960
                assert len(other.recv(40960, socket.MSG_WAITALL)) == 40960
            names.append((endpoint(*one.getsockname()), endpoint(*other_name(one))))

    run = tool("tcptop", "-C", *ME, *(("--no-feature", without) if without else ()), work=work)
    assert kilobytes(run, *names[0]) == (0, 40)
    assert kilobytes(run, *reversed(names[0])) == (40, 0)


_TALK = """
import socket
with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as one:
    other = listener.accept()[0]
    one.sendall(b"x" * 2048)
    assert len(other.recv(2048, socket.MSG_WAITALL)) == 2048
    other.close()
"""


def talk() -> str:
    """A command that sends two kilobytes to itself."""
    return f"{sys.executable} -c '{_TALK}'"


@pytest.mark.tool("tcptop")
def test_options_of_tcptop(tool: Tool) -> None:
    run = tool("tcptop", "-4", "-S", command=talk())
    assert sorted((row["RX_KB"], row["TX_KB"]) for row in run.rows) == [(0, 2), (2, 0)]
    assert "loadavg" not in tool("tcptop", "-4", "-S", command=talk(), form="text").stdout
    assert not tool("tcptop", "-6", command=talk()).rows
    text = tool("tcptop", "5", command=talk(), form="text")
    check_columns(text)
    assert "loadavg: " in text.lines[0]
    assert tool("tcptop", "-C", 1, 2, form="text", interrupt=False).stdout.count("loadavg") == 2
    assert {json.loads(line)["type"] for line in tool("tcptop", 5, command=talk()).stdout.splitlines()} <= {
        "attached_probes", "row",
    }  # fmt: skip
    refused = tool("tcptop", "--cgroupmap", "/sys/fs/bpf/x", status=1, interrupt=False)
    assert "--cgroup PATH" in refused.stderr


# ------------------------------------------------------------------------------------------------ tcprtt


def total(buckets: list[dict[str, int]]) -> int:
    return sum(bucket["count"] for bucket in buckets)


def histogram(run: ToolRun, name: str) -> dict[str, list[dict[str, int]]]:
    """The histograms of all outputs by key, one after the other."""
    found: dict[str, list[dict[str, int]]] = {}
    for message in run.messages:
        if message["type"] == "hist" and name in message["data"]:
            data: Any = message["data"][name]
            for key, buckets in (data if isinstance(data, dict) else {"": data}).items():
                found.setdefault(key, []).extend(buckets)
    return found


@pytest.mark.tool("tcprtt", kernel="rawtracepoint")
@BOTH
def test_round_trip_times(tool: Tool, ends: Ends, version: int) -> None:
    smoothed: list[int] = []

    with sockets.listening(ends[1], version) as listener, sockets.tcp_socket(ends[0], version) as one:
        one.connect(listener.getsockname()[:2])
        with listener.accept()[0] as other:

            def work(_run: Running) -> None:
                for _ in range(10):
                    one.sendall(b"x" * 100)
                    assert other.recv(100) == b"x" * 100
                    smoothed.append(struct.unpack_from("=I", one.getsockopt(socket.IPPROTO_TCP, 11, 104), _AT_RTT)[0])

            run = tool("tcprtt", "-P", listener.getsockname()[1], f"-{version}", *ME, work=work)
    buckets = histogram(run, "@rtt_us")[""]
    assert total(buckets) >= 5, "each acknowledgement counts"
    low, high = buckets[0]["min"], buckets[-1]["max"]
    assert any(low <= value <= high for value in smoothed), (smoothed, buckets)


@pytest.mark.tool("tcprtt")
def test_options_of_tcprtt(tool: Tool, ends: Ends) -> None:
    client, server = ends

    def work(_run: Running) -> None:
        sockets.connections(client, server, count=3)
        sockets.connections(client, server, count=3, version=sockets.IPV6)

    def keys(*options: object, name: str = "@rtt_us") -> set[str]:
        return set(histogram(tool("tcprtt", *ME, *options, work=work), name))

    addresses = {client.address, server.address, client.address6, server.address6}
    assert keys("--byladdr") == keys("-B") == addresses
    assert keys("-b", "-a", client.address) == {client.address}
    assert keys("-b", "--laddr", client.address6) == {client.address6}
    assert keys("-b", "-A", client.address) == {server.address}
    assert keys("-b", "-B", "-6") == {
        f"{client.address6},{server.address6}", f"{server.address6},{client.address6}"
    }  # fmt: skip
    assert keys("-4", "-b") == {client.address, server.address}
    assert not keys("--lport", 1), "nobody uses port 1"
    assert not keys("--raddr", "203.0.113.1")
    assert keys("-m", name="@rtt_ms") == {""}


@pytest.mark.tool("tcprtt")
def test_outputs_of_tcprtt(tool: Tool, ends: Ends) -> None:
    def work(running: Running) -> None:
        sockets.connections(*ends, count=3)
        outputs(running, "@rtt_us", 1)

    run = tool("tcprtt", *ME, "-i", 1, "-d", 60, "--extension", "-T", work=work, form="text")
    assert "@average_us: { .count = " in run.stdout
    assert run.lines[0].count(":") == 2, f"no time: {run.lines[0]}"
    assert tool("tcprtt", "-d", 1, interrupt=False).status == 0
    other = subprocess.Popen(["sleep", "600"])
    try:
        run = tool("tcprtt", "--pid", other.pid, work=lambda _run: sockets.connections(*ends))
        assert not histogram(run, "@rtt_us"), "connections of this process"
    finally:
        other.kill()
        other.wait()


# ------------------------------------------------------------------------------------------------ tcpsynbl


def queues(run: ToolRun, limit: int) -> dict[tuple[int, int], int]:
    buckets = histogram(run, "@backlog").get(str(limit), [])
    return {(bucket["min"], bucket["max"]): bucket["count"] for bucket in buckets}


@pytest.mark.tool("tcpsynbl", kernel="rawtracepoint")
@BOTH
def test_queues_of_connections_to_accept(tool: Tool, ends: Ends, version: int) -> None:
    other = sockets.IPV4 + sockets.IPV6 - version

    def work(_run: Running) -> None:
        with ExitStack() as stack:
            stack.enter_context(sockets.waiting_to_be_accepted(*ends, count=5, backlog=37, version=version))
            stack.enter_context(sockets.waiting_to_be_accepted(*ends, count=2, backlog=41, version=other))

    expected = {(0, 0): 1, (1, 1): 1, (2, 3): 2, (4, 7): 1}
    run = tool("tcpsynbl", work=work)
    assert queues(run, 37) == expected
    assert queues(run, 41) == {(0, 0): 1, (1, 1): 1}
    run = tool("tcpsynbl", *ME, f"-{version}", work=work)
    assert queues(run, 37) == expected
    assert not queues(run, 41)
    assert not queues(tool("tcpsynbl", "--comm", "nobody", work=work), 37)


# ------------------------------------------------------------------------------------------------ udpsnoop


def directions(run: ToolRun, port: int) -> dict[str, list[Row]]:
    """Rows with that local or remote port by direction."""
    found: dict[str, list[Row]] = {"send": [], "recv": []}
    for row in run.rows:
        if any(str(row[name]).endswith(f":{port}") for name in ("LADDR:LPORT", "RADDR:RPORT")):
            found[row["DIR"]].append(row)
    return found


@pytest.mark.tool("udpsnoop", kernel="rawtracepoint syscalls")
def test_datagrams(tool: Tool, ends: Ends) -> None:
    made: list[sockets.Datagrams] = []
    run = tool("udpsnoop", *ME, work=lambda _run: made.append(sockets.datagrams(*ends, count=3, size=200)))
    check_columns(run)
    (one,) = made
    source, target = f"{ends[0].address}:{one.port}", f"{ends[1].address}:{one.peer_port}"
    rows = directions(run, one.peer_port)
    assert [(row["LADDR:LPORT"], row["RADDR:RPORT"]) for row in rows["send"]] == [(source, target)] * 3
    assert [row["LADDR:LPORT"] for row in rows["recv"]] == [target] * 3
    assert [row["BYTES"] for row in rows["send"] + rows["recv"]] == [200] * 6
    assert {row["PID"] for row in run.rows} == {os.getpid()}


def exchange(family: int, address: str, target: str = "") -> tuple[int, int]:
    """Datagrams of 10 (asking for the sender), 20 (messages), 30 (connected) and 0 bytes, and a look at one; ports."""
    with socket.socket(family, socket.SOCK_DGRAM) as reader, socket.socket(family, socket.SOCK_DGRAM) as writer:
        reader.bind((address, 0))
        reader.settimeout(10)
        port = reader.getsockname()[1]
        name = (target or address, port)
        writer.sendto(b"x" * 10, name)
        assert len(reader.recv(100, socket.MSG_PEEK)) == 10
        assert len(reader.recvfrom(100)[0]) == 10
        writer.sendmsg([b"x" * 20], [], 0, name)
        assert len(reader.recvmsg(100)[0]) == 20
        writer.connect(name)
        for size in (30, 0):
            writer.send(b"x" * size)
            assert len(reader.recvfrom(100)[0]) == size
        return writer.getsockname()[1], port


@pytest.mark.tool("udpsnoop")
@pytest.mark.parametrize(
    ("family", "address", "target"),
    [(socket.AF_INET, "127.0.0.1", ""), (socket.AF_INET6, "::1", ""), (socket.AF_INET6, "::", "::ffff:127.0.0.1")],
)
def test_ways_to_send_and_receive(tool: Tool, family: int, address: str, target: str) -> None:
    ports: list[tuple[int, int]] = []
    run = tool("udpsnoop", *ME, work=lambda _run: ports.append(exchange(family, address, target)))
    ((writer, reader),) = ports
    rows = directions(run, reader)
    peer = "127.0.0.1" if target else address
    assert [row["BYTES"] for row in rows["send"]] == [10, 20, 30, 0]
    assert {row["RADDR:RPORT"] for row in rows["send"]} == {endpoint(peer, reader)}
    assert [row["BYTES"] for row in rows["recv"]] == [10, 20, 30, 0]
    assert {row["RADDR:RPORT"] for row in rows["recv"]} == {endpoint(peer, writer)}


@pytest.mark.tool("udpsnoop")
def test_the_sender_when_a_program_does_not_ask_for_it(tool: Tool) -> None:
    names: list[str] = []

    def work(_run: Running) -> None:
        kind = socket.AF_INET, socket.SOCK_DGRAM
        with socket.socket(*kind) as connected, socket.socket(*kind) as other:
            connected.bind(("127.0.0.1", 0))
            other.bind(("127.0.0.1", 0))
            connected.connect(other.getsockname())
            names.extend(endpoint("127.0.0.1", each.getsockname()[1]) for each in (connected, other))
            other.sendto(b"x", connected.getsockname())
            connected.recv(10)
            other.sendto(b"x", connected.getsockname())
            os.read(connected.fileno(), 10)
            connected.send(b"x")
            other.recv(10)

    run = tool("udpsnoop", *ME, work=work)
    senders = [row["RADDR:RPORT"] for row in run.rows if row["DIR"] == "recv"]
    assert senders[:2] == [names[1]] * 2
    assert senders[2] in (names[0], "?")


@pytest.mark.tool("udpsnoop")
@pytest.mark.parametrize("without", ["", "fentry", "fentry,kprobe"])
def test_other_kernels_show_the_same(tool: Tool, without: str) -> None:
    options = ("--no-feature", without) if without else ()
    if without == "fentry":
        needs("kprobe")
    elif without:
        needs_tracepoint("sock:sock_send_length", Where(since=(6, 3)))
    ports: list[tuple[int, int]] = []

    def work(_run: Running) -> None:
        ports.extend(exchange(socket.AF_INET, "127.0.0.1") for _ in range(2))

    run = tool("udpsnoop", *ME, *options, work=work)
    (_, first), (_, second) = ports
    assert [row["BYTES"] for row in directions(run, first)["recv"]] == [10, 20, 30, 0]
    run = tool("udpsnoop", *ME, *options, "-P", f"1,{second}", work=work)
    assert not directions(run, second)["recv"], "ports of the first run"


@pytest.mark.tool("udpsnoop")
def test_ports_of_udpsnoop(tool: Tool) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as reader:
        reader.bind(("127.0.0.1", 0))
        port = reader.getsockname()[1]

        def work(_run: Running) -> None:
            exchange(socket.AF_INET, "127.0.0.1")
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as writer:
                writer.sendto(b"x" * 7, ("127.0.0.1", port))

        run = tool("udpsnoop", *ME, "-P", f"1,{port}", work=work)
        assert [(row["DIR"], row["BYTES"]) for row in run.rows] == [("send", 7)]
        text = tool("udpsnoop", *ME, "--port", port, work=work, form="text")
        check_columns(text)
        assert len(text.lines) == 2
