"""Interpreters of this machine, and binaries without one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pytrace.runtime.elf.file import ElfFile
from pytrace.runtime.elf.symbol_table import Symbol
from pytrace.runtime.python import interpreters
from pytrace.runtime.python.interpreters import _LOCAL_EXEC, interpreter, may_have, thread_values
from pytrace.runtime.python.layouts import UnsupportedError
from tests.support.compile import compiled
from tests.support.pythons import PYTHONS, Python

WHERE = """
import os, sys
for line in open("/proc/self/maps"):
    if line.split()[1].startswith("r-x") and ("libpython" in line or os.path.realpath(sys.executable) in line):
        print(line.split()[-1])
"""


@pytest.mark.parametrize("python", PYTHONS, ids=str)
def test_version_and_layout(python: Python) -> None:
    paths = subprocess.run([*python.command, "-c", WHERE], check=True, capture_output=True, text=True).stdout.split()
    found = []
    for path in paths:
        with ElfFile.open(path) as file:
            found.append(interpreter(file))
    known = [item for item in found if item is not None]
    assert [item.layout.minor for item in known] == [python.minor]
    assert (known[0].thread_state is None) == (python.minor < 15)
    assert (known[0].loop != (0, 0)) == (python.minor < 11)


def test_a_program_without_an_interpreter() -> None:
    with ElfFile.open(os.path.realpath("/bin/sh")) as file:
        assert interpreter(file) is None


OLD = """
char PyCode_Type[400];
#ifdef LOOP
void *PyEval_EvalFrameEx(void *frame, int raised) { return frame; }
#endif
"""


def test_versions_without_a_runtime(tmp_path: Path) -> None:
    """CPython 2.7 to 3.6, as the library that they are; a program has a copy of the type alone."""
    with ElfFile.open(str(compiled(tmp_path, "libpython2.7.so", OLD, "-shared", "-fPIC", "-DLOOP"))) as file:
        with pytest.raises(UnsupportedError, match=r"^it is a CPython before 3\.7"):
            interpreter(file)
    with ElfFile.open(str(compiled(tmp_path, "python2.7", OLD, "-shared", "-fPIC"))) as file:
        assert interpreter(file) is None


def test_files_that_are_looked_at() -> None:
    assert may_have("/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0", program=False)
    assert may_have("/usr/sbin/uwsgi", program=True)
    assert not may_have("/usr/lib/x86_64-linux-gnu/libc.so.6", program=False)


def test_where_a_thread_has_its_state() -> None:
    code = bytes.fromhex("f30f1efa64488b0425d8ffffffc3")
    match = _LOCAL_EXEC.match(code)
    assert match is not None
    assert int.from_bytes(match[1], "little", signed=True) == -40
    assert _LOCAL_EXEC.match(code[4:]) is not None
    assert _LOCAL_EXEC.match(bytes.fromhex("833d3b49770000740abfe010ba00e97f2e1100")) is None


@pytest.mark.parametrize(
    ("code", "offset"),
    [
        ("64488b042500000000488b808000000089ff488b04f8c3", 0x80),  # musl 1.2.3, GCC
        ("64488b042500000000488b808000000089f9488b04c8c3", 0x80),  # musl 1.2.5, clang
        ("554889e589f864488b0c2500000000488b4978488b04c15dc3", 0x78),  # with a frame pointer, and a short offset
        ("83ff1f773f89ff64488b142510000000488d4731", None),  # glibc 2.36
        ("64488b042500000000c3", None),
        ("", None),
    ],
)
def test_where_musl_has_the_values_of_a_thread(
    monkeypatch: pytest.MonkeyPatch, code: str, offset: int | None
) -> None:
    data = bytes.fromhex(code)
    with ElfFile.open(os.path.realpath("/bin/sh")) as file:
        assert thread_values(file) is None
        function = Symbol("pthread_getspecific", 0x1000, len(data))
        monkeypatch.setattr(ElfFile, "any_symbol", lambda _file, _name: function)
        monkeypatch.setattr(interpreters, "_data", lambda _file, _address, size: data[:size])
        assert thread_values(file) == offset
