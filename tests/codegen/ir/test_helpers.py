"""The table of BPF helpers against the machine's header."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytrace.codegen.ir.helpers import HELPERS, Helper

HEADER = Path("/usr/include/linux/bpf.h")


def numbers() -> dict[str, int]:
    """Numbers of helpers, as the header has them."""
    if not HEADER.exists():
        pytest.skip("the kernel's headers for programs are not installed")
    found = re.findall(r"\bFN\((\w+)(?:, (\d+))?", HEADER.read_text())
    # Older headers number them by their order.
    return {name: int(number or at) for at, (name, number) in enumerate(found)}


@pytest.mark.parametrize("row", HELPERS.values(), ids=lambda row: row.name)
def test_numbers(row: Helper) -> None:
    known = numbers()
    name = re.sub(r"_\d$", "", row.name)
    assert row.number == known.get(name, row.number)


@pytest.mark.parametrize("row", HELPERS.values(), ids=lambda row: row.name)
def test_a_helper_has_at_most_five_arguments(row: Helper) -> None:
    assert len(row.parameters) <= 5
    assert set(row.parameters) <= {"ptr", "i64"}
    assert row.result in {"ptr", "i64", "void"}


def test_variants_of_one_helper_differ_in_their_arguments() -> None:
    variants = [row for name, row in HELPERS.items() if name.startswith("trace_printk_")]
    assert {row.number for row in variants} == {6}
    assert sorted(len(row.parameters) for row in variants) == [2, 3, 4, 5]
