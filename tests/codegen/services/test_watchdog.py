"""The watchdog in programs: after the deadline they count the hit as skipped, and do nothing else."""

from __future__ import annotations

import pytest

from pytrace.core.kernel_info import KernelFunction
from pytrace.core.options import CompileOptions, ProcessFilters
from tests.codegen.running import helpers, machine
from tests.support.bpf_machine import PID, Machine
from tests.support.facts import RecordedKernel, function

JIFFIES = 118
NOW = 55
"""The tick of the machine of tests."""
SWITCH = "tracepoint:sched:sched_switch { @n++; }"


def at(deadline: int, text: str = SWITCH, filters: ProcessFilters | None = None) -> Machine:
    """A machine whose tracer has moved the deadline to a tick."""
    options = CompileOptions(filters=filters or ProcessFilters())
    found = machine(text, RecordedKernel(), options)
    session = found.script.manifest.session
    assert session is not None
    found.write(found.section(session.section) + session.deadline, deadline.to_bytes(8, "little"))
    return found


def skipped(found: Machine) -> int:
    """The counter of skipped hits."""
    counters = found.script.manifest.counters
    assert counters is not None
    place = found.section(counters.section) + counters.offset + 8 * counters.names.index(("skipped", 0))
    return found.load(place, 8)


@pytest.mark.parametrize(("deadline", "runs"), [(NOW - 1, False), (NOW, True), (NOW + 1, True), ((1 << 64) - 1, True)])
def test_a_program_runs_up_to_its_deadline(deadline: int, runs: bool) -> None:
    found = at(deadline)
    assert found.run() == 1
    assert (found.slot("@n"), skipped(found)) == ((1, 0) if runs else (0, 1))


def test_a_skipped_hit_calls_nothing_more() -> None:
    found = at(0, "tracepoint:sched:sched_switch /comm == \"task\"/ { @[kstack] = count(); }")
    found.run()
    assert set(helpers(found)) == {JIFFIES, 8}, "the time, and the CPU of the counter"


def test_hits_of_other_processes_are_not_counted() -> None:
    found = at(0, filters=ProcessFilters(pids=(PID + 1,)))
    found.run()
    assert skipped(found) == 0


@pytest.mark.parametrize(
    "text",
    ["begin { @n++; }", "end { @n++; }", "self:signal:SIGUSR1 { @n++; }", "iter:task { @n++; }", "profile:hz:9 { }"],
)
def test_programs_that_nobody_else_runs_have_no_watchdog(text: str) -> None:
    script = machine(text, RecordedKernel()).script
    assert script.manifest.counters is None or all(kind != "skipped" for kind, _ in script.manifest.counters.names)


@pytest.mark.parametrize(
    ("probe", "runs"),
    [
        ("kprobe:__x64_sys_exit", False),
        ("fentry:__x64_sys_exit", False),
        # The cookie is 0: that of the first function.
        ("kprobe:__x64_sys_exit,kprobe:__x64_sys_close", False),
        ("kprobe:__x64_sys_close,kprobe:__x64_sys_exit", True),
        ("kprobe:__x64_sys_close", True),
        ("kprobe:__x64_sys_exit_group", True),
        ("kretprobe:__x64_sys_exit", True),
    ],
)
@pytest.mark.parametrize("own", [True, False])
def test_functions_of_exit_are_not_seen_of_the_own_threads(probe: str, runs: bool, own: bool) -> None:
    """They do not return: a map of calls that have begun would keep each."""
    names = ("__x64_sys_exit", "__x64_sys_exit_group", "__x64_sys_close")
    kernel = RecordedKernel(
        prototypes=tuple(map(function, names)), traceable=tuple(map(KernelFunction, names))
    )
    found = machine(f"{probe} {{ @n++; }}", kernel)
    session = found.script.manifest.session
    assert session is not None
    found.write(found.section(session.section) + session.deadline, b"\xff" * 8)
    found.write(found.section(session.section) + session.own, (PID if own else PID + 1).to_bytes(4, "little"))
    found.run()
    assert found.slot("@n") == int(runs or not own)


@pytest.mark.parametrize("live", [True, False])
def test_the_view_is_not_seen(live: bool) -> None:
    found = machine(SWITCH, RecordedKernel(), CompileOptions(resets=live))
    session = found.script.manifest.session
    assert session is not None
    found.write(found.section(session.section) + session.deadline, b"\xff" * 8)
    found.write(found.section(session.section) + session.own + 4, PID.to_bytes(4, "little"))
    found.run()
    assert found.slot("@n") == int(not live)
