"""pytrace.runtime.symbols.line_reading: what a user is told who waits for source lines, and how they stop waiting."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest

from pytrace.base.interruption import EndRequests
from pytrace.runtime.session.signals import Signals
from pytrace.runtime.symbols import line_reading
from pytrace.runtime.symbols.line_reading import LineReading
from tests.support.end_requests import asked


def _steps(done: list[int], count: int = 3) -> Iterator[None]:
    for number in range(count):
        done.append(number)
        yield


def test_nobody_waits_while_the_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_reading, "TOLD_AFTER", -1.0)
    reading, done = LineReading(), []
    assert reading.run(_steps(done))
    assert done == [0, 1, 2]
    assert not reading.give_up()


def test_the_user_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_reading, "TOLD_AFTER", -1.0)
    reading, told = LineReading(), []
    reading.hurry(told.append, "stacks")
    reading.name("7 addresses in stacks")
    assert reading.run(_steps([]))
    assert reading.run(_steps([]))
    assert told == ["reading source lines of 7 addresses in stacks; Ctrl-C prints the rest without lines\n"]


def test_short_readings_are_not_worth_a_word() -> None:
    reading, told = LineReading(), []
    reading.hurry(told.append, "stacks")
    assert reading.run(_steps([]))
    assert told == []
    assert not reading.give_up(), "it is not source lines that are waited for"


def test_downloads_wait_for_the_end_and_for_the_user() -> None:
    reading = LineReading()
    asked: list[bool] = []

    def ask(stop: Callable[[], bool]) -> None:
        asked.append(stop())
        assert reading.give_up()
        asked.append(stop())
        assert not reading.give_up(), "the next signal breaks off"

    assert not reading.download(ask), "events would be lost meanwhile"
    reading.hurry(None, "stacks")
    assert reading.download(ask)
    assert asked == [False, True]
    assert not reading.download(ask), "nor for the next binary"
    assert not reading.run(_steps([0])), "source lines are left out, too"


def test_giving_up() -> None:
    reading, done = LineReading(), []
    reading.hurry(None, "stacks")

    def interrupted() -> Iterator[None]:
        yield
        assert reading.give_up()
        assert not reading.give_up(), "the next signal breaks off"
        yield
        raise AssertionError

    assert not reading.run(interrupted())
    assert not reading.run(_steps(done))
    assert done == [0], "not even a whole step"
    assert reading.run(iter(())), "what was read before is shown"


def test_a_second_signal_ends_the_reading_and_the_next_one_the_run() -> None:
    reading = LineReading()
    signals = Signals(asked(), reading.give_up)
    reading.hurry(None, "stacks")

    def interrupted() -> Iterator[None]:
        yield
        signals._handle(signal.SIGINT, None)
        yield

    assert not reading.run(interrupted())
    with pytest.raises(KeyboardInterrupt):
        signals._handle(signal.SIGINT, None)


def test_readings_have_little_time_when_the_user_asked_for_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now, requests = [100.0], EndRequests()
    monkeypatch.setattr(line_reading.time, "monotonic", lambda: now[0])
    reading, done = LineReading(requests), []

    def slow() -> Iterator[None]:
        for _ in range(10):
            now[0] += line_reading.ENDING / 4
            done.append(0)
            yield

    assert reading.run(slow()), "nobody waits yet"
    requests.ending = True
    assert not reading.run(slow())
    assert len(done) == 10 + 5
    assert reading.late
    assert not reading.run(slow())
    assert len(done) == 15, "not even a step"
    assert not reading.give_up(), "the next signal breaks off"


def test_a_signal_in_the_middle_of_a_reading_bounds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_reading, "ENDING", 0.0)
    requests = EndRequests()

    def interrupted() -> Iterator[None]:
        yield
        requests.ending = True
        yield
        raise AssertionError

    assert not LineReading(requests).run(interrupted())


# ---------------------------------------------------------------------------------------------- names at the end


def test_names_are_looked_up_for_a_limited_time_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Minutes after several thousand processes, on a machine that has no time."""
    monkeypatch.setattr(line_reading, "NAMING", -1.0)
    reading = LineReading()
    assert reading.names_left(), "while the run goes on"
    reading.hurry(None, "stacks")
    assert not reading.names_left()
    assert reading.names_over == "names were looked up for -1 s after the end"
    assert not reading.run(_steps([])), "what is prepared for names stops, too"


def test_a_first_interrupt_in_a_long_end_is_heeded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run has ended by itself, as its command has; nothing is looked up any more when the user asks for the end."""
    monkeypatch.setattr(line_reading, "TOLD_AFTER", -1.0)
    monkeypatch.setattr(line_reading, "ENDING", 0.0)
    requests, told = EndRequests(), []
    reading = LineReading(requests)
    reading.hurry(told.append, "stacks")
    assert reading.names_left()
    assert told == ["looking up names of user functions; Ctrl-C prints the rest as numbers\n"]
    requests.ending = True
    assert not reading.names_left()
    assert reading.names_over == "you asked for the end"


def test_a_second_interrupt_leaves_names_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one has ended the run; the second one ends what takes long in its end, the third one all of it."""
    reading = LineReading(asked())
    reading.hurry(None, "stacks")
    assert reading.names_left()
    assert not reading.give_up(), "names do not take long yet"
    monkeypatch.setattr(line_reading, "TOLD_AFTER", -1.0)
    assert reading.names_left()
    assert reading.give_up()
    assert not reading.names_left()
    assert not reading.give_up()
