"""Tests of checking options and finding the script."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytrace.cli import request
from pytrace.cli.options import read
from pytrace.core.diagnostics import TraceError
from pytrace.core.options.run_options import Address, Budget, Rate, RunOptions
from pytrace.results import formats
from pytrace.results.formats import table
from tests.support.rows import each_row


@each_row(
    ("argv", "part"),
    [
        (["-f", "xml"], "-f does not accept 'xml'"),
        (["-f", "json:x"], "format json has no option 'x'"),
        (["-f", "folded:x"], "format folded has no option 'x'"),
        (["-f", "folded", "--test"], "-f folded is for rows and maps"),
        (["-f", "csv", "--bench"], "-f csv is for rows and maps"),
        (["-B", "some"], "-B does not accept 'some'"),
        (["-p", "x1"], "needs a process id"),
        (["-p", "0"], "out of range"),
        (["-p", "99999999"], "out of range"),
        (["-p", "1", "-c", "ls"], "cannot be used together"),
        (["-c", " "], "needs a command"),
        (["--follow"], "needs -p or -c"),
        (["-k", "-k"], "no longer"),
        (["-k", "--no-warnings"], "cannot be used together"),
        (["--mode", "fast"], "unknown mode"),
        (["--test", "--bench"], "only one mode"),
        (["-d", "nothing"], "unknown debug stage"),
        (["--no-feature", "magic"], "unknown feature"),
        (["--save", ""], "--save needs the name of a file"),
        (["--save", "-"], "--save needs the name of a file"),
        (["-o", "x.png"], "no format has the suffix '.png' of 'x.png'"),
        (["-o", "x.json.gz"], "no format has the suffix '.gz'"),
        (["--save-every", "often", "x"], "--save-every needs a number of seconds, not 'often'"),
        (["--save-every", "0", "x"], "needs 0.1 seconds at least"),
        (["--save-every", "nan", "x"], "needs 0.1 seconds at least"),
        (["--save-every", "inf", "x"], "needs 0.1 seconds at least"),
        (["--save-every", "1", ""], "needs the name of a directory"),
        (["--save", "x", "--test"], "not for test mode"),
        (["--save-every", "1", "x", "--fmt"], "not for format mode"),
        (["--max-memory", "much"], "--max-memory: 'much' is not an amount of memory"),
        (["--max-memory", "0"], "--max-memory: '0' is no memory"),
        (["--max-memory", "101%"], "--max-memory: '101%' is more than all memory"),
        (["--watchdog", "x"], "--watchdog needs 0, or a number of seconds of 0.5 at least, not 'x'"),
        (["--watchdog", "0.1"], "--watchdog needs 0, or a number of seconds of 0.5 at least, not '0.1'"),
        (["--watchdog", "nan"], "--watchdog needs 0, or a number of seconds of 0.5 at least, not 'nan'"),
        (["--watchdog", "-1"], "--watchdog needs 0, or a number of seconds of 0.5 at least, not '-1'"),
        (["--budget", "1"], "--budget needs a percentage, not '1'"),
        (["--budget", "x%"], "--budget needs a percentage"),
        (["--budget", "0%"], "--budget needs a percentage"),
        (["--budget", "1%cpu"], "--budget needs a percentage"),
        (["--budget", "1%", "--over-budget", "stop"], "--over-budget does not accept 'stop'"),
        (["--over-budget", "detach"], "--over-budget needs --budget"),
        (["--max-rate", "fast"], "--max-rate needs a number of hits per second, not 'fast'"),
        (["--max-rate", "uprobe:/bin/x:f"], "--max-rate needs a number of hits per second"),
        (["--max-rate", "0/s"], "--max-rate needs a number of hits per second"),
        (["--max-rate", "nan/s"], "--max-rate needs a number of hits per second"),
        (["--metrics", "9435"], "--metrics needs an address and a port, not '9435'"),
        (["--metrics", ":9435", "--test"], "--metrics is for a run of the script, not for test mode"),
    ],
)
def test_refused_options(argv: list[str], part: str) -> None:
    with pytest.raises(TraceError, match=part):
        request.run_options(read(argv))


def test_formats_are_named_where_there_is_no_such(tmp_path: Path) -> None:
    with pytest.raises(TraceError) as found:
        request.run_options(read(["-f", "foldd"]))
    assert found.value.hints[0] == "did you mean 'folded'?"
    assert {"text", "json", "csv", *(row.name for row in table.FORMATS)} <= set(
        found.value.hints[1].removeprefix("it takes ").split(", ")
    )


@each_row(
    ("argv", "form"),
    [
        ([], "text"),
        (["-o", "x"], "text"),
        (["-o", "-"], "text"),
        (["-o", "x.bt.log"], "text"),
        (["-o", "x.unknown"], "text"),
        (["-o", "x.json"], "json"),
        (["-o", "x.2026.JSON"], "json"),
        (["-o", "x.y/z.csv"], "csv"),
        (["-o", "x.speedscope.json"], "speedscope"),
        (["-o", "x.pb.gz"], "pprof"),
        (["-o", "x.folded", "-f", "json"], "json"),
        (["-o", "x.json", "-f", "folded:process"], "folded:process"),
        (["-o", "x.svg", "-f", "text"], "text"),
        (["-o", "x.json", "--fmt"], "text"),
        (["-o", "x.pb.gz", "--bench"], "text"),
    ],
)
def test_the_format_is_that_of_f_or_of_the_file(argv: list[str], form: str) -> None:
    assert request.run_options(read(argv)).format == form


@pytest.mark.parametrize("argv", [[], ["-o", "x.log"], ["-o", "x.json"], ["-f", "csv", "-o", "x"], ["-f", "json"]])
def test_ordinary_runs_do_without_the_table(argv: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pytrace.results.formats.table", None)
    monkeypatch.delattr(formats, "table")
    request.run_options(read(argv))
    with pytest.raises(ImportError):
        request.run_options(read(["-o", "x.folded"]))


def test_common_suffixes_stand_for_what_the_table_says() -> None:
    for suffix, name in request._BY_SUFFIX.items():
        row = table.by_suffix(f"x{suffix}")
        assert row is None or row.name == name


def test_stages_have_two_sets_of_names() -> None:
    assert request.run_options(read(["-d", "codegen,verifier"])).debug == {"ir", "verifier"}
    assert "asm" in request.run_options(read(["-d", "all"])).debug


def test_saving() -> None:
    options = request.run_options(read(["--save", "out", "--save-every", "2.5", "folder"]))
    assert (options.save, options.save_every) == ("out", (2.5, "folder"))


@pytest.mark.parametrize(("words", "seconds"), [([], None), (["--watchdog", "0"], 0), (["--watchdog", "2.5"], 2.5)])
def test_watchdog(words: list[str], seconds: float | None) -> None:
    assert request.run_options(read(words)).watchdog == seconds


def test_max_memory() -> None:
    assert request.run_options(read(["--max-memory", "10%"])).max_memory == "10%"
    assert request.run_options(read([])).max_memory == ""


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ([], None),
        (["--budget", "1%"], Budget(0.01)),
        (["--budget", "2.5%machine"], Budget(0.025, machine=True)),
        (["--budget", "200%", "--over-budget", "detach"], Budget(2.0, action="detach")),
    ],
)
def test_budget(argv: list[str], expected: Budget | None) -> None:
    run = request.run_options(read(argv))
    assert run.budget == expected
    sampled = expected is not None and expected.action == "sample"
    assert request.compile_options(read(argv), run, None).sampled is sampled


def test_rates() -> None:
    line = read(["--max-rate", "1000/s", "--max-rate", "t:a=b:*=0.5/s", "--max-rate", "7"])
    run = request.run_options(line)
    assert run.rates == (Rate(1000.0), Rate(0.5, "t:a=b:*"), Rate(7.0))
    assert request.compile_options(line, run, None).limited
    assert not request.compile_options(read([]), request.run_options(read([])), None).limited


def test_metrics() -> None:
    assert request.run_options(read(["--metrics", "[::1]:9435"])).metrics == Address("::1", 9435)
    assert request.run_options(read([])).metrics is None


def test_a_run_knows_its_script(tmp_path: Path) -> None:
    path = tmp_path / "x.bt"
    path.write_text("begin { }")
    for words, name in (([str(path)], str(path)), (["-e", "begin { }"], "-e")):
        line = read([*words, "1", "--", "--n=3", "--flag"])
        options = request.of_script(request.run_options(line), request.script(line), line)
        assert (options.script, options.text, options.parameters) == (name, "begin { }", ("1", "--n=3", "--flag"))


def test_parameters_before_and_after_the_dashes() -> None:
    script = request.script(read(["-e", "begin {}", "1", "two", "--", "--n=3", "four", "--flag", "--help"]))
    assert script.source.name == "stdin"
    assert script.positional == ("1", "two", "four")
    assert script.named == (("n", "3"), ("flag", None))
    assert script.wants_help


def test_a_file_is_the_first_operand(tmp_path: Path) -> None:
    path = tmp_path / "x.bt"
    path.write_bytes(b"#!/usr/bin/env pytrace\nbegin { print(\"\xff\"); }")
    script = request.script(read([str(path), "7"]))
    assert script.source.name == str(path)
    assert script.positional == ("7",)
    assert script.source.text.encode("utf-8", "surrogateescape").endswith(b'\xff"); }')


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "x.bt"
    path.write_bytes(b"\xef\xbb\xbf#!/usr/bin/env pytrace\nbegin { }")
    assert request.script(read([str(path)])).source.text.startswith("#!")


def test_missing_scripts(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no script given"):
        request.script(read([]))
    with pytest.raises(TraceError, match="cannot read script"):
        request.script(read([str(tmp_path / "none")]))
    with pytest.raises(TraceError, match="is a directory"):
        request.script(read([str(tmp_path)]))
    with pytest.raises(TraceError) as caught:
        request.script(read(["begin { exit(); }"]))
    assert any("-e" in hint for hint in caught.value.hints)


def test_checks_level_follows_the_warning_options() -> None:
    levels = []
    for argv in (["--no-warnings"], [], ["-k"]):
        line = read([*argv, "-e", "begin {}"])
        levels.append(request.compile_options(line, request.run_options(line), request.script(line)).checks)
    assert levels == [0, 1, 2]


def test_the_format_of_the_script_counts_where_the_command_line_names_none() -> None:
    wanted = "folded:ordered"
    assert request.in_format(RunOptions(), wanted).format == wanted
    assert request.in_format(RunOptions(format="folded"), wanted).format == wanted  # by the suffix of -o
    assert request.in_format(RunOptions(), "csv").format == "csv"
    for options in (RunOptions(format="json"), RunOptions(format="pprof"), RunOptions(mode="test")):
        assert request.in_format(options, wanted) == options
    assert request.in_format(RunOptions(), "") == RunOptions()
    with pytest.raises(TraceError, match="-f does not accept 'xml'"):
        request.in_format(RunOptions(), "xml")
