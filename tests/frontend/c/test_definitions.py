"""C definitions of a script, completed by the kernel's."""

from __future__ import annotations

from pytrace.core.types import INT8, INT32, Array, Pointer
from tests.frontend.c.reading import fields, good
from tests.support.facts import LIST, TASK


def test_kernel_types_are_behind_the_scripts() -> None:
    found = good("struct task_struct { long mine; };")
    own = found.struct("struct", "task_struct")
    assert own is not None
    assert (own.size, own.origin) == (8, "script")
    assert found.struct("struct", "list_head") == LIST
    assert found.typedef("pid_t") == INT32
    assert found.enum("pid_type") is not None
    assert found.struct("struct", "nothing") is None


def test_kernel_types_inside_a_script_struct() -> None:
    struct = good("struct e { struct list_head l; u64 t; struct task_struct *task; char c[PIDTYPE_MAX]; };").struct(
        "struct", "e"
    )
    assert struct is not None
    assert fields(struct)[:2] == [("l", "struct list_head", 0, 0, 0), ("t", "uint64", 16, 0, 0)]
    assert struct.fields[0].type == LIST
    assert [item.type for item in struct.fields][2:] == [Pointer(TASK), Array(INT8, 4)]
