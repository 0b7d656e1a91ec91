"""Tools about queries of databases: dbslower, dbstat."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kernel_features import needs
from tests.support.patience import EMULATED
from tests.support.tools import check_columns
from tests.support.workloads import database
from tests.tools.conftest import Tool

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


@pytest.mark.tool("dbslower", "dbstat")
def test_queries_as_mysql_handles_them(tool: Tool, programs: Path) -> None:
    needs("uprobe")
    program = programs / "mysql8"
    every = tool("dbslower", "mysql", "-x", program, "-m", 0, command=str(program))
    assert [row["QUERY"] for row in every.rows] == ["select 1", "select sleep(1)"]
    slow = tool("dbslower", "mysql", "-x", program, "-m", 30, command=str(program))
    assert [row["QUERY"] for row in slow.rows] == ["select sleep(1)"]
    times = tool("dbstat", "mysql", "-x", program, "-m", 30, command=str(program))
    assert sum(bucket["count"] for bucket in times.maps["@times"]["milliseconds"]) == 1


@pytest.mark.tool("dbslower", "dbstat")
@pytest.mark.parametrize("name", ["dbslower", "dbstat"])
def test_no_server(tool: Tool, name: str) -> None:
    needs("uprobe")
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
