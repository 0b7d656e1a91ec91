"""Tests in processes that are forked after collection, and the byte code that is made for them before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support import bytecode

ROOT = Path(__file__).resolve().parents[1]

TESTS = """
import os
from pathlib import Path

import pytest

from tests.support.forked_workers import Shared

@pytest.fixture(scope="session", autouse=True)
def noted():
    yield
    Path(f"ended-{os.getpid()}").touch()

@pytest.mark.parametrize("number", range(12))
def test_passes(number):
    print("printed by a test that passes")
    with open("ran", "a") as file:
        file.write(f"{os.getpid()} {number} {Shared.folder} {Shared.folder.is_dir()}\\n")

def test_fails():
    print("printed by the one that fails")
    left = 3
    assert left == 4

def test_dies():
    os._exit(5)

def test_after_it():
    Path("after").touch()
"""


def test_results_of_forked_workers(tmp_path: Path) -> None:
    """Each test once, in one of two processes with a common folder; one that dies is a failure of its test alone, and
    fixtures end."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    file = tmp_path / "test_own.py"
    file.write_text(TESTS)
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--disable-plugin-autoload", "-p"]
    words += ["tests.support.forked_workers", "--forks", "2", file.name]
    done = subprocess.run(
        words, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done
    assert "2 failed, 13 passed" in done.stdout
    assert "assert 3 == 4" in done.stdout
    assert "printed by the one that fails" in done.stdout
    assert "printed by a test that passes" not in done.stdout
    assert "the process that ran it ended with status 5" in done.stdout
    rows = [line.split() for line in (tmp_path / "ran").read_text().splitlines()]
    pids, numbers, folders, there = zip(*rows, strict=True)
    assert sorted(map(int, numbers)) == list(range(12))
    assert len({*pids}) > 1
    assert {*there} == {"True"}
    (shared,) = {*folders}
    assert not os.path.exists(shared)
    assert (tmp_path / "after").exists()
    assert list(tmp_path.glob("ended-*"))


def test_byte_code_is_that_of_pytest(tmp_path: Path) -> None:
    """What is made before the tests is what pytest looks for: it writes none of its own."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    file = tmp_path / "test_own.py"
    file.write_text("def test_it():\n    left = 3\n    assert left == 4\n")
    bytecode.prepare(file)
    (made,) = (tmp_path / "__pycache__").iterdir()
    before = made.stat()
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--disable-plugin-autoload"]
    done = subprocess.run(
        [*words, file.name], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
    )  # fmt: skip
    assert "assert 3 == 4" in done.stdout
    assert [path.name for path in made.parent.iterdir()] == [made.name]
    assert made.stat().st_ino == before.st_ino
    file.write_text("def test_it():\n    pass\n")
    bytecode.prepare(file)
    assert made.stat().st_ino != before.st_ino
