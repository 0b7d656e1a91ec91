"""What a session tells its programs before they run."""

from __future__ import annotations

import struct
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytrace.core.manifest import SessionData
from pytrace.runtime.session import opening

PLACES = SessionData("session", start=0, cpid=8, tai=16, wall=24, root=32, exit=40)
CLOCKS = {time.CLOCK_BOOTTIME: 0, time.CLOCK_TAI: 37_000_000_000, time.CLOCK_REALTIME: 1_000_000_000}


@pytest.mark.parametrize("stalled", range(40))
def test_clocks_are_read_at_one_moment_however_busy_the_machine(stalled: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process gets the processor for a second before one of the readings."""
    readings = iter(range(1000))
    late = 0

    def read(clock: int) -> int:
        nonlocal late
        number = next(readings)
        late += 1_000_000_000 if number == stalled else 0
        return CLOCKS[clock] + 100 * number + late

    memory = bytearray(40)
    manifest = SimpleNamespace(programs=(), session=PLACES)
    loaded = SimpleNamespace(manifest=manifest, section=lambda _: memory)
    monkeypatch.setattr(time, "clock_gettime_ns", read)
    opening.fill_session_data(cast(Any, loaded), cast(Any, SimpleNamespace(pid=None)), None)
    monkeypatch.undo()
    _, _, tai, wall, _ = struct.unpack("=5q", memory)
    assert abs(tai - CLOCKS[time.CLOCK_TAI]) < 1000
    assert abs(wall - CLOCKS[time.CLOCK_REALTIME]) < 1000
