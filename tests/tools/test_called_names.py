"""What scripts of tools call exists, also in the branches for kernels that are not at hand."""

from __future__ import annotations

from pathlib import Path

from pytrace.cli import tools
from pytrace.core.builtins import BUILTINS
from pytrace.core.diagnostics import Diagnostics
from pytrace.core.source import Source
from pytrace.frontend.expand import imports
from pytrace.frontend.syntax import nodes, parser
from tests.support.rows import each_row

SCRIPTS = [name for _, name, _ in tools.rows() if tools.path(name)]
BUILT_IN = {row.name for row in BUILTINS} | set(imports.LIBRARY_FILES)


def names(path: Path, seen: set[Path]) -> tuple[set[str], set[str]]:
    """The names that a script and all that it imports calls, and those that it defines."""
    if path in seen:
        return set(), set()
    seen.add(path)
    diagnostics = Diagnostics()
    program = parser.parse(Source(str(path), path.read_text(), str(path)), diagnostics)
    assert not diagnostics.failed
    called: set[str] = set()
    defined: set[str] = set()
    for node in nodes.walk(program):
        if isinstance(node, nodes.Call):
            called.add(node.name)
        elif isinstance(node, nodes.Macro | nodes.Function):
            defined.add(node.name)
        elif isinstance(node, nodes.Import) and node.path.endswith(".bt"):
            more = names((path.parent / node.path).resolve(), seen)
            called |= more[0]
            defined |= more[1]
    return called, defined


@each_row("name", SCRIPTS)
def test_what_a_tool_calls_exists(name: str) -> None:
    called, defined = names(Path(tools.path(name)), set())
    assert called - defined - BUILT_IN == set()


def test_a_name_that_does_not_exist_is_seen(tmp_path: Path) -> None:
    script = tmp_path / "a.bt"
    script.write_text('if comptime (kernel_release() == "") { begin { nothing_of_that_name(); print(pid); } }')
    called, defined = names(script, set())
    assert "nothing_of_that_name" in called - defined - BUILT_IN
