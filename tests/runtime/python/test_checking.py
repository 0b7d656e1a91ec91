"""Layouts checked against running interpreters: the right one passes, another one is refused."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from msgspec.structs import replace

from pytrace.runtime.host import procfs
from pytrace.runtime.python import checking, layouts, processes
from pytrace.runtime.python.interpreters import Interpreter
from pytrace.runtime.python.layouts import UnsupportedError
from tests.support.pythons import PYTHONS, Python

RUNS = "import threading, sys; threading.Thread(target=sys.stdin.read).start(); print(flush=True); sys.stdin.read()"


@contextmanager
def running(python: Python) -> Iterator[tuple[int, Interpreter, int]]:
    """A process with two threads, its interpreter and how far that was moved."""
    command = [*python.command, "-c", RUNS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        program.stdout.readline()
        for item in procfs.executable_mappings(procfs.read_maps(program.pid)):
            if item.inode and "python" in item.path:
                binary = processes._read(program.pid, item)
                bias = None if binary is None else processes._bias(binary, item)
                if binary is not None and binary.interpreter is not None and bias is not None:
                    yield program.pid, binary.interpreter, bias
        program.kill()


@pytest.mark.parametrize("python", PYTHONS, ids=str)
def test_the_right_layout(python: Python) -> None:
    with running(python) as (pid, interpreter, bias):
        assert checking.check(pid, interpreter, bias)


@pytest.mark.parametrize("member", ["thread_id", "frame_code", "threads_head", "thread_frame"])
def test_another_layout(member: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "_PAUSE", 0)
    with running(PYTHONS[0]) as (pid, interpreter, bias):
        layout = interpreter.layout
        wrong = replace(interpreter, layout=replace(layout, **{member: getattr(layout, member) + 8}))
        with pytest.raises(UnsupportedError, match="differ from those of CPython"):
            checking.check(pid, wrong, bias)


def test_a_process_that_is_gone() -> None:
    interpreter = Interpreter(layouts.layout(11, b""), 0, 0, None)
    with pytest.raises(OSError, match="No such file"):
        checking.check(1 << 22 | 1, interpreter, 0)
