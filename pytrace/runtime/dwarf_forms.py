"""How values of attributes are stored: abbreviations, and a reader and a size for each form.

Source: the DWARF 5 standard, 7.5.3 to 7.5.6.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from pytrace.dataclass import dataclass
from pytrace.runtime.dwarf_constants import At, Form

Reader = Callable[[bytes, int], tuple[Any, int]]
"""Takes data and a position; gives the value and the position behind it."""


class DwarfError(ValueError):
    """The data are not what DWARF says they should be."""


class MissingFileError(Exception):
    """A file that the debug information goes on in is not there; the message is for the user."""


def uleb128(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """An unsigned number of variable length, and the position behind it."""
    value, shift = 0, 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def sleb128(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """A signed number of variable length, and the position behind it."""
    value, shift = 0, 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value - (1 << shift) if byte & 0x40 else value, at


def _unsigned(size: int) -> Reader:
    def read(data: bytes, at: int) -> tuple[int, int]:
        return int.from_bytes(data[at : at + size], "little"), at + size

    return read


def _counted(size: int) -> Reader:
    """A block behind a count of *size* bytes."""

    def read(data: bytes, at: int) -> tuple[bytes, int]:
        start = at + size
        end = start + int.from_bytes(data[at:start], "little")
        return data[start:end], end

    return read


def _block(data: bytes, at: int) -> tuple[bytes, int]:
    size, start = uleb128(data, at)
    return data[start : start + size], start + size


def terminated(data: bytes, at: int) -> tuple[bytes, int]:
    """A string that ends with a zero, and the position behind it."""
    end = data.find(b"\0", at)
    if end < 0:
        raise DwarfError("a string does not end")
    return data[at:end], end + 1


def _wide(data: bytes, at: int) -> tuple[bytes, int]:
    return data[at : at + 16], at + 16


def _flag(data: bytes, at: int) -> tuple[bool, int]:
    return bool(data[at]), at + 1


def _present(_: bytes, at: int) -> tuple[bool, int]:
    return True, at


_SIZES: dict[int, int] = {
    Form.DATA1: 1, Form.DATA2: 2, Form.DATA4: 4, Form.DATA8: 8,
    Form.REF1: 1, Form.REF2: 2, Form.REF4: 4, Form.REF8: 8, Form.REF_SUP4: 4, Form.REF_SUP8: 8, Form.REF_SIG8: 8,
    Form.STRX1: 1, Form.STRX2: 2, Form.STRX3: 3, Form.STRX4: 4,
    Form.ADDRX1: 1, Form.ADDRX2: 2, Form.ADDRX3: 3, Form.ADDRX4: 4,
}  # fmt: skip
_NUMBERED = (
    Form.UDATA, Form.REF_UDATA, Form.STRX, Form.ADDRX, Form.LOCLISTX, Form.RNGLISTX, Form.GNU_ADDR_INDEX,
    Form.GNU_STR_INDEX,
)  # fmt: skip
_OFFSETS = (Form.SEC_OFFSET, Form.STRP, Form.LINE_STRP, Form.STRP_SUP, Form.GNU_STRP_ALT, Form.GNU_REF_ALT)


@dataclass(frozen=True, slots=True)
class Forms:
    """Readers of all forms in units of one format, and the sizes of those that always have the same."""

    readers: dict[int, Reader]
    sizes: dict[int, int]


@cache
def forms(version: int, address_size: int, offset_size: int) -> Forms:
    """The forms of a unit; *offset_size* is 8 in the 64-bit format."""
    sizes = dict(_SIZES)
    sizes[Form.ADDR] = address_size
    # DWARF 2 gave references to other units the size of an address.
    sizes[Form.REF_ADDR] = address_size if version == 2 else offset_size
    sizes |= dict.fromkeys(_OFFSETS, offset_size)
    readers: dict[int, Reader] = {form: _unsigned(size) for form, size in sizes.items()}
    readers |= dict.fromkeys(_NUMBERED, uleb128)
    readers[Form.SDATA] = sleb128
    readers |= {Form.BLOCK1: _counted(1), Form.BLOCK2: _counted(2), Form.BLOCK4: _counted(4)}
    readers |= {Form.BLOCK: _block, Form.EXPRLOC: _block, Form.STRING: terminated}
    readers |= {Form.DATA16: _wide, Form.FLAG: _flag, Form.FLAG_PRESENT: _present}
    sizes |= {Form.DATA16: 16, Form.FLAG: 1, Form.FLAG_PRESENT: 0, Form.IMPLICIT_CONST: 0}
    return Forms(readers, sizes)


class Abbreviation(NamedTuple):
    """What entries of one code have.

    *specs* are attribute, form, and the value itself for ``DW_FORM_implicit_const``. *size* is that of all attributes
    together, -1 where it differs from entry to entry. *sibling* is where in the attributes a 4-byte ``DW_AT_sibling``
    lies, -1 where there is none at a fixed place. *code*: they say where code is.
    """

    tag: int
    children: bool
    specs: tuple[tuple[int, int, int], ...]
    size: int
    sibling: int
    code: bool


# As plain numbers: the comparison is made for each attribute of each abbreviation.
_SIBLING, _REF4, _IMPLICIT_CONST = int(At.SIBLING), int(Form.REF4), int(Form.IMPLICIT_CONST)
_CODE = frozenset((int(At.LOW_PC), int(At.RANGES)))


class Abbreviations:
    """A table of abbreviations, read as far as codes are asked for."""

    def __init__(self, data: memoryview, offset: int, known: Forms) -> None:
        if offset >= len(data):
            raise DwarfError(f"there are no abbreviations at {offset:#x}")
        self._data = data
        self._at = offset
        self._forms = known
        self.rows: dict[int, Abbreviation] = {}

    def row(self, code: int) -> Abbreviation:
        """The abbreviation of a code.

        Raises:
            DwarfError: the table has no such code.
        """
        while code not in self.rows:
            number, at = uleb128(self._data, self._at)
            if not number:
                raise DwarfError(f"abbreviation {code} is missing")
            self.rows[number] = self._parse(at)
        return self.rows[code]

    def _parse(self, at: int) -> Abbreviation:
        data, sizes = self._data, self._forms.sizes
        tag, at = uleb128(data, at)
        children = bool(data[at])
        at += 1
        specs, size, sibling, code = [], 0, -1, False
        while True:
            attribute, form = data[at], data[at + 1]
            if attribute < 0x80 and form < 0x80:
                at += 2
            else:
                attribute, at = uleb128(data, at)
                form, at = uleb128(data, at)
            if not attribute and not form:
                break
            constant = 0
            if form == _IMPLICIT_CONST:
                constant, at = sleb128(data, at)
            if attribute in _CODE:
                code = True
            elif attribute == _SIBLING and form == _REF4 and size >= 0:
                sibling = size
            one = sizes.get(form, -1)
            size = size + one if size >= 0 and one >= 0 else -1
            specs.append((attribute, form, constant))
        self._at = at
        return Abbreviation(tag, children, tuple(specs), size, sibling, code)
