"""Filters of processes in programs: which tasks pass, and that nothing is emitted where none is given."""

from __future__ import annotations

import io
import struct

import pytest
from elftools.elf.elffile import ELFFile

from pytrace.core.manifest import MapType
from pytrace.core.options import PROCESS_MAP, CompileOptions, ProcessFilters
from tests.codegen.running import compiled, helpers, machine
from tests.support.bpf_machine import GID, PID, UID, BpfMap, Machine
from tests.support.facts import RecordedKernel

COMM = "task"
SWITCH = "tracepoint:sched:sched_switch { @n++; }"


def filtered(filters: ProcessFilters, text: str = SWITCH) -> Machine:
    """A machine whose session has the values of *filters*."""
    options = CompileOptions(filters=filters)
    found = machine(text, RecordedKernel(), options)
    memory = bytearray(filters.shape.size)
    filters.pack(memory, 0)
    session = found.script.manifest.session
    assert session is not None
    found.write(found.section(session.section) + session.filters, bytes(memory))
    return found


def hits(filters: ProcessFilters) -> int:
    found = filtered(filters)
    assert found.run() == 1
    return int(found.slot("@n"))


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (ProcessFilters(pids=(PID,)), 1),
        (ProcessFilters(pids=(PID + 1,)), 0),
        (ProcessFilters(pids=(1, 2, PID)), 1),
        (ProcessFilters(pids=(1, 2, 3)), 0),
        (ProcessFilters(uids=(UID,)), 1),
        (ProcessFilters(uids=(GID,)), 0),
        (ProcessFilters(comms=("x", COMM)), 1),
        (ProcessFilters(comms=(COMM[:-1], COMM + "x")), 0),
        (ProcessFilters(cgroups=((1, 100),)), 1),
        (ProcessFilters(cgroups=((2, 200),)), 1),
        (ProcessFilters(cgroups=((2, 100),)), 0),
        (ProcessFilters(cgroups=((3, 200), (1, 100))), 1),
        (ProcessFilters(pids=(PID,), uids=(UID,), comms=(COMM,), cgroups=((1, 100),)), 1),
        (ProcessFilters(pids=(PID,), uids=(UID,), comms=("x",), cgroups=((1, 100),)), 0),
        (ProcessFilters(pids=(1,), uids=(UID,)), 0),
    ],
)
def test_values_of_one_kind_are_alternatives_and_all_kinds_must_hold(filters: ProcessFilters, expected: int) -> None:
    assert hits(filters) == expected
    found = filtered(filters, "tracepoint:sched:sched_switch /in_scope/ { @n++; }")
    found.run()
    assert found.slot("@n") == expected
    # A script that asks runs for all tasks.
    found = filtered(filters, "tracepoint:sched:sched_switch { @n++; @in += in_scope; }")
    found.run()
    assert (found.slot("@n"), found.slot("@in")) == (1, expected)


def test_many_processes_are_looked_up() -> None:
    filters = ProcessFilters(pids=tuple(range(100, 120)))
    options = CompileOptions(filters=filters)
    found = machine(SWITCH, RecordedKernel(), options)
    wanted = found.maps[found.names[PROCESS_MAP]] = BpfMap(MapType.HASH, 4, 4, 32)
    found.run()
    assert found.slot("@n") == 0
    wanted.entries[struct.pack("<I", PID), 0] = found.region(4)
    found.run()
    assert found.slot("@n") == 1


def test_the_cheapest_filter_is_first_and_ends_the_program() -> None:
    found = filtered(ProcessFilters(pids=(1,), uids=(UID,), comms=(COMM,), cgroups=((1, 100),)))
    found.run()
    assert helpers(found) == [14]


@pytest.mark.parametrize("text", ["begin { @n++; }", "end { @n++; }", "interval:s:1 { @n++; }"])
def test_programs_without_a_process_have_no_filter(text: str) -> None:
    options = CompileOptions(filters=ProcessFilters((7,), (0, 1), ("x",), ((1, 100),)))
    assert code(text, options) == code(text)


@pytest.mark.parametrize("probe", ["tracepoint:sched:sched_switch", "profile:hz:99", "uprobe:/bin/app:main"])
def test_without_filters_in_scope_is_nothing(probe: str) -> None:
    plain = code(f"{probe} {{ @n++; }}")
    assert code(f"{probe} /in_scope/ {{ @n++; }}") == plain
    assert code(f"{probe} {{ if (in_scope) {{ @n++; }} }}") == plain
    assert code(f"{probe} {{ if comptime (in_scope) {{ @n++; }} else {{ fail(1) }} }}") == plain


def test_values_are_no_part_of_the_code() -> None:
    one = CompileOptions(filters=ProcessFilters((7,), (0,)))
    other = CompileOptions(filters=ProcessFilters((8,), (0,)))
    assert compiled(SWITCH, RecordedKernel(), one).elf == compiled(SWITCH, RecordedKernel(), other).elf


def code(text: str, options: CompileOptions | None = None) -> list[int]:
    """Sizes of the programs."""
    script = compiled(text, RecordedKernel(), options)
    sections = ELFFile(io.BytesIO(script.elf)).iter_sections()
    return [len(section.data()) for section in sections if section.name.startswith("pytrace/")]
