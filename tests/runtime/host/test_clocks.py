"""Wall time of the kernel's clocks, strftime and its three further conversions."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from pytrace.runtime.host import clocks
from pytrace.runtime.host.clocks import Clock, strftime


@pytest.fixture(autouse=True)
def _zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC-2")
    time.tzset()
    clocks._calendar.cache_clear()
    yield
    monkeypatch.undo()
    time.tzset()
    clocks._calendar.cache_clear()


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


def test_boot_clock_becomes_wall_time() -> None:
    now = Clock().wall(time.clock_gettime_ns(time.CLOCK_BOOTTIME))
    assert abs(now - time.time_ns()) < 50_000_000


@pytest.mark.parametrize("kind", [clocks.TAI, clocks.SOFTWARE_TAI])
def test_atomic_time_becomes_wall_time(kind: int) -> None:
    now = Clock().wall(time.clock_gettime_ns(time.CLOCK_TAI), kind)
    assert abs(now - time.time_ns()) < 50_000_000


def test_text_of_a_reading() -> None:
    made = Clock()
    made.boot_offset = MOMENT
    assert made.text("%H:%M:%S.%k", 1) == b"14:26:40.012345679"
    assert time.strftime("%Y").encode() == made.now("%Y")
