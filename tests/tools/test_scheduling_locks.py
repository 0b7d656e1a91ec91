"""Tools about locks, caches and frequencies: klockstat, futexwait, llcstat, cpufreq."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path

import pytest

from pytrace.core.options.compile_options import CompileOptions
from pytrace.core.probes.targets import CountedEventTarget
from pytrace.runtime.load.live_kernel import LiveKernel
from tests.codegen.running import compiled
from tests.support import tools
from tests.support.kernel_features import needs, needs_tracepoint
from tests.support.server import Running, Server
from tests.support.tools import cannot, check_columns
from tests.support.workloads import memory, scheduling
from tests.tools.conftest import Tool

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
    # Where a lock of the tracer itself is contended, its own probe is hit again and skips that.
    run = tool("klockstat", "-S", "acq_count", command=pipe(tmp_path), troubles=("recursion",))
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
@pytest.mark.tool("klockstat")
def test_locks_of_callers_that_were_asked_for(tool: Tool, tmp_path: Path) -> None:
    needs("kprobe")
    run = tool("klockstat", "--caller", "pipe_", "-n", 2, "-s", 2, "-S", "acq_total,hld_count", command=pipe(tmp_path))
    assert all(row["CALLER"].startswith("pipe_") for row in run.rows)
    assert 0 < len(run.table(1)) <= 2
    assert 0 < len(run.table(2)) <= 2
    assert list(run.table(2)[0])[:5] == ["CALLER", "AVG-HOLD", "COUNT", "MAX-HOLD", "TOTAL-HOLD"]
    callers = [(row["COUNT"], *(frame.partition("_")[0] for frame in row["STACK"][:2])) for row in run.table(2)]
    reads = [count for count, *names in callers if names == ["mutex", "pipe"]]
    assert sum(reads) >= 10


@pytest.mark.tool("futexwait")
def test_waits_for_a_mutex(tool: Tool, programs: Path) -> None:
    needs("syscalls")
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


@pytest.mark.tool("futexwait")
def test_waits_that_are_not_in_the_table_are_told(tool: Tool, programs: Path) -> None:
    needs("syscalls")
    told = {}
    for options in ((), ("-a",)):
        run = tool("futexwait", *options, "--comm", "contends", form="text",
                   work=lambda _: scheduling.contention(programs, 3, 10))  # fmt: skip
        told[options] = re.findall(r"^Not shown: (\d+) waits of (\d+) us in all for", run.stdout, re.MULTILINE)
    [(waits, microseconds)] = told[()]
    assert int(waits) >= 3
    assert int(microseconds) > 0
    assert not told["-a",]


@pytest.mark.tool("futexwait")
def test_waits_at_intervals(tool: Tool, programs: Path) -> None:
    needs("syscalls")
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
    with scheduling.hogs(programs, 1) as hogs:
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


@pytest.mark.tool("cpufreq")
def test_frequencies(tool: Tool) -> None:
    needs("rawtracepoint")
    run = tool("cpufreq", 1, 2, interrupt=False)
    if not run.rows:
        cannot("the processors of this machine do not change their frequency: the tool runs and shows nothing")
    check_columns(run)
    assert all(row["MHZ"] > 0 and row["TIME(ms)"] >= 0 for row in run.rows)
