"""pytrace.cli.scripts.bcc_letters: who types a letter as bcc has it is told the long name."""

from __future__ import annotations

import pytest

from pytrace.cli import script_finder
from pytrace.cli.main import main
from pytrace.cli.options import read
from pytrace.cli.scripts.bcc_letters import GivenLetter


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
    script_finder.complete(read(words.split(), script_finder.find))
    assert capsys.readouterr().err == told


def test_the_usage_names_the_letter_of_bcc(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["syscount", "-h"]) == 0
    said = capsys.readouterr().out
    assert "      --ppid PID                only children of process PID (or of several: 12,34) [bcc: -c]\n" in said
    assert "  -c, --cmd COMMAND" in said
