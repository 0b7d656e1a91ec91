"""Writes that do not wait, to whatever output can be."""

from __future__ import annotations

import os
import socket

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.output.channel import Channel

MUCH = memoryview(bytes(1 << 20))


def filled(channel: Channel) -> int:
    """Write until there is no more room, also after a moment; gives the number of bytes."""
    done: list[int] = []
    while True:
        before = len(done)
        assert channel.send(MUCH, done)
        if len(done) == before and (channel.unsure or not channel.wait(0.1)):
            return sum(done)


@pytest.mark.parametrize("kind", ["pipe", "terminal", "socket"])
def test_a_full_output_is_not_waited_for(kind: str) -> None:
    pair = socket.socketpair() if kind == "socket" else None
    if pair is not None:
        read, write = pair[0].detach(), pair[1].detach()
    else:
        read, write = os.openpty() if kind == "terminal" else os.pipe()
    channel = Channel(write)
    try:
        written = filled(channel)
        assert written > 0
        assert channel.unsure or not channel.wait(0)
        # Others who have the same file open are not to find it changed.
        assert os.get_blocking(write)
        got = 0
        while got < min(written, 1 << 16):
            got += len(os.read(read, 1 << 16))
        assert channel.wait(1)
        assert filled(channel) > 0
    finally:
        channel.close()
        os.close(read)
        os.close(write)


def test_without_a_description_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where /proc is not mounted."""
    real = os.open

    def refuse(path: str, flags: int, mode: int = 0o777) -> int:
        if str(path).startswith("/proc/"):
            raise FileNotFoundError(2, "no /proc")
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", refuse)
    read, write = os.pipe()
    channel = Channel(write)
    assert filled(channel) == 1 << 16
    os.read(read, 1 << 12)
    assert filled(channel) == 1 << 12
    for descriptor in (read, write):
        os.close(descriptor)


def test_a_reader_that_went_away() -> None:
    read, write = os.pipe()
    os.close(read)
    channel = Channel(write)
    assert not channel.send(MUCH, [])
    channel.close()
    os.close(write)


def test_a_file_takes_everything_and_a_full_device_is_an_error() -> None:
    with open("/dev/null", "wb") as file:
        done: list[int] = []
        assert Channel(file.fileno()).send(MUCH, done)
        assert done == [1 << 20]
    with open("/dev/full", "wb", buffering=0) as file, pytest.raises(TraceError, match="No space"):
        Channel(file.fileno()).send(MUCH, [])
