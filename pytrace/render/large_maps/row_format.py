"""The text of many rows at once: one operation unpacks them, and one formats them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from pytrace.core import types

if TYPE_CHECKING:
    from pytrace.render.forms import Decoders
    from pytrace.render.text import Form

Column = Callable[[Sequence[bytes]], list[bytes]]
"""The texts of the values of one column, from their bytes."""


class Cell(msgspec.Struct, frozen=True):
    """A value in a row: how it is read from *start* (a code of :mod:`struct`), converted, and formatted."""

    start: int
    code: str
    size: int
    convert: Column | None
    form: bytes


def number_cell(kind: types.Type, start: int, decoders: Decoders, form: bytes = b"%d") -> Cell | None:
    """The cell of a value that is formatted as the number that it is; None for other types."""
    if isinstance(kind, types.Pointer):
        form = b"0x%x"
    elif not isinstance(kind, types.Int | types.Count | types.Sum) or kind.size > 8:
        return None
    if isinstance(kind, types.Sum):
        return Cell(start, "q" if kind.signed else "Q", 8, None, form)
    return Cell(start, decoders.convert(kind)[0], kind.size, None, form)


def cell(kind: types.Type, start: int, decoders: Decoders, form: Form) -> Cell:
    """The cell of a value of type *kind* whose text is *form* of the decoded value."""
    if isinstance(kind, types.String):
        string = decoders.string(kind)
        return Cell(start, f"{kind.size}s", kind.size, lambda column: [form(string(item)) for item in column], b"%s")
    decode = decoders.decoder(kind)
    return Cell(start, f"{kind.size}s", kind.size, lambda column: [form(decode(item, 0)) for item in column], b"%s")


GIVEN = Cell(0, "", 0, None, b"%s")
"""The last cell of rows whose texts there are not in memory."""


class RowFormat:
    """The text of rows of *size* bytes: *parts* are literal text and cells, in the order of text and of memory."""

    def __init__(self, size: int, parts: Sequence[bytes | Cell]) -> None:
        self.size = size
        cells = [part for part in parts if isinstance(part, Cell) and part is not GIVEN]
        layout, at = "", 0
        for item in cells:
            layout += f"{item.start - at}x{item.code}" if item.start != at else item.code
            at = item.start + item.size
        self._layout = layout + (f"{size - at}x" if size != at else "")
        self._line = b"".join([part.form if isinstance(part, Cell) else part.replace(b"%", b"%%") for part in parts])
        self._converts = [(place, item.convert) for place, item in enumerate(cells) if item.convert is not None]
        self._width = len(cells)
        self._for_rows = lru_cache(2)(self._made)

    def _made(self, count: int) -> tuple[struct.Struct, bytes]:
        return struct.Struct("=" + self._layout * count), self._line * count

    def text(self, rows: bytearray, given: Sequence[bytes] | None = None) -> bytes:
        """The text of *rows*, which lie one after another; *given* are those of :data:`GIVEN`."""
        count, width = len(rows) // self.size, self._width
        layout, line = self._for_rows(count)
        if not self._converts and given is None:
            return line % layout.unpack(rows)
        flat = list(layout.unpack(rows))
        for place, convert in self._converts:
            flat[place::width] = convert(flat[place::width])
        if given is None:
            return line % tuple(flat)
        whole: list[object] = [None] * (count * (width + 1))
        for place in range(width):
            whole[place :: width + 1] = flat[place::width]
        whole[width :: width + 1] = given
        return line % tuple(whole)
