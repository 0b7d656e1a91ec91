"""pytrace.runtime.abi.syscalls: errors of raw calls, and the memory that is handed to them."""

from __future__ import annotations

import ctypes
import errno
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.abi import syscalls
from pytrace.runtime.abi.syscalls import Memory, string_memory
from tests.support.waiting import until

PTRACE_PEEKUSER = 3


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """The machine that this claims to be."""
    names = SimpleNamespace(machine="x86_64")
    monkeypatch.setattr(os, "uname", lambda: names)
    syscalls.number.cache_clear()
    yield names
    syscalls.number.cache_clear()


@pytest.mark.parametrize(
    ("name", "bpf", "perf"),
    [("x86_64", 321, 298), ("aarch64", 280, 241), ("riscv64", 280, 241), ("s390x", 351, 331), ("ppc64le", 361, 319)],
)
def test_numbers_are_those_of_the_machine(machine: SimpleNamespace, name: str, bpf: int, perf: int) -> None:
    machine.machine = name
    assert (syscalls.number("bpf"), syscalls.number("perf_event_open")) == (bpf, perf)


def test_an_unknown_machine_is_named(machine: SimpleNamespace) -> None:
    machine.machine = "pdp11"
    with pytest.raises(OSError, match="no system call numbers for machine pdp11") as raised:
        syscalls.number("bpf")
    assert raised.value.errno == errno.ENOSYS


@pytest.mark.skipif(os.uname().machine not in syscalls.NUMBERS, reason="no numbers for this machine")
def test_a_call_that_fails_names_itself() -> None:
    with pytest.raises(OSError, match=r"^\[Errno \d+\] bpf: ") as raised:
        syscalls.call("bpf", 1 << 20, 0, 0)
    assert raised.value.errno in {errno.EINVAL, errno.EPERM, errno.E2BIG, errno.ENOSYS}


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_too_many_files_are_no_missing_feature(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object) -> int:
        ctypes.set_errno(number)
        return -1

    monkeypatch.setattr(syscalls, "_syscall", lambda: fail)
    with pytest.raises(TraceError, match="open files"):
        syscalls.call("bpf", 0)


def test_results_come_back_as_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []

    def answer(*arguments: ctypes.c_long) -> int:
        given.extend(item.value for item in arguments)
        return 1 << 40

    monkeypatch.setattr(syscalls, "_syscall", lambda: answer)
    assert syscalls.call("bpf", -1, 1 << 63 - 1) == 1 << 40
    assert given == [syscalls.number("bpf"), -1, 1 << 62]


def test_tracing_a_process_that_is_not_there() -> None:
    with pytest.raises(ProcessLookupError, match="ptrace: No such process"):
        syscalls.ptrace(PTRACE_PEEKUSER, 1 << 22 | 1)


@pytest.mark.parametrize(("left", "failed"), [(0, False), (errno.EIO, True)])
def test_minus_one_may_be_a_word_of_the_traced_process(
    left: int, failed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def peek(*_arguments: object) -> int:
        ctypes.set_errno(left)
        return -1

    ctypes.set_errno(errno.ENOENT)
    monkeypatch.setattr(syscalls, "libc", lambda: SimpleNamespace(ptrace=peek))
    if failed:
        with pytest.raises(OSError, match="ptrace: Input/output error"):
            syscalls.ptrace(PTRACE_PEEKUSER, 1)
    else:
        assert syscalls.ptrace(PTRACE_PEEKUSER, 1) == -1


def test_an_error_of_a_former_call_is_none_of_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    ctypes.set_errno(errno.ENOENT)
    monkeypatch.setattr(syscalls, "libc", lambda: SimpleNamespace(ptrace=lambda *_: -1))
    # The call must clear what was there before: a good call leaves errno as it is.
    assert syscalls.ptrace(PTRACE_PEEKUSER, 1) == -1


CHILD = """
import time
from pytrace.runtime.abi import syscalls
syscalls.die_with_parent(9)
print("ready", flush=True)
time.sleep(600)
"""
PARENT = """
import subprocess, sys
process = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE)
process.stdout.readline()
print(process.pid, flush=True)
"""


def test_a_process_that_ends_with_its_parent() -> None:
    """The parent starts a child that asks for the signal, and ends."""
    done = subprocess.run([sys.executable, "-c", PARENT, CHILD], capture_output=True, text=True, timeout=60)
    pid = int(done.stdout)
    try:
        until(lambda: not _lives(pid))
    finally:
        if _lives(pid):
            os.kill(pid, signal.SIGKILL)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rsplit(b")", 1)[1].split()[0] != b"Z"
    except OSError:
        return False


def test_a_namespace_that_is_none() -> None:
    read, write = os.pipe()
    try:
        with pytest.raises(OSError, match="setns: Invalid argument"):
            syscalls.enter_namespace(read, 0)
    finally:
        os.close(read)
        os.close(write)


@pytest.mark.parametrize("content", [b"abc\0def", bytearray(b"abc\0def")])
def test_memory_has_a_copy_at_its_address(content: bytes | bytearray) -> None:
    memory = Memory(content)
    assert ctypes.string_at(memory.address, 7) == bytes(content)
    ctypes.memset(memory.address, ord("x"), 1)
    assert bytes(memory.data) == b"xbc\0def"
    assert content[:1] == b"a"
    assert memory.text() == "xbc"


def test_memory_by_size() -> None:
    assert Memory(5).data == bytes(5)
    assert (Memory(0).address, Memory(b"").address, Memory(0).text()) == (0, 0, "")
    assert Memory(b"all\xff").text() == "all\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(("text", "data"), [("a", b"a\0"), (b"a\xff", b"a\xff\0"), ("\udcff", b"\xff\0"), ("", b"\0")])
def test_strings_end_in_nul(text: str | bytes, data: bytes) -> None:
    memory = string_memory(text)
    assert bytes(memory.data) == data
    assert memory.address


# ---------------------------------------------------------------------------------------------- sorting


@pytest.mark.parametrize("size", [1, 3, 8, 16, 24, 40])
def test_records_sort_as_bytes_compare(size: int) -> None:
    assert syscalls.can_sort_records()
    rng = random.Random(size)
    records = [rng.randbytes(size) for _ in range(500)]
    data = bytearray(b"".join(records))
    syscalls.sort_records(data, size)
    assert bytes(data) == b"".join(sorted(records))
    data += b"x"


def test_nothing_to_sort() -> None:
    data = bytearray()
    syscalls.sort_records(data, 8)
    assert data == b""
