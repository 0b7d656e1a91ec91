"""Output of real runs: snapshots that lose nothing, and policies seen from the other end of a pipe."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.programs import build

CALLS = 40_000


def tracer(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pytrace", *arguments]


@pytest.fixture(scope="module")
def syscalls() -> Path:
    return build() / "syscalls"


@pytest.mark.parametrize("update", ["@seen = count();", "@seen = sum(1);", "@seen = hist(1);", "@seen = stats(1);"])
def test_print_and_clear_counts_each_update_once(syscalls: Path, update: str) -> None:
    script = (
        f"tracepoint:syscalls:sys_enter_getppid /pid == cpid/ {{ {update} }} "
        "interval:ms:2 { print_clear(@seen); }"
    )
    done = subprocess.run(
        tracer("-q", "-f", "json", "-e", script, "-c", f"{syscalls} {CALLS}"),
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    values = [json.loads(line)["data"]["@seen"] for line in done.stdout.splitlines()]
    if "hist" in update:
        total = sum(bucket["count"] for value in values for bucket in value)
    elif "stats" in update:
        total = sum(value["count"] for value in values)
    else:
        total = sum(values)
    assert total == CALLS
    assert len(values) > 5


def test_the_line_policy_shows_sparse_output_at_once() -> None:
    program = 'interval:ms:500 { printf("tick %d %llu\\n", @n, nsecs); @n++; }'
    child = subprocess.Popen(tracer("-q", "-e", program), stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        delays = []
        for number in range(4):
            tick, count, then = child.stdout.readline().split()
            assert (tick, count) == ("tick", str(number))
            delays.append(time.clock_gettime_ns(time.CLOCK_BOOTTIME) - int(then))
        # Output that waited for the next would be half a second old; a busy machine makes most of them late, not all.
        assert min(delays) < 400_000_000
    finally:
        child.terminate()
        rest, _ = child.communicate(timeout=20)
    assert re.fullmatch(r"(tick \d+ \d+\n)*\n\n@n: \d+\n", rest)


def test_a_reader_that_closes_ends_the_run() -> None:
    child = subprocess.Popen(
        tracer("-q", "-e", 'interval:ms:10 { printf("tick\\n"); }'), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"tick\n"
    child.stdout.close()
    assert child.stderr is not None
    assert child.wait(timeout=20) == 0
    assert child.stderr.read() == b""
    child.stderr.close()
