"""Snapshots during a run and after it. tests/kernel/test_saved_runs.py takes those of real runs."""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from pytrace.core.config import Config
from pytrace.core.event_layout import EventSpec, PrintedMap
from pytrace.runtime.session.snapshots import Snapshots
from tests.support.encode import PLACE
from tests.support.fake_run import FakeRun, program


def snapshots(run: FakeRun, polls: list[str]) -> Snapshots:
    have, symbols = run.resources, SimpleNamespace(poll=lambda: polls.append("poll"))
    return Snapshots(
        run.loaded.manifest, run.options, have.renderer, have.ring, cast(Any, symbols), have.probes, have.losses, None
    )


def test_a_snapshot_has_maps_and_losses_and_frees_the_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        run, polls = FakeRun(stack, monkeypatch, program("kprobe")), list[str]()
        run.probes.lost = {("recursion", 0): 4}
        run.line(1)
        taker = snapshots(run, polls)
        first, second = taker.take(), taker.take()
        assert first.maps["@total"].entries == {None: 7}
        assert [sum(names.values()) for names in first.losses.values()] == [4]
        assert first.runs[0].identity == second.runs[0].identity
        assert run.ring.consumed == run.ring.produced
        assert polls, "names are those of this moment"
        run.resources.consumer.drain()
        assert run.printed == "line 1\n"


def test_the_content_of_one_map(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        run = FakeRun(stack, monkeypatch, program("kprobe"), total=8)
        assert snapshots(run, []).map_data("@total").entries == {None: 8}


def test_the_last_one_knows_what_was_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        run = FakeRun(stack, monkeypatch, program("kprobe"), total=8)
        assert not snapshots(run, []).take().maps["@total"].hidden
        assert not snapshots(run, []).last().maps["@total"].hidden, "maps print at the end"
        silent = replace(run.loaded.manifest, config=Config(print_maps_on_exit=False))
        monkeypatch.setattr(run.loaded, "manifest", silent)
        assert snapshots(run, []).last().maps["@total"].hidden
        assert snapshots(run, []).take().maps["@total"].hidden
        assert snapshots(run, []).greatest(5)[0].maps["@total"].hidden
        printed = EventSpec(9, "print_map", (), PrintedMap("@total"), PLACE)
        monkeypatch.setattr(run.loaded, "manifest", replace(silent, events=(*silent.events, printed)))
        assert not snapshots(run, []).last().maps["@total"].hidden
