"""Records sorted by the C library."""

from __future__ import annotations

import random

import pytest

from pytrace.runtime.abi import sorting


@pytest.mark.parametrize("size", [1, 3, 8, 16, 24, 40])
def test_records_sort_as_bytes_compare(size: int) -> None:
    assert sorting.available()
    rng = random.Random(size)
    records = [rng.randbytes(size) for _ in range(500)]
    data = bytearray(b"".join(records))
    sorting.sort_records(data, size)
    assert bytes(data) == b"".join(sorted(records))
    data += b"x"


def test_nothing_to_sort() -> None:
    data = bytearray()
    sorting.sort_records(data, 8)
    assert data == b""
