"""--follow: which processes are followed, and the programs that maintain the set."""

from __future__ import annotations

import struct

import pytest

from pytrace.codegen.services.process_following import ENTRIES, MAP
from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import MapType
from pytrace.core.options.compile_options import CompileOptions
from tests.codegen.running import compiled, machine
from tests.codegen.test_generator import FORKS
from tests.support.bpf_machine import PID, BpfMap, Machine
from tests.support.facts import RecordedKernel

FOLLOW = CompileOptions(pid=7, follow=True)
FORK, FREE = "follow_sched_process_fork", "follow_sched_process_free"


def following(root: int = 0) -> Machine:
    found = machine("tracepoint:sched:sched_switch { @n++; }", FORKS, FOLLOW)
    found.maps[found.names[MAP]] = BpfMap(MapType.HASH, 4, 4, ENTRIES)
    session = found.script.manifest.session
    assert session is not None
    found.write(found.section(session.section) + session.root, struct.pack("<Q", root))
    return found


def followed(found: Machine) -> set[int]:
    return {int.from_bytes(key, "little") for key, _ in found.maps[found.names[MAP]].entries}


def fork(found: Machine, child: int) -> None:
    assert found.run(FORK, bytes(20) + struct.pack("<I", child) + bytes(40)) == 1


@pytest.mark.parametrize(("root", "hits"), [(PID, 1), (1, 0)])
def test_the_process_itself(root: int, hits: int) -> None:
    found = following(root)
    assert found.run() == 1
    assert found.slot("@n") == hits


def test_children_of_followed_processes_are_followed() -> None:
    found = following(PID)
    fork(found, 50)
    assert followed(found) == {50}
    other = following(1)
    fork(other, 50)
    assert followed(other) == set()
    # Now its own number is in the set.
    other.maps[other.names[MAP]].entries[struct.pack("<I", PID), 0] = other.region(4)
    fork(other, 51)
    other.run()
    assert (followed(other), other.slot("@n")) == ({PID, 51}, 1)


def test_numbers_are_given_back() -> None:
    found = following(PID)
    fork(found, 50)
    found.run(FREE, bytes(12) + struct.pack("<I", 50) + bytes(40))
    assert followed(found) == set()


def test_a_number_that_is_used_again_by_others() -> None:
    found = following(1)
    found.maps[found.names[MAP]].entries[struct.pack("<I", 50), 0] = found.region(4)
    fork(found, 50)
    assert followed(found) == set()


def test_a_full_set_is_counted() -> None:
    found = following(PID)
    found.maps[found.names[MAP]].most = 0
    fork(found, 50)
    assert found.counts()["unfollowed"] == 1


def test_kernels_without_the_tracepoints() -> None:
    with pytest.raises(TraceError, match="--follow needs the tracepoint sched:sched_process_fork"):
        compiled("tracepoint:sched:sched_switch { }", RecordedKernel(), FOLLOW)
