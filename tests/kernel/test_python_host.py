"""Traces inside other programs: threads, asyncio, signals, fork; what belongs to the program is left alone."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest

import pytrace
from pytrace.interface.events import Collector
from tests.support.patience import patience

OPENS = 'tracepoint:syscalls:sys_enter_openat /pid == cpid/ { @[comm] = count(); printf("%s\\n", comm); }'
TICKS = "interval:ms:10 { print(1); } end { print(2); }"


@pytest.fixture(autouse=True)
def kept_apart(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, no_leaks: None) -> None:
    """These tests have a cache of their own, and leave nothing in the kernel."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


def in_thread(work: object) -> None:
    assert callable(work)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(patience(30))
    assert not thread.is_alive()


# ---------------------------------------------------------------------------------------------- threads


def test_a_command_outlives_the_thread_that_started_it() -> None:
    made: list[pytrace.Trace] = []
    script = "tracepoint:syscalls:sys_enter_exit_group /pid == cpid/ { print(pid); }"
    in_thread(lambda: made.append(pytrace.open(script, command="sleep 0.3")))
    with made.pop() as trace:
        assert [event.values for event in trace] == [(trace.child_pid,)]
        assert trace.child_status == 0


def test_traces_of_many_threads_at_once() -> None:
    """Compilation, libbpf and forks of several threads do not meet."""
    found: dict[int, tuple[set[str], int | None]] = {}

    def work(number: int) -> None:
        script = f't:syscalls:sys_enter_openat /pid == cpid/ {{ @ = count(); printf("{number}"); }}'
        with pytrace.open(script, command="cat /dev/null", cached=False) as trace:
            texts = [event.text for event in trace]
            assert trace.maps["@"].value == len(texts)
            found[number] = set(texts), trace.child_status

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience(60))
    assert found == {number: ({str(number)}, 0) for number in range(6)}


def test_several_traces_in_one_thread() -> None:
    with pytrace.open(TICKS) as first, pytrace.open(TICKS) as second:
        assert next(iter(first)).values == next(iter(second)).values == (1,)
        first.stop()
        assert (first.ended, second.ended) == (True, False)
        assert second.wait(0.05) is False


@pytest.mark.parametrize("iterates", [True, False])
def test_stop_from_another_thread(iterates: bool) -> None:
    with pytrace.open(TICKS) as trace:
        timer = threading.Timer(0.1, trace.stop)
        timer.start()
        found = list(trace) if iterates else []
        timer.join()
        assert trace.ended
        assert [event.values for event in [*found, *trace.events()]][-1] == (2,)


def test_close_from_another_thread_ends_the_iteration() -> None:
    with pytrace.open("interval:s:100 { print(1); }") as trace:
        timer = threading.Timer(0.1, trace.close)
        timer.start()
        assert list(trace) == []
        timer.join()


# ---------------------------------------------------------------------------------------------- signals


def test_stop_in_a_handler_of_signals() -> None:
    trace = pytrace.open(TICKS)
    former = signal.signal(signal.SIGUSR2, lambda *_: trace.stop())
    try:
        with trace:
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR2)).start()
            assert [event.values for event in trace][-1] == (2,)
    finally:
        signal.signal(signal.SIGUSR2, former)


def test_control_c_in_the_loop() -> None:
    with pytrace.open(TICKS) as trace:
        # Opening takes as long as it takes.
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            list(trace)


def test_a_program_that_ignores_its_children() -> None:
    former = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert pytrace.run(OPENS, command="cat /dev/null").to_dict("@")["cat"] > 0
    finally:
        signal.signal(signal.SIGCHLD, former)


# ---------------------------------------------------------------------------------------------- the end of objects


def test_a_trace_that_nobody_holds_is_closed() -> None:
    gc.disable()
    try:
        trace = pytrace.open(OPENS, command="sleep 100")
        watch = os.pidfd_open(trace.child_pid or 0)
        maps = trace.maps
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del trace
            assert maps["@"].to_dict() is not None  # A map holds its trace.
            del maps
        assert [str(item.message) for item in caught] == ["the trace of script was not closed"]
        with pytest.raises(ProcessLookupError):
            signal.pidfd_send_signal(watch, 0)
        os.close(watch)
    finally:
        gc.enable()


def test_a_forked_process_ends_nothing() -> None:
    with pytrace.open(OPENS, command="sleep 0.3") as trace:
        pid = os.fork()
        if not pid:
            trace.close()
            os._exit(0)
        os.waitpid(pid, 0)
        assert not trace.wait(0)
        assert {event.text for event in trace} == {"sleep"}
        assert trace.child_status == 0


def test_a_program_that_ends_without_closing() -> None:
    code = (
        "import pytrace\nt = pytrace.open('interval:s:1 { }', command='sleep 100')\nprint(t.child_pid, flush=True)\n"
        "keep = [t]\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(30), check=True)
    assert not os.path.exists(f"/proc/{int(done.stdout)}")
    assert done.stderr == ""


# ---------------------------------------------------------------------------------------------- asyncio


def test_async_for_can_be_cancelled() -> None:
    async def main() -> list[object]:
        found: list[object] = []
        async with pytrace.open(TICKS) as trace:

            async def take() -> None:
                async for event in trace:
                    found.append(event.values)

            task = asyncio.create_task(take())
            while len(found) < 3:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            trace.stop()
            found += [event.values for event in trace.events()]
        assert trace.closed
        return found

    assert asyncio.run(asyncio.wait_for(main(), patience(30)))[-1] == (2,)


def test_a_flood_leaves_other_tasks_their_turn(programs: Path) -> None:
    script = "t:syscalls:sys_enter_getppid /pid == cpid/ { print(1); }"

    async def main() -> int:
        taken = 0
        async with pytrace.open(script, command=[programs / "flood", "100000000", "1"]) as trace:

            async def take() -> None:
                nonlocal taken
                async for _event in trace:
                    taken += 1

            task = asyncio.create_task(take())
            for _ in range(20):
                await asyncio.sleep(0)
            while taken < 1000:
                await asyncio.sleep(0)
            task.cancel()
        return taken

    assert asyncio.run(asyncio.wait_for(main(), patience(60))) >= 1000


# ---------------------------------------------------------------------------------------------- what is the program's


def state(*, threads: int = 0) -> list[object]:
    """What a program may rely on; *threads* more than its own may run."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGPIPE, signal.SIGCHLD)
    return [
        gc.isenabled(), gc.get_freeze_count(), os.getcwd(), sys.getrecursionlimit(), sys.unraisablehook,
        [signal.getsignal(number) for number in numbers], dict(os.environ), sys.stdout, sys.stderr,
        Path("/proc/self/comm").read_text(), threading.active_count() - threads, warnings.filters[:],
    ]  # fmt: skip


def test_the_state_of_the_program_is_left_alone(capfd: pytest.CaptureFixture[str]) -> None:
    before = state()
    pytrace.run(OPENS, command="cat /dev/null", cached=False)
    with pytest.raises(pytrace.ScriptError):
        pytrace.run("begin { nothing(); }")
    with pytrace.open(OPENS, command="cat /dev/null") as trace:
        # The watchdog's heartbeat is a thread.
        assert state(threads=1)[5:] == before[5:]
        trace.wait(0)
    assert state() == before
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_a_program_without_standard_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", None)
        patch.setattr(sys, "stderr", None)
        found = pytrace.run(OPENS, command="cat /dev/null", cached=False)
    assert found.to_dict("@")["cat"] > 0


def test_descriptors_are_given_back() -> None:
    pytrace.run(OPENS, command="cat /dev/null")
    gc.collect()  # files that an error and its frames refer to are closed by the collector
    before = len(os.listdir("/proc/self/fd"))
    for script, command in ((OPENS, "cat /dev/null"), (OPENS, "/nonexistent"), ("uprobe:/bin/ls:none { }", "true")):
        for _ in range(3):
            try:
                pytrace.run(script, command=command)
            except (pytrace.TraceError, pytrace.ScriptError):
                continue
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before


def test_a_flood_that_nobody_takes_does_not_fill_memory(programs: Path) -> None:
    script = "t:syscalls:sys_enter_getppid /pid == cpid/ { print(1); }"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pytrace.LossWarning)
        with pytrace.open(script, command=[programs / "flood", "150000", "1"]) as trace:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            trace.wait()
            taken = len(trace.events())
            assert taken <= 100_000
            assert taken + trace.lost == 150_000
            assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 256 << 10


def test_importing_is_cheap() -> None:
    code = (
        "import sys\nbefore = set(sys.modules)\nimport pytrace\n"
        "assert set(sys.modules) - before <= {'pytrace', '__future__'}, set(sys.modules) - before\n"
        "assert dir(pytrace) == sorted(pytrace.__all__)\n"
        "assert all(getattr(pytrace, name) for name in dir(pytrace))\n"
        "assert not {'llvmlite', 'ply', 'zstandard', 'pandas', 'clang'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-I", "-c", code], check=True, timeout=patience(30))


def test_moments_pass_while_waiting() -> None:
    """A wait that nothing interrupts lasts as long as it was told."""
    with pytrace.open("interval:s:100 { }") as trace:
        begun = time.monotonic()
        assert not trace.wait(0.05)
        assert time.monotonic() - begun >= 0.05


def test_who_iterates_gets_all_events(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that still wait when the command has ended come in turns, and not all at once."""
    monkeypatch.setattr(Collector.__init__, "__defaults__", (20_000, 256 << 20))
    script = "t:syscalls:sys_enter_getppid /pid == cpid/ { print(1); } end { print(2); }"
    with pytrace.open(script, command=[programs / "flood", "100000", "1"]) as trace:
        time.sleep(0.3)
        found = [event.values[0] for event in trace]
        assert len(found) + trace.lost == 100_001
        assert found[-1] == 2
        assert "unread" not in trace.losses


def test_control_c_while_opening() -> None:
    """Wherever it comes, also in a callback of libbpf, it is raised, and nothing is left."""
    # An exception is ignored that is raised within a function that the collector calls, as hypothesis has one.
    gc.disable()
    try:
        for delay in range(40):
            timer = threading.Timer(0.004 * delay, os.kill, (os.getpid(), signal.SIGINT))
            with pytest.raises(KeyboardInterrupt):
                interrupted(timer)
            timer.join()
    finally:
        gc.enable()


def interrupted(timer: threading.Timer) -> None:
    timer.start()
    with pytrace.open(OPENS, command="sleep 100") as trace:
        trace.wait()
