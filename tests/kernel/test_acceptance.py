"""The verifier accepts each builtin and each construct of the language: programs are loaded, and not attached.

That costs a tenth of a run, and is what another kernel decides: the test machine runs these in place of most cases.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from pytrace import pipeline
from pytrace.cli.request import Script
from pytrace.core.builtins import BUILTINS
from pytrace.core.diagnostics import Diagnostics, ScriptError
from pytrace.core.manifest import CompiledScript
from pytrace.core.options import CompileOptions, RunOptions
from pytrace.core.source import Source
from pytrace.runtime.load import loader
from pytrace.runtime.load.live_kernel import LiveKernel
from tests.support import costs
from tests.support.cases import load_all
from tests.support.compile_guest import VARIABLE, compiled_outside
from tests.support.machine import cgroup2_mount, missing

OPTIONS = CompileOptions(unsafe=True, child=True, child_command="/bin/true")
TOGETHER = 16
"""Examples in one script."""

NEEDS = {
    "fentry:": "fentry", "fexit:": "fentry", "kprobe:": "kprobe", "watchpoint:": "watchpoint", "override(": "override",
    "write_user(": "write_user", "/bin/bash": "bash", "/sys/fs/cgroup": "cgroup2", "kaddr(": "data_symbols",
}  # fmt: skip
"""What a script with such a text needs of the machine."""

FAMILIES = ("code", "macros", "statements")
"""Case files about code that is generated."""

PARAMETER = re.compile(r"\$\d|^$")
"""What stands for an argument of the command line, or no script at all."""

EACH = pytest.mark.each_kernel


def compiled(text: str) -> CompiledScript:
    """The script, compiled outside of the test machine."""
    source = Source("stdin", text)
    folder = os.environ.get(VARIABLE, "")
    script = compiled_outside(Path(folder), Script(source, (), (), False), OPTIONS, RunOptions()) if folder else None
    diagnostics = Diagnostics()
    try:
        return script or pipeline.compile_script(source, OPTIONS, LiveKernel(), diagnostics)
    except ScriptError as error:
        raise AssertionError([item.message for item in diagnostics.errors]) from error


def load(text: str) -> None:
    with ExitStack() as stack:
        loader.load(compiled(text), options=loader.LoadOptions(), stack=stack)


def possible(texts: Iterable[str]) -> list[str]:
    """Those that need nothing that this machine lacks."""
    return [text for text in texts if not any(missing(need) for word, need in NEEDS.items() if word in text)]


def examples() -> list[str]:
    """Examples of builtins and the scripts whose costs are recorded, each with maps of its own."""
    texts = [row.example for row in BUILTINS if row.example]
    texts += [text for text in costs.SCRIPTS.values() if "/bin/app" not in text]
    return [re.sub(r"@(?=\W|[a-z]\w*)", f"@of{number}_", text) for number, text in enumerate(texts)]


def parts() -> list[list[str]]:
    """The examples that this machine can load, in scripts of several; apart those that the test machine compiles."""
    texts = possible(examples())
    outside = [text for text in texts if "cgroupid(" not in text]
    groups = [outside[start : start + TOGETHER] for start in range(0, len(outside), TOGETHER)]
    inside = [text.replace("/sys/fs/cgroup", cgroup2_mount()) for text in texts if "cgroupid(" in text]
    return [group for group in (*groups, inside) if group]


@EACH
def test_examples_of_builtins() -> None:
    assert_accepted({texts[0]: "\n".join(texts) for texts in parts()})


class WholeKernel(LiveKernel):
    """This kernel as if it had been built with everything."""

    def feature(self, name: str) -> bool:
        return True

    def kernel_symbol(self, name: str) -> int | None:
        return super().kernel_symbol(name) or 0xFFFFFFFF81000000

    def cgroup_id(self, path: str) -> int | None:
        return 1


def test_examples_that_this_kernel_cannot_load_compile() -> None:
    loaded = set(possible(examples()))
    others = [text for text in examples() if text not in loaded]
    for start in range(0, len(others), TOGETHER):
        diagnostics = Diagnostics()
        text = "\n".join(others[start : start + TOGETHER])
        script = pipeline.compile_script(Source("examples", text), OPTIONS, WholeKernel(), diagnostics)
        assert script.manifest.programs


@EACH
@pytest.mark.parametrize("family", FAMILIES)
def test_cases_about_generated_code(family: str) -> None:
    cases = [case for case in load_all() if case.family == family and case.exit == 0 and "vm" in case.where]
    texts = {case.name: case.program or "" for case in cases}
    assert_accepted({name: text for name, text in texts.items() if possible([text]) and not PARAMETER.search(text)})


def assert_accepted(scripts: Mapping[str, str]) -> None:
    """All of them can be loaded; names those that cannot."""
    refused = {}
    for name, text in scripts.items():
        try:
            load(text)
        except Exception as error:  # noqa: BLE001 - all are reported
            refused[name] = f"{type(error).__name__}: {error}"
    assert not refused
