"""Files that the documents name are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "tests/cases/README.md"]

LINK = re.compile(r"\]\((?!https?:|#)([\w./-]+\.[\w]+|[\w./-]+/)(?:#[^)]*)?\)")
NAMED = re.compile(r"`((?:docs|scripts)/[\w./-]+?)`")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_named_files_are_there(path: Path) -> None:
    text = path.read_text()
    missing = [name for name in LINK.findall(text) if not (path.parent / name).exists()]
    missing += [name for name in NAMED.findall(text) if not (ROOT / name).exists()]
    assert not missing


PACKAGES = {"llvmlite", "libclang", "libbpf"}
NAME = re.compile(r"`([\w/]+)`")


def in_tables() -> set[str]:
    """What stands in the first columns of the tables of docs/architecture.md."""
    lines = (ROOT / "docs/architecture.md").read_text().splitlines()
    return {name for line in lines if line.startswith("| `") for name in NAME.findall(line.split(" | ")[0])}


@pytest.mark.parametrize("room", [".", "frontend", "codegen", "runtime"])
def test_the_architecture_names_all_modules(room: str) -> None:
    generated = {"grammar_tables", "table_generator"}
    there = {path.stem for path in (ROOT / "pytrace" / room).glob("*.py")} - {"__init__", "__main__"} - generated
    assert not there - in_tables()


def test_the_architecture_names_only_modules_that_are_there() -> None:
    there = {path.stem for path in (ROOT / "pytrace").rglob("*.py")}
    there |= {f"{path.name}/" for path in (ROOT / "pytrace").iterdir() if path.is_dir()}
    there |= {f"{path.name}/" for path in (ROOT / "pytrace").glob("*/*") if path.is_dir()}
    assert not in_tables() - there - PACKAGES - {"builtins/NAME_family"}
