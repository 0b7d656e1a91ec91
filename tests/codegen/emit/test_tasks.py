"""Other tasks than the current one: filters read their memory instead of calling helpers."""

from __future__ import annotations

import io

import pytest
from elftools.elf.elffile import ELFFile

from pytrace.core.diagnostics import ScriptError, TraceError
from pytrace.core.options.compile_options import CompileOptions
from pytrace.core.options.process_filters import FilterShape, ProcessFilters
from tests.codegen.running import compiled
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
