"""How agents are started, and what they are told as time passes."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.remote import messages
from pytrace.remote.answer import Answer
from pytrace.remote.carriage import LEAVE, Carriage, Conversation, Stopping, interruptions
from pytrace.remote.controller import Controller
from pytrace.remote.hosts import State
from pytrace.remote.messages import Beat, Limits, Request, Stop, ToAgent
from pytrace.remote.rollout import Rollout, stages


def test_become_is_sudo_without_a_password() -> None:
    assert Carriage().started == "pytrace agent"
    assert Carriage(become=True, command="x").started == "sudo -n x"


def test_other_workers_are_errors() -> None:
    with pytest.raises(TraceError, match="a worker is one of ssh, rsh, exec, not 'pdsh'"):
        Carriage(worker="pdsh")


def test_each_interruption_asks_for_the_end() -> None:
    before, asked = signal.getsignal(signal.SIGTERM), []
    with interruptions(lambda: asked.append(1)):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.raise_signal(number)
    assert len(asked) == 2
    assert signal.getsignal(signal.SIGTERM) is before


class Agent:
    """A connection that keeps what is written."""

    def __init__(self) -> None:
        self.said: list[ToAgent] = []

    def write(self, data: bytes, /) -> None:
        self.said.append(messages.to_agent(data))


def test_beats_stages_and_the_end(tmp_path: Path) -> None:
    """Three hosts in two stages: the first one runs, the second one is not asked yet when the end comes."""
    names, told, stopping = ["a", "b", "c"], [], Stopping()
    request = Request(protocol=1, script="x", limits=Limits(duration=60, heartbeat=8))
    controller = Controller(names, request, Answer(None), str(tmp_path))
    rollout = Rollout(names, stages("1,all", 3), soak=5)
    talk: Conversation[Agent] = Conversation(8, controller, rollout, told.append, stopping, "host")
    assert talk.due() == ["a"]
    talk.connections["a"] = first = Agent()
    controller.connecting("a", 100)
    assert talk.step(100) == set()
    assert first.said == [], "the request was not sent yet"
    a = controller.hosts["a"]
    a.asked, a.state, a.attached, a.watched, a.heard = True, State.RUNNING, 101, 5, 103
    assert talk.step(103) == set()
    assert [type(said) for said in first.said] == [Beat]
    assert talk.step(104) == set()
    assert len(first.said) == 1, "a beat in a quarter of the heartbeat"
    assert told == ["stage 1 of 2: attached on 1 of 1 host"]
    assert talk.due() == ["b", "c"]
    talk.connections["b"] = second = Agent()
    controller.connecting("b", 104)
    assert not talk.late(104)
    stopping.count = 1
    assert talk.step(104.5) == {"b", "c"}
    assert [type(said) for said in first.said] == [Beat, Stop]
    assert second.said == []
    assert talk.due() == ()
    assert not talk.late(104.5 + LEAVE)
    assert talk.late(104.6 + LEAVE)
    stopping.count = 2
    assert talk.late(104.6)


def test_silent_hosts_are_given_up(tmp_path: Path) -> None:
    request = Request(protocol=1, script="x", limits=Limits(duration=60))
    controller = Controller(["a"], request, Answer(None), str(tmp_path))
    talk: Conversation[Agent] = Conversation(8, controller, Rollout(["a"], [1]), lambda _: None, Stopping(), "host")
    talk.due()
    controller.connecting("a", 0)
    talk.connections["a"] = Agent()
    assert talk.step(1000) == {"a"}
    assert controller.hosts["a"].state is State.SILENT
