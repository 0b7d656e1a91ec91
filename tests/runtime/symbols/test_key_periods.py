"""pytrace.runtime.symbols.key_periods: when keys appeared and changed, by searches at known times."""

from __future__ import annotations

import pytest

from pytrace.runtime.symbols import key_periods
from pytrace.runtime.symbols.key_periods import KeyPeriods


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    now = [100]
    monkeypatch.setattr(key_periods, "SLACK", 0)
    monkeypatch.setattr(key_periods.time, "monotonic_ns", lambda: now[0])
    return now


def test_periods(clock: list[int]) -> None:
    periods = KeyPeriods(lambda _process: True)

    def search(moment: int, **values: bytes) -> dict[int, tuple[int, int]]:
        """Search a map with the keys ``a`` and ``b`` of one address each, and one address that both have."""
        clock[0] = moment
        periods.begin()
        clock[0] = moment + 5
        for key, value in values.items():
            periods.note(7, [ord(key), 1], key.encode(), value)
        return {address: period for (_, address), period in periods.addresses.items()}

    assert search(200, a=b"1") == {97: (100, 205), 1: (100, 205)}
    assert search(300, a=b"1", b=b"1") == {97: (100, 205), 98: (200, 305), 1: (100, 305)}
    assert search(400, a=b"2", b=b"1") == {97: (100, 405), 98: (200, 305), 1: (100, 405)}
    assert search(500, b=b"1") == {98: (200, 305), 1: (200, 305)}
    assert search(600, a=b"2", b=b"1") == {97: (500, 605), 98: (200, 305), 1: (200, 605)}, "it was cleared"
    assert periods.begun == 600


def test_processes_are_asked_once_a_search() -> None:
    asked: list[int] = []
    periods = KeyPeriods(lambda process: not asked.append(process))
    for _ in range(2):
        periods.begin()
        assert periods.wanted(7)
        assert periods.wanted(7)
    assert asked == [7, 7]
