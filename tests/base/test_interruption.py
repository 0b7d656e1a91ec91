"""Signals wait while a file is written."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from pytrace.base.interruption import ENDING, deliver, held, interruptions, postponed


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


class EndedError(Exception):
    """Raised by a handler, with the number of its signal."""


@pytest.fixture
def raising() -> Iterator[Callable[[int, object], None]]:
    """A handler of all signals that end a process."""

    def handle(number: int, _frame: object) -> None:
        raise EndedError(number)

    former = {number: signal.signal(number, handle) for number in ENDING}
    yield handle
    for number, handler in former.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", ENDING)
def test_a_handler_runs_at_the_end_of_the_block(number: signal.Signals, raising: Callable[[int, object], None]) -> None:
    done = []

    def run() -> None:
        with postponed():
            signal.raise_signal(number)
            done.append(True)

    with pytest.raises(EndedError, match=str(int(number))):
        run()
    assert done
    assert {signal.getsignal(other) for other in ENDING} == {raising}


def test_signals_are_handled_in_their_order_where_the_block_says_so(raising: Callable[[int, object], None]) -> None:
    with postponed():
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            signal.raise_signal(number)
        for number in (signal.SIGTERM, signal.SIGINT):
            with pytest.raises(EndedError, match=str(int(number))):
                deliver()
        deliver()


def test_what_is_left_to_the_kernel_stays_so() -> None:
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with postponed():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, former)


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


class Named:
    """A member of a class, as modules have some."""

    def __set_name__(self, _owner: type, _name: str) -> None:
        signal.raise_signal(signal.SIGINT)


def stop() -> None:
    raise KeyboardInterrupt


def test_ctrl_c_within_an_import() -> None:
    with pytest.raises(KeyboardInterrupt), interruptions(stop):
        type("Imported", (), {"member": Named()})
    with pytest.raises(RuntimeError, match="other"), interruptions(stop):
        raise RuntimeError("other")
