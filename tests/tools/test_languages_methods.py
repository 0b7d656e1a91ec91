"""Tools about programs in languages: ucalls, uflow, ugc, uobjnew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.kernel_features import needs
from tests.support.tools import ToolRun, check_columns
from tests.support.workloads import languages
from tests.tools.conftest import Tool

LANGUAGES = [
    "python",
    pytest.param("php", marks=pytest.mark.needs("php")),
    pytest.param("ruby", marks=pytest.mark.needs("ruby")),
]
SEPARATOR = {"python": ":", "php": "", "ruby": "."}


def calls(run: ToolRun, method: str, column: str = "CALLS") -> float:
    """A number of the row of a method, whatever class or file it is in."""
    found = [row for row in run.rows if row["METHOD"].endswith(method)]
    assert len(found) == 1, run.result
    return float(found[0][column])


# ------------------------------------------------------------------------------------------------ ucalls


@pytest.mark.tool("ucalls")
@pytest.mark.parametrize("language", LANGUAGES)
def test_calls_and_their_times(tool: Tool, folder: Path, language: str) -> None:
    needs("usdt")
    mark = SEPARATOR[language]
    with languages.program(folder, language, calls=5) as program:
        run = tool("ucalls", "-L", "-l", language, program.pid, work=lambda _: program.work())
    check_columns(run)
    assert calls(run, f"{mark}outer") == calls(run, f"{mark}inner") == 5
    assert calls(run, f"{mark}outer", "TIME(us)") > calls(run, f"{mark}inner", "TIME(us)") > 0
    times = [row["TIME(us)"] for row in run.rows]
    assert times == sorted(times, reverse=True)


@pytest.mark.tool("ucalls")
@pytest.mark.needs("php")
def test_most_frequent_calls_of_any_language(tool: Tool, folder: Path) -> None:
    needs("usdt")
    with languages.program(folder, "php", calls=50) as program:
        run = tool("ucalls", "-T", 2, "-p", program.pid, work=lambda _: program.work())
    assert [(row["METHOD"], row["CALLS"]) for row in run.rows] == [("inner", 50), ("outer", 50)]
    with languages.program(folder, "php", calls=3) as program:
        text = tool("ucalls", program.pid, 1, form="text", work=lambda _: program.work(), until="outer")
    assert "METHOD CALLS" in " ".join(text.stdout.split())
    assert text.stdout.count("outer") == 1


@pytest.mark.tool("ucalls")
@pytest.mark.needs("php")
def test_system_calls_beside_methods(tool: Tool, folder: Path) -> None:
    needs("usdt", "syscalls")
    with languages.program(folder, "php", calls=5) as program:
        run = tool("ucalls", "-SLm", program.pid, work=lambda _: program.work())
        none = tool("ucalls", "-S", "-l", "none", "-p", os.getpid(), work=lambda _: os.sync())
    assert calls(run, "outer") == 5
    assert calls(run, "write") >= 1
    assert calls(run, "outer", "TIME(ms)") < 1000
    assert calls(none, "sync") == 1


@pytest.mark.tool("ucalls")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-l", "none"), "-l none is for -S"),
        (("-l", "node"), "Node.js has no probes of functions"),
        (("-l", "c"), "pytrace funccount"),
        (("--binary", "/bin/true"), "no probes of methods in /bin/true"),
        (("-l", "tcl", "--binary", "/bin/true"), "no probes of methods in /bin/true"),
        (("-l", "perl", os.getpid()), "no probes of methods in what is mapped"),
        (("-l", "java", os.getpid()), "no probes of methods in what is mapped"),
    ],
)
def test_what_has_no_methods(tool: Tool, words: tuple[object, ...], message: str) -> None:
    needs("usdt")
    assert message in tool("ucalls", *words, status=1, interrupt=False).stderr


# ------------------------------------------------------------------------------------------------ uflow


@pytest.mark.tool("uflow")
@pytest.mark.parametrize("language", LANGUAGES)
def test_entries_and_returns_are_indented(tool: Tool, folder: Path, language: str) -> None:
    needs("usdt")
    with languages.program(folder, language, calls=2) as program:
        run = tool("uflow", "-l", language, program.pid, work=lambda _: program.work())
    check_columns(run)
    mark = SEPARATOR[language]
    named = [row["METHOD"] for row in run.of(PID=program.pid)]
    found = [line for line in named if line.endswith((f"{mark}outer", f"{mark}inner"))]
    assert [line.split()[0] for line in found] == ["->", "->", "<-", "<-"] * 2
    assert [line.endswith("inner") for line in found] == [False, True, True, False] * 2
    outer, inner = (len(line) - len(line.lstrip()) for line in found[:2])
    assert inner == outer + 2


@pytest.mark.tool("uflow")
def test_only_some_methods_and_their_times(tool: Tool, folder: Path) -> None:
    needs("usdt")
    with languages.program(folder, "python", calls=3) as program:
        run = tool("uflow", "-L", "-M", "inn", "-C", folder, program.pid, work=lambda _: program.work())
        none = tool("uflow", "-C", "no such file", program.pid)
    file = program.file
    assert [row["METHOD"] for row in run.rows] == [f"-> {file}:inner", f"<- {file}:inner"] * 3
    assert [row["TOOK(us)"] > 0 for row in run.rows] == [False, True] * 3
    assert not none.rows


# ------------------------------------------------------------------------------------------------ ugc


@pytest.mark.tool("ugc")
def test_collections_of_python(tool: Tool, folder: Path) -> None:
    needs("usdt")
    with languages.program(folder, "python", collections=3) as program:
        run = tool("ugc", "-F", "gen 2", program.pid, work=lambda _: program.work())
    check_columns(run)
    assert [row["DESCRIPTION"] for row in run.rows] == ["gen 2"] * 3
    assert all(row["TIME(us)"] > 0 and row["START"] > 0 for row in run.rows)
    with languages.program(folder, "python", collections=3) as program:
        slow = tool("ugc", "-M", 3_600_000, "-l", "python", program.pid, work=lambda _: program.work())
    assert not slow.rows


@pytest.mark.tool("ugc")
@pytest.mark.needs("ruby")
def test_stages_of_ruby(tool: Tool, folder: Path) -> None:
    needs("usdt")
    with languages.program(folder, "ruby", collections=2) as program:
        run = tool("ugc", "-m", "-l", "ruby", program.pid, work=lambda _: program.work())
    stages = [row["DESCRIPTION"] for row in run.rows]
    assert stages.count("GC mark stage") == 2
    assert stages.count("GC sweep stage") >= 2
    assert all("TIME(ms)" in row for row in run.rows)
    failed = tool("ugc", "-l", "php", status=1, interrupt=False)
    assert "only in java, node, python and ruby" in failed.stderr


# ------------------------------------------------------------------------------------------------ uobjnew


@pytest.mark.tool("uobjnew")
@pytest.mark.needs("ruby")
def test_objects_of_ruby(tool: Tool, folder: Path) -> None:
    needs("usdt")
    library = languages.probes("ruby")
    script = folder / "objects.rb"
    script.write_text("class Thing; end\n30.times { Thing.new }\n")
    run = tool("uobjnew", "-l", "ruby", "--binary", library, command=f"/usr/bin/ruby {script}")
    check_columns(run)
    things = [row for row in run.rows if row["TYPE"] == "Thing"]
    assert [(row["ALLOCS"], row["BYTES"]) for row in things] == [(30, 0)]
    top = tool("uobjnew", "-S", 1, "--binary", library, command=f"/usr/bin/ruby {script}")
    assert len(top.rows) == 1
    assert top.rows[0]["BYTES"] > 0


@pytest.mark.tool("uobjnew")
def test_sizes_of_malloc(tool: Tool, programs: Path) -> None:
    needs("uprobe")
    run = tool("uobjnew", "-l", "c", "-C", 1, command=f"{programs}/leaks 70 30 1717")
    found = [row for row in run.rows if row["TYPE"] == "block size 1717"]
    assert [(row["ALLOCS"], row["BYTES"]) for row in found] == [(100, 171700)]
    assert len(run.rows) == 1
    failed = tool("uobjnew", "-l", "python", status=1, interrupt=False)
    assert "no probes of new objects in python" in failed.stderr
