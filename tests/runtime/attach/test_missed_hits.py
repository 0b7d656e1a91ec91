"""pytrace.runtime.attach.missed_hits: counts of the kernel, from information of links and programs made by hand."""

from __future__ import annotations

import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytrace.runtime.abi import bpf
from pytrace.runtime.attach import missed_hits
from pytrace.runtime.attach.missed_hits import MissReader, link_misses, profile_misses
from pytrace.runtime.attach.opened import Opened
from pytrace.runtime.host import tracefs
from tests.support.attach_requests import spec

PERF, MULTI = 7, 8


def perf_link(kind: int, missed: int) -> bytes:
    """``struct bpf_link_info`` of a perf event: type, then the type of the event at 16 and the misses at 48."""
    return struct.pack("=I12xI28xQ8x", PERF, kind, missed)


def multi_link(missed: int) -> bytes:
    return struct.pack("=I28xQ24x", MULTI, missed)


@pytest.mark.parametrize(
    ("data", "missed"),
    [
        (multi_link(5), 5),
        (perf_link(3, 6), 6),
        (perf_link(4, 7), 7),
        # A uprobe, an event, and a link of another kind have other things there.
        (perf_link(1, 8), 0),
        (perf_link(6, 8), 0),
        (struct.pack("=I60x", 2), 0),
    ],
)
def test_misses_of_a_link(data: bytes, missed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(data) == 64
    monkeypatch.setattr(bpf, "info", lambda descriptor, size: data[:size])
    assert link_misses(3) == missed


def test_misses_of_a_profile() -> None:
    text = "  p12_0                                                     7               0\n  p12_1   3   12\n\nbroken\n"
    assert profile_misses(text) == {"p12_0": 0, "p12_1": 12}


PROGRAMS = (
    spec("a", "kprobe", ()),
    spec("b", "kretprobe", ()),
    spec("c", "tracepoint", ()),
    spec("follow", "tracepoint", (), service=True),
)


class Loaded:
    """Stands for loaded programs; the number of a program is 100 more than its descriptor."""

    def __init__(self, *programs: Any) -> None:
        self.manifest = SimpleNamespace(programs=programs)
        self.symbols = [item.symbol for item in programs if not item.part_of]

    def program_fd(self, symbol: str) -> int:
        return self.symbols.index(symbol)


@pytest.fixture
def recursion(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """Misses by descriptor; what the kernel says of links is that they missed as many as their number is."""
    missed: dict[int, int] = {}
    monkeypatch.setattr(bpf, "prog_id", lambda descriptor: descriptor + 100)
    monkeypatch.setattr(bpf, "recursion_misses", lambda descriptor: missed.get(descriptor, 0))
    monkeypatch.setattr(missed_hits, "link_misses", lambda link: link)
    monkeypatch.setattr(bpf, "link_info", lambda link: (0, 0, 100 + link % 10))
    return missed


def totals(opened: Opened, *programs: Any) -> dict[tuple[str, int], int]:
    loaded: Any = Loaded(*programs)
    return MissReader(loaded, opened).totals()


def test_programs_inside_themselves(recursion: dict[int, int]) -> None:
    recursion.update({0: 4, 2: 5, 3: 6})
    assert totals(Opened(), *PROGRAMS) == {("recursion", 0): 4, ("recursion", 2): 5}, "services do not matter"


def test_links_are_those_of_their_programs(recursion: dict[int, int]) -> None:
    assert totals(Opened(links=[10, 20, 31, 0]), *PROGRAMS) == {("missed", 0): 30, ("missed", 1): 31}


def test_links_of_other_probes_are_not_looked_at(recursion: dict[int, int]) -> None:
    assert totals(Opened(links=[10]), spec("c", "tracepoint", ())) == {}
    entry, leaving = spec("e", "uprobe", ()), spec("r", "kretprobe", (), part_of="e")
    assert totals(Opened(links=[10]), entry, leaving) == {}


def test_probes_made_through_tracefs(
    recursion: dict[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kprobe_profile").write_text("p1_0 10 3\np1_1 10 0\np1_2 10 4\np9_9 1 99\n")
    monkeypatch.setattr(tracefs, "root", lambda: str(tmp_path))
    opened = Opened(links=[20], traced={"p1_0": "a", "p1_1": "b", "p1_2": "a", "p1_3": "b"})
    assert totals(opened, *PROGRAMS) == {("missed", 0): 20 + 3 + 4}
