"""pytrace.runtime.elf.leb128: numbers, and the positions after them."""

from __future__ import annotations

import pytest

from pytrace.runtime.elf.leb128 import signed, unsigned


@pytest.mark.parametrize(
    ("data", "value", "end"), [(b"\x00", 0, 1), (b"\x7f", 127, 1), (b"\x80\x01", 128, 2), (b"\xe5\x8e\x26", 624485, 3)]
)
def test_unsigned_numbers(data: bytes, value: int, end: int) -> None:
    assert unsigned(b"x" + data + b"\xff", 1) == (value, end + 1)


@pytest.mark.parametrize(
    ("data", "value", "end"),
    [(b"\x02", 2, 1), (b"\x7e", -2, 1), (b"\xff\x00", 127, 2), (b"\x81\x7f", -127, 2), (b"\x80\x7f", -128, 2)],
)
def test_signed_numbers(data: bytes, value: int, end: int) -> None:
    assert signed(b"x" + data + b"\xff", 1) == (value, end + 1)
