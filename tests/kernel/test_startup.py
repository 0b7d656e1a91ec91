"""What a start imports and costs, and that a start from the cache does the same as the first one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_main import SLOW_TO_IMPORT
from tests.support import costs, kernel_costs
from tests.support.machine import need
from tests.support.patience import patience

pytestmark = pytest.mark.own_process


# ``docs/develop/architecture.md`` lists the modules of such a start.

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPT = 'begin { printf("%d %s\\n", 40 + 2, "x"); @n = 3; exit(); }'
LIBRARIES = {"msgspec", "typing_extensions"}
"""Libraries that a start from the cache imports; msgspec imports ``typing_extensions`` where it is installed."""

_IMPORT = re.compile(r"^import time: +\d+ \| +\d+ \| +(\S+)$", re.MULTILINE)
_ROW = re.compile(r"^\| `([\w/]+)` \| (`.*`) \|$", re.MULTILINE)


def listed() -> set[str]:
    """The modules that docs/develop/architecture.md lists."""
    text = (ROOT / "docs" / "develop" / "architecture.md").read_text()
    section = text.partition("## A start from the cache\n")[2].partition("\n## ")[0]
    rows = [(folder.replace("/", "."), re.findall(r"\w+", names)) for folder, names in _ROW.findall(section)]
    return {f"{folder}.{name}" for folder, names in rows for name in names}


def python(*words: str, cache: Path) -> subprocess.CompletedProcess[str]:
    """Python that reports what it imports."""
    return subprocess.run(
        [sys.executable, "-X", "importtime", *words],
        cwd=ROOT, env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        capture_output=True, text=True, timeout=patience(60), check=True,
    )  # fmt: skip


def start(cache: Path, *words: str) -> tuple[str, set[str]]:
    """Output of a command line, and the modules that its process imported."""
    done = python("-m", "pytrace", *words, cache=cache)
    return done.stdout, set(_IMPORT.findall(done.stderr))


def own(imported: set[str]) -> set[str]:
    """The modules of pytrace among *imported*, without packages, which are empty."""
    return {
        name for name in imported
        if name.startswith("pytrace.") and not (ROOT / name.replace(".", "/") / "__init__.py").exists()
    }  # fmt: skip


def test_a_start_from_the_cache_imports_the_modules_that_are_listed(tmp_path: Path) -> None:
    for _ in range(2):
        _, imported = start(tmp_path, "-e", "begin { exit(); }")
    assert sorted(own(imported)) == sorted(listed())
    python_alone = set(_IMPORT.findall(python("-c", "pass", cache=tmp_path).stderr))
    others = {name.partition(".")[0] for name in imported - python_alone} - sys.stdlib_module_names - {"pytrace"}
    assert others <= LIBRARIES


def test_a_start_from_the_cache_imports_neither_compiler_nor_anything_slow(tmp_path: Path) -> None:
    compiled, all_of_it = start(tmp_path, "-e", SCRIPT)
    cached, imported = start(tmp_path, "-e", SCRIPT)
    assert "pytrace.codegen.ir.target" in all_of_it
    assert cached == compiled
    assert "42 x" in cached
    assert not SLOW_TO_IMPORT & imported
    prefixes = ("pytrace.frontend", "pytrace.codegen", "pytrace.results", "pytrace.runtime.session.snapshots")
    assert not {name for name in imported if name.startswith(prefixes)}


def test_probes_and_maps_import_no_slow_module_either(tmp_path: Path) -> None:
    script = "tracepoint:syscalls:sys_enter_getppid { @[comm] = count(); } interval:ms:1 { @a = 1; exit(); }"
    for _ in range(2):
        _, imported = start(tmp_path, "-e", script)
    assert "pytrace.runtime.load.attachments" in imported


def test_filters_of_processes_import_no_slow_module_either(tmp_path: Path) -> None:
    script = tmp_path / "calls.bt"
    script.write_text("tracepoint:syscalls:sys_enter_getppid { @[comm] = count(); } interval:ms:1 { @a = 1; exit(); }")
    for _ in range(2):
        _, imported = start(tmp_path, "--comm", "pytrace-none", "--uid", "0", "-p", str(os.getpid()), str(script))
    assert "pytrace.runtime.machine.selected_processes" in imported


def test_probes_of_users_import_nothing_about_the_kernel(tmp_path: Path, programs: Path) -> None:
    need("uprobe")
    script = f"uprobe:{programs}/calls:add {{ }} uretprobe:{programs}/calls:add {{ }} interval:ms:1 {{ exit(); }}"
    for _ in range(2):
        _, imported = start(tmp_path, "-e", script)
    assert "pytrace.runtime.load.user_probes" in imported
    assert not imported & {f"pytrace.runtime.machine.{name}" for name in ("kernel_functions", "tracefs")}


TOOL = """/* tool: with options */
import "library.bt";
getopt("x|failed", false, "only failures");
getopt("n|name=NAME", "", "names", ("a", "b"));
getopt("[interval]", 0, "seconds");
begin { print((getopt("failed"), getopt("library"), getopt("interval"))); exit(); }
interval:s:$interval /getopt("interval") > 0/ { exit(); }
"""

OF_OPTIONS = {"pytrace.cli.script_options", "pytrace.core.script_options"}
"""Modules that read the options of a script."""


def test_the_second_start_of_a_script_with_options_is_a_cached_start(tmp_path: Path) -> None:
    (tmp_path / "library.bt").write_text('getopt("library=N", 1);')
    script = tmp_path / "tool.bt"
    script.write_text(TOOL)
    words = (str(script), "-x", "-n", "a", "--lib=5", "7")
    compiled, all_of_it = start(tmp_path, *words)
    assert "(true, 5, 7)" in compiled
    assert "pytrace.codegen.ir.target" in all_of_it
    cached, imported = start(tmp_path, *words)
    assert cached == compiled
    assert not sorted(name for name in imported if name.startswith(("pytrace.frontend", "pytrace.codegen", "ply")))
    plain = tmp_path / "plain.bt"
    plain.write_text("begin { print((true, 5, 7)); exit(); } interval:s:7 { exit(); }")
    for _ in range(2):
        _, without = start(tmp_path, str(plain))
    assert own(imported - without) == OF_OPTIONS


def test_other_options_and_other_imports_are_compiled_again(tmp_path: Path) -> None:
    library, script = tmp_path / "library.bt", tmp_path / "tool.bt"
    library.write_text('getopt("library=N", 1);')
    script.write_text(TOOL)
    for words, expected in (((), "(false, 1, 0)"), (("-x",), "(true, 1, 0)"), (("3",), "(false, 1, 3)")):
        for _ in range(2):
            assert expected in start(tmp_path, str(script), *words)[0]
    library.write_text('getopt("library=N", 22);')
    assert "(false, 22, 0)" in start(tmp_path, str(script))[0]


# ---------------------------------------------------------------------------------------------- costs
# What the verifier counts of a fixed set of scripts, and what a start from the cache does, does not grow unnoticed.


def _recorded(part: str) -> None:
    if not costs.recorded(part):
        pytest.skip(f"nothing is recorded of programs {part}: the numbers are compared where they were taken")


def test_the_verifier_has_no_more_to_do_than_recorded() -> None:
    part = kernel_costs.verifier()
    _recorded(part)
    # The same program was seen with 128 and with 129: numbers that are those of a boot or a run are in it.
    costs.check(part, kernel_costs.of_all_programs(), kernel_costs.OF_A_RUN)


def test_a_start_from_the_cache_does_no_more_than_recorded() -> None:
    need("tracepoint")
    part = kernel_costs.starter()
    _recorded(part)
    found = kernel_costs.of_all_starts()
    for _ in range(2):
        # What else a machine does may make a start wait or look again: the least is what the start itself does.
        if not costs.changes(found, costs.recorded(part), kernel_costs.TOLERANCE)[0]:
            break
        again = kernel_costs.of_all_starts()
        found = {name: {what: min(n, again[name][what]) for what, n in each.items()} for name, each in found.items()}
    costs.check(part, found, kernel_costs.TOLERANCE)
