"""What scripts ask about the running kernel at compile time, and the cache after the answer has changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pytrace import pipeline
from pytrace.core.diagnostics import Diagnostics, ScriptError
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source
from pytrace.runtime.load.live_kernel import LiveKernel
from tests.support.patience import patience

ROOT = Path(__file__).resolve().parents[2]

POINTS = [
    "kprobe:vfs_read", "kprobe:no_such_function", "kprobe:vfs_rea*", "fentry:vfs_read", "fexit:no_such_function",
    "tracepoint:sched:sched_switch", "tracepoint:sched:no_such", "tracepoint:no_such:*", "rawtracepoint:sched_switch",
    "rawtracepoint:no_such", "iter:task", "iter:no_such", "uprobe:/bin/sh:no_such", "uprobe:/no/such/file:f",
    "usdt:/bin/sh:no:such", "interval:s:1", "software:cpu-clock:1000",
]  # fmt: skip


def compiles(text: str) -> bool:
    found = Diagnostics()
    try:
        pipeline.compile_script(Source("test", text, None), CompileOptions(), LiveKernel(), found)
    except ScriptError:
        return False
    return True


@pytest.mark.parametrize("point", POINTS)
def test_a_probe_exists_when_it_can_be_attached(point: str) -> None:
    chosen = compiles(f'if comptime (!probe_exist("{point}")) {{ fail("missing"); }} begin {{ }}')
    assert chosen == compiles(f"{point} {{ }}")


def test_a_script_in_the_cache_is_compiled_again_when_an_answer_changes(tmp_path: Path) -> None:
    program = tmp_path / "program"
    script = tmp_path / "choice.bt"
    script.write_text(
        f'if comptime (probe_exist("uprobe:{program}:*")) {{ begin {{ print("there"); exit(); }} }}\n'
        'else { begin { print("missing"); exit(); } }\n'
    )

    def run() -> str:
        done = subprocess.run(
            [sys.executable, "-m", "pytrace", "-q", str(script)],
            capture_output=True, text=True, timeout=patience(60), check=True, stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path / "cache")},
        )  # fmt: skip
        return done.stdout.strip()

    assert [run(), run()] == ["missing", "missing"]
    shutil.copy("/bin/bash", program)
    assert [run(), run()] == ["there", "there"]
    program.unlink()
    assert run() == "missing"
