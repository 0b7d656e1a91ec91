"""Each tool that prints rows has a row with the columns that users know, in their order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pytrace.cli import tools
from pytrace.core.diagnostics import Diagnostics
from pytrace.core.source import Source
from pytrace.frontend.syntax import nodes, parser
from tests.support.rows import each_row
from tests.tools.columns import TOOLS

WITH_ROWS = [name for name, output in TOOLS.items() if output.columns and tools.path(name)]


def rows(path: Path) -> Iterator[list[str]]:
    """The columns of each record in a script and its libraries, in lower case."""
    diagnostics = Diagnostics()
    program = parser.parse(Source(str(path), path.read_text(), str(path)), diagnostics)
    assert not diagnostics.failed
    for node in nodes.walk(program):
        if isinstance(node, nodes.RecordLiteral):
            yield [name.strip('"').lower() for name in node.names]
        elif isinstance(node, nodes.Import):
            yield from rows(path.parent / node.path)


def in_order(wanted: tuple[str, ...], found: list[str]) -> bool:
    """Whether all *wanted* columns are there in this order; those of options may stand between them."""
    rest = iter(found)
    return all(column.lower() in rest for column in wanted)


@each_row("name", WITH_ROWS)
def test_columns_of_a_script(name: str) -> None:
    found = list(rows(Path(tools.path(name))))
    assert any(in_order(TOOLS[name].columns, row) for row in found), f"wanted {TOOLS[name].columns}, found {found}"


def test_columns_in_another_order_are_seen() -> None:
    assert in_order(("PID", "COMM"), ["time", "pid", "uid", "comm"])
    assert not in_order(("PID", "COMM"), ["comm", "pid"])
    assert not in_order(("PID", "COMM"), ["pid"])
