"""Turns from the ring to the output, and the end that the user asks for."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from types import FrameType
from typing import Any, cast

import pytest

from pytrace.base.interruption import EndRequests
from pytrace.core.manifest import Manifest
from pytrace.runtime.host.clocks import Clock
from pytrace.runtime.output.renderer import Renderer
from pytrace.runtime.output.streams import Output
from pytrace.runtime.ring.reader import RingReader
from pytrace.runtime.session import consumer
from pytrace.runtime.session.consumer import UNPRINTED, Consumer
from tests.runtime.ring.test_reader import FORMATS, Ring, event, sample
from tests.support.encode import Run

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
            self,
            self,
        )

    def detach(self) -> None:
        self.stopped.append(self.output.accepted)

    def unwatch(self, addresses: list[int]) -> None:
        addresses.clear()

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


def test_waiting_for_the_reader_is_no_busy_loop(made: Made) -> None:
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
    assert asked == [made.output.channel.fileno(), (consumer.LOOK_EVERY, False)]
    made.output.channel.unsure = True
    made.consumer.wait(cast(Any, Loop()), 1.0)
    assert asked[2:] == [None, (consumer.LOOK_EVERY, False)]


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
    monkeypatch.setattr(consumer, "ENDING", -1)
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
