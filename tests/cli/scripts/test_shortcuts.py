from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from pytrace.cli.options import SHORTCUTS
from pytrace.cli.scripts import shortcuts
from pytrace.cli.scripts.shortcuts import EXPANSIONS, expand
from pytrace.core.diagnostics import TraceError


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("-p 12 10 -o x.svg", "profile -F 99 -p 12 10 -o x.svg"),
        ("-F 199 -c ./run -o x.html", "profile -F 199 -c ./run -o x.html"),
        ("--off-cpu -U 5 -o x.svg", "offcputime -U 5 -o x.svg"),
        ("-p 12 --python 10 -o x.svg", "profile -F 99 -p 12 --python 10 -o x.svg"),
        ("--wakeup -o x.svg -p 3", "offwaketime -p 3 -o x.svg"),
        ("--alloc -c ls 3 -o x.svg", "mallocs -c ls --duration 3 -o x.svg"),
        ("-e c:malloc -p 3 0.5 -o x.svg", "stackcount c:malloc -p 3 -D 0.5 -o x.svg"),
        # A number after an option is the option's argument.
        ("-e c:malloc -p 3 -o x.svg", "stackcount c:malloc -p 3 -o x.svg"),
        ("-f folded", "profile -F 99 -f folded"),
        ("--folded", "profile -F 99 --folded"),
    ],
)
def test_a_shortcut_is_the_command_line_of_a_tool(words: str, expected: str) -> None:
    assert expand(["flame", *words.split()]) == expected.split()


def test_page_faults_are_counted_by_a_script() -> None:
    command = expand(["flame", "--faults", "-p", "3", "5", "-o", "x.svg"])
    assert command[0] == "-e"
    assert "software:page-faults:1" in command[1]
    assert command[2:] == ["-p", "3", "--duration", "5", "-o", "x.svg"]
    command = expand(["flame", "--faults", "-c", "./run", "-o", "x.svg"])
    assert command[2:] == ["-c", "./run", "--follow", "-o", "x.svg"], "not those of the whole machine"


def test_stacks_are_whole_without_frame_pointers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTRACE_STACK_UNWINDING", raising=False)
    monkeypatch.delenv("PYTRACE_PYTHON_FRAMES", raising=False)
    expand(["flame", "-o", "x.svg"])
    assert os.environ["PYTRACE_STACK_UNWINDING"] == "auto"
    assert os.environ["PYTRACE_PYTHON_FRAMES"] == "true"
    monkeypatch.setenv("PYTRACE_STACK_UNWINDING", "frame_pointers")
    expand(["flame", "-o", "x.svg"])
    assert os.environ["PYTRACE_STACK_UNWINDING"] == "frame_pointers", "the user's word"


def test_without_a_file_one_is_named() -> None:
    command = expand(["flame", "-p", "3"])
    assert command[-2] == "-o"
    assert command[-1].startswith("flame-")
    assert command[-1].endswith(".html")


def test_names_that_are_free_and_that_nobody_else_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(shortcuts.time, "strftime", lambda form: form.replace("%Y%m%d-%H%M%S", "NOW"))
    names = []
    for _ in range(2):
        names.append(expand(["heatmap", "biolatency"])[-1])
        Path(names[-1]).with_suffix(".snapshots").mkdir()
    assert names == ["heatmap-NOW.html", "heatmap-NOW-2.html"]
    tmp_path.chmod(0o1777)
    shared = {expand(["flame"])[-1] for _ in range(3)}
    assert len(shared) == 3
    assert all(re.fullmatch(r"flame-NOW-[0-9a-f]{8}\.html", name) for name in shared)


@pytest.mark.parametrize("words", ["-F 9 --alloc", "-F 9 --faults", "--alloc --faults", "--off-cpu -e c:malloc", "-F"])
def test_options_that_exclude_each_other_are_an_error(words: str) -> None:
    with pytest.raises(TraceError, match="pytrace flame: "):
        expand(["flame", *words.split()])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("biolatency -o x.html 10", "biolatency 10 --save-every 1 x.snapshots -o x.html"),
        ("--every 0.5 -o a/x.htm -e PROGRAM", "-e PROGRAM --save-every 0.5 a/x.snapshots -o a/x.htm"),
    ],
)
def test_a_heat_map_is_a_run_that_saves_snapshots(words: str, expected: str) -> None:
    assert expand(["heatmap", *words.split()]) == expected.split()


@pytest.mark.parametrize(("words", "message"), [("", "needs a tool"), ("x.bt -o x.csv", "FILE.svg, not 'x.csv'")])
def test_a_heat_map_of_nothing_is_an_error(words: str, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        expand(["heatmap", *words.split()])


def test_all_names_are_shortcuts() -> None:
    assert list(EXPANSIONS) == list(SHORTCUTS)
