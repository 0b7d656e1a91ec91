"""Tools about processes that begin and end: execsnoop, exitsnoop, threadsnoop, pidpersec."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.kernel_features import needs
from tests.support.server import Running
from tests.support.tools import ToolRun, check_columns
from tests.support.workloads import processes
from tests.support.workloads.processes import Ended
from tests.tools.conftest import Tool

TRUE = "/bin/true"


def only(run: ToolRun, ended: Ended) -> list[dict[str, object]]:
    """The rows of one process, without its columns of time."""
    return [{name: row[name] for name in ("PCOMM", "PPID", "RET", "ARGS")} for row in run.of(PID=ended.pid)]


# ------------------------------------------------------------------------------------------------ execsnoop


@pytest.mark.each_kernel
@pytest.mark.tool("execsnoop")
def test_new_programs_with_arguments(tool: Tool) -> None:
    needs("syscalls")
    ended: list[Ended] = []
    words = [TRUE, "-l", "a b", "", "x" * 300, "end"]
    many = [TRUE, *map(str, range(1, 31))]

    def work(_running: Running) -> None:
        ended.extend(processes.execs([words, many]))
        ended.append(processes.failing_exec("/no/such/program"))

    run = tool("execsnoop", work=work)
    check_columns(run)
    mine = {"PCOMM": "true", "PPID": os.getpid(), "RET": 0}
    assert only(run, ended[0]) == [{**mine, "ARGS": f"{TRUE} -l a b  {'x' * 300} end"}]
    assert only(run, ended[1]) == [{**mine, "ARGS": f"{TRUE} {' '.join(map(str, range(1, 21)))} ..."}]
    assert not run.of(PID=ended[2].pid)


@pytest.mark.tool("execsnoop")
def test_failed_programs(tool: Tool) -> None:
    needs("syscalls")
    ended: list[Ended] = []

    def work(_running: Running) -> None:
        ended.append(processes.failing_exec("/no/such/program"))
        ended.extend(processes.execs([[TRUE, "one"]]))

    run = tool("execsnoop", "--quote", "-xTtUCM", "--max-args", 1, "-P", os.getpid(), work=work)
    (failed,) = run.of(PID=ended[0].pid)
    assert list(failed) == ["TIME", "TIME(s)", "UID", "CPU", "PARENT", "PCOMM", "PID", "PPID", "RET", "ARGS"]
    assert (failed["RET"], failed["ARGS"]) == (-2, '"/no/such/program" "argument"')
    assert (failed["UID"], failed["PARENT"]) == (os.getuid(), Path("/proc/self/comm").read_text().strip())
    (good,) = run.of(PID=ended[1].pid)
    assert (good["RET"], good["ARGS"]) == (0, f'"{TRUE}" "one"')
    assert {row["PPID"] for row in run.rows} == {os.getpid()}


@pytest.mark.tool("execsnoop")
def test_programs_by_name_and_line(tool: Tool) -> None:
    needs("rawtracepoint")
    for options, kept in ((("-n", "ru"), [0, 1]), (("-l", "two"), [1]), (("-n", "false"), []), (("-P", 1), [])):
        ended: list[Ended] = []

        def work(_running: Running, into: list[Ended] = ended) -> None:
            into.extend(processes.execs([[TRUE, "one"], [TRUE, "two"]]))

        run = tool("execsnoop", *options, work=work)
        assert [bool(run.of(PID=item.pid)) for item in ended] == [number in kept for number in range(2)], options


@pytest.mark.tool("execsnoop")
def test_a_command_and_its_children_as_text(tool: Tool) -> None:
    needs("rawtracepoint")
    run = tool("execsnoop", command="sh -c '/bin/true first; /bin/true second'", form="text")
    check_columns(run)
    assert [line.split()[-2:] for line in run.lines[-2:]] == [[TRUE, "first"], [TRUE, "second"]]
    assert len(run.lines) == 4


@pytest.mark.tool("execsnoop", "capable")
def test_maps_of_bcc_are_refused(tool: Tool) -> None:
    for name in ("execsnoop", "capable"):
        for option in ("--cgroupmap", "--mntnsmap"):
            run = tool(name, option, "/sys/fs/bpf/none", status=1, interrupt=False)
            assert f"{option} is not supported" in run.stderr
            assert "--container ID" in run.stderr


@pytest.mark.tool("execsnoop")
def test_scripts_without_what_the_kernel_adds(tool: Tool, tmp_path: Path) -> None:
    needs("rawtracepoint")
    long = tmp_path / ("d" * 150)
    long.mkdir()
    plain, words, nested = (folder / f"{name}.sh" for folder, name in ((long, "a"), (tmp_path, "b"), (tmp_path, "c")))
    for path, first in ((plain, "/bin/sh"), (words, "/bin/sh -e"), (nested, words)):
        path.write_text(f"#!{first}\n")
        path.chmod(0o755)
    started = [[f"{plain}", "2"], [f"{words}", "a b", f"{words}"], [f"{nested}", "x"], ["/bin/sh", f"{plain}"]]
    ended: list[Ended] = []
    run = tool("execsnoop", work=lambda _running: ended.extend(processes.execs(started)))
    assert [run.of(PID=item.pid)[0]["ARGS"] for item in ended] == [" ".join(line) for line in started]


# ------------------------------------------------------------------------------------------------ exitsnoop


@pytest.mark.tool("exitsnoop")
def test_ends_of_processes(tool: Tool) -> None:
    needs("rawtracepoint")
    ended: list[Ended] = []

    def work(_running: Running) -> None:
        ended.extend(processes.exits([0, 1, 255]))
        ended.extend(processes.dies_by([signal.SIGTERM, signal.SIGKILL]))

    run = tool("exitsnoop", work=work)
    check_columns(run)
    wanted = ["0", "code 1", "code 255", "signal 15 (Terminated)", "signal 9 (Killed)"]
    for item, text in zip(ended, wanted, strict=True):
        (row,) = run.of(PID=item.pid)
        assert (row["EXIT_CODE"], row["PPID"], row["TID"]) == (text, os.getpid(), item.pid)
        assert 0 <= row["AGE(s)"] < 60
    failed = tool("exitsnoop", "-x", "-t", work=lambda _running: ended.extend(processes.exits([0, 3])))
    assert not failed.of(PID=ended[-2].pid)
    (row,) = failed.of(PID=ended[-1].pid)
    assert next(iter(row)) == "TIME"


@pytest.mark.tool("exitsnoop")
def test_age_and_threads(tool: Tool, programs: Path) -> None:
    needs("rawtracepoint")
    started: list[int] = []

    def work(_running: Running) -> None:
        with subprocess.Popen([str(programs / "naps"), "5", "20"], stdout=subprocess.DEVNULL) as process:
            started.append(process.pid)
        with subprocess.Popen([str(programs / "threads"), "3"], stdout=subprocess.DEVNULL) as process:
            started.append(process.pid)

    run = tool("exitsnoop", work=work)
    (napped,) = run.of(PID=started[0])
    assert napped["AGE(s)"] >= 0.1
    assert len(run.of(PID=started[1])) == 1
    run = tool("exitsnoop", "--per-thread", work=work)
    rows = run.of(PID=started[3])
    assert len(rows) == len({row["TID"] for row in rows}) == 4
    assert started[3] in {row["TID"] for row in rows}


@pytest.mark.tool("exitsnoop")
def test_only_one_process(tool: Tool) -> None:
    needs("rawtracepoint")
    with subprocess.Popen(["sleep", "600"]) as process:

        def work(_running: Running) -> None:
            processes.exits([0])
            process.terminate()
            process.wait()

        run = tool("exitsnoop", "-p", process.pid, work=work, interrupt=False)
        assert [(row["PID"], row["EXIT_CODE"]) for row in run.rows] == [(process.pid, "signal 15 (Terminated)")]


# ------------------------------------------------------------------------------------------------ threads, rates


@pytest.mark.tool("threadsnoop")
def test_threads_with_their_function(tool: Tool, programs: Path) -> None:
    needs("uprobe")
    started: list[int] = []

    def work(_running: Running) -> None:
        with subprocess.Popen([str(programs / "threads"), "3"], stdout=subprocess.DEVNULL) as process:
            started.append(process.pid)

    run = tool("threadsnoop", work=work)
    check_columns(run)
    rows = run.of(PID=started[0])
    assert [(row["COMM"], row["FUNC"].partition("+")[0]) for row in rows] == [("threads", "work")] * 3
    assert all(row["TIME(ms)"] > 0 for row in rows)


@pytest.mark.tool("pidpersec")
def test_processes_of_an_interval(tool: Tool, programs: Path) -> None:
    needs("rawtracepoint")

    def work(_running: Running) -> None:
        processes.forks(20)
        subprocess.run([str(programs / "threads"), "3"], stdout=subprocess.DEVNULL, check=True)

    run = tool("pidpersec", 1, work=work, until='"COUNT"', times=2)
    check_columns(run)
    assert sum(row["COUNT"] for row in run.rows) >= 21
    assert sum(row["THREADS"] for row in run.rows) >= 3
    run = tool("pidpersec", 1, 2, interrupt=False)
    assert len(run.rows) == 2


@pytest.mark.tool("pidpersec")
def test_processes_of_a_command(tool: Tool, programs: Path) -> None:
    needs("rawtracepoint")
    run = tool("pidpersec", 1, command=f"sh -c '{programs}/threads 3; /bin/true; /bin/true; sleep 1.5'")
    assert [sum(row[name] for row in run.rows) for name in ("COUNT", "THREADS")] == [4, 3]
