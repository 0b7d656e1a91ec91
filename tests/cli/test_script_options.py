"""Words of a script's own command line: letters of bcc, declared options, the parser."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytrace import cache
from pytrace.cli import request, script_options
from pytrace.cli.commands import Command, Operand
from pytrace.cli.main import main
from pytrace.cli.options import GivenLetter, Option, read
from pytrace.cli.script_options import ScriptWords
from pytrace.core.diagnostics import Diagnostics, TraceError
from pytrace.core.script_options import TYPES, ScriptOption
from pytrace.core.source import Source
from pytrace.frontend.expand import parameters

# ---------------------------------------------------------------------------------------------- words
# .


FLAG = ScriptOption(("x", "failed"), False)
FASTER = ScriptOption(("faster",), False)
NUMBER = ScriptOption(("d", "min-ms"), 0, argument="MS")
SEVERAL = ScriptOption(("u", "user"), "", argument="USER", repeat=True)
SORT = ScriptOption(("s",), "all", argument="COLUMN", choices=("all", "reads"))
INTERVAL = ScriptOption(("interval",), 0, argument="interval", operand=True)
COUNT = ScriptOption(("count",), 0, argument="count", operand=True)
DB = ScriptOption(("db",), "", argument="db", operand=True, required=True)
PIDS = ScriptOption(("pids",), "", argument="pids", operand=True, repeat=True)


def words(*options: ScriptOption, operands: str = "", positional: bool = False) -> ScriptWords:
    return ScriptWords("tool", options, positional, operands=operands.split())


def test_letters_and_names() -> None:
    found = words(FLAG, NUMBER, INTERVAL)
    assert found.letter("x") == found.word("failed") == FLAG
    assert found.letter("f") is None
    assert found.word("x") is None
    assert found.word("interval") is None


def test_underscores_and_dashes_spell_the_same() -> None:
    first, second = ScriptOption(("flag_filter",), False), ScriptOption(("print-uid",), False)
    found = words(first, second)
    assert found.word("flag-filter") == found.word("flag_filter") == first
    assert found.word("print_uid") == second


def test_abbreviations() -> None:
    found = words(FLAG, FASTER, NUMBER)
    assert found.abbreviated("fai") == FLAG
    assert found.abbreviated("zzz") is None
    with pytest.raises(TraceError) as error:
        found.abbreviated("fa")
    assert error.value.hints == ("could be --failed, --faster",)


def test_negative_numbers_are_operands_unless_there_is_such_a_letter() -> None:
    assert words(FLAG).is_operand("-5")
    assert not words(FLAG).is_operand("-x")
    assert not words(ScriptOption(("5",), False)).is_operand("-5")
    assert not words().is_operand("-5")


def test_operands_are_placed_in_order() -> None:
    assert words(INTERVAL, COUNT, operands="5 -2").named(()) == (("interval", "5"), ("count", "-2"))
    assert words(INTERVAL, COUNT, operands="5").named(()) == (("interval", "5"),)
    assert words(INTERVAL, PIDS, operands="5 7 8").named(()) == (("interval", "5"), ("pids", "7\n8"))


SECONDS = ScriptOption(("interval",), 1, argument="interval", operand=True, type="interval")
OUTPUTS = ScriptOption(("count",), 0, argument="count", operand=True, type="0..")


@pytest.mark.parametrize(
    ("operands", "duration", "count"),
    [
        ("", 3, "3"),
        ("0.5", 3, "6"),
        ("2", 3, None),
        ("1 5", 3, None),
        ("soon", 3, None),
        ("1", 0, None),
        ("4", 3, None),
    ],
)
def test_intervals_that_fill_the_duration(operands: str, duration: float, count: str | None) -> None:
    found = words(SECONDS, OUTPUTS, operands=operands)
    found.fit_outputs(duration)
    assert [text for _, text in found.given.get("count", ())] == ([] if count is None else [count])


def test_other_operands_get_no_number_of_outputs() -> None:
    found = words(INTERVAL, PIDS)
    found.fit_outputs(3)
    assert not found.given


def test_operands_that_are_options_of_pytrace() -> None:
    pid = ScriptOption(("--pid",), "", argument="--pid", operand=True)
    found = words(pid, INTERVAL, operands="12 5")
    assert found.general(()) == [("pid", "12")]
    assert found.named(()) == (("interval", "5"),)
    assert found.synopsis() == "usage: pytrace tool [pid] [interval]"
    assert words(pid).general(["12"]) == [("pid", "12")]
    assert words(pid, INTERVAL).general(()) == words(INTERVAL, operands="5").general(()) == []
    pids = ScriptOption(("--pid",), "", argument="--pid", operand=True, repeat=True)
    assert words(pids, operands="1 2").general(()) == [("pid", "1"), ("pid", "2")]


def test_too_many_and_too_few_operands() -> None:
    with pytest.raises(TraceError) as error:
        words(FLAG, INTERVAL, operands="5 6").named(())
    assert error.value.message == "unexpected operand '6'"
    assert error.value.hints == ("usage: pytrace tool [options] [interval]",)
    with pytest.raises(TraceError) as error:
        words(DB).named(())
    assert error.value.message == "tool needs <db>"


def test_the_last_value_counts_and_several_are_joined() -> None:
    found = words(NUMBER, SEVERAL)
    assert not found.set(NUMBER, "-d", "1")
    assert not found.set(NUMBER, "-d", "1")
    assert found.set(NUMBER, "--min-ms", "2")
    assert not found.set(SEVERAL, "-u", "a")
    assert not found.set(SEVERAL, "-u", "b")
    assert found.named(()) == (("min-ms", "2"), ("user", "a\nb"))
    assert found.values() == {"min-ms": 2, "user": "a\nb"}


def test_named_parameters_after_the_dashes() -> None:
    found = words(FLAG, INTERVAL)
    assert found.named((("other", "1"), ("x", None))) == (("failed", None), ("other", "1"))
    assert found.values() == {"failed": True, "interval": 0}


def test_parameters_after_the_dashes_take_values_by_an_equals_sign() -> None:
    with pytest.raises(TraceError, match="option --min-ms needs an argument") as error:
        words(NUMBER).named((("min-ms", None),))
    assert error.value.hints == (f"write --min-ms={NUMBER.argument}",)


def test_wrong_values_are_named_as_they_were_written() -> None:
    found = words(NUMBER)
    found.set(NUMBER, "-d", "x")
    with pytest.raises(TraceError, match=r"^option -d needs an integer, not 'x'$"):
        found.named(())
    found = words(SORT)
    found.set(SORT, "-s", "read")
    with pytest.raises(TraceError, match="option -s needs one of all, reads, not 'read'") as error:
        found.named(())
    assert error.value.hints == ("did you mean 'reads'?",)
    with pytest.raises(TraceError, match=r"^operand interval needs an integer, not 'x'$"):
        words(INTERVAL, operands="x").named(())


def test_an_option_of_pytrace_with_the_same_letter_is_named() -> None:
    kind = ScriptOption(("f", "flag"), "", argument="FLAG", choices=("O_RDONLY", "O_RDWR"))
    for text, hint in (("json", "pytrace's own -f is --format here"), ("O_RDRW", "did you mean 'O_RDWR'?")):
        found = words(kind)
        found.taken["-f"] = "format"
        found.set(kind, "-f", text)
        with pytest.raises(TraceError) as error:
            found.named(())
        assert error.value.hints == (hint,)


def test_positional_parameters_stay_where_no_operands_are_declared() -> None:
    assert not words(FLAG, positional=True).takes_operands()
    assert words(FLAG).takes_operands()
    assert words(FLAG, INTERVAL, positional=True).takes_operands()
    assert not words().takes_operands()


def test_synopsis() -> None:
    assert words(FLAG, DB, PIDS).synopsis() == "usage: pytrace tool [options] <db> [pids...]"
    assert words(INTERVAL).synopsis() == "usage: pytrace tool [interval]"
    assert words(positional=True).synopsis() == "usage: pytrace tool [parameters] [-- parameters]"


def test_an_operand_behind_a_letter_that_pytrace_has_too_names_its_option() -> None:
    count = ScriptOption(("c", "count"), False)
    found = ScriptWords("tool", (count,), positional=False, taken={"-c": "cmd"}, operands=["ls /"])
    found.set(count, "-c", None)
    with pytest.raises(TraceError, match="unexpected operand 'ls /'") as error:
        found.named(())
    assert error.value.hints[0] == "pytrace's own -c is --cmd here"


# ---------------------------------------------------------------------------------------------- command parser
# The parser that commands share.


def _command(usage: str = "") -> Command:
    rows = (
        Option("far", "", "far", "", "a long way", ""),
        Option("shoes", "s", "shoes", "PAIR", "with these", "", repeat=True),
        Option("push", "", "push", "once", "push a cart", "", alone="keep", choices=("keep", "once")),
    )
    return Command("walk", "Walk.", "examples:\n  pytrace walk --far", rows, (Operand("PLACE", "where to"),), usage)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--fa home", "unknown option --fa"),  # it would mean another option once there is another
        ("--near home", "unknown option --near"),
        ("home away", "unexpected word 'away'"),
        ("", "PLACE is missing: where to"),
        ("home -s", "option -s needs an argument: PAIR"),
        ("home --far=x", "option --far takes no argument"),
    ],
)
def test_mistakes_are_errors_with_a_hint(words: str, message: str) -> None:
    with pytest.raises(TraceError) as found:
        _command().read(words.split())
    assert found.value.message == f"pytrace walk: {message}"
    assert found.value.hints[-1] == "pytrace walk --help describes it"


def test_options_of_commands_are_read_as_those_of_a_run() -> None:
    line = _command().read(["-sred", "--shoes", "-blue", "--push", "home", "--shoes=green"])
    assert (line.many("shoes"), line.text("push"), line.operands) == (["red", "-blue", "green"], "keep", ["home"])
    assert _command().read(["--push=once", "--", "--far"]).operands == ["--far"]
    line, rest = _command().read_own(["-p", "1", "--far", "x", "--", "-s", "y"])
    assert (line.flag("far"), rest) == (True, ["-p", "1", "x", "--", "-s", "y"])
    assert _command().read_first(["--far", "x", "--far"])[1] == ["x", "--far"]


@pytest.mark.parametrize(("usage", "first"), [("", "[options] PLACE"), ("[options]", "[options]")])
def test_help_has_the_examples_line_by_line(usage: str, first: str) -> None:
    text = _command(usage).help_text()
    assert text.startswith(f"usage: pytrace walk {first}\n")
    assert "\n  -s, --shoes PAIR              with these\n  --push[=once]                 push a cart\n" in text
    assert text.endswith("\nexamples:\n  pytrace walk --far\n")


# ---------------------------------------------------------------------------------------------- bcc letters
# pytrace.cli.tools: who types a letter as bcc has it is told the long name.


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["opensnoop", "-f", "O_WRONLY"], "-f is --format in every tool; bcc's -f of this tool is --flag_filter"),
        (["tcpconnect", "-c"], "-c is --cmd in every tool; bcc's -c of this tool is --count"),
        (["biolatency", "-e", "1"], "-e is --program in every tool; bcc's -e of this tool is --extension"),
        (["profile", "-df", "5"], "-f is --format in every tool; bcc's -f of this tool is --folded"),
        (["sslsnoop", "-o", "-p", "0"], "-o is --output in every tool; bcc's -o of this tool is --no-openssl"),
        (["tcprtt", "-p", "99999999"], "-p is --pid in every tool; bcc's -p of this tool is --lport"),
        (["stackcount", "-f", "c:malloc"], "-f is --format in every tool; bcc's -f of this tool is --folded"),
    ],
)
def test_errors_name_the_long_option(words: list[str], hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 1
    assert f"HINT: {hint}\n" in capsys.readouterr().err


def test_the_long_name_of_pytrace_needs_no_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["opensnoop", "--format", "O_WRONLY"]) == 1
    assert "bcc" not in capsys.readouterr().err


def test_a_tool_whose_letter_is_free_needs_no_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["filetop", "-f", "O_WRONLY"]) == 1
    assert "bcc" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("letter", "value", "works"),
    [
        ("c", "true", True),
        ("c", "1234", False),
        ("c", "true --help", False),
        ("c", "/bin/true", False),
        ("p", "self", True),
        ("p", "no", False),
        ("o", "60000", True),
        ("o", "lines.csv", False),
        ("v", "", True),
        ("q", "", True),
        ("f", "json", False),
    ],
)
def test_what_works_both_ways(letter: str, value: str, works: bool) -> None:
    assert GivenLetter(letter, "own", "word", value).works is works


def test_a_command_that_can_be_started_is_meant_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    for command, explains in (("true --help", False), ("/bin/true", False), ("1234", True), ("", True)):
        assert GivenLetter("c", "cmd", "count", command).explains_errors is explains
    for given in ("true x", "true", "1234"):
        assert main(["flame", "-c", given, "-o", "/nowhere/x.html"]) == 1
        assert "bcc" not in capsys.readouterr().err, "nobody named a tool"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("sslsnoop -c true", "NOTE: -c is --cmd in every tool; bcc's -c of this tool is --comm\n"),
        ("capable -v", "NOTE: -v is --verbose in every tool; bcc's -v of this tool is --unaudited\n"),
        ("memleak -o 500", "NOTE: -o is --output in every tool; bcc's -o of this tool is --older\n"),
        ("sslsnoop -q -c true", ""),
        ("sslsnoop --cmd true", ""),
        ("opensnoop -v -c true", ""),
    ],
)
def test_notes_where_no_error_tells(words: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    request.complete(read(words.split(), request.find))
    assert capsys.readouterr().err == told


def test_the_usage_names_the_letter_of_bcc(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["syscount", "-h"]) == 0
    said = capsys.readouterr().out
    assert "      --ppid PID                only children of process PID (or of several: 12,34) [bcc: -c]\n" in said
    assert "  -c, --cmd COMMAND" in said


# ---------------------------------------------------------------------------------------------- declarations


SCRIPT = """getopt("x|failed", false, "why");
getopt("s=COLUMN...", "é", "", ("é", "b"));
getopt("<n>", -1);
begin { print(getopt("x")); }
"""
OPTIONS = (
    ScriptOption(("x", "failed"), False, "why"),
    ScriptOption(("s",), "é", "", "COLUMN", ("é", "b"), repeat=True),
    ScriptOption(("n",), -1, "", "n", operand=True, required=True),
)


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache" / "pytrace" / "options"


def declared(text: str, path: Path | None = None) -> script_options.Declared:
    diagnostics = Diagnostics()
    found = script_options.of(Source("x", text, None if path is None else str(path)), diagnostics)
    assert not diagnostics.items
    return found


def no_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("the script was parsed")

    monkeypatch.setattr(parameters, "declared_by", fail)


def test_a_script_without_the_words_is_not_parsed(monkeypatch: pytest.MonkeyPatch, cache_folder: Path) -> None:
    no_parser(monkeypatch)
    assert declared("begin { print($1); }") == script_options.Declared((), True)
    assert not cache_folder.exists()


def test_the_second_time_gives_the_same_without_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    first = declared(SCRIPT)
    assert first == script_options.Declared(OPTIONS, False)
    no_parser(monkeypatch)
    assert declared(SCRIPT) == first


def test_positional_parameters_are_noticed() -> None:
    assert declared('getopt("x"); begin { print($1); }').positional
    assert declared('getopt("x"); begin { print($#); }').positional
    assert declared('getopt("x"); interval:ms:$1 { }').positional
    assert not declared('getopt("x"); getopt("[n]", 1); interval:ms:$n { }').positional


def test_old_entries_go(monkeypatch: pytest.MonkeyPatch, cache_folder: Path) -> None:
    monkeypatch.setattr(cache, "KEEP", 3)
    for number in range(6):
        declared(f'getopt("name{number}"); begin {{ }}')
    assert len(list(cache_folder.iterdir())) == 3


def test_a_relative_script_has_the_imports_of_its_own_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "lib.bt").write_text(f'getopt("{name}");')
        monkeypatch.chdir(tmp_path / name)
        found = declared('import "lib.bt"; begin { }', Path("a.bt"))
        assert [option.name for option in found.options] == [name]


def test_imported_files_are_watched(tmp_path: Path) -> None:
    library, script = tmp_path / "lib.bt", tmp_path / "a.bt"
    text = 'import "lib.bt";\ngetopt("a"); begin { }'
    assert [option.name for option in declared(text, script).options] if library.exists() else True
    library.write_text('getopt("b");')
    assert [option.name for option in declared(text, script).options] == ["a", "b"]
    library.write_text('getopt("bb"); getopt("cc");')
    assert [option.name for option in declared(text, script).options] == ["a", "bb", "cc"]
    library.unlink()
    assert [option.name for option in declared(text, script).options] == ["a"]


def test_new_files_of_an_imported_directory_count(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    text = 'import "lib";\nbegin { }'
    assert declared(text, tmp_path / "a.bt").options == ()
    (tmp_path / "lib" / "x.bt").write_text('getopt("b");')
    os.utime(tmp_path / "lib")
    assert [option.name for option in declared(text, tmp_path / "a.bt").options] == ["b"]


def test_a_broken_entry_is_made_again(cache_folder: Path) -> None:
    declared(SCRIPT)
    (entry,) = cache_folder.iterdir()
    for content in (b"", b"x\n{}", entry.read_bytes()[:-5], entry.read_bytes().partition(b"\n")[0] + b"\n[1]"):
        entry.write_bytes(content)
        assert declared(SCRIPT).options == OPTIONS
        assert b"failed" in entry.read_bytes()


def test_other_code_makes_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    declared(SCRIPT)
    monkeypatch.setattr(script_options, "_code_identity", lambda: b"other")
    no_parser(monkeypatch)
    with pytest.raises(AssertionError, match="was parsed"):
        declared(SCRIPT)


def test_mistakes_are_reported_each_time() -> None:
    for _ in range(2):
        diagnostics = Diagnostics()
        script_options.of(Source("x", 'getopt("x y"); begin { }'), diagnostics)
        assert len(diagnostics.errors) == 1


def test_times_have_units_and_decimals() -> None:
    entry = TYPES["seconds"].entry
    texts = ("10ms", "1.5s", "7us", "3ns", "2", "0.25", "1.5m", "1_000ms")
    assert [entry(text) for text in texts] == [
        10**7, 15 * 10**8, 7000, 3, 2 * 10**9, 25 * 10**7, 90 * 10**9, 10**9
    ]  # fmt: skip
    assert [entry(text) for text in ("", "s", ".", "1.5.2s", "1x", "-1s", "1e3", "nan")] == [None] * 8
