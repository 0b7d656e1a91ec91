"""Requests to end the run, as events see them."""

from __future__ import annotations

from pytrace.runtime.output.run_state import RunState
from tests.support.end_requests import asked


def test_end_probes_are_waited_for_although_the_user_has_asked_for_the_end() -> None:
    assert not RunState().hurry
    assert RunState(requests=asked()).hurry
    assert not RunState(requests=asked(), resumed=True).hurry
