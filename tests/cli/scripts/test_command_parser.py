"""The parser that commands share."""

from __future__ import annotations

import pytest

from pytrace.cli.scripts.command_parser import CommandParser
from pytrace.core.diagnostics import TraceError


def _parser(usage: str | None = None) -> CommandParser:
    parser = CommandParser("walk", "Walk.", "examples:\n  pytrace walk --far", usage)
    parser.add_argument("--far", action="store_true")
    return parser


@pytest.mark.parametrize("words", ["--fa", "--near", "away"])
def test_mistakes_are_errors_with_a_hint(words: str) -> None:
    """An abbreviation is one, too: it would mean another option once there is another."""
    with pytest.raises(TraceError, match="unrecognized arguments") as found:
        _parser().parse_args([words])
    assert found.value.message == f"pytrace walk: unrecognized arguments: {words}"
    assert found.value.hints == ("pytrace walk --help describes it",)


@pytest.mark.parametrize(("usage", "first"), [(None, "[-h] [--far]"), ("pytrace walk [options]", "[options]")])
def test_help_has_the_examples_line_by_line(usage: str | None, first: str) -> None:
    text = _parser(usage).format_help()
    assert text.startswith(f"usage: pytrace walk {first}\n")
    assert text.endswith("\nexamples:\n  pytrace walk --far\n")
