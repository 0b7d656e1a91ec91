"""Which processes are traced: -p for each kind of probe, --follow with -p, namespaces, control groups."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from pytrace.runtime.machine.procfs import live_thread
from tests.support.compile import SOURCES, compiled
from tests.support.expect import Result
from tests.support.machine import need, own_cgroup
from tests.support.patience import patience
from tests.support.server import Server
from tests.support.waiting import SERVED, descendants, runs, sleeps, until

pytestmark = pytest.mark.usefixtures("started", "no_leaks")


@pytest.fixture
def started(server: Server) -> None:
    """The server runs before processes are counted."""
    server.start()


ROOT = Path(__file__).resolve().parents[2]
SHELL = os.path.basename(os.path.realpath("/bin/sh"))


@contextmanager
def running(*command: str | Path, becomes: str = "") -> Iterator[int]:
    """A process that runs the program *becomes* (that of *command*) and waits for signals; its number."""
    process = subprocess.Popen([str(item) for item in command], stdout=subprocess.DEVNULL)
    try:
        until(lambda: sleeps(process.pid, becomes or os.path.basename(command[0])))
        yield process.pid
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(timeout=patience(30))


def traced(server: Server, program: str, pid: int, *actions: str, options: tuple[str, ...] = ()) -> Result:
    """One run with ``-p``: *actions* once everything is attached, then Ctrl-C."""
    argv = (*options, "-e", program, "-p", str(pid))
    result = server.run(argv, when_attached=(*actions, "signal INT"), timeout=120)
    assert result.status == 0, result
    return result


def lines(result: Result) -> list[str]:
    return [line for line in result.stdout.splitlines() if line]


EACH = pytest.mark.each_kernel
CORE = pytest.mark.core

ONE = [
    pytest.param("u:{waiter}:served {{ @ = count(); }}", "uprobe", "@: 2", id="uprobe"),
    pytest.param("ur:{waiter}:served {{ @ = count(); }}", "uprobe", "@: 2", id="uretprobe"),
    pytest.param("u:served {{ @ = count(); }}", "uprobe", "@: 2", id="program_of_the_process"),
    pytest.param("u:*:served {{ @ = count(); }}", "uprobe", "@: 2", id="mapped_binaries"),
    pytest.param("t:syscalls:sys_enter_rt_sigtimedwait {{ @ = count(); }}", "syscalls", "@: 2", id="tracepoint"),
    pytest.param("rt:sys_enter /arg1 == 128/ {{ @ = count(); }}", "rawtracepoint", "@: 2", id="rawtracepoint"),
    pytest.param("k:__x64_sys_rt_sigtimedwait {{ @ = count(); }}", "kprobe", "@: 2", id="kprobe", marks=CORE),
    # The process is in the function already: that return has no entry that was seen.
    pytest.param("kr:__x64_sys_rt_sigtimedwait {{ @ = count(); }}", "kprobe", "@: 1", id="kretprobe", marks=CORE),
    pytest.param("fentry:__x64_sys_rt_sigtimedwait {{ @ = count(); }}", "fentry", "@: 2", id="fentry", marks=CORE),
    pytest.param("fexit:__x64_sys_rt_sigtimedwait {{ @ = count(); }}", "fentry", "@: 1", id="fexit", marks=CORE),
    pytest.param(
        "i:s:60 {{ }} t:syscalls:sys_enter_rt_sigtimedwait {{ @[pid] = count(); }}", "syscalls", "@[{pid}]: 2",
        id="with_others",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("program", "feature", "expected"), ONE)
def test_one_process(server: Server, programs: Path, program: str, feature: str, expected: str) -> None:
    need(feature)
    waiter = programs / "waiter"
    with running(waiter) as pid, running(waiter) as other:
        actions = [f"{SERVED} {target}" for target in (pid, other, pid)]
        result = traced(server, program.format(waiter=waiter), pid, *actions)
        # One that a signal ended before it waited for it is not what was to be counted.
        assert runs(pid, "waiter"), result
        assert runs(other, "waiter"), result
        assert lines(result) == [expected.format(pid=pid)], result


EVENTS = [
    pytest.param("profile:hz:999", "perf_events", id="profile", marks=EACH),
    pytest.param("software:cpu-clock:1000000", "perf_events", id="software"),
    pytest.param("hardware:instructions:1000000", "pmu", id="hardware"),
]


@pytest.mark.parametrize(("probe", "feature"), EVENTS)
def test_events_of_one_process(server: Server, programs: Path, probe: str, feature: str) -> None:
    need(feature)
    program = f"{probe} {{ @[comm] = count(); if (++@n == 20) {{ exit(); }} }} end {{ clear(@n); }}"
    with subprocess.Popen([programs / "busy", "10000000"]) as process:
        try:
            result = server.run(("-e", program, "-p", str(process.pid)), timeout=60)
        finally:
            process.kill()
    (line,) = lines(result)
    assert line.startswith("@[busy]: "), result


@pytest.mark.parametrize("follow", [False, pytest.param(True, marks=EACH)])
def test_children_of_a_running_process(server: Server, programs: Path, follow: bool) -> None:
    need("uprobe", "syscalls")
    program = (
        f"u:{programs}/family:born {{ @born[arg0] = count(); }} "
        "t:syscalls:sys_enter_exit_group { @exits = count(); } interval:s:60 { }"
    )
    with running(programs / "family", "2", "2", "wait") as pid:
        options = ("--follow",) if follow else ()
        result = server.run((*options, "-e", program, "-p", str(pid)), when_attached=(f"kill -USR1 {pid}",), timeout=60)
        expected = ["@born[0]: 1", "@exits: 1"]
        if follow:
            expected = ["@born[0]: 1", "@born[1]: 2", "@born[2]: 4", "@exits: 7"]
        assert sorted(lines(result)) == expected, result


@contextmanager
def brood(programs: Path, *before: str) -> Iterator[subprocess.Popen[str]]:
    """A process with three living descendants."""
    command = [*before, str(programs / "brood")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            # The grandchild may come later than that.
            until(lambda: len(descendants(process.pid)) == 4)
            yield process
        finally:
            process.terminate()


def serve(brood: int) -> str:
    """Shell command: all four processes of a brood serve one signal, and wait for the next one."""
    return f"{SERVED} {' '.join(map(str, descendants(brood)))}"


LIVING = [
    pytest.param("u:{brood}:hatched {{ @[arg0] = count(); }}", "uprobe", ["@[0]: 1", "@[1]: 1", "@[2]: 1", "@[3]: 1"],
                 id="uprobe"),
    pytest.param("t:syscalls:sys_enter_rt_sigtimedwait {{ @[comm] = count(); }}", "syscalls", ["@[brood]: 4"],
                 id="tracepoint"),
    pytest.param("rt:sys_enter /arg1 == 128/ {{ @[comm] = count(); }}", "rawtracepoint", ["@[brood]: 4"],
                 id="rawtracepoint"),
    pytest.param("software:context-switches:1 {{ @[comm, pid] = count(); }} end {{ print(len(@)); clear(@); }}",
                 "perf_events", ["4"], id="software"),
]  # fmt: skip


@pytest.mark.parametrize(("program", "feature", "expected"), LIVING)
def test_descendants_that_live_already(
    server: Server, programs: Path, program: str, feature: str, expected: list[str]
) -> None:
    need(feature, "iter")
    with brood(programs) as process, brood(programs) as other:
        actions = [serve(item.pid) for item in (other, process)]
        text = program.format(brood=programs / "brood")
        result = traced(server, text, process.pid, *actions, options=("--follow",))
        assert lines(result) == expected


def test_only_the_process_without_follow(server: Server, programs: Path) -> None:
    need("uprobe")
    with brood(programs) as process:
        program = f"u:{programs}/brood:hatched {{ @[arg0] = count(); }}"
        result = traced(server, program, process.pid, serve(process.pid))
        assert lines(result) == ["@[0]: 1"]
        said = rf"\d child process(es)? of {process.pid} (is|are) not traced: --follow traces them, too \(brood \d+"
        assert re.search(said, result.stderr)


def test_descendants_of_descendants_that_live_already(server: Server, programs: Path, tmp_path: Path) -> None:
    """What is forked later by a process that was forked before tracing started."""
    need("syscalls", "iter")
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with subprocess.Popen(["sh", "-c", f"(read line; {programs}/family 1 2; true) < {fifo}; true"]) as shell:
        # The shell's child has opened it, too.
        with open(fifo, "w", encoding="ascii") as pipe:
            program = "t:syscalls:sys_enter_exit_group { @[comm] = count(); }"
            argv = ("--follow", "-e", program, "-p", str(shell.pid))
            wake = f"echo > /proc/{os.getpid()}/fd/{pipe.fileno()}"
            result = server.run(argv, when_attached=(wake,), timeout=60)
        assert lines(result) == ["@[family]: 3", "@[sh]: 2"] or lines(result) == ["@[sh]: 2", "@[family]: 3"], result


@contextmanager
def told_to_go(tmp_path: Path, *command: str | Path) -> Iterator[tuple[int, str]]:
    """A process that waits for a line on its standard input; its number, and the shell command that sends the line."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    program = os.path.basename(os.path.realpath(shutil.which(command[0]) or command[0]))
    with open(os.open(fifo, os.O_RDWR), "wb", buffering=0) as pipe:
        with subprocess.Popen([str(word) for word in command], stdin=pipe, stdout=subprocess.DEVNULL) as process:
            until(lambda: sleeps(process.pid, program))
            yield process.pid, f"echo > /proc/{os.getpid()}/fd/{pipe.fileno()}"
            process.terminate()


LATE = """
import ctypes, sys
sys.stdin.readline()
library = ctypes.CDLL(sys.argv[1])
for number in range(4):
    library.library_add(number, 1)
"""
EXECUTED_BY_A_THREAD = """
import os, sys, threading
sys.stdin.readline()
threading.Thread(target=os.execv, args=(sys.argv[1], sys.argv[1:])).start()
"""


@pytest.mark.parametrize("target", [pytest.param("libsample.so", marks=pytest.mark.each_kernel), "libs*"])
@pytest.mark.parametrize("options", [(), ("--no-feature", "uprobe_multi"), ("--follow",)])
def test_a_library_that_is_opened_later(
    server: Server, programs: Path, tmp_path: Path, target: str, options: tuple[str, ...]
) -> None:
    need("uprobe")
    if "uprobe_multi" in options:
        need("uprobe_multi")  # without it, no options do the same
    with told_to_go(tmp_path, sys.executable, "-c", LATE, programs / "libsample.so") as (pid, go):
        argv = (*options, "-e", f"u:{programs}/{target}:library_* {{ @[func] = count(); }}", "-p", str(pid))
        result = server.run(argv, when_attached=(go,), timeout=60)
        assert lines(result) == ["@[library_add]: 4"], result


@pytest.mark.parametrize("options", [(), ("--no-feature", "uprobe_multi"), ("--follow",)])
def test_a_program_that_is_executed_later(
    server: Server, programs: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    need("uprobe", "syscalls")
    script = (
        f"u:{programs}/family:born {{ @[arg0] = count(); }} "
        "t:syscalls:sys_enter_exit_group { @exits = count(); } software:page-faults:1 { @faults[comm] = count(); } "
        "end { print(has_key(@faults, \"family\")); clear(@faults); }"
    )
    with told_to_go(tmp_path, "sh", "-c", f"read line; exec {programs}/family 1 2") as (pid, go):
        result = server.run((*options, "-e", script, "-p", str(pid)), when_attached=(go,), timeout=60)
    expected = ["@[0]: 1", "@[1]: 2", "@exits: 3"] if "--follow" in options else ["@[0]: 1", "@exits: 1"]
    assert sorted(lines(result)) == [*expected, "true"], result


@pytest.mark.parametrize("children", [1_000, pytest.param(10_000, marks=pytest.mark.soak)])
def test_thousands_of_children_are_followed(server: Server, programs: Path, children: int) -> None:
    need("uprobe", "syscalls")
    script = (
        f"u:{programs}/forks:in_child {{ @ = count(); @sum = sum(arg0); }} "
        "t:syscalls:sys_enter_exit_group { @exits = count(); }"
    )
    result = server.run(("-q", "--follow", "-e", script, "-c", f"{programs}/forks {children}"), timeout=600)
    expected = [f"@: {children}", f"@exits: {children + 1}", f"@sum: {children * (children - 1) // 2}"]
    assert sorted(lines(result)) == expected, result


def test_a_program_that_a_thread_executes(server: Server, programs: Path, tmp_path: Path) -> None:
    """The thread takes over the number of its process."""
    need("uprobe", "syscalls", "iter")
    born = f"u:{programs}/family:born {{ @[arg0] = count(); }}"
    script = f"{born} t:syscalls:sys_enter_exit_group {{ @exits = count(); }}"
    command = (sys.executable, "-c", EXECUTED_BY_A_THREAD, programs / "family", "1", "2")
    with told_to_go(tmp_path, *command) as (pid, go):
        result = server.run(("--follow", "-e", script, "-p", str(pid)), when_attached=(go,), timeout=60)
    assert sorted(lines(result)) == ["@[0]: 1", "@[1]: 2", "@exits: 3"], result


def test_user_probes_of_a_process_whose_threads_execute_programs(server: Server, programs: Path) -> None:
    """The kernel ends them with the first thread; the program waits until they are there again (by its semaphore)."""
    need("uprobe_multi", "usdt")
    takeover = programs / "takeover"
    script = (
        f"usdt:{takeover}:sample:taken {{ @taken[arg0] = count(); }} u:{takeover}:step {{ @calls = count(); }} "
        f"ur:{takeover}:step {{ @returns = sum(retval); }} call:{takeover}:step {{ @spans = count(); }}"
    )
    result = server.run(("-e", script, "-c", f"{takeover} 3"), timeout=60)
    expected = ["@calls: 6", "@returns: 9", "@spans: 6", "@taken[0]: 1", "@taken[1]: 1", "@taken[2]: 1"]
    assert sorted(lines(result)) == expected, result
    told = "executed a program, which ended its user probes: they are attached again"
    assert result.stderr.count(told) == 2, result


FIRST_THREAD_ENDS = """
import ctypes, sys, threading, time
def work():
    ended = f"/proc/self/task/{threading.main_thread().native_id}/stat"
    while open(ended).read().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.001)
    library = ctypes.CDLL(sys.argv[1])
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        library.library_add(1, 1)
        time.sleep(0.01)
sys.stdin.readline()
ctypes.CDLL(sys.argv[1]).library_add(0, 1)
threading.Thread(target=work).start()
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.mark.parametrize(("options", "told", "counted"), [
    ((), "has ended: libraries that it opens from now on have no user probes", "@other: true"),
    (("--no-feature", "uprobe_multi"), "has ended, and its user probes with it", "@other: false"),
    (("--follow",), "", "@other: true"),
])  # fmt: skip
def test_user_probes_of_a_process_whose_first_thread_ends(
    server: Server, programs: Path, tmp_path: Path, options: tuple[str, ...], told: str, counted: str
) -> None:
    need("uprobe_multi")
    script = f"u:{programs}/libsample.so:library_add {{ @other = pid != tid; }}"
    with told_to_go(tmp_path, sys.executable, "-c", FIRST_THREAD_ENDS, programs / "libsample.so") as (pid, go):
        result = server.run((*options, "-e", script, "-p", str(pid)), when_attached=(go,), timeout=60)
    assert lines(result) == [counted], result
    assert (told in result.stderr) if told else ("WARNING" not in result.stderr), result


def test_all_binaries_are_also_the_program_of_the_command(server: Server, programs: Path) -> None:
    need("uprobe")
    script = "u:*:born { @[arg0] = count(); }"
    result = server.run(("-q", "--follow", "-e", script, "-c", f"{programs}/family 1 2"), timeout=60)
    assert lines(result) == ["@[0]: 1", "@[1]: 2"], result


def test_the_tracer_ends_with_the_process(server: Server, programs: Path) -> None:
    need("syscalls")
    with running(programs / "waiter") as pid:
        argv = ("-e", "t:syscalls:sys_enter_rt_sigtimedwait { @ = count(); }", "-p", str(pid))
        result = server.run(argv, when_attached=(f"{SERVED} {pid}; kill {pid}",), timeout=60)
        assert result.status == 0
        assert lines(result) == ["@: 1"]


# ---------------------------------------------------------------------------------------------- namespaces


def unshare(*options: str) -> list[str]:
    path = shutil.which("unshare")
    if path is None:
        pytest.skip("the program unshare is not here")
    return [path, *options]


def test_program_in_another_mount_namespace(server: Server, programs: Path, tmp_path: Path) -> None:
    """The path that the process sees names another file than here, or none."""
    need("uprobe")
    hidden = tmp_path / "only-inside"
    hidden.mkdir()
    script = f"mount --bind {programs} {hidden} && exec {hidden}/waiter"
    with running(*unshare("-m", "sh", "-c", script), becomes="waiter") as pid:
        assert not (hidden / "waiter").exists()
        for target in ("", f"{hidden}/waiter:"):
            program = f"u:{target}served {{ @ = count(); }}"
            result = traced(server, program, pid, f"{SERVED} {pid}; {SERVED} {pid}")
            assert lines(result) == ["@: 2"], program


def test_static_probes_in_another_mount_namespace(server: Server, programs: Path, tmp_path: Path) -> None:
    need("usdt")
    hidden = tmp_path / "only-inside"
    hidden.mkdir()
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    script = f"mount --bind {programs} {hidden} && exec {hidden}/usdt 3 wait < {fifo}"
    with running(*unshare("-m", "sh", "-c", script), becomes=SHELL) as pid:
        # The shell waits for a writer before it becomes the program.
        with open(fifo, "w", encoding="ascii") as pipe:
            until(lambda: sleeps(pid, "usdt"))
            program = f"usdt:{hidden}/usdt:sample:guarded {{ @ = count(); }}"
            argv = ("-e", program, "-p", str(pid))
            result = server.run(argv, when_attached=(f"echo > /proc/{os.getpid()}/fd/{pipe.fileno()}",), timeout=60)
        assert lines(result) == ["@: 3"], result


@pytest.mark.parametrize("target", ["*:", "*:sample:", "", "{programs}/usdt:sample:"])
def test_static_probes_of_a_process(server: Server, programs: Path, tmp_path: Path, target: str) -> None:
    need("usdt")
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with (
        running("sh", "-c", f"exec {programs}/usdt 3 wait < {fifo}", becomes=SHELL) as pid,
        open(fifo, "w", encoding="ascii") as pipe,
    ):
        until(lambda: sleeps(pid, "usdt"))
        program = f"usdt:{target.format(programs=programs)}guarded {{ @ = count(); }}"
        argv = ("-e", program, "-p", str(pid))
        wake = f"echo > /proc/{os.getpid()}/fd/{pipe.fileno()}"
        result = server.run(argv, when_attached=(f"{programs}/usdt 7", wake), timeout=60)
        assert lines(result) == ["@: 3"], result


def test_process_ids_of_a_pid_namespace(server: Server, programs: Path) -> None:
    """Traced from outside, ``pid`` is the number here; traced from inside, the number there."""
    need("syscalls")
    program = "t:syscalls:sys_enter_getppid { @[pid == cpid, pid(init) == pid] = count(); }"
    argv = ("-q", "-e", program, "-c", f"{programs}/syscalls 4")
    plain = server.run(argv, timeout=60)
    # Other tests may call getppid() at the same time.
    assert [line for line in lines(plain) if "[true," in line] == ["@[true, true]: 4"], plain
    command = [*unshare("-p", "--fork", "--mount-proc"), sys.executable, "-m", "pytrace", *argv]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    inside = subprocess.run(
        command, capture_output=True, text=True, timeout=patience(60), check=False, cwd="/", env=environment
    )
    assert [line for line in inside.stdout.splitlines() if "[true," in line] == ["@[true, false]: 4"], inside


def test_user_symbols_inside_a_pid_namespace(programs: Path) -> None:
    """Names of a process's functions come from its files, which are found by its number in the tracer's namespace."""
    need("uprobe")
    program = f"u:{programs}/calls:negative {{ @[usym(reg(\"ip\")), ustack(1)] = count(); }}"
    command = [
        *unshare("-p", "--fork", "--mount-proc"), sys.executable, "-m", "pytrace",
        "-q", "-e", program, "-c", f"{programs}/calls 3",
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTRACE_SHOW_DEBUG_INFO": "0"}
    inside = subprocess.run(
        command, capture_output=True, text=True, timeout=patience(60), check=False, cwd="/", env=environment
    )
    found = [line.strip() for line in inside.stdout.splitlines() if line.strip()]
    assert [line.partition("+")[0] for line in found] == ["@[negative,", "negative", "]: 3"], inside


def test_follow_inside_a_pid_namespace(programs: Path) -> None:
    need("syscalls")
    program = "t:syscalls:sys_enter_exit_group { @[comm] = count(); }"
    command = [
        *unshare("-p", "--fork", "--mount-proc"), sys.executable, "-m", "pytrace",
        "-q", "--follow", "-e", program, "-c", f"{programs}/family 2 2",
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    inside = subprocess.run(
        command, capture_output=True, text=True, timeout=patience(60), check=False, cwd="/", env=environment
    )
    assert [line for line in inside.stdout.splitlines() if line] == ["@[family]: 7"], inside


def test_living_descendants_inside_a_pid_namespace(programs: Path, tmp_path: Path) -> None:
    """Forks are told by the numbers of the initial namespace, processes are named by those of the tracer's."""
    need("uprobe", "iter")
    program = f"u:{programs}/brood:hatched {{ @[arg0, pid != pid(init)] = count(); }}"
    tracer = f"{sys.executable} -m pytrace -q --follow -e '{program}' -p $number"
    script = f"""
        {programs}/brood > ready & number=$!
        until [ -s ready ]; do sleep 0.1; done
        __PYTRACE_NOTIFY_PROBES_ATTACHED=1 {tracer} > out & tracer=$!
        until [ -s out ] || [ ! -d /proc/$tracer ]; do sleep 0.1; done
        {SERVED} $number; kill -INT $tracer; wait $tracer; kill $number; cat out"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    inside = subprocess.run(
        [*unshare("-p", "--fork", "--mount-proc"), "sh", "-c", script],
        capture_output=True, text=True, timeout=patience(60), check=False, cwd=tmp_path, env=environment,
    )  # fmt: skip
    found = [line for line in inside.stdout.splitlines() if line.startswith("@")]
    assert found == [f"@[{n}, true]: 1" for n in range(4)], inside


# ---------------------------------------------------------------------------------------------- control groups


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A cgroup v2 directory of its own."""
    with own_cgroup() as made:
        yield made


@pytest.mark.each_kernel
def test_cgroup_filter(server: Server, programs: Path, cgroup: Path) -> None:
    need("syscalls")
    program = f't:syscalls:sys_enter_getppid /cgroup == cgroupid("{cgroup}")/ {{ @[cgroup_path(cgroup)] = count(); }}'
    command = f"sh -c 'echo $$ > {cgroup}/cgroup.procs; exec {programs}/syscalls 5'"
    result = server.run(("-q", "-e", program, "-c", command), timeout=60)
    assert lines(result) == [f"@[unified:/{cgroup.name}]: 5"], result


def test_a_hierarchy_that_is_mounted_twice_has_one_path(tmp_path: Path, cgroup: Path) -> None:
    """As in a container's root or a chroot, which have a ``/sys`` of their own."""
    program = f'begin {{ printf("%s\\n", cgroup_path(cgroupid("{cgroup}"))); }}'
    steps = f'mount --rbind /sys {tmp_path} && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", steps, "sh", sys.executable, "-m", "pytrace", "-q", "-e", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=patience(30))
    assert (done.stdout.strip(), done.returncode) == (f"unified:/{cgroup.name}", 0), done


def test_a_process_whose_first_thread_has_ended(tmp_path: Path) -> None:
    """The kernel binds no user probe to it: programs compare the process. Another one runs the same code."""
    options = ("-g", "-O1", "-fno-omit-frame-pointer", "-pthread", f"-I{ROOT}/tests/programs")
    program = compiled(tmp_path, "headless", SOURCES / "without_first_thread.c", *options)
    script = f"""
    uprobe:{program}:work {{ @entries[pid] = count(); @stacks[ustack(folded, 1), func] = count(); }}
    uretprobe:{program}:work {{ @returns[pid] = sum(retval); }}
    uprobe::wor* {{ @own[pid] = count(); }}
    usdt::sample:one {{ @usdt[pid] = sum(arg0); }}
    usdt:{program}:sample:guarded {{ @guarded[pid] = count(); }}
    """
    command = [program]
    with ExitStack() as stack:
        both = [
            stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            for _ in range(2)
        ]
        pid = both[0].pid
        until(lambda: all(live_thread(process.pid) not in (0, process.pid) for process in both))
        tracer = stack.enter_context(
            subprocess.Popen([sys.executable, "-m", "pytrace", "-f", "json", "-p", str(pid), "-e", script],
                             stdout=subprocess.PIPE, text=True)
        )  # fmt: skip
        assert tracer.stdout is not None
        assert json.loads(tracer.stdout.readline())["type"] == "attached_probes"
        for process in both:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("100\n")
            process.stdin.flush()
            assert process.stdout.readline() == "5050\n"
        tracer.send_signal(signal.SIGINT)
        maps = {name: data for line in tracer.stdout for name, data in json.loads(line)["data"].items()}
        for process in both:
            assert process.stdin is not None
            process.stdin.close()
    assert maps.pop("@stacks") == {"work,work": 100}
    mine = str(pid)
    assert maps == {"@entries": {mine: 100}, "@returns": {mine: 5050}, "@own": {mine: 100}, "@usdt": {mine: 4950},
                    "@guarded": {mine: 100}}  # fmt: skip
