from __future__ import annotations

from pytrace.cli.scripts import tools
from pytrace.multitools.table import TOOLS


def test_the_command_line_knows_the_names_without_the_table() -> None:
    assert tuple(TOOLS) == tools.TRANSLATED
