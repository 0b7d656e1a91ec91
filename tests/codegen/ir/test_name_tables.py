"""Tables of names by number."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from pytrace.codegen.ir import machine

HEADER = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")


def test_errors_and_signals() -> None:
    assert machine.errors()[2].decode() == os.strerror(2)
    assert machine.signals()[9] == b"Killed"
    assert machine.signals()[-1] == b"N/A"
    assert machine.signals()[0] == b"Unknown signal 0"
    assert machine.errors()[5] == b"I/O error"
    assert machine.errors()[-1] == b"Unknown error"
    assert machine.syscalls("x86_64")[-1] == b"Unknown syscall"


def test_system_calls() -> None:
    rows = machine.syscalls("x86_64")
    assert (rows[0], rows[39], rows[257]) == (b"read", b"getpid", b"openat")
    assert machine.syscalls("aarch64")[63] == b"read"


@pytest.mark.skipif(not HEADER.exists(), reason="no kernel headers for user space")
def test_system_calls_agree_with_the_header() -> None:
    rows = machine.syscalls("x86_64")
    for name, number in re.findall(r"#define __NR_(\w+) (\d+)$", HEADER.read_text(), re.MULTILINE):
        assert rows[int(number)].decode() == name


def test_every_name_fits_its_string() -> None:
    for table in (machine.errors(), machine.signals(), machine.syscalls("x86_64")):
        assert max(map(len, table)) < 64
