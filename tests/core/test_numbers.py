from __future__ import annotations

import pytest

from pytrace.core.numbers import parse_boolean, parse_integer
from tests.support.rows import each_row


@each_row(
    ("text", "value"),
    [
        ("0", 0),
        ("42", 42),
        ("-42", -42),
        ("+7", 7),
        ("1_000_000", 1_000_000),
        ("0x1F", 31),
        ("0xdead_beef", 0xDEADBEEF),
        ("0b101", 5),
        ("017", 15),
        ("3e6", 3_000_000),
        ("5u", 5),
        ("5ULL", 5),
        ("10ms", 10_000_000),
        ("2s", 2 * 10**9),
        ("1d", 86_400 * 10**9),
    ],
)
def test_integers(text: str, value: int) -> None:
    assert parse_integer(text) == value


@each_row("text", ["", "x", "1_", "_1", "08", "0x", "12e3", "1.5", "5 ", "5q", "0x1u", "--1"])
def test_no_integers(text: str) -> None:
    assert parse_integer(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("ON", True), ("yes", True), ("1", True), ("off", False), ("No", False), ("2", None)],
)
def test_booleans(text: str, value: bool | None) -> None:
    assert parse_boolean(text) is value
