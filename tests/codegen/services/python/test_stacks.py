"""What a script with pystack consists of; that it walks is shown in tests/kernel/test_python_stacks.py."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytrace.codegen.walkers import python_threads
from pytrace.core.diagnostics import TraceError
from pytrace.core.types import INT32, UINT64, Field, Struct
from tests.codegen.services.test_user_unwinding import KERNEL as UNWINDING
from tests.codegen.services.test_user_unwinding import compiled, symbols

THREAD = Struct("struct", "thread_struct", 64, (Field("fsbase", UINT64, 8),), origin="vmlinux")
TASK = Struct(
    "struct",
    "task_struct",
    128,
    (Field("mm", UINT64, 8), Field("real_parent", UINT64, 16), Field("tgid", INT32, 24), Field("thread", THREAD, 32)),
    origin="vmlinux",
)
KERNEL = replace(
    UNWINDING,
    structs={("struct", "task_struct"): TASK, ("struct", "thread_struct"): THREAD},
)
TEXT = "kprobe:vfs_read { @[pystack] = count(); @l = len(pystack(3)); }"


def test_maps_are_there_once() -> None:
    script = compiled(TEXT, KERNEL)
    names = symbols(script)
    maps = [getattr(python_threads.MAPS, field) for field in python_threads.MAPS.__struct_fields__]
    for name in (*filter(None, maps), python_threads.CODE_FUNCTION):
        assert names.count(name) == 1
    assert script.manifest.python == python_threads.MAPS


def test_nothing_of_it_without_it() -> None:
    script = compiled("kprobe:vfs_read { @[ustack] = count(); }", KERNEL)
    assert script.manifest.python is None
    assert python_threads.NAMES not in symbols(script)


def test_needs_loops_of_the_kernel() -> None:
    with pytest.raises(TraceError, match="bpf_loop"):
        compiled(TEXT, replace(KERNEL, features=KERNEL.features - {"bpf_loop"}))
