"""What signals ask of a session, and when."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Iterator

import pytest

from pytrace.base.interruption import EndRequests
from pytrace.core.diagnostics import Interrupted
from pytrace.interface.tracing import WakeUp
from pytrace.runtime.session import signals
from pytrace.runtime.session.signals import Signals

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Handlers as the command finds them."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (*ENDING, signal.SIGUSR1)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_before_there_is_something_to_end_signals_have_their_default_action() -> None:
    with Signals(EndRequests()) as taken:
        assert [signal.getsignal(number) for number in ENDING] == [signal.SIG_DFL] * 3
        taken.begin()
        assert signal.SIG_DFL not in [signal.getsignal(number) for number in ENDING]
    assert [signal.getsignal(number) for number in ENDING] == [signal.SIG_DFL] * 3


def test_hangups_that_are_ignored_stay_so() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with Signals(EndRequests()) as taken:
        taken.begin()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


@pytest.mark.parametrize("first", ENDING)
@pytest.mark.parametrize("second", ENDING)
def test_signals_of_one_moment_are_one_request(first: signal.Signals, second: signal.Signals, clock: Clock) -> None:
    requests = EndRequests()
    with Signals(requests) as taken:
        taken.begin()
        signal.raise_signal(first)
        for _ in range(3):
            clock.now += signals.TOGETHER / 4
            signal.raise_signal(second)
        assert (requests.ending, requests.count) == (True, 1)


@pytest.mark.parametrize("first", ENDING)
@pytest.mark.parametrize("second", ENDING)
def test_a_later_one_breaks_off(first: signal.Signals, second: signal.Signals, clock: Clock) -> None:
    requests = EndRequests()
    with Signals(requests) as taken:
        taken.begin()
        signal.raise_signal(first)
        clock.now += 2 * signals.TOGETHER
        with pytest.raises(Interrupted) as caught:
            signal.raise_signal(second)
        assert caught.value.status == 128 + second
        assert requests.count == 2


def test_a_later_one_may_end_a_part_of_the_run(clock: Clock) -> None:
    requests = EndRequests()
    parts = iter([True])
    with Signals(requests, lambda: next(parts, False)) as taken:
        taken.begin()
        signal.raise_signal(signal.SIGINT)
        clock.now += 2 * signals.TOGETHER
        signal.raise_signal(signal.SIGINT)
        assert requests.count == 1
        with pytest.raises(Interrupted):
            signal.raise_signal(signal.SIGINT)


def test_others_are_handed_on_and_end_nothing() -> None:
    requests = EndRequests()
    with Signals(requests) as taken:
        for started in (False, True):
            if started:
                taken.begin()
            signal.raise_signal(signal.SIGUSR1)
            signal.raise_signal(signal.SIGUSR1)
            assert taken.take() == [signal.SIGUSR1] * 2
        assert not requests.ending
        assert not taken.take()


def test_one_that_comes_in_a_callback_of_c_code_shows_no_traceback(
    clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Doomed:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    class Faulty:
        def __del__(self) -> None:
            raise ValueError("odd")

    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)
    requests = EndRequests()
    with Signals(requests) as taken:
        taken.begin()
        signal.raise_signal(signal.SIGINT)
        clock.now += 2 * signals.TOGETHER
        Doomed()
        assert requests.count == 2
        assert capsys.readouterr().err == ""
        Faulty()
        assert "ValueError: odd" in capsys.readouterr().err
    assert sys.unraisablehook is sys.__unraisablehook__


def test_it_can_be_polled() -> None:
    with Signals(EndRequests()) as taken:
        taken.begin()
        signal.raise_signal(signal.SIGTERM)
        assert os.read(taken.fileno(), 1) == bytes([signal.SIGTERM])


# ---- inside another program

def readable(wake: WakeUp) -> bool:
    return bool(select.select([wake.fileno()], [], [], 0)[0])


def test_a_wait_is_interrupted_once() -> None:
    wake = WakeUp()
    assert not readable(wake)
    wake.wake()
    wake.wake()
    assert readable(wake)
    assert wake.take() == []
    assert not readable(wake)
    wake.close()


def test_nothing_is_asked_for_by_the_system() -> None:
    wake = WakeUp()
    wake.begin()
    assert wake.take() == []
    wake.close()


def test_after_the_end_nothing_happens() -> None:
    wake = WakeUp()
    descriptor = wake.fileno()
    wake.close()
    wake.close()
    wake.wake()
    assert wake.fileno() == -1
    with pytest.raises(OSError, match="Bad file descriptor"):
        select.select([descriptor], [], [], 0)
