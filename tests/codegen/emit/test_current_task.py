"""The current task's numbers, in both pid namespaces, and its namespaces."""

from __future__ import annotations

import struct

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.core.options.compile_options import CompileOptions
from pytrace.core.types import Struct
from tests.codegen.running import compiled, helpers, ran
from tests.support.bpf_machine import PID, TID
from tests.support.recorded import Facts


def in_a_namespace() -> Facts:
    kernel = Facts()
    kernel.pid_namespace = (4, 4026531999)
    return kernel


def test_the_initial_namespace() -> None:
    found = ran("begin { print((pid, tid, pid(init), tid(init))); }")
    assert found.printed() == [(PID, TID, PID, TID)]
    assert 120 not in helpers(found)


def test_the_namespace_of_the_tracer() -> None:
    found = ran("begin { print((pid, tid, pid(init), tid(curr_ns))); }", in_a_namespace())
    assert found.printed() == [(21, 22, PID, 22)]
    assert (120, (4, 4026531999)) in [(number, given[:2]) for number, given in found.calls]


def test_files_compiled_ahead_are_for_both() -> None:
    script = compiled("begin { print(pid); }", options=CompileOptions(ahead=True))
    assert script.manifest.ahead is not None
    assert {(item.what, item.parts) for item in script.manifest.ahead.values} == {
        ("namespace", ("inode",)), ("namespace", ("device",)),
    }  # fmt: skip


def test_the_network_namespace() -> None:
    found = ran("begin { print(netns); }")
    assert found.printed() == [bytes(8)], "a task that exits has no namespaces"
    found.events.clear()
    net = found.region(bytes(8 + 16) + struct.pack("<I", 4026531840) + bytes(16))
    nsproxy = found.region(bytes(40) + struct.pack("<Q", net) + bytes(8))
    found.write(found.current + 96, struct.pack("<Q", nsproxy))
    found.run()
    assert struct.unpack("<Q", found.printed()[0]) == (4026531840,)


def test_kernels_whose_tasks_are_different() -> None:
    kernel = Facts()
    kernel.structs = {**kernel.structs, ("struct", "task_struct"): Struct("struct", "task_struct", 8, ())}
    with pytest.raises(TraceError, match=r"type information \(BTF\) of struct task_struct"):
        compiled("begin { print(netns); }", kernel)
