"""``kill -9`` of a tracer: each kind of probe is detached at once, and nothing stays in the kernel."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from pytrace.runtime.machine import fingerprints
from tests.kernel.test_cleanup import in_bpffs
from tests.support import forked
from tests.support.leaks import Watch
from tests.support.machine import kernel_version, need
from tests.support.patience import patience
from tests.support.saved import read
from tests.support.waiting import sleeps, until

pytestmark = [pytest.mark.own_process, pytest.mark.usefixtures("no_leaks")]

OLD = ("--no-feature", "uprobe_multi,perf_uprobe")
KINDS = {
    "tracepoint": ((), "tracepoint:syscalls:sys_enter_getppid { @ = count(); }"),
    "perf tracepoint": (
        (), "config = { syscall_tracepoints = plain; } t:syscalls:sys_enter_getppid { @ = count(); }",
    ),
    "rawtracepoint": ((), "rawtracepoint:sched_process_exit { @ = count(); }"),
    "profile": ((), "profile:hz:99 { @ = count(); }"),
    "interval": ((), "interval:s:1 { @ = count(); }"),
    "software": ((), "software:page-faults:100 { @ = count(); }"),
    "watchpoint": ((), "watchpoint:0x20000000:8:w { @ = count(); }"),
    "uprobe": ((), "uprobe:{programs}/usdt:pass {{ @ = count(); }}"),
    "uprobe by perf": (("--no-feature", "uprobe_multi"), "uprobe:{programs}/usdt:pass {{ @ = count(); }}"),
    "uretprobe": ((), "uretprobe:{programs}/usdt:pass {{ @ = count(); }}"),
    "usdt": ((), "usdt:{programs}/usdt:sample:guarded {{ @ = count(); }}"),
    "usdt by perf": (
        ("--no-feature", "uprobe_multi"), "usdt:{programs}/usdt:sample:guarded {{ @ = count(); }}",
    ),
    "following": (("--follow", "-p", "{pid}"), "t:syscalls:sys_enter_getppid { @[comm] = count(); }"),
    "stacks and events": ((), 't:syscalls:sys_enter_getppid { @[ustack, kstack] = count(); printf("%d", pid); }'),
}  # fmt: skip
"""For each kind of probe options and a script."""


def attached(*words: str, start: type[subprocess.Popen[str]] = subprocess.Popen) -> subprocess.Popen[str]:
    """A tracer whose probes are attached."""
    argv = [sys.executable, "-m", "pytrace", *words]
    tracer = start(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert tracer.stderr is not None
    for line in tracer.stderr:
        if line.startswith("Attached"):
            return tracer
    raise AssertionError(f"{words}: nothing was attached")


def kill(tracer: subprocess.Popen[str]) -> None:
    tracer.send_signal(signal.SIGKILL)
    tracer.communicate(timeout=patience(20))
    assert tracer.returncode == -signal.SIGKILL


def guarded(programs: Path) -> str:
    """Whether a tracer has raised the semaphore of the program's guarded probe: how often it was passed."""
    return subprocess.run([f"{programs}/usdt", "5"], capture_output=True, text=True, check=True).stdout.strip()


def definitions(process: int) -> set[str]:
    """Probes that a tracer has defined in tracefs; others may be at work beside it."""
    found: set[str] = set()
    for name in ("uprobe_events", "kprobe_events"):
        path = Path(fingerprints.tracefs_root(), name)
        if path.exists():
            found |= set(path.read_text().splitlines())
    return {line for line in found if f":pytrace_{process}/" in line}


def enabled(definition: str) -> str:
    """The state of a probe that is defined in tracefs."""
    name = re.match(r"[pr]\d*:(\S+) ", definition)
    assert name is not None
    return Path(fingerprints.tracefs_root(), "events", name[1], "enable").read_text()


def trace(*words: str) -> str:
    """The output of a tracer that ends by itself."""
    argv = [sys.executable, "-m", "pytrace", *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=patience(60), check=True).stdout


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_stays_of_a_killed_tracer(kind: str, programs: Path) -> None:
    if kind == "watchpoint":
        need(kind)
    options, script = KINDS[kind]
    watch = Watch()
    words = [word.format(pid=os.getpid()) for word in options]
    tracer = attached(*words, "-e", script.format(programs=programs) if "{programs}" in script else script)
    if kind.startswith("usdt"):
        assert guarded(programs) == "guarded 5"
    kill(tracer)
    if kind.startswith("usdt"):
        assert guarded(programs) == "guarded 0", "its semaphore is lowered at once"
    assert not watch.leaked(1.0)
    assert not definitions(tracer.pid)


FUNCTIONS = (
    "kprobe:proc_dostring, kretprobe:proc_dostring, kprobe:proc_dointvec_m*, fentry:proc_dostring, fexit:proc_dostring"
)
"""Functions of the kernel that no other test probes."""


def probed_functions() -> set[str]:
    """Which of them have a probe that is not switched off, by the kernel's own lists."""
    lists = (Path(fingerprints.tracefs_root(), "enabled_functions"), Path("/sys/kernel/debug/kprobes/list"))
    lines = [line for path in lists if path.exists() for line in path.read_text().splitlines()]
    return {name for line in lines if "[DISABLED]" not in line for name in re.findall(r"\bproc_do\w+", line)}


@pytest.mark.core
def test_nothing_stays_of_probes_on_kernel_functions() -> None:
    """But for the name of a kretprobe in tracefs, which tells how many returns it missed before perf events did (6.7).

    It is switched off, and the next tracer of kretprobes removes it.
    """
    need("kprobe", "fentry")
    watch = Watch()
    tracer = attached("-e", f"{FUNCTIONS} {{ @[probe] = count(); }}", start=forked.Popen)
    assert probed_functions() >= {"proc_dostring", "proc_dointvec_minmax"}
    kill(tracer)
    assert not watch.leaked(1.0)
    until(lambda: not probed_functions())
    left = definitions(tracer.pid)
    assert len(left) == (1 if kernel_version() < (6, 7) else 0)
    for line in left:
        assert enabled(line) == "0\n"
        words = [sys.executable, "-m", "pytrace", "-e", "kretprobe:proc_dostring { @ = count(); }", "-c", "true"]
        forked.run(words, capture_output=True, timeout=patience(60), check=True)
        assert not definitions(tracer.pid)


def test_links_are_gone_when_the_process_is() -> None:
    """Not only some time later."""
    tracer = attached("-e", "t:syscalls:sys_enter_getppid { @ = count(); } rawtracepoint:sched_process_exit { @n++; }")
    texts = []
    for path in Path(f"/proc/{tracer.pid}/fdinfo").iterdir():
        with suppress(FileNotFoundError):  # the tracer closes files, too
            texts.append(path.read_text())
    ours = {("link", int(number)) for text in texts for number in re.findall(r"(?m)^link_id:\s*(\d+)", text)}
    assert len(ours) == 2
    kill(tracer)
    assert not ours & Watch().before


def test_a_killed_tracer_of_an_old_kernel_leaves_only_a_definition(programs: Path) -> None:
    """tracefs keeps the name of the probe, which is switched off; the next such tracer removes it."""
    watch = Watch()
    script = f"uprobe:{programs}/usdt:pass {{ @ = count(); }}"
    tracer = attached(*OLD, "-e", script)
    kill(tracer)
    assert not watch.leaked(1.0)
    (left,) = definitions(tracer.pid)
    assert enabled(left) == "0\n"
    assert "@: 3" in trace(*OLD, "-e", script, "-c", f"{programs}/usdt 3")
    assert not definitions(tracer.pid)


@pytest.mark.parametrize(("end", "passed"), [(signal.SIGTERM, 0), (signal.SIGKILL, 3)])
def test_semaphores_that_are_raised_by_hand(programs: Path, end: signal.Signals, passed: int) -> None:
    """Kernels before 4.20: nobody lowers what a killed tracer has raised, so it stays until the traced process ends."""
    watch = Watch()
    words = ("--no-feature", "semaphores,uprobe_multi", "-e", f"usdt:{programs}/usdt:sample:guarded {{ @ = count(); }}")
    with subprocess.Popen([programs / "usdt", "3", "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as traced:
        until(lambda: sleeps(traced.pid, "usdt"))
        tracer = attached("-p", str(traced.pid), *words)
        tracer.send_signal(end)
        tracer.communicate(timeout=patience(20))
        assert not watch.leaked(1.0)
        assert traced.communicate(b"go\n")[0].decode().split() == ["guarded", str(passed)]


def test_a_pinned_iterator_is_what_the_user_asked_for() -> None:
    """A pin outlives its tracer, killed or not, and its other probes do not; it is gone with its file."""
    script = 'iter:task:one { if (ctx.task->pid == 2) { printf("kthreadd\\n"); } } t:syscalls:sys_enter_gettid { @++; }'
    run = in_bpffs(
        f"{{ $trace -e '{script}' 2>/tmp/pinned.$$ & }}; pid=$!; "
        "for i in $(seq 100); do test -e /sys/fs/bpf/one && break; sleep 0.1; done; sleep 0.5; "
        "kill -9 $pid; wait $pid; rm -f /tmp/pinned.$$; cat /sys/fs/bpf/one; rm /sys/fs/bpf/one; ls /sys/fs/bpf"
    )
    first, *left = run.stdout.split()
    assert first == "kthreadd", run
    assert "one" not in left


MOMENTS = ("attach", "run", "print", "save")
SCRIPT = (
    "config = { max_map_keys = 5000; } begin { for ($i : 0..5000) { @many[$i] = $i; } } "
    "t:syscalls:sys_enter_getppid /pid == %d/ { @[ustack, kstack] = count(); } profile:hz:99 { @p = count(); } "
    "uprobe:%s/usdt:pass { @u = count(); } usdt:%s/usdt:sample:guarded { @s = count(); } "
    "interval:ms:50 { print(@many); }"
)
"""Uprobes, tracepoints, perf events, stacks, and maps that take a while to print and to save."""


def killed_at(moment: str, seconds: float, folder: Path, programs: Path, *options: str) -> int:
    """Kill a tracer so many *seconds* after it has come to a moment. Returns its process id."""
    script = SCRIPT % (os.getpid(), programs, programs)
    saving = ("--save", folder / "end", "--save-every", "0.1", folder / "all")
    command = [sys.executable, "-m", "pytrace", *options, *saving]
    (folder / "end").write_text("old")
    with (folder / "errors").open("w") as errors:
        tracer = subprocess.Popen([*command, "-e", script], stdout=subprocess.DEVNULL, stderr=errors)
    try:
        if moment != "attach":
            until(lambda: "Attached" in (folder / "errors").read_text(), 60)
        if moment == "save":
            until(lambda: list((folder / "all").iterdir()), 60)
        if moment in ("print", "save"):
            tracer.send_signal(signal.SIGINT)
        time.sleep(seconds)
    finally:
        tracer.kill()
        tracer.wait(patience(20))
    return tracer.pid


@pytest.mark.parametrize("number", [2 * len(MOMENTS), pytest.param(200, marks=pytest.mark.soak)])
def test_killed_at_a_random_moment(number: int, tmp_path: Path, programs: Path) -> None:
    """As it attaches, traces, prints and saves: nothing stays in the kernel, and a saved file is whole or the old one.

    The seed is the number of the tracer. Half of them trace as on old kernels: through perf events and tracefs.
    """
    watch = Watch()

    def one(seed: int) -> tuple[int, Path]:
        moment = MOMENTS[seed % 4]
        folder = tmp_path / f"{seed}-{moment}"
        folder.mkdir()
        longest = patience(1) if moment == "attach" else 0.4
        seconds = random.Random(seed).uniform(0, longest)
        return killed_at(moment, seconds, folder, programs, *(OLD if seed // 4 % 2 else ())), folder

    with ThreadPoolExecutor(4) as pool:
        killed = list(pool.map(one, range(number)))
    assert not watch.leaked(1.0)
    assert guarded(programs) == "guarded 0"
    for process, folder in killed:
        for line in definitions(process):
            assert enabled(line) == "0\n", f"{folder.name}: {line}"
        if (folder / "end").read_bytes() != b"old":
            read(folder / "end")
        for path in (folder / "all").glob("[!.]*"):
            read(path)
    trace(*OLD, "-e", f"uprobe:{programs}/usdt:pass {{ @ = count(); }}", "-c", f"{programs}/usdt 3")
    assert not [line for process, _ in killed for line in definitions(process)]
