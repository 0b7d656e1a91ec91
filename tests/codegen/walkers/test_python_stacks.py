"""Stacks of Python: threads, records, objects, names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytrace import pipeline
from pytrace.codegen.walkers import python_calls, python_stacks, python_threads
from pytrace.codegen.walkers.python_objects import _DECIMALS
from pytrace.codegen.walkers.python_threads import Thread
from pytrace.core.diagnostics import Diagnostics, TraceError
from pytrace.core.manifest import CompiledScript
from pytrace.core.options import CompileOptions
from pytrace.core.python_format import CALL_ROW, FILE, KEY, LONGEST, NAME, RECORD, ROW, SLOT, TABLE, UNIT
from pytrace.core.source import Source
from pytrace.core.types import INT32, UINT64, Field, Struct
from pytrace.runtime.stacks import python_interpreters
from tests.codegen.walkers.test_user_stacks import KERNEL as UNWINDING
from tests.codegen.walkers.test_user_stacks import compiled_unwinding as compiled
from tests.codegen.walkers.test_user_stacks import symbols

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


def test_what_scripts_without_python_have() -> None:
    script = compiled("kprobe:vfs_read { @[ustack] = count(); }", KERNEL)
    assert script.manifest.python is None
    assert python_threads.NAMES not in symbols(script)
    with pytest.raises(TraceError, match="bpf_loop"):
        compiled(TEXT, replace(KERNEL, features=KERNEL.features - {"bpf_loop"}))


# ---------------------------------------------------------------------------------------------------------------- calls

CALLS_TEXT = "python:a.py:f { @[func] = count(); } pythonret:a.py:f { @r = sum(pyint(retval) + pyint(args.n)); }"


def calls_compiled(text: str) -> CompiledScript:
    return pipeline.compile_script(Source("stdin", text, None), CompileOptions(child=True), KERNEL, Diagnostics())


def test_calls_maps_are_there_once() -> None:
    script = calls_compiled(f"{CALLS_TEXT} python:b.py:g {{ print(pystack); }}")
    names = symbols(script)
    assert script.manifest.python is not None
    assert script.manifest.python.calls == python_calls._CALLS
    for name in (python_calls._CALLS, python_calls._CHOICES, python_threads.PROCESSES, python_threads.CODE_FUNCTION):
        assert names.count(name) == 1


def test_programs_and_rows_of_python_probes() -> None:
    script = calls_compiled(TEXT)
    assert script.manifest.python == python_threads.MAPS
    assert python_calls._CALLS not in symbols(script)
    assert [program.kind for program in calls_compiled(CALLS_TEXT).manifest.programs] == ["python", "pythonret"]


# ---------------------------------------------------------------------------------------------------------------- names


def test_patterns_of_python_functions() -> None:
    assert max(FILE, NAME) + 8 <= python_calls._TEXT_SIZE
    assert python_calls._TEXT == CALL_ROW
    assert python_calls.WORK_SIZE % 8 == 0
    # Each star may take each character once, and the rest of the pattern is compared again.
    assert FILE * 256 <= python_calls._STEPS
    elf = calls_compiled("python:a.py:wanted { @ = count(); } pythonret:a.py:wanted { @ = count(); }").elf
    assert elf.count("wanted".encode("utf-32-le")) == 1
    elf = calls_compiled("python:*:wanted { @ = count(); }").elf
    assert elf.count("wanted".encode("utf-32-le")) == 1


# -------------------------------------------------------------------------------------------------------------- records


def test_room_of_records_and_states() -> None:
    assert RECORD.size == 64
    assert RECORD.size + NAME + FILE + TABLE <= LONGEST <= SLOT // 2
    assert LONGEST % UNIT == SLOT % UNIT == 0
    assert all(limit % 8 == 0 for limit in (NAME, FILE, TABLE))
    for row in python_interpreters._rows()[0].values():
        assert row.code_size <= python_threads.HEAD_SIZE
        assert row.frame_size <= python_threads.BUFFER_SIZE
        assert row.frame_instruction + 8 <= row.frame_size
    assert python_threads.STATE_KEY % 8 == ROW % 8 == KEY % 8 == 0


# -------------------------------------------------------------------------------------------------------------- objects


@pytest.mark.parametrize("size", [1, 2, 3, 5, 24, 200])
def test_sizes(size: int) -> None:
    assert calls_compiled(f"python:a.py:f {{ print(pystr(args.x, {size})); }}").elf


def test_numbers_of_python() -> None:
    assert len(str((1 << 64) - 1)) == _DECIMALS
    assert issubclass(python_stacks._Walk, Thread)
    assert issubclass(python_calls._Call, Thread)


# -------------------------------------------------------------------------------------------------------------- threads
