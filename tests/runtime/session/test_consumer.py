"""Events and snapshots are consumed while a session runs."""

from __future__ import annotations

import os
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from types import FrameType, SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from pytrace.base.interruption import EndRequests
from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.core.event_layout import EventSpec, Location, PrintedMap
from pytrace.core.manifest import CompiledScript, Manifest, MapSpec, ProgramSpec, Target
from pytrace.core.options import Config, RunOptions
from pytrace.core.probe_kinds import NoTarget
from pytrace.core.stack_formats import FIRST_IMAGE
from pytrace.runtime.machine.clocks import Clock
from pytrace.runtime.output.renderer import Renderer
from pytrace.runtime.output.ring import RingReader
from pytrace.runtime.output.streams import Output
from pytrace.runtime.session import hot_probes as module
from pytrace.runtime.session import session
from pytrace.runtime.session.hot_probes import Estimate
from pytrace.runtime.session.session import UNPRINTED, Consumer
from pytrace.runtime.session.snapshots import Snapshots
from pytrace.runtime.session.stack_rows import AlikeRows
from tests.runtime.output.test_ring import FORMATS, Ring, event, sample
from tests.support.encode import PLACE, Run
from tests.support.fake_run import FakeRun, program
from tests.support.rows import each_row

# ---------------------------------------------------------------------------------------------- consumer
# Turns from the ring to the output, and the end that the user asks for.


EVENTS = 20_000


class Made:
    """A consumer whose output is a pipe."""

    def __init__(self, stack: ExitStack, patch: pytest.MonkeyPatch) -> None:
        self.read, self.write = os.pipe()
        stack.callback(os.close, self.read)
        stack.callback(os.close, self.write)
        self.ring = Ring(stack, patch, 1 << 20)
        self.reader = RingReader(self.ring.file, stack)
        run = Run()
        for form, kinds in FORMATS:
            run.event("printf", list(kinds), format=form.decode())
        run.event("exit")
        run.event("system", format="true")
        self.requests = EndRequests()
        self.output = Output(self.write, requests=self.requests)
        stack.callback(self.output.channel.close)
        manifest = Manifest((), (), tuple(run.specs), run.strings, run.config)
        renderer = Renderer(manifest, self.output, run.symbols, run.reader, Clock())
        self.moments: list[int] = []
        """Up to when all events were handled, as the symbolizer is told."""
        self.stopped: list[int] = []
        """How much had been printed when an ``exit()`` was seen."""
        self.consumer = Consumer(
            self.reader,
            renderer,
            self.output,
            self.requests,
            cast(Any, self),
            cast(Any, self),
        )

    def detach(self) -> None:
        self.stopped.append(self.output.accepted)

    def drained(self, moment: int) -> None:
        self.moments.append(moment)

    def send(self, count: int) -> list[bytes]:
        made = [sample(number % 3, number) for number in range(count)]
        self.ring.send(*[data for data, _ in made])
        return [text for _, text in made]

    def printed(self) -> bytes:
        os.set_blocking(self.read, False)
        found = b""
        try:
            while chunk := os.read(self.read, 1 << 20):
                found += chunk
                self.output.advance()
        except BlockingIOError:
            return found
        return found


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    with ExitStack() as stack:
        yield Made(stack, monkeypatch)


def test_a_turn_ends_where_the_reader_takes_nothing(made: Made) -> None:
    wanted = b"".join(made.send(EVENTS))
    handled = 0
    # Far fewer turns than it would take to print all of it: each comes back.
    for _ in range(200):
        handled += made.consumer.turn()
    assert made.output.congested
    assert 0 < handled < EVENTS
    text = b""
    while made.reader.pending or made.output.waiting:
        made.consumer.turn()
        text += made.printed()
    assert text == wanted


def test_probes_are_stopped_before_what_precedes_an_exit_is_handled(made: Made) -> None:
    made.send(30)
    made.ring.send(event(len(FORMATS)))
    made.send(30)
    made.consumer.drain()
    assert made.stopped == [0]
    assert made.printed().count(b"\n") == 30


def test_probes_stay_until_a_command_before_an_exit_has_run(made: Made) -> None:
    made.send(30)
    made.ring.send(event(len(FORMATS) + 1))
    made.ring.send(event(len(FORMATS)))
    made.send(30)
    made.reader.collect()
    assert made.reader.noticed
    assert made.stopped == []
    made.consumer.finish_commands()
    assert made.printed().endswith(b"two 29 7\n\n"), "the command printed an empty line"
    made.consumer.finish_commands()
    assert (made.stopped, made.reader.pending) == ([], False)


def test_waiting_for_the_reader_is_no_busy_loop(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "TURN", 10.0)  # the first one handles all, however busy the machine is
    asked: list[object] = []

    class Loop:
        def wait_for_room(self, descriptor: int | None) -> None:
            asked.append(descriptor)

        def wait(self, timeout: float, _drained: int = 0, *, events: bool = True) -> list[int]:
            asked.append((timeout, events))
            return []

    made.send(30)
    before = time.monotonic_ns()
    made.consumer.drain()
    assert before < made.moments[-1] < time.monotonic_ns(), "all until then was handled"
    seen = len(made.moments)
    made.send(EVENTS)
    for _ in range(100):
        made.consumer.turn()
    assert made.output.congested
    assert made.consumer.turn() == 0
    assert len(made.moments) < seen + 100
    made.consumer.wait(cast(Any, Loop()), 1.0)
    # A terminal polls as writable when nothing can be written: then only the time is waited for.
    assert asked == [made.output.channel.fileno(), (session.LOOK_EVERY, False)]
    made.output.channel.unsure = True
    made.consumer.wait(cast(Any, Loop()), 1.0)
    assert asked[2:] == [None, (session.LOOK_EVERY, False)]


def test_what_is_left_at_the_end_is_counted(made: Made) -> None:
    made.send(EVENTS)
    made.requests.ending = True
    made.consumer.finish()
    assert not made.reader.pending
    left = made.consumer.totals()[UNPRINTED]
    lines = made.printed().count(b"\n")
    # The rest of a line that was half written comes later.
    assert lines + left == EVENTS
    assert lines > 0
    assert made.consumer.totals() == {UNPRINTED: left}


def test_a_signal_at_any_place_of_dropping_loses_no_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "ENDING", -1)
    events = 8000

    def dropped(where: Place | None) -> set[Place]:
        """Drop events, interrupted at that place. Returns all places until then."""
        with ExitStack() as stack:
            made = Made(stack, monkeypatch)
            made.send(events)
            for _ in range(20):
                made.consumer.turn()
            made.requests.ending = True
            places = interrupt(made.consumer.finish, where)
            made.consumer.break_off()
            assert made.printed().count(b"\n") + made.consumer.totals()[UNPRINTED] == events, where
        return places

    # How much a turn handles depends on time: some places are not met again.
    places = {place for place in dropped(None) if place in dropped(place)}
    assert {"discard", "drop"} <= {name for name, _ in places}


Place = tuple[str, int]
"""A function and a line of it."""


def interrupt(function: Callable[[], object], where: Place | None) -> set[Place]:
    """Call *function*, with a signal's exception where Python looks for signals in that place.

    It looks at the start of Python functions and after calls of others. Returns the places where it did.
    """
    places: set[Place] = set()

    def look(frame: FrameType, event: str, _argument: object) -> None:
        if event in {"call", "c_return"}:
            place = (frame.f_code.co_name, frame.f_lineno)
            places.add(place)
            if place == where:
                raise KeyboardInterrupt

    sys.setprofile(look)
    try:
        function()
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
    return places


def test_without_a_signal_the_reader_is_waited_for(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = b"".join(made.send(EVENTS))
    text = b""
    real = made.output.channel.wait

    def wait(seconds: float) -> bool:
        # Not by printed(), which has more written: that waits again, within this call.
        nonlocal text
        os.set_blocking(made.read, False)
        with suppress(BlockingIOError):
            while chunk := os.read(made.read, 1 << 20):
                text += chunk
        return real(0)

    monkeypatch.setattr(made.output.channel, "wait", wait)
    made.consumer.finish()
    text += made.printed()
    assert text == wanted
    assert made.consumer.totals() == {}


def test_maps_are_waited_for_unless_events_were_left(made: Made) -> None:
    made.requests.ending = True
    assert made.output.impatient
    made.output.events_over = True
    assert not made.output.impatient
    made.output.events_over = False
    made.send(EVENTS)
    made.consumer.finish()
    made.output.events_over = True
    assert made.output.impatient


# ---------------------------------------------------------------------------------------------- snapshots
# Snapshots during a run and after it. tests/kernel/test_saved_runs.py takes those of real runs.


def snapshots(run: FakeRun, polls: list[str]) -> Snapshots:
    run.resources.symbols = cast(Any, SimpleNamespace(poll=lambda: polls.append("poll")))
    return Snapshots(run.resources)


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


# ---------------------------------------------------------------------------------------------- alike rows
# pytrace.runtime.session.stack_rows: rows of maps that are the same stacks of one process.


PID, OTHER = 100, 200
STACK = types.Stack(user=True, limit=3)
SYMBOL = types.USym()


class Symbols:
    """Process 100 has loaded a library at 0x1000, then at 0x5000; what is at 0x9000 is another one each time."""

    def owner(self, process: int) -> int:
        return PID if process == PID or process >= FIRST_IMAGE else 0

    def origin(self, process: int, address: int) -> tuple[object, ...]:
        return (process, address) if address >= 0x9000 else ("library", address % 0x1000)


def stack(process: int, *addresses: int) -> bytes:
    return struct.pack("=iI", len(addresses), process) + struct.pack("=3Q", *addresses, *[0] * (3 - len(addresses)))


def joined(key: types.Type, value: types.Type, rows: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The rows after joining; each is a block of its own before."""
    spec = MapSpec("@", "map", "percpuhash", key, value, 10)
    size = len(rows[0][0])
    return [
        (keys[size * row : size * (row + 1)], values[len(values) // count * row : len(values) // count * (row + 1)])
        for keys, values, count in AlikeRows(Symbols())(spec, iter([(*row, 1) for row in rows]))
        for row in range(count)
    ]


def test_stacks_of_the_same_code_are_one() -> None:
    one, two = struct.pack("=2Q", 1, 5), struct.pack("=2Q", 2, (1 << 64) - 1)
    rows = [
        (stack(PID, 0x1010, 0x1020), one),
        (stack(OTHER, 0x1010, 0x1020), one),
        (stack(FIRST_IMAGE, 0x5010, 0x5020), two),
        (stack(FIRST_IMAGE + 1, 0x1010), one),
        (stack(FIRST_IMAGE, 0x9010), one),
        (stack(FIRST_IMAGE + 1, 0x9010), one),
    ]
    assert joined(STACK, types.Count(), rows) == [
        rows[1],
        (rows[0][0], struct.pack("=2Q", 3, 4)),
        *rows[3:],
    ]


def test_other_parts_of_keys_still_differ() -> None:
    key = types.Tuple((types.UINT64, SYMBOL))
    rows = [
        (struct.pack("=QQII", number, address, process, 0), struct.pack("=Q", 1))
        for number, address, process in ((1, 0x1010, PID), (2, 0x1010, PID), (1, 0x5010, FIRST_IMAGE))
    ]
    assert joined(key, types.Sum(), rows) == [(rows[0][0], struct.pack("=Q", 2)), rows[1]]


def test_extremes_and_values_that_cannot_be_joined() -> None:
    rows = [
        (stack(PID, 0x1010), struct.pack("=4Q", 7, 1, 0, 0)),
        (stack(FIRST_IMAGE, 0x5010), struct.pack("=4Q", 9, 0, 4, 1)),
    ]
    assert joined(STACK, types.Max(), rows) == [(rows[0][0], struct.pack("=4Q", 7, 1, 4, 1))]
    plain = [(key, struct.pack("=Q", number)) for number, (key, _) in enumerate(rows)]
    assert joined(STACK, types.UINT64, plain) == plain


# ---------------------------------------------------------------------------------------------- hot probes
# The question before probes that are hit very often: for which, and what an answer does.


HERE = Location("x.bt", 1, 1)


def hot_probes_program(*names: str, service: bool = False) -> ProgramSpec:
    targets = tuple(Target(name, number, NoTarget()) for number, name in enumerate(names))
    return ProgramSpec(f"p_{names[0]}", names[0].partition(":")[0], 0, targets, HERE, service=service)


@each_row(
    ("name", "subject"),
    [
        ("tracepoint:sched:sched_switch", "the scheduler"),
        ("rawtracepoint:sched_wakeup", "the scheduler"),
        ("kprobe:__schedule", "the scheduler"),
        ("fentry:vmlinux:try_to_wake_up", "the scheduler"),
        ("tracepoint:lock:contention_begin", "locks"),
        ("kprobe:_raw_spin_lock", "locks"),
        ("fexit:vmlinux:mutex_lock", "locks"),
        ("tracepoint:kmem:kmalloc", "memory allocation"),
        ("kretprobe:kfree", "memory allocation"),
        ("tracepoint:raw_syscalls:sys_enter", "all system calls"),
        ("rawtracepoint:sys_exit", "all system calls"),
        ("tracepoint:irq_vectors:local_timer_entry", "interrupts and timers"),
        ("tracepoint:timer:timer_start", "interrupts and timers"),
        ("tracepoint:syscalls:sys_enter_openat", ""),
        ("uprobe:/lib/libpthread.so:pthread_mutex_lock", ""),
        ("kprobe:do_sys_openat2", ""),
        ("profile:hz:99", ""),
        ("usdt:/bin/app:sched:switch", ""),
    ],
)
def test_what_is_known_to_be_hit_very_often(name: str, subject: str) -> None:
    assert module.subjects([hot_probes_program(name)]) == ([subject] if subject else [])


class Asked:
    """A terminal whose user gives *answer*, and a trial with a result."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, share: float = 0.5, answer: bool = True) -> None:
        self.trials: list[int] = []
        self.questions = 0

        def trial(_script: object, programs: list[ProgramSpec], _options: object) -> Estimate:
            self.trials.append(sum(len(item.targets) for item in programs))
            return Estimate(123_456.7, share)

        def agreed() -> bool:
            self.questions += 1
            return answer

        monkeypatch.setattr(module, "trial", trial)
        monkeypatch.setattr(module, "_agreed", agreed)

    def confirm(self, *programs: ProgramSpec) -> None:
        script = CompiledScript(b"", Manifest(programs, (), (), (), Config()))
        module.confirm(script, RunOptions())


def test_the_question_says_what_it_is_about(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = Asked(monkeypatch)
    asked.confirm(
        hot_probes_program("tracepoint:sched:sched_switch"),
        hot_probes_program("kprobe:mutex_lock", "kprobe:mutex_unlock"),
    )
    assert asked.trials == [3]
    assert capsys.readouterr().err == (
        "3 probes (the scheduler, locks): 123,457 hits per second in a trial of 0.1 s, which cost about 50% of one "
        "processor.\nTrace them? [y/N] "
    )


def test_no_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TraceError, match="nothing was traced") as found:
        Asked(monkeypatch, answer=False).confirm(hot_probes_program("tracepoint:sched:sched_switch"))
    assert "--yes" in found.value.hints[0]


def test_few_probes_of_other_names_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch)
    asked.confirm(hot_probes_program(*(f"kprobe:f{number}" for number in range(module.MANY))))
    asked.confirm(hot_probes_program("tracepoint:sched:sched_process_fork", service=True))
    assert asked.trials == []
    asked.confirm(hot_probes_program(*(f"kprobe:f{number}" for number in range(module.MANY + 1))))
    assert asked.trials == [module.MANY + 1]


def test_what_costs_little_is_not_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch, share=module.NOTABLE / 2)
    asked.confirm(hot_probes_program("tracepoint:sched:sched_switch"))
    assert asked.trials == [1]
    assert asked.questions == 0


@pytest.mark.parametrize(
    ("text", "agreed"), [("y\n", True), ("YES\n", True), ("n\n", False), ("\n", False), ("", False), ("yeah\n", False)]
)
def test_answers(text: str, agreed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        def readline(self) -> str:
            return text

    monkeypatch.setattr(module.sys, "stdin", cast(Any, Terminal()))
    assert module._agreed() is agreed
