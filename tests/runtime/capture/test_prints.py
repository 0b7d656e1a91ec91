"""What is printed of maps, as snapshots have it. tests/kernel/test_reports.py prints in a real run."""

from __future__ import annotations

from pytrace.core.event_layout import PrintedMap
from pytrace.core.types import INT64, Count, Hist, Max, Stack, String, Type
from pytrace.runtime.capture.prints import PrintKeeper
from tests.support.captured import forms
from tests.support.encode import Run

HIST = Hist(0)


def test_prints_are_kept_with_what_they_showed() -> None:
    run, keeper = Run(), PrintKeeper()
    run.keyed("@n", INT64, Count(), {1: 20, 2: 30})
    run.renderer.state.prints = keeper
    maps = run.renderer._context.maps
    for static in (PrintedMap("@n"), PrintedMap("@n", top=1), PrintedMap("@n", div=10, clear=True), PrintedMap("@n")):
        text = maps.printer(static)()
        assert text.startswith(b"@n[") or not text
    maps.clear("@n")
    maps.printer(PrintedMap("@n"))()
    assert [(item.number, item.cleared, item.entries) for item in keeper.prints(forms(run))] == [
        (1, False, {1: 20, 2: 30}), (2, False, {2: 30}), (3, True, {1: 2, 2: 3}), (4, True, {}), (5, False, {}),
    ]  # fmt: skip


def test_histograms_and_numbers_are_kept_but_not_those_by_stack() -> None:
    run, keeper = Run(), PrintKeeper()
    maps: dict[str, tuple[Type, Type, bool]] = {
        "@hist": (INT64, HIST, True), "@max": (INT64, Max(), True), "@text": (INT64, String(16), False),
        "@stacks": (Stack(False), Count(), False),
    }  # fmt: skip
    for name, (key, value, _) in maps.items():
        run.keyed(name, key, value, {})
    views = run.renderer.views()
    assert {view.name: keeper.keeps(view) for view in views} == {name: kept for name, (_, _, kept) in maps.items()}


def test_the_oldest_go_when_there_are_too_many() -> None:
    run, keeper = Run(), PrintKeeper(most=10)
    run.keyed("@n", INT64, Count(), dict.fromkeys(range(3), 1))
    view = run.renderer._context.maps.view("@n")
    for _ in range(5):
        keeper.keep(view, view.entries(), div=1, clear=False)
    assert [item.number for item in keeper.prints(forms(run))] == [4, 5]
