"""What a run imports ahead: all that its modules import inside of functions, but for what a start has imported."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytrace.core.config import Config
from pytrace.core.event_layout import EventSpec, Location, NoStaticPart
from pytrace.core.manifest import Manifest
from pytrace.core.options.run_options import RunOptions
from pytrace.core.types import UINT64, KSym, Stack, Type, USym
from pytrace.runtime.session.services import module_loading

ROOT = Path(__file__).resolve().parents[4]
PACKAGES = ("base", "core", "render", "results", "runtime")
BY_A_START = (
    "pytrace.runtime.abi", "pytrace.runtime.aot", "pytrace.runtime.attach", "pytrace.runtime.btf",
    "pytrace.runtime.host", "pytrace.runtime.load", "pytrace.runtime.python", "pytrace.runtime.session",
    "pytrace.runtime.unwind",
    "pytrace.core.options", "pytrace.live", "pyroute2",
)  # fmt: skip
"""What compiling, opening, loading and attaching import, and therefore no later step for the first time."""


def manifest(*types: Type) -> Manifest:
    here = Location("script.bt", 1, 1)
    return Manifest((), (), (EventSpec(0, "exit", types, NoStaticPart(), here),), (), Config())


def imports_inside_functions(path: Path) -> Iterator[str]:
    for function in ast.walk(ast.parse(path.read_text())):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Import):
                    yield from (item.name for item in node.names)
                elif isinstance(node, ast.ImportFrom) and node.module:
                    folder = ROOT / node.module.replace(".", "/")
                    yield from (f"{node.module}.{item.name}" if folder.is_dir() else node.module for item in node.names)


def test_each_import_inside_a_function_is_among_them() -> None:
    options = RunOptions(save="x", debuginfo=("http://localhost",))
    names = list(module_loading.names(manifest(USym(), KSym()), options, embedded=True))
    packages = tuple(f"{name}." for name in names)
    late = {
        name for package in PACKAGES for path in (ROOT / "pytrace" / package).rglob("*.py")
        for name in imports_inside_functions(path)
    }  # fmt: skip
    # Modules of Python stay while it runs: its upgrades replace them by those of the same names.
    late = {name for name in late if name.partition(".")[0] not in sys.stdlib_module_names}
    assert not {name for name in late if name not in names and not name.startswith((*packages, *BY_A_START))}


@pytest.mark.parametrize(
    ("types", "options", "present", "absent"),
    [
        ((UINT64,), RunOptions(), {"pytrace.render.maps"}, {"pytrace.runtime.symbols", "pytrace.results"}),
        ((KSym(),), RunOptions(), {"pytrace.runtime.symbols"}, {"pytrace.runtime.dwarf"}),
        ((Stack(user=True, limit=9),), RunOptions(), {"pytrace.runtime.dwarf"}, {"urllib.request"}),
        ((), RunOptions(live=True), {"pytrace.results.formats", "pytrace.runtime.capture"}, {"pyarrow"}),
        ((), RunOptions(format="parquet"), {"pytrace.results.formats", "pyarrow.parquet"}, {"pytrace.runtime.elf"}),
    ],
)
def test_what_a_script_needs(types: tuple[Type, ...], options: RunOptions, present: set[str], absent: set[str]) -> None:
    names = set(module_loading.names(manifest(*types), options, embedded=False))
    assert names >= present
    assert not names & absent


def test_all_modules_of_a_package_and_no_error_for_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("pytrace.results.timeline")]:
        monkeypatch.delitem(sys.modules, name)
    steps = list(module_loading.steps(["pytrace.results.timeline", "nosuch_library", "pytrace.nosuch", "zipfile"]))
    modules = [path for path in (ROOT / "pytrace/results/timeline").glob("*.py") if path.name != "__init__.py"]
    assert len(steps) == len(modules) + 4
    assert {f"pytrace.results.timeline.{path.stem}" for path in modules} <= set(sys.modules)
