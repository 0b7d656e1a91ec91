"""Tests mirror the source tree: each module with logic has a test of the same name in the same place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE, TESTS = ROOT / "pytrace", ROOT / "tests"

DECIDES_NOTHING = {
    "data classes without a method that decides": (
        "codegen/ir/operands.py", "core/builtin_row.py", "frontend/ast/expressions.py", "frontend/ast/nodes.py",
        "frontend/ast/probe_context.py",
        "results/values.py", "runtime/session/services/service.py",
    ),
    "tables, which the tests of what reads them hold": (
        "core/stacks/python_format.py", "core/stacks/unwind_format.py",
        "core/probes/perf_events.py", "core/probes/syscall_numbers.py",
        "codegen/lower/builtins/aggregate_family.py", "frontend/check/builtins/table.py",
    ),
    "productions of the grammar, which is tested as a whole (syntax/test_grammar.py, syntax/test_parser.py)": (
        "frontend/syntax/grammar_expressions.py", "frontend/syntax/grammar_support.py",
    ),
    "generated": (
        "frontend/syntax/grammar_tables.py", "frontend/syntax/lexical/lexer_tables.py",
    ),
    "one call of another module": ("__main__.py",),
}  # fmt: skip
"""Modules without a test of their own, by the reason."""

EXEMPT = frozenset(name for names in DECIDES_NOTHING.values() for name in names)


def modules() -> Iterator[str]:
    """Paths of all modules below the package."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.name != "__init__.py":
            yield path.relative_to(PACKAGE).as_posix()


def namesake(module: str) -> Path:
    """Where the test of a module is."""
    path = TESTS / module
    return path.with_name(f"test_{path.name}")


def test_each_module_has_a_test_of_its_name() -> None:
    lacking = [module for module in modules() if module not in EXEMPT and not namesake(module).exists()]
    assert not lacking, f"write {', '.join(str(namesake(module).relative_to(ROOT)) for module in lacking)}"


def test_modules_without_a_test_are_there() -> None:
    assert set(modules()) >= EXEMPT


def test_modules_with_a_test_are_not_excused() -> None:
    assert not {module for module in EXEMPT if namesake(module).exists()}


HARMLESS = ("if TYPE_CHECKING", "if __name__")


def test_what_decides_nothing_has_no_branches() -> None:
    """Where one gets some, it gets a test."""
    plain = [names for group, names in DECIDES_NOTHING.items() if not group.startswith(("generated", "productions"))]
    lines = {
        f"{module}: {line}"
        for module in (name for names in plain for name in names)
        for line in map(str.strip, (PACKAGE / module).read_text(encoding="utf-8").splitlines())
        if line.startswith(("if ", "elif ", "while ")) and not line.startswith(HARMLESS)
    }
    assert not lines
