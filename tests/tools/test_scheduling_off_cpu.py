"""Tools about stacks on and off the processor: profile, offcputime, offwaketime, wakeuptime."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.kernel_features import needs
from tests.support.server import Running
from tests.support.tools import ToolRun
from tests.support.waiting import until
from tests.support.workloads import scheduling
from tests.tools.conftest import Tool
from tests.tools.test_scheduling_queues import sampled

FOLDED = re.compile(r"(\S.*) (\d+)")
LIBRARY = "\nclock_nanosleep+"
"""The C library's function; it has no frame pointer, so what called it may be missing from the stack."""


def of(run: ToolRun, map_name: str, *parts: str) -> dict[str, int]:
    """Entries of a map whose key has all these parts."""
    return {key: value for key, value in run.maps.get(map_name, {}).items() if all(part in key for part in parts)}


def folded(run: ToolRun) -> dict[str, int]:
    """Numbers by line."""
    found = [FOLDED.fullmatch(line) for line in run.stdout.splitlines() if line]
    assert found
    assert all(found), run.stdout
    return {match[1]: int(match[2]) for match in found if match}


def napping(programs: Path, seen: list[scheduling.Measured]) -> Callable[[Running], None]:
    def work(_running: Running) -> None:
        seen.append(scheduling.naps(programs, scheduling.MANY, 25))

    return work


@pytest.mark.tool("offcputime")
@pytest.mark.parametrize("options", [(), ("-d",), ("-u",), ("--state", 1), ("-m", 20000), ("-s",)])
def test_sleeps_are_found(tool: Tool, programs: Path, options: tuple[object, ...]) -> None:
    needs("rawtracepoint")
    seen: list[scheduling.Measured] = []
    run = tool("offcputime", "--comm", "naps", *options, work=napping(programs, seen))
    asleep = of(run, "@off_us", "nanosleep", f",naps,{seen[0].pid}")
    assert sum(asleep.values()) >= 0.95 * seen[0].nanoseconds / 1000
    assert sum(asleep.values()) <= seen[0].nanoseconds / 1000
    assert any("schedule+" in key and LIBRARY in key for key in asleep), list(asleep)
    assert all((",--," in key) == ("-d" in options) for key in asleep)
    assert not of(run, "@off_us", ",swapper")


@pytest.mark.tool("offcputime")
@pytest.mark.parametrize("options", [("-k",), ("--state", 2), ("-m", 3_600_000_000), ("-M", 20000)])
def test_sleeps_that_are_left_out(tool: Tool, programs: Path, options: tuple[object, ...]) -> None:
    needs("rawtracepoint")
    seen: list[scheduling.Measured] = []
    run = tool("offcputime", "--comm", "naps", *options, work=napping(programs, seen))
    assert not of(run, "@off_us", "do_nanosleep", f",naps,{seen[0].pid}")


@pytest.mark.tool("offcputime")
def test_one_side_of_the_stacks(tool: Tool, programs: Path) -> None:
    needs("rawtracepoint")
    seen: list[scheduling.Measured] = []
    user = tool("offcputime", "-U", "--comm", "naps", work=napping(programs, seen))
    assert any(LIBRARY in key and "schedule+" not in key for key in user.maps["@off_us"])
    kernel = tool("offcputime", "-K", "--comm", "naps", work=napping(programs, seen))
    assert all(LIBRARY not in key for key in kernel.maps["@off_us"])
    assert any("schedule+" in key for key in kernel.maps["@off_us"])
    failed = tool("offcputime", "-U", "-K", status=1)
    assert "-U and -K exclude each other" in failed.stderr


@pytest.mark.tool("offcputime")
def test_lines_for_flame_graphs(tool: Tool, programs: Path) -> None:
    needs("rawtracepoint")
    seen: list[scheduling.Measured] = []
    run = tool("offcputime", "-d", "--folded", "--comm", "naps", form="text", work=napping(programs, seen))
    lines = folded(run)
    asleep = {line: number for line, number in lines.items() if line.startswith("naps;") and "do_nanosleep" in line}
    assert sum(asleep.values()) >= 0.95 * seen[0].nanoseconds / 1000
    assert all(line.index(";-;") < line.index("do_nanosleep") for line in asleep)
    assert any(line.index("clock_nanosleep;-;") < line.index("do_nanosleep") for line in asleep)


@pytest.mark.tool("offcputime")
def test_one_thread_and_a_duration(tool: Tool, programs: Path) -> None:
    needs("rawtracepoint")
    with scheduling.hogs(programs, 2) as hogs:
        run = tool("offcputime", "-t", hogs[0], 1, interrupt=False)
    found = of(run, "@off_us", ",busy,")
    assert found
    assert set(found) == set(of(run, "@off_us", f",busy,{hogs[0]}"))


ASLEEP = scheduling.MANY * 20_000
"""Microseconds that a :class:`Reader` sleeps at least."""


@dataclass(frozen=True)
class Reader:
    """A process that sleeps until this one writes to its pipe: often, for 20 ms at least while a tool looks."""

    pid: int
    pipe: int

    def work(self, _running: Running) -> None:
        # The first sleep began before the tool did.
        for _ in range(scheduling.MANY + 1):
            until(self._asleep)
            time.sleep(0.02)
            os.write(self.pipe, b"x")
        until(self._asleep)

    def _asleep(self) -> bool:
        return Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "S"


@pytest.fixture
def reader() -> Iterator[Reader]:
    """A process ``cat`` that reads from a pipe of this process."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        yield Reader(process.pid, process.stdin.fileno())


@pytest.mark.tool("wakeuptime")
def test_the_stack_of_the_waker(tool: Tool, reader: Reader) -> None:
    needs("rawtracepoint")
    run = tool("wakeuptime", "-p", reader.pid, work=reader.work)
    slept = of(run, "@blocked_us", "target,cat,", "pipe_write+", ",waker,")
    assert sum(slept.values()) >= 0.95 * ASLEEP
    assert all(key.startswith("target,cat,") for key in run.maps["@blocked_us"])
    lines = folded(tool("wakeuptime", "--folded", "-p", reader.pid, form="text", work=reader.work))
    found = {line: number for line, number in lines.items() if re.fullmatch(r".*ksys_write;.*pipe_write.*;cat", line)}
    assert sum(found.values()) >= 0.95 * ASLEEP


@pytest.mark.tool("wakeuptime")
def test_sleeps_end_by_the_timer(tool: Tool, programs: Path) -> None:
    needs("rawtracepoint")
    run = tool("wakeuptime", "-u", "-m", 1000, "--comm", "naps", work=napping(programs, []))
    slept = of(run, "@blocked_us", "target,naps,", "hrtimer_wakeup+")
    # The wait for a processor after the sleep is not blocked time. Other tests run this program, too.
    assert sum(slept.values()) >= 0.95 * scheduling.MANY * 25_000
    none = tool("wakeuptime", "-M", 1000, "--comm", "naps", work=napping(programs, []))
    assert not of(none, "@blocked_us", "target,naps,", "hrtimer_wakeup+")


@pytest.mark.tool("offwaketime")
@pytest.mark.parametrize("options", [(), ("-K",), ("-d",)])
def test_who_waited_and_who_woke(tool: Tool, reader: Reader, options: tuple[str, ...]) -> None:
    needs("rawtracepoint")
    run = tool("offwaketime", "-p", reader.pid, *options, work=reader.work)
    found = of(run, "@blocked_us", f",{os.getpid()},", "pipe_write+", "pipe_read+", f"target,cat,{reader.pid}")
    assert sum(found.values()) >= 0.95 * ASLEEP
    for key in found:
        waker, _, target = key.partition(",--,")
        assert waker.startswith("waker,")
        assert "pipe_write+" in waker
        assert "pipe_read+" in target
        assert (",-," in waker) == ("-d" in options)


@pytest.mark.tool("offwaketime")
def test_user_stacks_of_both(tool: Tool, reader: Reader) -> None:
    needs("rawtracepoint")
    run = tool("offwaketime", "-U", "-p", reader.pid, work=reader.work)
    found = of(run, "@blocked_us", f",{os.getpid()},", "write", "read", f"target,cat,{reader.pid}")
    assert sum(found.values()) >= 0.95 * ASLEEP
    assert not of(run, "@blocked_us", "schedule+")


@pytest.mark.tool("offwaketime")
def test_both_stacks_meet_in_folded_lines(tool: Tool, reader: Reader) -> None:
    needs("rawtracepoint")
    lines = folded(tool("offwaketime", "--folded", "-p", reader.pid, form="text", work=reader.work))
    pattern = r"cat;.*ksys_read;.*pipe_read;.*;--;.*pipe_write;.*ksys_write;.*"
    found = {line: number for line, number in lines.items() if re.fullmatch(pattern, line)}
    assert sum(found.values()) >= 0.95 * ASLEEP


@pytest.mark.tool("profile")
@pytest.mark.parametrize("options", [(), ("-U",), ("-d",), ("-F", 99), ("--count", 5_000_000), ("-A",), ("-I",)])
def test_where_a_hog_spends_its_time(tool: Tool, programs: Path, options: tuple[object, ...]) -> None:
    with scheduling.hogs(programs, 1) as hogs:
        run = tool("profile", "-p", hogs[0], *options, work=lambda _: sampled(hogs, 50))
        samples = run.maps["@samples"]
        assert all(re.search(rf",busy,{hogs[0]}( #\d+)?$", key) for key in samples)
        # Half a second or more of processor time: 24 samples at 49 Hz.
        assert sum(samples.values()) >= 12
        assert sum(of(run, "@samples", "hot").values()) >= 0.5 * sum(samples.values())
        assert all((",--," in key) == ("-d" in options) for key in samples)


BUSY = """
import threading, time
def handler():
    sum(range(200_000))
def wait():
    time.sleep(0.01)
def serve():
    while True:
        handler()
        wait()
serve()
"""


@pytest.mark.tool("profile", "offcputime")
def test_functions_of_python(tool: Tool, tmp_path: Path) -> None:
    (tmp_path / "service.py").write_text(BUSY)
    with subprocess.Popen(["/usr/bin/python3", str(tmp_path / "service.py")]) as service:
        try:
            for name, options, last in (("profile", ("-F", 999), "handler"), ("offcputime", (), "wait")):
                words = ("--python", "-U", *options, "--folded", "-p", service.pid, 1)
                run = tool(name, *words, form="text", interrupt=False)
                lines = folded(run)
                assert any(line.endswith(f";<module>;serve;{last}") for line in lines), lines
                assert not any("PyEval" in line for line in lines)
        finally:
            service.kill()


@pytest.mark.tool("profile")
def test_lines_of_a_profile(tool: Tool, programs: Path) -> None:
    place = max(os.sched_getaffinity(0))
    with scheduling.hogs(programs, 1, place) as hogs:
        run = tool("profile", "--folded", "-a", "-p", hogs[0], form="text", work=lambda _: sampled(hogs, 50))
        lines = folded(run)
        assert all(line.startswith("busy;") or line == "busy" for line in lines)
        assert any(line.endswith("hot") for line in lines)
        kernel = tool("profile", "-K", "--folded", "-a", "-C", place, 1, form="text", interrupt=False)
        assert all(re.fullmatch(r"[^;]+(;.*_\[[ki]\])?", line) for line in folded(kernel))
        others = os.sched_getaffinity(0) - {place}
        for other in sorted(others)[:1]:
            elsewhere = tool("profile", "-p", hogs[0], "-C", other, 1, interrupt=False)
            assert not elsewhere.maps.get("@samples")
        thread = tool("profile", "-L", hogs[0], 1, interrupt=False)
        assert sum(of(thread, "@samples", f",busy,{hogs[0]}").values()) == sum(thread.maps["@samples"].values()) > 0


@pytest.mark.tool("offcputime")
def test_the_time_for_which_pytrace_holds_a_command_is_left_out(tool: Tool) -> None:
    """The command waits in ptrace_stop until its libraries are known; only --self shows that."""
    needs("rawtracepoint")
    for options, shown in (((), False), (("--self",), True)):
        run = tool("offcputime", *options, command="sleep 0.2")
        assert of(run, "@off_us", "nanosleep", "sleep"), run.maps
        assert bool(of(run, "@off_us", "ptrace_stop", "sleep")) is shown, run.maps
