"""Programs that wait for memory which does not arrive: the tracer says why it does not end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.machine import kernel_version, need
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("no_leaks")


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
