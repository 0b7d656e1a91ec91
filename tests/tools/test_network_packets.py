"""Tools about packets, and about libraries for the network: netqtop, skbdrop, gethostlatency, sslsnoop."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from pyroute2 import IPRoute

from tests.support.kernel_features import Where, needs_type
from tests.support.network import End
from tests.support.server import Running
from tests.support.tools import Row, ToolRun, cannot, check_columns
from tests.support.workloads import lookups, tls
from tests.tools.conftest import Tool

_ETHERTYPE = 0x88B5
"""For local experiments: no protocol takes such frames."""
_numbers = count()
RANGES = ("[0,64)", "[64,512)", "[512,2K)", "[2K,16K)", "[16K,64K)")


@contextmanager
def cable(queues: int = 2) -> Iterator[tuple[str, str]]:
    """Names of two virtual devices of this namespace with a link between them, on which nobody else sends."""
    number = next(_numbers)
    names = f"pt{os.getpid() % 100000}q{number}a", f"pt{os.getpid() % 100000}q{number}b"
    with IPRoute() as routes:
        shape = {"num_tx_queues": queues, "num_rx_queues": queues}
        routes.link("add", ifname=names[0], kind="veth", peer={"ifname": names[1], **shape}, **shape)
        try:
            for name in names:
                setting = Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6")
                if setting.exists():
                    setting.write_text("1")
                (index,) = routes.link_lookup(ifname=name)
                routes.link("set", index=index, mtu=9000, state="up")
            yield names
        finally:
            routes.link("del", ifname=names[0])


def frames(device: str, sizes: list[int]) -> None:
    """Send frames of that many bytes with their headers."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sender:
        sender.bind((device, _ETHERTYPE))
        for size in sizes:
            assert sender.send(b"\xff" * 12 + _ETHERTYPE.to_bytes(2, "big") + b"x" * (size - 14)) == size


def summed(run: ToolRun, queue: str) -> dict[str, float]:
    """What all intervals counted for a queue."""
    rows = run.of(QUEUE=queue)
    assert rows, f"no row of {queue}: {run.result}"
    return {name: sum(row[name] for row in rows) for name in (*RANGES, "BPS", "PPS")}


# ------------------------------------------------------------------------------------------------ netqtop


@pytest.mark.tool("netqtop", kernel="rawtracepoint")
@pytest.mark.parametrize("received", [False, True])
def test_packets_of_queues(tool: Tool, received: bool) -> None:
    sizes = [60, 60, 60, 100, 600, 600, 3000]

    with cable() as names:

        def work(running: Running) -> None:
            frames(names[0], sizes)
            running.until_printed('"rx-0"' if received else '"tx-0"', 2, 20)

        run = tool("netqtop", "-n", names[1 if received else 0], work=work)
    check_columns(run)
    way, other = ("rx", "tx") if received else ("tx", "rx")
    header = 14 if received else 0
    numbers = summed(run, f"{way}-total")
    assert [numbers[name] for name in RANGES] == [3, 1, 2, 1, 0]
    assert numbers["BPS"] == sum(sizes) - header * len(sizes)
    assert numbers["PPS"] == len(sizes)
    assert {row["QUEUE"] for row in run.rows} == {f"{way}-0", f"{way}-1", f"{way}-total", f"{other}-total"}
    each = [summed(run, f"{way}-{queue}") for queue in (0, 1)]
    assert all(each[0][name] + each[1][name] == numbers[name] for name in numbers)
    assert not any(summed(run, f"{other}-total").values())
    busy = [row for row in run.of(QUEUE=f"{way}-total") if row["PPS"]]
    assert all(row["AVG_SIZE"] == int(row["BPS"] / row["PPS"]) for row in busy)


@pytest.mark.tool("netqtop")
def test_options_of_netqtop(tool: Tool) -> None:
    with cable(1) as names:

        def work(running: Running) -> None:
            frames(names[0], [1000] * 10)
            running.until_printed("tx-0", 2, 20)

        run = tool("netqtop", "--name", names[0], "-i", 2, "-t", work=work)
        assert summed(run, "tx-0")["BPS"] == 5000, "bytes per second in two seconds"
        text = tool("netqtop", "-n", names[0], work=work, form="text")
        check_columns(text)
        other = tool(
            "netqtop", "-n", names[1], "--comm", "nobody", until="tx-total", troubles=("belong to no process",)
        )
        assert not summed(other, "rx-total")["PPS"], "sent before it began"
    missing = tool("netqtop", "-n", "no-such-device", status=1, interrupt=False)
    assert "there is no network interface no-such-device" in missing.stderr
    assert "-n DEVICE" in tool("netqtop", status=1, interrupt=False).stderr
    assert "option -i needs a time in seconds" in tool("netqtop", "-n", "lo", "-i", 0, status=1, interrupt=False).stderr


# ------------------------------------------------------------------------------------------------ skbdrop

REASON = "SKB_DROP_REASON_NO_SOCKET"
KNOWN = Where(since=(5, 17))


def unwanted(ends: tuple[End, End], number: int) -> None:
    """Datagrams to a port where nobody reads: each is dropped on arrival at the second end."""
    with ends[1].udp() as other:
        name = other.getsockname()
    for _ in range(number):
        with ends[0].udp() as one:
            one.sendto(b"x", name)


@pytest.mark.tool("skbdrop", kernel="rawtracepoint")
def test_drops_by_reason_and_function(tool: Tool, ends: tuple[End, End]) -> None:
    needs_type("enum skb_drop_reason", KNOWN)
    device = ends[1].interface
    run = tool("skbdrop", "-i", device, work=lambda _run: unwanted(ends, 7))
    check_columns(run)
    (row,) = run.of(REASON=REASON)
    assert row["COUNT"] == 7
    assert "udp" in row["FUNC"]
    refused = tool("skbdrop", "--iface", "none", status=1, interrupt=False)
    assert "there is no network interface none" in refused.stderr


@pytest.mark.tool("skbdrop")
def test_drops_each_interval(tool: Tool, ends: tuple[End, End]) -> None:
    device = ends[1].interface

    def work(running: Running) -> None:
        unwanted(ends, 5)
        running.until_printed("NO_SOCKET", 1, 20)
        unwanted(ends, 4)

    run = tool("skbdrop", "-i", device, 1, work=work)
    assert sum(row["COUNT"] for row in run.of(REASON=REASON)) == 9
    assert tool("skbdrop", "-i", device, 1, 2, interrupt=False).status == 0
    text = tool("skbdrop", work=lambda _run: unwanted(ends, 5), form="text")
    check_columns(text)
    (line,) = [line for line in text.lines if line.startswith(REASON) and int(line.split()[2]) >= 5]
    assert "udp" in line


@pytest.mark.tool("skbdrop")
def test_stacks_of_drops(tool: Tool, ends: tuple[End, End]) -> None:
    run = tool("skbdrop", "-s", "-i", ends[1].interface, work=lambda _run: unwanted(ends, 6))
    assert not run.rows
    stacks = {key: number for key, number in run.maps["@stacks"].items() if key.startswith(REASON)}
    assert sum(stacks.values()) == 6
    assert all("udp" in key and "ip" in key for key in stacks)


# ---------------------------------------------------------------------------------------------- network libraries
# Tools about libraries for the network: gethostlatency, sslsnoop.


# ------------------------------------------------------------------------------------------------ gethostlatency


@pytest.mark.tool("gethostlatency", kernel="uprobe")
def test_look_ups_of_names(tool: Tool, tmp_path: Path) -> None:
    names = ["localhost", "host.pytrace.test", "host.pytrace.test"]
    asked: list[int] = []
    run = tool("gethostlatency", work=lambda _run: asked.append(lookups.look_up(tmp_path, names)))
    check_columns(run)
    rows = run.of(PID=asked[0])
    assert [row["HOST"] for row in rows] == names
    assert all(0 < row["LAT(ms)"] < 60000 for row in rows)
    assert {row["COMM"] for row in rows} == {os.path.basename(sys.executable)[:15]}


_OLD_CALLS = """
import ctypes, socket
libc = ctypes.CDLL(None)
libc.gethostbyname(b"127.0.0.1")
libc.gethostbyname2(b"127.0.0.2", socket.AF_INET)
socket.gethostbyname_ex("127.0.0.3")
socket.getaddrinfo(None, 80)
"""


@pytest.mark.tool("gethostlatency")
def test_a_call_within_another_is_not_shown(tool: Tool) -> None:
    run = tool("gethostlatency", command=f"{sys.executable} -c '{_OLD_CALLS}'")
    assert [row["HOST"] for row in run.rows] == ["127.0.0.1", "127.0.0.2", "127.0.0.3"]


@pytest.mark.tool("gethostlatency")
def test_look_ups_of_one_process(tool: Tool, tmp_path: Path) -> None:
    def work(_run: Running) -> None:
        socket.getaddrinfo("127.0.0.9", None)
        lookups.look_up(tmp_path, ["localhost"])

    run = tool("gethostlatency", "-p", os.getpid(), work=work)
    assert [(row["PID"], row["HOST"]) for row in run.rows] == [(os.getpid(), "127.0.0.9")]
    text = tool("gethostlatency", "-p", os.getpid(), work=work, form="text")
    check_columns(text)
    assert text.lines[1].endswith("127.0.0.9")


# ------------------------------------------------------------------------------------------------ sslsnoop


def carried(rows: list[Row]) -> list[tuple[str, int]]:
    """Calls that carried something: function, without the form of its name, and length."""
    return [(row["FUNC"].removesuffix("_ex"), row["LEN"]) for row in rows if row["LEN"] > 0]


@pytest.mark.tool("sslsnoop", kernel="uprobe")
@pytest.mark.needs("openssl")
def test_calls_of_openssl(tool: Tool, folder: Path) -> None:
    clients: list[int] = []

    with tls.tls_server(folder) as server:

        def work(_run: Running) -> None:
            clients.append(tls.tls_client(server, "hello")[0])

        run = tool("sslsnoop", "--data", "-x", "--handshake", work=work)
    check_columns(run)
    rows = run.of(PID=clients[0])
    assert carried([row for row in rows if "handshake" not in row["FUNC"]]) == [("SSL_write", 6), ("SSL_read", 6)]
    texts = {row["FUNC"].removesuffix("_ex"): row["DATA"] for row in rows if row["LEN"] > 0}
    assert (texts["SSL_write"], texts["SSL_read"]) == (r"hello\x0a", r"olleh\x0a")
    assert {(row["COMM"], row["UID"], row["TID"]) for row in rows} == {("openssl", os.getuid(), clients[0])}
    assert all(row["LAT(ms)"] >= 0 and row["TIME(us)"] > 0 for row in rows)
    shakes = run.of(FUNC="SSL_do_handshake", PID=server.pid)
    assert [row["LEN"] for row in shakes] == [1], "the server's handshake"
    assert shakes[0]["LAT(ms)"] > 0


def in_this_process(
    tool: Tool, folder: Path, *options: object, line: bytes = b"abcdefgh", form: str = "json"
) -> ToolRun:
    """A run that sees a line sent and received by Python."""
    with tls.tls_server(folder) as server:

        def work(_run: Running) -> None:
            assert tls.tls_in_this_process(server, line) == line[::-1] + b"\n"

        return tool("sslsnoop", "--pid", os.getpid(), *options, work=work, form=form)


@pytest.mark.tool("sslsnoop")
def test_text_is_shown_as_far_as_asked(tool: Tool, folder: Path) -> None:
    whole = [("SSL_write", 9), ("SSL_read", 9)]
    run = in_this_process(tool, folder)
    assert carried(run.rows) == whole
    assert "DATA" not in run.rows[0].keys() | {name.upper() for name in run.rows[0]}
    assert not run.of(FUNC="SSL_do_handshake")
    run = in_this_process(tool, folder, "--data", "--max-buffer-size", 3, "-l", "-d")
    assert [row["DATA"] for row in run.rows if row["LEN"] > 0] == ["abc", "hgf"]
    run = in_this_process(tool, folder, "--hexdump", line=b"0123456789abcdefg", form="text")
    check_columns(run)
    lines = [line for line in run.lines if line.startswith("  0")]
    assert [line.split() for line in lines[:2]] == [
        ["0000", *(f"{byte:02x}" for byte in b"0123456789abcdef"), "0123456789abcdef"], ["0010", "67", "0a", r"g\x0a"],
    ]  # fmt: skip


@pytest.mark.tool("sslsnoop")
def test_threads_and_libraries(tool: Tool, folder: Path) -> None:
    name = Path("/proc/self/comm").read_text().strip()
    named = in_this_process(tool, folder, "--comm", name, "-g", "-n")
    assert carried(named.rows) == [("SSL_write", 9), ("SSL_read", 9)]
    assert not in_this_process(tool, folder, "--comm", "nobody").rows
    library = next(
        Path(line.split()[-1]) for line in Path("/proc/self/maps").read_text().splitlines() if "libssl" in line
    )
    only = ("--no-openssl", "-gn", "--extra-lib", library)
    assert carried(in_this_process(tool, folder, *only).rows) == [("SSL_write", 9), ("SSL_read", 9)]
    assert "libssl" in tool("sslsnoop", "--no-openssl", "-gn", status=1, interrupt=False).stderr
    assert "no functions" in tool("sslsnoop", "--extra-lib", "/bin/sh", status=1, interrupt=False).stderr
    assert "16384" in tool("sslsnoop", "--max-buffer-size", 0, status=1, interrupt=False).stderr


_GNUTLS = """
session = ctypes.c_void_p()
assert library.gnutls_init(ctypes.byref(session), 2) == 0
print(library.gnutls_record_send(session, text, ctypes.c_size_t(4)), library.gnutls_handshake(session))
"""
"""Calls without a connection: each fails, and is shown with its result."""
_NSPR = """
library.PR_Open.restype = ctypes.c_void_p
file = ctypes.c_void_p(library.PR_Open(b"/dev/zero", 4, 0))
print(library.PR_Write(file, text, 7), library.PR_Read(file, text, 5))
"""


@pytest.mark.tool("sslsnoop")
@pytest.mark.parametrize(
    ("library", "code", "functions", "leave_out"),
    [
        ("libgnutls.so.30", _GNUTLS, ("gnutls_record_send", "gnutls_handshake"), "-g"),
        ("libnspr4.so", _NSPR, ("PR_Write", "PR_Read"), "-n"),
    ],
)
def test_other_libraries(
    tool: Tool, tmp_path: Path, library: str, code: str, functions: tuple[str, ...], leave_out: str
) -> None:
    script = tmp_path / "calls.py"
    script.write_text(
        f"import ctypes\nlibrary = ctypes.CDLL({library!r})\ntext = ctypes.create_string_buffer(10)\n{code}"
    )
    command = f"{sys.executable} {script}"
    if subprocess.run([sys.executable, script], capture_output=True, check=False).returncode != 0:
        cannot(f"{library} is not installed")
    run = tool("sslsnoop", "--handshake", "--cmd", command, interrupt=False)
    (results,) = [line for line in run.stdout.splitlines() if not line.startswith("{")]
    assert [(row["FUNC"], row["LEN"]) for row in run.rows] == list(
        zip(functions, map(int, results.split()), strict=True)
    )
    assert not tool("sslsnoop", leave_out, "--handshake", "--cmd", command, interrupt=False).rows
