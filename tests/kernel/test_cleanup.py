"""Nothing stays in the kernel but what was pinned: killed tracers, many sessions, many probes, iterators."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from pytrace.core.manifest import MapType
from pytrace.core.probe_kinds import TimerTarget, TracepointTarget
from pytrace.runtime.load import attachments, probe_links
from pytrace.runtime.load.attachments import AttachOptions
from pytrace.runtime.machine import bpf, fingerprints
from tests.support import leaks
from tests.support.compile import tool
from tests.support.leaks import Watch
from tests.support.loading import Loaded, program, target
from tests.support.machine import kernel_version, need
from tests.support.patience import patience
from tests.support.server import Server
from tests.support.waiting import open_descriptors, until

pytestmark = pytest.mark.usefixtures("no_leaks")

TRACER = """
import signal
import time
from contextlib import ExitStack
from tests.kernel.test_cleanup import session
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in the background
with ExitStack() as stack:
    session(stack)
    print("attached", flush=True)
    time.sleep(99)
"""


def session(stack: ExitStack) -> Loaded:
    """A loaded script with a tracepoint and a timer attached."""
    specs = (
        program("count_tracepoint", "tracepoint", target(TracepointTarget("syscalls", "sys_enter_getppid"), 1)),
        program("count_perf", "profile", target(TimerTarget(frequency=99), 2)),
    )
    loaded = Loaded(stack, *specs, pid=os.getpid())
    attachments.attach_all(loaded.loaded, specs, AttachOptions(), stack)
    return loaded


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_signalled_tracer_leaves_nothing(number: signal.Signals) -> None:
    tracer = subprocess.Popen(
        [sys.executable, "-c", TRACER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert tracer.stdout is not None
    assert tracer.stdout.readline() == "attached\n"
    tracer.send_signal(number)
    tracer.communicate(timeout=patience(20))
    assert tracer.returncode != 0


def test_sessions_in_a_row_keep_no_descriptors() -> None:
    """And no threads."""
    with ExitStack() as stack:
        session(stack)
    before, threads = open_descriptors(), len(os.listdir("/proc/self/task"))
    for _ in range(10):
        with ExitStack() as stack:
            session(stack)
    assert sorted(os.listdir("/proc/self/fd")) == before
    until(lambda: len(os.listdir("/proc/self/task")) <= threads)


def test_what_stays_is_found() -> None:
    """The fixture that all of these tests have sees a map, and a probe in tracefs of a process that is gone."""
    watch = leaks.Watch()
    descriptor = bpf.map_create(MapType.HASH, 8, 8, 1)
    # While other tracers work, maps without an owner may be theirs.
    until(lambda: len(watch.leaked(0.1)) == 1)
    os.close(descriptor)
    assert not watch.leaked()
    ended = subprocess.Popen(["true"])
    ended.wait()
    path, name = f"{fingerprints.tracefs_root()}/uprobe_events", f"pytrace_{ended.pid}/p{ended.pid}_0"
    probe_links._write(path, f"p:{name} /bin/true:0x1000\n")
    try:
        assert name in leaks.definitions()
    finally:
        probe_links._write(path, f"-:{name}\n")
    assert name not in leaks.definitions()


@pytest.mark.parametrize("more", [0, 12])
def test_tracepoints_end_without_waiting_for_each(more: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would wait for the kernel, one after the other; what must be done at once is that programs do not run."""
    with os.scandir(f"{fingerprints.tracefs_root()}/events/syscalls") as folder:
        names = sorted(item.name for item in folder if item.name.startswith("sys_enter_"))
    wanted = {"sys_enter_getppid", *names[:more]}
    targets = [target(TracepointTarget("syscalls", name), index) for index, name in enumerate(sorted(wanted))]
    specs = (program("count_tracepoint", "tracepoint", *targets),)
    closed: list[int] = []
    close_all = probe_links.close_all

    def close(descriptors: Sequence[int]) -> None:
        closed.extend(descriptors)
        close_all(descriptors)

    monkeypatch.setattr(probe_links, "close_all", close)
    with ExitStack() as stack:
        loaded = Loaded(stack, *specs, pid=os.getpid())
        done = attachments.attach_all(loaded.loaded, specs, AttachOptions(), stack)
        events = [event for part in done.opened.parts() for event in part.idle_events]
        assert len(events) == len(targets)
        os.getppid()
        mine = sorted(wanted).index("sys_enter_getppid")
        assert loaded.counts[mine] == 1
        done.opened.close()
        assert not [event for event in events if os.path.exists(f"/proc/self/fd/{event}")]
        os.getppid()
        assert loaded.counts[mine] == 1
    assert not set(closed) & set(events), "the kernel closes them"


# ---------------------------------------------------------------------------------------------- pinning
# Pinned iterators: the pin outlives the tracer, and reading it gives what printf writes.


ROOT = Path(__file__).resolve().parents[2]


def in_bpffs(script: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script in a mount namespace with a bpffs of its own; ``$trace`` runs pytrace."""
    need("iter")
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("the program unshare is not here")
    lines = f"mount -t bpf bpf /sys/fs/bpf && trace='{sys.executable} -m pytrace -q' && {script}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [unshare, "-m", "sh", "-c", lines], capture_output=True, text=True, timeout=patience(60), check=False,
        env=environment,
    )  # fmt: skip


TASKS = (
    "iter:task:tasks { if (ctx.task->pid == 2) "
    '{ printf("%d %s %5s|%-5d|%x %c%%\\n", ctx.task->pid, ctx.task->comm, "ab", -7, 255, 65); } }'
)


def test_reading_a_pin() -> None:
    run = in_bpffs(f"$trace -e '{TASKS}' && cat /sys/fs/bpf/tasks && cat /sys/fs/bpf/tasks && ls /sys/fs/bpf")
    lines = [line for line in run.stdout.splitlines() if line]
    assert lines[:2] == ["2 kthreadd    ab|-7   |ff A%"] * 2, run
    assert "tasks" in lines
    assert "/sys/fs/bpf/tasks" in run.stderr


def test_a_pin_keeps_its_maps() -> None:
    script = 'iter:task:/sys/fs/bpf/count { @n++; if (ctx.task->pid == 2) { printf("%d\\n", @n); } }'
    run = in_bpffs(f"$trace -e '{script}' && cat /sys/fs/bpf/count && cat /sys/fs/bpf/count")
    first, second = (int(line) for line in run.stdout.split()[-2:])
    assert second > first


def test_a_name_that_is_taken() -> None:
    run = in_bpffs("touch /dev/null; $trace -e 'iter:task:one { }' && $trace -e 'iter:task:one { }'")
    assert run.returncode == 1
    assert "already exists" in run.stderr


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("print(ctx.task->pid);", "print value"),
        ('printf("%.3d\\n", ctx.task->pid);', "%.3d"),
        ('printf("%s\\n", ctx.task->pid);', "integers and strings"),
        ('printf("%s\\n", kstack);', "integers and strings"),
    ],
)
def test_what_cannot_be_written(body: str, message: str) -> None:
    run = in_bpffs(f"$trace -e 'iter:task:one {{ {body} }}'; ls /sys/fs/bpf")
    assert message in run.stderr, run
    assert "one" not in run.stdout


# ---------------------------------------------------------------------------------------------- stress
# Many probes at once, and many sessions one after another: nothing is left behind and nothing gets slow.


FUNCTIONS = 10_000
SESSIONS = 60


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program with 10,000 functions, each of which it calls once."""
    folder = tmp_path_factory.mktemp("many")
    source, made = folder / "many.c", folder / "many"
    parts = [f'void function_{n}(void) {{ __asm__ volatile(""); }}' for n in range(FUNCTIONS)]
    calls = "".join(f"function_{n}();" for n in range(FUNCTIONS))
    source.write_text("\n".join(parts) + f"\nint main(void) {{ {calls} return 0; }}\n")
    tool("gcc", "-O0", "-o", made, source)
    return made


@pytest.mark.parametrize(("kind", "first", "number"), [("uprobe", "", FUNCTIONS), ("uretprobe", "1", 1111)])
def test_ten_thousand_user_probes(server: Server, many: Path, kind: str, first: str, number: int) -> None:
    """Probes of returns are attached by the same request: there are fewer of them, as they take the kernel longer."""
    need("uprobe_multi")
    watch = Watch()
    program = f"config = {{ max_probes = {FUNCTIONS} }} {kind}:{many}:function_{first}* {{ @ = count(); }}"
    result = server.run(("-e", program, "-c", str(many)), timeout=60)
    assert result.status == 0, result
    assert f"Attached {number} probes" in result.stderr
    assert result.stdout.split() == ["@:", str(number)]
    assert not watch.leaked()


def test_ten_thousand_names(server: Server, many: Path) -> None:
    """Each probe is told apart by its cookie."""
    need("uprobe_multi")
    program = (
        f"config = {{ max_probes = {FUNCTIONS + 1}; max_map_keys = {FUNCTIONS} }} "
        f"uprobe:{many}:function_* {{ @[probe] = count(); }} end {{ print(len(@)); clear(@); }}"
    )
    result = server.run(("-q", "-e", program, "-c", str(many)), timeout=60)
    assert result.stdout.split() == [str(FUNCTIONS)], result


def test_too_many_probes_are_refused(server: Server, many: Path) -> None:
    result = server.run(("-e", f"uprobe:{many}:function_* {{ }}"), timeout=60)
    assert result.status == 1
    assert "10000 probes" in result.stderr
    assert "max_probes" in result.stderr


EVERY_KIND = (
    "begin { @start = nsecs; } tracepoint:syscalls:sys_enter_getppid { @[comm] = count(); } "
    "uprobe:{calls}:add { @u = hist(arg0); } usdt:{usdt}:sample:guarded { @g = count(); } "
    "profile:hz:99 { @k[kstack(2)] = count(); } software:faults:1 { @f = count(); } interval:s:1 { } end { clear(@k); }"
)
"""With what waits for the kernel to detach: a tenth of a second each time."""
QUICK = 'begin { @start = nsecs; } uprobe:{calls}:add { @u = hist(arg0); printf("%d\\n", pid); } end { print(1); }'

LOOP = """
import gc, os, sys, threading
from pytrace.cli import main as cli
def state():
    gc.collect()
    return sorted(os.listdir("/proc/self/fd")), threading.active_count(), len(open("/proc/self/maps").readlines())
arguments = sys.argv[2:]
out = os.open(os.devnull, os.O_WRONLY)
kept = os.dup(1)
first = None
for number in range(int(sys.argv[1])):
    os.dup2(out, 1)
    status = cli.main(arguments)
    sys.stdout.flush()
    os.dup2(kept, 1)
    assert status == 0, status
    if number == 9:
        first = state()
last = state()
print(len(last[0]) - len(first[0]), last[1] - first[1], last[2] - first[2])
"""
"""Runs sessions in one process; prints how many descriptors, threads and mappings it has more after the last one."""


@pytest.mark.parametrize(
    ("script", "count"),
    [
        pytest.param(QUICK, SESSIONS, id="quick"),
        pytest.param(EVERY_KIND, 15, id="every_kind"),
        pytest.param(QUICK, 500, id="many", marks=pytest.mark.soak),
    ],
)
def test_sessions_one_after_another(programs: Path, script: str, count: int) -> None:
    """Also in one process nothing stays open, as a program that uses pytrace would run it."""
    need("syscalls", "uprobe", "usdt", "perf_events")
    count = 12 if kernel_version() <= (6, 1) else count
    watch = Watch()
    script = script.replace("{calls}", str(programs / "calls")).replace("{usdt}", str(programs / "usdt"))
    words = ["-q", "--keep-privileges", "-e", script, "-c", f"{programs}/calls 1"]
    command = [sys.executable, "-c", LOOP, str(count), *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(command, capture_output=True, text=True, timeout=patience(120), check=False, env=environment)
    assert run.returncode == 0, run
    descriptors, threads, mappings = (int(word) for word in run.stdout.split()[-3:])
    assert (descriptors, threads) == (0, 0)
    assert mappings <= 20
    assert not watch.leaked()


WHOLE = """
%s /pid == $1/ { @begun = @begun + 1; for ($i : 0..8000000) { @latest = $i; } @ended = @ended + 1; }
interval:ms:300 { exit(); }
end { printf("%%d begun, %%d ended\\n", @begun, @ended); clear(@begun); clear(@ended); clear(@latest); }
"""
"""A program runs for a tenth of a second, nearly always."""


@pytest.mark.parametrize("probe", ["rawtracepoint:sys_enter", "tracepoint:syscalls:sys_enter_getppid"])
def test_end_probes_see_all_or_nothing_of_an_event(server: Server, probe: str) -> None:
    need("rawtracepoint", "bpf_loop")
    calls = "import os\nwhile True: os.getppid()"
    with subprocess.Popen([sys.executable, "-c", calls]) as busy:
        try:
            for _ in range(3):
                result = server.run(("-q", "-e", WHOLE % probe, str(busy.pid)), timeout=60)
                begun, ended = re.findall(r"\d+", result.stdout)
                assert int(begun) > 0
                assert begun == ended
        finally:
            busy.kill()


def test_failed_attachments_leave_nothing(server: Server, programs: Path) -> None:
    """The last probe cannot attach: the others are detached, the child never runs."""
    need("uprobe")
    watch = Watch()
    threads = threading.active_count()
    need("watchpoint")
    # The processor has four breakpoints.
    points = "".join(f"watchpoint:{0x10000000 + 8 * n:#x}:8:w {{ }} " for n in range(5))
    script = f"u:{programs}/calls:add {{ }} u:{programs}/calls:six {{ }} {points}"
    for _ in range(5):
        result = server.run(("-e", script, "-c", "sh -c 'echo ran'"), timeout=60)
        assert result.status == 1
        assert "ran" not in result.stdout
        assert "breakpoints" in result.stderr
        assert not result.left_behind
    assert threading.active_count() == threads
    assert not watch.leaked()
