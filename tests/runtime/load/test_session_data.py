"""Session values that are written before programs run."""

from __future__ import annotations

import struct
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytrace.core.manifest import EXITED, STOPPED, SessionData
from pytrace.core.options.process_filters import NOT_YET, ProcessFilters
from pytrace.core.options.run_options import RunOptions
from pytrace.runtime.load import session_data
from tests.support.rows import each_row

PLACES = SessionData(
    "session", start=0, cpid=8, tai=16, wall=24, root=32, exit=40, stopped=44, deadline=48, own=56, filters=64
)
CLOCKS = {time.CLOCK_BOOTTIME: 0, time.CLOCK_TAI: 37_000_000_000, time.CLOCK_REALTIME: 1_000_000_000}


@each_row("stalled", range(40))
def test_clocks_are_read_at_one_moment_however_busy_the_machine(stalled: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process gets the processor for a second before one of the readings."""
    readings = iter(range(1000))
    late = 0

    def read(clock: int) -> int:
        nonlocal late
        number = next(readings)
        late += 1_000_000_000 if number == stalled else 0
        return CLOCKS[clock] + 100 * number + late

    memory = bytearray(128)
    manifest = SimpleNamespace(programs=(), session=PLACES, ahead=None)
    loaded = SimpleNamespace(manifest=manifest, section=lambda _: memory)
    monkeypatch.setattr(time, "clock_gettime_ns", read)
    session_data.fill(cast(Any, loaded), RunOptions(), None)
    monkeypatch.undo()
    _, _, tai, wall, _ = struct.unpack_from("=5q", memory)
    assert abs(tai - CLOCKS[time.CLOCK_TAI]) < 1000
    assert abs(wall - CLOCKS[time.CLOCK_REALTIME]) < 1000


def test_values_of_filters_are_in_the_session_data() -> None:
    memory = bytearray(128)
    loaded = SimpleNamespace(
        manifest=SimpleNamespace(programs=(), session=PLACES, ahead=None), section=lambda _: memory
    )
    options = RunOptions(filters=ProcessFilters(pids=(7, 8, 9), uids=(3,)))
    session_data.fill(cast(Any, loaded), options, None)
    assert struct.unpack_from("=5Q", memory, PLACES.filters) == (7, 8, 9, 7, 3)
    assert struct.unpack_from("=Q", memory, PLACES.root) == (7,)
    waits = RunOptions(filters=ProcessFilters(exec_wait="ls"))
    session_data.fill(cast(Any, loaded), waits, None)
    assert struct.unpack_from("=Q", memory, PLACES.root) == (NOT_YET,)
    assert bytes(memory[PLACES.filters : PLACES.filters + 16]) == b"ls".ljust(16, b"\0")


@pytest.mark.parametrize("before", [0, EXITED, STOPPED])
def test_programs_are_stopped(before: int) -> None:
    memory = bytearray(128)
    struct.pack_into("=II", memory, PLACES.exit, 8, before)
    loaded = cast(Any, SimpleNamespace(manifest=SimpleNamespace(session=PLACES), section=lambda _: memoryview(memory)))
    assert session_data.has_exited(loaded) is (before == EXITED)
    session_data.stop(loaded)
    assert struct.unpack_from("=II", memory, PLACES.exit) == (8, STOPPED)
    assert session_data.exit_status(loaded) == 7
    assert not session_data.has_exited(loaded)
    nothing = cast(Any, SimpleNamespace(manifest=SimpleNamespace(session=None)))
    session_data.stop(nothing)
    assert session_data.exit_status(nothing) is None
    assert not session_data.has_exited(nothing)
