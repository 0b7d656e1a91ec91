"""pytrace.runtime.session.services.reading_ahead: which addresses are read, when, and in how long pieces."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pytest

from pytrace.core.manifest import MapSpec
from pytrace.core.types import UINT64, Array, Count, Stack, StackMode, String, Tuple, Type, USym
from pytrace.runtime.session.run_services import has_user_stacks
from pytrace.runtime.session.services import reading_ahead
from pytrace.runtime.session.services.reading_ahead import Place, ReadingAhead, collect, places
from pytrace.runtime.session.services.service import EndOfRun
from pytrace.runtime.symbols.key_periods import KeyPeriods
from tests.support.encode import Run, encode

STACK = Stack(True, 4)
FIRST, SECOND = (7, (0x1000, 0x2000), 0), (8, (0x1000,), 0)


class _Lines:
    """Notes what is prepared; each address takes a step."""

    def __init__(self) -> None:
        self.wanted: list[list[tuple[int, int]]] = []
        self.read = 0
        self.awaited: list[str] = []
        self.over = False
        self.followed: list[int] = []
        self.periods: list[dict[tuple[int, int], tuple[int, int]]] = []

    def keyed(
        self, periods: Mapping[tuple[int, int], tuple[int, int]], searched: int, *, over: bool = False
    ) -> None:
        assert searched
        self.over = over
        self.periods.append(dict(periods))

    def follow_code(self, pid: int) -> bool:
        self.followed.append(pid)
        return pid == 8

    def prepare(self, addresses: Collection[tuple[int, int]]) -> Iterator[None]:
        self.wanted.append(sorted(addresses))
        return self._steps(len(addresses))

    def _steps(self, count: int) -> Iterator[None]:
        for _ in range(count):
            self.read += 1
            yield

    def wait_for(self, steps: Iterator[None], what: str) -> None:
        self.awaited.append(what)
        for _ in steps:
            pass


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock: a list with the time."""
    time = [100.0]
    monkeypatch.setattr(reading_ahead.time, "monotonic", lambda: time[0])
    monkeypatch.setattr(reading_ahead.time, "thread_time", lambda: time[0])
    return time


def _ahead(run: Run, lines: _Lines) -> ReadingAhead:
    specs = [spec for spec in run.maps if has_user_stacks(spec)]
    return ReadingAhead(specs, run.reader, lines)


def _stacks(entries: dict[Any, Any], key: Any = STACK) -> Run:
    run = Run()
    run.keyed("@", key, Count(), entries)
    run.keyed("@kernel", Stack(False, 4), Count(), {(0, (1, 2), 0): [1, 0]})
    return run


def test_addresses_are_read_in_pieces_while_nothing_else_is_to_be_done(
    now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading_ahead, "SLICE", -1.0)
    lines = _Lines()
    ahead = _ahead(_stacks({FIRST: [1, 0], SECOND: [1, 1]}), lines)
    ahead.work(0)
    assert not lines.wanted, "the maps are empty at first"
    assert ahead.pause(9.0) == reading_ahead.FIRST
    now[0] += reading_ahead.FIRST
    ahead.work(0)
    assert lines.wanted == [[(7, 0x1000), (7, 0x2000), (8, 0x1000)]]
    assert ahead.pause(9.0) == reading_ahead.REST
    for count in (1, 2, 3):
        ahead.work(0)
        assert lines.read == count, "a step at a time"
    ahead.work(0)
    assert ahead.pause(9.0) == reading_ahead.FIRST
    now[0] += reading_ahead.FIRST
    ahead.work(0)
    assert lines.wanted[1:] == [[]], "they were read before"


def test_the_end_reads_the_rest_and_says_what_it_waits_for() -> None:
    lines = _Lines()
    ahead = _ahead(_stacks({(FIRST, b"a"): [1, 0], (SECOND, b"b"): [1, 1]}, Tuple((STACK, String(8)))), lines)
    ahead.finish(EndOfRun(print_maps=True))
    assert lines.awaited == ["3 addresses in stacks"]
    assert lines.read == 3


def test_nothing_is_said_where_there_are_no_stacks() -> None:
    lines = _Lines()
    _ahead(_stacks({}), lines).finish(EndOfRun(print_maps=True))
    assert lines.awaited == []


def test_large_maps_are_not_looked_at_again_before_the_end(now: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    lines = _Lines()
    run = _stacks({FIRST: [1, 0]})
    blocks = run.reader.blocks

    def slow(spec: Any, *, clear: bool = False) -> Iterator[tuple[bytes, bytes, int]]:
        now[0] += 1.0
        return blocks(spec, clear=clear)

    monkeypatch.setattr(run.reader, "blocks", slow)
    ahead = _ahead(run, lines)
    now[0] += 5.0
    ahead.work(0)
    ahead.work(0)
    now[0] += 1000.0
    assert ahead.pause(9.0) == 9.0
    ahead.finish(EndOfRun(print_maps=True))
    assert len(lines.wanted) == 2


def test_nothing_is_read_while_events_come(now: list[float]) -> None:
    lines = _Lines()
    ahead = _ahead(_stacks({FIRST: [1, 0]}), lines)
    now[0] += reading_ahead.FIRST
    ahead.work(1)
    assert not lines.wanted
    ahead.work(0)
    assert lines.wanted


@pytest.mark.parametrize("saved", [False, True])
def test_the_rest_is_read_for_a_snapshot_whose_maps_are_not_printed(saved: bool) -> None:
    run, lines = _stacks({FIRST: [1, 0]}), _Lines()
    specs = [spec for spec in run.maps if has_user_stacks(spec)]
    ReadingAhead(specs, run.reader, lines, saved=saved).finish(EndOfRun(print_maps=False))
    assert bool(lines.awaited) is saved


# ---------------------------------------------------------------------------------------------- addresses in maps

def spec(key: Type, value: Type = Count()) -> MapSpec:  # noqa: B008
    return MapSpec("@", "m", "hash", key, value, 10)


def test_places() -> None:
    assert places(spec(Tuple((UINT64, Tuple((Stack(True, 3),)))))) == [Place(False, 8, 3)]
    assert places(spec(USym(), Stack(True, 4))) == [Place(False, 0, 0), Place(True, 0, 4)]
    assert places(spec(Stack(False, 3), Stack(True, 3, StackMode.BUILD_ID))) == []
    assert places(spec(Array(USym(), 2))) == []


def test_collecting() -> None:
    kind = Tuple((Stack(True, 3), USym()))
    rows = [((7, (1, 2), 0), (8, 5)), ((7, (2, 3, 4), 0), (7, 9)), ((6, (), -14), (8, 6))]
    keys = b"".join(encode(kind, row) for row in rows)
    found: dict[int, set[int]] = {}
    wanted = places(spec(kind))
    periods = KeyPeriods(lambda process: process == 8)
    periods.begin()
    collect([(keys, struct.pack("=3Q", 1, 1, 1), 3)], wanted, found, periods, b"@")
    assert found == {7: {1, 2, 3, 4, 9}, 8: {5, 6}, 6: set()}
    assert set(periods.addresses) == {(8, 5), (8, 6)}


def test_searches_say_when_stacks_of_compiled_code_were_taken(now: list[float]) -> None:
    lines = _Lines()
    ahead = _ahead(_stacks({FIRST: [1, 0], SECOND: [1, 1]}), lines)
    ahead.begin()
    now[0] += reading_ahead.FIRST
    ahead.work(0)
    assert lines.followed == [7, 8]
    assert not lines.over
    ahead.finish(EndOfRun(print_maps=True))
    assert lines.over
    assert [set(periods) for periods in lines.periods] == [set(), {(8, 0x1000)}, {(8, 0x1000)}]
