"""Tests of finding the script that a command line names, and of reading the words that belong to it."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from pytrace.cli import request, tools
from pytrace.cli.options import CommandLine, read
from pytrace.core.diagnostics import ScriptError, TraceError
from pytrace.core.script_options import ScriptOption, Value
from pytrace.multitools import table
from pytrace.multitools.multitool import Translation
from tests.support.rows import each_row

SCRIPT = """/* tool: what it shows */
getopt("x|failed", false, "only failures");
getopt("f|fast", false);
getopt("d|min-ms=MS", 0);
getopt("n|name=NAME");
getopt("[interval]", 0);
getopt("[count]", 0);
begin { exit(); }
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a script of each kind, and one tool."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.bt").write_text(SCRIPT)
    (tmp_path / "old.bt").write_text('begin { print(getopt("limit", 10)); print($1); exit(); }')
    (tmp_path / "plain").write_text("begin { exit(); }")
    (tmp_path / "bad.bt").write_text('getopt("x"); begin { $a = ; }')
    place = tmp_path / "tools" / "files"
    place.mkdir(parents=True)
    (place / "opens.bt").write_text(SCRIPT)
    (place / "fsslower.bt").write_text('getopt("t|type=TYPE", "ext4"); getopt("[ms]", 10); begin { }')
    monkeypatch.setattr(tools, "FOLDER", str(tmp_path / "tools"))
    return tmp_path


def line_of(text: str) -> CommandLine:
    line = read(text.split(), request.find)
    request.complete(line)
    return line


def named(text: str) -> dict[str, str | None]:
    return dict(request.script(line_of(text)).named)


@each_row("name", ["own.bt", "./own.bt", "opens"])
@each_row(
    ("words", "values"),
    [
        ("", {}),
        ("-x", {"failed": None}),
        ("-xf", {"failed": None, "fast": None}),
        ("-xd5", {"failed": None, "min-ms": "5"}),
        ("-d 5", {"min-ms": "5"}),
        ("-d -5", {"min-ms": "-5"}),
        ("--min-ms=5 --name x", {"min-ms": "5", "name": "x"}),
        ("--min 5 --fai", {"min-ms": "5", "failed": None}),
        ("--name=", {"name": ""}),
        ("5", {"interval": "5"}),
        ("5 -x 6", {"failed": None, "interval": "5", "count": "6"}),
        ("-5 -6", {"interval": "-5", "count": "-6"}),
        ("-- --failed 7", {"failed": None, "interval": "7"}),
    ],
)
def test_words_after_the_name(name: str, words: str, values: dict[str, str | None]) -> None:
    assert named(f"{name} {words}") == values


def test_letters_of_the_script_win_and_the_others_are_pytraces() -> None:
    line = line_of("-q opens -f -vx --format json -o out -c ls")
    assert line.words is not None
    assert set(line.words.given) == {"fast", "failed"}
    assert line.words.taken == {"-f": "format"}
    assert line.values == {
        "quiet": True, "verbose": True, "format": "json", "output": "out", "command": "ls", "follow": True,
    }  # fmt: skip


def test_options_before_the_name_are_pytraces() -> None:
    line = line_of("-f json opens -f")
    assert line.text("format") == "json"
    assert line.words is not None
    assert list(line.words.given) == ["fast"]


def test_only_tools_follow_the_children_of_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    assert line_of("opens -c ls").flag("follow")
    assert not line_of("own.bt -c ls").flag("follow")
    assert not line_of("opens").flag("follow")
    assert all(list((Path(request.__file__).parents[1] / "tools").rglob(f"{name}.bt")) for name in request.ALONE)
    monkeypatch.setattr(request, "ALONE", frozenset({"opens"}))
    assert not line_of("opens -c ls").flag("follow")
    assert line_of("opens --follow -c ls").flag("follow")


@each_row(
    ("words", "message"),
    [
        ("opens -d x", "option -d needs an integer, not 'x'"),
        ("opens --min-ms=x", "option --min-ms needs an integer, not 'x'"),
        ("opens 1 2 3", "unexpected operand '3'"),
        ("opens -z", "unknown option -z"),
        ("opens -d", "option -d needs an argument: MS"),
        ("opens --name", "option --name needs an argument: NAME"),
        ("opens --fa", "option --fa is ambiguous"),
        ("opens --failde", "unknown option --failde"),
        ("own.bt -e x", "give -e or the script own.bt, not both"),
        ("opns -x", "there is no tool and no file 'opns'"),
        ("fsslowr", "there is no tool and no file 'fsslowr'"),
        ("./opens", "cannot read script './opens': No such file or directory"),
        ("old.bt -x", "unknown option -x"),
    ],
)
def test_mistakes(words: str, message: str) -> None:
    with pytest.raises(TraceError) as found:
        request.script(line_of(words))
    assert found.value.message.startswith(message)


@pytest.mark.parametrize("name", ["flame", "diff"])
def test_a_command_after_options_is_no_misspelt_tool(name: str) -> None:
    with pytest.raises(TraceError) as found:
        request.script(line_of(f"-q {name}"))
    assert found.value.hints == (f"{name} is a command, which comes before options: pytrace {name} …",)


@pytest.mark.parametrize(
    ("words", "form"), [("rows -s", "csv"), ("rows --csv", "csv"), ("rows -s -f json", "json"), ("rows", None)]
)
def test_csv_of_bcc_is_a_format(folder: Path, words: str, form: str | None) -> None:
    (folder / "tools" / "files" / "rows.bt").write_text('getopt("s|csv", false, "is -f csv"); begin { row((a=1)); }')
    line = line_of(words)
    request.script(line)
    assert line.text("format") == form


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("fsslowr", "did you mean fsslower"),
        ("flmae", "did you mean flame"),
        ("stat", "pytrace funccount"),
        ("help", "pytrace --help"),
        ("opens.bt", "pytrace opens runs the tool"),
        ("x{ }", "a program on the command line goes after -e"),
    ],
)
def test_hints_for_words_that_name_no_script(word: str, hint: str) -> None:
    with pytest.raises(TraceError) as found:
        request.read_file(word)
    assert found.value.hints[0].startswith(hint)


def test_a_repeated_option_is_reported() -> None:
    assert list(line_of("opens -d 1 --min-ms 2 -x -x").repeated) == ["--min-ms"]


def test_a_tool_wins_over_a_file_of_its_name_unless_it_has_a_path(folder: Path) -> None:
    (folder / "opens").write_text("end { }")
    assert request.script(line_of("opens")).source.text == SCRIPT
    assert request.script(line_of("./opens")).source.text == "end { }"
    assert request.script(line_of("plain")).source.text == "begin { exit(); }"


def test_names_with_implied_options() -> None:
    assert named("xfsslower 5") == {"type": "xfs", "ms": "5"}
    assert request.script(line_of("xfsslower")).source.name == "xfsslower"


def test_scripts_without_declarations_are_read_as_before() -> None:
    script = request.script(line_of("old.bt 1 -q x -- --limit=5 --all y"))
    assert script.positional == ("1", "x", "y")
    assert script.named == (("limit", "5"), ("all", None))
    script = request.script(line_of("own.bt -- --help"))
    assert script.wants_help
    assert request.script(line_of("plain -e begin{}")).positional == ("plain",)
    assert request.script(line_of("nosuch -e begin{}")).positional == ("nosuch",)


def test_the_text_of_e_may_declare_options() -> None:
    line = read(["-e", 'getopt("x|failed"); begin { }', "-xq"], request.find)
    assert request.script(line).named == (("failed", None),)
    assert line.flag("quiet")


def test_help_is_the_scripts_after_its_name() -> None:
    for words in ("opens -h", "opens -xh", "opens --help", "plain -h", "old.bt -q --help"):
        line = line_of(words)
        assert line.usage
        assert not line.flag("help")
    assert line_of("-h opens").flag("help")


def test_patterns_and_words_of_modes_are_no_scripts() -> None:
    assert line_of("-l kprobe:vfs_read").script is None
    assert line_of("kprobe:vfs_read -l").script is None
    assert line_of("--tools open").script is None
    assert line_of("-l opens").script is not None


def test_syntax_errors_come_before_those_of_options(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ScriptError):
        line_of("bad.bt -z")
    assert "bad.bt:1:27" in capsys.readouterr().err
    assert line_of("--fmt bad.bt").script is not None


def test_standard_input_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Input:
        buffer = io.BytesIO(SCRIPT.encode())

    monkeypatch.setattr(sys, "stdin", Input)
    script = request.script(line_of("- -x 5"))
    assert script.source.text == SCRIPT
    assert script.named == (("failed", None), ("interval", "5"))


class Counter:
    """A tool that is translated."""

    summary = "counts calls"
    group = "languages"
    options = (
        ScriptOption(("d",), 1, argument="SECONDS"),
        ScriptOption(("specs",), "", argument="specs", operand=True, required=True, repeat=True),
    )
    examples = "pytrace counter vfs_read   counts it"

    def translate(self, values: Mapping[str, Value], kernel: object) -> Translation:
        lines = "".join(f"k:{spec} {{ @ = count() }}" for spec in str(values["specs"]).split("\n"))
        return Translation(f"{lines} interval:s:{values['d']} {{ exit() }}", ("-f", "json", "--unsafe"))


@pytest.fixture
def translated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "TRANSLATED", ("counter",))
    monkeypatch.setitem(table.TOOLS, "counter", Counter())


@pytest.mark.usefixtures("translated")
def test_translated_tools() -> None:
    line = line_of("counter -d 5 a b")
    assert request.script(line).source.text == "k:a { @ = count() }k:b { @ = count() } interval:s:5 { exit() }"
    assert line.text("format") == "json"
    assert line.flag("unsafe")
    assert line_of("-f csv counter a").text("format") == "csv"
    with pytest.raises(TraceError, match="counter needs <specs>"):
        line_of("counter")
