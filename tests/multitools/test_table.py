from __future__ import annotations

from pytrace.cli.scripts import tools
from pytrace.multitools.table import TOOLS


def test_the_command_line_knows_the_names_without_the_table() -> None:
    assert tuple(TOOLS) == tools.TRANSLATED


def test_each_tool_has_examples_and_help() -> None:
    for name, tool in TOOLS.items():
        assert tool.summary
        assert all(line.startswith(f"pytrace {name}") for line in tool.examples.split("\n"))
        assert all(option.help for option in tool.options)
        names = [text for option in tool.options for text in option.names]
        assert len(names) == len(set(names))
