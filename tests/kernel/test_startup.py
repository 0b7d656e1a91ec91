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
    assert "pytrace.codegen.ir.target" in all_of_it
    assert cached == compiled
    assert "42 x" in cached
    assert not SLOW_TO_IMPORT & imported
    packages = {name for name in imported if name.startswith(("pytrace.frontend", "pytrace.codegen"))}
    assert not packages
    snapshots = {name for name in imported if name.startswith(("pytrace.results", "pytrace.runtime.capture"))}
    assert not snapshots


NOT_ON_EVERY_START = {
    "pytrace.render.maps.map_printer", "pytrace.render.names",
    "pytrace.runtime.attach.attachments", "pytrace.runtime.load.features",
    "pytrace.runtime.session.child",
}  # fmt: skip
"""Modules of pytrace that few scripts need."""

MOST_MODULES = 89
"""Modules of pytrace, its packages included, that a start from the cache imports."""



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


def test_filters_of_processes_import_no_slow_module_either(tmp_path: Path) -> None:
    script = tmp_path / "calls.bt"
    script.write_text("tracepoint:syscalls:sys_enter_getppid { @[comm] = count(); } interval:ms:1 { @a = 1; exit(); }")
    for _ in range(2):
        _, imported = start_file(tmp_path, "--comm", "pytrace-none", "--uid", "0", "-p", str(os.getpid()), str(script))
    assert "pytrace.runtime.host.selected_processes" in imported
    assert "pytrace.runtime.host.containers" not in imported


def test_what_only_old_kernels_need_is_left_alone(tmp_path: Path, programs: Path) -> None:
    need("uprobe")
    script = f"uprobe:{programs}/calls:add {{ }} uretprobe:{programs}/calls:add {{ }} interval:ms:1 {{ exit(); }}"
    for _ in range(2):
        _, imported = start(tmp_path, script)
    assert "pytrace.runtime.attach.uprobe" in imported
    assert not {f"pytrace.runtime.{name}" for name in ("attach.legacy", "host.tracefs")} & imported


TOOL = """/* tool: with options */
import "library.bt";
getopt("x|failed", false, "only failures");
getopt("n|name=NAME", "", "names", ("a", "b"));
getopt("[interval]", 0, "seconds");
begin { print((getopt("failed"), getopt("library"), getopt("interval"))); exit(); }
interval:s:$interval /getopt("interval") > 0/ { exit(); }
"""

OF_OPTIONS = {
    "pytrace.cli.script_finder", "pytrace.cli.scripts", "pytrace.cli.scripts.declared", "pytrace.cli.scripts.tools",
    "pytrace.cli.scripts.words", "pytrace.core.numbers", "pytrace.core.options.option_values",
    "pytrace.core.options.script_options",
}  # fmt: skip
"""Modules that read the options of a script."""


def start_file(cache: Path, *words: str) -> tuple[str, set[str]]:
    """Output of a script in a file, and the modules that its process imported."""
    code = f"{SHOW_MODULES}\nfrom pytrace.cli import main as cli\ncli.command()"
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=ROOT, env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        capture_output=True, text=True, timeout=patience(60), check=True,
    )  # fmt: skip
    line = next(line for line in done.stderr.splitlines() if line.startswith("MODULES "))
    return done.stdout, set(line.split()[1:])


def test_the_second_start_of_a_script_with_options_is_a_cached_start(tmp_path: Path) -> None:
    (tmp_path / "library.bt").write_text('getopt("library=N", 1);')
    script = tmp_path / "tool.bt"
    script.write_text(TOOL)
    words = (str(script), "-x", "-n", "a", "--lib=5", "7")
    compiled, all_of_it = start_file(tmp_path, *words)
    assert "(true, 5, 7)" in compiled
    assert "pytrace.codegen.ir.target" in all_of_it
    cached, imported = start_file(tmp_path, *words)
    assert cached == compiled
    assert not sorted(name for name in imported if name.startswith(("pytrace.frontend", "pytrace.codegen", "ply")))
    own = {name for name in imported if name.startswith("pytrace")}
    plain = tmp_path / "plain.bt"
    plain.write_text("begin { print((true, 5, 7)); exit(); } interval:s:7 { exit(); }")
    for _ in range(2):
        _, without = start_file(tmp_path, str(plain))
    assert own - without <= OF_OPTIONS
    assert len(own - OF_OPTIONS) <= MOST_MODULES + 14, sorted(own)


def test_other_options_and_other_imports_are_compiled_again(tmp_path: Path) -> None:
    library, script = tmp_path / "library.bt", tmp_path / "tool.bt"
    library.write_text('getopt("library=N", 1);')
    script.write_text(TOOL)
    for words, expected in (((), "(false, 1, 0)"), (("-x",), "(true, 1, 0)"), (("3",), "(false, 1, 3)")):
        for _ in range(2):
            assert expected in start_file(tmp_path, str(script), *words)[0]
    library.write_text('getopt("library=N", 22);')
    assert "(false, 22, 0)" in start_file(tmp_path, str(script))[0]
