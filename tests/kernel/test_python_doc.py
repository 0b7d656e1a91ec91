"""Runs the programs of docs/reference/python-interface.md, and has mypy check them as a user would."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patience import patience

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "reference" / "python-interface.md"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def programs() -> dict[int, str]:
    """Each program of the page by its line."""
    text = PAGE.read_text()
    return {text[: match.start(1)].count("\n") + 1: match[1] for match in _BLOCK.finditer(text)}


EXPECTED = {
    "pytrace.open(SCRIPT, command": "tracepoint:syscalls:sys_enter_openat ls /",
    "profile:hz:99": "@[",
    "both.save": '"type": "hist"',
    "script.save": "'tracepoint:syscalls:sys_enter_close': ",
    "except pytrace.ScriptError": "{'map_full': {'@few': 3}}\n[<class 'pytrace.interface.errors.LossWarning'>",
    "asyncio.run": "\n",
    "pytrace.features()": "tracepoint:sched:sched_process_exit tracepoint [(",
}
"""What the output of each program has in it, by a part of the program that no other has."""


@pytest.mark.parametrize("line", programs())
def test_program(line: int, tmp_path: Path, no_leaks: None) -> None:
    text = programs()[line]
    (wanted,) = (output for part, output in EXPECTED.items() if part in text)
    command = [sys.executable, "-W", "error", "-c", text]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, errors="replace", timeout=patience(60), check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert wanted in done.stdout


def test_programs_are_typed(tmp_path: Path) -> None:
    for line, text in programs().items():
        (tmp_path / f"line_{line}.py").write_text(text)
    (tmp_path / "wrong.py").write_text(
        "import pytrace\npytrace.run('begin { }', durration=1)\nnumber: int = pytrace.open('begin { }').maps\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", str(tmp_path / "c"), "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=patience(300), check=False)
    errors = [text for text in done.stdout.splitlines() if ": error: " in text]
    assert [text.split(":")[:2] for text in errors] == [["wrong.py", "2"], ["wrong.py", "3"]], done
