"""What a start from the compile cache does without, and that it does the same as the first start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.cli.test_main import SLOW_TO_IMPORT
from tests.support.machine import need
from tests.support.patience import patience

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPT = 'begin { printf("%d %s\\n", 40 + 2, "x"); @n = 3; exit(); }'
SHOW_MODULES = "import atexit, sys; atexit.register(lambda: print('MODULES', *sys.modules, file=sys.stderr))"


def start(cache: Path, script: str = SCRIPT) -> tuple[str, set[str]]:
    """Output of the script, and the modules that its process imported."""
    code = f"{SHOW_MODULES}\nfrom pytrace.cli import main as cli\ncli.command()"
    done = subprocess.run(
        [sys.executable, "-c", code, "-e", script],
        cwd=ROOT, env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        capture_output=True, text=True, timeout=patience(60), check=True,
    )  # fmt: skip
    line = next(line for line in done.stderr.splitlines() if line.startswith("MODULES "))
    return done.stdout, set(line.split()[1:])


def test_a_start_from_the_cache_imports_neither_compiler_nor_anything_slow(tmp_path: Path) -> None:
    compiled, all_of_it = start(tmp_path)
    cached, imported = start(tmp_path)
    assert "llvmlite" in all_of_it
    assert cached == compiled
    assert "42 x" in cached
    assert not SLOW_TO_IMPORT & imported
    packages = {name for name in imported if name.startswith(("pytrace.frontend", "pytrace.codegen"))}
    assert not packages
    snapshots = {name for name in imported if name.startswith(("pytrace.results", "pytrace.runtime.capture"))}
    assert not snapshots


NOT_ON_EVERY_START = {
    "typing", "re", "enum", "json", "signal", "warnings", "importlib", "inspect", "subprocess", "threading", "bisect",
    "encodings.ascii", "pytrace.runtime.output.render.map_printer",
    "pytrace.core.manifest_sections", "pytrace.runtime.load.features", "pytrace.runtime.session.child",
}  # fmt: skip
"""What together took a fifth of a start from the cache."""

MOST_MODULES = 78
"""Modules of pytrace, its packages included, that a start from the cache imports: each takes 0.1 ms and more."""


def test_a_start_from_the_cache_imports_little(tmp_path: Path) -> None:
    for _ in range(2):
        _, imported = start(tmp_path, "begin { exit(); }")
    assert not sorted(NOT_ON_EVERY_START & imported)
    own = {name for name in imported if name.startswith("pytrace")}
    assert len(own) <= MOST_MODULES, sorted(own)


def test_probes_and_maps_import_no_slow_module_either(tmp_path: Path) -> None:
    script = "tracepoint:syscalls:sys_enter_getppid { @[comm] = count(); } interval:ms:1 { @a = 1; exit(); }"
    for _ in range(2):
        _, imported = start(tmp_path, script)
    assert "pytrace.runtime.attach.tracepoint" in imported
    assert not sorted({"typing", "re", "enum", "json", "signal"} & imported)


def test_what_only_old_kernels_need_is_left_alone(tmp_path: Path, programs: Path) -> None:
    need("uprobe")
    script = f"uprobe:{programs}/calls:add {{ }} uretprobe:{programs}/calls:add {{ }} interval:ms:1 {{ exit(); }}"
    for _ in range(2):
        _, imported = start(tmp_path, script)
    assert "pytrace.runtime.attach.uprobe" in imported
    assert not {f"pytrace.runtime.{name}" for name in ("attach.legacy", "attach.semaphores", "host.tracefs")} & imported
