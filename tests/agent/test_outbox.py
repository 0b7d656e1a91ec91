"""Messages on their way: nothing blocks, and of snapshots only the newest waits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

import pytest

from pytrace.agent.outbox import Outbox
from pytrace.remote import messages
from pytrace.remote.messages import End, FromAgent, Snapshot, Warned
from pytrace.runtime.output.channel import Channel

END = End(reason="stop", status=0)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    yield reading, writing
    for descriptor in (reading, writing):
        with suppress(OSError):
            os.close(descriptor)


def arrived(reading: int) -> bytes:
    data = b""
    with suppress(BlockingIOError):
        while part := os.read(reading, 1 << 20):
            data += part
    return data


def decoded(data: bytes) -> list[FromAgent]:
    return [messages.from_agent(line) for line in data.splitlines()]


def snapshot(number: int, size: int = 3) -> Snapshot:
    return Snapshot(number=number, data=bytes(size))


def test_the_newest_snapshot_waits_and_the_end_comes_last(pipe: tuple[int, int]) -> None:
    outbox = Outbox(Channel(pipe[1]))
    said = [snapshot(1), Warned("a"), snapshot(2), END, Warned("b")]
    for message in said:
        outbox.put(message)
    assert outbox.flush(1)
    data = arrived(pipe[0])
    assert decoded(data) == [Warned("a"), Warned("b"), snapshot(2), END]
    assert (outbox.sent, outbox.pending) == (len(data), False)


def test_a_reader_that_does_not_read_holds_up_nothing(pipe: tuple[int, int]) -> None:
    outbox = Outbox(Channel(pipe[1]))
    outbox.put(snapshot(1, 200_000))
    assert outbox.advance() > 0
    assert outbox.advance() == 0
    for number in range(2, 5):
        outbox.put(snapshot(number))
    outbox.put(END)
    assert outbox.pending
    assert not outbox.flush(0.05)
    # It reads again: the message that was begun arrives whole, and of the others the newest.
    data = b""
    while outbox.pending:
        outbox.advance()
        data += arrived(pipe[0])
    assert decoded(data) == [snapshot(1, 200_000), snapshot(4), END]


def test_without_a_reader_nothing_waits(pipe: tuple[int, int]) -> None:
    outbox = Outbox(Channel(pipe[1]))
    os.close(pipe[0])
    outbox.put(snapshot(1))
    assert outbox.pending
    outbox.advance()
    assert (outbox.broken, outbox.pending, outbox.flush(1)) == (True, False, False)
