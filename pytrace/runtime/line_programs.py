"""Line programs of DWARF, run in one loop over their bytes: rows as columns of integers.

pyelftools makes several objects of each instruction, and a library has millions of them. A program is run in steps, so
that whoever waits for something else may look at it in between.

Source: the DWARF 5 standard, 6.2.5.
"""

from __future__ import annotations

import operator
from array import array
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from elftools.common.exceptions import DWARFError

from pytrace.dataclass import dataclass, field

STEP = 1 << 14
"""Bytes of a program that are run between two steps: some milliseconds."""

_ADVANCED, _COPY, _ADVANCE_PC, _ADVANCE_LINE, _SET_FILE, _SET_COLUMN, _NEGATE, _CONST_ADD_PC, _FIXED_ADVANCE = (
    0, 1, 2, 3, 4, 5, 6, 8, 9,
)  # fmt: skip
"""``DW_LNS_*``; 0 begins an extended instruction."""
_END_SEQUENCE, _SET_ADDRESS, _DEFINE_FILE = 1, 2, 3
"""``DW_LNE_*``."""


@dataclass(slots=True)
class LineRows:
    """Rows of a line table by column, in order of address once :func:`run` is through.

    *sources* hold the file's number in the upper and the line in the lower 32 bits, and 0 at the end of a run of code.
    *details* are twice the column, and one more where a statement starts.
    """

    addresses: array[int] = field(default_factory=lambda: array("Q"))
    sources: array[int] = field(default_factory=lambda: array("Q"))
    details: array[int] = field(default_factory=lambda: array("I"))


def run(header: Any, code: bytes, rows: LineRows, define_file: Callable[[bytes, int], None]) -> Iterator[None]:
    """Run a program with pyelftools' *header* of it, and fill *rows*; each step of the iterator is a short one.

    *define_file* is told the name and folder of files that the program itself declares.

    Raises:
        DWARFError, IndexError, OverflowError: the program is damaged.
    """
    base, line_base, line_range = header["opcode_base"], header["line_base"], header["line_range"]
    unit = header["minimum_instruction_length"]
    if not line_range or header.get("maximum_operations_per_instruction", 1) > 1:
        raise DWARFError("its line programs are made for another kind of machine")
    advances = [(number - base) // line_range * unit if number >= base else 0 for number in range(256)]
    moves = [line_base + (number - base) % line_range if number >= base else 0 for number in range(256)]
    operands = (0, *header["standard_opcode_lengths"])
    at, size = 0, len(code)
    addresses: list[int] = []
    sources: list[int] = []
    details: list[int] = []
    first_statement = 1 if header["default_is_stmt"] else 0
    address, line, file, detail = 0, 1, 1 << 32, first_statement
    while at < size:
        yield
        stop = min(at + STEP, size)
        while at < stop:
            number = code[at]
            at += 1
            if number >= base:
                address += advances[number]
                line += moves[number]
            elif number == _COPY:
                pass
            elif number == _SET_COLUMN:
                value, at = _unsigned(code, at)
                detail = detail & 1 | (value & 0x7FFFFFFF) << 1
                continue
            elif number == _NEGATE:
                detail ^= 1
                continue
            elif number == _ADVANCE_LINE:
                value, at = _signed(code, at)
                line += value
                continue
            elif number == _ADVANCE_PC:
                value, at = _unsigned(code, at)
                address += value * unit
                continue
            elif number == _FIXED_ADVANCE:
                address += code[at] | code[at + 1] << 8
                at += 2
                continue
            elif number == _ADVANCED:
                length, at = _unsigned(code, at)
                kind = code[at] if length else 0
                if kind == _END_SEQUENCE:
                    addresses.append(address)
                    sources.append(0)
                    details.append(0)
                    _take(rows, addresses, sources, details)
                    address, line, file, detail = 0, 1, 1 << 32, first_statement
                elif kind == _SET_ADDRESS:
                    address = int.from_bytes(code[at + 1 : at + length], "little")
                elif kind == _DEFINE_FILE:
                    _define(code[at + 1 : at + length], define_file)
                at += length
                continue
            elif number == _SET_FILE:
                value, at = _unsigned(code, at)
                file = value << 32
                continue
            elif number == _CONST_ADD_PC:
                address += advances[255]
                continue
            else:
                for _ in range(operands[number]):
                    value, at = _unsigned(code, at)
                continue
            addresses.append(address)
            sources.append(file + line)
            details.append(detail)
    _take(rows, addresses, sources, details)
    _order(rows)


def _take(rows: LineRows, addresses: list[int], sources: list[int], details: list[int]) -> None:
    """Move what a run of code gave to the columns."""
    rows.addresses.extend(addresses)
    rows.sources.extend(sources)
    rows.details.extend(details)
    addresses.clear()
    sources.clear()
    details.clear()


def _order(rows: LineRows) -> None:
    """Order rows by address; one that ends a run of code comes before one that begins another there."""
    addresses, sources, details = rows.addresses, rows.sources, rows.details
    if all(map(operator.lt, addresses, islice(addresses, 1, None))):
        return
    order = sorted(range(len(addresses)), key=lambda row: (addresses[row], sources[row] != 0))
    rows.addresses = array("Q", map(addresses.__getitem__, order))
    rows.sources = array("Q", map(sources.__getitem__, order))
    rows.details = array("I", map(details.__getitem__, order))


def _define(body: bytes, define_file: Callable[[bytes, int], None]) -> None:
    name, _, rest = body.partition(b"\0")
    define_file(name, _unsigned(rest, 0)[0])


def _unsigned(code: bytes, at: int) -> tuple[int, int]:
    """A ULEB128 number and the place after it."""
    byte = code[at]
    at += 1
    if byte < 0x80:
        return byte, at
    value, shift = byte & 0x7F, 7
    while True:
        byte = code[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _signed(code: bytes, at: int) -> tuple[int, int]:
    """An SLEB128 number and the place after it."""
    start = at
    value, at = _unsigned(code, at)
    sign = 1 << (7 * (at - start) - 1)
    return (value ^ sign) - sign, at
