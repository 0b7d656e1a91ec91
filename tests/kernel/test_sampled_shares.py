"""Profiles of a process show its work in the shares that it has, however short its threads and processes live.

The programs spend 70, 20 and 10 % of their time in three functions. Shares of samples are to be those of samples at
random moments: within three sigma of a binomial distribution (a second run decides where one is not).
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.machine import need
from tests.support.patience import patience
from tests.support.saved import ROOT, start
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("no_leaks")

SHARES = {"seventy": 0.7, "twenty": 0.2, "ten": 0.1}
SAMPLES = "{ @[comm, ctx.regs.ip] = count(); }"
"""By address: names of ten thousand processes that have ended are not kept, on a machine where others end, too."""
WAYS = ("threads:5", "threads:20", "threads:100", "forks:8", "pool", "timer:100")
FREQUENCIES = (49, 50, 99, 100, 199, 200, 997)


def functions(program: Path) -> dict[str, range]:
    """Addresses of the functions; the program is always at the same place."""
    text = subprocess.run(["nm", "-S", program], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in text.splitlines() if line.split()[-1] in SHARES]
    return {name: range(int(start, 16), int(start, 16) + int(size, 16)) for start, size, _, name in rows}


class Profile:
    """Samples of each function by way, and the milliseconds of processor time that each way took."""

    def __init__(self, lines: str, program: Path) -> None:
        self._functions = functions(program)
        self.samples: dict[str, dict[str, int]] = {}
        self.used: dict[str, float] = {}
        for line in lines.splitlines():
            if line.startswith("{"):
                event = json.loads(line)
                if event["type"] == "map":
                    self._add(event["data"].get("@", {}))
            elif line.partition(":")[0].split()[0] in {way.partition(":")[0] for way in WAYS}:
                way, used = line.split()
                self.used[way] = float(used)

    def _add(self, counts: dict[str, int]) -> None:
        for key, count in counts.items():
            way, _, address = key.partition(",")
            by_function = self.samples.setdefault(way, dict.fromkeys(SHARES, 0))
            for name, place in self._functions.items():
                if int(address) in place:
                    by_function[name] += count

    def sigmas(self, way: str) -> dict[str, float]:
        """By how many standard deviations of random samples each function's share is off."""
        samples = self.samples[way]
        total = sum(samples.values())
        return {
            name: (samples[name] / total - share) / math.sqrt(share * (1 - share) / total)
            for name, share in SHARES.items()
        }

    def off(self, way: str, most: float = 3.0) -> bool:
        return any(abs(sigma) > most for sigma in self.sigmas(way).values())


def profile(programs: Path, probe: str, seconds: float, *ways: str) -> Profile:
    """A profile of a command and its children."""
    command = f"{programs}/shares {seconds} {' '.join(ways)}"
    done = subprocess.run(
        [sys.executable, "-m", "pytrace", "-q", "-f", "json", "--follow", "-e", f"{probe} {SAMPLES}", "-c", command],
        capture_output=True, text=True, timeout=patience(40) + 8 * seconds * len(ways), check=True, cwd=ROOT,
    )  # fmt: skip
    return Profile(done.stdout, programs / "shares")


def test_short_work_is_seen_as_often_as_it_runs(programs: Path) -> None:
    """Threads that live for a period: timers of threads saw 22 samples of 196, 19 in the function with 10 %."""
    need("perf_events")
    for _ in range(2):
        found = profile(programs, "profile:hz:199", 1, "threads:5")
        expected = 0.199 * found.used["threads:5"]
        total = sum(found.samples["threads:5"].values())
        if not found.off("threads:5") and 0.75 * expected < total < 1.25 * expected:
            return
    raise AssertionError((found.samples, found.used, found.sigmas("threads:5")))


def test_sampling_does_not_run_in_step_with_the_work(programs: Path) -> None:
    """By processes, by threads, and by a timer of the same frequency; each name is one that the thread gives itself."""
    need("perf_events")
    ways = ("forks:3.2", "timer:250")
    for _ in range(2):
        found = profile(programs, "software:cpu-clock:4000000", 1, *ways)
        if not any(found.off(way) for way in ways):
            return
    raise AssertionError((found.samples, found.used))


@contextmanager
def running(programs: Path, *ways: str) -> Iterator[int]:
    with subprocess.Popen([programs / "shares", "1000", *ways], stdout=subprocess.DEVNULL) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def test_processes_that_run_already(programs: Path, tmp_path: Path) -> None:
    """Of two processes of -p the threads that begin later; not of a third one, and nothing of the tracer."""
    need("perf_events")
    third = tmp_path / "third"
    third.symlink_to(programs / "shares")
    with running(programs, "threads:2") as one, running(programs, "pool") as two:
        other = subprocess.Popen([third, "1000", "threads:5"], stdout=subprocess.DEVNULL)
        try:
            for pid, name in ((one, "threads:2"), (two, "pool"), (other.pid, "threads:5")):
                until(lambda pid=pid, name=name: Path(f"/proc/{pid}/comm").read_text().strip() == name)  # type: ignore[misc]
            script = "profile:hz:997 { @[comm, pid] = count(); if (++@n == 600) { exit(); } } end { clear(@n); }"
            tracer = start("-q", "-f", "json", "-e", script, "-p", f"{one},{two}")
            out, error = tracer.communicate(timeout=patience(60))
        finally:
            other.kill()
            other.wait()
    assert not error
    (event,) = [json.loads(line) for line in out.splitlines()]
    counts = event["data"]["@"]
    assert set(counts) == {f"threads:2,{one}", f"pool,{two}"}
    assert all(count > 60 for count in counts.values())


@pytest.mark.soak
@pytest.mark.parametrize("frequency", FREQUENCIES)
def test_every_way_at_every_frequency(programs: Path, frequency: int) -> None:
    """At least 1,000 samples each; prints a row of a table of standard deviations."""
    need("perf_events")
    seconds = 1100 / frequency
    off = list(WAYS)
    for attempt in range(2):
        found = profile(programs, f"profile:hz:{frequency}", seconds, *off)
        for way in off:
            samples, sigmas = found.samples[way], found.sigmas(way)
            shown = " ".join(f"{name} {samples[name]} ({sigma:+.1f})" for name, sigma in sigmas.items())
            mean = sum(samples.values()) / (found.used[way] / 1000)
            print(f"{frequency} Hz, {way}, run {attempt + 1}: {shown}; {mean:.1f} a second")
            assert sum(samples.values()) >= 900
        off = [way for way in off if found.off(way)]
        if not off:
            return
    raise AssertionError(off)
