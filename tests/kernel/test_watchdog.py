"""The watchdog on a real kernel: what is counted and what is skipped add up to what happened."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import pytrace
from pytrace.runtime.machine import clocks
from tests.support.patience import patience

pytestmark = pytest.mark.usefixtures("no_leaks")

CALLS = 3000
"""System calls of a traced process, one in a millisecond."""
CALLER = """
import os, sys, time
print(os.getpid(), flush=True)
for number in range({calls}):
    os.getppid()
    try:
        os.open("/missing/" + str(number), os.O_RDONLY)
    except OSError:
        pass
    time.sleep(0.001)
"""
PTRACE_ATTACH, PTRACE_DETACH, WALL = 16, 17, 0x40000000
GETPPID = "tracepoint:syscalls:sys_enter_getppid"


class Tracer:
    """pytrace with a command that makes :data:`CALLS` calls; its output is JSON."""

    def __init__(self, folder: Path, argv: Sequence[str], *, command: Sequence[str] = ("-m", "pytrace")) -> None:
        caller = folder / "caller.py"
        caller.write_text(CALLER.format(calls=CALLS))
        self.pid = folder / "pid"
        words = [sys.executable, *command, "-f", "json", "-o", str(folder / "output"), *argv]
        words += ["--follow", "-c", f"{sys.executable} -S {caller}"]
        self.folder = folder
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.child = int(self.process.stdout.readline())

    def pause(self, seconds: float) -> None:
        """Stop pytrace, but not the command, for some time."""
        os.kill(self.process.pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(self.process.pid, signal.SIGCONT)

    def objects(self) -> list[dict[str, Any]]:
        """The output, when the command has ended."""
        _, errors = self.process.communicate(timeout=patience(60))
        assert self.process.returncode == 0, errors
        return [json.loads(line) for line in (self.folder / "output").read_text().splitlines()]


def maps(objects: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {name: value for item in objects if item["type"] == "map" for name, value in item["data"].items()}


def skipped(objects: Sequence[dict[str, Any]], probe: str) -> int:
    """Skipped hits of a probe, as the summary has them; the sum of all gaps is the same."""
    losses = next((item["data"] for item in objects if item["type"] == "losses"), {})
    total = int(losses.get("skipped", {}).get(probe, 0))
    assert total == sum(item["skipped"].get(probe, 0) for item in objects if item["type"] == "gap")
    return total


def gaps(objects: Sequence[dict[str, Any]]) -> list[dict[str, int]]:
    return [gap for item in objects if item["type"] == "gap" for gap in item["data"]]


@pytest.mark.core
def test_counted_and_skipped_are_what_happened(tmp_path: Path) -> None:
    before = time.time_ns()
    tracer = Tracer(tmp_path, ("--watchdog", "1", "-e", f"{GETPPID} {{ @ = count(); }}"))
    time.sleep(0.5)
    tracer.pause(2.0)
    found = tracer.objects()
    (gap,) = gaps(found)
    assert before < gap["start"] < time.time_ns()
    assert 0.5e9 < gap["duration"] < 2e9 * patience(1)
    assert 0 < skipped(found, GETPPID) < CALLS
    assert maps(found)["@"] + skipped(found, GETPPID) == CALLS


def test_two_gaps(tmp_path: Path) -> None:
    tracer = Tracer(tmp_path, ("--watchdog", "0.5", "-e", f"{GETPPID} {{ @ = count(); }}"))
    for _ in range(2):
        tracer.pause(1.1)
        time.sleep(0.5)
    found = tracer.objects()
    assert len(gaps(found)) == 2
    assert maps(found)["@"] + skipped(found, GETPPID) == CALLS


def test_several_probes_with_stacks_and_events(tmp_path: Path) -> None:
    """Each kind of probe counts its own; of events that were sent before the gap none is lost."""
    libc = next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libc.so" in line)
    uprobe, leave = f"uprobe:{libc}:getppid", "tracepoint:syscalls:sys_exit_getppid"
    script = (
        f"{uprobe} {{ @stacks[ustack] = count(); }} {GETPPID} {{ printf(\"%d\\n\", pid); }} "
        f"{leave} {{ @hist = hist(args.ret); @kernel[kstack(1)] = count(); }}"
    )
    tracer = Tracer(tmp_path, ("--watchdog", "0.5", "-e", script))
    tracer.pause(1.5)
    found = tracer.objects()
    results = maps(found)
    lines = "".join(item["data"] for item in found if item["type"] == "printf").splitlines()
    assert len(lines) + skipped(found, GETPPID) == CALLS
    assert sum(results["@kernel"].values()) + skipped(found, leave) == CALLS
    assert sum(results["@stacks"].values()) + skipped(found, uprobe) == CALLS
    assert min(skipped(found, probe) for probe in (GETPPID, leave, uprobe)) > 0


def test_without_a_watchdog_nothing_is_skipped(tmp_path: Path) -> None:
    script = f"config = {{ watchdog = 1; }} {GETPPID} {{ @ = count(); }}"
    tracer = Tracer(tmp_path, ("--watchdog", "0", "-e", script))
    tracer.pause(2.0)
    found = tracer.objects()
    assert maps(found) == {"@": CALLS}
    assert not gaps(found)


def test_a_script_sets_its_watchdog(tmp_path: Path) -> None:
    tracer = Tracer(tmp_path, ("-e", f"config = {{ watchdog = 1; }} {GETPPID} {{ @ = count(); }}"))
    tracer.pause(2.0)
    found = tracer.objects()
    assert len(gaps(found)) == 1
    assert maps(found)["@"] + skipped(found, GETPPID) == CALLS


def test_a_short_stop_skips_nothing(tmp_path: Path) -> None:
    tracer = Tracer(tmp_path, ("--watchdog", "3", "-e", f"{GETPPID} {{ @ = count(); }}"))
    tracer.pause(1.0)
    assert maps(tracer.objects()) == {"@": CALLS}


def test_a_tool_and_its_snapshot(tmp_path: Path) -> None:
    """Opens that failed, which opensnoop prints when they return; a call may lie across the edge of the gap."""
    saved = tmp_path / "saved.pts"
    tracer = Tracer(tmp_path, ("--watchdog", "0.5", "--save", str(saved), "opensnoop"))
    tracer.pause(1.2)
    found = tracer.objects()
    opened = [item for item in found if "/missing/" in json.dumps(item)]
    losses = pytrace.Snapshot.load(saved).losses["skipped"]
    leaves = sum(count for probe, count in losses.items() if "sys_exit_openat" in probe)
    assert 0 <= CALLS - len(opened) - leaves <= 2
    (run,) = pytrace.Snapshot.load(saved).data.runs
    assert [{"start": start, "duration": duration} for start, duration in run.gaps] == gaps(found)


def test_an_ahead_of_time_file(tmp_path: Path) -> None:
    file = tmp_path / "count.aot"
    words = [sys.executable, "-m", "pytrace", "--aot", str(file), "-e", f"{GETPPID} {{ @ = count(); }}", "--follow"]
    subprocess.run([*words, "-c", "true"], check=True, timeout=patience(60))
    tracer = Tracer(tmp_path, ("--watchdog", "0.5", str(file)))
    tracer.pause(1.2)
    found = tracer.objects()
    assert len(gaps(found)) == 1
    assert maps(found)["@"] + skipped(found, GETPPID) == CALLS


def test_output_that_nobody_reads_is_no_reason_to_skip(tmp_path: Path) -> None:
    """As in ``pytrace … | less``: pytrace runs, though it cannot print."""
    script = f"{GETPPID} {{ @ = count(); printf(\"%s\\n\", \"{'x' * 60}\"); }}"
    argv = [sys.executable, "-m", "pytrace", "-q", "--watchdog", "0.5", "-e", script, "--follow"]
    caller = tmp_path / "caller.py"
    caller.write_text(CALLER.format(calls=CALLS))
    tracer = subprocess.Popen(
        [*argv, "-c", f"{sys.executable} -S {caller}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    time.sleep(3.0)
    output, errors = tracer.communicate(timeout=patience(60))
    assert "skipped" not in errors
    assert f"@: {CALLS}\n" in output


EMBEDDED = """
import subprocess, sys, time
import pytrace
with pytrace.open({script!r}, watchdog=0.5, follow=True, command=[sys.executable, "-S", {caller!r}]) as trace:
    time.sleep({seconds})
    while trace.child_status is None:
        time.sleep(0.1)
    gap = trace.losses.get("skipped", {{}})
    print(sum(gap.values()), trace.maps["@"].value)
"""


@pytest.mark.parametrize("pause", [0.0, 1.2])
def test_a_python_program_may_do_nothing_but_not_stop(tmp_path: Path, pause: float) -> None:
    """A program that embeds a trace need not look at it."""
    caller = tmp_path / "caller.py"
    caller.write_text(CALLER.format(calls=CALLS))
    text = EMBEDDED.format(script=f"{GETPPID} {{ @ = count(); }}", caller=str(caller), seconds=2)
    program = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    program.stdout.readline()
    if pause:
        os.kill(program.pid, signal.SIGSTOP)
        time.sleep(pause)
        os.kill(program.pid, signal.SIGCONT)
    output, _ = program.communicate(timeout=patience(60))
    lost, counted = map(int, output.split())
    assert lost + counted == CALLS
    assert (lost > 0) is (pause > 0)


@pytest.mark.each_kernel
def test_ticks_are_those_of_the_kernel() -> None:
    """The tick that programs see is the one that the heartbeat reckons with."""
    length = clocks.tick_length()
    before = clocks.tick_count(length)
    snapshot = pytrace.run("begin { @ = jiffies; exit(); }")
    after = clocks.tick_count(length)
    margin = 10_000_000 // length + 1
    assert before <= snapshot.maps["@"].value <= after + margin


def statuses(pid: int) -> list[list[str]]:
    """What the threads of a process may do."""
    names = ("CapEff:", "CapBnd:", "NoNewPrivs:", "Seccomp:")
    texts = [(task / "status").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    return [[line for line in text.splitlines() if line.startswith(names)] for text in texts]


def test_the_thread_that_beats_has_no_more_privileges_than_the_run(tmp_path: Path) -> None:
    """It starts after what the run does not need was given up."""
    tracer = Tracer(tmp_path, ("-e", f"{GETPPID} {{ @ = count(); }}"))
    time.sleep(1.0)
    first, *others = statuses(tracer.process.pid)
    tracer.objects()
    assert others == [first]


def test_a_run_whose_thread_hangs_is_stuck(tmp_path: Path) -> None:
    """Only that thread stands still, by ptrace(2); the one that beats sees it, and programs skip hits."""
    libc = ctypes.CDLL(None, use_errno=True)
    tracer = Tracer(tmp_path, ("--watchdog", "0.5", "-e", f"{GETPPID} {{ @ = count(); }}"))
    assert libc.ptrace(PTRACE_ATTACH, tracer.process.pid, None, None) == 0
    os.waitpid(tracer.process.pid, WALL)
    time.sleep(3.5)
    assert libc.ptrace(PTRACE_DETACH, tracer.process.pid, None, None) == 0
    found = tracer.objects()
    assert len(gaps(found)) == 1
    assert skipped(found, GETPPID) > 0
    assert maps(found)["@"] + skipped(found, GETPPID) == CALLS
