"""Tools about processes: how they begin and end, what they ask for, signals and capabilities."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.kernel_features import TRACING, needs_program
from tests.support.patience import patience
from tests.support.server import Running
from tests.support.tools import ToolRun, cannot, check_columns
from tests.support.waiting import until
from tests.support.workloads import memory, processes, scheduling, terminal
from tests.support.workloads.processes import Ended
from tests.tools.conftest import Tool

# ---------------------------------------------------------------------------------------------- processes begin and e
# Tools about processes that begin and end: execsnoop, exitsnoop, threadsnoop, pidpersec.


TRUE = "/bin/true"


def only(run: ToolRun, ended: Ended) -> list[dict[str, object]]:
    """The rows of one process, without its columns of time."""
    return [{name: row[name] for name in ("PCOMM", "PPID", "RET", "ARGS")} for row in run.of(PID=ended.pid)]


# ------------------------------------------------------------------------------------------------ execsnoop


@pytest.mark.each_kernel
@pytest.mark.tool("execsnoop", kernel="syscalls")
def test_new_programs_with_arguments(tool: Tool) -> None:
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


@pytest.mark.tool("execsnoop", kernel="syscalls")
def test_failed_programs(tool: Tool) -> None:
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


@pytest.mark.tool("execsnoop", kernel="rawtracepoint")
def test_programs_by_name_and_line(tool: Tool) -> None:
    for options, kept in ((("-n", "ru"), [0, 1]), (("-l", "two"), [1]), (("-n", "false"), []), (("-P", 1), [])):
        ended: list[Ended] = []

        def work(_running: Running, into: list[Ended] = ended) -> None:
            into.extend(processes.execs([[TRUE, "one"], [TRUE, "two"]]))

        run = tool("execsnoop", *options, work=work)
        assert [bool(run.of(PID=item.pid)) for item in ended] == [number in kept for number in range(2)], options


@pytest.mark.tool("execsnoop", kernel="rawtracepoint")
def test_a_command_and_its_children_as_text(tool: Tool) -> None:
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


@pytest.mark.tool("execsnoop", kernel="rawtracepoint")
def test_scripts_without_what_the_kernel_adds(tool: Tool, tmp_path: Path) -> None:
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


@pytest.mark.tool("exitsnoop", kernel="rawtracepoint")
def test_ends_of_processes(tool: Tool) -> None:
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


@pytest.mark.tool("exitsnoop", kernel="rawtracepoint")
def test_age_and_threads(tool: Tool, programs: Path) -> None:
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


@pytest.mark.tool("exitsnoop", kernel="rawtracepoint")
def test_only_one_process(tool: Tool) -> None:
    with subprocess.Popen(["sleep", "600"]) as process:

        def work(_running: Running) -> None:
            processes.exits([0])
            process.terminate()
            process.wait()

        run = tool("exitsnoop", "-p", process.pid, work=work, interrupt=False)
        assert [(row["PID"], row["EXIT_CODE"]) for row in run.rows] == [(process.pid, "signal 15 (Terminated)")]


# ------------------------------------------------------------------------------------------------ threads, rates


@pytest.mark.tool("threadsnoop", kernel="uprobe")
def test_threads_with_their_function(tool: Tool, programs: Path) -> None:
    started: list[int] = []

    def work(_running: Running) -> None:
        with subprocess.Popen([str(programs / "threads"), "3"], stdout=subprocess.DEVNULL) as process:
            started.append(process.pid)

    run = tool("threadsnoop", work=work)
    check_columns(run)
    rows = run.of(PID=started[0])
    assert [(row["COMM"], row["FUNC"].partition("+")[0]) for row in rows] == [("threads", "work")] * 3
    assert all(row["TIME(ms)"] > 0 for row in rows)


@pytest.mark.tool("pidpersec", kernel="rawtracepoint")
def test_processes_of_an_interval(tool: Tool, programs: Path) -> None:

    def work(_running: Running) -> None:
        processes.forks(20)
        subprocess.run([str(programs / "threads"), "3"], stdout=subprocess.DEVNULL, check=True)

    run = tool("pidpersec", 1, work=work, until='"COUNT"', times=2)
    check_columns(run)
    assert sum(row["COUNT"] for row in run.rows) >= 21
    assert sum(row["THREADS"] for row in run.rows) >= 3
    run = tool("pidpersec", 1, 2, interrupt=False)
    assert len(run.rows) == 2


@pytest.mark.tool("pidpersec", kernel="rawtracepoint")
def test_processes_of_a_command(tool: Tool, programs: Path) -> None:
    run = tool("pidpersec", 1, command=f"sh -c '{programs}/threads 3; /bin/true; /bin/true; sleep 1.5'")
    assert [sum(row[name] for row in run.rows) for name in ("COUNT", "THREADS")] == [4, 3]


# ---------------------------------------------------------------------------------------------- processes calls
# Tools about what processes ask for: syscount, naptime, undump, bashreadline.


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


@pytest.mark.tool("syscount", kernel="tracepoint")
def test_counts_of_calls(tool: Tool) -> None:
    run = tool("syscount", "-p", os.getpid(), "-T", 0, work=calls)
    assert (count(run, "getppid"), count(run, "rmdir"), count(run, "fsync")) == (10, 5, 3)
    counts = [row["COUNT"] for row in run.rows]
    assert counts == sorted(counts, reverse=True)
    assert list(run.rows[0]) == ["SYSCALL", "COUNT"]


@pytest.mark.tool("syscount", kernel="tracepoint")
def test_time_of_calls(tool: Tool) -> None:
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


@pytest.mark.tool("syscount", kernel="tracepoint")
@pytest.mark.parametrize(
    ("options", "names"),
    [
        (("-x",), {"rmdir": 5, "fsync": 3}), (("--errno", "ENOENT"), {"rmdir": 5}), (("--errno", "9"), {"fsync": 3}),
        (("--errno", "EBADF", "-L"), {"fsync": 3}), (("--errno", "EPERM"), {}),
        (("--syscall", "getppid,fsync"), {"getppid": 10, "fsync": 3}),
    ],
)  # fmt: skip
def test_chosen_calls(tool: Tool, options: tuple[str, ...], names: dict[str, int]) -> None:
    run = tool("syscount", *options, "-p", os.getpid(), "-T", 0, work=calls)
    assert {name: count(run, name) for name in ("getppid", "rmdir", "fsync") if count(run, name)} == names


@pytest.mark.tool("syscount", kernel="tracepoint")
def test_calls_by_process(tool: Tool, programs: Path) -> None:
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


@pytest.mark.tool("syscount", kernel="tracepoint")
def test_outputs_at_intervals_lose_no_call(tool: Tool) -> None:
    run = tool("syscount", "-i", 1, "-T", 3, "-p", os.getpid(), "--syscall", "getppid", work=lambda running: (
        calls(running), running.until_printed('"COUNT"'), calls(running)
    ))  # fmt: skip
    assert sum(row["COUNT"] for row in run.rows) == 20
    assert len(run.rows) >= 2
    assert tool("syscount", "-d", 1, "--syscall", "vhangup", interrupt=False).status == 0
    refused = tool("syscount", "--syscall", "raed", status=1, interrupt=False)
    assert "there is no system call raed" in refused.stderr


@pytest.mark.tool("syscount", kernel="tracepoint")
def test_list_of_calls(tool: Tool) -> None:
    names = [row["name"] for row in tool("syscount", "-l", interrupt=False).rows]
    assert {"read", "openat", "execve", "bpf"} <= set(names)
    assert names == sorted(names)
    assert len(names) > 250


# ------------------------------------------------------------------------------------------------ naptime


@pytest.mark.tool("naptime", kernel="syscalls")
def test_naps(tool: Tool, programs: Path) -> None:
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


@pytest.mark.tool("undump", kernel="syscalls")
def test_data_of_unix_sockets(tool: Tool) -> None:
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


@pytest.mark.tool("bashreadline", kernel="uprobe")
def test_lines_typed_into_bash(tool: Tool) -> None:
    needs_program("bash")
    shells: list[int] = []
    lines = ["echo 'a b'", "true", "no-such-command x"]
    run = tool("bashreadline", work=lambda _running: shells.append(terminal.typed(*lines)))
    check_columns(run)
    assert [row["COMMAND"] for row in run.of(PID=shells[0])] == lines


@pytest.mark.tool("bashreadline", kernel="uprobe")
def test_lines_of_a_library(tool: Tool) -> None:
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


# ---------------------------------------------------------------------------------------------- processes privileges
# Tools about signals, users, capabilities and kills of the kernel: killsnoop, setuids, capable, oomkill.


SIGNALS = [0, signal.SIGCONT]


# ------------------------------------------------------------------------------------------------ killsnoop


@pytest.mark.tool("killsnoop", kernel="syscalls")
def test_signals_with_result(tool: Tool) -> None:
    nobody, mine = processes.no_process(), os.getpid()

    def work(_running: Running) -> None:
        processes.kills(mine, SIGNALS)
        processes.kills(nobody, SIGNALS)
        signal.raise_signal(signal.SIGCONT)
        os.kill(0, signal.SIGCONT)
        senders.append(processes.child(lambda: os.kill(mine, signal.SIGCONT)))

    senders: list[Ended] = []
    run = tool("killsnoop", "-p", mine, work=work)
    check_columns(run)
    found = [(row["SIG"], row["TPID"], row["RESULT"]) for row in run.of(PID=mine)]
    assert found == [(0, mine, 0), (18, mine, 0), (0, nobody, -3), (18, nobody, -3), (18, mine, 0), (18, 0, 0)]
    by_others = [(row["SIG"], row["TPID"], row["RESULT"]) for row in run.of(PID=senders[0].pid)]
    assert by_others == [(18, mine, 0)], "-p shows signals to the process, too"
    failed = tool("killsnoop", "-x", "-p", mine, work=work)
    assert [row["TPID"] for row in failed.rows] == [nobody] * 2
    chosen = tool("killsnoop", "-s", "18,15", "-T", mine, "-p", mine, work=work)
    assert [(row["SIG"], row["TPID"]) for row in chosen.rows] == [(18, mine), (18, mine), (18, 0), (18, mine)]
    named = tool("killsnoop", "-s", "SIGCONT, 15", "-p", mine, work=work)
    assert [(row["SIG"], row["TPID"]) for row in named.rows] == [
        (18, mine), (18, nobody), (18, mine), (18, 0), (18, mine),
    ]  # fmt: skip


@pytest.mark.tool("killsnoop", kernel="syscalls")
def test_signals_by_pidfd_and_names_in_text(tool: Tool) -> None:
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


@pytest.mark.tool("setuids", kernel="syscalls")
def test_changes_of_users(tool: Tool) -> None:
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
@pytest.mark.tool("capable", kernel="rawtracepoint")
def test_checks_of_capabilities(tool: Tool) -> None:
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


@pytest.mark.tool("capable", kernel="rawtracepoint")
def test_checks_once_and_with_stacks(tool: Tool) -> None:
    ended: list[Ended] = []

    def work(running: Running) -> None:
        wanted = "sethostname" if ended else "CAP_SYS_ADMIN"

        def twice() -> None:
            for _ in range(2):
                processes.set_own_hostname()
            # The names of the first stacks take long, need the process, and end with an interrupt.
            shown = f'"PID": {os.getpid()},'
            until(lambda: any(shown in line and wanted in line for line in running.stdout().splitlines()))

        ended.append(processes.child(twice))
        assert ended[-1].code == 0

    # Others may make more of these checks than can be printed by the end.
    own = ("-p", os.getpid(), "--follow")
    run = tool("capable", "--unaudited", "--unique", *own, work=work)
    names = [row["NAME"] for row in run.of(PID=ended[0].pid)]
    assert names.count("CAP_SYS_ADMIN") == 1
    run = tool("capable", "-K", "-U", "--unique", *own, work=work)
    rows = [row for row in run.of(PID=ended[1].pid) if row["NAME"] == "CAP_SYS_ADMIN"]
    assert any("sethostname" in frame for row in rows for frame in row["KSTACK"])
    assert any("sethostname" in frame for row in rows for frame in row["USTACK"])


# ------------------------------------------------------------------------------------------------ oomkill


@pytest.mark.each_kernel
@pytest.mark.tool("oomkill", kernel="rawtracepoint")
def test_a_kill_by_the_kernel(tool: Tool, programs: Path) -> None:
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
