"""--follow: which processes are followed, and the programs that maintain the set."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace

import pytest

from pytrace.codegen.walkers.processes import FOLLOWED, FOLLOWED_ENTRIES
from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import MapType
from pytrace.core.options import CompileOptions, ProcessFilters
from pytrace.core.probe_kinds import RAW_TRACEPOINT
from pytrace.core.types import Pointer
from tests.codegen.running import compiled, machine
from tests.codegen.test_generator import FORKS, TASK
from tests.support.bpf_machine import PID, BpfMap, Machine
from tests.support.facts import RecordedKernel, function

FOLLOW = CompileOptions(filters=ProcessFilters((7,)), follow=True)
FORK, FREE = "follow_sched_process_fork", "follow_sched_process_free"


EVENTS = ("sched_process_fork", "sched_process_free", "sched_process_exec")
TYPED = replace(
    FORKS,
    structs={**FORKS.structs, **{("typedef", f"btf_trace_{name}"): TASK for name in EVENTS}},
    raw={
        "sched_process_fork": function("sched_process_fork", ("parent", Pointer(TASK)), ("child", Pointer(TASK))),
        "sched_process_free": function("sched_process_free", ("p", Pointer(TASK))),
    },
)
"""The same tracepoints where raw ones have types."""
KERNELS = pytest.mark.parametrize("kernel", [FORKS, TYPED], ids=["plain", "raw"])


def following(kernel: RecordedKernel, root: int = 0) -> Machine:
    found = machine("tracepoint:sched:sched_switch { @n++; }", kernel, FOLLOW)
    found.maps[found.names[FOLLOWED]] = BpfMap(MapType.HASH, 4, 4, FOLLOWED_ENTRIES)
    session = found.script.manifest.session
    assert session is not None
    found.write(found.section(session.section) + session.root, struct.pack("<Q", root))
    return found


def followed(found: Machine) -> set[int]:
    return {int.from_bytes(key, "little") for key, _ in found.maps[found.names[FOLLOWED]].entries}


def run(found: Machine, symbol: str, record: bytes, *tasks: int) -> None:
    """Run a program with the record of a tracepoint, or with pointers to tasks."""
    spec = next(item for item in found.script.manifest.programs if item.symbol == symbol)
    if spec.multi:
        # The pid is the first member of TASK.
        addresses = [found.region(struct.pack("<I", task) + bytes(TASK.size)) for task in tasks]
        record = b"".join(struct.pack("<Q", address) for address in addresses)
    assert found.run(symbol, record) == 1


def fork(found: Machine, child: int) -> None:
    run(found, FORK, bytes(20) + struct.pack("<I", child) + bytes(40), PID, child)


@KERNELS
@pytest.mark.parametrize(("root", "hits"), [(PID, 1), (1, 0)])
def test_the_process_itself(kernel: RecordedKernel, root: int, hits: int) -> None:
    found = following(kernel, root)
    assert found.run() == 1
    assert found.slot("@n") == hits


@KERNELS
def test_children_of_followed_processes_are_followed(kernel: RecordedKernel) -> None:
    found = following(kernel, PID)
    fork(found, 50)
    assert followed(found) == {50}
    other = following(kernel, 1)
    fork(other, 50)
    assert followed(other) == set()
    # Now its own number is in the set.
    other.maps[other.names[FOLLOWED]].entries[struct.pack("<I", PID), 0] = other.region(4)
    fork(other, 51)
    other.run()
    assert (followed(other), other.slot("@n")) == ({PID, 51}, 1)


@KERNELS
def test_numbers_are_given_back(kernel: RecordedKernel) -> None:
    found = following(kernel, PID)
    fork(found, 50)
    run(found, FREE, bytes(12) + struct.pack("<I", 50) + bytes(40), 50)
    assert followed(found) == set()


@KERNELS
def test_a_number_that_is_used_again_by_others(kernel: RecordedKernel) -> None:
    found = following(kernel, 1)
    found.maps[found.names[FOLLOWED]].entries[struct.pack("<I", 50), 0] = found.region(4)
    fork(found, 50)
    assert followed(found) == set()


@KERNELS
def test_a_full_set_is_counted(kernel: RecordedKernel) -> None:
    found = following(kernel, PID)
    found.maps[found.names[FOLLOWED]].most = 0
    fork(found, 50)
    assert found.counts()["unfollowed"] == 1


def test_kernels_without_the_tracepoints() -> None:
    with pytest.raises(TraceError, match="--follow needs the tracepoint sched:sched_process_fork"):
        compiled("tracepoint:sched:sched_switch { }", RecordedKernel(), FOLLOW)


def ways(kernel: RecordedKernel, options: CompileOptions, config: str = "") -> set[str]:
    """How the programs of tracepoints are attached."""
    script = compiled(f"{config} tracepoint:syscalls:sys_enter_openat {{ }}", kernel, options)
    services = [item for item in script.manifest.programs if item.service and item.kind == "tracepoint"]
    assert len(services) == 2 + options.awaits
    return {item.multi for item in services}


RENAMED = {**TYPED.raw, "sched_process_free": function("sched_process_free", ("task", Pointer(TASK)))}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda kernel: kernel, {RAW_TRACEPOINT}),
        (lambda kernel: replace(kernel, has_btf=False), {""}),
        (lambda kernel: replace(kernel, features=kernel.features - {"rawtracepoint"}), {""}),
        (lambda kernel: replace(kernel, raw=RENAMED), {RAW_TRACEPOINT, ""}),
        (lambda kernel: replace(kernel, raw={}), {""}),
    ],
)  # fmt: skip
def test_no_perf_event_where_raw_tracepoints_have_types(
    change: Callable[[RecordedKernel], RecordedKernel], expected: set[str]
) -> None:
    assert ways(change(TYPED), CompileOptions(child=True, follow=True)) == expected


def test_plain_tracepoints_when_they_are_asked_for() -> None:
    without = frozenset({"rawtracepoint"})
    assert ways(TYPED, CompileOptions(child=True, follow=True, disabled=without)) == {""}
    assert ways(TYPED, CompileOptions(child=True, follow=True), "config = { raw_tracepoints = plain; }") == {""}
    assert ways(TYPED, CompileOptions(follow=True, ahead=True)) == {""}


def test_the_program_that_is_awaited() -> None:
    options = CompileOptions(follow=True, filters=ProcessFilters(exec_wait="x"))
    assert ways(TYPED, options) == {RAW_TRACEPOINT}
    events = {**FORKS.events, ("sched", "sched_process_exec"): ()}
    assert ways(replace(FORKS, events=events), options) == {""}
