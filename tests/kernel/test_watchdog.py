"""The watchdog on a real kernel: what is counted and what is skipped add up to what happened."""

from __future__ import annotations

import ctypes
import json
import os
import select
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
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("no_leaks")

CALLER = """
import os, signal, time
ended = []
signal.signal(signal.SIGUSR1, lambda *_: ended.append(True))
print(os.getpid(), flush=True)
number = 0
while not ended:
    os.getppid()
    try:
        os.open("/missing/" + str(number), os.O_RDONLY)
    except OSError:
        pass
    number += 1
    time.sleep(0.001)
with open({result!r}, "w") as file:
    file.write(str(number))
"""
"""Makes both system calls again and again until SIGUSR1, and writes how often."""
SHORT = 0.5
"""Seconds of most watchdogs here. A busy machine may cause a gap of its own: there may be more than those of a test."""
STOPPED = 1.0
"""Seconds in which pytrace is stopped, so that such a watchdog has programs skip hits."""
PTRACE_ATTACH, PTRACE_DETACH, WALL = 16, 17, 0x40000000
GETPPID = "tracepoint:syscalls:sys_enter_getppid"


class Caller:
    """The command that a tracer traces."""

    def __init__(self, folder: Path) -> None:
        self._result = folder / "calls"
        program = folder / "caller.py"
        program.write_text(CALLER.format(result=str(self._result)))
        self.words = [sys.executable, "-S", str(program)]
        self.pid = 0

    def started(self, line: str) -> None:
        """It has said its number."""
        self.pid = int(line)

    def end(self) -> None:
        """It ends after the calls that it is in."""
        os.kill(self.pid, signal.SIGUSR1)

    @property
    def calls(self) -> int:
        """How often it made each call, when it has ended."""
        return int(self._result.read_text())


class Tracer:
    """pytrace with a :class:`Caller` as its command; its output is JSON."""

    def __init__(self, folder: Path, argv: Sequence[str]) -> None:
        self.caller = Caller(folder)
        words = [sys.executable, "-m", "pytrace", "-f", "json", "-o", str(folder / "output"), *argv]
        words += ["--follow", "-c", " ".join(self.caller.words)]
        self.folder = folder
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.caller.started(self.process.stdout.readline())

    def pause(self, seconds: float = STOPPED, *, beats: bool = True) -> None:
        """Stop pytrace, but not the command, for some time."""
        if beats:
            self.beats()
        time.sleep(0.1)  # some calls are made before
        os.kill(self.process.pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(self.process.pid, signal.SIGCONT)

    def beats(self) -> None:
        """Wait for the thread that beats: the command runs before it starts, and programs wait a minute until then."""
        until(lambda: len(os.listdir(f"/proc/{self.process.pid}/task")) > 1)

    def end(self) -> list[dict[str, Any]]:
        """End the command after some more calls. Returns the output."""
        time.sleep(0.1)
        self.caller.end()
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
    tracer = Tracer(tmp_path, ("--watchdog", str(SHORT), "-e", f"{GETPPID} {{ @ = count(); }}"))
    for _ in range(2):
        tracer.pause()
    found = tracer.end()
    assert len(gaps(found)) >= 2
    assert all(before < gap["start"] < time.time_ns() for gap in gaps(found))
    assert sum(gap["duration"] for gap in gaps(found)) > 2 * 0.9e9 * (STOPPED - SHORT)
    assert 0 < skipped(found, GETPPID) < tracer.caller.calls
    assert maps(found)["@"] + skipped(found, GETPPID) == tracer.caller.calls


def test_several_probes_with_stacks_and_events(tmp_path: Path) -> None:
    """Each kind of probe counts its own; of events that were sent before the gap none is lost."""
    libc = next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libc.so" in line)
    uprobe, leave = f"uprobe:{libc}:getppid", "tracepoint:syscalls:sys_exit_getppid"
    script = (
        f'{uprobe} {{ @stacks[ustack] = count(); }} {GETPPID} {{ printf("%d\\n", pid); }} '
        f"{leave} {{ @hist = hist(args.ret); @kernel[kstack(1)] = count(); }}"
    )
    tracer = Tracer(tmp_path, ("--watchdog", str(SHORT), "-e", script))
    tracer.pause()
    found = tracer.end()
    results, calls = maps(found), tracer.caller.calls
    lines = "".join(item["data"] for item in found if item["type"] == "printf").splitlines()
    assert len(lines) + skipped(found, GETPPID) == calls
    assert sum(results["@kernel"].values()) + skipped(found, leave) == calls
    assert sum(results["@stacks"].values()) + skipped(found, uprobe) == calls
    assert min(skipped(found, probe) for probe in (GETPPID, leave, uprobe)) > 0


def test_without_a_watchdog_nothing_is_skipped(tmp_path: Path) -> None:
    script = f"config = {{ watchdog = 1; }} {GETPPID} {{ @ = count(); }}"
    tracer = Tracer(tmp_path, ("--watchdog", "0", "-e", script))
    tracer.pause(1.5, beats=False)
    found = tracer.end()
    assert maps(found) == {"@": tracer.caller.calls}
    assert not gaps(found)


def test_a_script_sets_its_watchdog(tmp_path: Path) -> None:
    tracer = Tracer(tmp_path, ("-e", f"config = {{ watchdog = 1; }} {GETPPID} {{ @ = count(); }}"))
    tracer.pause(1.5)
    found = tracer.end()
    assert gaps(found)
    assert maps(found)["@"] + skipped(found, GETPPID) == tracer.caller.calls


def test_a_short_stop_skips_nothing(tmp_path: Path) -> None:
    tracer = Tracer(tmp_path, ("--watchdog", "30", "-e", f"{GETPPID} {{ @ = count(); }}"))
    tracer.pause(0.3)
    assert maps(tracer.end()) == {"@": tracer.caller.calls}


def test_a_tool_and_its_snapshot(tmp_path: Path) -> None:
    """Opens that failed, which opensnoop prints when they return; a call may lie across each edge of a gap."""
    saved = tmp_path / "saved.pts"
    tracer = Tracer(tmp_path, ("--watchdog", str(SHORT), "--save", str(saved), "opensnoop"))
    tracer.pause()
    found = tracer.end()
    opened = [item for item in found if "/missing/" in json.dumps(item)]
    losses = pytrace.Snapshot.load(saved).losses["skipped"]
    leaves = sum(count for probe, count in losses.items() if "sys_exit_openat" in probe)
    assert 0 <= tracer.caller.calls - len(opened) - leaves <= 2 * len(gaps(found))
    (run,) = pytrace.Snapshot.load(saved).data.runs
    assert [{"start": start, "duration": duration} for start, duration in run.gaps] == gaps(found)


def test_an_ahead_of_time_file(tmp_path: Path) -> None:
    file = tmp_path / "count.aot"
    words = [sys.executable, "-m", "pytrace", "--aot", str(file), "-e", f"{GETPPID} {{ @ = count(); }}", "--follow"]
    subprocess.run([*words, "-c", "true"], check=True, timeout=patience(60))
    tracer = Tracer(tmp_path, ("--watchdog", str(SHORT), str(file)))
    tracer.pause()
    found = tracer.end()
    assert gaps(found)
    assert maps(found)["@"] + skipped(found, GETPPID) == tracer.caller.calls


def test_output_that_nobody_reads_is_no_reason_to_skip(tmp_path: Path) -> None:
    """As in ``pytrace … | less``: pytrace runs, though it cannot print."""
    caller = Caller(tmp_path)
    script = f'{GETPPID} {{ @ = count(); printf("%s\\n", "{"x" * 200}"); }}'
    argv = [sys.executable, "-m", "pytrace", "-q", "--watchdog", "1.5", "-e", script, "--follow"]
    tracer = subprocess.Popen(
        [*argv, "-c", " ".join(caller.words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert tracer.stdout is not None
    caller.started(tracer.stdout.readline())
    until(lambda: waits_to_write(tracer.pid))
    time.sleep(2.0)
    caller.end()
    output, errors = tracer.communicate(timeout=patience(60))
    assert "skipped" not in errors
    assert f"@: {caller.calls}\n" in output


def waits_to_write(pid: int) -> bool:
    """Whether the pipe that a process writes to is full."""
    with open(f"/proc/{pid}/fd/1", "wb", opener=lambda path, _: os.open(path, os.O_WRONLY | os.O_NONBLOCK)) as pipe:
        return not select.select([], [pipe], [], 0)[1]


EMBEDDED = """
import subprocess, sys, time
import pytrace
with pytrace.open({script!r}, watchdog={watchdog}, follow=True, command={command!r}) as trace:
    sys.stdin.readline()
    while trace.child_status is None:
        time.sleep(0.1)
    gap = trace.losses.get("skipped", {{}})
    print(sum(gap.values()), trace.maps["@"].value)
"""


@pytest.mark.parametrize(("watchdog", "idle", "stopped"), [(1.0, 1.5, 0.0), (SHORT, 0.1, STOPPED)])
def test_a_python_program_may_do_nothing_but_not_stop(
    tmp_path: Path, watchdog: float, idle: float, stopped: float
) -> None:
    """A program that embeds a trace need not look at it."""
    caller = Caller(tmp_path)
    text = EMBEDDED.format(script=f"{GETPPID} {{ @ = count(); }}", command=caller.words, watchdog=watchdog)
    program = subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    caller.started(program.stdout.readline())
    time.sleep(idle)
    if stopped:
        os.kill(program.pid, signal.SIGSTOP)
        time.sleep(stopped)
        os.kill(program.pid, signal.SIGCONT)
        time.sleep(idle)
    caller.end()
    output, _ = program.communicate("\n", timeout=patience(60))
    lost, counted = map(int, output.split())
    assert lost + counted == caller.calls
    assert (lost > 0) is (stopped > 0)


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
    until(lambda: len(statuses(tracer.process.pid)) > 1)
    first, *others = statuses(tracer.process.pid)
    tracer.end()
    assert others == [first]


def test_a_run_whose_thread_hangs_is_stuck(tmp_path: Path) -> None:
    """Only that thread stands still, by ptrace(2); the one that beats sees it, and programs skip hits."""
    libc = ctypes.CDLL(None, use_errno=True)
    tracer = Tracer(tmp_path, ("--watchdog", str(SHORT), "-e", f"{GETPPID} {{ @ = count(); }}"))
    tracer.beats()
    assert libc.ptrace(PTRACE_ATTACH, tracer.process.pid, None, None) == 0
    os.waitpid(tracer.process.pid, WALL)
    time.sleep(3.5)
    assert libc.ptrace(PTRACE_DETACH, tracer.process.pid, None, None) == 0
    found = tracer.end()
    assert gaps(found)
    assert skipped(found, GETPPID) > 0
    assert maps(found)["@"] + skipped(found, GETPPID) == tracer.caller.calls
