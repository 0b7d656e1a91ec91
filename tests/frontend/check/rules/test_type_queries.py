"""sizeof, offsetof and typeinfo."""
# ruff: noqa: E501 - one script a line

from __future__ import annotations

import pytest

from pytrace.core.options.compile_options import CompileOptions
from pytrace.frontend.ast import nodes
from pytrace.frontend.ast.visitor import walk
from tests.frontend.checking import refused, value
from tests.support.front import analyse

# fmt: off
REFUSED = [
    ("struct s { int a; } begin { print(offsetof(struct s, b)); }", "1:35-56", "struct s has no member 'b'"),
    ("struct s { int a; } begin { print(offsetof(struct s, a.b)); }", "1:35-58", "int32 has no member 'b'"),
    ("begin { print(offsetof(struct task_struct, flag)); }",
     "1:15-49", "'flag' is a bitfield, which has no byte offset"),
    ("begin { print(offsetof(struct task_struct, pid[1])); }", "1:15-51", "int32 cannot be indexed by 1"),
    ("begin { print(offsetof(int64, x)); }", "1:15-33", "int64 has no member 'x'"),
    ("begin { print(offsetof(struct task_struct, pdi)); }", "1:15-48", "struct task_struct has no member 'pdi'"),
    ("begin { print(typeinfo(5)); }", "1:15-26", "typeinfo is unstable and disabled"),
]
VALUES = [
    ("struct s { int a; char c[4]; }; begin { print(offsetof(struct s, c[3])); }", "int8", 7),
    ("begin { print(sizeof(struct task_struct)); }", "int8", 104),
    ("begin { print(sizeof(curtask.bits)); }", "int8", 32),
    ("begin { print(sizeof(nsecs)); }", "int8", 8),
    ("begin { print(sizeof(\"abc\")); }", "int8", 4),
    ("begin { print(offsetof(struct task_struct, tgid)); }", "int8", 4),
    ("begin { print(offsetof(struct task_struct, bits[2])); }", "int8", 72),
    ("begin { print(offsetof(curtask, comm)); }", "int8", 8),
    ("begin { print(offsetof(struct task_struct, bits[2])); }", "int8", 72),
    ("begin { print(offsetof(curtask, bits[0x3])); }", "int8", 80),
    ("begin { print(offsetof(struct task_struct, exit_word)); }", "int8", 40),
    ("struct a { int x; struct { char y[4]; } z[3]; }; begin { print(offsetof(struct a, z[2].y[1])); }", "int8", 13),
    ("config = { unstable_typeinfo = \"enable\" } begin { print(typeinfo(curtask).full_type); }",
     "string[21]", b"struct task_struct *"),
    ("config = { unstable_typeinfo = \"enable\" } begin { print(typeinfo(struct task_struct).btf_id); }", "int8", 7),
    ("config = { unstable_typeinfo = \"enable\" } begin { print(typeinfo(5).btf_id); }", "int8", 0),
    ("config = { unstable_typeinfo = \"enable\" } begin { print(typeinfo(pid).base_type); }", "string[4]", b"int"),
]
# fmt: on


@pytest.mark.parametrize(("script", "place", "message"), REFUSED)
def test_refused(script: str, place: str, message: str) -> None:
    assert refused(script) == (place, message)


@pytest.mark.parametrize(("script", "type_", "constant"), VALUES)
def test_values(script: str, type_: str, constant: object) -> None:
    assert value(script) == (type_, constant)


@pytest.mark.parametrize(
    ("query", "parts"),
    [
        ("sizeof(struct task_struct)", ("size", ("struct", "task_struct"))),
        ("offsetof(struct task_struct, tgid)", ("member", ("struct", "task_struct", "tgid", "int32"))),
        ("sizeof(int64)", None),
        ("offsetof(struct task_struct, bits[1])", None),
    ],
)
def test_files_compiled_ahead_ask_the_machine_that_runs_them(query: str, parts: tuple[str, tuple[str, ...]] | None) -> None:
    program = analyse(f"begin {{ print({query}); }}", CompileOptions(ahead=True)).checked()
    (node,) = (item for item in walk(program.units[0].body) if isinstance(item, nodes.Sizeof | nodes.Offsetof))
    open_value = program.loaded.get(node)
    assert (open_value and (open_value.what, open_value.parts)) == parts
    assert (node in program.constants) is (parts is None)
