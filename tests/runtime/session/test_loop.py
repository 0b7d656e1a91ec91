"""The loop of a run: what is attached and counted, how long it waits, and what ends it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from msgspec.structs import replace

from pytrace.core.diagnostics import TraceError
from pytrace.core.event_layout import Location
from pytrace.core.manifest import ProgramSpec, SessionData, Target
from pytrace.core.probes.targets import NoTarget
from pytrace.runtime.session.loop import RunLoop
from pytrace.runtime.session.services.service import Service
from tests.support.fake_run import FakeRun, program

BEGIN, END, PROBE = program("begin"), program("end"), program("kprobe")

Make = Callable[..., FakeRun]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes runs."""
    with ExitStack() as stack:
        yield lambda *programs, **options: FakeRun(stack, monkeypatch, *programs, **options)


@pytest.mark.parametrize(
    ("programs", "text"),
    [
        ((PROBE,), "Attached 1 probe\n"),
        ((program("kprobe", targets=3),), "Attached 3 probes\n"),
        ((BEGIN, END, program("self")), "Attached 3 probes\n"),
        ((PROBE, program("tracepoint", service=True)), "Attached 1 probe\n"),
    ],
)
def test_probes_are_counted(programs: tuple[ProgramSpec, ...], text: str, fake: Make) -> None:
    run = fake(*programs)
    RunLoop(run.resources).start()
    assert run.said == text


def test_a_probe_with_several_places_counts_once(fake: Make) -> None:
    places = tuple(Target("usdt:x:y", at, NoTarget()) for at in range(3))
    run = fake(ProgramSpec("p", "kprobe", 0, places, Location("script.bt", 1, 1)))
    RunLoop(run.resources).start()
    assert run.said == "Attached 1 probe\n"


def test_entry_and_return_in_a_session_count_once(fake: Make) -> None:
    entry = replace(program("kprobe", targets=3), multi="kprobe_session")
    leaving = replace(program("kretprobe", targets=3), multi="kprobe_session", part_of=entry.symbol)
    run = fake(entry, leaving)
    RunLoop(run.resources).start()
    assert run.said == "Attached 3 probes\n"


@pytest.mark.parametrize(("kinds", "hints"), [((), ()), (("test", "bench"), ("--test", "--bench"))])
def test_nothing_to_attach(kinds: tuple[str, ...], hints: tuple[str, ...], fake: Make) -> None:
    with pytest.raises(TraceError, match="no probe could be attached") as raised:
        RunLoop(fake(*map(program, kinds)).resources).start()
    assert len(raised.value.hints) == len(hints)
    assert all(option in hint for option, hint in zip(hints, raised.value.hints, strict=True))


@pytest.mark.parametrize(
    ("programs", "command", "goes_on"),
    [((BEGIN, END), None, False), ((BEGIN, program("iter")), None, False), ((BEGIN, PROBE), None, True),
     ((BEGIN,), "sleep 1", True), ((program("self"),), None, True)],
)  # fmt: skip
def test_runs_that_are_over_once_all_is_attached(
    programs: tuple[ProgramSpec, ...], command: str | None, goes_on: bool, fake: Make
) -> None:
    assert RunLoop(fake(*programs, command_line=command).resources).step() is goes_on


def test_a_step_waits_and_handles_what_came(fake: Make) -> None:
    run = fake(PROBE)
    run.loop.while_waiting = lambda: run.line(4)
    assert RunLoop(run.resources).step(0.25)
    assert (run.loop.waits, run.printed) == ([0.25], "line 4\n")


def test_an_exit_ends_the_run(fake: Make) -> None:
    run = fake(PROBE)
    run.loop.while_waiting = lambda: run.exit(3)
    loop = RunLoop(run.resources)
    assert [loop.step(), loop.step()] == [True, False]
    assert run.state.exit_code == 3
    assert run.probes.detached


def test_the_user_ends_the_run(fake: Make) -> None:
    run = fake(PROBE)
    run.requests.ending = True
    assert not RunLoop(run.resources).step()


def test_a_reader_that_goes_away_ends_the_run(fake: Make) -> None:
    run = fake(PROBE)
    run.output.broken = True
    assert not RunLoop(run.resources).step()


def test_signals_run_self_probes(fake: Make) -> None:
    run = fake(program("self"))
    run.functions["self_0"] = lambda: run.line(9)
    run.signals.come = [10, 10]
    loop = RunLoop(run.resources)
    loop.step()
    loop.step()
    assert run.printed == "line 9\nline 9\n"


class Noted(Service):
    """Ends the run when descriptor 9 is readable."""

    def __init__(self) -> None:
        self.handled: list[int] = []
        self.begun = self.done = False

    @property
    def descriptors(self) -> tuple[int, ...]:
        return (9,)

    @property
    def over(self) -> bool:
        return self.done

    def begin(self) -> None:
        self.begun = True

    def pause(self, longest: float) -> float:
        return min(longest, 0.5)

    def woken(self, ready: list[int]) -> None:
        self.done = 9 in ready

    def work(self, handled: int) -> None:
        self.handled.append(handled)


def test_services_have_their_descriptors_and_pauses(fake: Make) -> None:
    service = Noted()
    run = fake(PROBE, services=[service])
    loop = RunLoop(run.resources)
    loop.start()
    assert 9 in run.loop.watched
    run.loop.while_waiting = lambda: run.line(1)
    assert loop.step(1.0)
    assert (run.loop.waits, service.handled) == ([0.5], [1])


def test_a_service_ends_the_run(fake: Make) -> None:
    run = fake(PROBE, services=[Noted()])
    run.loop.ready = [9]
    loop = RunLoop(run.resources)
    assert [loop.step(), loop.step()] == [False, False]
    assert len(run.loop.waits) == 1


def test_services_do_not_begin_in_a_run_that_has_ended(fake: Make) -> None:
    service = Noted()
    run = fake(BEGIN, PROBE, services=[service])
    run.functions["begin_0"] = run.exit
    RunLoop(run.resources).start()
    assert not service.begun


class Held:
    """A command that is held at its entry point."""

    pid, descriptors = 77, (8,)

    def __init__(self) -> None:
        self.released = False

    def stop_after_exec(self) -> None: ...

    def run_to_entry(self) -> bool:
        return False

    def release(self) -> None:
        self.released = True

    def poll(self) -> int | None:
        return None


@pytest.mark.parametrize("exits", [False, True])
def test_the_command_runs_unless_the_script_has_ended(exits: bool, fake: Make) -> None:
    command = Held()
    run = fake(BEGIN, PROBE, command=command)
    if exits:
        run.functions["begin_0"] = run.exit
    RunLoop(run.resources).start()
    assert command.released is not exits


def test_an_exit_for_whose_event_there_was_no_room(fake: Make) -> None:
    run = fake(PROBE, session=SessionData("session", 0, 8, 16, 24, 32, 40, 44, 48, 56, 64))
    memory = bytearray(48)
    run.loaded.sections["session"] = memoryview(memory)
    loop = RunLoop(run.resources)
    assert loop.step()
    assert not run.state.exit_requested
    # 1 more than the status.
    struct.pack_into("=I", memory, 40, 8)
    assert loop.step()
    assert (run.state.exit_code, loop.step()) == (7, False)
