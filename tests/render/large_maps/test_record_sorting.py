"""Sorting records that come in blocks."""

from __future__ import annotations

import random

import pytest

from pytrace.render.large_maps import record_sorting
from pytrace.render.large_maps.record_sorting import Sort, padded, sorter
from pytrace.runtime.abi import syscalls
from tests.support.rows import each_row

SORTS = [
    pytest.param(syscalls.sort_records if syscalls.can_sort_records() else None, id="C library"),
    pytest.param(None, id="objects"),
]


@each_row("size", [8, 32, 40])
@each_row("sort", SORTS)
@each_row("descending", [False, True])
@each_row("top", [0, 5, 5000])
def test_blocks_in_order(
    size: int, sort: Sort | None, descending: bool, top: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_sorting, "ROWS", 64)
    rng = random.Random(1)
    records = [rng.randbytes(3).ljust(size, b"\0") for _ in range(500)]
    made = sorter(size, sort, top=top, descending=descending)
    for start in range(0, len(records), 77):
        made.add((bytearray(b"".join(records[start : start + 77])), size))
    found = []
    for data, width in made.blocks():
        found += [bytes(data[at : at + width]).ljust(size, b"\0") for at in range(0, len(data), width)]
    assert found == sorted(records, reverse=descending)[-top:]


def test_padding() -> None:
    assert padded([b"a", b"123456789"]) == (bytearray(b"a".ljust(16, b"\0") + b"123456789".ljust(16, b"\0")), 16)
    assert padded([b""]) == (bytearray(8), 8)
