"""Tests of where parameters of Go are, on entries of ours: as Go's compilers write them, and as older ones did."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from pytrace.core.kernel_info import RegisterPart
from pytrace.core.types import Struct
from pytrace.runtime.binaries import go_parameters
from pytrace.runtime.binaries.dwarf_types import DwarfTypes
from pytrace.runtime.binaries.dwarf_units import EVERYWHERE, Located

ENTRY = 0x1000
PIECE, FRAME = go_parameters._PIECE, go_parameters._FRAME
AX, BX, CX, DI = 0x50, 0x53, 0x52, 0x55
"""``DW_OP_reg0`` …"""
_OFFSETS = itertools.count(1)


class Entry:
    """An entry of debug information."""

    def __init__(self, tag: str, *below: Entry, of: Entry | None = None, at: Any = None, **values: Any) -> None:
        self.tag, self.below, self.of, self.at = tag, below, of, at
        self.values = {f"DW_AT_{name}": value for name, value in values.items()}
        self.cu: Any = UNIT
        self.offset = next(_OFFSETS)

    def __contains__(self, name: str) -> bool:
        return name in self.values or (name == "DW_AT_type" and self.of is not None)

    def number(self, name: str, default: int = 0) -> int:
        return int(self.values.get(name, default))

    def text(self, name: str) -> str:
        return str(self.values.get(name, ""))

    def value(self, name: str) -> Any:
        return self.values.get(name)

    def follow(self, _: str) -> Entry:
        assert self.of is not None
        return self.of

    def children(self, wanted: Any = lambda _: True) -> list[Entry]:
        return [entry for entry in self.below if wanted(entry)]

    def operations(self, expression: Any) -> list[Any]:
        return [SimpleNamespace(op=op, args=list(args), op_name="") for op, *args in expression]


class Unit:
    """A unit of a compiler of Go."""

    label = ""
    top: Any = SimpleNamespace(text=lambda _: "Go cmd/compile go1.19; regabi", number=lambda _: 0x16)


UNIT = Unit()


def base(name: str, size: int, encoding: int) -> Entry:
    return Entry("DW_TAG_base_type", name=name, byte_size=size, encoding=encoding)


def struct(name: str, *members: tuple[str, Entry, int], size: int) -> Entry:
    below = (Entry("DW_TAG_member", of=of, name=key, data_member_location=at) for key, of, at in members)
    return Entry("DW_TAG_structure_type", *below, name=name, byte_size=size)


def array(count: int, element: Entry) -> Entry:
    size = count * element.number("DW_AT_byte_size")
    return Entry("DW_TAG_array_type", Entry("DW_TAG_subrange_type", count=count), of=element, byte_size=size)


INT, SHORT, BYTE = base("int", 8, 5), base("int16", 2, 5), base("uint8", 1, 7)
FLOAT, COMPLEX = base("float64", 8, 4), base("complex64", 8, 3)
POINTER = Entry("DW_TAG_pointer_type", of=BYTE, name="*uint8")
STRING = struct("string", ("str", POINTER, 0), ("len", INT, 8), size=16)
SLICE = struct("[]int", ("array", POINTER, 0), ("len", INT, 8), ("cap", INT, 16), size=24)
MIXED = struct("main.Mixed", ("a", SHORT, 0), ("b", STRING, 8), size=24)
FUNC = Entry("DW_TAG_subroutine_type", name="func()", byte_size=8)
NAMED = Entry("DW_TAG_typedef", of=STRING, name="main.Name")


def parameter(name: str, of: Entry, at: Any = None, *, result: bool = False) -> Entry:
    return Entry("DW_TAG_formal_parameter", of=of, at=at, name=name, variable_parameter=int(result))


@pytest.fixture(autouse=True)
def places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locations are those that entries were made with: operations at the entry, or of the whole function."""

    def locations(entry: Any) -> list[Any]:
        at = entry.at
        if at is None:
            return []
        return [Located(ENTRY, ENTRY + 8, at)] if isinstance(at, list) else [Located(*EVERYWHERE, [at])]

    monkeypatch.setattr(go_parameters, "locations", locations)


def found(*below: Entry) -> dict[str, Any]:
    """Names of parameters, and where they are: registers, or memory."""
    entry: Any = Entry("DW_TAG_subprogram", *below)
    placed = go_parameters.parameters(entry, ENTRY, DwarfTypes("app"))
    return {item.name: " ".join(part.register for part in item.parts) or item.location for item in placed}


def test_values_are_spread_over_registers() -> None:
    assert found(
        parameter("n", INT), parameter("s", STRING), parameter("list", SLICE), parameter("call", FUNC),
        parameter("one", array(1, SHORT)), parameter("last", STRING), parameter("r", INT, result=True),
    ) == {"n": "ax", "s": "bx cx", "list": "di si r8", "call": "r9", "one": "r10", "last": "sp+8"}  # fmt: skip


def test_arrays_and_what_is_too_large_are_on_the_stack() -> None:
    places = found(parameter("a", array(3, SHORT)), parameter("n", INT), parameter("b", array(2, INT)))
    assert places == {"a": "sp+8", "n": "ax", "b": "sp+16"}


def test_floating_point_numbers_take_registers_of_their_own() -> None:
    """These cannot be read; of a struct its other members can."""
    assert found(parameter("f", FLOAT), parameter("c", COMPLEX), parameter("n", INT)) == {"f": "", "c": "", "n": "ax"}
    point = struct("main.Point", ("x", FLOAT, 0), ("y", FLOAT, 8), size=16)
    inner = struct("main.In", ("f", FLOAT, 0), ("n", SHORT, 8), size=16)
    whole = struct("main.F", ("f", FLOAT, 0), ("n", INT, 8), ("p", point, 16), ("in", inner, 32), size=48)
    entry: Any = Entry(
        "DW_TAG_subprogram", parameter("both", whole), parameter("p", point), parameter("one", array(1, inner)),
        parameter("n", INT),
    )  # fmt: skip
    both, places, one, number = go_parameters.parameters(entry, ENTRY, DwarfTypes("app"))
    assert both.parts == (RegisterPart(8, 8, "ax"), RegisterPart(40, 2, "bx"))
    assert both.lost == ("f", "p", "in.f")
    assert isinstance(both.type, Struct)
    assert [(field.name, field.offset) for field in both.type.fields] == [("n", 8), ("in", 32)]
    assert both.type.size == 48
    assert places.lost == ("",)
    assert not places.readable
    assert (one.parts, one.lost) == ((RegisterPart(8, 2, "cx"),), ("f",))
    assert (number.location, number.lost) == ("di", ())
    declared: Any = whole
    assert both.type != DwarfTypes("app").type(declared), "in memory it has all members"


def test_more_than_fifteen_floating_point_numbers_are_in_memory() -> None:
    places = found(*(parameter(f"f{number}", FLOAT) for number in range(16)), parameter("n", INT))
    assert (places["f14"], places["f15"], places["n"]) == ("", "sp+8", "ax")


def test_parameters_of_generic_functions() -> None:
    """Their types are those of the shapes that the compiler makes code for, under other names."""
    shape = struct("go.shape.string_0", ("str", POINTER, 0), ("len", INT, 8), size=16)
    entry: Any = Entry("DW_TAG_subprogram", parameter("a", Entry("DW_TAG_typedef", of=shape, name=".param0")))
    (text,) = go_parameters.parameters(entry, ENTRY, DwarfTypes("app"))
    assert (text.declaration, text.text) == ("go.shape.string_0", True)


def test_parts_and_strings() -> None:
    entry: Any = Entry("DW_TAG_subprogram", parameter("m", MIXED), parameter("name", NAMED))
    mixed, name = go_parameters.parameters(entry, ENTRY, DwarfTypes("app"))
    assert mixed.parts == (RegisterPart(0, 2, "ax"), RegisterPart(8, 8, "bx"), RegisterPart(16, 8, "cx"))
    assert (mixed.declaration, mixed.text) == ("main.Mixed", False)
    assert (name.declaration, name.text) == ("main.Name", True)


def test_results() -> None:
    entry: Any = Entry(
        "DW_TAG_subprogram", parameter("a", array(2, BYTE)), parameter("r", STRING, result=True),
        parameter("f", FLOAT, result=True), parameter("big", array(2, INT), result=True),
    )  # fmt: skip
    first, second, third = go_parameters.results(entry, DwarfTypes("app"))
    assert [part.register for part in first.parts] == ["ax", "bx"]
    assert not second.readable
    assert third.location == "sp+16", "after the arguments, at the next word"


def test_before_go_1_17_all_is_on_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UNIT.top, "text", lambda _: "Go cmd/compile go1.15")
    assert found(parameter("b", BYTE), parameter("s", STRING), parameter("n", SHORT)) == {
        "b": "sp+8", "s": "sp+16", "n": "sp+32",
    }  # fmt: skip


def test_parameters_without_names_that_are_left_out() -> None:
    """What is said to be elsewhere counts then, and only that."""
    said = parameter("s", STRING, [(CX,), (PIECE, 8), (DI,), (PIECE, 8)])
    assert found(said, parameter("unused", INT)) == {"s": "cx di"}
    kept = parameter("n", INT, (FRAME, 16))
    assert found(kept, parameter("m", INT, (FRAME, 24))) == {}


@pytest.mark.parametrize("at", [[(AX,), (PIECE, 8), (BX,), (PIECE, 8)], [(PIECE, 8), (BX,), (PIECE, 8)], (FRAME, 0)])
def test_what_agrees_with_the_convention(at: Any) -> None:
    """Parts that are not used are nowhere; functions that are not optimised keep parameters in the caller's frame."""
    assert found(parameter("s", STRING, at), parameter("n", INT)) == {"s": "ax bx", "n": "cx"}
