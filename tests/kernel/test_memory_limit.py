"""``--max-memory`` on a real kernel: maps that do not fit, and runs that grow."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pytrace
from tests.support.machine import own_cgroup
from tests.support.patience import patience

pytestmark = pytest.mark.usefixtures("no_leaks")

GETPPID = "tracepoint:syscalls:sys_enter_getppid"


def ran(*words: str, **more: object) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "pytrace", *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=patience(60), check=False, **more)  # type: ignore[call-overload,no-any-return]


@pytest.mark.each_kernel
def test_a_map_that_does_not_fit_is_named_and_nothing_is_attached() -> None:
    script = f"let @small = hash(100); let @large = hash(5000000); {GETPPID} {{ @small[pid] = 1; @large[tid] = 1; }}"
    done = ran("--max-memory", "300M", "-e", script, "-c", "true")
    assert done.returncode == 1
    assert re.search(r"ERROR: the script needs .*, more than 300 MiB \(.*\): @large 4\d\d MiB, ", done.stderr)
    assert "HINT: @large has room for 5000000 keys" in done.stderr
    assert "Attached" not in done.stderr


def test_double_buffered_maps_count_twice() -> None:
    script = f"let @a = hash(1000000); {GETPPID} {{ @a[tid] = 1; }} interval:s:1 {{ print_clear(@a); }}"
    done = ran("--max-memory", "100M", "-e", script, "-c", "true")
    assert done.returncode == 1
    assert re.search(r"@a 15\d MiB", done.stderr), done.stderr


@pytest.mark.own_process  # it has no more memory than it needs
def test_a_run_that_grows_ends_in_order() -> None:
    """Its text waits for a reader; what was counted is printed, and the status is that of an error."""
    script = f'{GETPPID} {{ @ = count(); @rows[comm] = count(); row((text="{"x" * 1000}", number=nsecs)); }}'
    caller = "import os, time\nwhile True:\n    for _ in range(50000): os.getppid()\n    time.sleep(0.05)\n"
    done = ran("--max-memory", "90M", "--save", "/dev/null", "-e", script, "-c", f"{sys.executable} -c '{caller}'")
    assert done.returncode == 1, done.stderr
    assert re.search(
        r"WARNING: the run ends, as it takes .* more than 90.0 MiB \(max_memory is 90M\): .*pytrace itself", done.stderr
    )
    ended = r"^ERROR: .*the run was ended at its memory limit of 90.0 MiB \(--max-memory\)"
    assert re.search(ended, done.stderr, re.MULTILINE)
    assert re.search(r"^@: \d+$", done.stdout, re.MULTILINE)


@pytest.mark.own_process
def test_a_memory_cgroup_limits_the_default() -> None:
    with own_cgroup() as group:
        limit = group / "memory.max"
        if not limit.exists():
            pytest.skip("cgroups of version 2 have no memory controller here")
        limit.write_text(str(400 << 20))

        def enter() -> None:
            (group / "cgroup.procs").write_text(str(os.getpid()))

        script = f"let @large = hash(3000000); {GETPPID} {{ @large[tid] = 1; }}"
        done = ran("-e", script, "-c", "true", preexec_fn=enter)
    assert done.returncode == 1
    assert "more than 200 MiB (the default is a tenth of the memory of this memory cgroup)" in done.stderr


def test_python_programs_count_maps_only() -> None:
    """What the program itself takes is its own matter."""
    ballast = bytearray(128 << 20)
    ballast[::4096] = b"x" * (len(ballast) // 4096)
    script = f"let @large = hash(1000000); {GETPPID} {{ @large[tid] = 1; }}"
    with pytest.raises(pytrace.TraceError, match="@large"):
        pytrace.run(script, command="true", max_memory="64M")
    pytrace.run(script, command="true", max_memory="120M")
    with pytest.raises(ValueError, match="memory"):
        pytrace.open(script, max_memory="much")


def test_the_config_and_the_environment_set_the_limit(tmp_path: Path) -> None:
    script = f"config = {{ max_memory = \"64M\" }} let @large = hash(1000000); {GETPPID} {{ @large[tid] = 1; }}"
    assert "max_memory is 64M" in ran("-e", script, "-c", "true").stderr
    assert ran("--max-memory", "90%", "-e", script, "-c", "true").returncode == 0
    done = ran("-e", "config = { max_memory = 64x } begin { }")
    assert "max_memory" in done.stderr
    assert done.returncode == 1
