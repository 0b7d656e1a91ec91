"""watchpoint: addresses, lengths, modes of each machine."""

from __future__ import annotations

import pytest

from pytrace.core.probes.targets import ProbeTarget, WatchpointTarget
from tests.frontend.expanding import Expanded
from tests.support.facts import RecordedKernel


@pytest.mark.parametrize(
    ("text", "probe", "target"),
    [
        ("watchpoint:0x1000:8:wr", "watchpoint:4096:8:rw", WatchpointTarget(4096, 8, "rw")),
        ("w:4096:1:x", "watchpoint:4096:1:x", WatchpointTarget(4096, 1, "x")),
    ],
)
def test_places(text: str, probe: str, target: ProbeTarget) -> None:
    (found,) = Expanded(f"{text} {{ }}").unit.targets
    assert (found.probe, found.place) == (probe, target)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("watchpoint:0x1000:8", "watchpoint:0x1000:8"),
        ("watchpoint:0:8:w", "0"),
        ("watchpoint:0x1000:3:w", "3"),
        ("watchpoint:0x1000:8:r", "r"),
        ("watchpoint:0x1000:8:ww", "ww"),
        ("watchpoint:0x1000:8:q", "q"),
        ("watchpoint:main+arg1:8:w", "main+arg1"),
    ],
)
def test_mistakes(text: str, place: str) -> None:
    assert Expanded(f"{text} {{ }}").places == [place]


def test_watchpoint_reads_on_other_machines() -> None:
    assert Expanded("watchpoint:0x1000:8:r { }", RecordedKernel(arch="aarch64")).names == ["watchpoint:4096:8:r"]
    assert "rw watches both" in Expanded("watchpoint:0x1000:8:r { }").hints[0]


def test_watchpoint_needs_breakpoints() -> None:
    kernel = RecordedKernel(features=frozenset())
    assert "hardware breakpoints" in Expanded("watchpoint:0x1000:8:w { }", kernel).errors[0]
    assert not Expanded("watchpoint:0x1000:8:w { }", kernel, mode="list").errors


@pytest.mark.parametrize("length", [1, 2, 4, 8])
def test_lengths(length: int) -> None:
    assert not Expanded(f"watchpoint:0x1000:{length}:w {{ }}").errors


def test_addresses_fit_64_bits() -> None:
    assert "64 bits" in Expanded("watchpoint:0x10000000000000000:8:w { }").errors[0]
    assert not Expanded("watchpoint:0xffffffffffffffff:8:w { }").errors


def test_functions_are_no_addresses() -> None:
    assert "uprobe" in Expanded("watchpoint:main+arg1:8:w { }").hints[0]
    assert Expanded("watchpoint:main:8:w { }").hints == []
