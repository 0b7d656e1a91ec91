"""Many tracers: all at once, or one started while another is killed, again and again.

``python -m tests.support.crowd at-once NUMBER`` and ``python -m tests.support.crowd churn NUMBER EVERY SEED`` print
a line of JSON. Each tracer is a process of its own, forked from this one, which has pytrace imported. Nothing here has
a deadline: a busy machine takes longer, and who calls this ends what hangs.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import NoReturn

from pytrace.cli import main as cli
from pytrace.runtime.machine import syscalls
from tests.support.programs import build

ATTACHED = "__PYTRACE_NOTIFY_PROBES_ATTACHED"
SCRIPT = (
    "uprobe:{programs}/usdt:pass /pid == $1/ {{ @user = count(); }} "
    "usdt:{programs}/usdt:sample:guarded /pid == $1/ {{ @guarded = count(); }} "
    "tracepoint:syscalls:sys_enter_getppid /pid == $1/ {{ @calls = count(); }} "
    "self:signal:SIGUSR1 {{ exit(); }} interval:s:600 {{ exit(); }} "
)
"""Probes that share their breakpoints, semaphore and tracepoint with those of all other tracers."""
ROUNDS = 20


class Crowd:
    """Tracers in a folder; each has a file of its output."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs = build()
        self.running: dict[int, Path] = {}
        self.started: dict[int, float] = {}
        self.statuses: Counter[int] = Counter()
        self.last_outputs: dict[int, str] = {}
        """The end of the output of the last tracer with each status."""

    def start(self, *words: str) -> int:
        """Fork a tracer with the words of a command line."""
        out = self.folder / str(len(self.running) + sum(self.statuses.values()))
        out.touch()
        pid = os.fork()
        if pid == 0:
            _trace(out, words)
        self.running[pid] = out
        self.started[pid] = time.monotonic()
        return pid

    def attached(self, pids: list[int]) -> list[float]:
        """Wait until tracers have attached or ended. Returns how many seconds each took, the quickest first."""
        seconds = []
        waiting = list(pids)
        while waiting:
            done = [pid for pid in waiting if ATTACHED in self.running[pid].read_text() or _has_ended(pid)]
            seconds += [time.monotonic() - self.started[pid] for pid in done]
            waiting = [pid for pid in waiting if pid not in done]
            time.sleep(0.02)
        return sorted(seconds)

    def wait(self, pid: int) -> str:
        """Wait for the end of a tracer. Returns its output."""
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        self.statuses[code] += 1
        text = self.running.pop(pid).read_text(errors="replace")
        self.last_outputs[code] = text[-2000:]
        return text


def _trace(out: Path, words: tuple[str, ...]) -> NoReturn:
    try:
        syscalls.die_with_parent(signal.SIGKILL)
        os.dup2(os.open(out, os.O_WRONLY), 1)
        os.dup2(1, 2)
        os.environ[ATTACHED] = "1"
        sys.argv[1:] = words
        cli.command()
    finally:
        os._exit(99)


def _has_ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _memory(pids: list[int]) -> int:
    """Bytes of memory of processes, what several of them share being divided among these."""
    return sum(
        int(line.split()[1]) << 10
        for pid in pids
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        if line.startswith("Pss:")
    )


def at_once(crowd: Crowd, number: int) -> dict[str, object]:
    """Start *number* tracers, run the traced program once, and end them all."""
    source = SCRIPT.format(programs=crowd.programs)
    read, write = os.pipe()
    traced = os.fork()
    if traced == 0:
        os.dup2(read, 0)
        os.close(write)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.execv(f"{crowd.programs}/usdt", ["usdt", str(ROUNDS), "wait"])
    # Among so many one may get no processor for the ten seconds after which its programs would skip hits, and say so.
    words = ("-q", "--watchdog", "600", "-e", source, str(traced))
    first = crowd.start(*words)
    # The others read what it compiled from the cache.
    first_start = crowd.attached([first])
    pids = [first, *(crowd.start(*words) for _ in range(number - 1))]
    starts = crowd.attached(pids[1:])
    memory = _memory([pid for pid in pids if not _has_ended(pid)])
    os.write(write, b"\n")
    os.waitpid(traced, 0)
    started = time.monotonic()
    for pid in pids:
        os.kill(pid, signal.SIGINT)
    texts = Counter("".join(crowd.wait(pid).split()).replace(ATTACHED, "") for pid in pids)
    return {
        "first start": first_start[0], "median start": median(starts), "slowest start": starts[-1],
        "ended": time.monotonic() - started, "memory": memory, "outputs": texts, "statuses": crowd.statuses,
    }  # fmt: skip


def churn(crowd: Crowd, number: int, every: float, seed: int) -> dict[str, object]:
    """Start *number* tracers, one in each period of *every* seconds, and kill another at some moment of its life."""
    chance = random.Random(seed)
    source = SCRIPT.format(programs=crowd.programs) + "begin { for ($i : 0..3000) { @k[$i, comm] = $i; } }"
    began = time.monotonic()
    deadlines: dict[int, float] = {}
    while number or deadlines:
        now = time.monotonic()
        if number:
            number -= 1
            uncached = ("--no-cache",) if chance.random() < 0.4 else ()
            pid = crowd.start("-q", *uncached, "-e", source, str(os.getpid()), "-c", "sleep 600")
            deadlines[pid] = now + chance.uniform(0, 3 * every)
        pause = now + every
        while (time.monotonic() < pause) if number else deadlines:
            for pid in [pid for pid, due in deadlines.items() if due <= time.monotonic()]:
                # Every fourth one is asked to end, and killed while it prints.
                if chance.random() < 0.25:
                    os.kill(pid, signal.SIGINT)
                    time.sleep(chance.uniform(0, 0.05))
                os.kill(pid, signal.SIGKILL)
                crowd.wait(pid)
                del deadlines[pid]
            time.sleep(0.01)
    return {"seconds": time.monotonic() - began, "statuses": crowd.statuses, "last outputs": crowd.last_outputs}


def main() -> int:
    """The command."""
    mode, *numbers = sys.argv[1:]
    # Tracers have it from their first instruction on: as the command does, SIGINT ends them at once until there is
    # something to end in order. Python's own handler would raise in imports.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with tempfile.TemporaryDirectory() as folder:
        crowd = Crowd(Path(folder))
        try:
            if mode == "at-once":
                result = at_once(crowd, int(numbers[0]))
            else:
                result = churn(crowd, int(numbers[0]), float(numbers[1]), int(numbers[2]))
        finally:
            for pid in list(crowd.running):
                os.kill(pid, signal.SIGKILL)
                crowd.wait(pid)
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
