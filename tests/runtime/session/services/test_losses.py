"""Losses of a run: what counts, and when it is reported."""

from __future__ import annotations

import struct
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from pytrace.core.manifest import Counters
from pytrace.runtime.session.services import losses as module
from pytrace.runtime.session.services.losses import CounterReader
from tests.support.fake_run import FakeRun, program


def test_losses_are_reported_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    with ExitStack() as stack:
        run = FakeRun(stack, monkeypatch, program("kprobe"))
        losses = run.resources.losses
        losses.woken([])
        run.probes.lost = {("lost", 0): 3}
        losses.woken([])
        assert run.said == ""
        now[0] += module.REPORT_EVERY
        losses.woken([])
        assert run.said == "Lost 3 events\n"
        now[0] += module.REPORT_EVERY
        losses.woken([])
        assert run.said == "", "nothing new"


def test_gaps_come_with_what_was_skipped_in_them(monkeypatch: pytest.MonkeyPatch) -> None:
    now, gaps = [100.0], [(1_000_000_000, 3_000_000_000)]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(module.NoHeartbeat, "gaps", lambda _self: [gaps.pop()] if gaps else [])
    with ExitStack() as stack:
        run = FakeRun(stack, monkeypatch, program("kprobe"))
        losses = run.resources.losses
        run.probes.lost = {("skipped", 0): 3}
        losses.woken([])
        assert "probes did nothing for 3.000 s" in run.said
        assert losses.gaps == [(1_000_000_000, 3_000_000_000)]
        now[0] += module.REPORT_EVERY
        gaps.append((8_000_000_000, 1_000_000_000))
        losses.woken([])
        assert run.said == "", "nothing was skipped in it"
        gaps.append((9_000_000_000, 1_000_000_000))
        now[0] += module.REPORT_EVERY
        run.probes.lost = {("skipped", 0): 8}
        losses.woken([])
        assert "WARNING: 5 probe hits skipped" in run.said
        assert losses.gaps == [(1_000_000_000, 3_000_000_000), (9_000_000_000, 1_000_000_000)]


def test_what_is_skipped_until_a_gap_is_over_belongs_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The heartbeat is another thread: the gap may end between two steps of this one."""
    with ExitStack() as stack:
        run = FakeRun(stack, monkeypatch, program("kprobe"))
        run.probes.lost = {("skipped", 0): 6}
        ended = [[], [(5_000_000_000, 1_000_000_000)], [(1_000_000_000, 3_000_000_000)]]

        def gaps(_heartbeat: object) -> list[tuple[int, int]]:
            run.probes.lost[("skipped", 0)] += 1
            return ended.pop()

        monkeypatch.setattr(module.NoHeartbeat, "gaps", gaps)
        run.resources.losses.woken([])
        assert run.resources.losses.gaps == [(1_000_000_000, 3_000_000_000), (5_000_000_000, 1_000_000_000)]
        assert "WARNING: 8 probe hits skipped" in run.said


def test_events_that_wait_for_their_call_are_lost_at_the_end_only(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        run = FakeRun(stack, monkeypatch, program("kprobe"))
        run.probes.lost = {("unfinished", 0): 1}
        run.resources.losses.woken([])
        assert run.said == ""
        run.resources.losses.report_all()
        assert "1 event lost whose system call had not returned" in run.said


def test_unprinted_events_are_losses_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        run = FakeRun(stack, monkeypatch, program("kprobe"))
        losses = run.resources.losses
        run.probes.lost = {("recursion", 0): 2}
        run.output.left = 5
        assert losses.traced() == {("recursion", 0): 2}
        assert losses.totals() == {("recursion", 0): 2, ("unprinted", 0): 5}
        assert {kind: sum(names.values()) for kind, names in losses.by_kind().items()} == {
            "recursion": 2, "unprinted": 5,
        }  # fmt: skip


def test_all_losses_are_reported_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        run = FakeRun(stack, monkeypatch, program("kprobe"))
        run.probes.lost = {("lost", 0): 3}
        run.resources.losses.report_all()
        assert run.said.startswith("Lost 3 events\n")


# ---------------------------------------------------------------------------------------------- counters

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


def test_what_is_subtracted_on_another_cpu() -> None:
    assert totals(Script((1, 2, 0), (2**64 - 1, 2**64 - 1, 0))) == {("lost", 1): 1}


def test_programs_that_wait_are_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        run = FakeRun(stack, monkeypatch, program("kprobe"))
        losses = run.resources.losses
        assert losses.waiting(user=False) == []
        monkeypatch.setattr(losses._counters, "totals", lambda: {("waiting", 0): 1, ("lost", 0): 2})
        assert losses.waiting(user=False) == ["kprobe:0"]
        assert losses.waiting(user=True) == []
        assert losses.traced() == {("lost", 0): 2}


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
