"""What C declares: layouts, enumerations, macros."""

from __future__ import annotations

import pytest

from pytrace.core.types import INT8, INT32, UINT64, Array, Pointer, Struct, Void
from pytrace.frontend.syntax import nodes
from tests.frontend.c.reading import fields, good


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


def constant(node: nodes.Expr | None) -> object:
    return getattr(node, "value", None)


def test_macros_without_a_c_front_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytrace.frontend.expand.c_translation.translate", None)
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
