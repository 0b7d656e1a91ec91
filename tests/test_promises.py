"""docs/operate/faults.md and docs/operate/safety.md name tests that exist, in each row."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NAMED = re.compile(r"`([\w/]+)(?:::(\w+))?`")
HEADS = {"fault", "promise"}


def _rows(page: str) -> list[list[str]]:
    lines = (ROOT / "docs" / page).read_text().partition("\n## What was tried")[0].splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    return [row for row in rows if row[0] not in HEADS]


@pytest.mark.parametrize(("page", "least"), [("operate/faults.md", 50), ("operate/safety.md", 20)])
def test_each_row_names_tests_that_exist(page: str, least: int) -> None:
    rows = _rows(page)
    assert len(rows) > least
    for row in rows:
        named = NAMED.findall(row[-1])
        assert named, f"no test in {row}"
        for file, name in named:
            assert _exists(file, name), f"{page}: there is no {file}::{name}"


def _exists(file: str, name: str) -> bool:
    if file.startswith("cases/"):
        return f"\ncase {name}\n" in (ROOT / "tests" / f"{file}.case").read_text()
    path = ROOT / (f"{file}.py" if "/" in file else f"tests/kernel/{file}.py")
    return path.is_file() and (not name or f"\ndef {name}(" in path.read_text())
