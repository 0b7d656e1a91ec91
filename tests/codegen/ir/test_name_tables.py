"""Tables of names by number."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from pytrace.codegen.ir import name_tables

HEADER = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")


def test_errors_and_signals() -> None:
    assert name_tables.errors()[2].decode() == os.strerror(2)
    assert name_tables.signals()[9] == b"Killed"
    assert name_tables.signals()[-1] == b"N/A"
    assert name_tables.signals()[0] == b"Unknown signal 0"
    assert name_tables.errors()[5] == b"I/O error"
    assert name_tables.errors()[-1] == b"Unknown error"
    assert name_tables.syscalls("x86_64")[-1] == b"Unknown syscall"


def test_system_calls() -> None:
    rows = name_tables.syscalls("x86_64")
    assert (rows[0], rows[39], rows[257]) == (b"read", b"getpid", b"openat")
    assert name_tables.syscalls("aarch64")[63] == b"read"


@pytest.mark.skipif(not HEADER.exists(), reason="no kernel headers for user space")
def test_system_calls_agree_with_the_header() -> None:
    rows = name_tables.syscalls("x86_64")
    for name, number in re.findall(r"#define __NR_(\w+) (\d+)$", HEADER.read_text(), re.MULTILINE):
        assert rows[int(number)].decode() == name


def test_every_name_fits_its_string() -> None:
    for table in (name_tables.errors(), name_tables.signals(), name_tables.syscalls("x86_64")):
        assert max(map(len, table)) < 64
