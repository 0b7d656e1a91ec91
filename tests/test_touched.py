"""tests.support.touched: which tests a change touches, and how closely."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support import touched

FILES = {
    "pytrace/core/names.py": "",
    "pytrace/core/__init__.py": "",
    "pytrace/lexer.py": 'from pytrace.core.names import (  # comment\n    first, second\n)\nFILE = "table.json"\n',
    "pytrace/parser.py": "def parse():\n    from pytrace import lexer\n",
    "tests/conftest.py": "import tests.support.server\n",
    "tests/support/server.py": "",
    "tests/support/parsing.py": "import pytrace.parser as parser\n",
    "tests/core/test_names.py": "",
    "tests/test_lexer.py": "",
    "tests/test_parser.py": "",
    "tests/kernel/test_tools.py": 'from tests.support import parsing\nTOOL = "opensnoop"\n',
}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (
            ["pytrace/core/names.py"],
            {"tests/core/test_names.py": 0, "tests/test_lexer.py": 1, "tests/test_parser.py": 2},
        ),
        (["pytrace/parser.py"], {"tests/test_parser.py": 0, "tests/kernel/test_tools.py": 2}),
        (["tests/support/parsing.py"], {"tests/kernel/test_tools.py": 1}),
        (["tests/kernel/test_tools.py"], {"tests/kernel/test_tools.py": 0}),
        (["pytrace/data/table.json"], {"tests/test_lexer.py": 0, "tests/test_parser.py": 1}),
        (["pytrace/tools/files/opensnoop.bt"], {"tests/kernel/test_tools.py": 0}),
        (["tests/conftest.py"], dict.fromkeys((path for path in FILES if "/test_" in path), 1)),
        (["README.md", "tests/cases/maps.case"], {}),
    ],
)  # fmt: skip
def test_distances(changed: list[str], expected: dict[str, int]) -> None:
    assert touched.distances(changed, FILES) == expected


def test_a_removed_module() -> None:
    files = {path: text for path, text in FILES.items() if path != "pytrace/lexer.py"}
    assert touched.distances(["pytrace/lexer.py"], files) == {"tests/test_lexer.py": 0, "tests/test_parser.py": 1}


def test_closest_first_and_tests_that_trace_apart() -> None:
    changed = ["pytrace/parser.py", "tests/kernel/test_tools.py"]
    names = touched.chosen(changed, FILES, traced=False)
    assert names == [*touched.RULES, "tests/kernel/test_tools.py", "tests/test_parser.py"]
    assert touched.chosen(changed, FILES, traced=True) == ["tests/kernel/test_tools.py"]


def test_cases_of_a_changed_file() -> None:
    names = touched.chosen(["tests/cases/aggregations.case"], {}, traced=True)
    assert "tests/test_cases.py::test_case[host-aggregations-stats]" in names
    compiled = touched.chosen(["tests/cases/aggregations.case"], {}, traced=False)
    assert compiled
    assert all("[compile-aggregations-" in name for name in compiled)
    assert touched.chosen(["docs/reference/probes.md"], {}, traced=False) == ["tests/test_documents.py"]


def test_what_changed_since_the_branch_began(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        words = ("git", "-c", "user.name=a", "-c", "user.email=a@b", *words)
        subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)

    def write(*names: str) -> None:
        for name in names:
            (tmp_path / name).write_text(name)

    git("init", "-q", "-b", "main")
    write("same", "edited", ".gitignore")
    (tmp_path / ".gitignore").write_text("ignored\n")
    git("add", "-A")
    git("commit", "-q", "-m", "first")
    git("checkout", "-q", "-b", "branch")
    write("committed")
    git("add", "-A")
    git("commit", "-q", "-m", "second")
    git("checkout", "-q", "main")
    write("elsewhere")
    git("add", "-A")
    git("commit", "-q", "-m", "third")
    git("checkout", "-q", "branch")
    (tmp_path / "edited").write_text("other")
    write("new", "ignored")
    assert set(touched.changed_files(root=tmp_path)) == {"committed", "edited", "new"}
    assert set(touched.changed_files("branch", tmp_path)) == {"edited", "new"}
    with pytest.raises(SystemExit, match="git merge-base HEAD nowhere"):
        touched.changed_files("nowhere", tmp_path)
