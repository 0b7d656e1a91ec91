"""Where the parameters of a function of Go are when it is entered, and its results when it returns (x86-64).

The compiler says it for the entry of optimised functions; for others, and for results, it follows from the types.
Source: ``src/cmd/compile/abi-internal.md`` of Go. Before Go 1.17 everything is on the stack, in the same order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from elftools.dwarf.dwarf_expr import DW_OP_name2opcode
from msgspec.structs import replace

from pytrace.core.kernel_info import RegisterPart, UserParameter
from pytrace.core.types import Array, Struct
from pytrace.runtime.binaries.dwarf_types import DwarfTypes, described, plain
from pytrace.runtime.binaries.dwarf_units import locations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytrace.core.types import Type
    from pytrace.runtime.binaries.dwarf_units import Die


_INTEGERS = ("ax", "bx", "cx", "di", "si", "r8", "r9", "r10", "r11")
_FLOATS = 15
_NUMBERED = ("ax", "dx", "cx", "bx", "si", "di", "bp", "sp", *(f"r{number}" for number in range(8, 16)))
"""Registers by their DWARF numbers."""
_VECTOR = "xmm"
_REGISTERS = {DW_OP_name2opcode[f"DW_OP_reg{number}"]: name for number, name in enumerate(_NUMBERED)}
_REGISTERS |= {DW_OP_name2opcode[f"DW_OP_reg{17 + number}"]: f"{_VECTOR}{number}" for number in range(_FLOATS)}
_PIECE, _FRAME = DW_OP_name2opcode["DW_OP_piece"], DW_OP_name2opcode["DW_OP_fbreg"]
_COMPLEX, _FLOAT = 0x03, 0x04
"""``DW_ATE_complex_float``, ``DW_ATE_float``."""
_UNNAMED = "~r"
"""The names of results without one begin so: ``~r0``."""
_WORD = 8
_STACK = 8
"""Distance from the stack pointer to the first argument in memory, at the entry and at the return."""


def parameters(die: Die, entry: int, types: DwarfTypes) -> list[UserParameter]:
    """The parameters of a function that is entered at *entry*.

    Older compilers leave out what has no name. Where what DWARF says contradicts the convention, only what it says
    counts.
    """
    arguments, _ = _places(die, types)
    said = [_said(argument.die, entry) for argument in arguments]
    agree = all(map(_agrees, arguments, said))
    placed = []
    for argument, registers in zip(arguments, said, strict=True):
        place = argument.place if agree else _in_registers(argument, registers or ())
        if place is not None:
            placed.append(_parameter(argument, types, place))
    return placed


def results(die: Die, types: DwarfTypes) -> list[UserParameter]:
    """The results of a function in order."""
    _, placed = _places(die, types)
    return [_parameter(item, types, item.place) for item in placed]


class _Leaf(msgspec.Struct, frozen=True):
    """What a register of its own is for: bytes at an *offset* of a value."""

    offset: int
    size: int
    floating: bool


class _Place(msgspec.Struct, frozen=True):
    """Memory (``sp+8``), or parts in registers, without those in floating-point registers, which cannot be read."""

    memory: str
    parts: tuple[RegisterPart, ...] = ()


class _Value(msgspec.Struct, frozen=True):
    """A parameter or result: its entry, the one that has its type, its place by the calling convention.

    *kept* is where in the caller's frame functions that are not optimised keep it (counted as ``DW_OP_fbreg`` does).
    *leaves* are what it consists of.
    """

    die: Die
    typed: Die
    place: _Place
    leaves: list[_Leaf] | None = None
    kept: int = 0


def _places(die: Die, types: DwarfTypes) -> tuple[list[_Value], list[_Value]]:
    """Parameters and results."""
    assignment = _Assignment(registers="regabi" in die.cu.top.text("DW_AT_producer"))
    children = list(die.children(lambda shape: shape.tag == "DW_TAG_formal_parameter"))
    sides: list[list[_Value]] = []
    for side in (0, 1):
        found: list[_Value] = []
        names: set[str] = set()
        for child in children:
            # Go 1.19 has a result twice that it keeps in pieces.
            name = child.text("DW_AT_name")
            if name.startswith(_UNNAMED) and name in names:
                continue
            names.add(name)
            if described(child, "DW_AT_variable_parameter").number("DW_AT_variable_parameter") == side:
                typed = described(child, "DW_AT_type")
                type_ = typed.follow("DW_AT_type")
                found.append(_Value(child, typed, assignment.place(type_, types), _leaves(type_, types)))
        sides.append(found)
        assignment.begin_results()
    arguments = [replace(item, kept=assignment.kept(item.place, item.typed, types)) for item in sides[0]]
    return arguments, sides[1]


def _agrees(argument: _Value, said: tuple[str, ...] | None) -> bool:
    """Whether what DWARF says about a parameter is as the calling convention has it.

    Of the registers that hold a value only those that the function uses are in DWARF.
    """
    if said is not None:
        return {name for name in said if not name.startswith(_VECTOR)} <= {
            part.register for part in argument.place.parts
        }
    frames = [argument.die.operations(expression) for low, _, expression in locations(argument.die) if not low]
    offsets = {operations[0].args[0] for operations in frames if len(operations) == 1 and operations[0].op == _FRAME}
    return all(offset < 0 or offset == argument.kept for offset in offsets)


def _in_registers(argument: _Value, registers: tuple[str, ...]) -> _Place | None:
    """A value in the registers that DWARF says it is in; None unless it says it of all of it."""
    leaves = argument.leaves
    if not leaves or len(leaves) != len(registers):
        return None
    pairs = zip(leaves, registers, strict=True)
    return _Place("", tuple(RegisterPart(leaf.offset, leaf.size, name) for leaf, name in pairs if not leaf.floating))


def _parameter(value: _Value, types: DwarfTypes, place: _Place) -> UserParameter:
    typed = value.typed
    name = described(value.die, "DW_AT_name").text("DW_AT_name")
    type_ = types.of(typed)
    declaration = typed.follow("DW_AT_type").text("DW_AT_name")
    type_name = plain(typed.follow("DW_AT_type")).text("DW_AT_name")
    if declaration.startswith("."):
        declaration = type_name  # a parameter of a generic function
    text = type_name == "string" or type_name.startswith("go.shape.string")
    parts = place.parts
    readable, lost = (type_, []) if place.memory else _readable(typed.follow("DW_AT_type"), types)
    type_ = readable or type_
    if len(parts) == 1 and not parts[0].offset and not lost:
        return UserParameter(name, type_, parts[0].register, declaration)
    return UserParameter(name, type_, place.memory, declaration, parts, text, tuple(lost))


def _readable(die: Die, types: DwarfTypes) -> tuple[Type | None, list[str]]:
    """A type without its floating-point numbers (None: it is nothing else), and the names of these."""
    die = plain(die)
    type_ = types.type(die)
    if die.tag == "DW_TAG_array_type" and isinstance(type_, Array) and type_.count == 1:
        element, names = _readable(die.follow("DW_AT_type"), types)
        if element is None:
            return None, [""]
        return (replace(type_, element=element), names) if names else (type_, [])
    if isinstance(type_, Struct):
        return _readable_members(die, type_, types)
    floating = die.tag == "DW_TAG_base_type" and die.number("DW_AT_encoding") in (_COMPLEX, _FLOAT)
    return (None, [""]) if floating else (type_, [])


def _readable_members(die: Die, type_: Struct, types: DwarfTypes) -> tuple[Type | None, list[str]]:
    kept, lost = [], []
    for field, member in zip(type_.fields, _members(die), strict=True):
        inner, names = _readable(member.follow("DW_AT_type"), types)
        lost += [f"{field.name}.{name}" if name else field.name for name in names]
        if inner is not None:
            kept.append(replace(field, type=inner))
    if not lost:
        return type_, []
    # Another type than the one that is whole in memory.
    origin = f"{type_.origin}, in registers"
    return (replace(type_, members=tuple(kept), origin=origin, alignment=type_.align), lost) if kept else (None, [""])


def _said(die: Die, address: int) -> tuple[str, ...] | None:
    """The registers that a list of locations says a parameter is in at an address; None if it does not say it.

    The sizes of its pieces are not those of the value: they lack padding, or have it at another place.
    """
    for low, high, expression in locations(die):
        if low and low <= address < high:
            operations = [operation for operation in die.operations(expression) if operation.op != _PIECE]
            known = all(operation.op in _REGISTERS for operation in operations)
            return tuple(_REGISTERS[operation.op] for operation in operations) if known else None
    return None


class _Assignment:
    """Hands out registers and room on the stack, in order."""

    def __init__(self, *, registers: bool) -> None:
        self._all = _INTEGERS if registers else ()
        self._integers = list(self._all)
        self._floats = _FLOATS if registers else 0
        self._stack = 0

    def begin_results(self) -> None:
        """All registers are free again; on the stack, results come after the arguments."""
        self._integers = list(self._all)
        self._floats = _FLOATS if self._all else 0
        self._stack = -(-self._stack // _WORD) * _WORD

    def kept(self, place: _Place, typed: Die, types: DwarfTypes) -> int:
        """Where functions that are not optimised keep a parameter; called in order after all results have places."""
        if place.memory:
            return int(place.memory.partition("+")[2]) - _STACK
        type_ = typed.follow("DW_AT_type")
        return self._room(types.type(type_).size, _alignment(type_, types))

    def _room(self, size: int, alignment: int) -> int:
        at = -(-self._stack // alignment) * alignment
        self._stack = at + size
        return at

    def place(self, type_: Die, types: DwarfTypes) -> _Place:
        """The place of the next value."""
        leaves = _leaves(type_, types)
        size = types.type(type_).size
        if leaves is None or not size or not self._take(leaves):
            return _Place(f"sp+{_STACK + self._room(size, _alignment(type_, types))}")
        numbers = [leaf for leaf in leaves if not leaf.floating]
        return _Place("", tuple(RegisterPart(leaf.offset, leaf.size, self._integers.pop(0)) for leaf in numbers))

    def _take(self, leaves: list[_Leaf]) -> bool:
        """Whether a value fits into the registers that are left; takes those of floating-point numbers."""
        floats = sum(leaf.floating for leaf in leaves)
        if floats > self._floats or len(leaves) - floats > len(self._integers):
            return False
        self._floats -= floats
        return True


def _leaves(die: Die, types: DwarfTypes) -> list[_Leaf] | None:
    """The numbers and pointers that a value consists of; None if it has an array of several, which is in memory."""
    leaves: list[_Leaf] = []
    return leaves if _add_leaves(die, types, 0, leaves) else None


def _add_leaves(die: Die, types: DwarfTypes, at: int, leaves: list[_Leaf]) -> bool:
    die = plain(die)
    type_ = types.type(die)
    if die.tag == "DW_TAG_structure_type":
        return all(
            _add_leaves(member.follow("DW_AT_type"), types, at + member.number("DW_AT_data_member_location"), leaves)
            for member in _members(die)
        )
    if die.tag == "DW_TAG_array_type":
        count = type_.count if isinstance(type_, Array) else 0
        return not count or (count == 1 and _add_leaves(die.follow("DW_AT_type"), types, at, leaves))
    encoding = die.number("DW_AT_encoding") if die.tag == "DW_TAG_base_type" else 0
    if encoding == _COMPLEX:
        half = type_.size // 2
        leaves += [_Leaf(at, half, True), _Leaf(at + half, half, True)]
    else:
        leaves.append(_Leaf(at, type_.size, encoding == _FLOAT))
    return True


def _alignment(die: Die, types: DwarfTypes) -> int:
    die = plain(die)
    if die.tag == "DW_TAG_structure_type":
        return max((_alignment(member.follow("DW_AT_type"), types) for member in _members(die)), default=1)
    if die.tag == "DW_TAG_array_type":
        return _alignment(die.follow("DW_AT_type"), types)
    complex_ = die.tag == "DW_TAG_base_type" and die.number("DW_AT_encoding") == _COMPLEX
    return max(1, min(types.type(die).size // (2 if complex_ else 1), _WORD))


def _members(die: Die) -> Iterator[Die]:
    return die.children(lambda shape: shape.tag == "DW_TAG_member")
