"""Programs that wait for memory which does not arrive: the tracer says why it does not end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.machine import kernel_version, need
from tests.support.patience import patience
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.mark.parametrize("feature", [True, False])
def test_iterators_read_the_memory_of_their_task(programs: Path, tmp_path: Path, feature: bool) -> None:
    """Text that is not resident, too; without the feature nothing is read, and not the tracer's memory instead."""
    need("task_memory")
    command, pipe = [programs / "cold", "held"], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=tmp_path) as held:
        assert held.stdin is not None
        assert held.stdout is not None
        address = held.stdout.readline().decode().strip()
        script = (
            f"iter:task {{ if (ctx.task->pid == {held.pid}) {{ $a = uptr({address});"
            ' for ($i : 0..2) { print(str($a)); }'
            " $s = str(uptr(ctx.task->mm->arg_start)); @[str($a, 5), strlen($s)] = *(uint8 *)($a + 6); } }"
        )
        words = ("--mark-unreadable",) if feature else ("--mark-unreadable", "--no-feature", "task_memory")
        done = subprocess.run(
            [sys.executable, "-m", "pytrace", "-q", *words, "-e", script], capture_output=True, text=True, check=True,
            timeout=patience(60),
        )  # fmt: skip
        os.write(held.stdin.fileno(), b"\n")
    if feature:
        length = len(str(programs / "cold"))
        assert done.stdout.split() == ["/cold/held", "/cold/held", "@[/cold,", f"{length}]:", str(ord("h"))]
        assert done.stderr == ""
    else:
        assert done.stdout.split() == ["<unreadable>", "<unreadable>", "@[<unre,", "12]:", "0"]
        assert "5 reads of memory failed" in done.stderr


def test_detaching_waits_for_memory_and_says_so(programs: Path, tmp_path: Path) -> None:
    """The kernel waits for programs that sleep; killing the traced process ends the wait."""
    need("uprobe")
    if kernel_version() < (6, 0):
        pytest.skip("programs of user probes may sleep since 6.0")
    cold = programs / "cold"
    script = f'u:{cold}:take {{ printf("took %s\\n", str(arg1)); }}'
    messages = tmp_path / "messages"
    with (
        subprocess.Popen([cold, "stuck"], stdin=subprocess.PIPE, cwd=tmp_path) as traced,
        open(messages, "wb") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "pytrace", "-p", str(traced.pid), "--duration", "2", "-e", script],
            stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL,
        ) as tracer,
    ):  # fmt: skip
        try:
            until(lambda: "Attached" in messages.read_text(), 20)
            assert traced.stdin is not None
            os.write(traced.stdin.fileno(), b"\n")
            until(lambda: "waits for memory in uprobe:" in messages.read_text(), 20)
        finally:
            traced.kill()
        out, _ = tracer.communicate(timeout=30)
    assert tracer.returncode == 0
    assert out.split() == [b"took"]
    assert "--no-feature sleepable_uprobe" in messages.read_text()
