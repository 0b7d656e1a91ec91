"""Processes with limits: what they do is bounded in memory and time, and costs only what was asked."""

from __future__ import annotations

import errno
import os
import resource
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Timer, get_native_id

import pytest

from pytrace.base.limited_process import (
    LimitedProcess,
    LimitError,
    Limits,
    LostError,
    Program,
    inside,
    limited_block,
)


def serve(request: bytes, descriptors: list[int]) -> tuple[bytes, list[int]]:
    """What the child does, by the first word of a request."""
    word, _, rest = request.partition(b" ")
    if word == b"memory":
        return b"".join([b"x" * (1 << 20)] * 1000), []
    if word == b"cpu":
        while True:
            pass
    if word == b"wait":
        time.sleep(1000)
    if word == b"deep":
        return serve(request, descriptors)
    if word == b"end":
        os._exit(3)
    if word == b"fail":
        raise KeyError("x" * 10_000)
    if word == b"read":
        return os.read(descriptors[0], 100), [os.dup(descriptors[0])]
    if word == b"files":
        names = sorted(os.listdir("/proc/self/fd"))[:-1]  # the last one is of this list
        return " ".join(os.readlink(f"/proc/self/fd/{name}") for name in names).encode(), []
    return b"%d %d " % (os.getpid(), inside()) + rest, []


@pytest.fixture
def process() -> Iterator[LimitedProcess]:
    made = LimitedProcess(serve, Limits(memory=64 << 20, patience=0.3))
    yield made
    made.close()


def test_requests_are_answered_by_one_child(process: LimitedProcess) -> None:
    long = b"a" * 3_000_000
    first, _ = process.call(b"say " + long)
    pid, within, rest = first.split(b" ")
    assert (int(pid) != os.getpid(), within, rest == long, inside()) == (True, b"1", True, False)
    assert process.call(b"say")[0].split()[0] == pid


def test_files_are_passed_and_no_others_are_open(process: LimitedProcess, tmp_path: Path) -> None:
    """The links of probes that a killed tracer leaves would stay attached."""
    (tmp_path / "file").write_bytes(b"data")
    with (tmp_path / "file").open("rb") as file:
        text, (own,) = process.call(b"read", [file.fileno()])
    assert (text, os.pread(own, 9, 1)) == (b"data", b"ata")
    os.close(own)
    names = process.call(b"files")[0].decode().split()
    assert [name for name in names if name != "/dev/null" and not name.startswith("socket:")] == []


@pytest.mark.parametrize(
    ("request_", "why", "restarts"),
    [
        (b"memory", "it takes more than 64 MiB of memory", True),
        (b"cpu", "it takes more processor time than a file may", True),
        (b"wait", r"a file system has not answered for 0\.3 s", True),
        (b"end", "ended with status 768", True),
        (b"deep", "nested too deeply", False),
        (b"fail", "KeyError: 'x{100,189}$", False),
    ],
)
def test_what_takes_too_much_fails_alone(request_: bytes, why: str, restarts: bool, process: LimitedProcess) -> None:
    process.call(b"say")
    with pytest.raises(LimitError, match=why):
        process.call(request_, seconds=0.2)
    assert process.call(b"say a")[0].endswith(b" 1 a")
    assert process.generation == 1 + restarts


def test_all_that_is_waited_for_has_a_limit() -> None:
    process = LimitedProcess(serve, Limits(memory=64 << 20, patience=100, total=0.2))
    for why in ("took 0.2 s", "took 0.2 s already"):
        with pytest.raises(LimitError, match=why):
            process.call(b"wait")


def test_nobody_waits_once_the_answer_is_not_wanted() -> None:
    wanted = [True, True, False]
    process = LimitedProcess(serve, Limits(memory=64 << 20, patience=100), lambda: wanted.pop(0))
    with pytest.raises(LimitError, match="did not wait"):
        process.call(b"wait")


def test_an_interrupt_ends_it(process: LimitedProcess) -> None:
    """A second Ctrl-C raises in the middle of the wait."""
    process.call(b"say")
    pid = process._pid

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    former = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            process.call(b"wait")
    finally:
        signal.signal(signal.SIGALRM, former)
    assert process.call(b"say a")[0].endswith(b" a")
    assert process._pid != pid


def test_where_no_process_can_be_started(process: LimitedProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of a service, for example; later there may be one."""

    def refused() -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fork", refused)
        with pytest.raises(LimitError, match="no process can be started for it: Resource temporarily unavailable"):
            process.call(b"say")
    assert process.call(b"say a")[0].endswith(b" a")


def test_an_answer_may_come_later(process: LimitedProcess) -> None:
    """A request in between waits for it; what is closed has none."""
    pending = process.start(b"say first")
    assert process.call(b"say second")[0].endswith(b" second")
    assert pending.over
    assert process.result(pending)[0].endswith(b" first")
    pending = process.start(b"cpu")
    assert not process.ready(pending, 0.01)
    process.close()
    with pytest.raises(LostError):
        process.result(pending)


def reversed_bytes(data: bytes) -> bytes:
    """What a program does."""
    if data == b"much":
        return b"".join([b"x" * (1 << 20)] * 1000)
    return data[::-1]


def test_what_ends_late_is_waited_for(process: LimitedProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a process that was killed ends when it gets a processor; no zombie of it stays."""

    def children() -> set[str]:
        return set(Path(f"/proc/self/task/{get_native_id()}/children").read_text().split())

    others = children()
    process.call(b"echo", [])
    (child,) = children() - others
    os.kill(int(child), signal.SIGSTOP)
    kill = os.kill
    monkeypatch.setattr(os, "kill", lambda pid, number: Timer(0.2, kill, (pid, number)).start())
    process.close()
    assert not Path(f"/proc/{child}").exists()


def test_a_program_is_an_interpreter_of_its_own() -> None:
    assert Program(reversed_bytes, memory=1 << 30, seconds=10, longest=100).result(b"abc") == b"cba"
    with pytest.raises(LimitError, match="MemoryError"):
        Program(reversed_bytes, memory=256 << 20, seconds=10, longest=100).result(b"much")
    with pytest.raises(LimitError, match=r"more than 0\.01 seconds"):
        Program(reversed_bytes, memory=1 << 30, seconds=10, longest=0.01).result(b"abc")


def test_a_block_takes_no_more_processor_time_than_it_may() -> None:
    """One within another is part of it; the handler of the signal is put back; what waits takes none."""
    before = signal.getsignal(signal.SIGPROF)
    begun = time.process_time()
    with pytest.raises(LimitError, match=r"more than 0\.1 seconds of processor time"), limited_block(0.1, 1 << 30):  # noqa: PT012
        with limited_block(0.001, 1 << 30):
            time.sleep(0.01)
        while True:
            sum(range(1000))
    assert time.process_time() - begun < 5
    with limited_block(0.05, 1 << 30):
        time.sleep(0.2)
    assert signal.getsignal(signal.SIGPROF) == before
    assert signal.getitimer(signal.ITIMER_PROF)[0] == 0
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(_within_time).result() == 1


def test_a_block_takes_no_more_memory_than_it_may() -> None:
    """The limit goes with the block, and an interrupt is none of its errors."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(LimitError, match="more than 64 MiB of memory"), limited_block(60, 64 << 20):
        bytearray(128 << 20)
    assert resource.getrlimit(resource.RLIMIT_AS) == before
    with pytest.raises(KeyboardInterrupt), limited_block(60, 64 << 20):
        raise KeyboardInterrupt
    assert len(bytearray(128 << 20)) == 128 << 20


def _within_time() -> int:
    with limited_block(5, 1 << 30):
        return 1
