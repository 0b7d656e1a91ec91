"""The machine changes during a run: CPUs go and come back, probed files are replaced; what is missed is reported."""

from __future__ import annotations

import ctypes
import math
import os
import re
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.compile import tool
from tests.support.machine import need
from tests.support.patience import EMULATED, patience
from tests.support.running import Tracer
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("no_leaks")

CPU1 = Path("/sys/devices/system/cpu/cpu1/online")


@pytest.fixture
def hotplug() -> Iterator[None]:
    """CPU 1 can go offline; it is online at the end of the test, whatever happens."""
    if not CPU1.exists() or not os.access(CPU1, os.W_OK):
        pytest.skip("CPU 1 cannot go offline here")
    yield
    CPU1.write_text("1")


HOME = """
import sys
from pytrace.runtime.machine import perf
online = perf.online_cpus
perf.online_cpus = lambda: sorted(online(), reverse=True)
from pytrace.cli.entry import command
command()
"""
"""pytrace with events that need one CPU on the last one."""

ON_CPUS = (
    "config = { syscall_tracepoints = plain } interval:ms:20 { @interval = count(); } "
    "profile:hz:50 { @profile[cpu] = count(); } software:cpu-clock:20000000 { @software[cpu] = count(); } "
    "tracepoint:sched:sched_switch { @switches[cpu] = count(); } "
    "tracepoint:syscalls:sys_enter_getppid /pid == cpid/ { @calls = count(); } "
    "self:signal:SIGUSR1 { print(@interval); print(@profile); print(@software); print(@switches); print(@calls); "
    'printf("so far\\n"); }'
)
CALLS = "import os, time\nwhile True: os.getppid(); time.sleep(0.01)"


def counts(tracer: Tracer) -> dict[str, int]:
    """The counts of ``ON_CPUS`` so far, by name and key."""
    before = tracer.out.count("so far")
    tracer.signal("SIGUSR1")
    until(lambda: tracer.out.count("so far") > before)
    return {name: int(count) for name, count in re.findall(r"@(\S+): (\d+)", tracer.out)}


def go_on(tracer: Tracer, *names: str) -> None:
    """Wait until each of the counts has grown by ten."""
    first = counts(tracer)

    def grown() -> bool:
        now = counts(tracer)
        return all(now.get(name, 0) >= first.get(name, 0) + 10 for name in names)

    until(grown, 20)


@pytest.mark.each_kernel
def test_a_cpu_that_goes_and_comes_back_is_observed_again(hotplug: None) -> None:
    """The timer of an interval moves to another CPU; programs of tracepoints run for events of all CPUs anyway."""
    need("perf_events", "tracepoint", "syscalls")
    # The user selects in place of the command: samples are those of all processes.
    with Tracer("--uid", "0", "-e", ON_CPUS, "-c", f'{sys.executable} -c "{CALLS}"', code=HOME) as tracer:
        go_on(tracer, "interval", "profile[1]", "software[1]", "calls")
        CPU1.write_text("0")
        tracer.said("CPU 1 went offline: interval:ms:20 was attached again")
        go_on(tracer, "interval", "profile[0]", "software[0]", "switches[0]", "calls")
        CPU1.write_text("1")
        tracer.said("CPU 1 came online: profile:hz:50 and 1 more were attached again")
        go_on(tracer, "interval", "profile[1]", "software[1]", "switches[1]", "calls")
        tracer.end()


# ------------------------------------------------------------------------------------------------ probed files


@pytest.fixture
def program(programs: Path, tmp_path: Path) -> Path:
    """A program of this test alone, which calls ``add`` once in a millisecond until its input ends."""
    source, made = tmp_path / "traced.c", tmp_path / "traced"
    source.write_text(
        "#include <poll.h>\nint calls;\n__attribute__((noinline)) int add(int n) { return calls += n; }\n"
        "int main(void) { struct pollfd in = {0, POLLIN, 0}; while (!poll(&in, 1, 1)) add(1); return 0; }\n"
    )
    tool("gcc", "-O1", "-g", "-o", made, source)
    return made


def run(program: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([program], stdin=subprocess.PIPE)


def over(process: subprocess.Popen[bytes]) -> None:
    process.communicate(timeout=patience(30))


def replace(path: Path) -> None:
    """As a package manager does."""
    shutil.copy(path, path.with_name("new"))
    os.replace(path.with_name("new"), path)


@pytest.mark.parametrize(("how", "word"), [(replace, "replaced"), (Path.unlink, "removed")], ids=["rename", "unlink"])
def test_a_program_that_is_replaced_while_it_is_traced(program: Path, how: object, word: str) -> None:
    """The old file goes on to be observed, with its names; that the new one is not is said."""
    need("uprobe")
    traced = run(program)
    with Tracer("-e", f"uprobe:{program}:add {{ @[ustack(1)] = count(); }}") as tracer:
        how(program)  # type: ignore[operator]
        time.sleep(0.2)
        status, out, said = tracer.end()
    over(traced)
    assert status == 0
    assert re.search(r"add\+0.*\n\]: \d\d", out)
    assert f"WARNING: {program} was {word} while it was traced: only the old file is observed" in said


def test_a_library_that_is_overwritten_in_place(tmp_path: Path) -> None:
    """The file stays the same one for the kernel, whose probes stay at their offsets."""
    need("uprobe")
    library = tmp_path / "libtraced.so"
    shutil.copy(next(Path("/lib").glob("*/libm.so.6")), library)
    with Tracer("-e", f"uprobe:{library}:cos {{ @ = count(); }}") as tracer:
        library.write_bytes(b"")
        status, _, said = tracer.end()
    assert status == 0
    assert f"{library} was overwritten while it was traced: probes in it may be at wrong instructions" in said


def test_a_process_that_runs_an_older_file(program: Path) -> None:
    need("uprobe")
    traced = run(program)
    until(lambda: os.readlink(f"/proc/{traced.pid}/exe") == str(program))
    replace(program)
    with Tracer("-e", f"uprobe:{program}:add {{ @ = count(); }}", "-p", str(traced.pid)) as tracer:
        _, _, said = tracer.end()
    over(traced)
    assert f"process {traced.pid} runs an older {program}, which was replaced or removed" in said


# ------------------------------------------------------------------------------------------------ clocks


@pytest.fixture
def own_clock() -> Iterator[None]:
    """The clock is nobody else's: that of the test machine."""
    if not EMULATED:
        pytest.skip("the clock of this machine is not the test's to set")
    before, since = time.time(), time.monotonic()
    yield
    time.clock_settime(time.CLOCK_REALTIME, before + time.monotonic() - since)


def set_forward(seconds: float) -> None:
    """Set the clock by so much in one step: between reading and setting it, a busy machine lets a second pass."""
    change = bytearray(208)  # struct timex of linux/timex.h
    whole = math.floor(seconds)
    struct.pack_into("=I68xqq", change, 0, 0x2100, whole, round((seconds - whole) * 1e9))  # ADJ_SETOFFSET | ADJ_NANO
    libc = ctypes.CDLL(None, use_errno=True)
    done = libc.clock_adjtime(time.CLOCK_REALTIME, (ctypes.c_char * len(change)).from_buffer(change))
    assert done >= 0, os.strerror(ctypes.get_errno())


POWER = Path("/sys/power")
CLOCKS = (
    "interval:ms:200 { @ticks = count(); @ms = (uint64)(elapsed / 1000000); "
    'printf("at %s\\n", strftime("%Y-%m-%d %H:%M:%S", nsecs)); } '
    "tracepoint:syscalls:sys_enter_getppid /pid == cpid/ { @calls = count(); }"
)
UNTIL_THEN = """
import os, sys, time
calls = 0
while not os.path.exists(sys.argv[1]):
    os.getppid()
    calls += 1
    time.sleep(0.02)
print("called", calls)
"""


def freeze() -> None:
    """Freeze all processes, as a suspension does at first, and thaw them."""
    (POWER / "pm_test").write_text("freezer")
    try:
        (POWER / "state").write_text("mem")
    finally:
        (POWER / "pm_test").write_text("none")


@pytest.mark.each_kernel
def test_a_clock_that_is_set_and_processes_that_are_frozen(own_clock: None, tmp_path: Path) -> None:
    """Intervals and the watchdog go on; wall times do not go back within a run. What was counted and what is reported
    as skipped is what happened. The root file system of the test machine (9p by virtio) does not survive that its
    device sleeps, so only the first step of a suspension is taken."""
    need("perf_events", "syscalls")
    if not os.access(POWER / "pm_test", os.W_OK):
        pytest.skip("this kernel has no CONFIG_PM_DEBUG")
    over, child = tmp_path / "over", tmp_path / "child.py"
    child.write_text(UNTIL_THEN)
    with Tracer("--watchdog", "60", "-e", CLOCKS, "-c", f"{sys.executable} {child} {over}") as tracer:
        until(lambda: tracer.out.count("at ") > 3)
        # Half a second as the tracer reads two clocks one after the other.
        set_forward(3600.5)
        tracer.said("WARNING: the clock was set forward by 3600.")
        set_forward(-7200.5)
        tracer.said("WARNING: the clock was set back by 7200.")
        freeze()
        seen = tracer.out.count("at ")
        until(lambda: tracer.out.count("at ") > seen + 3)
        over.touch()
        assert tracer.process.wait(patience(30)) == 0
        out, said = tracer.out, tracer.err
    times = re.findall(r"at (\S+ \S+)", out)
    assert times == sorted(times)
    ticks, elapsed, calls = (int(re.findall(rf"@{name}: (\d+)", out)[0]) for name in ("ticks", "ms", "calls"))
    assert ticks == len(times)
    assert 1000 < elapsed < 600_000
    skipped = [int(count) for count in re.findall(r"(\d+) probe hits? skipped", said)]
    assert calls + max(skipped, default=0) == int(re.findall(r"called (\d+)", out)[0])
    assert ("did not run for a while" in said) == bool(skipped)
    assert "was suspended" not in said, "the clocks went on"
