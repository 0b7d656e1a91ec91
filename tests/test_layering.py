"""Imports go one way (docs/architecture.md); this reads them from the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "pytrace"
ROOMS = ("frontend", "codegen", "runtime")

JOINERS = {
    "pytrace.pipeline": {"frontend", "codegen"},
    "pytrace.cli.main": {"frontend", "codegen", "runtime"},
    "pytrace.cli.commands": {"frontend", "codegen", "runtime"},
    "pytrace.cli.dump": {"frontend", "codegen"},
    "pytrace.cli.request": {"frontend", "runtime"},
    "pytrace.cli.info": {"codegen", "runtime"},
    "pytrace.__main__": set(),
}
"""Root modules that may import rooms: the pipeline and the command line."""

CODEGEN_MAY_READ = {"pytrace.frontend.ast.nodes", "pytrace.frontend.ast.typed_program", "pytrace.frontend.ast.visitor"}
ONLY_IN = {"ctypes": "runtime", "llvmlite": "codegen", "ply": "frontend"}


def modules() -> list[tuple[str, Path]]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found.append((".".join(parts[:-1] if parts[-1] == "__init__" else parts), path))
    return found


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Names of all modules that a file imports at run time, in functions too; not those for type checks only."""
    tree = ast.parse(path.read_text())
    for_types_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in for_types_only:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def room(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "pytrace" and len(parts) > 1 and parts[1] in ROOMS else None


def may_import(module: str, target: str) -> bool:
    here, there = room(module), room(target)
    if there is None or here == there:
        return True
    if here is None:
        return there in JOINERS.get(module, set())
    if here == "codegen":
        return any(target == allowed or target.startswith(allowed + ".") for allowed in CODEGEN_MAY_READ)
    return False


@pytest.mark.parametrize(("module", "path"), [pytest.param(*item, id=item[0]) for item in modules()])
def test_imports_go_one_way(module: str, path: Path) -> None:
    wrong = [f"line {line}: {target}" for target, line in imports(path) if not may_import(module, target)]
    assert not wrong


@pytest.mark.parametrize(("module", "path"), [pytest.param(*item, id=item[0]) for item in modules()])
def test_each_binding_has_one_room(module: str, path: Path) -> None:
    wrong = [
        f"line {line}: {target}"
        for target, line in imports(path)
        if (owner := ONLY_IN.get(target.split(".")[0])) and room(module) != owner
    ]
    assert not wrong


def test_no_cycle_among_root_modules() -> None:
    root = {name: path for name, path in modules() if room(name) is None}
    graph = {
        name: {target for full, _ in top_level_imports(path) for target in owners(full, root) if target != name}
        for name, path in root.items()
    }
    done: set[str] = set()

    def visit(name: str, chain: tuple[str, ...]) -> None:
        assert name not in chain, f"import cycle: {' -> '.join((*chain, name))}"
        if name not in done:
            for target in sorted(graph[name]):
                visit(target, (*chain, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def top_level_imports(path: Path) -> Iterator[tuple[str, int]]:
    tree = ast.parse(path.read_text())
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def owners(full: str, known: dict[str, Path]) -> list[str]:
    """The module that ``from a import b`` loads: ``a.b`` when that is a module, else ``a``."""
    if full in known:
        return [full]
    parent = full.rpartition(".")[0]
    return [parent] if parent in known and parent != "pytrace" else []


@pytest.mark.parametrize(("module", "path"), [pytest.param(*item, id=item[0]) for item in modules()])
def test_plain_data_is_made_by_our_own_module(module: str, path: Path) -> None:
    """``dataclasses`` costs each start 8 ms, and 0.3 ms for each class (``pytrace.base.fast_dataclass`` says why)."""
    assert not [f"line {line}: {target}" for target, line in imports(path) if target.split(".")[0] == "dataclasses"]
