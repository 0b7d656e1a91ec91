"""pytrace.runtime.binaries.dwarf_types: C and C++ types as value types of the language, and as text."""

from __future__ import annotations

from typing import Any

import pytest
from elftools.common.exceptions import DWARFError

from pytrace.core.types import (
    BOOL,
    DOUBLE,
    FLOAT,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT32,
    UINT64,
    VOID,
    AddressSpace,
    Array,
    Enum,
    Int,
    Pointer,
    String,
    Struct,
    Type,
)
from pytrace.runtime.binaries.dwarf_parameters import type_text
from pytrace.runtime.binaries.dwarf_types import DwarfTypes, described, plain
from pytrace.runtime.binaries.dwarf_units import Die, Unit
from tests.support.compile import SOURCES
from tests.support.dwarf_programs import unit


@pytest.fixture(scope="module", params=["-gdwarf-5", "-gdwarf-4", "-gdwarf-3"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Unit:
    text = (SOURCES / "value_types.cpp").read_text()
    return unit(tmp_path_factory.mktemp("types"), request.param, text, language="c++")


def variable(program: Unit, name: str) -> Die:
    dies = [die for die in program.top.children() if die.tag == "DW_TAG_variable" and die.text("DW_AT_name") == name]
    return next(die for die in dies if "DW_AT_type" in die)


USER = AddressSpace.USER


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a1", INT32), ("a2", String(16)), ("a3", String(4)), ("a4", Array(UINT8, 4)),
        ("a5", Array(Array(INT32, 3), 2)), ("a6", DOUBLE), ("a7", FLOAT), ("a8", BOOL),
        ("a9", INT16), ("a10", UINT64), ("a11", Array(UINT8, 16)), ("a12", Pointer(INT8, USER)), ("a13", INT8),
        ("a14", Enum("colour", 4, False, (("RED", 0), ("BLUE", 7)))),
        ("a15", Enum("level", 4, True, (("LOW", -1), ("HIGH", 0)))),
        ("a16", Pointer(VOID, USER)), ("a19", Int(16, True)), ("a20", Pointer(VOID, USER)), ("a21", INT64),
        ("a22", Pointer(INT8, USER)), ("a23", Pointer(INT32, USER)), ("a25", UINT8), ("a26", Pointer(VOID, USER)),
        ("a29", Array(Array(INT8, 4), 2)),
    ],
)  # fmt: skip
def test_types(program: Unit, name: str, kind: Type) -> None:
    assert DwarfTypes("file").of(variable(program, name)) == kind


def test_structs_have_their_members(program: Unit) -> None:
    kind = DwarfTypes("file").of(variable(program, "a17"))
    assert isinstance(kind, Struct)
    assert (kind.kind, kind.name, kind.size, kind.origin) == ("struct", "outer", 32, "file")
    assert [(field.name, field.offset) for field in kind.fields] == [("x", 0), ("", 8), ("u", 16), ("next", 24)]
    deep, inner = kind.find("deep"), kind.find("u")
    assert deep is not None
    assert (deep.type, deep.offset) == (INT64, 8)
    assert inner is not None
    assert isinstance(inner.type, Struct)
    assert (inner.type.kind, inner.type.size) == ("union", 4)
    unnamed = kind.fields[1].type
    assert isinstance(unnamed, Struct)
    assert unnamed.origin.startswith("file#"), "unnamed ones are told apart"
    assert kind.fields[3].type == Pointer(kind, USER)


def test_members_of_a_base_class_and_bit_fields(program: Unit) -> None:
    kind = DwarfTypes("file").of(variable(program, "a18"))
    assert isinstance(kind, Struct)
    assert [field.name for field in kind.fields] == ["", "own", "low", "high"], "a static member is none"
    base = kind.find("base")
    assert base is not None
    assert (base.type, base.offset) == (INT32, 0)
    assert [(f.type, f.offset, f.bit_offset, f.bit_size) for f in kind.fields[2:]] == [
        (UINT32, 8, 0, 3), (UINT32, 8, 3, 7),
    ]  # fmt: skip


def test_a_type_is_made_once(program: Unit) -> None:
    types = DwarfTypes("file")
    assert types.of(variable(program, "a17")) is types.of(variable(program, "a17"))


def test_no_type_is_void(program: Unit) -> None:
    assert DwarfTypes("file").of(program.top) is VOID


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a2", "char[]"), ("a12", "const char*"), ("a22", "char* const"), ("a14", "enum colour"),
        ("a17", "struct outer"), ("a16", "int ()*"),
        ("a23", "int&"), ("a24", "number"), ("a26", "void*"), ("a9", "short int"),
    ],
)  # fmt: skip
def test_types_as_text(program: Unit, name: str, text: str) -> None:
    assert type_text(variable(program, name)) == text


def test_the_type_after_names_and_qualifiers(program: Unit) -> None:
    assert plain(variable(program, "a1").follow("DW_AT_type")).text("DW_AT_name") == "int"


class Link:
    """An entry that leads to itself."""

    tag = "DW_TAG_typedef"

    def __contains__(self, name: str) -> bool:
        return name in ("DW_AT_type", "DW_AT_abstract_origin")

    def follow(self, _name: str) -> Link:
        return self


def test_circles_end() -> None:
    die: Any = Link()
    with pytest.raises(DWARFError, match="a type is an alias of itself"):
        plain(die)
    with pytest.raises(DWARFError, match="entries refer to each other in a cycle"):
        described(die, "DW_AT_name")
    assert described(die, "DW_AT_type") is die
