"""What fits at the cursor of a command line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytrace.cli.complete import text as answer

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
    assert {"loads", "show", "merge", ":files"} <= set(texts("pytrace "))
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
