"""Tests of map files that somebody else may have put there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytrace.runtime.symbols import perf_map
from pytrace.runtime.symbols.perf_map import PerfMap


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The file that is looked at first, and the second one, which names a function."""
    first, second = tmp_path / "inner.map", tmp_path / "outer.map"
    second.write_text("1000 20 jitted\n")
    monkeypatch.setattr(perf_map, "_candidates", lambda _pid: [str(first), str(second)])
    return first, second


def test_a_file_that_is_absent_is_passed_over(places: tuple[Path, Path]) -> None:
    assert PerfMap(1).find(0x1010) == ("jitted", 0x10)


def test_pipes_do_not_hold_the_tracer_up(places: tuple[Path, Path]) -> None:
    os.mkfifo(places[0])
    assert PerfMap(1).find(0x1010) == ("jitted", 0x10)


def test_links_are_not_followed(places: tuple[Path, Path], tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("1000 20 secret\n")
    places[0].symlink_to(secret)
    assert PerfMap(1).find(0x1010) == ("jitted", 0x10)
