"""Calls: names, numbers of arguments, safety, the probes that allow a builtin; functions of the script."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytrace.core.builtins import BUILTINS, Builtin
from pytrace.core.diagnostics import Diagnostics, ScriptError
from pytrace.core.kernel_info import FunctionPrototype, ObjectFunction
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source
from pytrace.core.types import INT8, INT32, UINT64, VOID, Pointer, Struct, Type
from pytrace.frontend.syntax.typed_program import CheckedProgram, ImportedFunction
from pytrace.pipeline import Compilation, front_end
from tests.frontend.checking import refusals, refused, warnings
from tests.support.facts import TASK, RecordedKernel
from tests.support.front import analyse
from tests.support.rows import each_row

# fmt: off
REFUSED = [
    ("fn add($a: int64): int64 { return $a; } begin { print(add(\"x\")); }",
     "1:59-62", "$a of add() is int64, this is string[2]"),
    ("fn add($a: int64): int64 { return $a; } begin { print(add(1, 2)); }",
     "1:55-64", "add() takes 1 argument, not 2"),
    ("kprobe:vfs_read { for ($i : 0..5) { print(arg0); } }", "1:43-47", "arg0 cannot be read inside a for loop"),
    ("begin { print(retval); }", "1:15-21", "retval is not available in begin probes"),
    ("begin { print(func); }", "1:15-19", "func is not available in begin probes"),
    ("begin { reg(\"ip\"); }", "1:9-18", "reg is not available in begin probes"),
    ("begin { printff(\"x\"); }", "1:9-21", "unknown function 'printff'"),
    ("tracepoint:sched:sched_switch { print(ctx); }", "1:39-42", "ctx is not available in tracepoint probes"),
    ("tracepoint:sched:sched_switch { print(arg0); }", "1:39-43", "arg0 is not available in tracepoint probes"),
    ("begin { print(comm(1, 2)); }", "1:15-25", "comm() takes 0 to 1 arguments, not 2"),
    ("begin { print(cpu(1)); }", "1:15-21", "cpu() takes no arguments, not 1"),
    ("begin { print(ncpus(\"x\")); }", "1:15-25", "ncpus() takes no arguments, not 1"),
    ("begin { print(nsecs(boot, tai)); }", "1:15-31", "nsecs() takes 0 to 1 arguments, not 2"),
    ("begin { print(netns(1)); }", "1:15-23", "netns() takes no arguments, not 1"),
    ("begin { print(ifname()); }", "1:15-23", "ifname() takes 1 argument, not 0"),
    ("begin { print(kstack(perf, 3, 4)); }", "1:15-33", "kstack() takes 0 to 2 arguments, not 3"),
    ("begin { @a[1] = 5; find(@a, 1); }", "1:20-31", "find() takes 3 arguments, not 2"),
    ("begin { @a[1] = 5; print(has_key(@a)); }", "1:26-37", "has_key() takes 2 arguments, not 1"),
    ("begin { print(is_array()); }", "1:15-25", "is_array() takes 1 argument, not 0"),
    ("begin { print(path(5)); }", "1:15-22", "path is not available in begin probes"),
    ("begin { print(socket_cookie(5)); }", "1:15-31", "socket_cookie is not available in begin probes"),
    ("begin { print(str(1, 2, 3)); }", "1:15-27", "str() takes 1 to 2 arguments, not 3"),
    ("begin { time(\"a\", \"b\"); }", "1:9-23", "time() takes 0 to 1 arguments, not 2"),
    ("begin { print(uaddr(\"main\")); }", "1:15-28", "uaddr is not available in begin probes"),
    ("begin { @ = count(1); }", "1:13-21", "count() takes no arguments, not 1"),
    ("begin { @ = min(); }", "1:13-18", "min() takes 1 argument, not 0"),
    ("begin { @ = lhist(1, 0, 10); }", "1:13-28", "lhist() takes 4 arguments, not 3"),
    ("begin { pid(1, 2); }", "1:9-18", "pid() takes 0 to 1 arguments, not 2"),
    ("begin { prin(1); }", "1:9-16", "unknown function 'prin'"),
    ("begin { print(elapsed(1)); }", "1:15-25", "elapsed() takes no arguments, not 1"),
    ("fn f($a: int8): int8 { return $a; } begin { print(f(300)); }", "1:53-56", "$a of f() is int8, this is int16"),
    ("fn f($a: int8): int8 { return $a; } begin { print(f()); }", "1:51-54", "f() takes 1 argument, not 0"),
    ("fn f($a: int64): int64 { return (int64)arg0; } begin { print(f(1)); }",
     "1:40-44", "arg0 is not available in functions"),
    ("begin { printf(); }", "1:9-17", "printf() takes 1 to 128 arguments, not 0"),
]
WARNED = [
    ("begin { strlen(\"abc\"); }", "1:9-22", "the value of this is not used"),
    ("begin { nsecs; }", "1:9-14", "the value of this is not used"),
    ("fn f(): int64 { return 1; } begin { f(); }", "1:37-40", "the value of this is not used"),
]
# fmt: on

test_refused = refusals(REFUSED)
test_warned = warnings(WARNED)


ANYWHERE = [row for row in BUILTINS if row.call and row.most is not None and row.probes is None]


@each_row("row", ANYWHERE, ids=lambda row: row.name)
def test_one_argument_too_many(row: Builtin) -> None:
    many = ", ".join("1" for _ in range((row.most or 0) + 1))
    place, message = refused(f"begin {{ @ = {row.name}({many}); }}")
    assert place.startswith("1:13-")
    assert message.startswith((f"{row.name}() takes", f"{row.name} takes"))


@pytest.mark.parametrize("name", ["system", "override", "write_user"])
def test_what_changes_the_system_asks_for_an_option(name: str) -> None:
    arguments = {"system": '"ls"', "override": "1", "write_user": "0, 0, 1"}[name]
    script = f"kprobe:vfs_read {{ {name}({arguments}); }}"
    (error,) = analyse(script).diagnostics.errors
    assert error.message == f"{name}() can change the system, so it needs --unsafe"
    assert error.hints == ("run with --unsafe",)
    assert not analyse(script, CompileOptions(unsafe=True)).errors


@pytest.mark.parametrize("body", ["delete(@m, 1);", "find(@m, 1, $v);", "_ = len(@m);"])
def test_results_that_need_no_use(body: str) -> None:
    result = analyse(f"begin {{ @m[1] = 1; {body} }}")
    assert not result.errors
    assert not result.warnings


@pytest.mark.parametrize(
    ("script", "hint"),
    [
        ("begin { prin(1); }", "did you mean 'print'"),
        ("fn twice($a: int8): int8 { return $a; } begin { print(twic(1)); }", "did you mean 'twice'"),
        ("begin { printf(); }", "printf("),
        ("begin { print(retval); }", "available in "),
    ],
)
def test_hints(script: str, hint: str) -> None:
    assert hint in analyse(script).diagnostics.errors[0].hints[0]


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
