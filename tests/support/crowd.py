"""Many tracers: all at once, or one started while another is killed, again and again.

``python -m tests.support.crowd at-once NUMBER`` and ``python -m tests.support.crowd churn SECONDS EVERY SEED`` print
a line of JSON. Each tracer is a process of its own, forked from this one, which has pytrace imported.
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
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from pytrace.cli import main as cli
from pytrace.runtime.abi import syscalls
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
        self.statuses: Counter[int] = Counter()

    def start(self, *words: str) -> int:
        """Fork a tracer with the words of a command line."""
        out = self.folder / str(len(self.running) + sum(self.statuses.values()))
        out.touch()
        pid = os.fork()
        if pid == 0:
            _trace(out, words)
        self.running[pid] = out
        return pid

    def wait(self, pid: int) -> str:
        """Wait for the end of a tracer. Returns its output."""
        _, status = os.waitpid(pid, 0)
        self.statuses[os.waitstatus_to_exitcode(status)] += 1
        return self.running.pop(pid).read_text(errors="replace")


def _trace(out: Path, words: tuple[str, ...]) -> NoReturn:
    try:
        syscalls.die_with_parent(signal.SIGKILL)
        os.dup2(os.open(out, os.O_WRONLY), 1)
        os.dup2(1, 2)
        os.environ[ATTACHED] = "1"
        signal.signal(signal.SIGINT, signal.default_int_handler)
        status = cli.main(words)
        sys.stdout.flush()
        os._exit(status)
    except KeyboardInterrupt:
        os._exit(130)
    finally:
        os._exit(99)


def _until(condition: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{condition} did not come true")
        time.sleep(0.02)


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
    started = time.monotonic()
    first = crowd.start("-q", "-e", source, str(traced))
    # The others read what it compiled from the cache.
    _until(lambda: ATTACHED in crowd.running[first].read_text(), 60)
    pids = [first, *(crowd.start("-q", "-e", source, str(traced)) for _ in range(number - 1))]
    _until(lambda: all(ATTACHED in crowd.running[pid].read_text() for pid in pids), 110)
    attached = time.monotonic() - started
    memory = _memory(pids)
    os.write(write, b"\n")
    os.waitpid(traced, 0)
    started = time.monotonic()
    for pid in pids:
        os.kill(pid, signal.SIGINT)
    texts = Counter("".join(crowd.wait(pid).split()).replace(ATTACHED, "") for pid in pids)
    return {
        "attached": attached, "ended": time.monotonic() - started, "memory": memory, "outputs": texts,
        "statuses": crowd.statuses,
    }  # fmt: skip


def churn(crowd: Crowd, seconds: float, every: float, seed: int) -> dict[str, object]:
    """Start a tracer in each period of *every* seconds, and kill another at some moment of its life."""
    chance = random.Random(seed)
    source = SCRIPT.format(programs=crowd.programs) + "begin { for ($i : 0..3000) { @k[$i, comm] = $i; } }"
    end = time.monotonic() + seconds
    deadlines: dict[int, float] = {}
    while time.monotonic() < end or deadlines:
        now = time.monotonic()
        if now < end:
            uncached = ("--no-cache",) if chance.random() < 0.4 else ()
            pid = crowd.start("-q", *uncached, "-e", source, str(os.getpid()), "-c", "sleep 600")
            deadlines[pid] = now + chance.uniform(0, 3 * every)
        pause = now + every
        while deadlines and (time.monotonic() < pause or now >= end):
            for pid in [pid for pid, due in deadlines.items() if due <= time.monotonic()]:
                # Every fourth one is asked to end, and killed while it prints.
                if chance.random() < 0.25:
                    os.kill(pid, signal.SIGINT)
                    time.sleep(chance.uniform(0, 0.05))
                os.kill(pid, signal.SIGKILL)
                crowd.wait(pid)
                del deadlines[pid]
            time.sleep(0.01)
    return {"tracers": sum(crowd.statuses.values()), "statuses": crowd.statuses}


def main() -> int:
    """The command."""
    mode, *numbers = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        crowd = Crowd(Path(folder))
        try:
            if mode == "at-once":
                result = at_once(crowd, int(numbers[0]))
            else:
                result = churn(crowd, float(numbers[0]), float(numbers[1]), int(numbers[2]))
        finally:
            for pid in list(crowd.running):
                os.kill(pid, signal.SIGKILL)
                crowd.wait(pid)
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
