"""The text of many rows by one operation."""

from __future__ import annotations

import struct

from pytrace.core import types
from pytrace.core.types import INT32, UINT64, String, Sum
from pytrace.render.decoders import for_any
from pytrace.render.forms import Decoders
from pytrace.render.large_maps.row_format import GIVEN, RowFormat, cell, number_cell


def test_numbers_and_texts() -> None:
    decoders = Decoders()
    key, value = number_cell(INT32, 0, decoders), number_cell(Sum(True), 16, decoders)
    assert key is not None
    assert value is not None
    name = cell(String(6), 4, decoders, for_any(lambda text: text.upper()))
    form = RowFormat(32, [b"100% [", key, b",", name, b"]=", value, b"\n"])
    rows = bytearray(struct.pack("=i6s6xq8xi6s6xq8x", -5, b"ab", -7, 6, b"cdefgh", 8))
    assert form.text(rows) == b"100% [-5,AB]=-7\n100% [6,CDEFGH]=8\n"
    assert form.text(rows[:32]) == b"100% [-5,AB]=-7\n"


def test_which_values_are_formatted_as_numbers() -> None:
    decoders = Decoders()
    pointer = number_cell(types.Pointer(types.VOID), 0, decoders)
    assert pointer is not None
    assert RowFormat(8, [pointer]).text(bytearray(struct.pack("=Q", 255))) == b"0xff"
    assert number_cell(UINT64, 0, decoders) is not None
    assert number_cell(types.Bool(), 0, decoders) is None
    assert number_cell(String(8), 0, decoders) is None


def test_texts_that_are_not_in_memory() -> None:
    decoders = Decoders()
    number, name = number_cell(INT32, 0, decoders), cell(String(4), 4, decoders, for_any(lambda text: text.upper()))
    assert number is not None
    form = RowFormat(8, [b"[", number, b",", name, b"]: ", GIVEN, b"%\n"])
    rows = bytearray(struct.pack("=i4si4s", 5, b"ab", -6, b"c"))
    assert form.text(rows, [b"first", b"100%"]) == b"[5,AB]: first%\n[-6,C]: 100%%\n"
