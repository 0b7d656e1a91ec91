"""What fits at the cursor of a command line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytrace.cli import completion
from pytrace.cli.completion import answer, split
from pytrace.cli.options import OPTIONS

SCRIPT = """\
getopt("x|failed", false, "only failed");
getopt("s|sort=COLUMN", "all", "order", ("all", "reads"));
getopt("<db>", "", "which", ("mysql", "postgres"));
begin { exit(); }
"""


def texts(line: str, shell: str = "zsh") -> list[str]:
    return [text.partition("\t")[0] for text in answer(shell, line).splitlines()]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "own.bt"
    path.write_text(SCRIPT)
    return path


def test_first_words_are_tools_subcommands_and_files() -> None:
    assert {"loads", "show", "merge", "flame", ":files"} <= set(texts("pytrace "))
    assert "loads\t" in answer("fish", "pytrace loa")
    assert texts("pytrace loa") == ["loads", ":files"]


def test_options_of_a_script_come_first_and_take_letters(script: Path) -> None:
    found = texts(f"pytrace {script} -")
    assert found[:4] == ["--failed", "-x", "--sort", "-s"]
    assert found.count("-s") == 1
    assert "--format" in found


def test_choices_of_options_and_operands(script: Path) -> None:
    assert texts(f"pytrace {script} --sort ") == ["all", "reads"]
    assert texts(f"pytrace {script} --sort=r") == ["--sort=reads"]
    assert texts(f"pytrace {script} -xs r") == ["reads"]
    assert texts(f"pytrace {script} -x my") == ["mysql"]
    assert texts(f"pytrace {script} mysql ") == [":files"]


TYPED = """\
getopt("C|cpu=CPU:cpu", -1, "one CPU");
getopt("i|interfaces=NAMES:interface,...", "", "interfaces");
getopt("s|signal=NAME:signal", 15, "a signal");
getopt("P|of=PID:pid", 0, "a process");
getopt("t|text=TEXT", "", "any text");
begin { exit(); }
"""


def test_values_by_the_type_of_an_option(tmp_path: Path) -> None:
    path = tmp_path / "typed.bt"
    path.write_text(TYPED)
    assert "0" in texts(f"pytrace {path} -C ")
    assert texts(f"pytrace {path} --interfaces l") == ["lo"]
    assert "lo,lo" in texts(f"pytrace {path} --interfaces lo,l")
    assert texts(f"pytrace {path} -s SIGTE") == ["SIGTERM"]
    assert str(os.getpid()) in texts(f"pytrace {path} -P ")
    assert texts(f"pytrace {path} -t ") == [":files"]


def test_arguments_of_options_of_pytrace() -> None:
    assert {"json", "folded"} <= set(texts("pytrace -f "))
    assert str(os.getpid()) in texts("pytrace -p ")
    assert f"1,{os.getpid()}" in texts("pytrace -p 1,")
    assert "root" in texts("pytrace --uid ro")
    assert texts("pytrace -o ") == [":files"]
    assert texts("pytrace --cgroup ") == [":folders"]
    assert texts("pytrace -B li") == ["line"]


def test_bash_gets_the_part_that_it_replaces() -> None:
    assert texts("pytrace --uid=roo", "bash") == ["root"]
    assert texts("pytrace -l interval:m", "bash") == ["ms:"]
    assert texts("pytrace -e 'interval:m", "bash") == ["interval:ms:", "interval:ms: "]


def test_bash_does_not_close_a_quote() -> None:
    assert texts("pytrace -e 'begin { strft", "bash") == ["begin { strftime(", "begin { strftime( "]
    assert texts('pytrace -e "begin { strft', "bash") == ["begin { strftime(", "begin { strftime( "]
    assert texts("pytrace -e begin\\ {\\ strft", "bash") == ["begin { strftime("]
    assert texts("pytrace -o '", "bash") == [":files"]


def test_subcommands() -> None:
    assert "--map" in texts("pytrace show --")
    assert texts("pytrace show ") == [":files"]


MISTAKES = ("pytrace --nosuch ", "pytrace -p 1 -e '", "", "pytrace show x --map @", "pytrace -l nosuch:")


@pytest.mark.parametrize("line", MISTAKES)
def test_nothing_is_said_about_mistakes(line: str, capfd: pytest.CaptureFixture[str]) -> None:
    answer("bash", line)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("line", "words", "current", "quote"),
    [
        ("pytrace ", ("pytrace",), "", ""),
        ("pytrace run", ("pytrace",), "run", ""),
        ("pytrace -e 'k:vfs_read { @a", ("pytrace", "-e"), "k:vfs_read { @a", "'"),
        ("pytrace -e 'a b' -", ("pytrace", "-e", "a b"), "-", ""),
        ('pytrace -e "say \\"x', ("pytrace", "-e"), 'say "x', '"'),
        ("pytrace a\\ b", ("pytrace",), "a b", ""),
        ("pytrace ''", ("pytrace",), "", ""),
        ("pytrace '' x", ("pytrace", ""), "x", ""),
        ("pytrace --cmd='a b", ("pytrace",), "--cmd=a b", "'"),
    ],
)
def test_words_are_those_of_a_shell(line: str, words: tuple[str, ...], current: str, quote: str) -> None:
    found = split(line)
    assert (found.words, found.current, found.quote) == (words, current, quote)


def test_bash_replaces_what_follows_a_break_outside_of_quotes() -> None:
    assert split("pytrace -l t:sched:s").after_break() == len("t:sched:")
    assert split("pytrace -e 't:sched:s").after_break() == 0
    assert split("pytrace run").after_break() == 0
    assert split("pytrace --cmd='a b").after_break() == len("--cmd=")


def test_all_options_that_are_shown_are_offered() -> None:
    offered = set(texts("pytrace -"))
    assert {f"--{row.long}" for row in OPTIONS if not row.hidden} <= offered
    assert not {f"--{row.long}" for row in OPTIONS if row.hidden} & offered


def test_values_of_options() -> None:
    assert "--buffering=line" in answer("fish", "pytrace --buffering=l")
    assert {"sample", "detach"} <= set(texts("pytrace --over-budget ", "bash"))
    for row in OPTIONS:
        # An unknown word for what an argument names raises.
        next(completion._arguments(row, ""), None)


def test_commands_are_programs_and_their_arguments_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for name, mode in (("folder/program", 0o755), ("folder/text", 0o644), ("found", 0o755), (".hidden", 0o644)):
        (tmp_path / name).touch(mode)
    monkeypatch.setenv("PATH", str(tmp_path / "folder"))
    assert texts("pytrace -c ") == ["program", "folder/"]
    assert texts("pytrace -c folder/") == ["folder/program"]
    assert texts("pytrace -c ./f") == ["./folder/", "./found"]
    assert texts("pytrace -c 'program ") == ["program folder/", "program found"]
    assert texts("pytrace -c 'program folder/t") == ["program folder/text"]
    assert texts("pytrace -c 'program .h") == ["program .hidden"]
    assert texts("pytrace --cmd='program fou") == ["--cmd=program found"]
    assert texts("pytrace --cmd='program fou", "bash") == ["program found", "program found "]


def test_names_of_others_have_no_control_characters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(completion, "_processes", lambda: iter([("12", "a\n13\tb\x1b[2J"), ("1\x1b", "x")]))
    assert answer("zsh", "pytrace -p 1") == "12\ta\\x0a13\\x09b\\x1b[2J\n"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two\nlines").touch()
    assert "two" not in answer("bash", "pytrace -c 'cat t")


@pytest.mark.parametrize(
    "name", ["fox;reboot", "fox$(id)", "fox`id`", "fox a", "fox'", 'fox"', "fox&", "fox|sh", "fox>x", "fox\n", "fox\\"]
)
def test_names_of_processes_and_symbols_cannot_run_a_command(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A candidate is put on the line that the user has run next."""
    monkeypatch.setattr(completion, "_processes", lambda: [("5", name), ("6", "foxes")])
    assert texts("pytrace --comm fo", "bash") == ["foxes"]
    assert texts("pytrace -p 5", "bash") == ["5"]
    monkeypatch.setattr(completion, "program_candidates", lambda current, _: [current + name, current + "es"])
    for quote, harmful in (("", ";$`'\"&|> \n\\"), ('"', '$`"\n\\'), ("'", "'\n")):
        expected = {"xes"} if set(name) & set(harmful) else {f"x{name}", "xes"}
        assert {text.rstrip() for text in texts(f"pytrace -e {quote}x", "bash")} == expected
