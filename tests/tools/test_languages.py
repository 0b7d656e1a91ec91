"""Tools about programs in languages, and about queries of databases."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kernel_features import needs
from tests.support.patience import EMULATED
from tests.support.tools import ToolRun, check_columns
from tests.support.workloads import database, languages
from tests.tools.conftest import Tool

# ---------------------------------------------------------------------------------------------- languages methods
# Tools about programs in languages: ucalls, uflow, ugc, uobjnew.


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


@pytest.mark.tool("ucalls", kernel="usdt")
@pytest.mark.parametrize("language", LANGUAGES)
def test_calls_and_their_times(tool: Tool, folder: Path, language: str) -> None:
    mark = SEPARATOR[language]
    with languages.program(folder, language, calls=5) as program:
        run = tool("ucalls", "-L", "-l", language, program.pid, work=lambda _: program.work())
    check_columns(run)
    assert calls(run, f"{mark}outer") == calls(run, f"{mark}inner") == 5
    assert calls(run, f"{mark}outer", "TIME(us)") > calls(run, f"{mark}inner", "TIME(us)") > 0
    times = [row["TIME(us)"] for row in run.rows]
    assert times == sorted(times, reverse=True)


@pytest.mark.tool("ucalls", kernel="usdt")
@pytest.mark.needs("php")
def test_most_frequent_calls_of_any_language(tool: Tool, folder: Path) -> None:
    with languages.program(folder, "php", calls=50) as program:
        run = tool("ucalls", "-T", 2, "-p", program.pid, work=lambda _: program.work())
    assert [(row["METHOD"], row["CALLS"]) for row in run.rows] == [("inner", 50), ("outer", 50)]
    with languages.program(folder, "php", calls=3) as program:
        text = tool("ucalls", program.pid, 1, form="text", work=lambda _: program.work(), until="outer")
    assert "METHOD CALLS" in " ".join(text.stdout.split())
    assert text.stdout.count("outer") == 1


@pytest.mark.tool("ucalls", kernel="usdt syscalls")
@pytest.mark.needs("php")
def test_system_calls_beside_methods(tool: Tool, folder: Path) -> None:
    with languages.program(folder, "php", calls=5) as program:
        run = tool("ucalls", "-SLm", program.pid, work=lambda _: program.work())
        none = tool("ucalls", "-S", "-l", "none", "-p", os.getpid(), work=lambda _: os.sync())
    assert calls(run, "outer") == 5
    assert calls(run, "write") >= 1
    assert calls(run, "outer", "TIME(ms)") < 1000
    assert calls(none, "sync") == 1


@pytest.mark.tool("ucalls", kernel="usdt")
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
    assert message in tool("ucalls", *words, status=1, interrupt=False).stderr


# ------------------------------------------------------------------------------------------------ uflow


@pytest.mark.tool("uflow", kernel="usdt")
@pytest.mark.parametrize("language", LANGUAGES)
def test_entries_and_returns_are_indented(tool: Tool, folder: Path, language: str) -> None:
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


@pytest.mark.tool("uflow", kernel="usdt")
def test_only_some_methods_and_their_times(tool: Tool, folder: Path) -> None:
    with languages.program(folder, "python", calls=3) as program:
        run = tool("uflow", "-L", "-M", "inn", "-C", folder, program.pid, work=lambda _: program.work())
        none = tool("uflow", "-C", "no such file", program.pid)
    file = program.file
    assert [row["METHOD"] for row in run.rows] == [f"-> {file}:inner", f"<- {file}:inner"] * 3
    assert [row["TOOK(us)"] > 0 for row in run.rows] == [False, True] * 3
    assert not none.rows


# ------------------------------------------------------------------------------------------------ ugc


@pytest.mark.tool("ugc", kernel="usdt")
def test_collections_of_python(tool: Tool, folder: Path) -> None:
    with languages.program(folder, "python", collections=3) as program:
        run = tool("ugc", "-F", "gen 2", program.pid, work=lambda _: program.work())
    check_columns(run)
    assert [row["DESCRIPTION"] for row in run.rows] == ["gen 2"] * 3
    assert all(row["TIME(us)"] > 0 and row["START"] > 0 for row in run.rows)
    with languages.program(folder, "python", collections=3) as program:
        slow = tool("ugc", "-M", 3_600_000, "-l", "python", program.pid, work=lambda _: program.work())
    assert not slow.rows


@pytest.mark.tool("ugc", kernel="usdt")
@pytest.mark.needs("ruby")
def test_stages_of_ruby(tool: Tool, folder: Path) -> None:
    with languages.program(folder, "ruby", collections=2) as program:
        run = tool("ugc", "-m", "-l", "ruby", program.pid, work=lambda _: program.work())
    stages = [row["DESCRIPTION"] for row in run.rows]
    assert stages.count("GC mark stage") == 2
    assert stages.count("GC sweep stage") >= 2
    assert all("TIME(ms)" in row for row in run.rows)
    failed = tool("ugc", "-l", "php", status=1, interrupt=False)
    assert "only in java, node, python and ruby" in failed.stderr


# ------------------------------------------------------------------------------------------------ uobjnew


@pytest.mark.tool("uobjnew", kernel="usdt")
@pytest.mark.needs("ruby")
def test_objects_of_ruby(tool: Tool, folder: Path) -> None:
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


@pytest.mark.tool("uobjnew", kernel="uprobe")
def test_sizes_of_malloc(tool: Tool, programs: Path) -> None:
    run = tool("uobjnew", "-l", "c", "-C", 1, command=f"{programs}/leaks 70 30 1717")
    found = [row for row in run.rows if row["TYPE"] == "block size 1717"]
    assert [(row["ALLOCS"], row["BYTES"]) for row in found] == [(100, 171700)]
    assert len(run.rows) == 1
    failed = tool("uobjnew", "-l", "python", status=1, interrupt=False)
    assert "no probes of new objects in python" in failed.stderr


# ---------------------------------------------------------------------------------------------- languages databases
# Tools about queries of databases: dbslower, dbstat.


SLOW = 1000 if EMULATED else 30
"""Milliseconds in which this machine's server answers a query that has nothing to wait for."""


@pytest.fixture(scope="module")
def server_of_queries() -> Iterator[database.Database]:
    needs("usdt")
    with database.postgres() as made:
        yield made


@pytest.mark.tool("dbslower")
@pytest.mark.needs("postgresql")
def test_slow_queries(tool: Tool, server_of_queries: database.Database) -> None:
    made, slow = server_of_queries, database.sleep(SLOW)
    run = tool("dbslower", "postgres", "-m", SLOW, work=lambda _: made.query("select 1", slow, "select 2"))
    check_columns(run)
    assert [row["QUERY"] for row in run.rows] == [slow]
    assert run.rows[0]["MS"] >= SLOW


@pytest.mark.tool("dbslower")
@pytest.mark.needs("postgresql")
def test_all_queries_of_one_server(tool: Tool, server_of_queries: database.Database) -> None:
    made = server_of_queries
    of_server = ("-m", 0, "-p", made.pid, "--follow")
    run = tool("dbslower", "postgres", *of_server, work=lambda _: made.query("select 40 + 2", "select\n7"))
    assert [row["QUERY"] for row in run.rows] == ["select 40 + 2", "select\n7"]
    assert len({row["PID"] for row in run.rows}) == 1
    text = tool("dbslower", "postgres", "-x", made.program, "-m", 0, form="text", work=lambda _: made.query("select 3"))
    check_columns(text)
    assert text.stdout.count("select 3") == 1


@pytest.mark.tool("dbslower", "dbstat", kernel="uprobe")
def test_queries_as_mysql_handles_them(tool: Tool, programs: Path) -> None:
    program = programs / "mysql8"
    every = tool("dbslower", "mysql", "-x", program, "-m", 0, command=str(program))
    assert [row["QUERY"] for row in every.rows] == ["select 1", "select sleep(1)"]
    slow = tool("dbslower", "mysql", "-x", program, "-m", 30, command=str(program))
    assert [row["QUERY"] for row in slow.rows] == ["select sleep(1)"]
    times = tool("dbstat", "mysql", "-x", program, "-m", 30, command=str(program))
    assert sum(bucket["count"] for bucket in times.maps["@times"]["milliseconds"]) == 1


@pytest.mark.tool("dbslower", "dbstat", kernel="uprobe")
@pytest.mark.parametrize("name", ["dbslower", "dbstat"])
def test_no_server(tool: Tool, name: str) -> None:
    failed = tool(name, "mysql", "-x", "/bin/true", status=1, interrupt=False)
    assert "no MySQL or MariaDB in /bin/true" in failed.stderr
    failed = tool(name, "postgres", "-x", "/bin/true", status=1, interrupt=False)
    assert "no PostgreSQL in /bin/true" in failed.stderr
    assert "needs <db>" in tool(name, status=1, interrupt=False).stderr


@pytest.mark.tool("dbstat")
@pytest.mark.parametrize(("options", "unit", "least"), [((), "milliseconds", 16), (("-u",), "microseconds", 16384)])
@pytest.mark.needs("postgresql")
def test_histogram(
    tool: Tool, server_of_queries: database.Database, options: tuple[str, ...], unit: str, least: int
) -> None:
    made = server_of_queries
    queries = ["select 1", *[database.sleep(SLOW)] * 3]
    run = tool("dbstat", "postgres", "-x", made.program, *options, work=lambda _: made.query(*queries))
    buckets = run.maps["@times"][unit]
    assert sum(bucket["count"] for bucket in buckets) == 4
    assert sum(bucket["count"] for bucket in buckets if bucket.get("min", 0) >= least) >= 3
    slow = tool("dbstat", "postgres", "-m", SLOW, "-x", made.program, *options, work=lambda _: made.query(*queries))
    assert sum(bucket["count"] for bucket in slow.maps["@times"][unit]) == 3


@pytest.mark.tool("dbstat")
@pytest.mark.needs("postgresql")
def test_histograms_at_intervals(tool: Tool, server_of_queries: database.Database) -> None:
    made = server_of_queries
    run = tool("dbstat", "postgres", "-i", 1, form="text", work=lambda _: made.query("select 1"), until="@times")
    assert run.stdout.count("@times[milliseconds]") == 1


# ---------------------------------------------------------------------------------------------- python lines
# Tools with --python: a Python program's own lines, in tools of memory and of system calls.


SERVICE = """
import os, threading, time
kept = []
def reads():
    os.close(os.open("/dev/null", os.O_RDONLY))
def keeps():
    kept.append(bytearray(100000))
def waits():
    threading.Event().wait(0.001)
def serve():
    while True:
        reads()
        keeps()
        waits()
        time.sleep(0.01)
serve()
"""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[int]:
    """The process id of a Python program that opens files and takes memory."""
    (tmp_path / "service.py").write_text(SERVICE)
    with subprocess.Popen(["/usr/bin/python3", str(tmp_path / "service.py")]) as program:
        try:
            yield program.pid
        finally:
            program.kill()


@pytest.mark.tool("mallocs", "memleak", "syscount", "trace", "futexwait", "pagefaults", "funcslower")
def test_lines_of_python(tool: Tool, service: int) -> None:
    place = r"\+\d+@\S*/service.py:"
    for name, words, line in (
        ("mallocs", ("--duration", 1, "--lines"), r"keeps \(\S*/service.py:7\)"),
        ("memleak", ("--lines", "--older", 100, 1, 1), r"keeps \(\S*/service.py:7\)"),
        ("syscount", ("--syscall", "openat", "-d", 1), rf"reads{place}5"),
        ("syscount", ("--syscall", "openat", "-P", "-d", 1), rf"reads{place}5"),
        ("syscount", ("--syscall", "openat", "-L", "-d", 1), rf"reads{place}5"),
        ("trace", ("-M", 1, "t:syscalls:sys_enter_openat"), rf"reads{place}5"),
        ("futexwait", ("-a", "--duration", 1), r"wait;.*;waits;serve;<module>"),
        ("pagefaults", ("--duration", 1), rf"keeps{place}7"),
        ("funcslower", ("-u", 1, "-d", 1, "c:close"), rf"reads{place}5"),
    ):
        run = tool(name, "--python", "-p", service, *words, form="text", interrupt=False)
        assert re.search(line, run.stdout), (name, run.stdout)
