"""Gates of programs: limits of their rate."""

from __future__ import annotations

import struct

import pytest

from pytrace.core.manifest import RATE_LINE
from pytrace.core.options import CompileOptions
from pytrace.core.probe_kinds import INTERVAL, PROBE_KINDS
from tests.codegen.running import compiled, helpers, machine
from tests.support.bpf_machine import Machine
from tests.support.facts import RecordedKernel

SWITCH = "tracepoint:sched:sched_switch { @n++; }"
LIMITED = CompileOptions(limited=True)
KTIME = 5


def limited(text: str, each: int, ahead: int, *, block: int = 0) -> tuple[Machine, int]:
    """A machine whose blocks have limits, and the address of one limit."""
    found = machine(text, RecordedKernel(), LIMITED)
    limits = found.script.manifest.limits
    assert limits is not None
    line = found.section(limits.section) + limits.offset + RATE_LINE * block
    found.write(line, struct.pack("=QQ", each, ahead))
    return found, line


def due(found: Machine, line: int) -> int:
    return found.load(line + 16, 8)


def test_scripts_without_limits_have_no_gate() -> None:
    assert compiled(SWITCH, RecordedKernel()).manifest.limits is None
    assert compiled("begin { @n++; } interval:s:1 { @n++; }", RecordedKernel(), LIMITED).manifest.limits is None
    assert KTIME not in helpers(ran_once(SWITCH))


def ran_once(text: str) -> Machine:
    found = machine(text, RecordedKernel())
    found.run()
    return found


def test_hits_that_are_too_fast_are_dropped_and_counted() -> None:
    found, line = limited(SWITCH, each=1 << 62, ahead=0)
    assert [found.run() for _ in range(3)] == [1, 1, 1]
    assert found.slot("@n") == 1
    assert found.counts() == {"skipped": 0, "limited": 2}
    assert due(found, line) > 1 << 62


def test_a_burst_runs_until_it_is_ahead() -> None:
    each = 1 << 50
    found, line = limited(SWITCH, each, ahead=2 * each)
    for _ in range(10):
        found.run()
    # The first one moves the time on from now, and two more may be ahead of it.
    assert found.slot("@n") == 3
    assert found.counts() == {"skipped": 0, "limited": 7}
    assert due(found, line) // each == 3


def test_no_limit_lets_all_hits_pass() -> None:
    found, line = limited(SWITCH, each=0, ahead=0)
    for _ in range(5):
        found.run()
    assert (found.slot("@n"), due(found, line), found.counts()) == (5, 0, {"skipped": 0, "limited": 0})
    assert KTIME not in helpers(found)


def test_a_condition_comes_before_the_limit() -> None:
    found, line = limited("tracepoint:sched:sched_switch /pid == 77/ { @n++; }", each=1 << 62, ahead=0)
    found.run()
    assert (due(found, line), found.counts()) == (0, {"skipped": 0, "limited": 0})


def test_each_block_has_a_limit_of_its_own() -> None:
    text = f"{SWITCH} tracepoint:sched:sched_switch {{ @m++; }}"
    found, line = limited(text, each=1 << 62, ahead=0, block=1)
    for program in found.script.manifest.programs * 3:
        found.run(program.symbol)
    assert (found.slot("@n"), found.slot("@m")) == (3, 1)
    assert due(found, line)
    assert not due(found, line - RATE_LINE)


def test_the_configuration_limits_as_well() -> None:
    assert compiled(f"config = {{ max_rate = 5; }} {SWITCH}", RecordedKernel()).manifest.limits is not None


@pytest.mark.parametrize("kind", [row.name for row in PROBE_KINDS if row.special] + [INTERVAL])
def test_what_the_tracer_runs_is_never_left_out(kind: str) -> None:
    texts = {"interval": "interval:s:1", "self": "self:signal:SIGUSR1", "test": "test:x", "bench": "bench:x"}
    options = CompileOptions(limited=True, mode=kind if kind in ("test", "bench") else "run")
    found = machine(f"{texts.get(kind, kind)} {{ @n++; }} {SWITCH}", RecordedKernel(), options)
    found.run()
    assert KTIME not in helpers(found)
