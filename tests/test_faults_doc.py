"""docs/faults.md names tests that exist, in each row."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROWS = [
    line for line in (ROOT / "docs" / "faults.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| fault |")
]  # fmt: skip


def test_each_row_names_tests_that_exist() -> None:
    assert len(ROWS) > 50
    for row in ROWS:
        named = re.findall(r"`([\w/]+)::(test_\w+)`", row.split(" | ")[-1])
        assert named, f"no test in {row}"
        for file, function in named:
            path = ROOT / (f"{file}.py" if "/" in file else f"tests/kernel/{file}.py")
            assert f"\ndef {function}(" in path.read_text(), f"{path} has no {function}"
