"""System call tracepoints by way of the raw ones show the same events as the plain ones, field by field, in order.

Both trace one process and what it forks at the same time: `tests/programs/callmix.c` makes system calls of all kinds.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.machine import need
from tests.support.patience import patience
from tests.support.two_ways import grouped, of_one_program

_CALLS = """
read write close newfstat lseek pread64 pwrite64 readv writev dup3 fcntl ioctl flock fsync ftruncate fchdir fchmod
fchown getpid getppid getuid sched_yield getpriority sendto recvfrom connect bind getsockopt openat mkdirat unlinkat
readlinkat faccessat utimensat epoll_ctl epoll_pwait signalfd4 timerfd_settime fallocate mprotect madvise newuname
statfs sendfile64 splice copy_file_range fadvise64 getdents64 newfstatat statx getpgid rt_sigreturn clock_nanosleep
restart_syscall clone clone3 execve wait4 kill
"""
CALLS = _CALLS.split()
"""Calls of the program whose arguments are compared."""

SCRIPTS = {
    "arguments": " ".join(
        f'tracepoint:syscalls:sys_enter_{name} {{ printf("%d ", tid); print(args); }}' for name in CALLS
    ),
    "entries": 'tracepoint:syscalls:sys_enter_* { printf("%d %s %d\\n", tid, probe, args.__syscall_nr); }',
    "results": 'tracepoint:syscalls:sys_exit_* { printf("%d %s %d %d\\n", tid, probe, args.__syscall_nr, args.ret); }',
    "both, and stacks": (
        'tracepoint:syscalls:sys_*_getp* { printf("%d %s %s %s\\n", tid, probe, comm, ustack(raw)); } '
        'tracepoint:syscalls:sys_enter_getp* { printf("%d again\\n", tid); }'
    ),
    "loops and predicates": (
        "tracepoint:syscalls:sys_enter_openat, tracepoint:syscalls:sys_enter_mkdirat "
        '/args.dfd > 1000/ { for ($i : 0..2) { printf("%d %d %s\\n", tid, args.dfd + $i, probe); } } '
        'tracepoint:syscalls:sys_exit_openat /args.ret >= 0/ { printf("%d %d\\n", tid, args.ret); return; }'
    ),
}

PROGRAM32 = """
static void call(long number) { __asm__ volatile("int $0x80" : : "a"(number), "b"(0) : "memory"); }
void _start(void) { for (int n = 0; n < 5; n++) { call(64); call(20); call(146); } call(1); }
"""
"""64 and 20 are getppid and getpid there, semget and writev in 64-bit programs."""


@pytest.fixture(scope="module")
def program32(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A 32-bit program, where the compiler can make one."""
    folder = tmp_path_factory.mktemp("program32")
    (folder / "calls.c").write_text(PROGRAM32)
    command = ["gcc", "-m32", "-nostdlib", "-static", "-O1", "-o", f"{folder}/calls", f"{folder}/calls.c"]
    made = shutil.which("gcc") and subprocess.run(command, capture_output=True, check=False).returncode == 0
    return [f"{folder}/calls"] if made else []


@pytest.mark.parametrize("name", SCRIPTS)
def test_both_ways_are_equal(tmp_path: Path, programs: Path, program32: list[str], name: str) -> None:
    need("raw_syscalls")
    scripts = {way: f"config = {{ syscall_tracepoints = {way} }} {SCRIPTS[name]}" for way in ("raw", "plain")}
    messages, lines = of_one_program(tmp_path, scripts, [programs / "callmix", *program32])
    assert "by one program of the raw tracepoint (" in messages["raw"]
    assert "by programs of their own (" in messages["plain"]
    raw, plain = (grouped(lines[way], 1) for way in ("raw", "plain"))
    assert raw == plain
    assert len(raw) >= 2
    _check_coverage(name, raw)


def _check_coverage(name: str, found: dict[str, list[str]]) -> None:
    """What the program is known to do must be there, or the comparison proves nothing."""
    lines = [line for thread in found.values() for line in thread]
    if name == "results":
        counted = Counter(re.findall(r"sys_exit_(\w+) \d+ (-?\d+)", "\n".join(lines)))
        # Each call of the process whose filter denies them, and the return of clone or fork in the child.
        assert sum(count for (_, result), count in counted.items() if result == "-33") > 250
        assert counted["restart_syscall", "0"]
        assert any(made in counted for made in (("clone", "0"), ("clone3", "0"), ("fork", "0")))
        assert not any(call == "rt_sigreturn" and result != "-33" for call, result in counted)
    if name == "entries":
        counted_calls = Counter(re.findall(r"sys_enter_(\w+)", "\n".join(lines)))
        assert counted_calls["rt_sigreturn"] == counted_calls["restart_syscall"] == 1
        assert not counted_calls["semget"]
        assert counted_calls["readv"] == 2


@pytest.mark.parametrize("way", ["raw", "plain"])
def test_a_kernel_stack_is_that_of_the_plain_tracepoint(programs: Path, way: str) -> None:
    need("raw_syscalls")
    script = (
        f"config = {{ syscall_tracepoints = {way} }} "
        "tracepoint:syscalls:sys_enter_getppid /pid == cpid/ { print(kstack); exit(); }"
    )
    command = [sys.executable, "-m", "pytrace", "-v", "-e", script, "-c", f"{programs}/flood 10"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(30), check=True)
    assert "1 by programs of their own" in done.stderr
    assert "bpf_trace_run" not in done.stdout
