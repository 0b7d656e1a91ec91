"""Tools with --python: a Python program's own lines, in tools of memory and of system calls."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.conftest import Tool

SERVICE = """
import os, threading, time
kept = []
def reads():
    os.close(os.open("/dev/null", os.O_RDONLY))
def keeps():
    kept.append(bytearray(100000))
def waits():
    threading.Event().wait(0.001)
def serve():
    while True:
        reads()
        keeps()
        waits()
        time.sleep(0.01)
serve()
"""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[int]:
    """The process id of a Python program that opens files and takes memory."""
    (tmp_path / "service.py").write_text(SERVICE)
    with subprocess.Popen(["/usr/bin/python3", str(tmp_path / "service.py")]) as program:
        try:
            yield program.pid
        finally:
            program.kill()


@pytest.mark.tool("mallocs", "memleak", "syscount", "trace", "futexwait", "pagefaults", "funcslower")
def test_lines_of_python(tool: Tool, service: int) -> None:
    place = r"\+\d+@\S*/service.py:"
    for name, words, line in (
        ("mallocs", ("--duration", 1, "--lines"), r"keeps \(\S*/service.py:7\)"),
        ("memleak", ("--lines", "--older", 100, 1, 1), r"keeps \(\S*/service.py:7\)"),
        ("syscount", ("--syscall", "openat", "-d", 1), rf"reads{place}5"),
        ("syscount", ("--syscall", "openat", "-P", "-d", 1), rf"reads{place}5"),
        ("syscount", ("--syscall", "openat", "-L", "-d", 1), rf"reads{place}5"),
        ("trace", ("-M", 1, "t:syscalls:sys_enter_openat"), rf"reads{place}5"),
        ("futexwait", ("-a", "--duration", 1), r"wait;.*;waits;serve;<module>"),
        ("pagefaults", ("--duration", 1), rf"keeps{place}7"),
        ("funcslower", ("-u", 1, "-d", 1, "c:close"), rf"reads{place}5"),
    ):
        run = tool(name, "--python", "-p", service, *words, form="text", interrupt=False)
        assert re.search(line, run.stdout), (name, run.stdout)
