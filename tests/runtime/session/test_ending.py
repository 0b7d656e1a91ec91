"""The end of a run: what is printed and told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.session.ending import Ending
from pytrace.runtime.session.loop import RunLoop
from pytrace.runtime.session.resources import NoCommand
from pytrace.runtime.session.services.service import EndOfRun, Service
from tests.support.fake_run import FakeRun, program

BEGIN, PROBE = program("begin"), program("kprobe")

Make = Callable[..., FakeRun]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes runs."""
    with ExitStack() as stack:
        yield lambda *programs, **options: FakeRun(stack, monkeypatch, *programs, **options)


def finish(run: FakeRun) -> int:
    return Ending(run.resources, RunLoop(run.resources)).finish()


def test_an_assertion_that_failed_prints_no_maps(fake: Make) -> None:
    run = fake(PROBE)
    run.state.assertion_failed = True
    finish(run)
    assert run.printed == ""


class Written(Service):
    """Writes the maps in some other way."""

    def __init__(self, *errors: str) -> None:
        self._errors = errors

    def finish(self, end: EndOfRun) -> None:
        end.print_maps = False
        end.errors += self._errors


def test_maps_that_a_service_has_written_are_not_printed(fake: Make) -> None:
    run = fake(PROBE, services=[Written()])
    finish(run)
    assert run.printed == ""


def test_errors_of_services_are_told_last(fake: Make) -> None:
    run = fake(PROBE, services=[Written("x failed"), Written("y failed")])
    with pytest.raises(TraceError, match="x failed; y failed"):
        finish(run)
    assert run.said == "WARNING: no lines of x\n"


@pytest.mark.parametrize(
    ("form", "terminal", "program_", "told"),
    [("text", True, PROBE, True), ("text", False, PROBE, False), ("json", True, PROBE, False),
     ("csv", True, PROBE, False), ("text", True, BEGIN, False)],
)  # fmt: skip
def test_silence_is_told_at_a_terminal_only(
    form: str, terminal: bool, program_: object, told: bool, fake: Make
) -> None:
    run = fake(program_, format=form, total=None)
    run.output.terminal = terminal
    finish(run)
    assert ("No event in 1.5 s\n" in run.said) is told


def test_warnings_can_be_left_out(fake: Make) -> None:
    run = fake(PROBE, warnings=False)
    finish(run)
    assert run.said == ""


class Done(NoCommand):
    """A command that has ended."""

    def __init__(self, status: int) -> None:
        self._status = status

    def poll(self) -> int | None:
        return self._status


@pytest.mark.parametrize(
    ("status", "text", "handed_on"),
    [(0, "exited with status 0", 0), (3, "exited with status 3", 3), (-9, "was killed by SIGKILL", 137),
     (-40, "was killed by signal 40", 168)],
)  # fmt: skip
def test_how_a_command_ended(status: int, text: str, handed_on: int, fake: Make) -> None:
    run = fake(PROBE, command=Done(status), verbose=True)
    finish(run)
    assert f"the command {text}\n" in run.said
    usual = fake(PROBE, command=Done(status), exit_status=True)
    assert Ending(usual.resources, RunLoop(usual.resources)).finish() == handed_on
    assert (f"the command {text}\n" in usual.said) is (status != 0)
    by_hand = fake(PROBE, command=Done(status))
    by_hand.requests.ending = True
    assert Ending(by_hand.resources, RunLoop(by_hand.resources)).finish() == 0
    assert "the command" not in by_hand.said


def test_breaking_off_counts_the_events_that_wait(fake: Make) -> None:
    run = fake(PROBE)
    for number in range(5):
        run.line(number)
    Ending(run.resources, RunLoop(run.resources)).break_off()
    assert run.probes.detached
    assert (run.printed, run.said) == ("", "WARNING: 5 events not printed because of the interrupt\n")


@pytest.mark.parametrize("kind", ["fentry", "uprobe"])
def test_programs_that_wait_for_memory_are_named(fake: Make, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The kernel waits for those of user probes when it detaches them; what others go on to send is lost."""
    run = fake(program(kind))
    warned: list[str] = []
    monkeypatch.setattr(run.resources.losses._counters, "totals", lambda: {("waiting", 0): 1})
    monkeypatch.setattr(run.resources.notices, "warn", lambda text, hints=(): warned.append("; ".join((text, *hints))))
    finish(run)
    lost = f"a traced thread still waits for memory in {kind}:0: its event is lost; --no-feature sleepable_fentry"
    waits = f"a traced thread waits for memory in {kind}:0: detaching waits for it; "
    (said,) = [text for text in warned if "memory" in text]
    assert said.startswith(lost if kind == "fentry" else waits)
