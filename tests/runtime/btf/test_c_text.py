"""pytrace.runtime.btf.c_text: BTF types as C text."""

from __future__ import annotations

import pytest

from pytrace.runtime.btf import c_text
from pytrace.runtime.btf.reader import Btf, Kind
from pytrace.runtime.btf.value_types import TypeReader
from tests.support.btf_builder import BtfBuilder

SIGNED = 1


def _reader(builder: BtfBuilder) -> TypeReader:
    return TypeReader(Btf(builder.build()))


def test_declarations_as_c_text() -> None:
    builder = BtfBuilder()
    number, char = builder.integer("int", 4, SIGNED), builder.integer("char", 1)
    text = builder.pointer(builder.add(Kind.CONST, "", char))
    fixed = builder.add(Kind.CONST, "", text)
    callback = builder.pointer(builder.prototype(0, ("n", number), ("", 0)))
    table = builder.array(text, 4)
    node = builder.add(Kind.FWD, "node")
    reader = _reader(builder)
    assert c_text.declare(reader, text, "name") == "const char *name"
    assert c_text.declare(reader, fixed, "name") == "const char *const name"
    assert c_text.declare(reader, callback, "done") == "void (*done)(int n, ...)"
    assert c_text.declare(reader, table, "names") == "const char *names[4]"
    assert c_text.declare(reader, node, "x") == "struct node x"
    assert c_text.argument(reader, text, "name") == "const char * name"


def test_definition_text() -> None:
    builder = BtfBuilder()
    number = builder.integer("int", 4)
    inner = builder.struct("", 4, ("a", number, 0, 3), ("b", number, 3, 2))
    outer = builder.struct("outer", 8, ("x", number, 0), ("", inner, 32))
    colour = builder.enum("colour", 4, ("RED", 0), ("BLUE", 7))
    reader = _reader(builder)
    assert c_text.definition(reader, outer) == [
        "vmlinux: struct outer {",
        "\tint x;",
        "\tstruct {\n\t\tint a: 3;\n\t\tint b: 2;\n\t};",
        "};",
    ]
    assert c_text.definition(reader, colour) == ["vmlinux: enum colour {", "\tRED = 0,", "\tBLUE = 7,", "};"]


def test_pointers_to_arrays_and_functions_are_grouped() -> None:
    builder = BtfBuilder()
    number = builder.integer("int", 4, SIGNED)
    to_array = builder.pointer(builder.array(number, 3))
    function = builder.prototype(number, ("", number))
    table = builder.array(builder.pointer(function), 2)
    returns = builder.pointer(builder.prototype(to_array))
    flexible = builder.array(number, 0)
    grid = builder.array(builder.array(number, 3), 2)
    reader = _reader(builder)
    assert c_text.declare(reader, to_array, "row") == "int (*row)[3]"
    assert c_text.declare(reader, table, "calls") == "int (*calls[2])(int)"
    assert c_text.declare(reader, returns, "make") == "int (*(*make)(void))[3]"
    assert c_text.declare(reader, flexible, "rest") == "int rest[]"
    assert c_text.declare(reader, grid, "grid") == "int grid[2][3]"
    assert c_text.declare(reader, function) == "int (int)"


def test_names_qualifiers_and_tags() -> None:
    builder = BtfBuilder()
    number = builder.integer("int", 4, SIGNED)
    named = builder.add(Kind.TYPEDEF, "pid_t", number)
    qualified = builder.add(Kind.CONST, "", builder.add(Kind.VOLATILE, "", named))
    tagged = builder.pointer(builder.add(Kind.TYPE_TAG, "user", qualified))
    restricted = builder.add(Kind.RESTRICT, "", builder.pointer(0))
    union = builder.add(Kind.FWD, "later", flag=True)
    colour = builder.enum("colour", 4, ("RED", 0))
    wide = builder.enum64("wide", ("BIG", 1 << 40))
    reader = _reader(builder)
    assert c_text.declare(reader, qualified, "x") == "const volatile pid_t x"
    assert c_text.declare(reader, tagged, "x") == "const volatile pid_t *x"
    assert c_text.declare(reader, restricted, "x") == "void *restrict x"
    assert c_text.declare(reader, union, "x") == "union later x"
    assert c_text.declare(reader, colour, "x") == "enum colour x"
    assert c_text.declare(reader, wide) == "enum wide"
    assert c_text.declare(reader, 0) == "void"
    assert c_text.argument(reader, number, "") == "int"


@pytest.mark.parametrize(("wide", "signed", "value"), [(False, True, -1), (True, False, 1 << 40)])
def test_values_of_enumerators(wide: bool, signed: bool, value: int) -> None:
    builder = BtfBuilder()
    add = builder.enum64 if wide else lambda name, *members: builder.enum(name, 4, *members, signed=signed)
    found = add("level", ("LEVEL", value))
    assert c_text.definition(_reader(builder), found) == ["vmlinux: enum level {", f"\tLEVEL = {value},", "};"]


def test_unnamed_types_are_written_out_at_their_depth() -> None:
    builder = BtfBuilder()
    number = builder.integer("int", 4)
    choice = builder.enum("", 4, ("ON", 1))
    innermost = builder.struct("", 4, ("how", choice, 0))
    inner = builder.struct("", 4, ("deep", innermost, 0), ("flat", number, 0), union=True)
    outer = builder.struct("outer", 4, ("", inner, 0))
    assert "\n".join(c_text.definition(_reader(builder), outer)) == (
        "vmlinux: struct outer {\n"
        "\tunion {\n"
        "\t\tstruct {\n"
        "\t\t\tenum {\n"
        "\t\t\t\tON = 1,\n"
        "\t\t\t} how;\n"
        "\t\t} deep;\n"
        "\t\tint flat;\n"
        "\t};\n"
        "};"
    )


def test_a_definition_says_which_module_has_it() -> None:
    base = BtfBuilder()
    number = base.integer("int", 4)
    kernel = Btf(base.build())
    builder = BtfBuilder(kernel.end_id, kernel.end_string)
    own = builder.struct("own", 4, ("n", number, 0), union=True)
    reader = TypeReader(Btf(builder.build(), "module", kernel))
    assert c_text.definition(reader, own)[0] == "module: union own {"
