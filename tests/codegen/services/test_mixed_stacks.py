"""What a script with python_frames consists of; what it shows is tested in tests/kernel/test_python_stacks.py."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytrace.codegen.services.python import records as python_records
from pytrace.codegen.services.unwind_tables import REQUESTS, SPACES
from pytrace.core.types import UINT32, Field, Struct
from tests.codegen.services.python.test_stacks import KERNEL as WALKING
from tests.codegen.services.python.test_stacks import TASK, THREAD
from tests.codegen.services.test_user_unwinding import compiled, symbols

KERNEL = replace(
    WALKING,
    features=WALKING.features | {"current_task_btf"},
    structs={
        ("struct", "task_struct"): Struct(
            "struct", "task_struct", 128, (*TASK.fields, Field("flags", UINT32, 28)), origin="vmlinux"
        ),
        ("struct", "thread_struct"): THREAD,
    },
)
CONFIG = "config = { python_frames = true } "


@pytest.mark.parametrize(
    ("probe", "stack", "mixed"),
    [
        ("kprobe:vfs_read", "ustack", True),
        ("kprobe:vfs_read", "ustack(perf, 5)", True),
        ("kprobe:vfs_read", "ustack(raw)", False),
        ("kprobe:vfs_read", "ustack(build_id)", False),
        ("kprobe:vfs_read", "kstack", False),
        ("begin", "ustack", False),
    ],
)
def test_which_stacks_have_python_frames(probe: str, stack: str, mixed: bool) -> None:
    script = compiled(f"{CONFIG}{probe} {{ @[{stack}] = count(); @l = len({stack}); }}", KERNEL)
    assert script.manifest.python == (python_records.MAPS if mixed else None)
    names = symbols(script)
    for name in (python_records.PROCESSES, SPACES, REQUESTS):
        assert names.count(name) == mixed


@pytest.mark.parametrize("way", ["frame_pointers", "tables"])
def test_not_where_the_script_says_how_to_unwind(way: str) -> None:
    text = f"config = {{ python_frames = true; stack_unwinding = {way} }} kprobe:vfs_read {{ @[ustack] = count(); }}"
    assert compiled(text, KERNEL).manifest.python is None


def test_frame_pointers_alone_without_loops_of_the_kernel() -> None:
    kernel = replace(KERNEL, features=KERNEL.features - {"bpf_loop"})
    assert compiled(CONFIG + "kprobe:vfs_read { @[ustack] = count(); }", kernel).manifest.python is None


def test_beside_the_others() -> None:
    text = "kprobe:vfs_read { @[ustack, pystack] = count(); @l = len(ustack(3)); } "
    text += "kprobe:vfs_write { @p[ustack] = count(); }"
    names = symbols(compiled(CONFIG + text, KERNEL))
    assert names.count(python_records.CODE_FUNCTION) == names.count(SPACES) == 1
