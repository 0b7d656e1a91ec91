from __future__ import annotations

from pathlib import Path

import pytest

from pytrace.core.compile_options import CompileOptions
from pytrace.core.diagnostics import Diagnostics
from pytrace.core.source import Source
from pytrace.core.types import INT8, INT32, UINT64, Array, Pointer, Struct, Void
from pytrace.frontend.ast import nodes
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


# ---- structs


def test_layout_as_in_c() -> None:
    found = good(
        "struct in { char c; int x; };"
        "struct out { int a; struct in b; long d[3]; unsigned f:3, g:5; union { int u; char v; }; };"
    )
    inner, outer = found.struct("struct", "in"), found.struct("struct", "out")
    assert inner is not None
    assert outer is not None
    assert (inner.size, outer.size, outer.align) == (8, 48, 8)
    assert fields(outer)[:5] == [
        ("a", "int32", 0, 0, 0),
        ("b", "struct in", 4, 0, 0),
        ("d", "int64[3]", 16, 0, 0),
        ("f", "uint32", 40, 0, 3),
        ("g", "uint32", 40, 3, 5),
    ]
    member = outer.find("u")
    assert member is not None
    assert (member.type, member.offset) == (INT32, 44)


def test_attributes() -> None:
    packed = good("struct p { char c; long x; } __attribute__((packed));").struct("struct", "p")
    assert packed is not None
    assert (packed.size, packed.align) == (9, 1)
    aligned = good("struct a { int x; } __attribute__((aligned(64)));").struct("struct", "a")
    assert aligned is not None
    assert (aligned.size, aligned.align) == (64, 64)


def test_packed_bitfields_that_cross_a_unit() -> None:
    struct = good("struct q { int :4; int a:6; unsigned long long b:60; } __attribute__((packed));").struct(
        "struct", "q"
    )
    assert fields(struct) == [("a", "int32", 0, 4, 6), ("b", "uint64", 1, 2, 60)]


def test_pointers_arrays_and_functions() -> None:
    struct = good(
        "struct n { struct n *next; int (*call)(int, char); char text[2][8]; void *p; const char *s; int last[]; };"
    ).struct("struct", "n")
    assert struct is not None
    kinds = {item.name: item.type for item in struct.fields}
    assert kinds["next"] == Pointer(struct)
    assert kinds["call"] == Pointer(Void())
    assert kinds["text"] == Array(Array(INT8, 8), 2)
    assert kinds["p"] == Pointer(Void())
    assert kinds["s"] == Pointer(INT8)
    assert kinds["last"] == Array(INT32, 0)


def test_nested_definitions_are_known_outside() -> None:
    found = good("struct o { struct i { int z; } in; enum e { E1 = 4 } ee; struct { int q; } un; };")
    inner = found.struct("struct", "i")
    assert inner is not None
    assert inner.size == 4
    assert found.enumerator("E1") is not None
    outer = found.struct("struct", "o")
    assert outer is not None
    unnamed = outer.find("un")
    assert unnamed is not None
    assert isinstance(unnamed.type, Struct)
    assert unnamed.type.find("q") is not None


def test_unnamed_structs_differ() -> None:
    struct = good("struct o { struct { int a; } x; struct { int b; } y; };").struct("struct", "o")
    assert struct is not None
    first, second = (item.type for item in struct.fields)
    assert first != second


def test_union_and_forward_declaration() -> None:
    found = good("struct later; union u { int a; long b; struct later *p; };")
    union = found.struct("union", "u")
    assert union is not None
    assert (union.kind, union.size) == ("union", 8)
    assert found.struct("struct", "u") is None


# ---- enums, typedefs


def test_enum_with_expressions() -> None:
    found = good("enum color { RED, GREEN = 5, BLUE, BIG = 1 << 4, LOW = -1 };")
    enum = found.enum("color")
    assert enum is not None
    assert dict(enum.members) == {"RED": 0, "GREEN": 5, "BLUE": 6, "BIG": 16, "LOW": -1}
    assert (enum.width, enum.signed) == (4, True)
    assert found.enumerator("BLUE") == (enum, 6)


def test_unnamed_enum() -> None:
    found = good("enum { ONE = 1, TWO };")
    member = found.enumerator("TWO")
    assert member is not None
    assert member[1] == 2


def test_typedef() -> None:
    found = good("typedef unsigned long long big_t; typedef struct { int x; } pair;")
    assert found.typedef("big_t") == UINT64
    pair = found.typedef("pair")
    assert isinstance(pair, Struct)
    assert pair.size == 4


# ---- kernel types


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


def test_missing_kernel_header_is_no_error_with_btf() -> None:
    found = good("#include <linux/sched/no_such_header.h>\n#include <net/nothing.h>\nstruct x { struct list_head l; };")
    struct = found.struct("struct", "x")
    assert struct is not None
    assert struct.size == 16


def test_missing_kernel_header_without_btf_is_an_error() -> None:
    _, diagnostics = read("#include <net/nothing.h>", RecordedKernel(has_btf=False))
    (error,) = diagnostics.errors
    assert "net/nothing.h" in error.message
    assert "-I" in error.hints[0]


def test_missing_own_header() -> None:
    _, diagnostics = read('#include "mine.h"')
    (error,) = diagnostics.errors
    assert error.span.first.line == 1


def test_headers_are_found_and_noted(tmp_path: Path) -> None:
    (tmp_path / "mine.h").write_text("struct mine { short s; };\n#define MINE 7\n")
    kernel = RecordedKernel()
    found = good('#include "mine.h"', kernel, include_directories=(str(tmp_path),))
    struct = found.struct("struct", "mine")
    assert struct is not None
    assert struct.size == 2
    assert found.macro("MINE") is not None
    assert str(tmp_path / "mine.h") in kernel.read_files


def test_include_option_comes_first(tmp_path: Path) -> None:
    header = tmp_path / "first.h"
    header.write_text("typedef long first_t;\n")
    found = good("struct s { first_t x; };", includes=(str(header),))
    struct = found.struct("struct", "s")
    assert struct is not None
    assert struct.size == 8
    assert good("", includes=(str(header),)).typedef("first_t") is not None


def test_have_btf_macro() -> None:
    text = "#ifdef BPFTRACE_HAVE_BTF\nstruct with { int x; };\n#else\nstruct without { int x; };\n#endif"
    assert good(text).struct("struct", "with") is not None
    assert good(text, RecordedKernel(has_btf=False)).struct("struct", "without") is not None


def test_compiler_headers() -> None:
    found = good(
        "#include <stdint.h>\n#include <stdbool.h>\n#include <stddef.h>\nstruct s { uint64_t a; bool b; size_t c; };"
    )
    struct = found.struct("struct", "s")
    assert struct is not None
    assert struct.size == 24


# ---- macros


def constant(node: nodes.Expr | None) -> object:
    return getattr(node, "value", None)


def test_macros_without_a_c_front_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytrace.frontend.c.translation_unit.translate", None)
    found = good('#define N 5 // five\n#define MSG "hi"\n#define SUM \\\n (N + 2)\n#define EMPTY')
    assert constant(found.macro("N")) == 5
    assert constant(found.macro("MSG")) == b"hi"
    total = found.macro("SUM")
    assert isinstance(total, nodes.Binary)
    assert isinstance(total.left, nodes.Identifier)
    assert found.macro("EMPTY") is None
    assert found.macro("OTHER") is None
    assert list(found.names("macro")) == ["N", "MSG", "SUM", "EMPTY"]


def test_each_use_of_a_macro_is_a_new_tree() -> None:
    found = good("#define N (1 + 2)")
    assert found.macro("N") is not found.macro("N")


def test_macros_that_need_c() -> None:
    found = good(
        "#define TWICE(x) ((x) * 2)\n#define SIX TWICE(3)\n#define BIG 0x100000000ULL\n"
        '#define TEXT "a" "b\\n"\n#define SIZE ((unsigned int)sizeof(struct s))\nstruct s { int x[3]; };'
    )
    assert constant(found.macro("SIX")) == 6
    assert constant(found.macro("BIG")) == 1 << 32
    assert constant(found.macro("TEXT")) == b"ab\n"
    assert found.macro("TWICE") is None


def test_conditions() -> None:
    found = good("#define A 1\n#if A > 0 && !defined(B)\n#define C 3\n#else\n#define C 4\n#endif")
    assert constant(found.macro("C")) == 3


# ---- mistakes


def test_unknown_type_points_at_it() -> None:
    _, diagnostics = read("struct a { int x; };\nstruct bad {\n  nosuch_t y;\n};")
    (error,) = diagnostics.errors
    assert error.span.text == "nosuch_t"
    assert error.span.first.line == 3


def test_struct_defined_twice() -> None:
    _, diagnostics = read("struct a { int x; };\nstruct a { int y; };")
    assert diagnostics.errors[0].span.first.line == 2


def test_error_directive() -> None:
    _, diagnostics = read("#error not here")
    assert "not here" in diagnostics.errors[0].message
