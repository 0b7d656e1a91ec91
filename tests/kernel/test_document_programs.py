"""Programs of documents, as text and in Python, run and are right for a kernel."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytrace.cli import request, tools
from pytrace.core.diagnostics import render_all
from pytrace.core.options import CompileOptions
from pytrace.runtime.load.live_kernel import LiveKernel
from tests import test_documents
from tests.support import front
from tests.support.patience import patience
from tests.test_documents import RUN, SHORTENED, SHOWN, accepted, of_sort, runs

# All passes of the front end see them, so that an argument that a tracepoint lacks is found. Some are also loaded or
# run, by the tests that ``tests/test_documents.py`` names.

MISSING_HERE = re.compile(
    r"is not possible: this kernel|there is no file|probes need a process|there is no tracepoint category"
)


def programs() -> list[tuple[str, str]]:
    """The place and text of each."""
    found = [(f"{block.page}:{block.line}", block.text) for block in of_sort("script")]
    for shown in SHOWN:
        for line in filter(None, map(accepted, runs(shown.text))):
            text = line.text("program")
            if line.tool in tools.TRANSLATED and not line.usage:
                request.complete(line)
                text = line.script[0].text if line.script is not None else None
            if text is not None:
                found.append((shown.place, text))
    return [(place, text) for place, text in found if place.partition(":")[0] not in RUN and not SHORTENED.search(text)]


def test_programs_are_right_for_this_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test_documents.enter_folder(tmp_path, monkeypatch)
    kernel = LiveKernel()
    wrong = {}
    for place, text in programs():
        errors = front.analyse(text, CompileOptions(unsafe=True), kernel).diagnostics.errors
        if found := [item for item in errors if not MISSING_HERE.search(item.message)]:
            wrong[place] = render_all(found)
    assert not wrong


# ---------------------------------------------------------------------------------------------- python doc
# Runs the programs of docs/reference/python-interface.md; tests/test_typed_programs.py has mypy check them.


PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "reference" / "python-interface.md"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def python_programs() -> dict[int, str]:
    """Each program of the page by its line."""
    text = PAGE.read_text()
    return {text[: match.start(1)].count("\n") + 1: match[1] for match in _BLOCK.finditer(text)}


EXPECTED = {
    "pytrace.open(SCRIPT, command": "tracepoint:syscalls:sys_enter_openat ls /",
    "profile:hz:99": "@[",
    "both.save": '"type": "hist"',
    "script.save": "'tracepoint:syscalls:sys_enter_close': ",
    "except pytrace.ScriptError": "{'map_full': {'@few': 3}}\n[<class 'pytrace.interface.errors.LossWarning'>",
    "pytrace.why(": "True sleeping by itself\n",
    "asyncio.run": "\n",
    "pytrace.features()": "tracepoint:sched:sched_process_exit tracepoint [(",
}
"""What the output of each program has in it, by a part of the program that no other has."""


@pytest.mark.parametrize("line", python_programs())
def test_program(line: int, tmp_path: Path, no_leaks: None) -> None:
    text = python_programs()[line]
    (wanted,) = (output for part, output in EXPECTED.items() if part in text)
    command = [sys.executable, "-W", "error", "-c", text]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, errors="replace", timeout=patience(60), check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert wanted in done.stdout
