"""The table of multi-purpose tools: names, examples, help."""

from __future__ import annotations

import re
import shlex

import pytest

from pytrace.cli import request, script_options, tools
from pytrace.cli.options import read
from pytrace.core.diagnostics import Diagnostics
from pytrace.frontend.syntax.formatter import format_source
from pytrace.multitools.multitool import LANGUAGES, MULTI_PURPOSE
from pytrace.multitools.table import TOOLS
from tests.support.facts import RecordedKernel
from tests.support.rows import each_row


def test_the_command_line_knows_the_names_without_the_table() -> None:
    assert tuple(TOOLS) == tools.TRANSLATED


def test_each_tool_has_examples_and_help() -> None:
    for name, tool in TOOLS.items():
        assert tool.summary
        assert all(line.startswith(f"pytrace {name}") for line in tool.examples.split("\n"))
        assert all(option.help for option in tool.options)
        names = [text for option in tool.options for text in option.names]
        assert len(names) == len(set(names))


EXAMPLES = [(name, re.split(r" {2,}", line)[0]) for name, tool in TOOLS.items() for line in tool.examples.split("\n")]


@each_row(("name", "command"), EXAMPLES)
def test_examples_are_command_lines(name: str, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "live_kernel", lambda options: RecordedKernel())
    monkeypatch.setattr(script_options.ScriptWords, "check", lambda words, other_network: None)
    line = read(shlex.split(command)[1:], request.find)
    request.complete(line)
    if name == "tplist":
        assert line.flag("list")
        return
    assert line.script is not None
    diagnostics = Diagnostics()
    format_source(line.script[0], diagnostics)
    assert not diagnostics.items


def test_each_tool_has_a_group_and_one_sentence() -> None:
    assert len(TOOLS) == 8
    assert all(tool.group in (LANGUAGES, MULTI_PURPOSE) for tool in TOOLS.values())
    texts = [tool.summary for tool in TOOLS.values()]
    assert all(text and text == text.strip() and not text.endswith(".") for text in texts)
