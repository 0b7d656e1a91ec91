"""Output of real runs: snapshots that lose nothing, and policies seen from the other end of a pipe."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patience import patience
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
        capture_output=True, text=True, timeout=patience(60), check=True,
    )  # fmt: skip
    values = [json.loads(line)["data"]["@seen"] for line in done.stdout.splitlines()]
    if "hist" in update:
        total = sum(bucket["count"] for value in values for bucket in value)
    elif "stats" in update:
        total = sum(value["count"] for value in values)
    else:
        total = sum(values)
    assert total == CALLS
    assert len(values) > 1, "something was printed while calls were counted"


def test_the_line_policy_shows_sparse_output_at_once() -> None:
    """A line is there before anything else happens that could take it along."""
    program = f't:syscalls:sys_enter_getppid /pid == {os.getpid()}/ {{ printf("tick %d\\n", @n); @n++; }}'
    child = subprocess.Popen(tracer("-e", program), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stderr is not None
    try:
        assert child.stderr.readline() == "Attached 1 probe\n"
        for number in range(4):
            os.getppid()
            assert select.select([child.stdout], [], [], patience(10))[0]
            assert child.stdout.readline() == f"tick {number}\n"
    finally:
        child.terminate()
        rest, _ = child.communicate(timeout=patience(20))
    assert rest == "\n\n@n: 4\n"


def test_a_reader_that_closes_ends_the_run() -> None:
    child = subprocess.Popen(
        tracer("-q", "-e", 'interval:ms:10 { printf("tick\\n"); }'), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"tick\n"
    child.stdout.close()
    assert child.stderr is not None
    assert child.wait(timeout=patience(20)) == 0
    assert child.stderr.read() == b""
    child.stderr.close()
