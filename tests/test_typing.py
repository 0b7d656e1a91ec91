"""Limits for the use of ``Any``, ``cast`` and ``type: ignore`` in the package."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "pytrace"

MOST_ANY = 36
"""Lines of code that name ``Any``: columns of snapshots, rows of value types and rows that are sorted in files, which
hold values of every type, JSON that is read, compiled code, enumerations, values of pyelftools and PLY, classes of
ClusterShell, and what scripts give to Python programs."""
MOST_CASTS = 13

TYPING = {"typing"}
"""Where ``cast`` comes from; the code generator has a function of this name."""


def trees_with(word: str) -> Iterator[tuple[str, ast.Module]]:
    """The modules whose text has *word*, parsed."""
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text()
        if word in text:
            yield path.relative_to(PACKAGE).as_posix(), ast.parse(text)


def test_few_lines_name_any() -> None:
    lines = {
        f"{name}:{node.lineno}"
        for name, tree in trees_with("Any")
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and node.id == "Any"
    }
    assert lines
    assert len(lines) <= MOST_ANY, sorted(lines)


def test_few_casts() -> None:
    casts = [
        f"{name}:{node.lineno}"
        for name, tree in trees_with("cast(")
        if TYPING & set(imported_from(tree, "cast"))
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "cast"
    ]
    assert casts
    assert len(casts) <= MOST_CASTS, casts


def imported_from(tree: ast.Module, name: str) -> list[str | None]:
    """The modules that *name* is imported from."""
    return [
        node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and name in [alias.name for alias in node.names]
    ]


def test_what_mypy_is_told_to_ignore_has_a_code_and_a_reason_before_it() -> None:
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            if "# type: ignore" not in line:
                continue
            before = [*lines[:number]][-3:]
            if not re.search(r"# type: ignore\[[a-z-]+\]$", line) or not any("# " in text for text in before):
                wrong.append(f"{path.relative_to(PACKAGE)}:{number + 1}")
    assert not wrong
