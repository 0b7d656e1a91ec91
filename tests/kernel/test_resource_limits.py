"""Limits of processes, memory and files, and file systems that are not mounted: errors name what is missing."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.test_surroundings import FULL, PRINTED, USER, shell
from tests.support.machine import need
from tests.support.patience import patience
from tests.support.running import Tracer
from tests.support.waiting import until

pytestmark = [pytest.mark.own_process, pytest.mark.usefixtures("no_leaks")]

CGROUPS = Path("/sys/fs/cgroup")


class Limited:
    """A cgroup with a limit, of either version: processes that enter it are limited."""

    def __init__(self, controller: str) -> None:
        first = CGROUPS / controller
        if first.is_dir() and (first / "cgroup.procs").exists():
            self.unified, parent = False, first
        else:
            self.unified, parent = True, CGROUPS
            controllers = parent / "cgroup.subtree_control"
            if not controllers.exists():
                pytest.skip(f"no cgroup hierarchy with the controller {controller} is mounted")
            try:
                controllers.write_text(f"+{controller}")
            except OSError as error:
                pytest.skip(f"the controller {controller} cannot be had: {error.strerror}")
        self.folder = parent / f"pytrace-limited-{os.getpid()}"
        self.folder.mkdir()
        self.enter = f"echo $$ > {self.folder}/cgroup.procs || exit 99;"

    def limit(self, first: str, second: str, value: int) -> None:
        """Set the limit of that name in version 1 and 2."""
        (self.folder / (second if self.unified else first)).write_text(str(value))

    def close(self) -> None:
        until(lambda: not (self.folder / "cgroup.procs").read_text())
        self.folder.rmdir()


@pytest.fixture
def processes() -> Iterator[Limited]:
    made = Limited("pids")
    made.limit("pids.max", "pids.max", 1)
    yield made
    made.close()


@pytest.fixture
def memory() -> Iterator[Limited]:
    made = Limited("memory")
    yield made
    made.close()


NO_PROCESS = "Resource temporarily unavailable"


def test_the_command_cannot_be_started(tmp_path: Path, processes: Limited) -> None:
    done = shell(f'{processes.enter} exec $P -q -e "$S" -c true', tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"ERROR: cannot run true: {NO_PROCESS}\nHINT: see ulimit -u and pids.max of the cgroup\n"


def test_a_user_has_no_more_processes(tmp_path: Path) -> None:
    """Root and CAP_SYS_RESOURCE are not limited by RLIMIT_NPROC."""
    rights = "+bpf,+perfmon,+dac_override,+dac_read_search"
    user = f"setpriv --reuid=54321 --inh-caps {rights} --ambient-caps {rights}"
    done = shell(f'prlimit --nproc=1 {user} $P -q -e "$S" -c true', tmp_path, HOME="/nonexistent", XDG_CACHE_HOME="")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"ERROR: cannot run true: {NO_PROCESS}" in done.stderr


def test_system_cannot_be_run(tmp_path: Path, processes: Limited) -> None:
    """What the script traces matters more than the command: the run goes on."""
    script = 'begin { system("echo no"); printf("on\\n"); @ = 1; exit(); }'
    done = shell(f'{processes.enter} exec $P -q --unsafe -e "$S"', tmp_path, S=script)
    assert (done.returncode, done.stdout.split()) == (0, ["on", "@:", "1"])
    assert f"WARNING: system: cannot run 'echo no': {NO_PROCESS}" in done.stderr


def test_no_thread_can_be_started(tmp_path: Path, processes: Limited) -> None:
    """The compiler and the watchdog need one."""
    need("uprobe", "perf_events")
    script = "u:libc:getppid /pid == 1/ { @s[ustack] = count(); } profile:hz:9 { } interval:ms:50 { @ = 1; exit(); }"
    cache = str(tmp_path / "cache")
    done = shell(f'{processes.enter} exec $P -q -e "$S"', tmp_path, S=script, XDG_CACHE_HOME=cache)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("ERROR: cannot start another thread\nHINT: see ulimit -v, ulimit -u and pids.max")
    shell('$P -q --watchdog 0 -e "$S"', tmp_path, S=script, XDG_CACHE_HOME=cache)
    done = shell(f'{processes.enter} exec $P -q --watchdog 0 -e "$S"', tmp_path, S=script, XDG_CACHE_HOME=cache)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["@:", "1"], "")


# ------------------------------------------------------------------------------------------------ memory


def test_maps_that_the_memory_cgroup_does_not_allow(tmp_path: Path, memory: Limited) -> None:
    memory.limit("memory.limit_in_bytes", "memory.max", 80 << 20)
    script = "config = { max_map_keys = 2000000 } begin { @a[1, 2, 3] = count(); exit(); }"
    done = shell(f'{memory.enter} exec $P -q --max-memory 4G -e "$S"', tmp_path, S=script)
    assert (done.returncode, done.stdout) == (1, "")
    assert "more than 80.0 MiB (max_memory is 4G, but this memory cgroup has 80.0 MiB)" in done.stderr
    assert "@a" in done.stderr


def test_the_ring_that_the_memory_cgroup_does_not_allow(tmp_path: Path, memory: Limited) -> None:
    memory.limit("memory.limit_in_bytes", "memory.max", 80 << 20)
    script = 'config = { perf_rb_pages = 65536 } begin { printf("x"); exit(); }'
    done = shell(f'{memory.enter} exec $P -q -e "$S"', tmp_path, S=script)
    assert (done.returncode, done.stdout) == (1, "")
    assert "ERROR: the ring buffer for events cannot be created" in done.stderr
    assert "perf_rb_pages is 65536" in done.stderr
    assert f"the memory of cgroup {memory.folder} is limited to 80 MiB" in done.stderr


GROWS = """
import os, signal
def grow(*_):
    kept = [os.urandom(1 << 20) for _ in range(400)]
signal.signal(signal.SIGUSR2, grow)
from pytrace.cli.entry import command
command()
"""


def test_a_tracer_that_the_kernel_kills_for_its_memory(memory: Limited, programs: Path) -> None:
    """Nothing but probes and the command is there to be cleaned up, which the kernel does."""
    need("uprobe")
    script = f"uprobe:{programs}/calls:add {{ @[ustack] = count(); }} interval:s:9 {{ }}"
    with Tracer("-e", script, "-c", "sleep 86402", code=GROWS) as tracer:
        (memory.folder / "cgroup.procs").write_text(str(tracer.process.pid))
        memory.limit("memory.limit_in_bytes", "memory.max", 150 << 20)
        tracer.signal("SIGUSR2")
        assert tracer.process.wait(patience(30)) == -signal.SIGKILL
    until(lambda: not _running("sleep 86402"))


def _running(command: str) -> bool:
    words = command.encode().replace(b" ", b"\0") + b"\0"
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes() == words:
                return True
        except OSError:
            continue
    return False


def test_locked_memory_is_not_what_maps_take(tmp_path: Path) -> None:
    """Since 5.11 maps count for the memory cgroup; before, the limit is raised, or the error names it."""
    done = shell('prlimit --memlock=0 $P -q -e "$S"', tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, PRINTED.strip())


# ------------------------------------------------------------------------------------------------ files

LARGE = "File too large"
FILE_SIZE = [
    pytest.param('$P -q -o out -e "$S"', 1, "", f"ERROR: cannot write output: {LARGE}", id="output"),
    pytest.param('$P -q --save out -e "$S"', 1, PRINTED, f"the snapshot 'out' could not be saved: {LARGE}", id="save"),
    pytest.param('$P -q --emit-elf out -e "$S"', 1, "", f"ERROR: cannot write 'out': {LARGE}", id="elf"),
    pytest.param('XDG_CACHE_HOME=cache $P -q -e "$S"', 0, PRINTED, "", id="cache"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "status", "printed", "said"), FILE_SIZE)
def test_the_size_of_files_is_limited(tmp_path: Path, command: str, status: int, printed: str, said: str) -> None:
    done = shell(f"ulimit -f 0; {command}", tmp_path)
    assert (done.returncode, done.stdout.strip()) == (status, printed.strip()), done
    assert said in done.stderr
    assert bool(said) or not done.stderr
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size]


NO_SPACE = "No space left on device"
READ_ONLY = "Read-only file system"
ON_DISK = [
    pytest.param('$P -q -o {}/x -e "$S"', 1, "", (FULL, f"cannot write output to '{{}}/x': {READ_ONLY}"), id="output"),
    pytest.param('$P -q -f json -o {}/x -e "$S"', 1, "", (FULL, f"to '{{}}/x': {READ_ONLY}"), id="json"),
    pytest.param('$P -q --save {}/x -e "$S"', 1, None, (f"saved: {NO_SPACE}", f"'{{}}/x': {READ_ONLY}"), id="save"),
    pytest.param(
        '$P -q -f openmetrics -o {}/x -e "$S"', 1, None, (f"to '{{}}/x': {NO_SPACE}", f"to '{{}}/x': {READ_ONLY}"),
        id="openmetrics",
    ),
    pytest.param('$P --emit-elf {}/x -e "$S"', 1, "", (f"'{{}}/x': {NO_SPACE}", f"'{{}}/x': {READ_ONLY}"), id="elf"),
    pytest.param('XDG_CACHE_HOME={} $P -q -e "$S"', 0, PRINTED, ("", ""), id="cache"),
]  # fmt: skip


@pytest.mark.parametrize("full", [True, False], ids=["full", "read_only"])
@pytest.mark.parametrize(("command", "status", "printed", "said"), ON_DISK)
def test_a_full_disk_and_a_read_only_one(
    tmp_path: Path, full: bool, command: str, status: int, printed: str | None, said: tuple[str, str]
) -> None:
    """No half-written file takes the place of a good one, and what was traced is printed where it can be."""
    disk = tmp_path / "disk"
    disk.mkdir()
    change = f"head -c 8192 /dev/zero > {disk}/fill" if full else f"mount -o remount,ro {disk}"
    command = command.replace("{}", str(disk))
    done = shell(
        f"unshare -m sh -c 'mount -t tmpfs -o size=8k tmpfs {disk}; {change} 2>/dev/null; {command}; status=$?; "
        f"ls -s {disk} | grep -v fill >&2; exit $status'",
        tmp_path,
    )
    expected = said[0 if full else 1].replace("{}", str(disk))
    assert done.returncode == status, done
    assert expected in done.stderr
    assert "BUG" not in done.stderr
    if printed is not None and (full or status == 0):
        assert done.stdout.strip() == printed.strip()


def test_no_inotify_instance_is_needed(tmp_path: Path) -> None:
    """Files are looked at now and then instead: those limits are for others."""
    need("uprobe")
    setting = Path("/proc/sys/fs/inotify/max_user_instances")
    if not setting.exists():
        pytest.skip("this kernel has no inotify")
    before = setting.read_text()
    try:
        setting.write_text("0")
        script = "uprobe:libc:getppid /pid == 1/ { @s[ustack] = count(); } interval:ms:50 { @ = 1; exit(); }"
        done = shell('$P -q -e "$S" -p $$', tmp_path, S=script)
    finally:
        setting.write_text(before)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["@:", "1"], "")


@pytest.mark.skipif(shutil.which("prlimit") is None, reason="the program prlimit is not here")
def test_the_hard_limit_of_files(tmp_path: Path) -> None:
    """The soft limit is raised to the hard one; what is more than that is refused with the limit's name."""
    need("uprobe")
    script = "uprobe:libc:mem* { @ = count(); } interval:ms:20 { exit(); }"
    less = "setpriv --inh-caps -sys_resource --bounding-set -sys_resource"
    for limit, good in ((20, False), (256, True)):
        done = shell(f'prlimit --nofile=20:{limit} {less} $P -q --no-feature uprobe_multi -e "$S"', tmp_path, S=script)
        assert (done.returncode == 0) == good, done
        assert good or "too many open files" in done.stderr


# ---------------------------------------------------------------------------------------------- missing mounts
# File systems that are not mounted, or show less: what works without them works, else the error says what to mount.


SWITCHES = "tracepoint:sched:sched_switch { @ = count(); exit(); }"
SAMPLES = "profile:hz:99 { @[kstack(2)] = count(); exit(); }"
CALLS = 'uprobe:libc:getppid { @ = count(); } interval:ms:50 { printf("over\\n"); exit(); }'
NO_TRACEFS = "ERROR: tracefs is not mounted\nHINT: run as root: mount -t tracefs tracefs /sys/kernel/tracing\n"
ALL_OF_SYS = "umount -l /sys"
TRACEFS = "umount -l /sys/kernel/tracing; umount -l /sys/kernel/debug 2>/dev/null; true"
EMPTY_TRACEFS = "mount -t tmpfs tmpfs /sys/kernel/tracing; umount -l /sys/kernel/debug 2>/dev/null; true"


def without(what: str, tmp_path: Path, script: str, options: str = "") -> tuple[int, str, str]:
    """Run a script in a mount namespace of its own, in which the command *what* was run first."""
    command = f'unshare -m sh -c \'{what}; exec "$@"\' sh $P -q {options} -e "$S"'
    done = shell(command, tmp_path, S=script)
    assert "BUG" not in done.stderr
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("script", [SAMPLES, CALLS, 'begin { printf("over\\n"); exit(); }'])
def test_no_sys(tmp_path: Path, script: str) -> None:
    need("uprobe", "perf_events")
    status, out, _ = without(ALL_OF_SYS, tmp_path, script)
    assert status == 0
    assert "over" in out or "@[" in out


@pytest.mark.parametrize("what", [ALL_OF_SYS, TRACEFS, EMPTY_TRACEFS], ids=["no_sys", "no_tracefs", "empty"])
def test_tracepoints_need_tracefs(tmp_path: Path, what: str) -> None:
    need("tracepoint")
    assert without(what, tmp_path, SWITCHES) == (1, "", NO_TRACEFS)


def test_user_probes_need_no_tracefs(tmp_path: Path) -> None:
    need("uprobe")
    status, out, said = without(TRACEFS, tmp_path, CALLS)
    assert (status, out.startswith("over"), said) == (0, True, "")


def test_pinned_iterators_need_bpffs(tmp_path: Path) -> None:
    need("iter")
    what = "mount -t tmpfs tmpfs /sys/fs/bpf"
    status, out, said = without(what, tmp_path, 'iter:task:faults_pin { printf("x"); }')
    assert (status, out) == (1, "")
    assert "its directory must be in a mounted bpffs (mount -t bpf bpf /sys/fs/bpf)" in said


@pytest.mark.parametrize("mode", ["hidepid=2"])
def test_processes_are_hidden(tmp_path: Path, mode: str) -> None:
    """Root sees them all the same; others trace what they may see."""
    need("uprobe")
    what = f"mount -t proc -o {mode} proc /proc"
    status, out, _ = without(what, tmp_path, CALLS, "-c 'sleep 1'")
    assert (status, out.startswith("over")) == (0, True)
    status, out, said = without(f'{what}; set -- {USER} "$@"', tmp_path, CALLS)
    assert (status, out.startswith("over")) == (0, True), said


def test_no_symbols_of_processes_that_are_hidden(tmp_path: Path) -> None:
    """Addresses are printed where names may not be read; the run does not fail."""
    need("tracepoint")
    script = "tracepoint:syscalls:sys_enter_clock_nanosleep { @[ustack(2)] = count(); } "
    script += 'interval:ms:300 { printf("over\\n"); exit(); }'
    what = f'mount -t proc -o hidepid=2 proc /proc; (sleep 0.1; sleep 0.1; sleep 0.1) & set -- {USER} "$@"'
    status, out, said = without(what, tmp_path, script)
    assert (status, "over" in out) == (0, True), said
