"""When iterators run: before the notice that everything is attached, but after the command of -c has begun."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import leaks
from tests.support.machine import need
from tests.support.server import Running, Server

NOTED = (
    "iter:task_file { if (ctx.task.tgid == %d) { @files++; } } "
    'tracepoint:syscalls:sys_enter_getppid /pid == %d/ { printf("noted %%d\\n", @files > 0); exit(); }'
)

RT_SIGTIMEDWAIT = 128
"""The system call in which the program waits (x86-64)."""


def ask(_running: Running) -> None:
    os.getppid()


@pytest.fixture(autouse=True)
def _surroundings(server: Server) -> Iterator[None]:
    need("iter", "syscalls")
    server.start()  # it starts before processes are counted
    with leaks.no_leaks():
        yield


def test_what_they_note_is_there_when_the_notice_comes(server: Server) -> None:
    me = os.getpid()
    for _ in range(5):
        result = server.run(("-e", NOTED % (me, me)), while_attached=ask)
        assert result.status == 0
        assert result.stdout.startswith("noted 1\n"), result


def test_user_stacks_are_those_of_the_visited_task(server: Server, programs: Path) -> None:
    need("task_memory")
    with subprocess.Popen([programs / "waiter"]) as waits:
        try:
            deadline = time.monotonic() + 20
            while not Path(f"/proc/{waits.pid}/syscall").read_text().startswith(f"{RT_SIGTIMEDWAIT} "):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            one = f"ctx.task.pid == {waits.pid}"
            script = f"iter:task {{ if ({one} || ctx.task.pid == 2) {{ @[ctx.task.pid, ustack(folded)] = 1; }} }}"
            result = server.run(("-q", "-e", script))
            # The function of the C library has no frame, so its caller is left out, as in other probes.
            assert re.search(rf"@\[{waits.pid}, \S*__libc_start_call_main;\S*sigtimedwait\]: 1", result.stdout), result
            assert re.search(r"@\[2, \]: 1", result.stdout), "a thread of the kernel has none"
        finally:
            waits.kill()
