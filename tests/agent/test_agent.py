"""``pytrace agent`` before anything is traced: requests that are refused. tests/kernel/test_agents.py has the runs."""

from __future__ import annotations

import time

import pytest

from pytrace.remote import messages
from pytrace.remote.messages import Beat, Clock, Hello, Refused, Request, Stop
from tests.support.agents import agent, request


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (Stop(), "ERROR: the first line is no request\n"),
        (request("begin { }", protocol=99),
         ("ERROR: the controller speaks version 99 of the protocol, this pytrace (0.1.0) version 1\n"
          "HINT: install the same version of pytrace on both\n")),
        (request("", compiled=b"BPF"), "ERROR: not a compiled pytrace script\n"),
    ],
)  # fmt: skip
def test_refusals(said: Request | Stop, error: str) -> None:
    with agent() as running:
        assert running.next(Hello).protocol == messages.PROTOCOL
        running.say(said)
        assert running.next(Refused) == Refused(text=error, status=1)
        assert running.wait() == 1


def test_an_input_that_ends_before_a_request_is_the_end() -> None:
    with agent() as running:
        running.hang_up()
        running.next(Hello)
        assert running.wait() == 0


def test_beats_before_the_request_are_answered_with_the_clock() -> None:
    with agent() as running:
        running.next(Hello)
        before = time.time_ns()
        running.say(Beat(5))
        clock = running.next(Clock)
        assert clock.sent == 5
        assert before <= clock.received <= clock.answered <= time.time_ns()
        running.say(Beat(), request("begin { ", duration=1))
        running.next(Refused)
        assert not any(isinstance(message, Clock) for message in running.heard[2:])
        running.wait()
