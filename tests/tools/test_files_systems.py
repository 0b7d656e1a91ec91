"""Operations of file systems: fsslower and fsdist, under all their names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.kernel_features import needs
from tests.support.tools import ToolRun, check_columns
from tests.support.workloads import files, storage
from tests.support.workloads.storage import FileSystem
from tests.tools.conftest import Tool

EXT4 = pytest.param("ext4", marks=[pytest.mark.needs("ext4"), pytest.mark.each_kernel])
XFS = pytest.param("xfs", marks=[pytest.mark.needs("xfs"), pytest.mark.each_kernel])
BTRFS = pytest.param("btrfs", marks=pytest.mark.needs("btrfs"))


@pytest.fixture(scope="module", params=[EXT4, "xfs", BTRFS])
def system(request: pytest.FixtureRequest) -> Iterator[FileSystem]:
    with storage.file_system(request.param) as made:
        yield made


def work(system: FileSystem, prefix: str) -> None:
    """Three opens for each file (one creates), with writes and reads of 5000 and 8192 bytes; two appends with fsync."""
    made = files.create(system.folder, [0, 5000, 8192], prefix)
    files.read(files.read(made))
    files.synchronize(made.files[1], 2)


def shown(run: ToolRun, name: str) -> list[tuple[str, int, int]]:
    return [(row["T"], row["BYTES"], row["OFF_KB"]) for row in run.of(FILENAME=name, PID=os.getpid())]


@pytest.mark.tool("fsslower", "ext4slower", "xfsslower", "btrfsslower")
def test_operations_of_files(tool: Tool, system: FileSystem) -> None:
    needs("syscalls")
    run = tool(f"{system.kind}slower", "-m", 0, "-p", os.getpid(), work=lambda _: work(system, "op"))
    check_columns(run)
    assert shown(run, "op0") == [("O", 0, 0)] * 3
    whole = [("O", 0, 0), ("R", 8192, 0)]
    assert shown(run, "op2") == [("O", 0, 0), ("W", 8192, 0), *whole, *whole]
    synchronized = [row for row in shown(run, "op1")[6:] if row[0] in "WS"]
    assert synchronized == [("W", 1, 4), ("S", 0, 0), ("W", 1, 4), ("S", 0, 0)]
    assert all(row["LAT(ms)"] >= 0 for row in run.rows)
    syncs = [row["LAT(ms)"] for row in run.of(FILENAME="op1", T="S")]
    assert max(syncs) > min(row["LAT(ms)"] for row in run.of(FILENAME="op1", T="R"))


@pytest.mark.tool("fsslower", "ext4slower", "xfsslower", "btrfsslower")
def test_fast_operations_are_not_shown(tool: Tool, system: FileSystem) -> None:
    needs("syscalls")
    for arguments in ((f"{system.kind}slower", 3600_000), ("fsslower", "-t", system.kind, "--min", 3600_000)):
        name, *rest = arguments
        assert not tool(str(name), *rest, "-p", os.getpid(), work=lambda _: work(system, "fast")).rows


@pytest.mark.tool("fsslower")
@pytest.mark.needs("ext4", "xfs")
def test_other_file_systems_are_not_shown(tool: Tool, ext4: FileSystem, xfs: FileSystem) -> None:
    needs("syscalls")

    def both(_running: object) -> None:
        work(ext4, "other")
        work(xfs, "mine")

    run = tool("fsslower", "-t", "xfs", "-m", 0, "-p", os.getpid(), work=both)
    assert shown(run, "mine0")
    assert not shown(run, "other0")
    run = tool("fsslower", "0", "-p", os.getpid(), work=both, form="text")
    check_columns(run)
    assert "mine0" in run.stdout
    assert "other0" in run.stdout


@pytest.mark.tool("fsslower")
def test_it_ends_by_itself(tool: Tool) -> None:
    needs("syscalls")
    tool("fsslower", "-d", 1, interrupt=False)


def totals(run: ToolRun, name: str = "@usecs") -> dict[str, int]:
    """Operations by kind, of the histograms printed last."""
    histograms: dict[str, list[dict[str, Any]]] = run.maps[name]
    return {kind: sum(bucket["count"] for bucket in buckets) for kind, buckets in histograms.items()}


@pytest.mark.tool("fsdist", "xfsdist", "btrfsdist")
@pytest.mark.parametrize("kind", [XFS, BTRFS])
def test_latency_of_operations(tool: Tool, kind: str, request: pytest.FixtureRequest) -> None:
    """Of all that this process does on such a file system; on ext4 it does more than its work."""
    needs("syscalls")
    system = request.getfixturevalue(kind)
    run = tool(f"{kind}dist", "-p", os.getpid(), work=lambda _: work(system, "dist"))
    counted = totals(run)
    expected = {"open": 10, "read": 4, "write": 4, "fsync": 2}
    assert {name: counted[name] for name in expected} == expected
    assert counted.keys() - expected.keys() <= {"getattr"}


@pytest.mark.tool("fsdist")
@pytest.mark.needs("xfs")
def test_getattr_is_measured_in_the_file_system(tool: Tool, xfs: FileSystem) -> None:
    needs("fentry")
    made = files.create(xfs.folder, [0] * 5, "attributes")
    run = tool("fsdist", "-t", "xfs", "-p", os.getpid(), work=lambda _: [os.stat(path) for path in made.files])
    assert totals(run) == {"getattr": 5}


@pytest.mark.tool("fsdist", "ext4dist")
@pytest.mark.needs("ext4")
def test_intervals_and_milliseconds(tool: Tool, ext4: FileSystem) -> None:
    needs("syscalls")
    run = tool("ext4dist", "-m", "-T", 1, 2, work=lambda _: work(ext4, "interval"), interrupt=False)
    assert not [name for name in run.maps if name != "@msecs"]
    assert [message["type"] for message in run.messages].count("time") == 2
