"""Tools about TCP connections: tcpconnect, tcpaccept, tcpconnlat, tcplife, tcpretrans, tcpdrop, tcpstates, solisten."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.network import End, heal, lose
from tests.support.patience import patience
from tests.support.server import Running
from tests.support.tools import Row, ToolRun, check_columns
from tests.support.waiting import until
from tests.support.workloads import sockets
from tests.support.workloads.sockets import Connection
from tests.tools.conftest import Tool

Ends = tuple[End, End]
BOTH = pytest.mark.parametrize("version", [sockets.IPV4, sockets.IPV6])


def me() -> tuple[object, ...]:
    """Options for events of this process."""
    return ("-p", os.getpid())


def endpoint(version: int, address: str, port: int) -> str:
    return f"[{address}]:{port}" if version == sockets.IPV6 else f"{address}:{port}"


# ------------------------------------------------------------------------------------------------ tcpconnect


@pytest.mark.tool("tcpconnect")
@BOTH
def test_connections_made(tool: Tool, ends: Ends, version: int) -> None:
    made: list[Connection] = []
    closed: list[int] = []

    def work(_run: Running) -> None:
        made.extend(sockets.connections(*ends, count=3, version=version))
        closed.append(sockets.refused(*ends, version=version))

    run = tool("tcpconnect", *me(), "-U", work=work)
    check_columns(run)
    for one in made:
        (row,) = run.of(SADDR=one.address, LPORT=one.port, DADDR=one.peer, DPORT=one.peer_port)
        assert (row["PID"], row["IP"], row["UID"]) == (os.getpid(), version, os.getuid())
        assert row["TIME(s)"] > 0
    assert len(run.of(DPORT=closed[0])) == 1
    assert len(run.rows) == 4


@pytest.mark.tool("tcpconnect")
def test_connections_to_some_ports_and_of_one_version(tool: Tool, ends: Ends) -> None:
    ports: list[int] = []
    with ExitStack() as stack:
        servers = [stack.enter_context(sockets.listening(ends[1], version)) for version in (4, 4, 6)]
        ports = [server.getsockname()[1] for server in servers]

        def work(_run: Running) -> None:
            for server, version in zip(servers, (4, 4, 6), strict=True):
                with sockets.tcp_socket(ends[0], version) as one:
                    one.connect(server.getsockname()[:2])

        def seen(*options: object) -> set[int]:
            return {row["DPORT"] for row in tool("tcpconnect", *me(), *options, work=work).rows}

        assert seen("-P", f"{ports[0]},{ports[2]}", "-L", "-t") == {ports[0], ports[2]}
        assert seen("-4") == {ports[0], ports[1]}
        assert seen("-6") == {ports[2]}
        assert seen("-u", "nobody") == set()


@pytest.mark.tool("tcpconnect")
def test_an_attempt_that_is_not_answered_is_shown_at_once(tool: Tool, ends: Ends) -> None:
    def work(run: Running) -> None:
        with sockets.tcp_socket(ends[0]) as one:
            one.setblocking(False)
            one.connect_ex(("192.0.2.77", 7777))
            run.until_printed("7777")

    (row,) = tool("tcpconnect", *me(), work=work).rows
    assert (row["DADDR"], row["SADDR"]) == ("192.0.2.77", ends[0].address)
    assert row["LPORT"] > 0


@pytest.mark.tool("tcpconnect")
def test_ipv4_over_an_ipv6_socket_is_ipv4(tool: Tool, ends: Ends) -> None:
    def work(_run: Running) -> None:
        with sockets.listening(ends[1]) as server, sockets.tcp_socket(ends[0], sockets.IPV6) as one:
            one.connect((f"::ffff:{ends[1].address}", server.getsockname()[1]))

    (row,) = tool("tcpconnect", *me(), "-4", work=work).rows
    assert (row["IP"], row["SADDR"], row["DADDR"]) == (4, ends[0].address, ends[1].address)


@pytest.mark.tool("tcpconnect")
def test_connections_are_counted(tool: Tool, ends: Ends) -> None:
    made: list[Connection] = []

    def work(_run: Running) -> None:
        made.extend(sockets.connections(*ends, count=4))
        made.extend(sockets.connections(*ends, count=1))

    run = tool("tcpconnect", *me(), "--count", work=work)
    assert [(row["SADDR"], row["DPORT"], row["CONNECTS"]) for row in run.rows] == [
        (made[0].address, made[0].peer_port, 4),
        (made[4].address, made[4].peer_port, 1),
    ]


@pytest.mark.tool("tcpconnect", kernel="uprobe")
def test_names_that_were_looked_up(tool: Tool, tmp_path: Path) -> None:
    program = tmp_path / "connects.py"
    program.write_text(
        "import socket; s = socket.create_server(('127.0.0.1', 0)); p = s.getsockname()[1]\n"
        "for name in ('127.0.0.1', 'localhost'): socket.create_connection((name, p)).close()\n"
    )
    run = tool("tcpconnect", "-d", "--cmd", f"{sys.executable} {program}", interrupt=False)
    assert [row["QUERY"] for row in run.rows] == ["127.0.0.1", "localhost"]


# ------------------------------------------------------------------------------------------------ tcpaccept


@pytest.mark.tool("tcpaccept")
@BOTH
def test_connections_accepted(tool: Tool, ends: Ends, version: int) -> None:
    made: list[Connection] = []

    def work(_run: Running) -> None:
        made.extend(sockets.connections(*ends, count=3, version=version))

    run = tool("tcpaccept", *me(), "-t", work=work)
    check_columns(run)
    for one in made:
        (row,) = run.of(RADDR=one.address, RPORT=one.port, LADDR=one.peer, LPORT=one.peer_port)
        assert (row["PID"], row["IP"]) == (os.getpid(), version)
    assert len(run.rows) == 3


@pytest.mark.tool("tcpaccept")
def test_accepted_at_some_ports_and_of_one_version(tool: Tool, ends: Ends) -> None:
    with sockets.listening(ends[1]) as server:
        port = server.getsockname()[1]

        def work(_run: Running) -> None:
            with sockets.tcp_socket(ends[0]) as one:
                one.connect(server.getsockname())
                server.accept()[0].close()
            sockets.connections(*ends, version=sockets.IPV6)
            sockets.connections(*ends)

        assert [row["LPORT"] for row in tool("tcpaccept", *me(), "-P", f"1,{port}", work=work).rows] == [port]
        assert [row["IP"] for row in tool("tcpaccept", *me(), "-6", work=work).rows] == [6]
        run = tool("tcpaccept", *me(), "-4", "-T", work=work)
        assert [row["IP"] for row in run.rows] == [4, 4]
        assert len(run.rows[0]["TIME"]) == len("HH:MM:SS")


@pytest.mark.tool("tcpaccept", "tcpretrans", kernel="kprobe")
def test_where_functions_have_kprobes_only(tool: Tool, ends: Ends) -> None:
    made: list[Connection] = []
    without = ("--no-feature", "fentry")
    run = tool("tcpaccept", *without, *me(), work=lambda _: made.extend(sockets.connections(*ends, count=2)))
    assert [row["RPORT"] for row in run.rows] == [one.port for one in made]
    again: list[tuple[Connection, int]] = []
    run = tool("tcpretrans", "-l", *without, *me(), work=lambda _: again.append(sockets.retransmits(*ends)))
    ((one, number),) = again
    assert len(of_data(run, 4, one)) == number


# ------------------------------------------------------------------------------------------------ tcpconnlat


@pytest.mark.tool("tcpconnlat")
@BOTH
def test_times_to_connect(tool: Tool, ends: Ends, version: int) -> None:
    made: list[Connection] = []
    closed: list[int] = []

    def work(_run: Running) -> None:
        made.extend(sockets.connections(*ends, count=2, version=version))
        closed.append(sockets.refused(*ends, version=version))

    run = tool("tcpconnlat", *me(), work=work)
    check_columns(run)
    for one in made:
        (row,) = [row for row in run.of(DADDR=one.peer, DPORT=one.peer_port) if row is run.rows[made.index(one)]]
        assert (row["PID"], row["IP"], row["SADDR"], row["RESULT"]) == (os.getpid(), version, one.address, "Success")
        assert 0 < row["LAT(ms)"] < patience(10_000)
    assert [row["RESULT"] for row in run.of(DPORT=closed[0])] == ["Connection refused"]


@pytest.mark.tool("tcpconnlat")
def test_slow_attempts_only(tool: Tool, ends: Ends) -> None:
    def work(_run: Running) -> None:
        sockets.connections(*ends, count=2)
        with sockets.tcp_socket(ends[0]) as one:
            one.settimeout(0.3)
            with pytest.raises(OSError):
                one.connect(("192.0.2.78", 7878))

    (row,) = tool("tcpconnlat", *me(), "-L", "-t", "250", work=work).rows
    assert (row["DADDR"], row["RESULT"]) == ("192.0.2.78", "Operation Canceled")
    assert row["LAT(ms)"] >= 250
    assert row["LPORT"] > 0
    assert row["TIME(s)"] > 0.25
    assert not tool("tcpconnlat", *me(), "-6", work=work).rows
    assert len(tool("tcpconnlat", *me(), "-4", work=work).rows) == 3


# ------------------------------------------------------------------------------------------------ tcplife


@pytest.mark.tool("tcplife")
@BOTH
def test_lives_of_connections(tool: Tool, ends: Ends, version: int) -> None:
    made: list[Connection] = []

    def work(_run: Running) -> None:
        made.extend(sockets.connections(*ends, sent=300_000, received=70_000, count=2, version=version))

    run = tool("tcplife", *me(), "-w", "-t", work=work)
    check_columns(run)
    for one in made:
        (client,) = run.of(LADDR=one.address, LPORT=one.port, RADDR=one.peer, RPORT=one.peer_port)
        (server,) = run.of(LADDR=one.peer, LPORT=one.peer_port, RADDR=one.address, RPORT=one.port)
        for row, sent, received in ((client, one.sent, one.received), (server, one.received, one.sent)):
            assert (row["PID"], row["COMM"], row["IP"]) == (os.getpid(), own_name(), version)
            assert (row["TX_KB"], row["RX_KB"]) == (sent // 1024, received // 1024)
            assert 0 < row["MS"] < patience(10_000)
    assert len(run.rows) == 4


def own_name() -> str:
    with open("/proc/self/comm") as file:
        return file.read().rstrip("\n")


@pytest.mark.tool("tcplife")
def test_lives_at_some_ports(tool: Tool, ends: Ends) -> None:
    made: list[Connection] = []
    with sockets.listening(ends[1]) as server, sockets.tcp_socket(ends[0]) as earlier:
        earlier.connect(server.getsockname())
        port = server.getsockname()[1]

        def work(_run: Running) -> None:
            made.extend(sockets.connections(*ends))
            with sockets.tcp_socket(ends[0]) as one:
                one.connect(server.getsockname())
                with server.accept()[0], server.accept()[0]:
                    earlier.close()

        run = tool("tcplife", *me(), "-D", port, "-T", "-4", work=work)
        assert [row["RPORT"] for row in run.rows] == [port]  # not the one from before
        assert len(run.rows[0]["TIME"]) == len("HH:MM:SS")
    run = tool("tcplife", *me(), "-L", f"{port},1", work=lambda _: made.extend(sockets.connections(*ends)))
    assert not run.rows
    assert not tool("tcplife", *me(), "-6", work=lambda _: made.extend(sockets.connections(*ends))).rows


# ------------------------------------------------------------------------------------------------ tcpstates


@pytest.mark.tool("tcpstates")
@BOTH
def test_states(tool: Tool, ends: Ends, version: int) -> None:
    made: list[Connection] = []
    run = tool("tcpstates", *me(), work=lambda _: made.extend(sockets.connections(*ends, version=version)))
    check_columns(run)
    (one,) = made
    assert {(row["PID"], row["COMM"]) for row in run.rows} == {(os.getpid(), own_name())}
    (opened,) = run.of(NEWSTATE="SYN_SENT")
    mine = run.of(SKADDR=opened["SKADDR"])
    assert steps(mine)[:4] == ["CLOSE", "SYN_SENT", "ESTABLISHED", "FIN_WAIT1"]
    assert mine[-1]["NEWSTATE"] == "CLOSE"
    assert [(row["LADDR"], row["LPORT"]) for row in mine[1:]] == [(one.address, one.port)] * (len(mine) - 1)
    (arrived,) = run.of(NEWSTATE="SYN_RECV")
    theirs = run.of(SKADDR=arrived["SKADDR"])
    assert steps(theirs) == ["LISTEN", "SYN_RECV", "ESTABLISHED", "CLOSE_WAIT", "LAST_ACK", "CLOSE"]
    assert {(row["RADDR"], row["RPORT"]) for row in theirs[1:]} == {(one.address, one.port)}  # 6.1 sets it late
    assert {row["SINCE"] for row in run.rows} == {"state"}


def steps(rows: list[Row]) -> list[str]:
    """The states of a socket; each change begins where the one before it ended."""
    found: list[str] = []
    for row in rows:
        old, new = row["OLDSTATE"], row["NEWSTATE"]
        assert not found or found[-1] == old
        found = [*(found or [old]), new]
    return found


@pytest.mark.tool("tcpstates")
def test_states_of_sockets_from_before(tool: Tool, ends: Ends) -> None:
    with sockets.listening(ends[1]) as server:
        port = server.getsockname()[1]

        def work(_run: Running) -> None:
            sockets.connections(*ends)
            server.close()

        run = tool("tcpstates", *me(), "-L", port, "-T", "-t", "-w", "-4", work=work)
    (row,) = run.rows
    assert (row["OLDSTATE"], row["NEWSTATE"], row["SINCE"], row["PID"]) == ("LISTEN", "CLOSE", "tracing", os.getpid())
    assert row["MS"] <= row["TIME(s)"] * 1000 + 0.001
    assert not tool("tcpstates", *me(), "-D", "1", work=lambda _: sockets.connections(*ends)).rows
    assert not tool("tcpstates", *me(), "-6", work=lambda _: sockets.connections(*ends)).rows


# ------------------------------------------------------------------------------------------------ tcpretrans


def of_data(run: ToolRun, version: int, one: Connection) -> list[Row]:
    """Segments with data that the client sent again, without SYN and FIN."""
    return run.of(**{"LADDR:LPORT": endpoint(version, one.address, one.port), "STATE": "ESTABLISHED"})


@pytest.mark.tool("tcpretrans")
@BOTH
def test_retransmits(tool: Tool, ends: Ends, version: int) -> None:
    made: list[tuple[Connection, int]] = []

    def work(run: Running) -> None:
        made.append(sockets.retransmits(*ends, version=version))
        one, number = made[0]
        run.until_printed(endpoint(version, one.address, one.port), number)

    run = tool("tcpretrans", *me(), "-s", work=work)
    check_columns(run)
    ((one, number),) = made
    mine = of_data(run, version, one)
    assert len(mine) == number
    for row in mine:
        assert row["RADDR:RPORT"] == endpoint(version, one.peer, one.peer_port)
        assert (row["PID"], row["IP"]) == (os.getpid(), version)
        assert row["T>"] in ("R>", "L>")
    assert mine[-1]["T>"] == "R>"
    assert len({row["SEQ"] for row in mine}) == 1


@pytest.mark.tool("tcpretrans")
def test_retransmits_of_a_connection_from_before_are_counted(tool: Tool, ends: Ends) -> None:
    with sockets.listening(ends[1]) as server, sockets.tcp_socket(ends[0]) as one:
        one.connect(server.getsockname())
        with server.accept()[0], sockets.retransmits_of_port(one.getsockname()[1]) as number:

            def work(_run: Running) -> None:
                lose(ends[1], 1.0, arriving=True)
                try:
                    one.sendall(b"x")
                    until(lambda: number() >= 2, 20)
                finally:
                    heal(ends[1])

            run = tool("tcpretrans", *me(), "--count", "-4", work=work)
            (row,) = run.of(**{"LADDR:LPORT": endpoint(4, *one.getsockname())})
            assert 2 <= row["RETRANSMITS"] <= number()


@pytest.mark.tool("tcpretrans")
def test_loss_probes(tool: Tool, ends: Ends) -> None:
    made: list[tuple[Connection, int]] = []

    def work(run: Running) -> None:
        made.append(sockets.retransmits(*ends, version=6))
        one, number = made[0]
        run.until_printed(endpoint(6, one.address, one.port), number)

    run = tool("tcpretrans", "-l", "-6", *me(), work=work, troubles=("cannot probe tcp_send_loss_probe",))
    ((one, number),) = made
    assert len(of_data(run, 6, one)) == number


# ------------------------------------------------------------------------------------------------ tcpdrop


@pytest.mark.tool("tcpdrop")
@BOTH
def test_drops(tool: Tool, ends: Ends, version: int) -> None:
    closed: list[int] = []
    options = ("--netns-id", f"-{version}")
    run = tool("tcpdrop", *options, work=lambda _: closed.append(sockets.refused(*ends, count=2, version=version)))
    check_columns(run)
    drops = run.of(**{"DADDR:DPORT": endpoint(version, sockets.address(ends[1], version), closed[0])})
    assert len(drops) == 2
    for row in drops:
        assert row["SADDR:SPORT"].rpartition(":")[0] == endpoint(version, sockets.address(ends[0], version), 0)[:-2]
        assert (row["IP"], row["(FLAGS)"], row["PID"], row["STATE"]) == (version, "SYN", 0, "NONE")
        assert row["REASON"] == "SKB_DROP_REASON_NO_SOCKET"
        assert row["NETNS"] == ends[1].inode
        assert any(frame.startswith(f"tcp_v{version}_rcv+") for frame in row["STACK"])
    assert {row["IP"] for row in run.rows} == {version}


@pytest.mark.tool("tcpdrop")
def test_drops_in_the_namespace_of_a_process(tool: Tool, ends: Ends) -> None:
    inside = ["ip", "netns", "exec", ends[1].namespace, "sleep", "300"]
    sleeper = subprocess.Popen(inside)
    try:
        until(lambda: os.stat(f"/proc/{sleeper.pid}/ns/net").st_ino == ends[1].inode, 10)
        closed: list[int] = []
        other: list[int] = []

        def work(_run: Running) -> None:
            closed.append(sockets.refused(*ends))
            other.append(sockets.refused(ends[1], ends[0]))

        run = tool("tcpdrop", "--pid-netns", sleeper.pid, "-a", work=work)
    finally:
        sleeper.kill()
        sleeper.wait()
    assert run.of(**{"DADDR:DPORT": f"{ends[1].address}:{closed[0]}", "(FLAGS)": "SYN"})
    assert not run.of(**{"DADDR:DPORT": f"{ends[0].address}:{other[0]}", "(FLAGS)": "SYN"})


# ------------------------------------------------------------------------------------------------ solisten


@pytest.mark.tool("solisten")
def test_sockets_that_listen(tool: Tool, ends: Ends) -> None:
    ports: list[int] = []

    def work(_run: Running) -> None:
        for end, version, backlog in ((ends[0], 4, 3), (ends[1], 6, 5)):
            with sockets.listening(end, version, backlog) as server:
                ports.append(server.getsockname()[1])
        with socket.socket(type=socket.SOCK_DGRAM) as datagrams, pytest.raises(OSError, match="not supported"):
            datagrams.listen()
        with socket.socket(socket.AF_UNIX) as local:
            local.bind("")
            local.listen()

    run = tool("solisten", *me(), "--show-netns", work=work)
    check_columns(run)
    assert [(row["PROTO"], row["BACKLOG"], row["ADDR"], row["PORT"], row["NETNS"]) for row in run.rows] == [
        ("TCPv4", 3, ends[0].address, ports[0], ends[0].inode),
        ("TCPv6", 5, ends[1].address6, ports[1], ends[1].inode),
    ]
    assert {row["PID"] for row in run.rows} == {os.getpid()}
    for namespace in (ends[1].inode, ends[1].namespace):
        ports.clear()
        run = tool("solisten", *me(), "-n", namespace, work=work)
        assert [row["PORT"] for row in run.rows] == [ports[1]]


# ------------------------------------------------------------------------------------------------ all


@pytest.mark.tool("tcpstates", "tcpconnect", "tcpaccept")
@pytest.mark.parametrize(
    ("name", "option", "instead"),
    [
        ("tcpstates", "-Y", "systemd-cat"),
        ("tcpconnect", "--cgroupmap=/x", "--cgroup PATH"),
        ("tcpaccept", "--mntnsmap=/x", "--container ID"),
    ],
)
def test_options_that_are_something_else_here(tool: Tool, name: str, option: str, instead: str) -> None:
    run = tool(name, option, status=1, interrupt=False)
    assert instead in run.stderr
