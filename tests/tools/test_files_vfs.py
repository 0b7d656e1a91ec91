"""Calls of the virtual file system and look-ups in the directory cache: vfsstat, vfscount, dcstat, dcsnoop."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.machine import missing
from tests.support.server import Running
from tests.support.tools import ToolRun, check_columns
from tests.support.waiting import until
from tests.support.workloads import files
from tests.support.workloads.storage import FileSystem
from tests.tools.conftest import Tool

pytestmark = pytest.mark.needs("ext4")

@pytest.fixture
def place(ext4: FileSystem, request: pytest.FixtureRequest) -> Path:
    """A folder of the test on a disk: in an overlay, each call of the file system is two."""
    made = ext4.folder / request.node.name
    made.mkdir()
    return made


def within_outputs(action: Callable[[], object], column: str, least: int) -> Callable[[Running], None]:
    """Do *action*, and wait until outputs have counted *least* of its calls.

    What comes after the last output is printed at the end as a rate of that short time. A tracer that is seconds behind
    prints outputs of before the action first, so outputs are not what is waited for.
    """

    def work(running: Running) -> None:
        action()
        until(lambda: counted(running.stdout(), column) >= least, 30)

    return work


def counted(text: str, column: str) -> int:
    """The sum of a column of the whole lines of JSON output."""
    messages = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return sum(message["data"][column] for message in messages if message["type"] == "row")


def total(run: ToolRun, column: str) -> int:
    return sum(row[column] for row in run.rows)


def directories(folder: Path, count: int) -> None:
    """Make and remove that many directories and files, with an fsync of each file."""
    for number in range(count):
        (folder / f"made{number}").mkdir()
        (folder / f"made{number}").rmdir()
    made = files.create(folder, [10] * count, "vfs")
    for path in made.files:
        files.synchronize(path)
    files.unlink(files.read(made))


@pytest.mark.each_kernel
@pytest.mark.tool("vfsstat", kernel="kprobe")
def test_calls_by_second(tool: Tool, place: Path) -> None:
    run = tool("vfsstat", "-p", os.getpid(), work=within_outputs(lambda: directories(place, 20), "UNLINK/s", 20))
    check_columns(run)
    for column in ("MKDIR/s", "RMDIR/s", "CREATE/s", "UNLINK/s", "FSYNC/s"):
        assert total(run, column) == 20, (column, run.rows)
    assert total(run, "OPEN/s") >= 60
    assert total(run, "READ/s") >= 20
    assert total(run, "WRITE/s") >= 40


@pytest.mark.tool("vfsstat", kernel="kprobe")
def test_rates_of_longer_intervals(tool: Tool, place: Path) -> None:
    run = tool("vfsstat", 2, 2, "-p", os.getpid(), work=lambda _: directories(place, 20), interrupt=False)
    assert len(run.rows) == 2
    assert total(run, "MKDIR/s") in (10, 11)  # two halves may be rounded
    text = tool("vfsstat", 1, 1, interrupt=False, form="text")
    check_columns(text)


@pytest.mark.each_kernel
@pytest.mark.tool("vfscount", kernel="kprobe")
def test_functions_by_calls(tool: Tool, place: Path) -> None:
    run = tool("vfscount", "-p", os.getpid(), work=lambda _: directories(place, 15))
    check_columns(run)
    assert run.of(FUNC="vfs_mkdir")[0]["COUNT"] == 15
    assert run.of(FUNC="vfs_rmdir")[0]["COUNT"] == 15
    assert run.of(FUNC="vfs_unlink")[0]["COUNT"] == 15
    counts = [row["COUNT"] for row in run.rows]
    assert counts == sorted(counts, reverse=True)
    text = tool("vfscount", 1, interrupt=False, form="text")
    check_columns(text)


def names(run: ToolRun, kind: str, prefix: str) -> list[str]:
    return sorted(row["FILE"] for row in run.of(T=kind, PID=os.getpid()) if row["FILE"].startswith(prefix))


@pytest.mark.each_kernel
@pytest.mark.tool("dcsnoop", kernel="kprobe")
def test_names_that_are_not_in_the_directory_cache(tool: Tool, place: Path) -> None:
    run = tool("dcsnoop", "-p", os.getpid(), work=lambda _: files.stat(place, good=2, missing=3))
    check_columns(run)
    assert names(run, "M", "absent") == ["absent0", "absent1", "absent2"]
    assert names(run, "M", "there") == ["there0", "there1"]  # created: open() looks for them
    assert not run.of(T="R")
    again = tool("dcsnoop", "-p", os.getpid(), work=lambda _: os.path.exists(place / "absent0"))
    assert not again.of(FILE="absent0")


@pytest.mark.tool("dcsnoop", kernel="kprobe")
def test_all_look_ups(tool: Tool, place: Path) -> None:
    run = tool("dcsnoop", "--all", "-p", os.getpid(), work=lambda _: files.stat(place, good=1, missing=2))
    assert names(run, "R", "absent") == ["absent0", "absent1"]
    assert names(run, "M", "absent") == ["absent0", "absent1"]
    assert names(run, "R", place.name)
    text = tool("dcsnoop", "-p", os.getpid(), work=lambda _: files.stat(place, good=0, missing=4), form="text")
    check_columns(text)


@pytest.mark.each_kernel
@pytest.mark.tool("dcstat", kernel="kprobe")
def test_look_ups_by_second(tool: Tool, place: Path) -> None:
    look = within_outputs(lambda: files.stat(place, good=0, missing=300), "MISS/s", 300)
    run = tool("dcstat", "-p", os.getpid(), work=look)
    check_columns(run)
    assert 300 <= total(run, "MISS/s") <= 320
    assert total(run, "MISS/s") <= total(run, "SLOW/s")
    depth = len(place.parts) - 1
    assert total(run, "REFS/s") >= 300 * (depth + 1)
    busy = max(run.rows, key=lambda row: int(row["MISS/s"]))
    assert 0 < busy["HIT%"] < 100
    look = within_outputs(lambda: [os.path.exists(place) for _ in range(99)], "REFS/s", 99 * depth)
    warm = tool("dcstat", "-p", os.getpid(), work=look)
    assert total(warm, "MISS/s") <= 20
    assert total(warm, "REFS/s") >= 99 * depth
    check_columns(tool("dcstat", 1, 1, interrupt=False, form="text"))


@pytest.mark.kernel
@pytest.mark.parametrize("name", ["vfsstat", "vfscount", "dcstat", "dcsnoop"])
def test_kernels_whose_functions_cannot_be_traced(tool: Tool, name: str) -> None:
    if not missing("kprobe"):
        pytest.skip("this kernel has kprobes")
    said = tool(name, status=1, interrupt=False).stderr
    assert "neither kprobes nor fentry" in said
    assert "what comes closest: pytrace" in said
