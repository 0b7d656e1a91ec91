"""Tools about packets in general: netqtop, skbdrop."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from pyroute2 import IPRoute

from tests.support.kernel_features import Where, needs, needs_type
from tests.support.network import End
from tests.support.server import Running
from tests.support.tools import ToolRun, check_columns
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


@pytest.mark.tool("netqtop")
@pytest.mark.parametrize("received", [False, True])
def test_packets_of_queues(tool: Tool, received: bool) -> None:
    needs("rawtracepoint")
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


@pytest.mark.tool("skbdrop")
def test_drops_by_reason_and_function(tool: Tool, ends: tuple[End, End]) -> None:
    needs("rawtracepoint")
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
