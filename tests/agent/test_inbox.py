"""Lines of a controller, read without blocking, and signals that ask for the end."""

from __future__ import annotations

import os
import signal
import time

from pytrace.agent.inbox import Inbox, end_requests
from pytrace.remote.messages import Beat, Clock, Stop


def test_lines_as_they_come() -> None:
    reading, writing = os.pipe()
    try:
        inbox = Inbox(reading)
        assert not inbox.read(0)
        os.write(writing, b"a\nb")
        assert inbox.read(1)
        os.write(writing, b"c\n")
        assert inbox.read(1)
        assert inbox.waiting == [b"a", b"bc"]
        clock = inbox.clock(Beat(5))
        assert isinstance(clock, Clock)
        assert 0 < clock.received <= clock.answered <= time.time_ns()
        assert (inbox.clock(Beat()), inbox.clock(Stop())) == (None, None)
    finally:
        os.close(writing)
    assert not inbox.read(1)
    assert inbox.over
    os.close(reading)


def test_signals_are_noted() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with end_requests() as signals:
        assert not signals.arrived
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.arrived
    assert signal.getsignal(signal.SIGTERM) == before
