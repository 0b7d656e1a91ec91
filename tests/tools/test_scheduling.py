"""Tools about the scheduler: waits for a processor, interrupts, stacks off the processor, locks."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import tty
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytrace.core.options import CompileOptions
from pytrace.core.probe_kinds import CountedEventTarget
from pytrace.runtime.load.live_kernel import LiveKernel
from tests.codegen.running import compiled
from tests.support import tools
from tests.support.kernel_features import needs, needs_tracepoint
from tests.support.patience import patience
from tests.support.server import Running, Server
from tests.support.tools import ToolRun, cannot, check_columns
from tests.support.waiting import until
from tests.support.workloads import memory, scheduling
from tests.tools.conftest import Tool

# ---------------------------------------------------------------------------------------------- scheduling queues
# Tools about waits for a processor and stays on it: runqlat, runqlen, runqslower, cpudist, cpuwalk, and loads.


Buckets = Iterable[Mapping[str, int]]


def total(buckets: Buckets, least: int = 0) -> int:
    """How many values a histogram has in buckets that begin at *least* or above."""
    return sum(bucket["count"] for bucket in buckets if bucket.get("min", 0) >= least)


def displaced(pid: int) -> int:
    """How often a process had to leave a processor though it could have run on."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.rsplit("nonvoluntary_ctxt_switches:", 1)[1].split()[0])


def in_turns(pids: list[int], times: int = 8) -> None:
    """Wait until each process was displaced *times* more."""
    before = {pid: displaced(pid) for pid in pids}
    with scheduling.computing(pids):
        until(lambda: all(displaced(pid) >= before[pid] + times for pid in pids))


def taking_turns(programs: Path, pids: list[int]) -> Callable[[Running], None]:
    """Two hogs on one processor; *pids* gets their numbers."""

    def work(_running: Running) -> None:
        with scheduling.hogs(programs, 2) as hogs:
            pids.extend(hogs)
            in_turns(hogs)

    return work


@pytest.mark.tool("runqlat", kernel="rawtracepoint")
def test_hogs_on_one_processor_wait_for_each_other(tool: Tool, programs: Path) -> None:
    with scheduling.hogs(programs, 2) as hogs:
        run = tool("runqlat", "-P", "-p", ",".join(map(str, hogs)), work=lambda _: in_turns(hogs))
        assert set(run.maps["@usecs"]) == {f"{pid},busy" for pid in hogs}
        for pid in hogs:
            # Each wait is a turn of the other one.
            assert total(run.maps["@usecs"][f"{pid},busy"], 256) >= 4
        one = tool("runqlat", "-p", hogs[0], work=lambda _: in_turns(hogs))
        assert total(one.maps["@usecs"], 256) >= 4
        threads = tool("runqlat", "-L", "-m", "-p", hogs[1], work=lambda _: in_turns(hogs))
        assert set(threads.maps["@msecs"]) == {f"{hogs[1]},busy"}
        spaces = tool("runqlat", "--pidnss", "-p", hogs[1], work=lambda _: in_turns(hogs))
        inode = os.stat("/proc/self/ns/pid").st_ino
        assert set(spaces.maps["@usecs"]) == {str(inode)}


@pytest.mark.tool("runqlat", kernel="rawtracepoint")
def test_a_new_thread_waits_too(tool: Tool, programs: Path) -> None:
    seen: list[int] = []
    run = tool("runqlat", "-P", "--comm", "busy", work=taking_turns(programs, seen))
    assert {f"{pid},busy" for pid in seen} <= set(run.maps["@usecs"])


@pytest.mark.tool("runqlat", kernel="rawtracepoint")
@pytest.mark.parametrize("options", [(), ("-m",), ("-P",)])
def test_outputs_at_intervals_with_the_time(tool: Tool, options: tuple[str, ...]) -> None:
    run = tool("runqlat", "-T", *options, 1, 2, interrupt=False, form="text")
    times = [line for line in run.lines if re.fullmatch(r"\d\d:\d\d:\d\d", line)]
    assert len(times) == 2
    title = "@msecs" if "-m" in options else "@usecs"
    assert sum(line.startswith(title) for line in run.lines) >= 2


@pytest.mark.tool("runqlen", kernel="btf")
def test_threads_that_wait_are_counted(tool: Tool, programs: Path) -> None:
    place = max(os.sched_getaffinity(0))
    with scheduling.hogs(programs, 3, place) as hogs, scheduling.computing(hogs):
        run = tool("runqlen", "-C", 1, 1, interrupt=False)
        found = run.maps["@runqlen"][str(place)]
        # One runs, two wait; samples that fall into a switch may see one less.
        assert total(found, 2) >= 0.9 * total(found) > 0
        occupied = tool("runqlen", "-O", "-C", 1, 1, interrupt=False)
        assert [row["CPU"] for row in occupied.rows] == sorted(row["CPU"] for row in occupied.rows)
        (row,) = occupied.of(CPU=place)
        assert 90 <= row["RUNQOCC%"] <= 100
        (row,) = tool("runqlen", "-O", 1, 1, interrupt=False).rows
        assert 0 < row["RUNQOCC%"] <= 100
    assert total(tool("runqlen", 1, 1, interrupt=False).maps["@runqlen"]) > 0


@pytest.mark.tool("runqslower", kernel="rawtracepoint")
def test_long_waits_are_rows(tool: Tool, programs: Path) -> None:
    with scheduling.hogs(programs, 2) as hogs:
        run = tool("runqslower", 200, "-p", ",".join(map(str, hogs)), work=lambda _: in_turns(hogs))
        check_columns(run)
        assert {row["TID"] for row in run.rows} == set(hogs)
        assert all(row["LAT(us)"] > 200 and row["COMM"] == "busy" for row in run.rows)
        assert all(row["PREV TID"] != row["TID"] and row["PREV COMM"] for row in run.rows)
        one = tool("runqslower", "-P", "-t", hogs[0], 200, work=lambda _: in_turns(hogs))
        assert {row["TID"] for row in one.rows} == {hogs[0]}
        assert not tool("runqslower", "-p", hogs[0], 3_600_000_000, work=lambda _: in_turns(hogs)).rows


@pytest.mark.tool("cpudist", kernel="rawtracepoint")
def test_stays_on_a_processor(tool: Tool, programs: Path) -> None:
    with scheduling.hogs(programs, 2) as hogs:
        both = ",".join(map(str, hogs))
        run = tool("cpudist", "-P", "--extension", "-p", both, work=lambda _: in_turns(hogs))
        assert set(run.maps["@usecs"]) == {f"{pid},busy" for pid in hogs}
        stays = sum(total(buckets) for buckets in run.maps["@usecs"].values())
        assert run.maps["@total_usecs"]["count"] == stays >= 8
        assert any(total(buckets, 256) for buckets in run.maps["@usecs"].values())


@pytest.mark.tool("cpudist", kernel="rawtracepoint")
def test_sleeps_are_time_off_the_processor(tool: Tool, programs: Path) -> None:
    seen: list[scheduling.Measured] = []

    def work(_running: Running) -> None:
        seen.append(scheduling.naps(programs, scheduling.MANY, 20))

    # Other tests run this program, too.
    run = tool("cpudist", "-O", "-L", "--comm", "naps", work=work)
    assert total(run.maps["@usecs"][f"{seen[0].pid},naps"], 16384) >= 0.95 * scheduling.MANY
    run = tool("cpudist", "-O", "-m", "--extension", "--comm", "naps", work=work)
    assert total(run.maps["@msecs"], 16) >= 0.95 * scheduling.MANY
    assert run.maps["@total_msecs"]["total"] >= 0.95 * scheduling.MANY * 20


SAME_NUMBER = """
import os, time
def child():
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
    return pid
first = child()
end = time.monotonic() + 3
while time.monotonic() < end:
    pass
for _ in range(100):
    with open("/proc/sys/kernel/ns_last_pid", "w") as file:
        file.write(str(first - 1))
    if child() == first:
        print("the same number")
        break
"""
"""A process gets the number of one that ended 3 seconds of computing before."""


@pytest.mark.tool("cpudist", kernel="rawtracepoint")
def test_a_thread_that_has_ended_is_not_off_the_processor(tool: Tool, tmp_path: Path) -> None:
    if not Path("/proc/sys/kernel/ns_last_pid").exists():
        cannot("this kernel does not let programs choose process ids (CONFIG_CHECKPOINT_RESTORE)")
    (tmp_path / "same.py").write_text(SAME_NUMBER)
    run = tool("cpudist", "-O", "-m", command=f"{sys.executable} -I -S {tmp_path / 'same.py'}")
    assert "the same number" in run.stdout
    assert total(run.maps["@msecs"])
    assert not total(run.maps["@msecs"], 2048)


@pytest.mark.tool("cpudist", kernel="rawtracepoint")
def test_idle_time_only_when_asked(tool: Tool) -> None:
    idle = [f"0,swapper/{number}" for number in range(os.cpu_count() or 1)]
    with_idle = tool("cpudist", "-I", "-L", 1, 1, interrupt=False)
    without = tool("cpudist", "-L", 1, 1, interrupt=False)
    assert not set(idle) & set(without.maps["@usecs"])
    assert with_idle.maps["@usecs"]


def sampled(pids: list[int], ticks: int = 30) -> None:
    """Wait until each process has computed for so many hundredths of a second more."""

    def passed(pid: int) -> int:
        fields: list[Any] = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    before = {pid: passed(pid) for pid in pids}
    with scheduling.computing(pids):
        until(lambda: all(passed(pid) >= before[pid] + ticks for pid in pids))


@pytest.mark.tool("cpuwalk")
def test_the_processor_of_a_program(tool: Tool, programs: Path) -> None:
    place = max(os.sched_getaffinity(0))
    with scheduling.hogs(programs, 1, place) as hogs:
        run = tool("cpuwalk", "-p", hogs[0], work=lambda _: sampled(hogs))
        used = {bucket["min"]: bucket["count"] for bucket in run.maps["@cpu"] if bucket["count"]}
        assert set(used) == {place}
        assert used[place] >= 5
        with scheduling.computing(hogs):
            each = tool("cpuwalk", "-P", 1, 1, interrupt=False)
        assert f"{hogs[0]},busy" in each.maps["@cpu"]


# ------------------------------------------------------------------------------------------------ loads


@pytest.mark.tool("loads")
def test_loads_are_those_of_the_kernel(tool: Tool) -> None:
    run = tool("loads", 1, 2, form="text", interrupt=False)
    heading, *lines = [line.split() for line in run.lines if line.strip()]
    assert heading[:4] == ["TIME", "LOAD1", "LOAD5", "LOAD15"]
    assert [re.fullmatch(r"\d\d:\d\d:\d\d", line[0]) is not None for line in lines] == [True, True]
    now = float(Path("/proc/loadavg").read_text().split()[2])
    assert all(abs(float(line[3]) - now) < 0.5 for line in lines)


# ---------------------------------------------------------------------------------------------- scheduling interrupts
# Tools about interrupts and work that the kernel puts off: hardirqs, softirqs, wqlat.


Counts = dict[str, int]


def hard_interrupts() -> Counts:
    """Numbers by handler, of all processors (``/proc/interrupts``): those of devices, which have a number."""
    counts: Counts = {}
    lines = Path("/proc/interrupts").read_text().splitlines()
    processors = len(lines[0].split())
    for line in lines[1:]:
        words = line.split()
        if not words[0].rstrip(":").isdigit():
            continue
        # The chip, the number there, and the names of all handlers that share the line.
        for name in line.split(None, 1 + processors)[-1].split(","):
            own = name.split()[-1]
            counts[own] = counts.get(own, 0) + sum(map(int, words[1 : 1 + processors]))
    return counts


def soft_interrupts() -> Counts:
    """Numbers by kind, of all processors."""
    rows = [line.split() for line in Path("/proc/softirqs").read_text().splitlines()[1:]]
    return {row[0].rstrip(":").lower(): sum(map(int, row[1:])) for row in rows}


def enough(read: Callable[[], Counts], folder: Path) -> Callable[[Running], None]:
    """Write to a file until there were twenty more."""

    def work(_running: Running) -> None:
        before = sum(read().values())

        def more() -> bool:
            with open(folder / "written", "wb", 0) as file:
                file.write(bytes(4096))
                os.fsync(file.fileno())
            return sum(read().values()) >= before + 20

        until(more, 10)

    return work


def has_interrupts(folder: Path) -> None:
    """Skip where no device interrupts."""
    try:
        enough(hard_interrupts, folder)(Running.__new__(Running))
    except AssertionError:
        cannot(f"no device of this machine interrupted in {patience(10):.0f} s")


@pytest.mark.tool("hardirqs", kernel="rawtracepoint")
def test_hard_interrupts_are_those_that_the_kernel_counts(tool: Tool, folder: Path) -> None:
    has_interrupts(folder)
    before = hard_interrupts()
    run = tool("hardirqs", work=enough(hard_interrupts, folder))
    after = hard_interrupts()
    check_columns(run)
    assert run.rows
    for row in run.rows:
        assert 0 < row["COUNT"] <= after[row["HARDIRQ"].split()[-1]] - before[row["HARDIRQ"].split()[-1]]
    assert [row["TOTAL(us)"] for row in run.rows] == sorted((row["TOTAL(us)"] for row in run.rows), reverse=True)
    assert sum(row["COUNT"] for row in run.rows) >= 10


@pytest.mark.tool("hardirqs", kernel="rawtracepoint")
def test_forms_of_hard_interrupts(tool: Tool, folder: Path) -> None:
    has_interrupts(folder)
    work = enough(hard_interrupts, folder)
    counts = tool("hardirqs", "-C", work=work)
    assert all(list(row) == ["HARDIRQ", "COUNT"] and row["COUNT"] > 0 for row in counts.rows)
    precise = tool("hardirqs", "-N", work=work)
    # A handler takes tens of nanoseconds at least.
    assert all(row["TOTAL(ns)"] >= 10 * row["COUNT"] for row in precise.rows)
    histograms = tool("hardirqs", "-d", "-N", work=work)
    assert sum(total(buckets) for buckets in histograms.maps["@nsecs"].values()) >= 10
    each = [tool("hardirqs", "--cpu", number, work=work).rows for number in range(os.cpu_count() or 1)]
    assert sum(row["COUNT"] for rows in each for row in rows) >= 1


@pytest.mark.tool("softirqs", kernel="rawtracepoint")
def test_soft_interrupts_are_those_that_the_kernel_counts(tool: Tool, folder: Path) -> None:
    before = soft_interrupts()
    run = tool("softirqs", work=enough(soft_interrupts, folder))
    after = soft_interrupts()
    check_columns(run)
    assert {"timer", "sched", "rcu"} & {row["SOFTIRQ"] for row in run.rows}
    for row in run.rows:
        assert 0 < row["COUNT"] <= after[row["SOFTIRQ"]] - before[row["SOFTIRQ"]]
    assert sum(row["COUNT"] for row in run.rows) >= 10


@pytest.mark.tool("softirqs", kernel="rawtracepoint")
def test_forms_of_soft_interrupts(tool: Tool, folder: Path) -> None:
    work = enough(soft_interrupts, folder)
    assert all(list(row) == ["SOFTIRQ", "COUNT"] for row in tool("softirqs", "-C", work=work).rows)
    assert sum(map(total, tool("softirqs", "-d", work=work).maps["@usecs"].values())) >= 10
    run = tool("softirqs", "-NT", 1, 2, form="text", interrupt=False)
    assert sum(bool(re.fullmatch(r"\d\d:\d\d:\d\d", line)) for line in run.lines) == 2
    assert sum(line.split() == ["SOFTIRQ", "TOTAL(ns)", "COUNT"] for line in run.lines) == 2


def typing(lines: int) -> Callable[[Running], None]:
    """Each line that is typed into a terminal is passed on by a work item, ``flush_to_ldisc``."""

    def work(_running: Running) -> None:
        master, slave = os.openpty()
        try:
            tty.setraw(slave)
            for _ in range(lines):
                os.write(master, b"x")
                assert os.read(slave, 1) == b"x"
        finally:
            os.close(master)
            os.close(slave)

    return work


@pytest.mark.tool("wqlat", kernel="rawtracepoint")
def test_work_items_of_a_process(tool: Tool) -> None:
    run = tool("wqlat", "-p", os.getpid(), work=typing(25))
    assert total(run.maps["@usecs"]["flush_to_ldisc"]) == 25
    precise = tool("wqlat", "-N", "-p", os.getpid(), work=typing(25))
    assert total(precise.maps["@nsecs"]["flush_to_ldisc"], 100) == 25


@pytest.mark.tool("wqlat", kernel="rawtracepoint")
def test_work_items_by_queue(tool: Tool) -> None:
    run = tool("wqlat", "-W", "-p", os.getpid(), work=typing(10))
    queue = next(name for name, buckets in run.maps["@usecs"].items() if total(buckets) >= 10)
    assert queue.startswith("events_unbound")
    one = tool("wqlat", "-w", queue, work=typing(10))
    assert total(one.maps["@usecs"]["flush_to_ldisc"]) >= 10
    assert "flush_to_ldisc" not in tool("wqlat", "-w", "no_such", work=typing(10)).maps.get("@usecs", {})


# ---------------------------------------------------------------------------------------------- scheduling off cpu
# Tools about stacks on and off the processor: profile, offcputime, offwaketime, wakeuptime.


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


@pytest.mark.tool("offcputime", kernel="rawtracepoint")
@pytest.mark.parametrize("options", [(), ("-d",), ("-u",), ("--state", 1), ("-m", 20000), ("-s",)])
def test_sleeps_are_found(tool: Tool, programs: Path, options: tuple[object, ...]) -> None:
    seen: list[scheduling.Measured] = []
    run = tool("offcputime", "--comm", "naps", *options, work=napping(programs, seen))
    asleep = of(run, "@off_us", "nanosleep", f",naps,{seen[0].pid}")
    assert sum(asleep.values()) >= 0.95 * seen[0].nanoseconds / 1000
    assert sum(asleep.values()) <= seen[0].nanoseconds / 1000
    assert any("schedule+" in key and LIBRARY in key for key in asleep), list(asleep)
    assert all((",--," in key) == ("-d" in options) for key in asleep)
    assert not of(run, "@off_us", ",swapper")


@pytest.mark.tool("offcputime", kernel="rawtracepoint")
@pytest.mark.parametrize("options", [("-k",), ("--state", 2), ("-m", 3_600_000_000), ("-M", 20000)])
def test_sleeps_that_are_left_out(tool: Tool, programs: Path, options: tuple[object, ...]) -> None:
    seen: list[scheduling.Measured] = []
    run = tool("offcputime", "--comm", "naps", *options, work=napping(programs, seen))
    assert not of(run, "@off_us", "do_nanosleep", f",naps,{seen[0].pid}")


@pytest.mark.tool("offcputime", kernel="rawtracepoint")
def test_one_side_of_the_stacks(tool: Tool, programs: Path) -> None:
    seen: list[scheduling.Measured] = []
    user = tool("offcputime", "-U", "--comm", "naps", work=napping(programs, seen))
    assert any(LIBRARY in key and "schedule+" not in key for key in user.maps["@off_us"])
    kernel = tool("offcputime", "-K", "--comm", "naps", work=napping(programs, seen))
    assert all(LIBRARY not in key for key in kernel.maps["@off_us"])
    assert any("schedule+" in key for key in kernel.maps["@off_us"])
    failed = tool("offcputime", "-U", "-K", status=1)
    assert "-U and -K exclude each other" in failed.stderr


@pytest.mark.tool("offcputime", kernel="rawtracepoint")
def test_lines_for_flame_graphs(tool: Tool, programs: Path) -> None:
    seen: list[scheduling.Measured] = []
    run = tool("offcputime", "-d", "--folded", "--comm", "naps", form="text", work=napping(programs, seen))
    lines = folded(run)
    asleep = {line: number for line, number in lines.items() if line.startswith("naps;") and "do_nanosleep" in line}
    assert sum(asleep.values()) >= 0.95 * seen[0].nanoseconds / 1000
    assert all(line.index(";-;") < line.index("do_nanosleep") for line in asleep)
    assert any(line.index("clock_nanosleep;-;") < line.index("do_nanosleep") for line in asleep)


@pytest.mark.tool("offcputime", kernel="rawtracepoint")
def test_one_thread_and_a_duration(tool: Tool, programs: Path) -> None:
    with scheduling.hogs(programs, 2) as hogs, scheduling.computing(hogs):
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


@pytest.mark.tool("wakeuptime", kernel="rawtracepoint")
def test_the_stack_of_the_waker(tool: Tool, reader: Reader) -> None:
    run = tool("wakeuptime", "-p", reader.pid, work=reader.work)
    slept = of(run, "@blocked_us", "target,cat,", "pipe_write+", ",waker,")
    assert sum(slept.values()) >= 0.95 * ASLEEP
    assert all(key.startswith("target,cat,") for key in run.maps["@blocked_us"])
    lines = folded(tool("wakeuptime", "--folded", "-p", reader.pid, form="text", work=reader.work))
    found = {line: number for line, number in lines.items() if re.fullmatch(r".*ksys_write;.*pipe_write.*;cat", line)}
    assert sum(found.values()) >= 0.95 * ASLEEP


@pytest.mark.tool("wakeuptime", kernel="rawtracepoint")
def test_sleeps_end_by_the_timer(tool: Tool, programs: Path) -> None:
    run = tool("wakeuptime", "-u", "-m", 1000, "--comm", "naps", work=napping(programs, []))
    slept = of(run, "@blocked_us", "target,naps,", "hrtimer_wakeup+")
    # The wait for a processor after the sleep is not blocked time. Other tests run this program, too.
    assert sum(slept.values()) >= 0.95 * scheduling.MANY * 25_000
    none = tool("wakeuptime", "-M", 1000, "--comm", "naps", work=napping(programs, []))
    assert not of(none, "@blocked_us", "target,naps,", "hrtimer_wakeup+")


@pytest.mark.tool("offwaketime", kernel="rawtracepoint")
@pytest.mark.parametrize("options", [(), ("-K",), ("-d",)])
def test_who_waited_and_who_woke(tool: Tool, reader: Reader, options: tuple[str, ...]) -> None:
    run = tool("offwaketime", "-p", reader.pid, *options, work=reader.work)
    found = of(run, "@blocked_us", f",{os.getpid()},", "pipe_write+", "pipe_read+", f"target,cat,{reader.pid}")
    assert sum(found.values()) >= 0.95 * ASLEEP
    for key in found:
        waker, _, target = key.partition(",--,")
        assert waker.startswith("waker,")
        assert "pipe_write+" in waker
        assert "pipe_read+" in target
        assert (",-," in waker) == ("-d" in options)


@pytest.mark.tool("offwaketime", kernel="rawtracepoint")
def test_user_stacks_of_both(tool: Tool, reader: Reader) -> None:
    run = tool("offwaketime", "-U", "-p", reader.pid, work=reader.work)
    found = of(run, "@blocked_us", f",{os.getpid()},", "write", "read", f"target,cat,{reader.pid}")
    assert sum(found.values()) >= 0.95 * ASLEEP
    assert not of(run, "@blocked_us", "schedule+")


@pytest.mark.tool("offwaketime", kernel="rawtracepoint")
def test_both_stacks_meet_in_folded_lines(tool: Tool, reader: Reader) -> None:
    lines = folded(tool("offwaketime", "--folded", "-p", reader.pid, form="text", work=reader.work))
    pattern = r"cat;.*ksys_read;.*pipe_read;.*;--;.*pipe_write;.*ksys_write;.*"
    found = {line: number for line, number in lines.items() if re.fullmatch(pattern, line)}
    assert sum(found.values()) >= 0.95 * ASLEEP


@pytest.mark.tool("profile")
@pytest.mark.parametrize("options", [(), ("-U",), ("-d",), ("-F", 99), ("--count", 5_000_000), ("-A",), ("-I",)])
def test_where_a_hog_spends_its_time(tool: Tool, programs: Path, options: tuple[object, ...]) -> None:
    # Half a second or more of processor time are 24 samples at 49 Hz.
    often, ticks = (("-F", 499), 10) if options in {("-U",), ("-d",), ("-A",), ("-I",)} else ((), 50)
    with scheduling.hogs(programs, 1) as hogs:
        run = tool("profile", "-p", hogs[0], *options, *often, work=lambda _: sampled(hogs, ticks))
        samples = run.maps["@samples"]
        assert all(re.search(rf",busy,{hogs[0]}( #\d+)?$", key) for key in samples)
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
        kernel = tool("profile", "-K", "--folded", "-a", "-C", place, form="text", work=lambda _: sampled(hogs))
        assert all(re.fullmatch(r"[^;]+(;.*_\[[ki]\])?", line) for line in folded(kernel))
        others = os.sched_getaffinity(0) - {place}
        for other in sorted(others)[:1]:
            elsewhere = tool("profile", "-p", hogs[0], "-C", other, work=lambda _: sampled(hogs))
            assert not elsewhere.maps.get("@samples")
        timed = tool(
            "profile", "--over-time", 1, "-F", 999, "-p", hogs[0], work=lambda _: sampled(hogs), interrupt=False
        )
        times = {int(key.rpartition(",")[2]) for key in timed.maps["@samples"]}
        assert times <= set(range(0, 1300, 100))
        assert len(times) > 1
        assert sum(timed.maps["@samples"].values()) == sum(timed.maps["@slices"].values())
        with scheduling.computing(hogs):
            thread = tool("profile", "-L", hogs[0], 1, interrupt=False)
        assert sum(of(thread, "@samples", f",busy,{hogs[0]}").values()) == sum(thread.maps["@samples"].values()) > 0


@pytest.mark.tool("offcputime", kernel="rawtracepoint")
def test_the_time_for_which_pytrace_holds_a_command_is_left_out(tool: Tool) -> None:
    """The command waits in ptrace_stop until its libraries are known; only --self shows that."""
    for options, shown in (((), False), (("--self",), True)):
        run = tool("offcputime", *options, command="sleep 0.2")
        assert of(run, "@off_us", "nanosleep", "sleep"), run.maps
        assert bool(of(run, "@off_us", "ptrace_stop", "sleep")) is shown, run.maps


# ---------------------------------------------------------------------------------------------- scheduling locks
# Tools about locks, caches and frequencies: klockstat, futexwait, llcstat, cpufreq.


PIPE = """
import os, threading, time
reader, writer = os.pipe()
end = time.monotonic() + 2
processors = sorted(os.sched_getaffinity(0))
def write(number):
    os.sched_setaffinity(0, {processors[number % len(processors)]})
    while time.monotonic() < end:
        os.write(writer, bytes(65536))
for number in range(3):
    threading.Thread(target=write, args=(number,), daemon=True).start()
while time.monotonic() < end:
    os.read(reader, 65536)
os._exit(0)
"""
"""Three threads write to a pipe that the fourth reads, all under the pipe's mutex.

They are spread over the processors: threads that the scheduler puts on one processor never wait for a mutex, since
nobody sleeps while holding it. The writes are long, so that the interpreter's own lock does not keep the threads apart.
"""


def pipe(folder: Path) -> str:
    """The command of that program."""
    (folder / "pipe.py").write_text(PIPE)
    return f"{sys.executable} -I -S {folder / 'pipe.py'}"


def counters() -> bool:
    """Whether the kernel found hardware counters."""
    return any(Path("/sys/bus/event_source/devices").glob("cpu*"))


@pytest.mark.each_kernel
@pytest.mark.tool("klockstat")
def test_callers_of_mutexes(tool: Tool, tmp_path: Path) -> None:
    needs_tracepoint("lock:contention_begin")
    run = tool("klockstat", "-S", "acq_count", command=pipe(tmp_path))
    # Where functions can be traced, a second table tells how long locks were held.
    waits = [row for row in run.rows if "AVG-WAIT" in row]
    assert waits, run.result
    assert {tuple(row)[:5] for row in waits} == {("CALLER", "AVG-WAIT", "COUNT", "MAX-WAIT", "TOTAL-WAIT")}
    for row in run.table(1):
        assert row["MAX-WAIT"] <= row["TOTAL-WAIT"]
        assert row["AVG-WAIT"] == row["TOTAL-WAIT"] // row["COUNT"]
    counts = [row["COUNT"] for row in run.table(1)]
    assert counts == sorted(counts, reverse=True)
    # A function where functions can be probed, and otherwise a whole stack.
    waits = [row for row in run.table(1) if "pipe_" in str(row["CALLER"])]
    assert waits
    if run.table(2):
        # Every wait that ended is a lock that was held.
        assert {row["CALLER"] for row in waits} <= {row["CALLER"] for row in run.table(2)}


@pytest.mark.each_kernel
@pytest.mark.tool("klockstat", kernel="kprobe")
def test_locks_of_callers_that_were_asked_for(tool: Tool, tmp_path: Path) -> None:
    run = tool("klockstat", "--caller", "pipe_", "-n", 2, "-s", 2, "-S", "acq_total,hld_count", command=pipe(tmp_path))
    assert all(row["CALLER"].startswith("pipe_") for row in run.rows)
    assert 0 < len(run.table(1)) <= 2
    assert 0 < len(run.table(2)) <= 2
    assert list(run.table(2)[0])[:5] == ["CALLER", "AVG-HOLD", "COUNT", "MAX-HOLD", "TOTAL-HOLD"]
    callers = [(row["COUNT"], *(frame.partition("_")[0] for frame in row["STACK"][:2])) for row in run.table(2)]
    reads = [count for count, *names in callers if names == ["mutex", "pipe"]]
    assert sum(reads) >= 10


@pytest.mark.tool("futexwait", kernel="syscalls")
def test_waits_for_a_mutex(tool: Tool, programs: Path) -> None:
    seen: list[scheduling.Measured] = []

    def work(_running: Running) -> None:
        seen.append(scheduling.contention(programs, 6, 20))

    run = tool("futexwait", "--comm", "contends", work=work)
    check_columns(run)
    (row,) = run.of(PID=seen[0].pid)
    assert (row["PID"], row["COMM"], row["COUNT"]) == (seen[0].pid, "contends", 6)
    assert int(str(row["ADDRESS"]), 0) == seen[0].address
    assert 0.5 * seen[0].nanoseconds / 1000 <= row["TOTAL(us)"] <= seen[0].nanoseconds / 1000
    assert row["TOTAL(us)"] / 6 <= row["P99(us)"] <= row["TOTAL(us)"]

    stacks = tool("futexwait", "-s", "--comm", "contends", work=work)
    rows = stacks.of(PID=seen[1].pid)
    assert sum(row["COUNT"] for row in rows) == 6
    assert all(any("lock" in frame for frame in row["STACK"]) for row in rows)

    everything = tool("futexwait", "-a", "--comm", "contends", work=work)
    addresses = [int(str(row["ADDRESS"]), 0) for row in everything.of(PID=seen[2].pid)]
    assert seen[2].address in addresses
    assert len(addresses) >= 2  # the semaphores


@pytest.mark.tool("futexwait", kernel="syscalls")
def test_waits_that_are_not_in_the_table_are_told(tool: Tool, programs: Path) -> None:
    told = {}
    for options in ((), ("-a",)):
        run = tool("futexwait", *options, "--comm", "contends", form="text",
                   work=lambda _: scheduling.contention(programs, 3, 10))  # fmt: skip
        told[options] = re.findall(r"^Not shown: (\d+) waits of (\d+) us in all for", run.stdout, re.MULTILINE)
    [(waits, microseconds)] = told[()]
    assert int(waits) >= 3
    assert int(microseconds) > 0
    assert not told["-a",]


@pytest.mark.tool("futexwait", kernel="syscalls")
def test_waits_at_intervals(tool: Tool, programs: Path) -> None:
    run = tool("futexwait", "-T", 1, 2, form="text", interrupt=False,
               work=lambda _: scheduling.contention(programs, 3, 10))  # fmt: skip
    assert sum(line.count(":") == 2 and len(line) == 8 for line in run.lines) == 2
    assert any(line.split()[:1] == ["PID"] for line in run.lines)


@pytest.mark.tool("llcstat")
def test_references_and_misses(tool: Tool, programs: Path) -> None:
    if not counters():
        failed = tool("llcstat", 1, status=1)
        assert "this machine has no hardware counters of cache references and misses" in failed.stderr
        assert "pytrace profile" in failed.stderr
        cannot("no hardware counters: the tool says so")
    with scheduling.hogs(programs, 1) as hogs, scheduling.computing(hogs):
        run = tool("llcstat", 1, interrupt=False)
        check_columns(run)
        assert run.of(PID=hogs[0])
        assert all(0 <= row["HIT%"] <= 100 and row["REFERENCE"] > 0 for row in run.rows)
        threads = tool("llcstat", "-t", "--sample_period", 1000, 1, interrupt=False)
        assert all(list(row)[:3] == ["PID", "TID", "NAME"] for row in threads.rows)


class WithCounters(LiveKernel):
    """This kernel, as if it had hardware counters."""

    def feature(self, name: str) -> bool:
        return name == "perf_hardware" or super().feature(name)


def test_what_llcstat_asks_of_counters() -> None:
    script = tools.script("llcstat")
    assert script is not None
    options = CompileOptions(named=(("sample_period", "1000"),))
    programs = compiled(script.read_text(), WithCounters(), options).manifest.programs
    wanted = [CountedEventTarget("cache-references", 2, 1000), CountedEventTarget("cache-misses", 3, 1000)]
    assert [target.place for item in programs if item.kind == "hardware" for target in item.targets] == wanted


@pytest.mark.kernel
def test_numbers_of_llcstat_with_other_events(server: Server, tmp_path: Path, programs: Path) -> None:
    """The script of llcstat with page faults in the place of references, and minor faults in that of misses."""
    needs("perf_events")
    script = tools.script("llcstat")
    assert script is not None
    text = script.read_text().replace('!probe_exist("hardware:cache-', '!probe_exist("software:page-faults") && ("')
    text = text.replace("hardware:cache-references:", "software:page-faults:")
    (tmp_path / "faults.bt").write_text(text.replace("hardware:cache-misses:", "software:minor-faults:"))
    seen = []
    argv = (str(tmp_path / "faults.bt"), "--sample_period", "1", "-t", "--format", "json", "0")
    result = server.run(argv, while_attached=lambda _: seen.append(memory.touched(programs, 500)),
                        when_attached=("signal INT",), timeout=60)  # fmt: skip
    messages = [json.loads(line) for line in result.stdout.splitlines()]
    rows = [message["data"] for message in messages if message["type"] == "row"]
    own = [row for row in rows if row["PID"] == seen[0] and row["NAME"] == "touches"]
    assert {row["TID"] for row in own} == {seen[0]}
    assert sum(row["REFERENCE"] for row in own) >= 500
    assert sum(row["MISS"] for row in own) >= 500
    assert all(0 <= row["HIT%"] <= 100 for row in rows)


@pytest.mark.kernel
def test_times_of_frequencies_with_other_events(server: Server, tmp_path: Path) -> None:
    """The script of cpufreq with lseek(CPU, KHZ) in the place of the tracepoint, which these machines never report."""
    needs("syscalls")
    script = tools.script("cpufreq")
    assert script is not None
    text = script.read_text().replace("../lib", str(script.parent.parent / "lib"))
    text = text.replace("args.cpu_id", "args.fd").replace("args.frequency", "args.offset")
    probe = f"tracepoint:syscalls:sys_enter_lseek /pid == {os.getpid()} && args.offset > 0/ {{"
    text = text.replace("rawtracepoint:cpu_frequency {", probe)
    (tmp_path / "frequencies.bt").write_text(text)
    passed = []

    def work(_running: Running) -> None:
        with open(tmp_path / "place", "wb", 0) as file:
            for khz in (1_200_000, 2_400_000, 1_200_000):
                os.lseek(file.fileno(), khz, os.SEEK_SET)
                passed.append(time.monotonic())
                time.sleep(0.05)
            passed.append(float(file.fileno()))

    argv = (str(tmp_path / "frequencies.bt"), "--format", "json")
    result = server.run(argv, while_attached=work, when_attached=("signal INT",), timeout=60)
    messages = [json.loads(line) for line in result.stdout.splitlines()]
    rows = [message["data"] for message in messages if message["type"] == "row"]
    processor = int(passed[-1])
    assert [(row["CPU"], row["MHZ"], row["CHANGES"]) for row in rows] == [(processor, 1200, 2), (processor, 2400, 1)]
    assert rows[0]["TIME(ms)"] >= 100
    assert rows[1]["TIME(ms)"] >= 50


@pytest.mark.tool("cpufreq", kernel="rawtracepoint")
def test_frequencies(tool: Tool) -> None:
    run = tool("cpufreq", 1, 2, interrupt=False)
    if not run.rows:
        cannot("the processors of this machine do not change their frequency: the tool runs and shows nothing")
    check_columns(run)
    assert all(row["MHZ"] > 0 and row["TIME(ms)"] >= 0 for row in run.rows)
