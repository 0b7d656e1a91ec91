"""Filters of processes, and output and commands of network namespaces."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support import network
from tests.support.expect import Result
from tests.support.machine import need, own_cgroup
from tests.support.network import End, namespace
from tests.support.patience import patience
from tests.support.server import Server
from tests.support.waiting import SERVED, sleeps, until

pytestmark = pytest.mark.usefixtures("started", "no_leaks")


# Each test runs processes of which one is wanted, and others that do the same and are not.


@pytest.fixture
def started(server: Server) -> None:
    """The server runs before processes are counted."""
    server.start()


NAMES = count()
KINDS = [
    pytest.param("t:syscalls:sys_enter_rt_sigtimedwait {{ @[pid] = count(); }}", "syscalls", id="tracepoint"),
    pytest.param("rt:sys_enter /arg1 == 128/ {{ @[pid] = count(); }}", "rawtracepoint", id="rawtracepoint"),
    pytest.param("u:{waiter}:served {{ @[pid] = count(); }}", "uprobe", id="uprobe"),
    pytest.param("ur:{waiter}:served {{ @[pid] = count(); }}", "uprobe", id="uretprobe"),
    pytest.param("k:__x64_sys_rt_sigtimedwait {{ @[pid] = count(); }}", "kprobe", id="kprobe"),
    pytest.param("fentry:__x64_sys_rt_sigtimedwait {{ @[pid] = count(); }}", "fentry", id="fentry"),
    pytest.param("u:{waiter}:served /in_scope/ {{ @[pid] = count(); }}", "uprobe", id="in_scope"),
    pytest.param(
        "t:syscalls:sys_enter_rt_sigtimedwait /in_scope(curtask)/ {{ @[pid] = count(); }}", "syscalls", id="task"
    ),
]


@contextmanager
def waiting(waiter: Path, **options: object) -> Iterator[int]:
    """A process that calls served() on a signal; its number."""
    process = subprocess.Popen([waiter], **options)  # type: ignore[call-overload]
    try:
        until(lambda: sleeps(process.pid, waiter.resolve().name))
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=patience(30))


def put(pid: int, group: Path) -> None:
    (group / "cgroup.procs").write_text(str(pid))


def served(server: Server, program: str, wanted: list[int], others: list[int], *options: str) -> None:
    """All processes do the same; only the *wanted* ones are seen. Those of other tests may be seen, too."""
    actions = [f"{SERVED} {pid}" for pid in (*wanted, *others, *wanted)]
    result = server.run((*options, "-e", program), when_attached=(*actions, "signal INT"), timeout=120)
    assert result.status == 0, result
    assert "WARNING" not in result.stderr, result
    mine = tuple(f"@[{pid}]: " for pid in (*wanted, *others))
    assert [line for line in lines(result) if line.startswith(mine)] == sorted(f"@[{pid}]: 2" for pid in wanted), result


def lines(result: Result) -> list[str]:
    return sorted(line for line in result.stdout.splitlines() if line)


@pytest.mark.parametrize(("program", "feature"), KINDS)
def test_several_processes(server: Server, programs: Path, program: str, feature: str) -> None:
    need(feature)
    waiter = programs / "waiter"
    with waiting(waiter) as one, waiting(waiter) as two, waiting(waiter) as other:
        options = ("-p", f"{one},{two}")
        if "in_scope" in program:
            options = ("--follow", *options)
        served(server, program.format(waiter=waiter), [one, two], [other], *options)


@pytest.mark.parametrize(("program", "feature"), KINDS)
def test_names_of_threads(server: Server, programs: Path, program: str, feature: str, tmp_path: Path) -> None:
    need(feature)
    waiter = programs / "waiter"
    # The same file by other names, of which one is the beginning of the wanted one, and one begins with it.
    shorter, longer = tmp_path / "waite", tmp_path / "waiter2"
    for path in (shorter, longer):
        path.symlink_to(waiter)
    with waiting(waiter) as one, waiting(shorter) as two, waiting(longer) as three:
        served(server, program.format(waiter=waiter), [one], [two, three], "--comm", "waiter")
        served(server, program.format(waiter=waiter), [two, three], [one], "--comm", "waite", "--comm", "waiter2")


@pytest.mark.parametrize(("program", "feature"), KINDS)
def test_users(server: Server, programs: Path, program: str, feature: str) -> None:
    need(feature)
    with TemporaryDirectory(dir="/var/tmp") as folder:
        # Other users may not enter the folder of the programs.
        os.chmod(folder, 0o755)
        waiter = Path(shutil.copy(programs / "waiter", folder))
        _by_user(server, waiter, program)


def _by_user(server: Server, waiter: Path, program: str) -> None:
    with waiting(waiter, preexec_fn=lambda: os.setresuid(54321, 54321, 54321)) as one, waiting(waiter) as other:
        served(server, program.format(waiter=waiter), [one], [other], "--uid", "54321")
        served(server, program.format(waiter=waiter), [other], [one], "--uid", "root", "--uid", "54320")


@pytest.mark.parametrize(("program", "feature"), KINDS)
def test_cgroups_and_those_below(server: Server, programs: Path, program: str, feature: str) -> None:
    need(feature)
    waiter = programs / "waiter"
    text = program.format(waiter=waiter)
    with own_cgroup() as group, own_cgroup(group) as below, own_cgroup() as next_to, ExitStack() as stack:
        one, two, three, four = (stack.enter_context(waiting(waiter)) for _ in range(4))
        for pid, place in ((one, group), (two, below), (three, next_to)):
            put(pid, place)
        served(server, text, [one, two], [three, four], "--cgroup", group.name)
        served(server, text, [two], [one, three, four], "--cgroup", str(below))
        served(server, text, [two, three], [one, four], "--cgroup", str(below), "--cgroup", f"/{next_to.name}")
        # All kinds of filters must hold.
        served(server, text, [one], [two, three, four], "--cgroup", group.name, "-p", f"{one},{three}")


def test_a_container_is_found_by_its_cgroup(server: Server, programs: Path) -> None:
    need("syscalls")
    waiter = programs / "waiter"
    identity = f"{os.getpid():08x}" + "0123456789abcdef" * 3 + "01234567"
    with own_cgroup() as outer, waiting(waiter) as one, waiting(waiter) as other:
        group = outer / f"docker-{identity}.scope"
        group.mkdir()
        try:
            put(one, group)
            text = "t:syscalls:sys_enter_rt_sigtimedwait { @[pid] = count(); }"
            served(server, text, [one], [other], "--container", identity[:12])
        finally:
            put(one, outer)
            group.rmdir()


@pytest.mark.parametrize(("program", "feature"), KINDS)
def test_network_namespaces(server: Server, programs: Path, program: str, feature: str) -> None:
    need(feature)
    waiter = programs / "waiter"

    def enter(name: str) -> None:
        descriptor = os.open(f"/run/netns/{name}", os.O_RDONLY)
        libc.setns(descriptor, 0)
        os.close(descriptor)

    import ctypes

    libc = ctypes.CDLL(None)
    with namespace() as here, namespace() as there, ExitStack() as stack:
        one = stack.enter_context(waiting(waiter, preexec_fn=lambda: enter(here)))
        two = stack.enter_context(waiting(waiter, preexec_fn=lambda: enter(there)))
        three = stack.enter_context(waiting(waiter))
        served(server, program.format(waiter=waiter), [one], [two, three], "--netns", here)


@pytest.mark.parametrize("option", ["--comm", "-p"])
@pytest.mark.parametrize("probe", ["profile:hz:999", "software:cpu-clock:1000000"])
def test_samples_of_wanted_processes(server: Server, programs: Path, probe: str, option: str, tmp_path: Path) -> None:
    need("perf_events")
    program = f"{probe} {{ @[comm] = count(); if (++@n == 20) {{ exit(); }} }} end {{ clear(@n); }}"
    other = tmp_path / "other"
    other.symlink_to(programs / "busy")
    with ExitStack() as stack:
        processes = []
        for path in (programs / "busy", other):
            process = stack.enter_context(subprocess.Popen([path, "10000000"]))
            stack.callback(process.kill)
            processes.append(process)
        value = "busy" if option == "--comm" else f"{processes[0].pid},{os.getpid()}"
        result = server.run(("-e", program, option, value), timeout=60)
    names = {line.partition(":")[0] for line in lines(result)}
    assert "@[busy]" in names, result
    assert "@[other]" not in names, result


def test_usdt(server: Server, programs: Path, tmp_path: Path) -> None:
    need("uprobe")
    other = tmp_path / "other"
    other.symlink_to(programs / "usdt")
    program = f"usdt:{programs}/usdt:sample:one {{ @[comm] = count(); }}"
    command = f"sh -c '{other} 3 >/dev/null; {programs}/usdt 2 >/dev/null'"
    result = server.run(("--comm", "usdt", "-e", program, "-c", command))
    assert lines(result) == ["@[usdt]: 2"], result


def test_the_run_ends_with_the_last_process(server: Server, programs: Path) -> None:
    need("syscalls")
    waiter = programs / "waiter"
    program = "t:syscalls:sys_enter_rt_sigtimedwait { @[pid] = count(); }"
    with subprocess.Popen([waiter]) as one, subprocess.Popen([waiter]) as two:
        for process in (one, two):
            until(lambda pid=process.pid: sleeps(pid, "waiter"))
        actions = (f"kill {one.pid}", f"{SERVED} {two.pid}", f"kill {two.pid}")
        result = server.run(("-p", str(one.pid), "-p", str(two.pid), "-e", program), when_attached=actions, timeout=60)
    assert (result.status, lines(result)) == (0, [f"@[{two.pid}]: 1"])


def test_children_of_several_processes(server: Server, programs: Path) -> None:
    need("uprobe", "syscalls")
    program = f"u:{programs}/family:born {{ @born[arg0] = count(); }} interval:s:60 {{ }}"
    family = programs / "family"
    with ExitStack() as stack:
        pids = []
        for _ in range(3):
            process = stack.enter_context(subprocess.Popen([family, "1", "1", "wait"], stdout=subprocess.DEVNULL))
            stack.callback(process.kill)
            until(lambda pid=process.pid: sleeps(pid, "family"))
            pids.append(process.pid)
        options = ("--follow", "-p", ",".join(map(str, pids[:2])))
        actions = [f"kill -USR1 {pid}" for pid in pids]
        result = server.run((*options, "-e", program), when_attached=actions, timeout=60)
    assert result.status == 0, result
    assert "@born[0]: 2" in lines(result), result


def test_a_program_is_awaited(server: Server, tmp_path: Path) -> None:
    need("syscalls")
    name = f"awaited-{os.getpid()}"
    (tmp_path / name).symlink_to("/bin/sh")
    program = "tracepoint:sched:sched_process_exec { @[comm] = count(); }"
    # What runs before and after is not traced; the run ends with the awaited process, not with the command.
    script = f"true; {tmp_path}/{name} -c 'cat /dev/null; :'; sleep 60"
    result = server.run(("--exec-wait", name, "-e", program, "-c", f'sh -c "{script}"'), timeout=50)
    assert (result.status, lines(result)) == (0, sorted([f"@[{name[:15]}]: 1", "@[cat]: 1"])), result


def test_a_run_of_some_time(server: Server) -> None:
    result = server.run(("--duration", "0.2", "-e", 'interval:s:60 { } end { print("ended"); }'), timeout=60)
    assert (result.status, lines(result)) == (0, ["ended"])


@pytest.mark.parametrize(
    ("script", "first", "second"),
    [
        ("t:syscalls:sys_enter_close { @ = count(); }", ("-p", "{own}"), ("-p", "{parent}")),
        ("t:syscalls:sys_enter_close { @ = count(); }", ("--comm", "a", "--uid", "1"), ("--comm", "b", "--uid", "2")),
        ("t:syscalls:sys_enter_close { @ = count(); }", ("-p", "{own},{parent}"), ("-p", "{parent},{own}")),
    ],
)  # fmt: skip
def test_another_value_is_a_cached_start(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, first: tuple[str, ...],
    second: tuple[str, ...],
) -> None:  # fmt: skip
    need("syscalls")
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    for options in (first, second):
        words = [word.format(own=os.getpid(), parent=os.getppid()) for word in options]
        argv = [sys.executable, "-m", "pytrace", "-q", "--duration", "0.1", "-e", script, *words]
        subprocess.run(argv, check=True, env=os.environ | environment, stdout=subprocess.DEVNULL, timeout=patience(60))
    assert len(list((tmp_path / "pytrace/scripts").iterdir())) == 1


# ---------------------------------------------------------------------------------------------- networks
# Interfaces and network namespaces in output, and commands in a namespace: with namespaces that the test makes.


SIZE = 123
"""Bytes in each datagram: what else is sent on the link, by the kernel itself, has another size."""
HEADERS = 14 + 20 + 8


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
    done = server.run(("-q", *options, "-c", command, "-e", script))
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
