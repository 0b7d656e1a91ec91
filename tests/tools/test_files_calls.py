"""filelife, filetop and fileslower: files that this process creates, reads, writes and deletes."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest

from tests.support.kernel_features import needs
from tests.support.server import Running
from tests.support.tools import ToolRun, check_columns
from tests.support.workloads import files, processes
from tests.tools.conftest import Tool


@pytest.fixture(autouse=True)
def _syscalls() -> None:
    needs("syscalls")


# ------------------------------------------------------------------------------------------------ filelife


def _slept(seconds: float) -> float:
    """Sleep; how long it took."""
    start = time.monotonic()
    time.sleep(seconds)
    return time.monotonic() - start


@pytest.mark.each_kernel
@pytest.mark.tool("filelife")
def test_files_are_shown_when_they_are_deleted(tool: Tool, folder: Path) -> None:
    old = files.create(folder, [10, 10], "older")
    slept: list[float] = []

    def work(_running: Running) -> None:
        made = files.create(folder, [100, 0, 5], "lived")
        files.create(folder, [1], "stays")
        slept.append(_slept(0.2))
        files.unlink(made)
        files.unlink(old)
        with pytest.raises(FileNotFoundError):
            files.unlink(made)

    run = tool("filelife", "-p", os.getpid(), work=work)
    check_columns(run)
    assert [row["file"] for row in run.rows] == ["lived0", "lived1", "lived2"]
    assert all(row["AGE(s)"] >= 0.95 * slept[0] for row in run.rows)
    assert {row["pid"] for row in run.rows} == {os.getpid()}


@pytest.mark.tool("filelife")
def test_which_file_of_a_name_it_was(tool: Tool, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = folder / "first", folder / "second"
    first.mkdir()
    second.mkdir()
    monkeypatch.chdir(folder)

    def work(_running: Running) -> None:
        (first / "same").touch()
        _slept(0.3)
        (second / "same").touch()
        os.unlink("second/../second/same")
        with (first / "same").open() as still_open:
            os.unlink("./first/same")
            assert still_open.read() == ""
        (first / "new.tmp").touch()
        _slept(0.1)
        os.rename(first / "new.tmp", second / "new")
        handle = os.open(second, os.O_RDONLY)
        os.unlink("new", dir_fd=handle)
        os.close(handle)

    run = tool("filelife", "-p", os.getpid(), work=work)
    ages = [(row["file"], row["AGE(s)"] >= 0.29) for row in run.rows]
    assert ages == [("same", False), ("same", True), ("new", False)]
    assert run.rows[2]["AGE(s)"] >= 0.09


@pytest.mark.tool("filelife")
def test_files_in_memory_and_the_process_that_deletes(tool: Tool, folder: Path) -> None:
    """A child creates, this process deletes; options select who deletes."""

    def work(_running: Running) -> None:
        for number, place in enumerate((Path("/dev/shm"), folder)):
            name = place / f"pytrace-{os.getpid()}-{number}"
            assert processes.child(name.touch).code == 0
            name.unlink()

    run = tool("filelife", "-p", os.getpid(), work=work, form="text", until=f"pytrace-{os.getpid()}-1")
    check_columns(run)
    assert len([line for line in run.lines if f"pytrace-{os.getpid()}" in line]) == 2
    assert not tool("filelife", "--comm", "nobody", work=work).rows


@pytest.mark.tool("filelife")
def test_a_file_that_another_process_deleted(tool: Tool, folder: Path) -> None:
    def work(_running: Running) -> None:
        name = files.create(folder, [1], "other").files[0]
        subprocess.run(["rm", name], check=True)
        os.mkfifo(name)  # not created by open()
        name.unlink()
        files.unlink(files.create(folder, [1], "mine"))

    run = tool("filelife", "-p", os.getpid(), work=work)
    assert [row["file"] for row in run.rows] == ["mine0"]


# ------------------------------------------------------------------------------------------------ filetop


def _reads_and_writes(folder: Path) -> None:
    made = files.create(folder, [4096, 1024], "top")
    for _ in range(3):
        files.read(made)
    with (folder / "vector").open("wb", buffering=0) as file:
        os.writev(file.fileno(), [b"a" * 512, b"b" * 512])
        os.pwrite(file.fileno(), b"c" * 2048, 0)


def _top(run: ToolRun, name: str) -> list[object]:
    rows = run.of(FILE=name, PID=os.getpid())
    assert len(rows) == 1
    return [rows[0][column] for column in ("READS", "WRITES", "R_KB", "W_KB", "T")]


@pytest.mark.tool("filetop")
def test_files_with_their_reads_and_writes(tool: Tool, folder: Path) -> None:
    run = tool("filetop", 3600, "-p", os.getpid(), "-d", folder, work=lambda _: _reads_and_writes(folder))
    check_columns(run)
    assert _top(run, "top0") == [3, 1, 12.0, 4.0, "R"]
    assert _top(run, "top1") == [3, 1, 3.0, 1.0, "R"]
    assert _top(run, "vector") == [0, 2, 0.0, 3.0, "R"]
    assert [row["file"] for row in run.rows] == ["top0", "top1", "vector"]


@pytest.mark.tool("filetop")
@pytest.mark.parametrize(
    ("options", "names"),
    [
        (("-s", "reads", "-r", 2), ["top1", "top0"]),
        (("-s", "writes", "-r", 1), ["vector"]),
        (("-s", "rbytes", "--maxrows", 1), ["top0"]),
        (("-s", "wbytes"), ["top0", "vector", "top1"]),
        (("--write-only", "-s", "wbytes"), ["top0", "vector", "top1"]),
        (("--read-only",), ["top0", "top1"]),
    ],
)
def test_order_and_kinds(tool: Tool, folder: Path, options: tuple[object, ...], names: list[str]) -> None:
    run = tool(
        "filetop", 3600, "-p", os.getpid(), "-d", f"{folder}/", *options, work=lambda _: _reads_and_writes(folder)
    )
    assert [row["file"] for row in run.rows] == names
    if "--write-only" in options:
        assert _top(run, "top0") == [0, 1, 0.0, 4.0, "R"]
    if "--read-only" in options:
        assert _top(run, "top1") == [3, 0, 3.0, 0.0, "R"]


def _short_lived(folder: Path, number: int) -> list[str]:
    names = [f"short{at}" for at in range(number)]
    for at, name in enumerate(names):
        files.unlink(files.create(folder, [at + 1], name))
    return [f"{name}0" for name in names]


@pytest.mark.tool("filetop")
def test_each_short_lived_file_has_a_row(tool: Tool, folder: Path) -> None:
    memory = Path(tempfile.mkdtemp(dir="/dev/shm"))
    made: list[str] = []

    def work(_running: Running) -> None:
        for place in (folder, memory):
            made.extend(_short_lived(place, 150))

    run = tool("filetop", 3600, "-r", 0, "-p", os.getpid(), work=work)
    shutil.rmtree(memory)
    rows = [row for row in run.rows if row["file"].startswith("short")]
    assert sorted(row["file"] for row in rows) == sorted(made)
    assert {row["writes"] for row in rows} == {1}


@pytest.mark.tool("filetop")
def test_files_of_one_name_and_names_of_one_file(tool: Tool, folder: Path) -> None:
    def work(_running: Running) -> None:
        for _ in range(5):
            files.unlink(files.create(folder, [10], "again"))
        os.link(files.create(folder, [10], "linked").files[0], folder / "link0")
        (folder / "link0").read_bytes()

    run = tool("filetop", 3600, "-r", 0, "-p", os.getpid(), "-d", folder, work=work)
    assert len(run.of(FILE="again0")) == 5
    assert _top(run, "linked0")[:2] == [0, 1]
    assert _top(run, "link0")[1] == 0


@pytest.mark.tool("filetop")
def test_directories_are_compared_whole(tool: Tool, folder: Path) -> None:
    for name in ("tree", "tree2"):
        (folder / name / "below").mkdir(parents=True, exist_ok=True)

    def work(_running: Running) -> None:
        for name in ("tree", "tree2"):
            (folder / name / "below" / f"in_{name}").write_text("text")

    run = tool("filetop", 3600, "-p", os.getpid(), "-d", folder / "tree", work=work)
    assert [row["file"] for row in run.rows] == ["in_tree"]
    run = tool("filetop", 3600, "-p", os.getpid(), "-d", "/", work=work)
    assert {"in_tree", "in_tree2"} <= {row["file"] for row in run.rows}
    relative = os.path.relpath(folder / "tree2", "/")  # where tools are started
    run = tool("filetop", 3600, "-p", os.getpid(), "-d", relative, work=work)
    assert [row["file"] for row in run.rows] == ["in_tree2"]
    run = tool("filetop", "-d", "nosuch", status=1, interrupt=False)
    assert "needs a directory that exists" in run.stderr


def _talks(_running: Running) -> None:
    left, right = socket.socketpair()
    with left, right:
        os.write(left.fileno(), b"s" * 1024)
        os.read(right.fileno(), 1024)
    reading, writing = os.pipe()
    os.write(writing, b"p" * 2048)
    os.close(reading)
    os.close(writing)


@pytest.mark.tool("filetop")
def test_other_files_when_asked(tool: Tool) -> None:
    run = tool("filetop", 3600, "-a", "-p", os.getpid(), work=_talks)
    assert len(run.of(FILE="[pipefs]", T="O", WRITES=1, W_KB=2.0)) == 1
    assert len(run.of(T="S", WRITES=1, W_KB=1.0)) == 1
    assert not [row for row in tool("filetop", 3600, "-p", os.getpid(), work=_talks).rows if row["T"] != "R"]


@pytest.mark.tool("filetop")
def test_outputs_at_intervals(tool: Tool, folder: Path) -> None:
    """A count ends it; what comes after the last output is not shown."""
    done = False

    def work(running: Running) -> None:
        nonlocal done
        _reads_and_writes(folder)
        running.until_printed("vector")
        done = True

    run = tool("filetop", "-C", "-p", os.getpid(), "-d", folder, 1, 2, form="text", work=work, interrupt=False)
    assert done
    check_columns(run)


@pytest.mark.tool("filetop")
def test_a_command_that_ends_before_the_first_output(tool: Tool) -> None:
    run = tool("filetop", "-a", 3600, 2, command="printf abcd")
    assert run.of(COMM="printf", WRITES=1)


# ------------------------------------------------------------------------------------------------ fileslower


@pytest.mark.tool("fileslower")
def test_all_reads_and_writes(tool: Tool, folder: Path) -> None:
    run = tool("fileslower", 0, "-p", os.getpid(), work=lambda _: _reads_and_writes(folder))
    check_columns(run)
    shown = [(row["filename"], row["d"], row["bytes"]) for row in run.rows if row["filename"] in ("top0", "vector")]
    assert shown == [("top0", "W", 4096), *[("top0", "R", 4096)] * 3, ("vector", "W", 1024), ("vector", "W", 2048)]
    assert all(row["LAT(ms)"] >= 0 for row in run.rows)
    run = tool("fileslower", 0, "--read-only", "-p", os.getpid(), work=lambda _: _reads_and_writes(folder))
    assert {row["d"] for row in run.rows} == {"R"}


@pytest.mark.tool("fileslower")
def test_calls_that_take_long_enough(tool: Tool) -> None:
    """A read of a pipe that is empty for a while."""
    slept: list[float] = []

    def work(_running: Running) -> None:
        reading, writing = os.pipe()

        def write() -> None:
            time.sleep(0.3)
            os.write(writing, b"late")

        writer = threading.Thread(target=write)
        writer.start()
        start = time.monotonic()
        assert os.read(reading, 100) == b"late"
        slept.append(time.monotonic() - start)
        writer.join()
        os.close(reading)
        os.close(writing)

    run = tool("fileslower", "-a", 100, "-p", os.getpid(), work=work, form="text", until="pipefs")
    check_columns(run)
    words = next(line.split() for line in run.lines if "pipefs" in line)
    assert words[3:5] == ["R", "4"]
    assert 100 <= float(words[5]) <= 1000 * slept[0]
    assert not tool("fileslower", 0, "-p", os.getpid(), work=work).of(BYTES=4, D="R")
