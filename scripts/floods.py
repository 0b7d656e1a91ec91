"""``scripts/soak --floods``: events of several kinds at full rate until Ctrl-C, to a file, a pipe and a terminal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROBE = "tracepoint:syscalls:sys_enter_getppid /pid == PID/"
ENDING = 1.0
"""Seconds in which Ctrl-C has to end a run."""
BOUND = 112 << 20
"""Bytes that a flood may add to the tracer's memory: the backlog (64 MiB), the ring (16 MiB), symbols and output."""
BACKLOG = 64 << 20
ALLOWED = 4 << 20
"""Bytes by which memory may grow from the second to the last third of a flood, once the backlog is full."""
SHARE = 0.8
"""What alternating kinds must reach of the rate of one kind."""

# Each event prints one line that starts with "e"; further lines of it (stacks) are indented.
ONE = 'printf("e%d\\n", pid);'
TWO = ONE + 'printf("e%s\\n", comm);'
FIVE = TWO + 'printf("e %d %d\\n", cpu, tid); printf("e\\n"); printf("e%x\\n", nsecs);'
PICK = "".join(
    f"{'else ' if number else ''}if ($k == {number}) {{ {text}; }}" for number, text in enumerate(FIVE.split(";")[:-1])
)
STACKS = 'if (@n++ % 100 == 0) { printf("e %s\\n", kstack(4)); printf("e %s\\n", ustack(4)); @produced = sum(2); }'
STRING = 'printf("e%s\\n", str(curtask->comm, 1 + rand % 10));'


@dataclass(frozen=True)
class Mix:
    """What one flood sends: statements of the probe, how many events these send, and threads that call it."""

    body: str
    events: int
    threads: int = 1

    @property
    def script(self) -> str:
        """The script; PID stands for the flooding process."""
        sent = f"@produced = sum({self.events});" if self.events else ""
        return f"{PROBE} {{ {self.body} {sent} }}"


MIXES = {
    "one kind": Mix(ONE, 1),
    "two kinds in turn": Mix(TWO, 2),
    "five kinds in turn": Mix(FIVE, 5),
    "a kind in a thousand": Mix(
        ONE + 'if (@n++ % 1000 == 0) { printf("e rare %d\\n", cpu); @produced = sum(1); }', 1
    ),
    "five kinds at random": Mix(f"$k = rand % 5; {PICK}", 1),
    "strings among them": Mix(ONE + STRING, 2),
    "stacks among them": Mix(TWO + STACKS, 2),
    "two producers, one kind": Mix(ONE, 1, threads=2),
    "two producers, two kinds in turn": Mix(TWO, 2, threads=2),
    "two producers, five kinds at random": Mix(f"$k = rand % 5; {PICK}", 1, threads=2),
}


@dataclass
class Result:
    """The result of one flood."""

    printed: int = 0
    lost: int = 0
    left: int = 0
    produced: int = -1
    seconds: float = 0.0
    ending: float = 0.0
    processor: float = 0.0
    """Seconds of processor time of the tracer, until Ctrl-C."""
    taken: int = 0
    """Events that had been printed by then, as far as the reader has seen them."""
    memory: list[int] = field(default_factory=list)
    status: int | None = None

    @property
    def exact(self) -> bool:
        """Whether every event is accounted for."""
        return self.printed + self.lost + self.left == self.produced

    @property
    def flat(self) -> bool:
        """Whether memory is bounded: it does not grow any more, or only as much as a backlog that fills slowly."""
        third = max(1, len(self.memory) // 3)
        middle, last = self.memory[third : 2 * third], self.memory[-third:]
        grown = sum(last) / len(last) - sum(middle) / len(middle) if middle else 0.0
        filling = self.memory[-1] - self.memory[0] < BACKLOG
        return max(self.memory) - self.memory[0] <= BOUND and (grown <= ALLOWED or filling)

    @property
    def good(self) -> bool:
        """Whether all requirements are met."""
        return self.exact and self.flat and self.ending <= ENDING and self.status == 0


class Reader:
    """Counts the lines of events that come out of a descriptor, with *pause* seconds after each piece."""

    def __init__(self, descriptor: int, pause: float) -> None:
        self._descriptor = descriptor
        self._pause = pause
        self.events = 0
        self.tail = b""
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        before = b"\n"
        while True:
            try:
                text = os.read(self._descriptor, 1 << 16)
            except OSError:
                break
            if not text:
                break
            # On a terminal, lines end in "\r\n".
            self.events += (before + text).count(b"\ne")
            before = text[-1:]
            self.tail = (self.tail + text)[-4096:]
            time.sleep(self._pause)

    def close(self) -> None:
        """Wait for the end."""
        self._thread.join()
        os.close(self._descriptor)


@contextmanager
def producer(program: Path, threads: int) -> Iterator[int]:
    """A process that makes system calls at full rate."""
    with subprocess.Popen([program, "2000000000", str(threads)], stdout=subprocess.DEVNULL) as flood:
        try:
            yield flood.pid
        finally:
            flood.kill()


def _status(pid: int) -> tuple[int, float]:
    """Resident bytes, and seconds of processor time."""
    memory = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return memory, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def flood(program: Path, mix: Mix, output: str, seconds: float) -> Result:
    """One flood and its Ctrl-C."""
    with producer(program, mix.threads) as pid, tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytrace", "-e", mix.script.replace("PID", str(pid))]
        path = Path(folder) / "out"
        errors = Path(folder) / "errors"
        reader: Reader | None = None
        with errors.open("wb") as messages:
            if output == "file":
                tracer = subprocess.Popen([*command, "-o", str(path)], cwd=ROOT, stderr=messages)
            else:
                ours, theirs = os.openpty() if output == "terminal" else os.pipe()
                tracer = subprocess.Popen(command, cwd=ROOT, stdout=theirs, stderr=messages)
                os.close(theirs)
                reader = Reader(ours, 0.05 if output == "slow pipe" else 0.0)
        result = Result()
        _watch(tracer, errors, seconds, result)
        if reader is not None:
            result.taken = reader.events
        began = time.monotonic()
        tracer.send_signal(signal.SIGINT)
        try:
            result.status = tracer.wait(30)
        except subprocess.TimeoutExpired:
            tracer.kill()
            tracer.wait()
        result.ending = time.monotonic() - began
        if reader is not None:
            reader.close()
            result.printed, tail = reader.events, reader.tail
        else:
            result.printed, tail = _count(path)
        said = errors.read_text()
    for name, pattern in (("lost", r"^Lost (\d+) events?$"), ("left", r"(\d+) events? not printed")):
        setattr(result, name, sum(map(int, re.findall(pattern, said, re.MULTILINE))))
    if produced := re.search(rb"^@produced: (\d+)", tail, re.MULTILINE):
        result.produced = int(produced[1])
    return result


def _watch(tracer: subprocess.Popen[bytes], errors: Path, seconds: float, result: Result) -> None:
    while b"Attached" not in errors.read_bytes() and tracer.poll() is None:
        time.sleep(0.01)
    began, before = time.monotonic(), _status(tracer.pid)[1]
    while (now := time.monotonic() - began) < seconds and tracer.poll() is None:
        time.sleep(min(1.0, seconds / 15))
        memory, processor = _status(tracer.pid)
        result.memory.append(memory)
        result.seconds, result.processor = now, processor - before


def _count(path: Path) -> tuple[int, bytes]:
    events, tail = 0, b"\n"
    with path.open("rb") as file:
        while text := file.read(1 << 20):
            events += (tail[-1:] + text).count(b"\ne")
            tail = (tail + text)[-4096:]
    return events, tail


HEAD = (
    f"{'mix':36} {'output':9} {'produced':>11} {'printed':>11} {'lost':>11} {'left':>8} {'MiB 1/3':>7} {'end':>5} "
    f"{'end, s':>6} {'/s':>9} {'/cpu s':>9}"
)


def row(name: str, output: str, result: Result) -> str:
    """A line of the table."""
    third = result.memory[len(result.memory) // 3] >> 20
    faults = [] if result.exact else ["NOT EXACT"]
    faults += [] if result.flat else ["GROWS"]
    faults += [] if result.ending <= ENDING else ["SLOW TO END"]
    faults += [] if result.status == 0 else [f"STATUS {result.status}"]
    return (
        f"{name:36} {output:9} {result.produced:11} {result.printed:11} {result.lost:11} {result.left:8} {third:7} "
        f"{result.memory[-1] >> 20:5} {result.ending:6.2f} {result.printed / result.seconds:9.0f} "
        f"{result.printed / max(0.01, result.processor):9.0f} {' '.join(faults)}"
    )


def floods(program: Path, seconds: float, only: str = "") -> bool:
    """All floods, or those with *only* in their names; whether each was good and alternating kinds as fast as one."""
    good = True
    rates: dict[str, float] = {}
    print(HEAD, flush=True)
    for output in ("file", "slow pipe", "terminal"):
        for name, mix in MIXES.items():
            if only not in f"{name} to {output}":
                continue
            result = flood(program, mix, output, seconds)
            print(row(name, output, result), flush=True)
            good &= result.good
            if output == "file":
                rates[name] = result.printed / max(0.01, result.processor)
    one = rates.get("one kind")
    for name in ("two kinds in turn", "five kinds in turn"):
        if one and name in rates:
            good &= rates[name] >= SHARE * one
            print(f"{name}: {100 * rates[name] / one:.0f} % of the rate of one kind, per second of processor time")
    return good
