"""strftime of the C library and its three further conversions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytrace.render.text import strftime
from tests.support.zone import zone


@pytest.fixture(autouse=True)
def _zone() -> Iterator[None]:
    with zone("UTC-2"):
        yield


MOMENT = 1_600_000_000_012_345_678


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        ("%Y-%m-%d %H:%M:%S", b"2020-09-13 14:26:40"),
        ("%H:%M:%S.%f", b"14:26:40.012345"),
        ("%s.%k|%l", b"1600000000.012345678|012"),
        ("100%% %%f %f", b"100% %f 012345"),
        ("plain", b"plain"),
        ("", b""),
        ("%-d %e", b"13 13"),
        ("é%Y\udcff", "é2020".encode() + b"\xff"),
    ],
)
def test_strftime(layout: str, expected: bytes) -> None:
    assert strftime(layout, MOMENT) == expected
