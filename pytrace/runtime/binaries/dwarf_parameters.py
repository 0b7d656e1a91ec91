"""Where the parameters of a function are when it is entered: what DWARF says, else what the calling convention says.

Code without optimisation stores parameters to the stack in the prologue, and DWARF describes that place, which holds
nothing yet at the entry. Source: the System V ABI for AMD64, 3.2.3; the Procedure Call Standard for the Arm 64-bit
architecture, 6.8; the Itanium C++ ABI, 3.1.2 (classes that are passed by reference).
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import msgspec
from elftools.dwarf.dwarf_expr import DW_OP_name2opcode
from msgspec.structs import replace

from pytrace.core.kernel_info import RegisterPart, UserParameter
from pytrace.core.types import UINT8, Array, Float, Struct, Type
from pytrace.runtime.binaries.dwarf_types import DwarfTypes, definition, described, plain
from pytrace.runtime.binaries.dwarf_units import locations
from pytrace.runtime.binaries.elf_file import EM_AARCH64, EM_X86_64

if TYPE_CHECKING:
    from collections.abc import Iterator

    from elftools.dwarf.dwarf_expr import DWARFExprOp

    from pytrace.runtime.binaries.dwarf_units import Die, Shape


_IN_REGISTER = {DW_OP_name2opcode[f"DW_OP_reg{number}"]: number for number in range(32)}
_AT_REGISTER = {DW_OP_name2opcode[f"DW_OP_breg{number}"]: number for number in range(32)}
"""Operations for a register, and for memory at a distance from where a register points to, with its number."""
_LITERAL = {DW_OP_name2opcode[f"DW_OP_lit{number}"]: number for number in range(32)}
_CONSTANT = frozenset(
    DW_OP_name2opcode[f"DW_OP_const{form}"] for form in ("1u", "1s", "2u", "2s", "4u", "4s", "8u", "8s", "u", "s")
)
_STACK_VALUE, _IMPLICIT_VALUE = DW_OP_name2opcode["DW_OP_stack_value"], DW_OP_name2opcode["DW_OP_implicit_value"]
_PASS_BY_REFERENCE, _PASS_BY_VALUE = 4, 5
"""``DW_CC_pass_by_reference``, ``DW_CC_pass_by_value``: how objects of a class are passed."""
_DEFAULTED_IN_CLASS = 1
_COMPLEX = 3
"""``DW_ATE_complex_float``."""
_WORD = 8
_HOMOGENEOUS = 4
"""Members of a struct of equal floating-point numbers that 64-bit Arm passes in registers of these."""
_CLONE = re.compile(r"\.(isra|constprop|part)\b")
"""In names of functions that gcc made for some callers, with parameters of its own choice."""
_CLASSES = frozenset(("DW_TAG_class_type", "DW_TAG_structure_type", "DW_TAG_union_type"))

_BEFORE: dict[str | int | None, str] = {"DW_TAG_const_type": "const ", "DW_TAG_volatile_type": "volatile "}

_BEHIND: dict[str | int | None, str] = {
    "DW_TAG_pointer_type": "*",
    "DW_TAG_reference_type": "&",
    "DW_TAG_rvalue_reference_type": "&&",
}

_WORDS: dict[str | int | None, str] = {
    "DW_TAG_structure_type": "struct ",
    "DW_TAG_union_type": "union ",
    "DW_TAG_enumeration_type": "enum ",
}


class _Convention(msgspec.Struct, frozen=True):
    """How a machine passes arguments.

    *integer* are the registers of the first ones, *vectors* the number of those for floating-point numbers and vectors,
    *numbered* all registers by their DWARF numbers, *stack* the distance from the stack pointer at the entry to the
    first argument in memory. *result_first*: the address for a result in memory takes the first register;
    *large_by_reference*: structs that do not fit two registers are passed by address.
    """

    integer: tuple[str, ...]
    vectors: int
    numbered: tuple[str, ...]
    stack: int
    result_first: bool
    large_by_reference: bool

    def words(self, type_: Type) -> tuple[frozenset[int], frozenset[int]]:
        """The eight-byte words of a value that are passed in integer registers; and the places of those that are in
        floating-point registers, one for each register.
        """
        leaves = list(_leaves(type_))
        integers = {at // _WORD for at, size, floating in leaves if not floating
                    for at in (at, at + max(size, 1) - 1)}  # fmt: skip
        floats = {at for at, _, floating in leaves if floating}
        if not self.large_by_reference:
            return frozenset(integers), frozenset(_WORD * word for word in {at // _WORD for at in floats} - integers)
        sizes = {size for _, size, _ in leaves}
        if floats and not integers and len(floats) <= _HOMOGENEOUS and len(sizes) == 1:
            return frozenset(), frozenset(floats)
        return frozenset(range(-(-type_.size // _WORD))) if leaves else frozenset(), frozenset()

    def numbers(self, size: int, base: Die) -> int:
        """How many registers a floating-point number or vector is passed in; 0: in memory."""
        complex_ = base.number("DW_AT_encoding") == _COMPLEX
        if self.large_by_reference:
            return 2 if complex_ else 1
        if complex_:
            return {8: 1, 16: 2}.get(size, 0)
        return 0 if base.text("DW_AT_name") == "long double" else 1


_CONVENTIONS = {
    EM_X86_64: _Convention(
        ("di", "si", "dx", "cx", "r8", "r9"),
        8,
        ("ax", "dx", "cx", "bx", "si", "di", "bp", "sp", *(f"r{number}" for number in range(8, 16))),
        8,
        True,
        False,
    ),
    EM_AARCH64: _Convention(
        tuple(f"r{number}" for number in range(8)),
        8,
        (*(f"r{number}" for number in range(31)), "sp"),
        0,
        False,
        True,
    ),
}
_UNKNOWN = _Convention((), 0, (), 0, False, False)


def type_text(die: Die) -> str:
    """The type of what a DIE describes, as C text: ``const char*``."""
    if "DW_AT_type" not in die:
        return "void"
    target = definition(die.follow("DW_AT_type"))
    if target.tag in _BEFORE:
        inner = type_text(target)
        # The qualifier of a pointer stands after the star.
        return f"{inner} {_BEFORE[target.tag].strip()}" if inner.endswith("*") else _BEFORE[target.tag] + inner
    if target.tag in _BEHIND:
        return type_text(target) + _BEHIND[target.tag]
    if target.tag == "DW_TAG_array_type":
        return f"{type_text(target)}[]"
    if target.tag == "DW_TAG_subroutine_type":
        return f"{type_text(target)} ()"
    return _WORDS.get(target.tag, "") + (target.text("DW_AT_name") or "{…}")


def placed_parameters(die: Die, entry: int, symbol: str, machine: int, types: DwarfTypes) -> Iterator[UserParameter]:
    """Parameters of a function that is entered at *entry*, without those that are nowhere."""
    convention = _CONVENTIONS.get(machine, _UNKNOWN)
    arguments = _Arguments(convention)
    result = types.of(described(die, "DW_AT_type"))
    if convention.result_first and isinstance(result, Struct):
        arguments.skip(1 if result.size > 16 or _by_reference(described(die, "DW_AT_type")) else 0)
    conventional = not _CLONE.search(symbol)
    for number, child in enumerate(die.children(_is_parameter)):
        typed = described(child, "DW_AT_type")
        type_ = types.of(typed)
        by_reference = isinstance(type_, Struct) and (_passed_as_address(child) or _by_reference(typed))
        by_convention = arguments.place(type_, typed, by_reference=by_reference)
        location = _register_at(child, entry, convention, type_)
        name = described(child, "DW_AT_name").text("DW_AT_name") or f"arg{number}"
        if location:
            yield UserParameter(name, type_, location, type_text(typed))
        elif location is None and conventional and by_convention is not None:
            yield _parameter(name, type_, by_convention, type_text(typed))


def _is_parameter(shape: Shape) -> bool:
    return shape.tag == "DW_TAG_formal_parameter"


def _passed_as_address(die: Die) -> bool:
    """True if a parameter's object is elsewhere: where a register points to, or what a place in the frame points to."""
    for _, _, expression in locations(die):
        operations = die.operations(expression)
        if [operation.op_name for operation in operations] == ["DW_OP_fbreg", "DW_OP_deref"]:
            return True
        if len(operations) == 1 and operations[0].op in _AT_REGISTER and operations[0].args == [0]:
            return True
    return False


def _constant(value: int | bytes | list[int] | None, type_: Type) -> str:
    """The location of a parameter that the compiler made a constant; empty where that is no scalar."""
    if isinstance(value, list) and len(value) == type_.size:
        value = int.from_bytes(bytes(value), sys.byteorder)
    if not isinstance(value, int) or not type_.scalar or not 0 < type_.size <= _WORD:
        return ""
    return f"={value & (1 << 8 * type_.size) - 1}"


def _constant_of(operations: list[DWARFExprOp], type_: Type) -> str | None:
    """The location of a value that a list has as a constant; None where it has none."""
    first, *rest = operations
    if first.op == _IMPLICIT_VALUE and not rest:
        return _constant(first.args[0], type_) or None
    if [operation.op for operation in rest] != [_STACK_VALUE]:
        return None
    value = first.args[0] if first.op in _CONSTANT else _LITERAL.get(first.op)
    return _constant(value, type_) or None


def _register_at(die: Die, address: int, convention: _Convention, type_: Type) -> str | None:
    """The register that DWARF says a parameter is in, or its constant; None when it says memory, empty for nowhere.

    Memory that a register points to counts only where a list has it for the entry: what holds for the whole function
    may be true after the prologue alone.
    """
    if "DW_AT_location" not in die:
        return _constant(die.value("DW_AT_const_value"), type_) if "DW_AT_const_value" in die else None
    for low, high, expression in locations(die):
        if not low <= address < high or not expression:
            continue
        operations = die.operations(expression)
        if not operations:
            return None
        constant = _constant_of(operations, type_)
        if constant or len(operations) != 1:
            return constant
        code = operations[0].op
        if code in _IN_REGISTER:
            return _numbered(convention, _IN_REGISTER[code])
        register = _numbered(convention, _AT_REGISTER[code]) if low and code in _AT_REGISTER else None
        return f"{register}{operations[0].args[0]:+d}" if register else None
    return None


def _numbered(convention: _Convention, number: int) -> str | None:
    return convention.numbered[number] if number < len(convention.numbered) else None


class _Place(msgspec.Struct, frozen=True):
    """Where a value is: a register or memory (``sp+8``); or *parts* in registers.

    *vectors* are the numbers of its eight-byte words that are in floating-point registers, which programs cannot read.
    """

    location: str = ""
    parts: tuple[RegisterPart, ...] = ()
    vectors: frozenset[int] = frozenset()


def _parameter(name: str, type_: Type, place: _Place, text: str) -> UserParameter:
    readable, lost = _readable(type_, place.vectors)
    return UserParameter(name, readable or type_, place.location, text, place.parts, lost=tuple(lost))


def _readable(type_: Type, vectors: frozenset[int], at: int = 0) -> tuple[Type | None, list[str]]:
    """A type without what is in floating-point registers (None: all of it is), and the names of these members."""
    if not vectors:
        return type_, []
    if not isinstance(type_, Struct):
        return (None, [""]) if at // _WORD in vectors else (type_, [])
    kept, lost = [], list[str]()
    for field in type_.fields:
        inner, names = _readable(field.type, vectors, at + field.offset)
        lost += [".".join(filter(None, (field.name, name))) for name in names]
        if inner is not None:
            kept.append(replace(field, type=inner))
    if not kept:
        return None, [""]
    # Another type than the one that is whole in memory.
    origin = f"{type_.origin}, in registers"
    return replace(type_, members=tuple(kept), origin=origin, alignment=type_.align) if lost else type_, lost


class _Arguments:
    """Hands out the places of arguments, first to last; None where it cannot be said."""

    def __init__(self, convention: _Convention) -> None:
        self._convention = convention
        self._registers = list(convention.integer)
        self._vectors = convention.vectors
        self._used = 0
        """Bytes of arguments in memory."""
        self._known = True

    def skip(self, count: int) -> None:
        """Leave out registers."""
        del self._registers[:count]

    def place(self, type_: Type, typed: Die, *, by_reference: bool) -> _Place | None:
        """The place of the next argument, of a type that the entry *typed* refers to."""
        if isinstance(type_, Struct) and not type_.size and not by_reference:
            # Declared only, so how much room it takes is not known: nor are the places after it.
            self._known = False
        if not self._known:
            return None
        if by_reference or (isinstance(type_, Struct) and type_.size > 16 and self._convention.large_by_reference):
            where = self._word()
            return None if "+" in where else _Place(f"{where}+0")
        if isinstance(type_, Float):
            return self._vector(type_, plain(typed.follow("DW_AT_type")))
        if type_.scalar and type_.size <= _WORD:
            return _Place(self._word())
        if type_.scalar or isinstance(type_, Struct):
            return self._words(type_)
        return self._vector(type_, plain(typed.follow("DW_AT_type")))

    def _word(self) -> str:
        return self._registers.pop(0) if self._registers else self._memory(_WORD)

    def _words(self, type_: Type) -> _Place:
        """Of what may take two registers, of either kind."""
        if type_.size > 16 or (not self._convention.large_by_reference and _has_long_double(type_)):
            return _Place(self._memory(type_.size, _alignment(type_)))
        integers, vectors = self._convention.words(type_)
        if len(integers) > len(self._registers) or len(vectors) > self._vectors:
            return _Place(self._memory(type_.size, _alignment(type_)))
        self._vectors -= len(vectors)
        parts = tuple(
            RegisterPart(_WORD * word, min(_WORD, type_.size - _WORD * word), self._registers.pop(0))
            for word in sorted(integers)
        )
        if len(parts) == 1 and type_.size <= _WORD:
            return _Place(parts[0].register)
        return _Place("", parts, frozenset(number // _WORD for number in vectors))

    def _vector(self, type_: Type, base: Die) -> _Place | None:
        """Of a floating-point number, or a vector of numbers."""
        if base.tag == "DW_TAG_array_type" and "DW_AT_GNU_vector" not in base:
            self._known = False  # no parameter in C
            return None
        needed = self._convention.numbers(type_.size, base)
        if not needed or needed > self._vectors:
            return _Place(self._memory(type_.size, 16 if type_.size > _WORD else _WORD))
        self._vectors -= needed
        return _Place("", vectors=frozenset((0,)))

    def _memory(self, size: int, alignment: int = _WORD) -> str:
        at = -(-self._used // alignment) * alignment
        self._used = at + (size + 7 & ~7)
        return f"sp+{self._convention.stack + at}"


def _has_long_double(type_: Type) -> bool:
    return any(floating and size == 16 for _, size, floating in _leaves(type_))


def _alignment(type_: Type) -> int:
    return 16 if any(size == 16 for _, size, _ in _leaves(type_)) else _WORD


def _leaves(type_: Type, at: int = 0) -> Iterator[tuple[int, int, bool]]:
    """Place and size of everything in a value, and whether it is a floating-point number (those are bytes here)."""
    if isinstance(type_, Struct):
        for field in type_.fields:
            yield from _leaves(field.type, at + field.offset)
    elif isinstance(type_, Float) or (isinstance(type_, Array) and type_.element == UINT8 and type_.size in (8, 16)):
        yield at, type_.size, True
    elif isinstance(type_, Array) and type_.element.size:
        for number in range(type_.size // type_.element.size):
            yield from _leaves(type_.element, at + number * type_.element.size)
    else:
        yield at, type_.size, False


def _by_reference(die: Die) -> bool:
    """True if what a DIE describes is of a class whose objects are passed by reference, as they must not be copied.

    Compilers may say so; else it is seen by a destructor or copy constructor that somebody wrote, in the class or in
    what it is made of, and by virtual functions.
    """
    if "DW_AT_type" not in die:
        return False
    type_ = plain(die.follow("DW_AT_type"))
    if type_.tag not in _CLASSES:
        return False
    said = type_.number("DW_AT_calling_convention")
    if said in (_PASS_BY_REFERENCE, _PASS_BY_VALUE):
        return said == _PASS_BY_REFERENCE
    return any(_needs_reference(child, type_) for child in type_.children())


def _needs_reference(child: Die, owner: Die) -> bool:
    if child.tag == "DW_TAG_inheritance":
        return bool(child.number("DW_AT_virtuality")) or _by_reference(child)
    if child.tag == "DW_TAG_member":
        return "DW_AT_external" not in child and _by_reference(child)
    if child.tag != "DW_TAG_subprogram":
        return False
    if child.number("DW_AT_virtuality"):
        return True
    if child.number("DW_AT_artificial") or child.number("DW_AT_defaulted") == _DEFAULTED_IN_CLASS:
        return False
    name = child.text("DW_AT_name")
    return name.startswith("~") or (name == owner.text("DW_AT_name").partition("<")[0] and _copies(child, owner))


def _copies(constructor: Die, owner: Die) -> bool:
    """True if a constructor takes another object of the class."""
    explicit = [
        item
        for item in constructor.children(_is_parameter)
        if not item.number("DW_AT_artificial") and "DW_AT_type" in item
    ]
    if not explicit:
        return False
    type_ = explicit[0].follow("DW_AT_type")
    if type_.tag not in ("DW_TAG_reference_type", "DW_TAG_rvalue_reference_type") or "DW_AT_type" not in type_:
        return False
    target = plain(type_.follow("DW_AT_type"))
    return (target.cu, target.offset) == (owner.cu, owner.offset)
