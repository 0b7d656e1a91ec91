"""A session from loading to its end, and the probes of its run."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from pytrace.base.interruption import EndRequests
from pytrace.core.diagnostics import TraceError
from pytrace.core.event_layout import Location
from pytrace.core.manifest import CompiledScript, Manifest, MapSpec, ProgramSpec, SessionData, Target
from pytrace.core.options import Address, Config, ProcessFilters, RunOptions
from pytrace.core.probe_kinds import NoTarget
from pytrace.core.types import UINT64, Count, Stack, StackMode, Tuple
from pytrace.runtime.load import attachments, probe_links
from pytrace.runtime.load.attachments import Attached, Attachments, AttachOptions, RefusedTarget
from pytrace.runtime.load.loaded_script import LOG_HINT, LoadError
from pytrace.runtime.load.probe_links import CpuEvents, Opened
from pytrace.runtime.machine import perf
from pytrace.runtime.session import opening, test_runs
from pytrace.runtime.session.probes import Probes
from pytrace.runtime.session.services import EndOfRun, NoHeartbeat, Service
from pytrace.runtime.session.session import NoCommand, Notices, Session
from tests.support.encode import Run
from tests.support.fake_run import FakeRun, FakeSymbols, program

# ---------------------------------------------------------------------------------------------- session
# Whole runs without a kernel: what they print, and how they end. tests/kernel runs whole sessions.


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
        if self._phase == "import":
            type("Imported", (), {"member": Named()})

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


class Named:
    """A member of a class, as modules that are imported at the end have some."""

    def __set_name__(self, _owner: type, _name: str) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize("phase", ["finish", "import"])
def test_a_second_signal_while_maps_print(fake: Make, phase: str) -> None:
    service = Interrupting(phase)
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
    assert opening.run(script, RunOptions(mode=mode)) == status


# ---------------------------------------------------------------------------------------------- loading
# Loading of a run's programs: what is printed of a refused one.


@pytest.mark.parametrize(("verbose", "cut"), [(True, False), (True, True), (False, False)])
def test_the_log_of_a_refused_program(
    verbose: bool, cut: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``-v`` shows it, and needs no hint that says so; without it there is the hint."""

    def load(*_: object, **__: object) -> None:
        raise LoadError("no", log="0: (95) exit\n", cut=cut, hints=["split it", LOG_HINT])

    monkeypatch.setattr(opening, "load", load)
    with pytest.raises(LoadError) as raised, ExitStack() as stack:
        opening.load_programs(cast(Any, None), RunOptions(verbose=verbose), None, None, stack)
    shown = capsys.readouterr().err
    assert ("0: (95) exit" in shown) == verbose
    assert ("a part of it is shown" in shown) == cut
    assert raised.value.hints == (("split it",) if verbose else ("split it", LOG_HINT))


# ---------------------------------------------------------------------------------------------- opening
# Where a run prints to, and which snapshots it can save.


NOTHING = Manifest((), (), (), (), Config())


@pytest.mark.parametrize(
    ("form", "descriptor"), [("text", 1), ("json", 1), ("csv", 1), ("folded", 2), ("html", 2)], ids=str
)
def test_text_goes_to_standard_error_beside_a_format_of_snapshots(form: str, descriptor: int) -> None:
    with ExitStack() as stack:
        opened = opening.output(RunOptions(format=form), EndRequests(), stack)
        assert opened.descriptor == descriptor
        assert (opened.json, opened.csv) == (form == "json", form == "csv")


def test_output_to_a_file(tmp_path: Path) -> None:
    with ExitStack() as stack:
        opened = opening.output(RunOptions(output=str(tmp_path / "x")), EndRequests(), stack)
        assert opened.descriptor > 2
        assert not opened.terminal
    assert (tmp_path / "x").read_text() == ""


def test_a_file_of_a_snapshot_that_cannot_be_written_is_refused_before_anything_is_traced(tmp_path: Path) -> None:
    assert opening.check_saving(NOTHING, RunOptions()) == []
    with pytest.raises(TraceError, match="missing"):
        opening.check_saving(NOTHING, RunOptions(save=str(tmp_path / "missing" / "x")))


# ---------------------------------------------------------------------------------------------- loop
# The loop of a run: what is attached and counted, how long it waits, and what ends it.


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
    Session(run.resources).start()
    assert run.said == text


def test_a_probe_with_several_places_counts_once(fake: Make) -> None:
    places = tuple(Target("usdt:x:y", at, NoTarget()) for at in range(3))
    run = fake(ProgramSpec("p", "kprobe", 0, places, Location("script.bt", 1, 1)))
    Session(run.resources).start()
    assert run.said == "Attached 1 probe\n"


def test_entry_and_return_in_a_session_count_once(fake: Make) -> None:
    entry = replace(program("kprobe", targets=3), multi="kprobe_session")
    leaving = replace(program("kretprobe", targets=3), multi="kprobe_session", part_of=entry.symbol)
    run = fake(entry, leaving)
    Session(run.resources).start()
    assert run.said == "Attached 3 probes\n"


@pytest.mark.parametrize(("kinds", "hints"), [((), ()), (("test", "bench"), ("--test", "--bench"))])
def test_nothing_to_attach(kinds: tuple[str, ...], hints: tuple[str, ...], fake: Make) -> None:
    with pytest.raises(TraceError, match="no probe could be attached") as raised:
        Session(fake(*map(program, kinds)).resources).start()
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
    assert Session(fake(*programs, command_line=command).resources).step() is goes_on


def test_a_step_waits_and_handles_what_came(fake: Make) -> None:
    run = fake(PROBE)
    run.loop.while_waiting = lambda: run.line(4)
    assert Session(run.resources).step(0.25)
    assert (run.loop.waits, run.printed) == ([0.25], "line 4\n")


def test_an_exit_ends_the_run(fake: Make) -> None:
    run = fake(PROBE)
    run.loop.while_waiting = lambda: run.exit(3)
    loop = Session(run.resources)
    assert [loop.step(), loop.step()] == [True, False]
    assert run.state.exit_code == 3
    assert run.probes.detached


def test_the_user_ends_the_run(fake: Make) -> None:
    run = fake(PROBE)
    run.requests.ending = True
    assert not Session(run.resources).step()


def test_a_reader_that_goes_away_ends_the_run(fake: Make) -> None:
    run = fake(PROBE)
    run.output.broken = True
    assert not Session(run.resources).step()


def test_signals_run_self_probes(fake: Make) -> None:
    run = fake(program("self"))
    run.functions["self_0"] = lambda: run.line(9)
    run.signals.come = [10, 10]
    loop = Session(run.resources)
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
    loop = Session(run.resources)
    loop.start()
    assert 9 in run.loop.watched
    run.loop.while_waiting = lambda: run.line(1)
    assert loop.step(1.0)
    assert (run.loop.waits, service.handled) == ([0.5], [1])


def test_a_service_ends_the_run(fake: Make) -> None:
    run = fake(PROBE, services=[Noted()])
    run.loop.ready = [9]
    loop = Session(run.resources)
    assert [loop.step(), loop.step()] == [False, False]
    assert len(run.loop.waits) == 1


def test_services_do_not_begin_in_a_run_that_has_ended(fake: Make) -> None:
    service = Noted()
    run = fake(BEGIN, PROBE, services=[service])
    run.functions["begin_0"] = run.exit
    Session(run.resources).start()
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
    Session(run.resources).start()
    assert command.released is not exits


def test_an_exit_for_whose_event_there_was_no_room(fake: Make) -> None:
    run = fake(PROBE, session=SessionData("session", 0, 8, 16, 24, 32, 40, 44, 48, 56, 72))
    memory = bytearray(48)
    run.loaded.sections["session"] = memoryview(memory)
    loop = Session(run.resources)
    assert loop.step()
    assert not run.state.exit_requested
    # 1 more than the status.
    struct.pack_into("=I", memory, 40, 8)
    assert loop.step()
    assert not loop.step()
    assert not run.state.exit_requested, "what is in the ring was sent before, and is handled first"
    assert (loop.finish(), run.state.exit_code) == (7, 7)


# ---------------------------------------------------------------------------------------------- ending
# The end of a run: what is printed and told.


ENDING_BEGIN, ENDING_PROBE = program("begin"), program("kprobe")


def finish(run: FakeRun) -> int:
    return Session(run.resources).finish()


def test_an_assertion_that_failed_prints_no_maps(fake: Make) -> None:
    run = fake(ENDING_PROBE)
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
    run = fake(ENDING_PROBE, services=[Written()])
    finish(run)
    assert run.printed == ""


def test_errors_of_services_are_told_last(fake: Make) -> None:
    run = fake(ENDING_PROBE, services=[Written("x failed"), Written("y failed")])
    with pytest.raises(TraceError, match="x failed; y failed"):
        finish(run)
    assert run.said == "WARNING: no lines of x\n"


@pytest.mark.parametrize(
    ("form", "terminal", "program_", "told"),
    [("text", True, ENDING_PROBE, True), ("text", False, ENDING_PROBE, False), ("json", True, ENDING_PROBE, False),
     ("csv", True, ENDING_PROBE, False), ("text", True, ENDING_BEGIN, False)],
)  # fmt: skip
def test_silence_is_told_at_a_terminal_only(
    form: str, terminal: bool, program_: object, told: bool, fake: Make
) -> None:
    run = fake(program_, format=form, total=None)
    run.output.terminal = terminal
    finish(run)
    assert ("No event in 1.5 s\n" in run.said) is told


def test_warnings_can_be_left_out(fake: Make) -> None:
    run = fake(ENDING_PROBE, warnings=False)
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
    run = fake(ENDING_PROBE, command=Done(status), verbose=True)
    finish(run)
    assert f"the command {text}\n" in run.said
    usual = fake(ENDING_PROBE, command=Done(status), exit_status=True)
    assert Session(usual.resources).finish() == handed_on
    assert (f"the command {text}\n" in usual.said) is (status != 0)
    by_hand = fake(ENDING_PROBE, command=Done(status))
    by_hand.requests.ending = True
    assert Session(by_hand.resources).finish() == 0
    assert "the command" not in by_hand.said


def test_breaking_off_counts_the_events_that_wait(fake: Make) -> None:
    run = fake(ENDING_PROBE)
    for number in range(5):
        run.line(number)
    Session(run.resources).break_off()
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


# ---------------------------------------------------------------------------------------------- run services
# Which services a run has.


def services(
    options: RunOptions, command: tuple[int, ...] = (), config: Config | None = None, *maps: MapSpec
) -> list[str]:
    """Names of the services that a run asks for."""
    loaded = SimpleNamespace(manifest=Manifest((), maps, (), (), config or Config()), maps={})
    nothing = SimpleNamespace(take=None, last=None, warn=None, tell=None, descriptors=command)
    run = SimpleNamespace(
        options=options, loaded=loaded, symbols=FakeSymbols(), renderer=None, snapshots=nothing, notices=nothing,
        command=nothing, loop=None,
    )  # fmt: skip
    with ExitStack() as stack:
        wanted = opening.optional_services(cast(Any, run), (), stack)
        return [type(service).__name__ for service in wanted]


def test_most_runs_have_none() -> None:
    assert services(RunOptions()) == []


@pytest.mark.parametrize(
    ("options", "command", "name"),
    [
        (RunOptions(save="x"), (), "Saving"),
        (RunOptions(save_every=(1.0, "x")), (), "Saving"),
        (RunOptions(format="folded"), (), "Saving"),
        (RunOptions(metrics=Address("127.0.0.1", 0)), (), "Metrics"),
        (RunOptions(), (7,), "RunEnd"),
        (RunOptions(duration=1.0), (), "RunEnd"),
        (RunOptions(filters=ProcessFilters((os.getpid(),))), (), "RunEnd"),
        (RunOptions(filters=ProcessFilters(exec_wait="ls")), (), "RunEnd"),
    ],
)
def test_options_ask_for_services(options: RunOptions, command: tuple[int, ...], name: str) -> None:
    assert services(options, command) == [name]


def test_a_dry_run_saves_nothing(tmp_path: Path) -> None:
    assert services(RunOptions(save=str(tmp_path / "x"), dry_run=True)) == []


def test_maps_whose_stacks_show_no_functions() -> None:
    run = Run()
    shown = [Stack(True, 4), Stack(True, 4, StackMode.PERF), Tuple((UINT64, Stack(True, 4)))]
    others = [Stack(False, 4), Stack(True, 4, StackMode.RAW), Stack(True, 4, StackMode.BUILD_ID), UINT64]
    specs = [run.keyed(f"@{at}", kind, Count(), {}) for at, kind in enumerate([*shown, *others])]
    assert [opening.has_user_stacks(spec) for spec in specs] == [True] * len(shown) + [False] * len(others)


@pytest.mark.parametrize(("mode", "reads"), [(StackMode.BPFTRACE, True), (StackMode.RAW, False)])
@pytest.mark.parametrize("save", [None, "x.pts"])
def test_maps_of_stacks_are_searched_ahead(mode: StackMode, save: str | None, *, reads: bool) -> None:
    spec = Run().keyed("@", Stack(True, 4, mode), Count(), {})
    config = Config(show_debug_info=False, print_maps_on_exit=False)
    assert ("ReadingAhead" in services(RunOptions(save=save), (), config, spec)) == reads
    assert services(RunOptions(save=save, dry_run=True), (), config, spec) == []


# ---------------------------------------------------------------------------------------------- resources
# The programs of a run, and a run without a command.


def test_programs_by_kind_are_those_of_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = program("kprobe", "a"), program("kprobe", "b")
    with ExitStack() as stack:
        run = FakeRun(stack, monkeypatch, first, program("begin"), program("tracepoint", service=True), second)
        assert run.resources.programs("kprobe") == [first, second]
        assert run.resources.programs("tracepoint") == []
        assert run.resources.kinds() == {"kprobe", "begin"}


def test_no_command_never_ends() -> None:
    command = NoCommand()
    command.stop_after_exec()
    command.release()
    assert (command.pid, command.poll(), command.run_to_entry(), command.descriptors) == (None, None, False, ())


# ---------------------------------------------------------------------------------------------- notices

@pytest.mark.parametrize(
    ("options", "said"),
    [
        (RunOptions(), ["done\n", "WARNING: odd\nHINT: do that\n"]),
        (RunOptions(quiet=True), ["WARNING: odd\nHINT: do that\n"]),
        (RunOptions(warnings=False), ["done\n"]),
    ],
)
def test_notices_and_warnings_can_be_left_out(options: RunOptions, said: list[str]) -> None:
    messages: list[str] = []
    notices = Notices(cast(Any, SimpleNamespace(message=messages.append)), options)
    notices.tell("done\n")
    notices.warn("odd", ("do that",))
    assert messages == said


# ---------------------------------------------------------------------------------------------- probes
# Probes of a run: attached with the options of the run, and detached once. The kernel is a fake.


A_PROBE = program("kprobe")


class Kernel:
    """Attaches what it is asked to; *missed* is what it has left out."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.asked: list[AttachOptions] = []
        self.opened = Opened()
        self.failures: tuple[RefusedTarget, ...] = ()
        self.services: tuple[Attached, ...] = ()
        self.closed = 0
        self.waited = 0
        self.missed = 0
        self.said: list[str] = []
        self.unwound: list[int] = []
        self.stack = ExitStack()
        patch.setattr(attachments, "attach_all", self.attach_all)
        patch.setattr(probe_links, "MissReader", lambda *_: self)

    def attach_all(self, _loaded: Any, programs: Any, options: AttachOptions, stack: ExitStack) -> Attachments:
        self.asked.append(options)
        stack.callback(self.close)
        attached = tuple(Attached(spec, target) for spec in programs for target in spec.targets)
        return Attachments(attached, self.failures, self.opened, services=self.services)

    def close(self) -> None:
        self.closed += 1

    def totals(self) -> dict[tuple[str, int], int]:
        return {("recursion", 0): self.missed}

    def warn(self, text: str, hints: tuple[str, ...] = ()) -> None:
        self.said += [text, *hints]

    def wait(self) -> None:
        self.waited += 1

    def probes(
        self, *programs: ProgramSpec, command: int | None = None, follow_map: str = "", **options: Any
    ) -> Probes:
        manifest = Manifest(programs, (), (), (), Config(missing_probes="warn"), follow_map=follow_map)
        loaded = SimpleNamespace(
            manifest=manifest,
            map_fd=lambda _: 5,
            stop_programs=lambda: None,
            quiescence=SimpleNamespace(wait=self.wait),
        )
        processes = SimpleNamespace(add=self.unwound.append)
        made = Probes(
            cast(Any, loaded), RunOptions(**options), command, cast(Any, processes), cast(Any, self), NoHeartbeat()
        )
        self.stack.enter_context(made.links)
        return made


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    made = Kernel(monkeypatch)
    with made.stack:
        yield made


def test_programs_that_are_run_by_hand_need_no_kernel(kernel: Kernel) -> None:
    assert kernel.probes(program("begin"), program("end")).attach() == []
    assert kernel.asked == []


@pytest.mark.parametrize(
    ("options", "command", "pids"),
    [({}, None, ()), ({"filters": ProcessFilters((7, 8))}, None, (7, 8)), ({}, 9, (9,)), ({"follow": True}, 9, (9,)),
     ({"filters": ProcessFilters(comms=("x",))}, 9, ())],
)
def test_probes_of_processes(
    options: dict[str, Any], command: int | None, pids: tuple[int, ...], kernel: Kernel
) -> None:
    (attached,) = kernel.probes(A_PROBE, command=command, **options).attach()
    assert attached.spec is A_PROBE
    (asked,) = kernel.asked
    assert (asked.pids, asked.child) == (pids, command)


def test_what_could_not_be_attached_is_a_warning(kernel: Kernel) -> None:
    kernel.failures = (RefusedTarget(A_PROBE.targets[0], "no such function", ("look",)),)
    kernel.probes(A_PROBE).attach()
    assert "no such function" in kernel.said[0]
    assert kernel.said[1:] == ["look"]


def test_misses_are_those_at_the_moment_of_detaching(kernel: Kernel) -> None:
    probes = kernel.probes(A_PROBE)
    assert probes.missed() == {}
    probes.attach()
    kernel.missed = 3
    assert probes.missed() == {("recursion", 0): 3}
    kernel.missed = 4
    probes.detach()
    kernel.missed = 9
    assert probes.missed() == {("recursion", 0): 4}


def test_probes_are_detached_once(kernel: Kernel) -> None:
    probes = kernel.probes(A_PROBE)
    probes.attach()
    before = probes.period()
    probes.detach()
    after = probes.period()
    probes.detach()
    assert (kernel.closed, kernel.waited) == (1, 1)
    assert before[0] == after[0]
    assert probes.period() == after


def test_the_stack_detaches_too(kernel: Kernel) -> None:
    kernel.probes(A_PROBE).attach()
    kernel.stack.close()
    assert kernel.closed == 1


def test_watchpoints_that_are_to_go(kernel: Kernel) -> None:
    probes = kernel.probes(A_PROBE)
    probes.attach()
    for address in (1, 2, 3):
        kernel.opened.watchpoint(address)
    probes.unwatch(1)
    probes.unwatch(2)
    assert list(kernel.opened.watched) == [3]


def test_descendants_need_an_iterator(kernel: Kernel) -> None:
    kernel.probes(A_PROBE, follow_map="f", filters=ProcessFilters((7,)), follow=True).attach()
    assert kernel.said == ["processes that 7 forked earlier are not followed: the kernel has no task iterator"]


def test_descendants_are_followed_and_unwound(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attachments, "include_descendants", lambda *_: ([21, 22], 1))
    kernel.services = (Attached(A_PROBE, A_PROBE.targets[0], iterator=4),)
    kernel.probes(A_PROBE, follow_map="f", filters=ProcessFilters((7,)), follow=True).attach()
    assert kernel.unwound == [21, 22]
    assert kernel.said == ["1 processes that 7 forked earlier are not followed: there are too many"]


def test_events_of_cpus_are_attached_again(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """On each CPU that comes online; of a timer on one CPU only when that one goes."""
    asked: list[tuple[str, int]] = []

    def attach(name: str) -> Callable[[int, Opened], None]:
        def attached(cpu: int, _part: Opened) -> None:
            asked.append((name, cpu))
            if cpu == 7:
                raise OSError(errno.EBUSY, "Device or resource busy")

        return attached

    monkeypatch.setattr(perf, "online_cpus", lambda: [0])
    every, single = CpuEvents("profile:hz:1", attach("p")), CpuEvents("interval:s:1", attach("i"), one=True)
    for cpu in (0, 1):
        every.add(cpu)
    single.add(1)
    asked.clear()
    kernel.opened.cpu_events += [every, single]
    probes = kernel.probes(A_PROBE)
    probes.attach()
    assert probes.renew(1, online=False) == (["interval:s:1"], [])
    assert (asked, list(every.parts), list(single.parts)) == ([("i", 0)], [0], [0])
    assert probes.renew(1, online=True) == (["profile:hz:1"], [])
    assert (asked[1:], sorted(every.parts), list(single.parts)) == ([("p", 1)], [0, 1], [0])
    # Offline and online again before anybody looked.
    assert probes.renew(0, online=True) == (["profile:hz:1", "interval:s:1"], [])
    failure = "profile:hz:1 does not observe it: Device or resource busy"
    assert probes.renew(7, online=True) == ([], [failure])


def test_which_probes_depend_on_cpus(kernel: Kernel) -> None:
    probes = kernel.probes(A_PROBE)
    probes.attach()
    assert not probes.depend_on({0, 1})
    events = kernel.opened.cpu_events
    events.append(CpuEvents("interval:s:1", lambda *_: None, one=True, parts={0: Opened()}))
    assert [probes.depend_on(cpus) for cpus in ({1}, {0, 1}, set())] == [False, True, False]
    events.append(CpuEvents("profile:hz:1", lambda *_: None, parts={0: Opened(), 1: Opened()}))
    assert [probes.depend_on(cpus) for cpus in ({1}, set())] == [True, False]
