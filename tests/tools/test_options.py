"""Each option and operand that users know is there, and means what they know."""

from __future__ import annotations

from pathlib import Path

from pytrace.cli import options as command_line
from pytrace.cli import script_options, tools
from pytrace.cli.tools import LETTERS, RESERVED
from pytrace.core.diagnostics import Diagnostics
from pytrace.core.options.script_options import ScriptOption
from pytrace.core.source import Source
from pytrace.multitools.table import TOOLS as TRANSLATED
from tests.support.rows import each_row
from tests.tools.columns import TOOLS
from tests.tools.options import COMMON, OPTIONS

OURS = {
    **{f"-{row.short}": row for row in command_line.OPTIONS if row.short},
    **{f"--{row.long}": row for row in command_line.OPTIONS if row.long},
}
"""Options of pytrace by their spellings."""

STANDS_FOR_PYTRACES = {"uid", "duration", "comm", "include", "pid", "verbose"}
"""Names of tools' own options that do what pytrace's of the same name does."""


SAME = {("-p", "pid"), ("-v", "verbose")}
"""Options of tools with a letter of pytrace's that mean what pytrace's does."""


def own(tool: str) -> tuple[ScriptOption, ...]:
    """The options and operands that a tool declares."""
    if tool in TRANSLATED:
        return TRANSLATED[tool].options
    diagnostics = Diagnostics()
    path = tools.path(tool)
    found = script_options.of(Source(path, Path(path).read_text(), path), diagnostics)
    assert not diagnostics.failed
    return found.options


def problem(spellings: str, argument: str, options: tuple[ScriptOption, ...]) -> str:
    """What keeps a user from typing one of the spellings of an option; empty when all of them mean the same."""
    named = [item for item in options if not item.operand]
    meant = set()
    for spelling in spellings.split("/"):
        name = spelling.lstrip("-")
        mine = next((item for item in named if name in item.names), None)
        ours = OURS.get(spelling)
        if mine is None and ours is None:
            return f"{spelling} is not there"
        takes = bool(mine.argument) if mine is not None else bool(ours and ours.argument)
        if takes != bool(argument):
            return f"{spelling} {'needs' if takes else 'has no'} argument"
        meant.add(mine.name if mine is not None else f"pytrace's {ours.key if ours else ''}")
    return f"{spellings} are not one option: {', '.join(sorted(meant))}" if len(meant) > 1 else ""


@each_row("tool", OPTIONS)
def test_known_options(tool: str) -> None:
    options = own(tool)
    words = [word.partition("=") for word in OPTIONS[tool].split() if word.startswith("-")]
    found = [problem(spellings, argument, options) for spellings, _, argument in words]
    assert not [line for line in found if line]


@each_row("tool", OPTIONS)
def test_known_operands(tool: str) -> None:
    known = [word for word in OPTIONS[tool].split() if not word.startswith("-")]
    found = [item.name.lstrip("-") for item in own(tool) if item.operand]
    assert found[: len(known)] == known


@each_row("tool", OPTIONS)
def test_options_of_all_tools(tool: str) -> None:
    mine = {name for item in own(tool) if not item.operand for name in item.words}
    for word in COMMON.split():
        spelling = word.partition("=")[0].split("/")[-1]
        name = spelling.lstrip("-")
        assert spelling in OURS
        assert name not in mine or name in STANDS_FOR_PYTRACES


@each_row("tool", OPTIONS)
def test_letters_of_pytrace_mean_the_same_in_all_tools(tool: str) -> None:
    others = {
        (letter, item.name)
        for item in own(tool)
        for letter in item.letters
        if letter in RESERVED and (f"-{letter}", item.name) not in SAME
    }
    assert not others


@each_row("tool", LETTERS)
def test_letters_of_bcc_name_options(tool: str) -> None:
    words = {word for item in own(tool) for word in item.words} | {row.long for row in command_line.OPTIONS}
    assert set(LETTERS[tool]) <= set(RESERVED)
    assert set(LETTERS[tool].values()) <= words


def test_letters_of_bcc_are_documented() -> None:
    """In docs/start/from-bcc.md, a line for each letter and option."""
    text = Path("docs/start/from-bcc.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| `-")]
    for tool, letters in LETTERS.items():
        for letter, word in letters.items():
            assert [row for row in rows if f"`-{letter}` of " in row and f"`{tool}`" in row and f"`--{word}`" in row]


def test_the_table_has_every_tool() -> None:
    assert list(OPTIONS) == list(TOOLS)
