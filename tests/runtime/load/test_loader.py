"""How large the event ring of a script is."""

from __future__ import annotations

import pytest

from pytrace.core.config import Config
from pytrace.core.event_layout import EventSpec, Exit, Formatted, Location
from pytrace.core.manifest import Manifest
from pytrace.runtime.load import loader

PLACE = Location("x.bt", 1, 1)
EXIT = EventSpec(0, "exit", (), Exit(True), PLACE)
PRINTF = EventSpec(1, "printf", (), Formatted("x"), PLACE)


def manifest(*events: EventSpec, pages: int = 0) -> Manifest:
    return Manifest((), (), events, (), Config(perf_rb_pages=pages))


@pytest.mark.parametrize("events", [(), (EXIT,), (EXIT, EXIT)])
def test_scripts_that_send_nothing_have_the_smallest_ring(events: tuple[EventSpec, ...]) -> None:
    assert loader.script_ring_size(manifest(*events)) == loader.RING_SMALLEST


@pytest.mark.parametrize("events", [(PRINTF,), (EXIT, PRINTF)])
def test_other_rings_follow_the_memory(events: tuple[EventSpec, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "available_memory", lambda: 1 << 40)
    assert loader.script_ring_size(manifest(*events)) == loader.RING_LARGEST


@pytest.mark.parametrize("events", [(EXIT,), (PRINTF,)])
def test_the_config_decides_for_all(events: tuple[EventSpec, ...]) -> None:
    assert loader.script_ring_size(manifest(*events, pages=1024)) == 1024 * 4096
