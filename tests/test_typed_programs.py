"""Programs of docs/reference/python-interface.md are typed: mypy checks them as a user would (``scripts/check``)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.kernel.test_document_programs import python_programs
from tests.support.patience import patience

ROOT = Path(__file__).resolve().parent.parent


def test_programs_are_typed(tmp_path: Path) -> None:
    """Strictly, with the cache of mypy's run before, which has what pytrace's own modules are."""
    for line, text in python_programs().items():
        (tmp_path / f"line_{line}.py").write_text(text)
    (tmp_path / "wrong.py").write_text(
        "import pytrace\npytrace.run('begin { }', durration=1)\nnumber: int = pytrace.open('begin { }').maps\n"
    )
    command = [sys.executable, "-m", "mypy", "--no-error-summary", *tmp_path.glob("*.py")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=patience(300), check=False)
    errors = [text for text in done.stdout.splitlines() if ": error: " in text]
    # The cache has the folder of an earlier run.
    places = [(Path(file).name, line) for file, line, *_ in (text.split(":") for text in errors)]
    assert places == [("wrong.py", "2"), ("wrong.py", "3")], done
