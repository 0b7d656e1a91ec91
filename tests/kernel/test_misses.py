"""What the kernel left out: misses of kretprobes and of programs inside themselves."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.support.machine import need
from tests.support.server import Server

pytestmark = [pytest.mark.usefixtures("no_leaks"), pytest.mark.core]

SLEEPERS = """
import threading, time
gate = threading.Barrier(60)
def sleep():
    gate.wait()
    time.sleep(1)
threads = [threading.Thread(target=sleep) for _ in range(60)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def test_missed_returns_are_counted(server: Server) -> None:
    """A kretprobe remembers only so many calls at one time; more sleepers than that are missed."""
    need("kprobe")
    script = (
        "kprobe:do_nanosleep /pid == cpid/ { @in = count(); } kretprobe:do_nanosleep /pid == cpid/ { @out = count(); }"
    )
    argv = ("-q", "-f", "json", "-e", script, "-c", f"{sys.executable} -c '{SLEEPERS}'")
    done = server.run(argv, timeout=60)
    assert done.status == 0, done
    found = {name: value for line in done.stdout.splitlines() for name, value in json.loads(line)["data"].items()}
    missed = sum(found.get("missed", {}).values())
    assert found["@in"] >= 60
    # Sleepers of other processes may be missed as well.
    assert found["@in"] - found["@out"] <= missed
    assert missed > 0


def test_programs_inside_themselves_are_counted(server: Server, programs: Path) -> None:
    """Each debugf() in the second program hits that program again."""
    script = (
        'tracepoint:syscalls:sys_enter_getppid /pid == cpid/ { debugf("x"); } '
        'rawtracepoint:bpf_trace_printk /pid == cpid/ { @ = count(); debugf("again"); }'
    )
    done = server.run(("-q", "-f", "json", "-e", script, "-c", f"{programs}/flood 100"), timeout=30)
    assert done.status == 0, done
    objects = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert {"type": "map", "data": {"@": 100}} in objects
    losses = next(item["data"] for item in objects if item["type"] == "losses")
    assert list(losses["recursion"].values()) == [100]
