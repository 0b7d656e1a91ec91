"""Tests of jitdump files: functions in the order in which they were compiled, and files that are none."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from pytrace.runtime.symbols import jit_dump
from pytrace.runtime.symbols.jit_dump import NAME, JitDump

OURS = {os.geteuid()}


def header(order: str = "<", size: int = 40) -> bytes:
    return struct.pack(f"{order}IIIIIIQQ", 0x4A695444, 1, size, 62, 0, 7, 0, 0).ljust(size, b"\0")


def record(kind: int, body: bytes, order: str = "<") -> bytes:
    return struct.pack(f"{order}IIQ", kind, 16 + len(body), 5) + body


def load(start: int, size: int, name: str, order: str = "<") -> bytes:
    head = struct.pack(f"{order}IIQQQQ", 7, 7, start, start, size, 1)
    return record(0, head + name.encode() + b"\0" + bytes(min(size, 64)), order)


def move(old: int, new: int, size: int) -> bytes:
    return record(1, struct.pack("<IIQQQQQ", 7, 7, new, old, new, size, 1))


def dump(path: Path, data: bytes) -> JitDump:
    path.write_bytes(data)
    return JitDump(str(path), OURS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jit-7.dump"


@pytest.mark.parametrize("order", ["<", ">"])
def test_functions(path: Path, order: str) -> None:
    found = dump(path, header(order, 48) + load(0x1000, 32, "first", order) + load(0x3000, 16, "ünï", order))
    assert found.find(0x1000) == ("first", 0)
    assert found.find(0x101F) == ("first", 31)
    assert found.find(0x1020) is None
    assert found.find(0x3004) == ("ünï", 4)
    assert found.problem == ""


def test_what_is_appended_is_read_when_it_is_needed(path: Path) -> None:
    late = load(0x2000, 16, "late")
    found = dump(path, header() + load(0x1000, 16, "first") + late[:30])
    assert found.find(0x2000) is None
    with path.open("ab") as file:
        file.write(late[30:] + record(2, bytes(16)) + record(3, b"") + record(99, b"12345678"))
    assert found.find(0x2000) == ("late", 0)
    assert found.find(0x1000) == ("first", 0)


def test_code_that_was_reused_or_moved_is_that_of_the_last_function(path: Path) -> None:
    found = dump(
        path,
        header() + load(0x1000, 0x100, "old") + load(0x2000, 0x10, "apart") + load(0x1040, 0x20, "new")
        + load(0x5000, 0x30, "moves") + move(0x5000, 0x6000, 0x30),
    )  # fmt: skip
    assert found.find(0x1050) == ("new", 0x10)
    assert found.find(0x1000) is None, "what is left of it is no function"
    assert found.find(0x2000) == ("apart", 0)
    assert found.find(0x6004) == ("moves", 4)


@pytest.mark.parametrize(
    "data", [b"", b"JiTD", header()[:39], bytes(64), header() + record(0, b"short"), header() + bytes(16)]
)
def test_files_that_are_none(path: Path, data: bytes) -> None:
    assert dump(path, data).find(0x1000) is None


def test_links_pipes_and_files_of_others(path: Path, tmp_path: Path) -> None:
    whole = header() + load(0x1000, 16, "secret")
    (tmp_path / "secret").write_bytes(whole)
    path.symlink_to(tmp_path / "secret")
    assert JitDump(str(path), OURS).find(0x1000) is None
    path.unlink()
    os.mkfifo(path)
    assert JitDump(str(path), OURS).find(0x1000) is None
    path.unlink()
    found = dump(path, whole)
    found._owners = {os.geteuid() + 1}
    assert found.find(0x1000) is None
    assert "belongs to user" in found.problem


def test_large_files_are_read_in_part(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit_dump, "MOST_FUNCTIONS", 3)
    found = dump(path, header() + b"".join(load(0x1000 * number, 16, f"f{number}") for number in range(1, 9)))
    assert found.find(0x2000) == ("f2", 0)
    assert found.find(0x8000) is None
    assert "too large" in found.problem


@pytest.mark.parametrize(
    ("name", "is_one"),
    [("/tmp/jit-12.dump", True), ("/srv/a b/jit-1.dump", True), ("/tmp/xjit-1.dump", False), ("/tmp/jit-.dump", False)],
)
def test_names_of_files(name: str, is_one: bool) -> None:
    assert bool(NAME.search(name)) is is_one
