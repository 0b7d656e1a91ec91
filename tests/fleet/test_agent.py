"""``pytrace agent`` before anything is traced: requests that are refused. tests/kernel/test_agents.py has the runs."""

from __future__ import annotations

import pytest

from pytrace.fleet import messages
from pytrace.fleet.messages import Beat, Hello, Refused, Request
from tests.support.agents import agent, request


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (Beat(), "ERROR: the first line is no request\n"),
        (request("begin { }", protocol=99),
         ("ERROR: the controller speaks version 99 of the protocol, this pytrace (0.1.0) version 1\n"
          "HINT: install the same version of pytrace on both\n")),
        (request("", compiled=b"BPF"), "ERROR: not a compiled pytrace script\n"),
    ],
)  # fmt: skip
def test_refusals(said: Request | Beat, error: str) -> None:
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
