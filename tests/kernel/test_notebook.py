"""The cell magic ``%%pytrace``, in a notebook that runs without a browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.kernel, pytest.mark.own_process]

CELLS = {
    "load": "%load_ext pytrace\nimport os; number = os.getpid()",
    "command": (
        '%%pytrace -c "ls /" -o found\n'
        't:syscalls:sys_enter_openat /pid == cpid/ { @opens[comm] = count();'
        ' printf("opens %s\\n", str(args.filename)); }'
    ),
    "variable": "found.maps['opens']['ls']",
    "parameters": '%%pytrace 5 "a b"\nbegin { @five = $1; print(str($2)); exit(); }',
    "interrupted": (
        "%%pytrace --unsafe {number}\n"
        'begin { @began = 1; } interval:ms:50 { @n++; if (@n == 30) { system("kill -INT %d", $1); } }'
    ),
    "many": "%%pytrace\nbegin { for $i : 0..1200 { print($i); } exit(); }",
    "mistake": "%%pytrace\nbegin { x(; }",
    "option": "%%pytrace --for soon\nbegin { exit(); }",
    "after": "print(1)",
}


PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "reference" / "python-interface.md"


def test_a_notebook() -> None:
    import nbformat  # with the client 0.35 s, which each collection would take
    from nbclient import NotebookClient

    documented = re.findall(r"```ipython\n(.*?)```", PAGE.read_text(), re.DOTALL)[0].strip().split("\n\n")
    texts = CELLS | {f"documented {number}": text for number, text in enumerate(documented)}
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in texts.values()])
    NotebookClient(notebook, timeout=60, kernel_name="python3", allow_errors=True).execute()
    shown = dict(zip(texts, (cell.outputs for cell in notebook.cells), strict=True))
    assert "<b>@</b>" in _pages(shown[f"documented {len(documented) - 1}"])[-1]["text/html"]
    assert not shown["load"]
    assert "opens /" in _text(shown["command"])
    page = _pages(shown["command"])[-1]
    assert "<b>@opens</b>" in page["text/html"]
    assert page["text/plain"].strip().startswith("@opens[ls]: ")
    assert int(shown["variable"][0].data["text/plain"]) > 0
    assert _text(shown["parameters"]) == "a b\n"
    assert _pages(shown["parameters"])[-1]["text/plain"] .strip() == "@five: 5"
    # One place that moved, and the end of an interrupted run is a result.
    assert len(_pages(shown["interrupted"])) == 1
    assert not [output for output in shown["interrupted"] if output.output_type == "error"]
    assert "@n: 3" in _pages(shown["interrupted"])[0]["text/plain"]
    assert _text(shown["many"]).endswith("999\n200 further outputs are not shown\n")
    assert "script:1:11-12: ERROR: syntax: expected ')'" in _text(shown["mistake"])
    assert "HINT: add ')'" in _text(shown["mistake"])
    assert "--for: invalid float value: 'soon'" in _text(shown["option"])
    assert not any("Traceback" in _text(outputs) for outputs in shown.values())
    assert _text(shown["after"]) == "1\n"


def _text(outputs: list[Any]) -> str:
    return "".join(output.text for output in outputs if output.output_type == "stream")


def _pages(outputs: list[Any]) -> list[dict[str, str]]:
    return [output.data for output in outputs if output.output_type == "display_data"]
