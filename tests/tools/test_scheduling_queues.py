"""Tools about waits for a processor and stays on it: runqlat, runqlen, runqslower, cpudist, cpuwalk, and loads."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.kernel_features import needs
from tests.support.server import Running
from tests.support.tools import cannot, check_columns
from tests.support.waiting import until
from tests.support.workloads import scheduling
from tests.tools.conftest import Tool

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
    until(lambda: all(displaced(pid) >= before[pid] + times for pid in pids))


def taking_turns(programs: Path, pids: list[int]) -> Callable[[Running], None]:
    """Two hogs on one processor; *pids* gets their numbers."""

    def work(_running: Running) -> None:
        with scheduling.hogs(programs, 2) as hogs:
            pids.extend(hogs)
            in_turns(hogs)

    return work


@pytest.mark.tool("runqlat")
def test_hogs_on_one_processor_wait_for_each_other(tool: Tool, programs: Path) -> None:
    needs("rawtracepoint")
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


@pytest.mark.tool("runqlat")
def test_a_new_thread_waits_too(tool: Tool, programs: Path) -> None:
    needs("rawtracepoint")
    seen: list[int] = []
    run = tool("runqlat", "-P", "--comm", "busy", work=taking_turns(programs, seen))
    assert {f"{pid},busy" for pid in seen} <= set(run.maps["@usecs"])


@pytest.mark.tool("runqlat")
@pytest.mark.parametrize("options", [(), ("-m",), ("-P",)])
def test_outputs_at_intervals_with_the_time(tool: Tool, options: tuple[str, ...]) -> None:
    needs("rawtracepoint")
    run = tool("runqlat", "-T", *options, 1, 2, interrupt=False, form="text")
    times = [line for line in run.lines if re.fullmatch(r"\d\d:\d\d:\d\d", line)]
    assert len(times) == 2
    title = "@msecs" if "-m" in options else "@usecs"
    assert sum(line.startswith(title) for line in run.lines) >= 2


@pytest.mark.tool("runqlen")
def test_threads_that_wait_are_counted(tool: Tool, programs: Path) -> None:
    needs("btf")
    place = max(os.sched_getaffinity(0))
    with scheduling.hogs(programs, 3, place):
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


@pytest.mark.tool("runqslower")
def test_long_waits_are_rows(tool: Tool, programs: Path) -> None:
    needs("rawtracepoint")
    with scheduling.hogs(programs, 2) as hogs:
        run = tool("runqslower", 200, "-p", ",".join(map(str, hogs)), work=lambda _: in_turns(hogs))
        check_columns(run)
        assert {row["TID"] for row in run.rows} == set(hogs)
        assert all(row["LAT(us)"] > 200 and row["COMM"] == "busy" for row in run.rows)
        assert all(row["PREV TID"] != row["TID"] and row["PREV COMM"] for row in run.rows)
        one = tool("runqslower", "-P", "-t", hogs[0], 200, work=lambda _: in_turns(hogs))
        assert {row["TID"] for row in one.rows} == {hogs[0]}
        assert not tool("runqslower", "-p", hogs[0], 3_600_000_000, work=lambda _: in_turns(hogs)).rows


@pytest.mark.tool("cpudist")
def test_stays_on_a_processor(tool: Tool, programs: Path) -> None:
    needs("rawtracepoint")
    with scheduling.hogs(programs, 2) as hogs:
        both = ",".join(map(str, hogs))
        run = tool("cpudist", "-P", "--extension", "-p", both, work=lambda _: in_turns(hogs))
        assert set(run.maps["@usecs"]) == {f"{pid},busy" for pid in hogs}
        stays = sum(total(buckets) for buckets in run.maps["@usecs"].values())
        assert run.maps["@total_usecs"]["count"] == stays >= 8
        assert any(total(buckets, 256) for buckets in run.maps["@usecs"].values())


@pytest.mark.tool("cpudist")
def test_sleeps_are_time_off_the_processor(tool: Tool, programs: Path) -> None:
    needs("rawtracepoint")
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


@pytest.mark.tool("cpudist")
def test_a_thread_that_has_ended_is_not_off_the_processor(tool: Tool, tmp_path: Path) -> None:
    needs("rawtracepoint")
    if not Path("/proc/sys/kernel/ns_last_pid").exists():
        cannot("this kernel does not let programs choose process ids (CONFIG_CHECKPOINT_RESTORE)")
    (tmp_path / "same.py").write_text(SAME_NUMBER)
    run = tool("cpudist", "-O", "-m", command=f"{sys.executable} -I -S {tmp_path / 'same.py'}")
    assert "the same number" in run.stdout
    assert total(run.maps["@msecs"])
    assert not total(run.maps["@msecs"], 2048)


@pytest.mark.tool("cpudist")
def test_idle_time_only_when_asked(tool: Tool) -> None:
    needs("rawtracepoint")
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
    until(lambda: all(passed(pid) >= before[pid] + ticks for pid in pids))


@pytest.mark.tool("cpuwalk")
def test_the_processor_of_a_program(tool: Tool, programs: Path) -> None:
    place = max(os.sched_getaffinity(0))
    with scheduling.hogs(programs, 1, place) as hogs:
        run = tool("cpuwalk", "-p", hogs[0], work=lambda _: sampled(hogs))
        used = {bucket["min"]: bucket["count"] for bucket in run.maps["@cpu"] if bucket["count"]}
        assert set(used) == {place}
        assert used[place] >= 5
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
