"""Interfaces and network namespaces in output, and commands in a namespace: with namespaces that the test makes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.support import network
from tests.support.machine import need
from tests.support.network import End
from tests.support.server import Server
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("started", "no_leaks")

SIZE = 123
"""Bytes in each datagram: what else is sent on the link, by the kernel itself, has another size."""
HEADERS = 14 + 20 + 8


@pytest.fixture
def started(server: Server) -> None:
    """The server runs before processes are counted."""
    server.run(("--version",))


@pytest.fixture
def ends() -> Iterator[tuple[End, End]]:
    with network.link() as made:
        yield made


def sender(end: End, packets: int) -> str:
    """A command that sends datagrams to an end."""
    code = (
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        f"for _ in range({packets}): s.sendto(bytes({SIZE}), ('{end.address}', 7000))"
    )
    return f'{sys.executable} -c "{code}"'


def sent(server: Server, *options: str, script: str, command: str) -> str:
    done = server.run(("-q", *options, "-c", command, "-e", script), timeout=20)
    assert done.status == 0, done
    assert not done.stderr
    return done.stdout


@pytest.mark.parametrize("by", ["name", "path"])
def test_a_command_runs_in_a_namespace_and_its_interfaces_have_names(
    server: Server, ends: tuple[End, End], by: str
) -> None:
    need("rawtracepoint")
    left, right = ends
    script = f"""
        rawtracepoint:net_dev_queue /pid == cpid && args.skb.len == {HEADERS + SIZE}/ {{
            @[ifname(args.skb.dev.ifindex), netns] = count();
            printf("%s %-12s|\\n", ifname(args.skb.dev.ifindex), netns);
        }}"""
    where = left.namespace if by == "name" else f"/run/netns/{left.namespace}"
    own = os.readlink("/proc/self/ns/net")
    out = sent(server, "--netns", where, script=script, command=sender(right, 3))
    assert out.count(f"{left.interface} {left.namespace:<12}|\n") == 3
    assert f"@[{left.interface}, {left.namespace}]: 3" in out
    assert os.readlink("/proc/self/ns/net") == own


def test_names_in_json(server: Server, ends: tuple[End, End]) -> None:
    need("btf", "tracepoint")
    end = ends[1]
    script = f"""
        tracepoint:syscalls:sys_enter_exit_group /pid == cpid/ {{
            @[ifname({end.index})] = netns; print((ifname({end.index}), netns, (uint64)netns));
        }}"""
    out = sent(server, "-f", "json", "--netns", end.namespace, script=script, command="true")
    rows = [json.loads(line)["data"] for line in out.splitlines()]
    assert [end.interface, end.namespace, end.inode] in rows
    assert {"@": {end.interface: end.namespace}} in rows


def test_without_the_option_names_are_those_of_the_tracer(server: Server, ends: tuple[End, End]) -> None:
    need("btf")
    mine = os.stat("/proc/self/ns/net").st_ino
    script = 'begin { printf("%s %s %s %s\\n", ifname(1), ifname(987654), ifname(-1), netns); exit(); }'
    done = server.run(("-q", "-e", script))
    assert done.stdout.split() == ["lo", "987654", "-1", str(mine)]


def test_a_namespace_that_lost_its_name_prints_as_a_number(server: Server) -> None:
    need("btf", "syscalls")
    with network.namespace() as name:
        inode = os.stat(f"/run/netns/{name}").st_ino
        holder = os.open(f"/run/netns/{name}", os.O_RDONLY)
    try:
        script = "tracepoint:syscalls:sys_enter_exit_group /pid == cpid/ { @[netns] = count(); }"
        out = sent(server, "--netns", f"/proc/{os.getpid()}/fd/{holder}", script=script, command="true")
        assert f"@[{inode}]: 1" in out
    finally:
        os.close(holder)


def test_the_program_of_the_command_is_looked_for_before_it_enters_the_namespace(server: Server) -> None:
    with network.namespace() as name:
        done = server.run(("--netns", name, "-c", "nosuchprogram", "-e", "begin { exit(); }"))
    assert (done.status, done.stderr) == (1, "ERROR: cannot run nosuchprogram: no such program in PATH\n")


def test_unknown_namespaces_are_refused_with_those_that_there_are(server: Server) -> None:
    with network.namespace() as name:
        done = server.run(("--netns", f"{name}x", "-e", "begin { exit(); }"))
    assert done.status == 1
    assert f"ERROR: there is no network namespace '{name}x'\nHINT: did you mean " in done.stderr


def test_a_lossy_link_loses_a_part(ends: tuple[End, End]) -> None:
    left, right = ends
    network.lose(left, 0.5)
    packets, arrived = 300, 0
    with left.udp() as out, right.udp(7000) as into:
        for _ in range(packets):
            out.sendto(b"x", (right.address, 7000))

        def settled() -> bool:
            nonlocal arrived
            with suppress(BlockingIOError):
                while into.recv(1):
                    arrived += 1
            return arrived + network.lost(left) >= packets

        until(settled)
    assert 0 < arrived < packets
