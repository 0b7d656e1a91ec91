"""Places in the evaluation loops of this machine's interpreters, and of what is none."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from pytrace.core import instructions
from pytrace.runtime.binaries.elf_file import ElfFile
from pytrace.runtime.stacks import python_interpreters
from pytrace.runtime.stacks.python_interpreters import (
    LOOP,
    Interpreter,
    UnsupportedError,
    _Loop,
    eval_loop,
    interpreter,
)
from tests.runtime.stacks.test_interpreters import FUNCTIONS, WHERE, tail_calls
from tests.support.compile import compiled
from tests.support.pythons import PYTHONS, Python


@pytest.fixture(params=PYTHONS, ids=str)
def opened(request: pytest.FixtureRequest) -> Iterator[tuple[Python, ElfFile, Interpreter]]:
    python: Python = request.param
    text = subprocess.run([*python.command, "-c", WHERE], check=True, capture_output=True, text=True).stdout
    for path in text.split():
        with ElfFile.open(path) as file:
            found = interpreter(file)
            if found is not None:
                yield python, file, found
                return


def test_places(opened: tuple[Python, ElfFile, Interpreter]) -> None:
    python, file, found = opened
    assert found.tail_calls == python.tail_calls
    if python.minor not in range(11, 15):
        with pytest.raises(UnsupportedError, match=f"functions of CPython 3.{python.minor} cannot be probed"):
            eval_loop(file, found.layout)
        return
    if python.free_threaded and python.minor == 14:
        with pytest.raises(UnsupportedError, match=r"functions of free-threaded builds since CPython 3\.14"):
            eval_loop(file, found.layout)
        return
    if found.tail_calls:
        with pytest.raises(UnsupportedError, match="tail-calling"):
            eval_loop(file, found.layout)
        return
    loop = eval_loop(file, found.layout)
    assert len(set(loop.entries)) == {11: 2, 12: 2, 13: 3, 14: 3}[python.minor]
    assert len(loop.ends) == (2 if python.minor == 11 else 1)
    for offset in (*loop.entries, *loop.ends):
        assert file.address_at(offset) is not None
        assert instructions.instruction_length(bytes(file.view[offset : offset + 16]), 0, "x86_64")


def test_a_loop_that_the_compiler_has_moved_away(
    opened: tuple[Python, ElfFile, Interpreter], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its symbol is that of a small part, as in Debian's 3.14; all code is searched for the table."""
    python, file, found = opened
    if python.minor not in range(11, 15):
        return
    table, symbol = _Loop(file, found.layout)._table, file.any_symbol(LOOP)
    assert symbol is not None
    monkeypatch.setattr(ElfFile, "any_symbol", lambda _file, _name: replace(symbol, size=64))
    assert _Loop(file, found.layout)._table == table


def test_builds_that_differ(opened: tuple[Python, ElfFile, Interpreter]) -> None:
    """Offsets that are not those of the code, and numbers of instructions that there are none of."""
    python, file, found = opened
    if python.minor not in range(11, 14 if python.free_threaded else 15):
        return
    changed = replace(found.layout, op_resume=found.layout.op_return, op_return=255 if python.minor == 11 else 254)
    with pytest.raises(UnsupportedError):
        eval_loop(file, replace(changed, frame_entry=33, frame_instruction=3))


def test_a_free_threaded_build() -> None:
    with ElfFile.open(os.path.realpath("/bin/sh")) as file, pytest.raises(UnsupportedError, match="free-threaded"):
        eval_loop(file, python_interpreters._rows()[0][14, True])


def test_a_tail_calling_interpreter(tmp_path: Path) -> None:
    program = compiled(tmp_path, "tails", tail_calls(FUNCTIONS, ""), "-O2", "-rdynamic")
    with ElfFile.open(str(program)) as file, pytest.raises(UnsupportedError, match="the tail-calling interpreter"):
        eval_loop(file, python_interpreters._rows()[0][14, False])


def test_a_program_without_a_loop() -> None:
    with ElfFile.open(os.path.realpath("/bin/sh")) as file, pytest.raises(UnsupportedError, match="no symbol"):
        eval_loop(file, python_interpreters._rows()[0][11, False])
