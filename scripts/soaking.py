"""The load of scripts/soak: one long run of pytrace under a mixed load, and its memory over time."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import floods

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "tests" / "programs" / "build"
LINKS = ROOT / ".cache" / "soak"
"""The programs under names of their own, so that other runs of them are not traced."""

SCRIPT = """
config = {{ max_map_keys = 20000 }}
tracepoint:syscalls:sys_enter_getppid /comm == "soak_flood"/ {{
    @produced++;
    @calls[nsecs % 15000] = count();
    @spread[tid % 64] = hist(nsecs % 100000);
    printf("call %d %s %d\\n", tid, comm, nsecs);
}}
tracepoint:syscalls:sys_enter_openat /comm == "soak_calls"/ {{ @opened[str(args.filename)] = count(); }}
uprobe:{programs}/calls:add {{ @stacks[ustack(8), pid] = count(); @kernel[kstack(8)] = count(); }}
profile:hz:49 /comm == "soak_flood" || comm == "soak_calls"/ {{ @where[ustack(perf, 16), comm] = count(); }}
interval:ms:700 {{
    print(@calls, 3); clear(@calls);
    print_clear(@stacks, 3); print_clear(@where, 3); print_clear(@spread);
    print_clear(@opened, 5); print_clear(@kernel, 2);
}}
end {{ clear(@calls); clear(@stacks); clear(@where); clear(@spread); clear(@opened); clear(@kernel); }}
"""

FLOOD = ("soak_flood", "800", "2")
SETTLED = 120.0
"""Seconds after which memory must not grow any more: as many processes as are remembered have ended, and metrics were
asked for while maps were full."""
ALLOWED = 3 << 20
"""Bytes by which the mean of the last third may exceed that of the third after the first two minutes."""


@dataclass(slots=True)
class Seen:
    """The output of the run."""

    calls: int = 0
    lines: int = 0
    produced: int = -1
    samples: list[tuple[float, int]] = field(default_factory=list)
    """Seconds since the start, bytes of resident memory."""


@contextmanager
def in_background(work: Callable[[], object]) -> Iterator[threading.Event]:
    """Repeat *work* in a thread until the end of the block."""
    over = threading.Event()

    def loop() -> None:
        while not over.is_set():
            work()

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield over
    finally:
        over.set()
        thread.join()


def resident(pid: int) -> int:
    """Resident memory of a process in bytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def load() -> None:
    """One burst of load: system calls, and short-lived processes."""
    run(*FLOOD)
    for _ in range(4):
        run("soak_calls", "20")
    run("soak_forks", "40")
    time.sleep(0.1)


def run(*command: str) -> None:
    """Run one of the test programs."""
    subprocess.run([LINKS / command[0], *command[1:]], stdout=subprocess.DEVNULL, check=False)


def follow(stream: int, seen: Seen) -> None:
    """Count what the tracer prints."""
    rest = b""
    while chunk := os.read(stream, 1 << 16):
        *lines, rest = (rest + chunk).split(b"\n")
        seen.lines += len(lines)
        seen.calls += sum(line.startswith(b"call ") for line in lines)
        for line in lines:
            if line.startswith(b"@produced: "):
                seen.produced = int(line.split()[1])


def scrape(errors: int) -> None:
    """Ask the tracer for its metrics, as a monitoring system that is in a hurry."""
    address = re.search(rb"Metrics at (\S+)", os.pread(errors, 1 << 16, 0))
    if address is not None:
        with suppress(OSError), urllib.request.urlopen(address[1].decode(), timeout=20) as answer:
            answer.read()
    time.sleep(1)


def soak(seconds: float) -> tuple[Seen, int, str]:
    """Run the soak test. Returns the output, the sum of lost events, and standard error."""
    seen = Seen()
    command = [sys.executable, "-m", "pytrace", "--metrics", "127.0.0.1:0", "-e", SCRIPT.format(programs=PROGRAMS)]
    errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed below
    tracer = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors)
    assert tracer.stdout is not None
    reader = threading.Thread(target=follow, args=(tracer.stdout.fileno(), seen))
    reader.start()
    start = time.monotonic()
    with in_background(load), in_background(lambda: scrape(errors.fileno())):
        while time.monotonic() - start < seconds and tracer.poll() is None:
            time.sleep(5)
            seen.samples.append((time.monotonic() - start, resident(tracer.pid)))
            print(
                f"{seen.samples[-1][0]:6.0f} s {seen.samples[-1][1] / (1 << 20):8.1f} MiB {seen.calls:10} calls",
                flush=True,
            )
    tracer.terminate()
    reader.join()
    tracer.wait()
    errors.seek(0)
    said = errors.read()
    errors.close()
    lost = sum(map(int, re.findall(r"^Lost (\d+) events$", said, re.MULTILINE)))
    return seen, lost, said


RATE = 'tracepoint:syscalls:sys_enter_getppid /pid == cpid/ {{ printf("{fields}\\n", {values}); }}'
THREE = RATE.format(fields="%d %s %d", values="pid, comm, nsecs")
FULL_RATE = (
    ("three fields", (), THREE, 1),
    ("three fields, two producers", (), THREE, 2),
    ("three fields, JSON", ("-f", "json"), THREE, 1),
    ("a string that is read", (), RATE.format(fields="%d %s %s", values="pid, comm, str(curtask->comm)"), 1),
)


def full_rate(events: int) -> bool:
    """Floods at the full rate of a core; whether all of them were printed or counted as lost."""
    good = True
    for what, options, script, producers in FULL_RATE:
        command = [sys.executable, "-m", "pytrace", "-q", *options, "-e", script]
        # What the command itself prints would land between the lines that are counted.
        flood = f"{LINKS}/soak_flood {events // producers} {producers}"
        command += ["-c", f"sh -c 'exec {flood} >/dev/null'"]
        start = time.monotonic()
        tracer = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert tracer.stdout is not None
        assert tracer.stderr is not None
        printed = 0
        rest = b""
        while chunk := os.read(tracer.stdout.fileno(), 1 << 20):
            whole = rest + chunk
            cut = whole.rfind(b"\n") + 1
            printed += whole.count(b" soak_flood ", 0, cut)
            rest = whole[cut:]
        lost = sum(map(int, re.findall(r"Lost (\d+) events", tracer.stderr.read().decode())))
        lost += sum(map(int, re.findall(rb'"lost_events", "count": (\d+)', rest)))
        tracer.wait()
        produced = events // producers * producers
        good &= printed + lost == produced
        took = time.monotonic() - start
        print(f"{what}: printed {printed} + lost {lost} of {produced} events, {took:.1f} s", flush=True)
    return good


def growth(samples: list[tuple[float, int]]) -> float:
    """Growth of memory from the second minute to the end, in bytes."""
    settled = [size for moment, size in samples if moment >= SETTLED]
    third = max(1, len(settled) // 3)
    return sum(settled[-third:]) / third - sum(settled[:third]) / third


def main() -> int:
    """Run the soak test and check its results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("minutes", nargs="?", type=float, default=10.0)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--rate", metavar="EVENTS", type=int, help="instead, print so many events at full rate")
    parser.add_argument("--floods", metavar="SECONDS", type=float, help="instead, floods of all mixes, so long each")
    parser.add_argument("--only", metavar="TEXT", default="", help="only floods with TEXT in 'mix to output'")
    options = parser.parse_args()
    LINKS.mkdir(parents=True, exist_ok=True)
    for name in ("flood", "calls", "forks"):
        link = LINKS / f"soak_{name}"
        link.unlink(missing_ok=True)
        link.symlink_to(PROGRAMS / name)
    if options.floods:
        return 0 if floods.floods(PROGRAMS / "flood", options.floods, options.only) else 1
    if options.rate:
        return 0 if full_rate(options.rate) else 1
    seen, lost, said = soak(60 * options.minutes)
    more = growth(seen.samples) if seen.samples and seen.samples[-1][0] > SETTLED else 0.0
    exact = seen.calls + lost == seen.produced
    verdict = "exact" if exact else "WRONG"
    print(f"printed {seen.calls} + lost {lost} = produced {seen.produced}: {verdict}; {seen.lines} lines")
    judged = "flat" if more <= ALLOWED else "GROWS"
    print(f"memory after the first two minutes grew by {more / (1 << 20):.1f} MiB: {judged}")
    other = [line for line in said.splitlines() if not re.match(r"Lost \d+ events$|Attached|Metrics at", line)]
    print("\n".join(other[:20]))
    if options.json:
        result = {
            "samples": seen.samples,
            "printed": seen.calls,
            "lost": lost,
            "produced": seen.produced,
            "growth": more,
        }
        Path(options.json).write_text(json.dumps(result))
    return 0 if exact and more <= ALLOWED else 1


if __name__ == "__main__":
    sys.exit(main())
