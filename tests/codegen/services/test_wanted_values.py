"""Comparisons with values in the session's data; test_process_filters.py runs them in programs."""

from __future__ import annotations

import struct

import pytest

from pytrace.codegen.services.process_following import MAP
from pytrace.core.manifest import MapType
from pytrace.core.options.compile_options import CompileOptions
from pytrace.core.options.process_filters import NOT_YET, ProcessFilters
from tests.codegen.running import machine
from tests.codegen.test_generator import EXECS
from tests.support.bpf_machine import PID, BpfMap


@pytest.mark.parametrize(("name", "root"), [(b"task", PID), (b"tas", NOT_YET), (b"task2", NOT_YET)])
def test_the_first_process_with_the_name_is_followed(name: bytes, root: int) -> None:
    filters = ProcessFilters(exec_wait=name.decode())
    options = CompileOptions(follow=True, filters=ProcessFilters(exec_wait="x"))
    found = machine("tracepoint:sched:sched_switch { @n++; }", EXECS, options)
    found.maps[found.names[MAP]] = BpfMap(MapType.HASH, 4, 4, 16)
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
