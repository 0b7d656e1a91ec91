"""Maps as plain data: what prints is what a snapshot has."""

from __future__ import annotations

from pytrace.core.types import (
    INT64,
    UINT64,
    Count,
    Hist,
    LHist,
    Max,
    Min,
    Stack,
    String,
    Sum,
    TSeries,
    Tuple,
    USym,
)
from pytrace.runtime.capture import maps
from tests.support.captured import Places, captured, forms
from tests.support.encode import Frame, Run


def test_a_map_without_keys_has_one_entry_without_a_key() -> None:
    run = Run()
    run.scalar("@n", Count(), 3, 4)
    run.scalar("@text", String(8), b"x")
    assert captured(run, "@n").entries == {None: 7}
    assert captured(run, "@text").entries == {None: "x"}
    found = captured(run, "@n")
    assert (found.name, found.key, found.value, found.times, found.help) == ("@n", None, Count(), None, "")


def test_a_map_that_was_never_written_is_empty() -> None:
    run = Run()
    spec = run.scalar("@n", INT64, 0)
    run.reader.slots.clear()
    assert captured(run, spec.name).entries == {}
    run.keyed("@k", INT64, INT64, {})
    run._made = None
    assert captured(run, "@k").entries == {}


def test_copies_of_all_cpus_are_merged() -> None:
    run = Run()
    run.keyed("@c", INT64, Count(), {1: [2, 3], 2: [0, 1]})
    run.keyed("@s", Tuple((INT64, String(4))), Sum(), {(1, b"a"): [-2, -3]})
    assert captured(run, "@c").entries == {1: 5, 2: 1}
    assert captured(run, "@s").entries == {(1, "a"): -5}


def test_a_least_value_that_was_never_set_is_left_out() -> None:
    run = Run()
    run.keyed("@l", INT64, Min(), {1: [(0, 0), (9, 1)], 2: [(0, 0), (0, 0)]})
    run.keyed("@g", INT64, Max(), {1: [(0, 0), (-9, 1)], 2: [(0, 0), (0, 0)]})
    run.scalar("@one", Max(), (0, 0))
    assert captured(run, "@l").entries == {1: 9}
    assert captured(run, "@g").entries == {1: -9}
    assert captured(run, "@one").entries == {}


def test_buckets_by_key() -> None:
    run = Run()
    run.bucketed("@h", INT64, Hist(0), {1: {3: 2, 5: 1}, 2: {0: 4}})
    run.bucketed("@l", INT64, LHist(0, 10, 5), {7: {0: 2, 3: 1}})
    run.bucketed("@t", INT64, TSeries(10**9, 5, "sum"), {7: {0: (11, 5, 1), 1: (12, 6, 1)}})
    assert captured(run, "@h").entries == {1: {3: 2, 5: 1}, 2: {0: 4}}
    assert captured(run, "@l").entries == {7: {0: 2, 3: 1}}
    assert captured(run, "@t").entries == {7: {10: (5, 1), 11: (6, 1)}}


def test_what_was_printed_and_cleared_is_over() -> None:
    run = Run()
    run.scalar("@n", Count(), 3)
    cleared = run.event("clear", map="@n")
    run.send(cleared)
    assert captured(run, "@n").entries == {}
    run.scalar("@n", Count(), 10)
    run.maps.pop()
    assert captured(run, "@n").entries == {None: 7}


def test_a_snapshot_changes_nothing_that_prints() -> None:
    run = Run()
    run.scalar("@n", Count(), 3)
    run.keyed("@k", INT64, UINT64, {1: 2, 3: 4})
    printed = [run.event("print_map", map=name) for name in ("@n", "@k")]
    for identity in printed:
        run.send(identity)
    before = run.printed()
    for name in ("@n", "@k"):
        captured(run, name)
    for identity in printed:
        run.send(identity)
    assert run.printed() == before


KNOWN = {0x1000: [Frame("work", 4, "/bin/a")], 0x2000: [Frame("work", 4, "/bin/a")]}


def test_equal_stacks_of_several_processes_are_one_key() -> None:
    symbols = Places(KNOWN, moved={8: 0x1000})
    run = Run(symbols=symbols)
    run.keyed("@c", Stack(True, 2), Count(), {(7, (0x1000,), 0): 5, (8, (0x2000,), 0): 6, (9, (0x2000,), 0): 1})
    run.bucketed("@h", Stack(True, 2), Hist(0), {(7, (0x1000,), 0): {1: 2, 3: 1}, (8, (0x2000,), 0): {1: 5}})
    run.keyed("@last", Stack(True, 2), INT64, {(7, (0x1000,), 0): 9, (8, (0x2000,), 0): 4})
    assert sorted(captured(run, "@c", symbols).entries.values()) == [1, 11]
    assert list(captured(run, "@h", symbols).entries.values()) == [{1: 7, 3: 1}]
    assert list(captured(run, "@last", symbols).entries.values()) == [9]


def test_equal_functions_are_one_key() -> None:
    run = Run(symbols=Places(KNOWN))
    run.keyed("@c", USym(), Count(), {(7, 0x1000): 5, (8, 0x2000): 6, (9, 0x5): 1})
    assert captured(run, "@c").entries == {"work": 11, "0x5": 1}


def test_others_have_their_turn_while_it_takes_long() -> None:
    run = Run()
    run.keyed("@k", INT64, INT64, dict.fromkeys(range(3 * maps.SLICE), 1))
    (view,) = run.renderer.views()
    turns: list[None] = []
    assert len(maps.map_data(maps.read(view), forms(run), lambda: turns.append(None)).entries) == 3 * maps.SLICE
    assert len(turns) >= 3
