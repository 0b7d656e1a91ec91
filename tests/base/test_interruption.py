"""Signals wait while a file is written."""

from __future__ import annotations

import signal
import threading

import pytest

from pytrace.base.interruption import ENDING, held, postponed


@pytest.mark.parametrize("number", ENDING)
def test_signals_wait(number: signal.Signals) -> None:
    seen: list[int] = []
    former = signal.signal(number, lambda found, _frame: seen.append(found))
    try:
        with held():
            signal.raise_signal(number)
            assert number in signal.sigpending()
            assert seen == []
        assert seen == [number]
    finally:
        signal.signal(number, former)


def test_the_mask_is_as_before_even_after_an_error() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    try:
        with pytest.raises(ValueError, match="x"), held():
            raise ValueError("x")
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == {*before, signal.SIGUSR2}
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_a_handler_runs_at_the_end_of_the_block() -> None:
    done = []

    def run() -> None:
        with postponed():
            signal.raise_signal(signal.SIGINT)
            done.append(True)

    with pytest.raises(KeyboardInterrupt):
        run()
    assert done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_without_a_signal_the_handler_is_as_before() -> None:
    before = signal.getsignal(signal.SIGINT)
    with postponed():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_in_other_threads_nothing_is_changed() -> None:
    seen: list[object] = []

    def run() -> None:
        with postponed():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]
