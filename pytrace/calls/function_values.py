"""Arguments and results of functions: what of them is read, and their text.

Types come from DWARF, of the usual functions of C libraries from :mod:`pytrace.calls.library_functions`. Numbers are in
the registers of the calling convention, which each event has; what is elsewhere, or what addresses point to, is read by
expressions of the script.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Sequence

import msgspec

from pytrace.calls.values import octal, quoted
from pytrace.core.kernel_info import RegisterPart, UserParameter
from pytrace.core.types import Array, Bool, Enum, Field, Float, Int, Pointer, String, Struct, Type, Void

REGISTERS = {"x86_64": ("di", "si", "dx", "cx", "r8", "r9"), "aarch64": tuple(f"r{number}" for number in range(8))}
"""Registers of the first integer arguments: ``arg0`` and so on."""
GO_REGISTERS = ("ax", "bx", "cx", "di", "si", "r8", "r9", "r10", "r11")
"""Registers of arguments and results of functions of Go (src/cmd/compile/abi-internal.md, x86-64)."""
LARGEST = 128
"""Bytes of a struct that are read."""
SHOWN_MEMBERS, SHOWN_ELEMENTS = 8, 8
DEEPEST = 4
"""Structs within structs that are shown."""

_FIXED = {"lost": "?", "nothing": "", "rest": "..."}
_WORD = 0xFFFFFFFFFFFFFFFF
_CHARACTERS = re.compile(r"\bg?char\b")
_STRING, _VIEW = "basic_string<char,", "basic_string_view<char,"
_STRING_SIZE, _VIEW_SIZE = 32, 16
"""Sizes of ``std::string`` and ``std::string_view`` of libstdc++ (bits/basic_string.h): pointer, length, 16 bytes of
room; length, pointer."""
_ROOM = 16
_INTERFACES = ("runtime.iface", "runtime.eface")
"""Two words: of a type with methods a table for them, or the descriptor of a type; and the value."""


class Value(msgspec.Struct, frozen=True):
    """An argument or result of a function.

    *form* says how its text is made: ``number``, ``octal``, ``string`` (an address of characters), ``std::string``
    (its address), ``string_view``, ``bytes`` (a struct), ``address`` (of a struct, which is read), ``object`` (text of
    a Python object), ``slice`` and ``interface`` (of Go: elements and number; the word that says its type), ``lost``
    (in a floating-point register), ``rest`` (further ones), ``nothing``. *reads* are the
    expressions of the script whose values the event has for it; a number without one is in *registers*, at their
    offsets, or the *constant*. A *negative* result is one like others.
    """

    name: str
    type: Type
    form: str
    reads: tuple[str, ...] = ()
    registers: tuple[RegisterPart, ...] = ()
    constant: int | None = None
    character: bool = False
    negative: bool = False


def of_parameter(parameter: UserParameter, machine: str, longest: int) -> Value:
    """A parameter as DWARF describes it; of strings *longest* bytes are shown."""
    name, type_ = parameter.name, parameter.type
    character = _is_character(type_, parameter.declaration)
    if not parameter.readable:
        return Value(name, type_, "lost")
    if parameter.location.startswith("="):
        return Value(name, type_, "number", constant=int(parameter.location[1:]), character=character)
    if parameter.parts:
        if _is(type_, _VIEW, _VIEW_SIZE) and len(parameter.parts) == 2:
            address = register(parameter.parts[1].register, machine)
            return Value(name, type_, "string_view", (string(address, longest),), parameter.parts)
        return _by_registers(name, type_, parameter.parts, machine)
    where, plus, distance = parameter.location.partition("+")
    expression = register(where, machine)
    if plus:
        place = f"({expression} + {distance})" if int(distance) else expression
        if isinstance(type_, Struct):
            return _in_memory(name, type_, place, longest)
        if isinstance(type_, Float):
            return Value(name, type_, "bytes", (_bytes(place, type_.size),))
        whole = Value(name, type_, "number", (f"*uptr((uint64 *){place})",), character=character)
        return whole if type_.size <= 8 else Value(name, type_, "lost")
    if parameter.text:
        return Value(name, type_, "number", (), (RegisterPart(0, 8, where),))
    return _scalar(name, type_, where, expression, parameter.declaration, machine, longest)


def of_result(type_: Type, longest: int, declaration: str = "") -> Value:
    """A result as DWARF describes it."""
    if isinstance(type_, Void):
        return Value("", type_, "nothing")
    if isinstance(type_, Float):
        return Value("", type_, "lost")
    if isinstance(type_, Struct):
        if type_.size > _ROOM or _is(type_, _STRING, _STRING_SIZE):
            return _in_memory("", type_, "retval", longest)
        return Value("", type_, "number" if type_.size <= 8 else "lost", (), (RegisterPart(0, 8, "ax"),))
    if isinstance(type_, Pointer) and isinstance(type_.target, Int) and type_.target == Int(1, True):
        declaration = declaration or "char *"
    return _scalar("", type_, "ax", "retval", declaration, "", longest)


def of_go(parameter: UserParameter, longest: int) -> Value:
    """A parameter or result of a function of Go; of strings *longest* bytes are shown."""
    name, type_, parts = parameter.name, parameter.type, parameter.parts
    name = "" if name.startswith("~") or name == "_" else name
    if not parameter.readable:
        return Value(name, type_, "lost")
    where, plus, distance = parameter.location.partition("+")
    place = f'(reg("{where}") + {distance or 0})' if where else ""
    # The words of a value of which several words are looked at.
    words = [f"*uptr((uint64 *)({place} + {8 * number}))" for number in range(2)] if plus else [
        f'reg("{part.register}")' for part in parts
    ]  # fmt: skip
    if parameter.text and len(words) > 1:
        return Value(name, type_, "std::string", (_counted(words, longest), words[1]))
    if parameter.declaration.startswith("[]") and isinstance(type_, Struct) and len(words) > 1:
        array = next((field.type for field in type_.fields if isinstance(field.type, Pointer)), None)
        size = 0 if array is None else array.target.size
        if parameter.declaration == "[]uint8":
            return Value(name, type_, "std::string", (_counted(words, longest), words[1]))
        most = min(SHOWN_ELEMENTS, LARGEST // size) if size else 0
        read = f"buf((uint8 *){words[0]}, {words[1]} < {most} ? {words[1]} * {size} : {most * size})"
        return Value(name, type_, "slice", (words[1], *((read,) if most else ())))
    if isinstance(type_, Struct) and type_.name in _INTERFACES and words:
        return Value(name, type_, "interface", (words[0],))
    if plus:
        if type_.size <= 8 and not isinstance(type_, Struct | Array):
            return Value(name, type_, "number", (f"*uptr((uint64 *){place})",))
        return Value(name, type_, "bytes", (_bytes(place, min(type_.size, LARGEST)),))
    if parts:
        return Value(name, type_, "number", (), parts)
    held = (RegisterPart(0, 8, where),)
    target = type_.target if isinstance(type_, Pointer) else None
    if isinstance(target, Struct) and 0 < target.size <= LARGEST and target.fields:
        return Value(name, type_, "address", (_bytes(f'reg("{where}")', target.size),), held)
    return Value(name, type_, "number", (), held)


def _counted(words: Sequence[str], longest: int) -> str:
    """The expression of characters at an address, of which the second word has the number."""
    return f"str((char *){words[0]}, {words[1]} < {longest + 1} ? {words[1]} : {longest + 1})"


def _scalar(
    name: str, type_: Type, where: str, expression: str, declaration: str, machine: str, longest: int
) -> Value:
    """A number or address in a register."""
    held = (RegisterPart(0, 8, where),)
    reads = () if not machine or where in REGISTERS.get(machine, ()) else (expression,)
    target = type_.target if isinstance(type_, Pointer) else None
    if isinstance(target, Int) and target.width == 1 and _is_text(declaration):
        return Value(name, type_, "string", (string(expression, longest),), held)
    if isinstance(target, Struct) and name != "this":
        if _is(target, _STRING, _STRING_SIZE):
            return Value(name, type_, "std::string", _string_reads(expression, longest), held)
        if 0 < target.size <= LARGEST and target.fields:
            return Value(name, type_, "address", (_bytes(expression, target.size),), held)
    return Value(name, type_, "number", reads, held, character=_is_character(type_, declaration))


def _in_memory(name: str, type_: Struct, place: str, longest: int) -> Value:
    if _is(type_, _STRING, _STRING_SIZE):
        return Value(name, type_, "std::string", _string_reads(place, longest))
    return Value(name, type_, "bytes", (_bytes(place, min(type_.size, LARGEST)),))


def _by_registers(name: str, type_: Type, parts: Sequence[RegisterPart], machine: str) -> Value:
    known = all(part.register in REGISTERS.get(machine, ()) for part in parts)
    return Value(name, type_, "number" if known else "lost", (), tuple(parts))


def register(name: str, machine: str) -> str:
    """The expression of a register at the entry of a function."""
    names = REGISTERS.get(machine, ())
    return f"arg{names.index(name)}" if name in names else f'reg("{name}")'


def string(address: str, longest: int) -> str:
    """The expression of the characters at an address: one more than are shown."""
    return f"str((char *){address}, {longest + 1})"


def _string_reads(place: str, longest: int) -> tuple[str, str]:
    return string(f"*uptr((uint64 *){place})", longest), f"*uptr((uint64 *)({place} + 8))"


def _bytes(place: str, size: int) -> str:
    return f"buf((uint8 *){place}, {size})"


def _is(type_: Type, name: str, size: int) -> bool:
    return isinstance(type_, Struct) and type_.size == size and type_.name.startswith(name)


def _is_text(declaration: str) -> bool:
    return _CHARACTERS.search(declaration) is not None and "unsigned" not in declaration


def _is_character(type_: Type, declaration: str) -> bool:
    return isinstance(type_, Int) and type_.width == 1 and _is_text(declaration)


# ---------------------------------------------------------------------------------------------- text


class Texts:
    """Texts of values. *registers*: those whose words events have. *longest*: bytes of strings that are shown."""

    def __init__(self, registers: Sequence[str], longest: int) -> None:
        self._numbers = {name: index for index, name in enumerate(registers)} | {"ax": 0}
        self._longest = longest
        self.unreadable = 0

    def text(self, value: Value, registers: Sequence[int], reads: Sequence[int | str | bytes]) -> str:
        """The text of *value*: *registers* are the words of the first arguments (of a result the one), *reads* what its
        expressions returned.
        """
        form = value.form
        if form in _FIXED:
            return _FIXED[form]
        if form == "object":
            return os.fsdecode(_data(reads[0]))
        if form == "std::string":
            length = reads[1]
            return self._characters(_data(reads[0]), length if isinstance(length, int) else 0)
        if form in ("slice", "interface"):
            return self._of_go(value, reads)
        if form == "bytes":
            return self._of_bytes(value.type, _data(reads[0]))
        word = self._word(value, registers, reads)
        if form == "string_view":
            text = _data(reads[0])[: word & _WORD]
            return self._characters(text, word & _WORD)
        if form == "octal":
            return octal(word & 0xFFFFFFFF)
        if form in ("string", "address"):
            if not word & _WORD:
                return "NULL"
            if form == "string":
                text = _data(reads[0])
                return self._characters(text, len(text))
            assert isinstance(value.type, Pointer)
            return self._of_bytes(value.type.target, _data(reads[0]))
        if value.character:
            code = word & 0xFF
            return f"'{chr(code)}'" if 32 <= code < 127 and code not in (39, 92) else str(code)
        size = max(value.type.size, 1)
        return self._of_bytes(value.type, (word & (1 << 8 * max(size, 8)) - 1).to_bytes(max(size, 8), "little"))

    def _word(self, value: Value, registers: Sequence[int], reads: Sequence[int | str | bytes]) -> int:
        if value.constant is not None:
            return value.constant
        if value.form == "number" and reads:
            first = reads[0]
            return first if isinstance(first, int) else 0
        word = 0
        for part in value.registers:
            number = self._numbers.get(part.register, 0)
            held = registers[number] & _WORD if number < len(registers) else 0
            word |= (held & (1 << 8 * part.size) - 1) << 8 * part.offset
        return word

    def _of_go(self, value: Value, reads: Sequence[int | str | bytes]) -> str:
        """The first elements of a slice, or how many it has; the word of an interface."""
        if value.form == "interface":
            return "nil" if reads[0] == 0 else f"{int(reads[0]) & _WORD:#x}"
        length, data, type_ = int(reads[0]), _data(reads[1]) if len(reads) > 1 else b"", value.type
        assert isinstance(type_, Struct)
        element = next(field.type.target for field in type_.fields if isinstance(field.type, Pointer))
        if not data and length:
            return f"[{length} elements]"
        parts = [self._of_bytes(element, data[at : at + element.size]) for at in range(0, len(data), element.size)]
        return f"[{', '.join(parts)}{', ...' if length > len(parts) else ''}]"

    def _characters(self, data: bytes, length: int) -> str:
        return quoted(data[: self._longest], cut=max(length, len(data)) > min(len(data), self._longest))

    def _of_bytes(self, type_: Type, data: bytes, deep: int = 0) -> str:
        """A value in memory; what was not read is ``...``."""
        if isinstance(type_, Struct):
            return self._struct(type_, data, deep)
        if len(data) < type_.size:
            return "..."
        data = data[: type_.size]
        if isinstance(type_, String) or (isinstance(type_, Array) and type_.element == Int(1, True)):
            text = data.partition(b"\0")[0]
            return self._characters(text, len(text))
        number = int.from_bytes(data, "little", signed=isinstance(type_, Int | Enum) and type_.signed)
        if isinstance(type_, Bool):
            return "true" if number else "false"
        if isinstance(type_, Enum):
            return enumerators(type_, number)
        if isinstance(type_, Pointer):
            return f"{number:#x}" if number else "NULL"
        if isinstance(type_, Float) and type_.size in (4, 8):
            return f"{struct.unpack('<f' if type_.size == 4 else '<d', data)[0]:g}"
        if isinstance(type_, Array) and type_.element.size:
            return self._array(type_, data, deep)
        return str(number) if isinstance(type_, Int) else f"{number:#x}"

    def _array(self, type_: Array, data: bytes, deep: int) -> str:
        size = type_.element.size
        parts = [self._of_bytes(type_.element, data[at : at + size], deep) for at in range(0, len(data), size)]
        return f"[{', '.join(parts[:SHOWN_ELEMENTS])}{', ...' if len(parts) > SHOWN_ELEMENTS else ''}]"

    def _struct(self, type_: Struct, data: bytes, deep: int) -> str:
        if _is(type_, _STRING, _STRING_SIZE) and len(data) >= _STRING_SIZE:
            address, length = struct.unpack_from("<QQ", data)
            # A short string is in the room of the object itself.
            return self._characters(data[_ROOM : _ROOM + length], length) if length < _ROOM else f"{address:#x}"
        if deep >= DEEPEST:
            return "{...}"
        return f"{{{', '.join(self._members(type_, data, deep))}}}"

    def _members(self, type_: Struct, data: bytes, deep: int) -> list[str]:
        parts: list[str] = []
        for field in type_.fields:
            if len(parts) >= SHOWN_MEMBERS:
                return [*parts, "..."]
            part = data[field.offset :]
            if not field.name and isinstance(field.type, Struct):
                parts += self._members(field.type, part, deep + 1) if deep < DEEPEST else ["..."]
            else:
                parts.append(f"{field.name}={self._member(field, part, deep)}")
        return parts

    def _member(self, field: Field, data: bytes, deep: int) -> str:
        if not field.bit_size:
            return self._of_bytes(field.type, data[: field.type.size], deep + 1)
        number = int.from_bytes(data[:8], "little") >> field.bit_offset & (1 << field.bit_size) - 1
        if isinstance(field.type, Int) and field.type.signed and number >> field.bit_size - 1:
            number -= 1 << field.bit_size
        return enumerators(field.type, number) if isinstance(field.type, Enum) else str(number)


def enumerators(type_: Enum, number: int) -> str:
    """The name of a value, or the names of its bits with ``|`` between them."""
    names = {value: name for name, value in reversed(type_.members)}
    if number in names:
        return names[number]
    bits = [(value, name) for value, name in names.items() if value > 0 and not value & value - 1 and number & value]
    rest = number & ~sum(value for value, _ in bits)
    return "|".join(name for _, name in sorted(bits)) if bits and number > 0 and not rest else str(number)


def _data(value: int | str | bytes) -> bytes:
    return os.fsencode(value) if isinstance(value, str) else value if isinstance(value, bytes) else b""


def failed(type_: Type | None, result: int) -> bool:
    """Whether a result says that the function failed: a negative number, or no address; without a type -1."""
    word = result & _WORD
    if isinstance(type_, Pointer):
        return not word
    if isinstance(type_, Int | Enum) and type_.signed:
        return bool(word >> 8 * type_.size - 1 & 1)
    return type_ is None and (word == _WORD or word == 0xFFFFFFFF)
