"""docs/develop/evidence.md and SECURITY.md name tests that exist, in each row."""

from __future__ import annotations

import re
from pathlib import Path

from tests.fuzz import table

ROOT = Path(__file__).resolve().parent.parent
NAMED = re.compile(r"`([\w/]+)(?:::(\w+))?`")
HEADS = {"fault", "promise"}


def _rows() -> list[list[str]]:
    lines = (ROOT / "docs" / "develop" / "evidence.md").read_text().splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    return [row for row in rows if row[0] not in HEADS]


def test_each_row_names_tests_that_exist() -> None:
    rows = _rows()
    assert len(rows) > 60
    for row in rows:
        named = NAMED.findall(row[-1])
        assert named, f"no test in {row}"
        for file, name in named:
            assert _exists(file, name), f"there is no {file}::{name}"


def _exists(file: str, name: str) -> bool:
    if file.startswith("cases/"):
        path = ROOT / "tests" / f"{file}.case"
        return path.is_file() and (not name or f"\ncase {name}\n" in path.read_text())
    path = ROOT / (f"{file}.py" if "/" in file else f"tests/kernel/{file}.py")
    return path.is_file() and (not name or f"\ndef {name}(" in path.read_text())


def test_each_row_of_the_security_policy_names_its_tests() -> None:
    lines = (ROOT / "SECURITY.md").read_text().splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    rows = [row for row in rows if row[0] != "who"]
    assert len(rows) > 30
    for row in rows:
        assert len(row) == 4, row
        named = re.findall(r"`(tests/[\w/]+\.py)`", row[3])
        assert named, f"no test in {row}"
        for file in named:
            assert (ROOT / file).is_file(), f"there is no {file}"
        for target in re.findall(r"`scripts/fuzz (\w+)`", row[3]):
            assert target in table.NAMES
