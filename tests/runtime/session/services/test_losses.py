"""Losses of a run: what counts, and when it is reported."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from pytrace.runtime.session.services import losses as module
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
