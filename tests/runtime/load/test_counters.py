"""pytrace.runtime.load.counters: sums over the copies of all CPUs."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest

from pytrace.core.manifest import Counters
from pytrace.runtime.load.counters import CounterReader

NAMES = (("lost", 0), ("lost", 1), ("map_full", 0))


class Script:
    """Stands for a loaded script whose counters lie 16 bytes into a section, in copies 32 bytes apart."""

    def __init__(self, *copies: tuple[int, int, int], names: tuple[tuple[str, int], ...] = NAMES) -> None:
        data = bytearray(16)
        for row in copies:
            data += struct.pack("=3Q", *row) + b"\xff" * 8
        self.memory = data
        counters = Counters(".data.counters", 16, len(copies), 32, names)
        self.manifest = SimpleNamespace(counters=counters)

    def section(self, name: str) -> memoryview:
        assert name == ".data.counters"
        return memoryview(self.memory)


def totals(script: Any) -> dict[tuple[str, int], int]:
    return CounterReader(script).totals()


def test_copies_are_added_and_zeros_left_out() -> None:
    assert totals(Script((1, 0, 2), (10, 0, 0), (0, 0, 40))) == {("lost", 0): 11, ("map_full", 0): 42}


def test_the_order_is_that_of_the_manifest() -> None:
    assert list(totals(Script((1, 1, 1)))) == list(NAMES)


def test_counters_go_on() -> None:
    script: Any = Script((1, 0, 0))
    reader = CounterReader(script)
    assert reader.totals() == {("lost", 0): 1}
    script.memory[24:32] = struct.pack("=Q", 5)
    assert reader.totals() == {("lost", 0): 1, ("lost", 1): 5}


@pytest.mark.parametrize("counters", [None, Counters(".data.counters", 0, 4, 8, ())])
def test_a_script_without_counters_has_no_section(counters: Counters | None) -> None:
    assert totals(SimpleNamespace(manifest=SimpleNamespace(counters=counters))) == {}


def test_one_copy_without_a_stride() -> None:
    script: Any = Script((3, 0, 0))
    script.manifest.counters = Counters(".data.counters", 16, 1, 0, NAMES)
    assert totals(script) == {("lost", 0): 3}
