"""What holds for each tool: options, columns, pages, names that scripts call, keys that are addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import pytrace
from pytrace.cli import options as command_line
from pytrace.cli import script_options, tools
from pytrace.cli.main import main
from pytrace.cli.request import LETTERS
from pytrace.cli.script_texts import header
from pytrace.core.builtins import BUILTINS
from pytrace.core.diagnostics import Diagnostics
from pytrace.core.script_options import ScriptOption, WrongValueError, convert
from pytrace.core.source import Source
from pytrace.frontend.expand import imports
from pytrace.frontend.syntax import nodes, parser
from pytrace.multitools.table import TOOLS as TRANSLATED
from tests.support.rows import each_row
from tests.tools.columns import TOOLS
from tests.tools.options import COMMON, OPTIONS

# ---------------------------------------------------------------------------------------------- options
# Each option and operand that users know is there, and means what they know.


RESERVED = "cpfoqve"
"""Letters of pytrace's own options that no tool may reuse."""
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


# ---------------------------------------------------------------------------------------------- option values
# Values of tools' options that ask for nothing: times of no length, limits that nothing passes.


UNTIL_INTERRUPTED = {("llcstat", "duration")}
"""Where 0 is documented, as without it the run ends by itself."""


@each_row("tool", TOOLS)
def test_times_are_more_than_0(tool: str) -> None:
    times = [
        option
        for option in own(tool)
        if option.argument == "SECONDS" or option.name in ("interval", "duration", "seconds")
    ]
    for option in times:
        if (tool, option.name) not in UNTIL_INTERRUPTED:
            with pytest.raises(WrongValueError, match="more than 0"):
                convert(option, "0")


def test_times_are_found() -> None:
    assert {option.name for option in own("syscount") if option.argument == "SECONDS"} == {"interval", "duration"}


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("offcputime -m 10 -M 5", "at least 10 (--min-block-time) and at most 5 microseconds"),
        ("offwaketime -m 10 -M 5", "at least 10 (--min-block-time) and at most 5 microseconds"),
        ("wakeuptime -m 10 -M 5", "at least 10 (--min-block-time) and at most 5 microseconds"),
        ("mallocs -z 10 -Z 5", "at least 10 (--min-size) and at most 5 bytes"),
        ("memleak -z 10 -Z 5", "at least 10 (--min-size) and at most 5 bytes"),
        ("offcputime --user-threads-only --kernel-threads-only", "exclude each other"),
        ("filetop --read-only --write-only", "exclude each other"),
        ("fileslower --read-only --write-only", "exclude each other"),
        ("biolatency 0 1", "operand interval needs a time in seconds"),
    ],
)
def test_contradictions_are_refused(words: str, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words.split(), "--dry-run"]) == 1
    said = capsys.readouterr().err
    assert reason in said
    assert said.count("ERROR") == 1


# ---------------------------------------------------------------------------------------------- columns
# Each tool that prints rows has a row with the columns that users know, in their order.


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


# ---------------------------------------------------------------------------------------------- pages
# Each tool has a page with the parts that a reader looks for, and a header of the form that the usage shows.


ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = ROOT / "docs" / "reference" / "tools"
NAMES = [name for _, name, _ in tools.rows()]
SCRIPTS = [name for name in NAMES if tools.path(name)]
PARTS = ["How to read it", "Options", "Overhead", "What next"]


def test_pages_are_those_of_tools() -> None:
    assert {path.stem for path in PAGES.glob("*.md")} - {"README"} == set(NAMES)


@each_row("name", NAMES)
def test_parts_of_a_page(name: str) -> None:
    text = (PAGES / f"{name}.md").read_text()
    assert re.match(rf"# {name}(:.*)?\n", text)
    titles = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert [title for title in PARTS if title not in titles] == []
    before = text.partition("## Overhead")[0]
    assert re.search(r"^(    |```)", before, re.MULTILINE), "no output is shown"
    links = re.findall(r"\]\(([\w-]+)\.md[)#]", text)
    assert [link for link in links if link not in NAMES] == []
    for section in re.split(r"^## .*$", text, flags=re.MULTILINE)[1:]:
        assert section.strip(), "a part is empty"


@each_row("name", SCRIPTS)
def test_header_of_a_script(name: str) -> None:
    script = Path(tools.path(name)).read_text()
    assert not script.startswith("#!"), "files of a package are not executable"
    lines = header(script).split("\n")
    assert re.fullmatch(rf"{name}: \S.*[^.]", lines[0])
    assert "Examples:" in lines
    examples = [line for line in lines[lines.index("Examples:") + 1 :] if line.strip()]
    command = re.compile(rf"  pytrace ({name}|{'|'.join(tools.ALIASES)})\b|    +\S")
    assert [line for line in examples if not command.match(line)] == []
    assert re.match(r"  pytrace ", examples[0])


# ---------------------------------------------------------------------------------------------- called names
# What scripts of tools call exists, also in the branches for kernels that are not at hand.


# entry() of call: probes is resolved before functions are.
BUILT_IN = {row.name for row in BUILTINS} | set(imports.LIBRARY_FILES) | {"entry"}


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


# ---------------------------------------------------------------------------------------------- keys
# Maps of tools whose keys are addresses: an entry goes when the object does, as its memory is used again.


FILES = sorted((Path(pytrace.__file__).parent / "tools").rglob("*.bt"))

_STORE = re.compile(r"@(\w+)\[([^\]]+)\] = ")
_ADDRESS = re.compile(r"\(uint64\)[$a-z]|\barg\d\b|file_key\(")

NO_OBJECTS = {
    ("cpufreq", "changes"): "a frequency",
    ("skbdrop", "drops"): "an address of code",
    ("uobjnew", "sizes"): "a size",
}
"""Keys that look like addresses of objects and are none."""


@each_row("script", FILES, ids=lambda path: path.stem)
def test_entries_of_objects_are_deleted(script: Path) -> None:
    text = script.read_text()
    keyed = {map_ for map_, key in _STORE.findall(text) if _ADDRESS.search(key)}
    kept = [map_ for map_ in keyed if f"delete(@{map_}" not in text and (script.stem, map_) not in NO_OBJECTS]
    assert not kept


def test_objects_are_found() -> None:
    found = {
        (script.stem, map_)
        for script in FILES
        for map_, key in _STORE.findall(script.read_text())
        if _ADDRESS.search(key)
    }
    assert {("block_requests", "requests"), ("socket_owner", "owner_of_socket"), ("page_cache", "fresh")} <= found
