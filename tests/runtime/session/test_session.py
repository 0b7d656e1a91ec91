"""Whole runs without a kernel: what they print, and how they end. tests/kernel runs whole sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from pytrace.core.config import Config
from pytrace.core.manifest import CompiledScript, Manifest
from pytrace.core.options.run_options import RunOptions
from pytrace.runtime.session import opening, test_runs
from pytrace.runtime.session import session as module
from pytrace.runtime.session.services.service import Service
from pytrace.runtime.session.session import Session
from tests.support.fake_run import FakeRun, program

BEGIN, END, PROBE = program("begin"), program("end"), program("kprobe")

Make = Callable[..., FakeRun]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes runs."""
    with ExitStack() as stack:
        yield lambda *programs, **options: FakeRun(stack, monkeypatch, *programs, **options)


def test_a_run_prints_what_its_programs_send_then_the_maps(fake: Make) -> None:
    run = fake(BEGIN, PROBE, END)
    run.functions.update(begin_0=lambda: run.line(1), end_0=lambda: run.line(3))

    def hit() -> None:
        run.line(2)
        run.exit(5)

    run.loop.while_waiting = hit
    assert Session(run.resources).run() == 5
    assert run.printed == "line 1\nline 2\nline 3\n\n\n@total: 7\n"
    assert run.said == "Attached 3 probes\nWARNING: no lines of x\n"
    assert run.probes.detached


def test_a_dry_run_runs_and_prints_nothing(fake: Make) -> None:
    run = fake(BEGIN, PROBE, END, dry_run=True)
    Session(run.resources).run()
    assert (run.loaded.runs, run.printed, run.loop.waits) == ([], "", [])
    assert run.said.startswith("Attached 3 probes\n")
    assert run.probes.detached


def test_an_exit_in_a_begin_probe_waits_for_nothing(fake: Make) -> None:
    run = fake(BEGIN, PROBE, END)
    run.functions.update(begin_0=lambda: run.exit(7), end_0=lambda: run.line(1))
    assert Session(run.resources).run() == 7
    assert run.loop.waits == []
    assert run.printed == "line 1\n\n\n@total: 7\n"


def test_events_after_an_exit_are_left_out_and_counted(fake: Make) -> None:
    run = fake(PROBE)

    def hits() -> None:
        for number in range(3):
            run.line(number)
            run.exit()

    run.loop.while_waiting = hits
    Session(run.resources).run()
    assert run.printed == "line 0\n\n\n@total: 7\n"
    assert "2 events" in run.said


def test_losses_are_summed_up(fake: Make) -> None:
    run = fake(PROBE)
    run.loop.while_waiting = run.exit
    run.probes.lost = {("recursion", 0): 4}
    Session(run.resources).run()
    assert "4 recursive" in run.said


class Interrupting(Service):
    """The user asks for the end a second time, in a phase of the run."""

    def __init__(self, phase: str) -> None:
        self._phase = phase
        self.broken_off = False
        self.before: Callable[[], object] = int

    def work(self, handled: int) -> None:
        if self._phase == "work":
            self.before()
            raise KeyboardInterrupt

    def finish(self, end: Any) -> None:
        if self._phase == "finish":
            raise KeyboardInterrupt

    def break_off(self) -> None:
        self.broken_off = True


def test_a_second_signal_tells_how_many_events_are_left(fake: Make) -> None:
    service = Interrupting("work")
    run = fake(PROBE, services=[service])
    service.before = lambda: [run.line(number) for number in range(3)]
    with pytest.raises(KeyboardInterrupt):
        Session(run.resources).run()
    assert service.broken_off
    assert run.probes.detached
    assert run.printed == ""
    assert run.said == "Attached 1 probe\nWARNING: 3 events not printed because of the interrupt\n"


def test_a_second_signal_while_maps_print(fake: Make) -> None:
    service = Interrupting("finish")
    run = fake(PROBE, services=[service])
    run.loop.while_waiting = run.exit
    with pytest.raises(KeyboardInterrupt):
        Session(run.resources).run()
    assert service.broken_off
    assert run.printed == ""
    assert "WARNING: not all maps were printed because of the interrupt\n" in run.said


def test_the_run_of_an_embedding_program_prints_no_maps(fake: Make) -> None:
    run = fake(PROBE, embedded=True)
    session = Session(run.resources)
    session.start()
    run.loop.while_waiting = run.exit
    assert session.step(0.25)
    assert not session.step(0.25)
    assert run.loop.waits == [0.25]
    run.line(1)
    session.finish()
    assert "@total" not in run.printed


def test_an_embedding_program_takes_what_waits_turn_by_turn(fake: Make) -> None:
    run = fake(PROBE, embedded=True)
    session = Session(run.resources)
    session.start()
    for number in range(3000):
        run.line(number)
    text = ""
    while session.run_dry():
        text += run.printed
    assert run.probes.detached
    assert (text + run.printed).count("\n") == 3000


@pytest.mark.parametrize(("mode", "status"), [("run", 1), ("test", 2), ("bench", 2)])
def test_modes(mode: str, status: int, fake: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    run = fake(PROBE, mode=mode)
    run.loop.while_waiting = lambda: run.exit(1)
    monkeypatch.setattr(opening, "open_run", lambda *_: run.resources)
    monkeypatch.setattr(test_runs, "run", lambda _: 2)
    script = CompiledScript(b"", Manifest((), (), (), (), Config()))
    assert module.run(script, RunOptions(mode=mode)) == status
