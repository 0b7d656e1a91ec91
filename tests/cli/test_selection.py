"""Options that select processes, and --duration."""

from __future__ import annotations

import os

import pytest

from pytrace.cli import request, selection
from pytrace.cli.options import read
from pytrace.core.diagnostics import TraceError
from pytrace.core.options.process_filters import FilterShape, ProcessFilters


def test_nothing_is_selected() -> None:
    assert selection.filters(read([])) == ProcessFilters()


@pytest.mark.parametrize("argv", [["-p", "5,6", "-p7"], ["--pid", "5", "-p", "6, 7,5"]])
def test_several_processes(argv: list[str]) -> None:
    line = read(argv)
    assert selection.filters(line).pids == (5, 6, 7)
    run = request.run_options(line)
    options = request.compile_options(line, run, None)
    assert (run.filters.pids, options.filters.pid, options.shape.pids) == ((5, 6, 7), 5, 4)


def test_all_filters() -> None:
    argv = ["--comm", "a", "--comm=b", "--uid", "root", "--uid", "7", "--netns", "/proc/self/ns/net"]
    found = selection.filters(read([*argv, "--exec-wait", "/usr/bin/a-rather-long-name"]))
    own = os.stat("/proc/self/ns/net").st_ino
    assert found == ProcessFilters((), (0, 7), ("a", "b"), (), (own,), "a-rather-long-n")
    run = request.run_options(read([*argv, "--exec-wait", "x"]))
    assert run.follow
    shape = request.compile_options(read(argv), run, None).shape
    assert shape == FilterShape(uids=2, comms=2, namespaces=1, awaited=True)


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        (["-p", "1,x"], "needs a process id, not 'x'"),
        (["-p", "1,,2"], "needs a process id, not ''"),
        (["-p", "1", "--exec-wait", "ls"], "cannot be used together"),
        (["--exec-wait", "/"], "needs the name of a program"),
        (["--comm", ""], "needs the name of a command"),
        (["--comm", "x" * 16], "the kernel keeps 15"),
        (["--uid", "nobody-at-all"], "there is no user 'nobody-at-all'"),
        (["--uid", "4294967295"], "out of range"),
        (["--netns", "no-such-namespace"], "there is no network namespace"),
        *((["--comm", "x", *(f"--comm=c{number}" for number in range(64))], "64 values at most") for _ in range(1)),
    ],
)
def test_wrong_values(argv: list[str], part: str) -> None:
    with pytest.raises(TraceError, match=part):
        selection.filters(read(argv))


@pytest.mark.parametrize(("text", "seconds"), [("2", 2.0), ("0.25", 0.25), ("1e1", 10.0)])
def test_durations(text: str, seconds: float) -> None:
    assert selection.duration(read(["--duration", text])) == seconds


@pytest.mark.parametrize("text", ["", "x", "0", "-1", "inf", "nan", "5s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(TraceError, match="--duration needs a number of seconds"):
        selection.duration(read(["--duration", text]))
