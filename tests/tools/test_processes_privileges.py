"""Tools about signals, users, capabilities and kills of the kernel: killsnoop, setuids, capable, oomkill."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.support.kernel_features import TRACING, needs
from tests.support.server import Running
from tests.support.tools import cannot, check_columns
from tests.support.workloads import memory, processes
from tests.support.workloads.processes import Ended
from tests.tools.conftest import Tool

SIGNALS = [0, signal.SIGCONT]


# ------------------------------------------------------------------------------------------------ killsnoop


@pytest.mark.tool("killsnoop")
def test_signals_with_result(tool: Tool) -> None:
    needs("syscalls")
    nobody, mine = processes.no_process(), os.getpid()

    def work(_running: Running) -> None:
        processes.kills(mine, SIGNALS)
        processes.kills(nobody, SIGNALS)
        signal.raise_signal(signal.SIGCONT)

    run = tool("killsnoop", "-p", mine, work=work)
    check_columns(run)
    found = [(row["SIG"], row["TPID"], row["RESULT"]) for row in run.of(PID=mine)]
    assert found == [(0, mine, 0), (18, mine, 0), (0, nobody, -3), (18, nobody, -3), (18, mine, 0)]
    failed = tool("killsnoop", "-x", "-p", mine, work=work)
    assert [row["TPID"] for row in failed.rows] == [nobody] * 2
    chosen = tool("killsnoop", "-s", "18,15", "-T", mine, "-p", mine, work=work)
    assert [(row["SIG"], row["TPID"]) for row in chosen.rows] == [(18, mine)] * 2
    named = tool("killsnoop", "-s", "SIGCONT, 15", "-p", mine, work=work)
    assert [(row["SIG"], row["TPID"]) for row in named.rows] == [(18, mine), (18, nobody), (18, mine)]


@pytest.mark.tool("killsnoop")
def test_signals_by_pidfd_and_names_in_text(tool: Tool) -> None:
    needs("syscalls")
    if not (TRACING / "events/syscalls/sys_enter_pidfd_send_signal").exists():
        cannot("pidfd_send_signal came with Linux 5.1")
    mine = os.getpid()

    def work(_running: Running) -> None:
        descriptor = os.pidfd_open(mine)
        signal.pidfd_send_signal(descriptor, signal.SIGCONT)
        os.close(descriptor)

    run = tool("killsnoop", "-p", mine, work=work, form="text")
    check_columns(run)
    assert run.lines[-1].split()[-3:] == ["SIGCONT", str(mine), "0"]


# ------------------------------------------------------------------------------------------------ setuids


@pytest.mark.tool("setuids")
def test_changes_of_users(tool: Tool) -> None:
    needs("syscalls")
    ended: list[Ended] = []

    def several() -> None:
        os.setreuid(-1, 5)
        os.setreuid(-1, 0)
        os.setresgid(1, 2, 3)
        os.setresuid(1000, 1001, 4294967294)

    def work(_running: Running) -> None:
        ended.append(processes.changes_user(1000))
        ended.append(processes.child(several))

    run = tool("setuids", work=work)
    check_columns(run)
    found = [(row["UID"], row["SYSCALL"], row["ARGS"], row["RESULT"]) for row in run.of(PID=ended[0].pid)]
    assert found == [(0, "setuid", "uid=1000", 0), (1000, "setuid", "uid=0", -1)]
    found = [(row["UID"], row["SYSCALL"], row["ARGS"], row["RESULT"]) for row in run.of(PID=ended[1].pid)]
    assert found == [
        (0, "setreuid", "ruid=-1 euid=5", 0),
        (0, "setreuid", "ruid=-1 euid=0", 0),
        (0, "setresuid", "ruid=1000 euid=1001 suid=4294967294", 0),
    ]
    run = tool("setuids", "-g", work=work)
    (group,) = [row for row in run.of(PID=ended[3].pid) if row["SYSCALL"] == "setresgid"]
    assert (group["ARGS"], group["RESULT"]) == ("rgid=1 egid=2 sgid=3", 0)
    run = tool("setuids", "-u", 1000, work=work)
    assert [row["ARGS"] for row in run.of(PID=ended[4].pid)] == ["uid=0"]
    assert {row["UID"] for row in run.rows} == {1000}


# ------------------------------------------------------------------------------------------------ capable


@pytest.mark.each_kernel
@pytest.mark.tool("capable")
def test_checks_of_capabilities(tool: Tool) -> None:
    needs("rawtracepoint")
    ended: list[Ended] = []

    def work(_running: Running) -> None:
        ended.append(processes.wants_capability())
        ended.append(processes.child(_refused))

    run = tool("capable", "-x", work=work)
    check_columns(run)
    (row,) = _checks(run.of(PID=ended[0].pid))
    assert (row["UID"], row["RESULT"], row["TID"]) == (0, 0, ended[0].pid)
    assert row["AUDIT"] in (1, "?")
    assert list(row)[7:] == ["TID", "INSETID", "RESULT"]
    (row,) = _checks(run.of(PID=ended[1].pid))
    assert (row["UID"], row["RESULT"]) == (1000, -1)
    assert [row["CAP"] for row in run.of(PID=ended[1].pid) if row["NAME"] == "CAP_SETUID"] == [7]


def _refused() -> int:
    os.setuid(1000)
    try:
        processes.set_own_hostname()
    except PermissionError:
        return 1
    return 0


def _checks(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Checks of CAP_SYS_ADMIN that count: with the tracepoint all are shown, those of memory (-12 …) as well."""
    found = [row for row in rows if row["NAME"] == "CAP_SYS_ADMIN"]
    return [found[-1]] if found and found[-1]["AUDIT"] == "?" else found


@pytest.mark.tool("capable")
def test_checks_once_and_with_stacks(tool: Tool) -> None:
    needs("rawtracepoint")
    ended: list[Ended] = []

    def twice() -> None:
        for _ in range(2):
            processes.set_own_hostname()

    def work(_running: Running) -> None:
        ended.append(processes.child(twice))

    run = tool("capable", "--unaudited", "--unique", work=work)
    names = [row["NAME"] for row in run.of(PID=ended[0].pid)]
    assert names.count("CAP_SYS_ADMIN") == 1
    run = tool("capable", "-K", "-U", "--unique", work=work)
    rows = [row for row in run.of(PID=ended[1].pid) if row["NAME"] == "CAP_SYS_ADMIN"]
    assert any("sethostname" in frame for row in rows for frame in row["KSTACK"])
    assert any("sethostname" in frame for row in rows for frame in row["USTACK"])


# ------------------------------------------------------------------------------------------------ oomkill


@pytest.mark.each_kernel
@pytest.mark.tool("oomkill")
def test_a_kill_by_the_kernel(tool: Tool, programs: Path) -> None:
    needs("rawtracepoint")
    killed: list[int] = []
    size = 16 * memory.MEGABYTE

    def work(_running: Running) -> None:
        with memory.cgroup() as group:
            killed.append(memory.out_of_memory(programs, group, size))

    run = tool("oomkill", work=work)
    check_columns(run)
    (row,) = [row for row in run.rows if row["KILLED"] == f"{killed[0]} touches"]
    assert row["TRIGGERED"] == f"{killed[0]} touches"
    assert size // os.sysconf("SC_PAGE_SIZE") <= row["PAGES"]
    assert len([float(load) for load in row["LOADAVG"].split()]) == 3
