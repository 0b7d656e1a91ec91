"""The answers of an agent whose run is over: names of places in binaries that it has met, and of nothing else."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pytrace.agent.inbox import Inbox, Signals
from pytrace.agent.naming import Naming
from pytrace.agent.outbox import Outbox
from pytrace.core.diagnostics import TraceError
from pytrace.remote import messages
from pytrace.remote.messages import Ask, Beat, Clock, Function, Limits, NamedPlace, NamedPlaces, NamePlaces, Place
from pytrace.runtime.binaries.user_binary import Binary
from pytrace.runtime.output.channel import Channel
from pytrace.runtime.symbols.images import Images
from pytrace.runtime.symbols.met_binaries import MetBinaries
from tests.support import small_program


class Serving:
    """A controller's ends of the pipes to an agent whose run is over."""

    def __init__(self, met: MetBinaries, details: dict[str, int], limits: Limits) -> None:
        reading, self.input = os.pipe()
        self.output, writing = os.pipe()
        self.descriptors = [reading, self.output, writing]
        naming = Naming(met, details, Inbox(reading), Outbox(Channel(writing)), Signals())
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self.serve, args=(naming, limits))
        self.thread.start()

    def serve(self, naming: Naming, limits: Limits) -> None:
        try:
            naming.serve(limits)
        except TraceError as error:
            self.error = error

    def say(self, *said: messages.ToAgent) -> None:
        os.write(self.input, b"".join(map(messages.encode, said)))

    def heard(self, count: int) -> list[messages.FromAgent]:
        data = b""
        while data.count(b"\n") < count:
            data += os.read(self.output, 1 << 16)
        return [messages.from_agent(line) for line in data.splitlines()]


@contextmanager
def serving(met: MetBinaries, limits: Limits, details: dict[str, int] | None = None) -> Iterator[Serving]:
    made = Serving(met, details or {}, limits)
    try:
        yield made
    finally:
        os.close(made.input)
        made.thread.join()
        for descriptor in made.descriptors:
            os.close(descriptor)


def test_functions_of_met_binaries_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long names are truncated; a file that the run has not met is not opened, whatever its build id."""
    monkeypatch.setattr(messages, "LONGEST_NAME", 5)
    whole, other = small_program.built(tmp_path), small_program.another_build(tmp_path)
    binary = Binary.open(str(whole))
    build_id, helper = binary.elf.build_id, small_program.addresses(whole)["helper"]
    met = MetBinaries(Images({}, lines=False))
    met.add(build_id, binary)
    known = Place(build_id, helper + 2)
    unknown = Place(Binary.open(str(other)).elf.build_id, helper), Place(build_id, 1)
    with serving(met, Limits(duration=1), {build_id: 4}) as agent:
        agent.say(NamePlaces((known, *unknown)), Beat(7))
        answers = agent.heard(2)
        assert any(isinstance(answer, Clock) and answer.sent == 7 for answer in answers)
        (named,) = (answer for answer in answers if isinstance(answer, NamedPlaces))
        assert named.places == (
            NamedPlace(known, 4, (Function("helpe", 2),)),
            NamedPlace(unknown[0], 0, ()),
            NamedPlace(unknown[1], 4, ()),
        )
        agent.say(NamePlaces((known,)))
        assert agent.heard(1) == [NamedPlaces((NamedPlace(known, 4, (Function("helpe", 2),)),))]


def test_it_ends_without_a_controller() -> None:
    met = MetBinaries(Images({}))
    with serving(met, Limits(duration=1, heartbeat=1)) as agent:
        agent.thread.join()
        assert agent.error is None
    with serving(met, Limits(duration=1)) as agent:
        agent.say(Ask(("a",)))
        agent.thread.join()
        assert isinstance(agent.error, TraceError)
