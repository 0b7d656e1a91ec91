"""C definitions of a script, completed by the kernel's."""

from __future__ import annotations

from pytrace.core.compile_options import CompileOptions
from pytrace.core.diagnostics import Diagnostics
from pytrace.core.source import Source
from pytrace.core.types import INT8, INT32, Array, Pointer, Struct
from pytrace.frontend.c import definitions
from pytrace.frontend.c.definitions import Definitions
from pytrace.frontend.syntax import parser
from tests.support.facts import LIST, TASK, RecordedKernel


def read(text: str, kernel: RecordedKernel | None = None, **options: object) -> tuple[Definitions, Diagnostics]:
    diagnostics = Diagnostics()
    program = parser.parse(Source("stdin", f"{text}\nbegin {{ }}"), diagnostics)
    diagnostics.check()
    found = definitions.read(program, CompileOptions(**options), kernel or RecordedKernel(), diagnostics)  # type: ignore[arg-type]
    return found, diagnostics


def good(text: str, kernel: RecordedKernel | None = None, **options: object) -> Definitions:
    found, diagnostics = read(text, kernel, **options)
    assert not diagnostics.items, diagnostics.items
    return found


def fields(struct: Struct | None) -> list[tuple[str, str, int, int, int]]:
    assert struct is not None
    return [(item.name, str(item.type), item.offset, item.bit_offset, item.bit_size) for item in struct.fields]


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
