"""Tests of the option table and of reading argv by it."""

from __future__ import annotations

import pytest

from pytrace.cli.options import OPTIONS, help_text, read
from pytrace.core.diagnostics import TraceError


def test_forms_of_options_and_operands() -> None:
    line = read(["-vq", "-fjson", "--output=x", "-e", "begin {}", "1", "--", "--n=2", "-x"])
    assert line.flag("verbose")
    assert line.flag("quiet")
    assert line.text("format") == "json"
    assert line.text("output") == "x"
    assert line.text("program") == "begin {}"
    assert line.operands == ["1"]
    assert line.after == ["--n=2", "-x"]


def test_options_after_operands_and_a_lone_dash() -> None:
    line = read(["-", "5", "-k"])
    assert line.operands == ["-", "5"]
    assert line.many("warnings") == [""]


def test_unambiguous_abbreviations() -> None:
    assert read(["--quie"]).flag("quiet")
    assert read(["--dry"]).flag("dry_run")


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        (["--nosuch"], "unknown option --nosuch"),
        (["-z"], "unknown option -z"),
        (["--debug"], "needs an argument"),
        (["-e"], "needs an argument"),
        (["--quiet=1"], "takes no argument"),
        (["--no"], "ambiguous"),
        (["--save-every"], "needs two arguments: SECONDS DIR"),
        (["--save-every", "5"], "needs two arguments: SECONDS DIR"),
        (["--save-every=5"], "needs two arguments: SECONDS DIR"),
        (["--save-every", "5", "-e", "begin { }"], "needs two arguments: SECONDS DIR"),
    ],
)
def test_mistakes(argv: list[str], part: str) -> None:
    with pytest.raises(TraceError, match=part):
        read(argv)


@pytest.mark.parametrize("words", [["--save-every", "5"], ["--save-every=5"]])
def test_an_option_with_two_arguments(words: list[str]) -> None:
    line = read(["--save-every", "9", "x", *words, "folder", "script.bt", "-q"])
    assert line.many("save_every") == ["5", "folder"]
    assert line.operands == ["script.bt"]
    assert line.flag("quiet")
    assert list(line.repeated) == ["--save-every"]
    assert "--save-every SECONDS DIR" in help_text()


def test_options_mean_what_they_say_the_last_time() -> None:
    line = read(["-f", "json", "-e", "begin { }", "-f", "text", "-e", "end { }"])
    assert (line.text("format"), line.text("program")) == ("text", "end { }")


def test_unknown_options_get_suggestions() -> None:
    with pytest.raises(TraceError) as caught:
        read(["--quite"])
    assert any("--quiet" in hint for hint in caught.value.hints)


@pytest.mark.parametrize("word", ["-5", "--interval=5"])
def test_parameters_of_the_script_are_not_options(word: str) -> None:
    with pytest.raises(TraceError) as caught:
        read(["script.bt", word])
    assert any("go after --" in hint for hint in caught.value.hints)
    assert read(["script.bt", "--", word]).after == [word]


def test_repeatable_options_keep_their_order() -> None:
    assert read(["-I", "a", "-Ib"]).many("include_directories") == ["a", "b"]


def test_help_names_every_option() -> None:
    text = help_text()
    for row in OPTIONS:
        if not row.hidden:
            assert (f"--{row.long}" if row.long else f"-{row.short}") in text
    assert all(len(line) <= 110 for line in text.splitlines())


def test_spellings_are_unique() -> None:
    shorts = [row.short for row in OPTIONS if row.short]
    longs = [row.long for row in OPTIONS if row.long]
    assert len(shorts) == len(set(shorts))
    assert len(longs) == len(set(longs))
