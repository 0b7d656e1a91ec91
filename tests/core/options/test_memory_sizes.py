"""Amounts of memory as users write them."""

from __future__ import annotations

import pytest

from pytrace.core.options import memory_sizes
from tests.support.rows import each_row

TOTAL = 8 << 30


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("512M", 512 << 20), ("2G", 2 << 30), ("10%", TOTAL // 10), ("1.5g", 3 << 29), ("64 KiB", 64 << 10),
        ("4096", 4096), ("1T", 1 << 40), ("100%", TOTAL), ("0.5%", TOTAL // 200), ("300MB", 300 << 20),
    ],
)  # fmt: skip
def test_amounts(text: str, amount: int) -> None:
    assert memory_sizes.parse(text, TOTAL) == amount


@each_row("text", ["", "M", "-1M", "0", "0%", "101%", "1X", "1e9", "nan", "10 %%", "0x10", "1M2"])
def test_what_is_no_amount(text: str) -> None:
    with pytest.raises(ValueError, match=r"memory"):
        memory_sizes.parse(text, TOTAL)


@pytest.mark.parametrize(
    ("amount", "text"),
    [(5, "5 bytes"), (4096, "4.0 KiB"), (300 << 20, "300 MiB"), (3 << 29, "1.5 GiB"), (1 << 40, "1.0 TiB")],
)
def test_amounts_are_shown_with_a_unit(amount: int, text: str) -> None:
    assert memory_sizes.shown(amount) == text
