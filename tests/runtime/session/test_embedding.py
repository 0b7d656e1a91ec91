from __future__ import annotations

import select

import pytest

from pytrace.runtime.session.embedding import WakeUp


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
