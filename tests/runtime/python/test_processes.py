"""Rows of processes, as they start, execute, fork and end."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pytrace.core.stacks.python_format import CALL_ROW_FORMAT, NONE, ROW, ROW_FORMAT, CallWord, Word
from pytrace.runtime.host import procfs
from pytrace.runtime.host.procfs import Mapping
from pytrace.runtime.python import layouts, processes
from pytrace.runtime.python.eval_loop import EvalLoop
from pytrace.runtime.python.interpreters import Interpreter
from pytrace.runtime.python.layouts import UnsupportedError
from pytrace.runtime.python.processes import _MUSL, Walker, _Place, call_row, row


def interpreter(minor: int, distance: int | None = None, *, free_threaded: bool = False) -> Interpreter:
    return Interpreter(layouts._rows()[0][minor, free_threaded], 0x1000, 0x2000, distance)


def test_row_of_an_old_version() -> None:
    words = ROW_FORMAT.unpack(row(interpreter(9), 0x10000, 3))
    assert len(words) * 8 == ROW
    assert words[Word.GENERATION] == 3
    assert words[Word.KEY_PLACE] == 0x11000 + 584
    assert words[Word.CODE_TYPE] == 0x12000
    assert words[Word.INDEX_SHIFT] == 1
    assert words[Word.LOOP_START] == words[Word.COLD_END] == 0
    assert words[Word.CFRAME_FRAME] == words[Word.FRAME_OWNER] == words[Word.CODE_VERSION] == NONE


def test_code_of_the_loop() -> None:
    words = ROW_FORMAT.unpack(row(replace(interpreter(10), loop=(0x3000, 0x4000)), 0x10000, 1))
    assert words[Word.LOOP_START : Word.COLD_END + 1] == (0x13000, 0x14000, 0, 0)


def test_row_of_a_new_version() -> None:
    words = ROW_FORMAT.unpack(row(interpreter(15, -40), 0, 1))
    assert words[Word.KEY_PLACE] == 0
    assert words[Word.TLS] == (1 << 64) - 40
    assert words[Word.INDEX_SHIFT] == NONE


def test_row_of_a_free_threaded_build() -> None:
    """Objects have a longer header, strings another state, and threads their own instructions."""
    words = ROW_FORMAT.unpack(row(interpreter(14, free_threaded=True), 0, 1))
    assert (words[Word.HEADER_EXTRA], words[Word.KIND_SHIFT]) == (16, 8)
    assert (words[Word.FRAME_TLBC], words[Word.CODE_TLBC]) == (72, 224)
    ordinary = ROW_FORMAT.unpack(row(interpreter(14), 0, 1))
    assert (ordinary[Word.HEADER_EXTRA], ordinary[Word.KIND_SHIFT]) == (0, 2)
    assert ordinary[Word.FRAME_TLBC] == ordinary[Word.CODE_TLBC] == NONE


def test_row_of_a_tail_calling_interpreter() -> None:
    assert ROW_FORMAT.unpack(row(interpreter(14), 0, 1))[Word.TAIL_CALLS] == 0
    assert ROW_FORMAT.unpack(row(replace(interpreter(14), tail_calls=True), 0, 1))[Word.TAIL_CALLS] == 1


def test_row_with_musl() -> None:
    assert ROW_FORMAT.unpack(row(interpreter(12), 0, 1))[Word.THREAD_VALUES] == NONE
    musl = replace(interpreter(12), thread_values=0x80)
    assert ROW_FORMAT.unpack(row(musl, 0, 1))[Word.THREAD_VALUES] == 0x80


@pytest.mark.parametrize(
    ("name", "musl"),
    [
        ("ld-musl-x86_64.so.1", True),
        ("libc.so", True),
        ("libc.musl-x86_64.so.1", True),
        ("libc.so.6", False),
        ("libcap.so", False),
    ],
)
def test_names_of_musl(name: str, musl: bool) -> None:
    assert (_MUSL.fullmatch(name) is not None) == musl


class Rows:
    """The map of rows."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: dict[int, bytes] = {}
        monkeypatch.setattr(processes.bpf_maps, "update", self.update)
        monkeypatch.setattr(processes.bpf_maps, "delete", self.delete)

    def update(self, _descriptor: int, key: bytes, value: bytes) -> None:
        self.rows[struct.unpack("=I", key)[0]] = value

    def delete(self, _descriptor: int, key: bytes) -> bool:
        return self.rows.pop(struct.unpack("=I", key)[0], None) is not None

    def generations(self) -> dict[int, int]:
        return {pid: ROW_FORMAT.unpack(value)[Word.GENERATION] for pid, value in self.rows.items()}


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Rows:
    return Rows(monkeypatch)


def walker(monkeypatch: pytest.MonkeyPatch, messages: list[str], *, everything: bool = False) -> Walker:
    """Every process but 1 has an interpreter."""
    made = Walker(3, messages.append, everything=everything)
    made._binaries[1, 2] = processes._Binary(interpreter(11))
    monkeypatch.setattr(procfs, "read_maps", lambda _pid: b"some")
    monkeypatch.setattr(made, "_find", lambda pid, _mappings: None if pid == 1 else _Place((1, 2), 0x1000))
    return made


def test_a_process_and_its_children(monkeypatch: pytest.MonkeyPatch, rows: Rows) -> None:
    made = walker(monkeypatch, [])
    made.add(1)
    made.add(7)
    made.add(7)
    assert rows.generations() == {7: 1}
    made.update([("fork", 8, 7), ("fork", 9, 100), ("map", 7, 0), ("map", 10, 0)])
    assert rows.generations() == {7: 1, 8: 2}
    made.update([("exec", 8, 0), ("map", 8, 0)])
    assert rows.generations() == {7: 1, 8: 3}
    made.update([("exit", 7, 0), ("fork", 11, 8), ("exit", 11, 0)])
    assert rows.generations() == {8: 3}


def test_the_whole_machine(monkeypatch: pytest.MonkeyPatch, rows: Rows) -> None:
    made = walker(monkeypatch, [], everything=True)
    made.update([("map", 5, 0), ("map", 1, 0)])
    assert rows.generations() == {5: 1}


def test_an_interpreter_that_is_not_known_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rows: Rows
) -> None:
    messages: list[str] = []
    made = Walker(3, messages.append, everything=False)

    def old(_file: object) -> None:
        raise UnsupportedError("it is a CPython before 3.9")

    monkeypatch.setattr(processes.interpreters, "interpreter", old)
    program = os.path.realpath("/bin/sh")
    mapping = Mapping(0x1000, 0x2000, 0, 1, 2, program)
    assert made._find(os.getpid(), [mapping]) is None
    assert made._find(os.getpid(), [mapping]) is None
    assert messages == [f"no Python stacks of {program} (process {os.getpid()}): it is a CPython before 3.9"]
    gone: Any = 1 << 22 | 1
    assert made._find(gone, [Mapping(0x1000, 0x2000, 0, 1, 3, str(tmp_path / "python"))]) is None
    assert (1, 3) not in made._binaries


def test_second_rows() -> None:
    """Of a version whose functions cannot be probed, they have nothing."""
    known = Interpreter(layouts._rows()[0][11, False], 0x1000, 0x2000, None, objects=(1, 2, 3, 4))
    words = CALL_ROW_FORMAT.unpack(call_row(known, EvalLoop((), (), 3), 0x100))
    assert len(words) == len(CallWord)
    assert words[CallWord.NO_VALUE : CallWord.CELL_TYPE + 1] == (0x101, 0x102, 0x103)
    assert words[CallWord.FLOAT_TYPE] == 0x104
    assert words[CallWord.FRAME_REGISTER] == 3
    assert words[CallWord.OPCODES] == int.from_bytes(bytes([83, 255, 255, 255, 144, 255]), "little")
    assert CALL_ROW_FORMAT.unpack(call_row(interpreter(9), None, 0))[CallWord.CODE_FIRST] == NONE
    lines = [CALL_ROW_FORMAT.unpack(call_row(interpreter(minor), None, 0))[CallWord.LINES_DATA] for minor in (13, 14)]
    assert lines == [NONE, 1]
