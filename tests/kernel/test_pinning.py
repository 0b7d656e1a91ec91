"""Pinned iterators: the pin outlives the tracer, and reading it gives what printf writes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.machine import need
from tests.support.patience import patience

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.usefixtures("no_leaks")


def in_bpffs(script: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script in a mount namespace with a bpffs of its own; ``$trace`` runs pytrace."""
    need("iter")
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("the program unshare is not here")
    lines = f"mount -t bpf bpf /sys/fs/bpf && trace='{sys.executable} -m pytrace -q' && {script}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [unshare, "-m", "sh", "-c", lines], capture_output=True, text=True, timeout=patience(60), check=False,
        env=environment,
    )  # fmt: skip


TASKS = (
    'iter:task:tasks { if (ctx.task->pid == 2) '
    '{ printf("%d %s %5s|%-5d|%x %c%%\\n", ctx.task->pid, ctx.task->comm, "ab", -7, 255, 65); } }'
)


def test_reading_a_pin() -> None:
    run = in_bpffs(f"$trace -e '{TASKS}' && cat /sys/fs/bpf/tasks && cat /sys/fs/bpf/tasks && ls /sys/fs/bpf")
    lines = [line for line in run.stdout.splitlines() if line]
    assert lines[:2] == ["2 kthreadd    ab|-7   |ff A%"] * 2, run
    assert "tasks" in lines
    assert "/sys/fs/bpf/tasks" in run.stderr


def test_a_pin_keeps_its_maps() -> None:
    script = 'iter:task:/sys/fs/bpf/count { @n++; if (ctx.task->pid == 2) { printf("%d\\n", @n); } }'
    run = in_bpffs(f"$trace -e '{script}' && cat /sys/fs/bpf/count && cat /sys/fs/bpf/count")
    first, second = (int(line) for line in run.stdout.split()[-2:])
    assert second > first


def test_a_name_that_is_taken() -> None:
    run = in_bpffs("touch /dev/null; $trace -e 'iter:task:one { }' && $trace -e 'iter:task:one { }'")
    assert run.returncode == 1
    assert "already exists" in run.stderr


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("print(ctx.task->pid);", "print value"),
        ('printf("%.3d\\n", ctx.task->pid);', "%.3d"),
        ('printf("%s\\n", ctx.task->pid);', "integers and strings"),
        ('printf("%s\\n", kstack);', "integers and strings"),
    ],
)
def test_what_cannot_be_written(body: str, message: str) -> None:
    run = in_bpffs(f"$trace -e 'iter:task:one {{ {body} }}'; ls /sys/fs/bpf")
    assert message in run.stderr, run
    assert "one" not in run.stdout
