"""Tools about what processes ask for: syscount, naptime, undump, bashreadline."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.kernel_features import needs, needs_program
from tests.support.patience import patience
from tests.support.server import Running
from tests.support.tools import ToolRun, check_columns
from tests.support.workloads import scheduling, terminal
from tests.tools.conftest import Tool

BY_PROCESS = "tracepoint:raw_syscalls:sys_enter { @[pid] = count(); }"

# ------------------------------------------------------------------------------------------------ syscount


def calls(_running: Running) -> None:
    """Ten calls of getppid, five that fail with ENOENT, three with EBADF, and a pause."""
    for _ in range(10):
        os.getppid()
    for _ in range(5):
        with pytest.raises(FileNotFoundError):
            os.rmdir("/no/such/folder")
    for _ in range(3):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fsync(1 << 20)
    time.sleep(0.05)


def count(run: ToolRun, name: str) -> int:
    return sum(row["COUNT"] for row in run.of(SYSCALL=name))


@pytest.mark.tool("syscount")
def test_counts_of_calls(tool: Tool) -> None:
    needs("tracepoint")
    run = tool("syscount", "-p", os.getpid(), "-T", 0, work=calls)
    assert (count(run, "getppid"), count(run, "rmdir"), count(run, "fsync")) == (10, 5, 3)
    counts = [row["COUNT"] for row in run.rows]
    assert counts == sorted(counts, reverse=True)
    assert list(run.rows[0]) == ["SYSCALL", "COUNT"]


@pytest.mark.tool("syscount")
def test_time_of_calls(tool: Tool) -> None:
    needs("tracepoint")
    run = tool("syscount", "-L", "-p", os.getpid(), "-T", 0, work=calls)
    check_columns(run)
    assert count(run, "getppid") == 10
    slept = next(row for row in run.rows if "nanosleep" in row["SYSCALL"])
    assert slept["TIME(us)"] >= 0.95 * 50_000
    times = [row["TIME(us)"] for row in run.rows]
    assert times == sorted(times, reverse=True)
    text = tool("syscount", "-L", "-p", os.getpid(), work=calls, form="text")
    check_columns(text)
    assert len(text.lines) <= 11
    run = tool("syscount", "-Lm", "--syscall", "nanosleep,clock_nanosleep", "-t", os.getpid(), work=calls)
    (row,) = run.rows
    assert row["TIME(ms)"] >= 0.95 * 50


@pytest.mark.tool("syscount")
@pytest.mark.parametrize(
    ("options", "names"),
    [
        (("-x",), {"rmdir": 5, "fsync": 3}), (("--errno", "ENOENT"), {"rmdir": 5}), (("--errno", "9"), {"fsync": 3}),
        (("--errno", "EBADF", "-L"), {"fsync": 3}), (("--errno", "EPERM"), {}),
        (("--syscall", "getppid,fsync"), {"getppid": 10, "fsync": 3}),
    ],
)  # fmt: skip
def test_chosen_calls(tool: Tool, options: tuple[str, ...], names: dict[str, int]) -> None:
    needs("tracepoint")
    run = tool("syscount", *options, "-p", os.getpid(), "-T", 0, work=calls)
    assert {name: count(run, name) for name in ("getppid", "rmdir", "fsync") if count(run, name)} == names


@pytest.mark.tool("syscount")
def test_calls_by_process(tool: Tool, programs: Path) -> None:
    needs("tracepoint")
    script = f"{programs}/syscalls 20; {programs}/syscalls 30; sleep 0.01"
    options = ("-P", "--syscall", "getppid", "--exec", "syscalls")
    run = tool("syscount", *options, "--cmd", f"sh -c '{script}'", interrupt=False)
    assert sorted(row["COUNT"] for row in run.of(COMM="syscalls")) == [20, 30]
    assert list(run.rows[0])[:3] == ["PID", "COMM", "COUNT"]

    def work(_running: Running) -> None:
        subprocess.run([str(programs / "syscalls"), "7"], check=True)

    run = tool("syscount", "--ppid", os.getpid(), "--syscall", "getppid", work=work)
    assert count(run, "getppid") == 7
    run = tool("syscount", "--ppid", 1, "-P", "--syscall", "getppid", "-p", os.getpid(), work=calls)
    assert not run.rows or os.getppid() == 1


@pytest.mark.tool("syscount")
def test_outputs_at_intervals_lose_no_call(tool: Tool) -> None:
    needs("tracepoint")
    run = tool("syscount", "-i", 1, "-T", 3, "-p", os.getpid(), "--syscall", "getppid", work=lambda running: (
        calls(running), running.until_printed('"COUNT"'), calls(running)
    ))  # fmt: skip
    assert sum(row["COUNT"] for row in run.rows) == 20
    assert len(run.rows) >= 2
    assert tool("syscount", "-d", 1, "--syscall", "vhangup", interrupt=False).status == 0
    refused = tool("syscount", "--syscall", "raed", status=1, interrupt=False)
    assert "there is no system call raed" in refused.stderr


@pytest.mark.tool("syscount")
def test_list_of_calls(tool: Tool) -> None:
    needs("tracepoint")
    names = [row["name"] for row in tool("syscount", "-l", interrupt=False).rows]
    assert {"read", "openat", "execve", "bpf"} <= set(names)
    assert names == sorted(names)
    assert len(names) > 250


# ------------------------------------------------------------------------------------------------ naptime


@pytest.mark.tool("naptime")
def test_naps(tool: Tool, programs: Path) -> None:
    needs("syscalls")
    napped: list[scheduling.Measured] = []

    def work(_running: Running) -> None:
        napped.append(scheduling.naps(programs, 3, 20))
        subprocess.run(["sleep", "0.25"], check=True)
        time.sleep(0.05)

    run = tool("naptime", work=work)
    check_columns(run)
    rows = run.of(PID=napped[0].pid)
    assert [row["SECONDS"] for row in rows] == [0.02] * 3
    assert {(row["PPID"], row["COMM"]) for row in rows} == {(os.getpid(), "naps")}
    assert [row["SECONDS"] for row in run.of(COMM="sleep", PPID=os.getpid())] == [0.25]
    # Python sleeps until a point in time, since 3.11.
    assert [row for row in run.of(PID=os.getpid()) if 0.95 * 0.05 <= row["SECONDS"] < 30]


# ------------------------------------------------------------------------------------------------ undump


def talk(_running: Running) -> None:
    """Six messages over unix sockets, one that is only looked at, and one over TCP."""
    stream = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    packets = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with stream[0], stream[1], packets[0], packets[1]:
        stream[0].send(b"hello\n")
        assert stream[1].recv(3, socket.MSG_PEEK) == b"hel"
        assert stream[1].recv(100) == b"hello\n"
        stream[0].send(b"y" * 300)
        assert len(os.read(stream[1].fileno(), 1000)) == 300
        stream[0].send(b"vector")
        os.readv(stream[1].fileno(), [bytearray(3), bytearray(50)])
        stream[0].send(b"message")
        stream[1].recvmsg(100)
        packets[0].send(b"datagram")
        packets[1].recv(100)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        with server.accept()[0] as accepted:
            accepted.send(b"over TCP")
            client.recv(100)


@pytest.mark.tool("undump")
def test_data_of_unix_sockets(tool: Tool) -> None:
    needs("syscalls")
    run = tool("undump", "-p", os.getpid(), work=talk)
    check_columns(run)
    assert [(row["SIZE"], row["DATA"]) for row in run.rows] == [
        (6, r"hello\x0a"), (300, "y" * 128), (6, "vec"), (7, "message"), (8, "datagram"),
    ]  # fmt: skip
    run = tool("undump", "-s", 4, "-p", os.getpid(), work=talk)
    assert [row["DATA"] for row in run.rows] == ["hell", "yyyy", "vec", "mess", "data"]
    text = tool("undump", "-p", os.getpid(), work=talk, form="text")
    check_columns(text)
    assert text.lines[1].split()[-2:] == ["6", r"hello\x0a"]


# ------------------------------------------------------------------------------------------------ bashreadline


@pytest.mark.tool("bashreadline")
def test_lines_typed_into_bash(tool: Tool) -> None:
    needs("uprobe")
    needs_program("bash")
    shells: list[int] = []
    lines = ["echo 'a b'", "true", "no-such-command x"]
    run = tool("bashreadline", work=lambda _running: shells.append(terminal.typed(*lines)))
    check_columns(run)
    assert [row["COMMAND"] for row in run.of(PID=shells[0])] == lines


@pytest.mark.tool("bashreadline")
def test_lines_of_a_library(tool: Tool) -> None:
    needs("uprobe")
    needs_program("bash")
    shells: list[int] = []
    path = shutil.which("bash")
    run = tool("bashreadline", "--shared", path, work=lambda _running: shells.append(terminal.typed("true")))
    assert [row["COMMAND"] for row in run.of(PID=shells[0])] == ["true"]
    run = tool("bashreadline", "-s", "/no/such/library", status=1, interrupt=False)
    assert re.search("/no/such/library", run.stderr)


# ------------------------------------------------------------------------------------------------ pytrace itself


@pytest.mark.kernel
@pytest.mark.parametrize("words", [("syscount", "-P"), ("--no-self", "-e", BY_PROCESS), ("-e", BY_PROCESS)])
def test_tools_leave_out_the_tracer(words: tuple[str, ...]) -> None:
    """Scripts do not, unless they are asked to; with --self tools do not either."""
    for more, shown in (((), "-e" in words and "--no-self" not in words), (("--self",), True)):
        if more and "--no-self" in words:
            continue
        command = [sys.executable, "-m", "pytrace", "-q", "-f", "json", *words, *more, "--duration", "0.5"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tracer:
            output = tracer.communicate(timeout=patience(60))[0]
        assert bool(re.search(rf"\b{tracer.pid}\b", output)) is shown, (more, output)
