"""Snapshots for other threads."""

from __future__ import annotations

import gc
import select
import threading
import time
from collections.abc import Callable

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.metrics import exchange as module
from pytrace.metrics.exchange import SHARE, Exchange, uncollected
from pytrace.results.snapshot import SnapshotData
from tests.support.patience import patience
from tests.support.waiting import until


class Takes:
    """Takes snapshots that tell their number."""

    def __init__(self, seconds: Callable[[], None] = lambda: None) -> None:
        self.number = 0
        self._seconds = seconds

    def __call__(self) -> SnapshotData:
        self._seconds()
        self.number += 1
        return SnapshotData((), losses={"number": {"": self.number}})


class Asking(threading.Thread):
    """A thread that asks, and what it got."""

    def __init__(self, exchange: Exchange, seconds: float = 60) -> None:
        super().__init__(daemon=True)
        self._exchange, self._seconds = exchange, seconds
        self.result: SnapshotData | Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            self.result = self._exchange.ask(self._seconds)
        except (TraceError, TimeoutError) as error:
            self.result = error

    def end(self) -> SnapshotData | Exception | None:
        self.join(patience(20))
        assert not self.is_alive()
        return self.result


def readable(exchange: Exchange, seconds: float = 0) -> bool:
    return bool(select.select([exchange], [], [], seconds)[0])


def test_all_who_wait_get_one_snapshot_that_is_newer_than_their_question() -> None:
    takes = Takes()
    exchange = Exchange(takes)
    exchange.work()
    assert takes.number == 0
    assert not readable(exchange)
    asking = [Asking(exchange) for _ in range(5)]
    assert readable(exchange, patience(20))
    # All of them have asked once nobody runs any more but to wait.
    until(lambda: all(thread.is_alive() for thread in asking) and exchange._wanted is not None)
    time.sleep(0.05)
    exchange.work()
    results = [thread.end() for thread in asking]
    assert all(result is results[0] for result in results)
    assert not readable(exchange)
    second = Asking(exchange)
    assert readable(exchange, patience(20))
    until(lambda: exchange.work() or not second.is_alive())
    assert second.end() is not results[0]
    assert takes.number == 2
    exchange.close()


def test_who_asks_while_a_snapshot_is_taken_gets_it() -> None:
    late: list[Asking] = []

    def ask() -> None:
        late.append(Asking(exchange))
        until(late[0].is_alive)
        time.sleep(0.05)

    takes = Takes(ask)
    exchange = Exchange(takes)
    first = Asking(exchange)
    assert readable(exchange, patience(20))
    exchange.work()
    assert late[0].end() is first.end()
    assert not readable(exchange)
    assert takes.number == 1
    exchange.close()


def test_tracing_has_its_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])

    def take_a_second() -> None:
        now[0] += 1

    takes = Takes(take_a_second)
    exchange = Exchange(takes)
    asking = Asking(exchange)
    assert readable(exchange, patience(20))
    assert exchange.pause(5) == 0
    exchange.work()
    asking.end()
    assert exchange.pause(5) == 5
    asking = Asking(exchange)
    assert readable(exchange, patience(20))
    exchange.work()
    assert takes.number == 1
    assert not readable(exchange), "it would wake the session all the time"
    assert exchange.pause(100) == SHARE
    assert exchange.pause(2) == 2
    now[0] += SHARE
    assert exchange.pause(100) == 0
    exchange.work()
    asking.end()
    assert takes.number == 2
    exchange.close()


def test_a_snapshot_that_cannot_be_taken() -> None:
    def fail() -> SnapshotData:
        raise TraceError("no memory")

    exchange = Exchange(fail)
    asking = Asking(exchange)
    assert readable(exchange, patience(20))
    exchange.work()
    assert str(asking.end()) == "no memory"
    exchange.close()


def test_an_interrupt_while_it_is_taken_leaves_nobody_waiting() -> None:
    def interrupted() -> SnapshotData:
        raise KeyboardInterrupt

    exchange = Exchange(interrupted)
    asking = Asking(exchange)
    assert readable(exchange, patience(20))
    with pytest.raises(KeyboardInterrupt):
        exchange.work()
    assert isinstance(asking.end(), TraceError)
    exchange.close()


def test_collections_begin_again() -> None:
    with uncollected():
        assert not gc.isenabled()
        with uncollected():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    first, second = uncollected(), uncollected()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert gc.isenabled()


def test_nobody_waits_for_ever() -> None:
    exchange = Exchange(Takes())
    assert isinstance(Asking(exchange, 0.01).end(), TimeoutError)
    asking = Asking(exchange)
    until(asking.is_alive)
    exchange.close()
    exchange.close()
    assert isinstance(asking.end(), TraceError)
    with pytest.raises(TraceError, match="the run is over"):
        exchange.ask(1)
