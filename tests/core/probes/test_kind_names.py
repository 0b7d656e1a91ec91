"""Kinds of probes are named by constants: no other module spells them where it decides something."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from pytrace.core.probes import kinds

PACKAGE = Path(kinds.__file__).resolve().parents[2]
NAMES = {row.name for row in kinds.PROBE_KINDS}


def _literals(node: ast.AST) -> set[str]:
    return {item.value for item in ast.walk(node) if isinstance(item, ast.Constant) and isinstance(item.value, str)}


def _is_kind(node: ast.expr) -> bool:
    """``kind.name``, ``spec.kind`` and the like."""
    name = node.attr if isinstance(node, ast.Attribute) else ""
    inner = node.value if isinstance(node, ast.Attribute) else node
    return name == "kind" or (name == "name" and "kind" in ast.unparse(inner).rpartition(".")[2])


def _named(tree: ast.AST) -> Iterator[tuple[int, set[str]]]:
    """Literals that kinds are compared with, those that are the keys of a table of all kinds, and sets of kinds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and _is_kind(node.left):
            yield node.lineno, set().union(*map(_literals, node.comparators))
        elif isinstance(node, ast.Set) and _literals(node) <= NAMES:
            yield node.lineno, _literals(node)
        elif isinstance(node, ast.Dict):
            keys = set().union(*(_literals(key) for key in node.keys if key is not None))
            if len(keys & NAMES) > 2:
                yield node.lineno, keys


def test_kinds_are_named_by_their_constants() -> None:
    wrong = [
        f"{path}:{line}: {', '.join(found)}"
        for path in PACKAGE.rglob("*.py")
        if path != Path(kinds.__file__)
        for line, literals in _named(ast.parse(path.read_text()))
        if (found := sorted(literals & NAMES))
    ]
    assert not wrong
    assert {value for name, value in vars(kinds).items() if isinstance(value, str) and name == value.upper()} == NAMES
