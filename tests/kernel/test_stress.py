"""Many probes at once, and many sessions one after another: nothing is left behind and nothing gets slow."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support.compile import tool
from tests.support.leaks import Watch
from tests.support.machine import kernel_version, need
from tests.support.patience import patience
from tests.support.server import Server

pytestmark = pytest.mark.usefixtures("no_leaks")

FUNCTIONS = 10_000
SESSIONS = 60
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program with 10,000 functions, each of which it calls once."""
    folder = tmp_path_factory.mktemp("many")
    source, made = folder / "many.c", folder / "many"
    parts = [f"void function_{n}(void) {{ __asm__ volatile(\"\"); }}" for n in range(FUNCTIONS)]
    calls = "".join(f"function_{n}();" for n in range(FUNCTIONS))
    source.write_text("\n".join(parts) + f"\nint main(void) {{ {calls} return 0; }}\n")
    tool("gcc", "-O0", "-o", made, source)
    return made


@pytest.mark.parametrize("kind", ["uprobe", "uretprobe"])
def test_ten_thousand_user_probes(server: Server, many: Path, kind: str) -> None:
    need("uprobe_multi")
    watch = Watch()
    program = f"config = {{ max_probes = {FUNCTIONS} }} {kind}:{many}:function_* {{ @ = count(); }}"
    result = server.run(("-e", program, "-c", str(many)), timeout=60)
    assert result.status == 0, result
    assert f"Attached {FUNCTIONS} probes" in result.stderr
    assert result.stdout.split() == ["@:", str(FUNCTIONS)]
    assert not watch.leaked()


def test_ten_thousand_names(server: Server, many: Path) -> None:
    """Each probe is told apart by its cookie."""
    need("uprobe_multi")
    program = (
        f"config = {{ max_probes = {FUNCTIONS + 1}; max_map_keys = {FUNCTIONS} }} "
        f"uprobe:{many}:function_* {{ @[probe] = count(); }} end {{ print(len(@)); clear(@); }}"
    )
    result = server.run(("-q", "-e", program, "-c", str(many)), timeout=60)
    assert result.stdout.split() == [str(FUNCTIONS)], result


def test_too_many_probes_are_refused(server: Server, many: Path) -> None:
    result = server.run(("-e", f"uprobe:{many}:function_* {{ }}"), timeout=60)
    assert result.status == 1
    assert "10000 probes" in result.stderr
    assert "max_probes" in result.stderr


EVERY_KIND = (
    "begin { @start = nsecs; } tracepoint:syscalls:sys_enter_getppid { @[comm] = count(); } "
    "uprobe:{calls}:add { @u = hist(arg0); } usdt:{usdt}:sample:guarded { @g = count(); } "
    "profile:hz:99 { @k[kstack(2)] = count(); } software:faults:1 { @f = count(); } interval:s:1 { } end { clear(@k); }"
)
"""With what waits for the kernel to detach: a tenth of a second each time."""
QUICK = "begin { @start = nsecs; } uprobe:{calls}:add { @u = hist(arg0); printf(\"%d\\n\", pid); } end { print(1); }"

LOOP = """
import gc, os, sys, threading
from pytrace.cli import main as cli
def state():
    gc.collect()
    return sorted(os.listdir("/proc/self/fd")), threading.active_count(), len(open("/proc/self/maps").readlines())
arguments = sys.argv[2:]
out = os.open(os.devnull, os.O_WRONLY)
kept = os.dup(1)
first = None
for number in range(int(sys.argv[1])):
    os.dup2(out, 1)
    status = cli.main(arguments)
    sys.stdout.flush()
    os.dup2(kept, 1)
    assert status == 0, status
    if number == 9:
        first = state()
last = state()
print(len(last[0]) - len(first[0]), last[1] - first[1], last[2] - first[2])
"""
"""Runs sessions in one process; prints how many descriptors, threads and mappings it has more after the last one."""


@pytest.mark.parametrize(
    ("script", "count"),
    [
        pytest.param(QUICK, SESSIONS, id="quick"),
        pytest.param(EVERY_KIND, 15, id="every_kind"),
        pytest.param(QUICK, 500, id="many", marks=pytest.mark.soak),
    ],
)
def test_sessions_one_after_another(programs: Path, script: str, count: int) -> None:
    """Also in one process nothing stays open, as a program that uses pytrace would run it."""
    need("syscalls", "uprobe", "usdt", "perf_events")
    count = 12 if kernel_version() <= (6, 1) else count
    watch = Watch()
    script = script.replace("{calls}", str(programs / "calls")).replace("{usdt}", str(programs / "usdt"))
    words = ["-q", "--keep-privileges", "-e", script, "-c", f"{programs}/calls 1"]
    command = [sys.executable, "-c", LOOP, str(count), *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(command, capture_output=True, text=True, timeout=patience(120), check=False, env=environment)
    assert run.returncode == 0, run
    descriptors, threads, mappings = (int(word) for word in run.stdout.split()[-3:])
    assert (descriptors, threads) == (0, 0)
    assert mappings <= 20
    assert not watch.leaked()


def test_failed_attachments_leave_nothing(server: Server, programs: Path) -> None:
    """The last probe cannot attach: the others are detached, the child never runs."""
    need("uprobe")
    watch = Watch()
    threads = threading.active_count()
    need("watchpoint")
    # The processor has four breakpoints.
    points = "".join(f"watchpoint:{0x10000000 + 8 * n:#x}:8:w {{ }} " for n in range(5))
    script = f"u:{programs}/calls:add {{ }} u:{programs}/calls:six {{ }} {points}"
    for _ in range(5):
        result = server.run(("-e", script, "-c", "sh -c 'echo ran'"), timeout=60)
        assert result.status == 1
        assert "ran" not in result.stdout
        assert "breakpoints" in result.stderr
        assert not result.left_behind
    assert threading.active_count() == threads
    assert not watch.leaked()
