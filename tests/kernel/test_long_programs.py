"""Programs that are compiled in parts, and what scripts ask about the kernel at compile time."""

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
from tests.support.expect import Result
from tests.support.patience import patience
from tests.support.server import Server


def run(server: Server, folder: Path, text: str) -> Result:
    script = folder / "long.bt"
    script.write_text(text)
    return server.run(("-q", str(script)), timeout=60)


def test_variables_and_returns(server: Server, tmp_path: Path) -> None:
    lines = "\n".join(f"@a[{n}] = {n}; $sum += {n}; if ($sum < 0) {{ return; }}" for n in range(500))
    text = f"begin {{ $sum = 0; $v = (uint64)7; $p = &$v;\n{lines}\nprint(($sum, *$p, @a[499], len(@a))); clear(@a); }}"
    ends = "\n".join(f"@c = {n}; if (@c == 450) {{ exit(3); }}" for n in range(600))
    result = run(server, tmp_path, f"{text}\nbegin {{\n{ends}\nprint(1); }}")
    assert result.stdout.split("\n")[0] == "(124750, 7, 499, 500)", result
    assert "@c: 450" in result.stdout
    assert result.status == 3


def test_loops_are_left_from_long_bodies(server: Server, tmp_path: Path) -> None:
    lines = "\n".join(f"@b[{n} + $k] = $i; @n++;" for n in range(300))
    loop = f"for ($i : 0..9) {{ $k = $i;\n{lines}\nif ($i == 2) {{ break; }}\n{lines}\n}}"
    text = f"begin {{ {loop} print((@b[0], @b[2], @b[301], @n)); clear(@b); exit(); }}"
    assert run(server, tmp_path, text).stdout.split("\n")[0] == "(0, 2, 2, 1500)"


def test_chains_of_else_if(server: Server, tmp_path: Path) -> None:
    arms = " else ".join(f"if ($n == {n}) {{ @hit[{n}] = $n; }}" for n in range(600))
    loop = f"for ($i : 0..3) {{ $n = $i * 599; {arms} else {{ @none = $n; }} }}"
    text = f"begin {{ {loop} print(@hit); clear(@hit); exit(); }}"
    result = run(server, tmp_path, text)
    assert result.stdout.split() == ["@hit[0]:", "0", "@hit[599]:", "599", "@none:", "1198"], result


def test_failures_are_told_at_their_places(server: Server, tmp_path: Path) -> None:
    """A long program counts and reports them in one function."""
    lines = "\n".join(f"@a[{n}] = {n};" for n in range(700))
    text = f"let @a = hash(600);\nbegin {{\n{lines}\ndelete(@a, 900);\nclear(@a); exit(); }}"
    result = run(server, tmp_path, text)
    assert "long.bt:603:1-8: WARNING: @a is full (600 keys)" in result.stderr, result
    assert "100 map updates dropped (@a 100)" in result.stderr
    assert "long.bt:703:1-16: WARNING: @a has no such key to delete" in result.stderr


# ---------------------------------------------------------------------------------------------- choices
# What scripts ask about the running kernel at compile time, and the cache after the answer has changed.


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
