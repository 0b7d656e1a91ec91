"""Signals wait while a file is written."""

from __future__ import annotations

import signal

import pytest

from pytrace.base.interruption import ENDING, held


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
