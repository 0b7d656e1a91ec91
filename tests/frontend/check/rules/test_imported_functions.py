"""Calls of imported C functions: parameters, results, errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytrace.core.diagnostics import Diagnostics, ScriptError
from pytrace.core.kernel_info import FunctionPrototype, ObjectFunction
from pytrace.core.options.compile_options import CompileOptions
from pytrace.core.source import Source
from pytrace.core.types import INT8, INT32, UINT64, VOID, Pointer, Struct, Type
from pytrace.frontend.ast.typed_program import CheckedProgram, ImportedFunction
from pytrace.pipeline import Compilation, front_end
from tests.support.facts import TASK, RecordedKernel

ELF = b"\x7fELF\x02\x01" + bytes(12) + (247).to_bytes(2, "little") + bytes(60)
PAIR = Struct("struct", "pair", 8, (), origin="x")


def function(name: str, *parameters: Type, result: Type = INT32, static: bool = False) -> ObjectFunction:
    named = tuple((f"p{at}", kind) for at, kind in enumerate(parameters))
    return ObjectFunction(FunctionPrototype(name, "x", named, result), static)


FUNCTIONS = [
    function("plain", INT32, UINT64),
    function("text", Pointer(INT8)),
    function("anything", Pointer(VOID)),
    function("task", Pointer(Struct("struct", "task_struct", 4, (), origin="x")), result=VOID),
    function("same_task", result=Pointer(Struct("struct", "task_struct", 4, (), origin="x"))),
    function("by_value", PAIR),
    function("many", *[INT32] * 6),
    function("hidden", static=True),
]


def check(body: str, folder: Path) -> tuple[CheckedProgram | None, list[str]]:
    file = folder / "x.bpf.o"
    file.write_bytes(ELF)
    kernel = RecordedKernel(objects={str(file): FUNCTIONS})
    diagnostics = Diagnostics()
    source = Source("t", f'import "{file}"; begin {{ {body} }}')
    try:
        found = front_end(Compilation(source, CompileOptions(), kernel, diagnostics)).checked
    except ScriptError:
        return None, [item.message for item in diagnostics.errors]
    return found, []


@pytest.mark.parametrize(
    "body",
    [
        "print(plain(5, 6));",
        "print(plain(pid, true));",
        '$s = "a"; print(text($s)); print(text("b")); print(text(comm)); print(text((int8 *)0));',
        'print(anything("a")); $x = 5; print(anything(&$x)); print(anything(curtask));',
        "task(curtask); task((void *)0);",
        "print(same_task().pid);",
    ],
)
def test_calls_that_fit(body: str, tmp_path: Path) -> None:
    found, errors = check(body, tmp_path)
    assert not errors
    assert found is not None
    assert found.objects == [ELF]
    assert any(isinstance(item, ImportedFunction) for item in found.calls.values())


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("plain(5);", "plain() takes 2 arguments, not 1"),
        ('plain(5, "x");', "'p1' of plain() is uint64, this is string[2]"),
        ("text(5);", "'p0' of text() is int8 *, this is int8"),
        ("text(curtask);", "'p0' of text() is int8 *, this is struct task_struct *"),
        ("$x = 5; task(&$x);", "'p0' of task() is struct task_struct *"),
        ("by_value(5);", "cannot be called from a script"),
        ("many(1, 2, 3, 4, 5, 6);", "cannot be called from a script"),
        ("hidden();", "is static"),
        ("print(plian(1, 2));", "unknown function 'plian'"),
    ],
)
def test_calls_that_do_not_fit(body: str, message: str, tmp_path: Path) -> None:
    _, errors = check(body, tmp_path)
    assert message in " ".join(errors)


def test_structs_of_results_are_the_kernels(tmp_path: Path) -> None:
    found, _ = check("$t = same_task(); print($t.pid);", tmp_path)
    assert found is not None
    (result,) = {item.result for item in found.calls.values() if isinstance(item, ImportedFunction)}
    assert isinstance(result, Pointer)
    assert result.target == TASK
