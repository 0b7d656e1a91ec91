"""Other tasks than the current one: filters read their memory instead of calling helpers."""

from __future__ import annotations

import io
import struct

import pytest
from elftools.elf.elffile import ELFFile

from pytrace.codegen.walkers.processes import FOLLOWED
from pytrace.core.diagnostics import ScriptError, TraceError
from pytrace.core.manifest import MapType
from pytrace.core.options import NOT_YET, CompileOptions, FilterShape, ProcessFilters
from tests.codegen.running import compiled, machine
from tests.codegen.test_generator import EXECS
from tests.support.bpf_machine import PID, BpfMap
from tests.support.facts import RecordedKernel

GET_CURRENT_COMM, PROBE_READ_KERNEL_STR = 16, 115


def calls(text: str, shape: FilterShape) -> set[int]:
    """Numbers of the helpers that the program calls (``call`` is 0x85, with the number as immediate value)."""
    elf = compiled(text, RecordedKernel(), CompileOptions(filters=shape)).elf
    found = set()
    for section in ELFFile(io.BytesIO(elf)).iter_sections():
        if section.name.startswith("pytrace/"):
            code = section.data()
            found |= {
                int.from_bytes(code[at + 4 : at + 8], "little")
                for at in range(0, len(code), 8)
                if code[at] == 0x85 and code[at + 1] == 0
            }
    return found


def test_the_name_of_another_task_is_read() -> None:
    shape = ProcessFilters(comms=("x",))
    assert GET_CURRENT_COMM in calls("tracepoint:sched:sched_switch /in_scope/ { @n++; }", shape)
    found = calls("tracepoint:sched:sched_switch /in_scope(curtask)/ { @n++; }", shape)
    assert PROBE_READ_KERNEL_STR in found
    assert GET_CURRENT_COMM not in found


def test_what_the_kernel_does_not_describe_is_an_error() -> None:
    with pytest.raises((ScriptError, TraceError), match="type information"):
        calls("tracepoint:sched:sched_switch /in_scope(curtask)/ { @n++; }", ProcessFilters(cgroups=((1, 2),)))


@pytest.mark.parametrize(("name", "root"), [(b"task", PID), (b"tas", NOT_YET), (b"task2", NOT_YET)])
def test_the_first_process_with_the_name_is_followed(name: bytes, root: int) -> None:
    filters = ProcessFilters(exec_wait=name.decode())
    options = CompileOptions(follow=True, filters=ProcessFilters(exec_wait="x"))
    found = machine("tracepoint:sched:sched_switch { @n++; }", EXECS, options)
    found.maps[found.names[FOLLOWED]] = BpfMap(MapType.HASH, 4, 4, 16)
    session = found.script.manifest.session
    assert session is not None
    memory = bytearray(16)
    filters.pack(memory, 0)
    start = found.section(session.section)
    found.write(start + session.filters, bytes(memory))
    found.write(start + session.root, struct.pack("<Q", NOT_YET))
    found.run()
    assert found.slot("@n") == 0
    found.run("follow_sched_process_exec")
    assert struct.unpack("<Q", found.read(start + session.root, 8)) == (root,)
    found.run()
    assert found.slot("@n") == (root == PID)
    # Another one that executes it later is not.
    found.write(start + session.root, struct.pack("<Q", 1))
    found.run("follow_sched_process_exec")
    assert struct.unpack("<Q", found.read(start + session.root, 8)) == (1,)
