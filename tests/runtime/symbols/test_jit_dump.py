"""Tests of jitdump files: functions in the order in which they were compiled, and files that are none."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

import pytest

from pytrace.runtime.symbols import jit_dump
from pytrace.runtime.symbols.jit_dump import NAME, JitDump
from tests.support.compiled_names import last

OURS = {os.geteuid()}


def header(order: str = "<", size: int = 40) -> bytes:
    return struct.pack(f"{order}IIIIIIQQ", 0x4A695444, 1, size, 62, 0, 7, 0, 0).ljust(size, b"\0")


def record(kind: int, body: bytes, order: str = "<", moment: int = 5) -> bytes:
    return struct.pack(f"{order}IIQ", kind, 16 + len(body), moment) + body


def load(start: int, size: int, name: str, order: str = "<", moment: int = 5) -> bytes:
    head = struct.pack(f"{order}IIQQQQ", 7, 7, start, start, size, 1)
    return record(0, head + name.encode() + b"\0" + bytes(min(size, 64)), order, moment)


def move(old: int, new: int, size: int, moment: int = 5) -> bytes:
    return record(1, struct.pack("<IIQQQQQ", 7, 7, new, old, new, size, 1), moment=moment)


def dump(path: Path, data: bytes, begin: int = 0) -> JitDump:
    path.write_bytes(data)
    return JitDump(str(path), OURS, begin)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jit-7.dump"


@pytest.mark.parametrize("order", ["<", ">"])
def test_functions(path: Path, order: str) -> None:
    found = dump(path, header(order, 48) + load(0x1000, 32, "first", order) + load(0x3000, 16, "ünï", order))
    assert last(found, 0x1000) == ("first", 0)
    assert last(found, 0x101F) == ("first", 31)
    assert last(found, 0x1020) is None
    assert last(found, 0x3004) == ("ünï", 4)
    assert found.problem == ""


def test_what_is_appended_is_read_when_it_is_needed(path: Path) -> None:
    late = load(0x2000, 16, "late")
    found = dump(path, header() + load(0x1000, 16, "first") + late[:30])
    assert last(found, 0x2000) is None
    with path.open("ab") as file:
        file.write(late[30:] + record(2, bytes(16)) + record(3, b"") + record(99, b"12345678"))
    assert last(found, 0x2000) == ("late", 0)
    assert last(found, 0x1000) == ("first", 0)


def test_code_that_was_reused_or_moved_is_that_of_the_last_function(path: Path) -> None:
    found = dump(
        path,
        header() + load(0x1000, 0x100, "old") + load(0x2000, 0x10, "apart") + load(0x1040, 0x20, "new")
        + load(0x5000, 0x30, "moves") + move(0x5000, 0x6000, 0x30),
    )  # fmt: skip
    assert last(found, 0x1050) == ("new", 0x10)
    assert last(found, 0x1000) is None, "what is left of it is no function"
    assert last(found, 0x2000) == ("apart", 0)
    assert last(found, 0x6004) == ("moves", 4)
    assert last(found, 0x5004) is None


def test_functions_at_the_time_of_a_sample(path: Path) -> None:
    found = dump(
        path,
        header() + load(0x1000, 0x40, "first", moment=100) + load(0x5000, 0x40, "moves", moment=150)
        + load(0x1020, 0x40, "second", moment=200) + move(0x5000, 0x1000, 0x30, moment=300),
        begin=50,
    )  # fmt: skip
    assert found.find(0x1024, (110, 120)) == [("first", 0x24)]
    assert found.find(0x1024, (210, 220)) == [("second", 4)]
    assert found.find(0x1024, (310, 320)) == [("moves", 0x24)]
    assert found.find(0x1024, (190, 210)) == [("first", 0x24), ("second", 4)]
    assert found.find(0x1024, (100, 400)) == [("first", 0x24), ("second", 4), ("moves", 0x24)]
    assert found.find(0x1024, (60, 70)) == [("first", 0x24)], "it was not noted yet"
    assert found.find(0x1004, (210, 220)) == [], "what is left of it is no function"
    assert found.find(0x5004, (160, 170)) == [("moves", 4)]
    assert found.find(0x5004, (310, 320)) == [], "it was moved from there"


def test_functions_that_were_replaced_before_the_run_are_not_remembered(path: Path) -> None:
    found = dump(path, header() + load(0x1000, 16, "a", moment=1) + load(0x1000, 16, "b", moment=2), begin=10)
    assert found.find(0x1000, (0, 20)) == [("b", 0)]


def test_times_that_no_clock_of_ours_says(path: Path) -> None:
    """Times of the processor's counter, and times that go backwards or are yet to come."""
    data = bytearray(header())
    data[32] = 1
    found = dump(path, bytes(data) + load(0x1000, 16, "old", moment=1 << 60))
    assert last(found, 0x1000) == ("old", 0)
    before = time.monotonic_ns()
    with path.open("ab") as file:
        file.write(load(0x1000, 16, "new", moment=3))
    assert last(found, 0x1000) == ("new", 0)
    assert found.find(0x1000, (before - 1, before)) == [("old", 0), ("new", 0)], "it came between two readings"
    path.write_bytes(header() + load(0x1000, 16, "late", moment=1 << 60) + load(0x1000, 16, "early", moment=1))
    assert last(JitDump(str(path), OURS, 0), 0x1000) == ("early", 0)


@pytest.mark.parametrize(
    "data", [b"", b"JiTD", header()[:39], bytes(64), header() + record(0, b"short"), header() + bytes(16)]
)
def test_files_that_are_none(path: Path, data: bytes) -> None:
    assert last(dump(path, data), 0x1000) is None


def test_links_pipes_and_files_of_others(path: Path, tmp_path: Path) -> None:
    whole = header() + load(0x1000, 16, "secret")
    (tmp_path / "secret").write_bytes(whole)
    path.symlink_to(tmp_path / "secret")
    assert last(JitDump(str(path), OURS, 0), 0x1000) is None
    path.unlink()
    os.mkfifo(path)
    assert last(JitDump(str(path), OURS, 0), 0x1000) is None
    path.unlink()
    found = dump(path, whole)
    found._owners = {os.geteuid() + 1}
    assert last(found, 0x1000) is None
    assert "belongs to user" in found.problem


def test_large_files_are_read_in_part(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit_dump, "MOST_FUNCTIONS", 3)
    found = dump(path, header() + b"".join(load(0x1000 * number, 16, f"f{number}") for number in range(1, 9)))
    assert last(found, 0x2000) == ("f2", 0)
    assert last(found, 0x8000) is None
    assert "too large" in found.problem


@pytest.mark.parametrize(
    ("name", "is_one"),
    [("/tmp/jit-12.dump", True), ("/srv/a b/jit-1.dump", True), ("/tmp/xjit-1.dump", False), ("/tmp/jit-.dump", False)],
)
def test_names_of_files(name: str, is_one: bool) -> None:
    assert bool(NAME.search(name)) is is_one
