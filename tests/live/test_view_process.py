"""The view's process and its channel, without a view: the child is a function of the test."""

from __future__ import annotations

import os
import pty
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NoReturn

import pytest

from pytrace.live import messages, view_process
from pytrace.live.messages import Command, Lines, Message, Start
from pytrace.live.view_process import Streams, ViewProcess
from tests.support.patience import patience
from tests.support.waiting import until

START = Start("x", unicode=True, colour=True)
Child = Callable[[socket.socket], int]


class Standard:
    """Standard input and output on a pseudo-terminal."""

    def __init__(self) -> None:
        self._theirs, ours = pty.openpty()
        self._before = [os.dup(number) for number in range(3)]
        for number in range(3):
            os.dup2(ours, number)
        os.close(ours)
        os.set_blocking(self._theirs, False)
        self.shown = b""
        """What was written to it by the end."""

    def close(self) -> None:
        with suppress(BlockingIOError):
            self.shown = os.read(self._theirs, 1 << 16)
        for number, before in enumerate(self._before):
            os.dup2(before, number)
            os.close(before)
        os.close(self._theirs)


@contextmanager
def on_terminal() -> Iterator[Standard]:
    """Within the body of a test, as pytest captures these descriptors between the phases of one."""
    made = Standard()
    try:
        yield made
    finally:
        made.close()


def started(child: Child, stack: ExitStack, monkeypatch: pytest.MonkeyPatch, printed: list[bytes]) -> ViewProcess:
    def become(channel: socket.socket, confine: Callable[[], None]) -> NoReturn:
        try:
            confine()
            os._exit(child(channel))
        finally:
            os._exit(99)

    monkeypatch.setattr(view_process, "_become", become)
    return ViewProcess(Streams(stack), lambda: None, printed.append, stack)


def received(channel: socket.socket, count: int) -> list[Message]:
    incoming, found = messages.Incoming(), list[Message]()
    while len(found) < count:
        found += incoming.add(channel.recv(1 << 16))
    return found


def to_the_end(channel: socket.socket) -> None:
    while channel.recv(1 << 16):
        pass


def test_messages_reach_it_whole_though_it_reads_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = [START, Lines(b"x" * 3_000_000), Lines(b"end")]

    def child(channel: socket.socket) -> int:
        good = received(channel, 3) == sent
        for command in (Command("shown", states=3, lines=4, used=1.5), Command("clear", "@x")):
            channel.sendall(messages.line(command))
        to_the_end(channel)
        return 0 if good else 7

    with on_terminal() as standard, ExitStack() as stack:
        view = started(child, stack, monkeypatch, [])
        view.begin(START)
        for message in sent[1:]:
            view.send(message)
        until(view.flush)
        assert view.commands.get(timeout=patience(10)) == Command("clear", "@x")
        assert (view.used, view.states, view.lines, view.gone) == (1.5, 3, 4, False)
        view.close()
        assert view.error == ""
        assert view.gone
    assert standard.shown == b"", "a view that ends in order restores the terminal itself"


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (lambda _channel: os.kill(os.getpid(), signal.SIGKILL), "signal 9"),
        (lambda _channel: 3, "status 3"),
        (lambda channel: channel.sendall(messages.line(Command("failed", "KeyError: 1"))) or 1, "KeyError: 1"),
    ],
)
def test_after_a_view_that_fails_the_terminal_is_restored(
    end: Child, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with on_terminal() as standard, ExitStack() as stack:
        view = started(end, stack, monkeypatch, [])
        view.begin(START)
        until(lambda: view.gone)
        view.send(Lines(b"nobody reads it"))
        view.close()
        assert view.error == error
    assert b"\x1b[?1049l" in standard.shown


def test_a_view_that_was_not_shown_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with on_terminal() as standard, ExitStack() as stack:
        view = started(lambda channel: to_the_end(channel) or 0, stack, monkeypatch, [])
    assert view.error == ""
    assert standard.shown == b""


def test_ctrl_c_is_a_signal_for_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: seen.append(number))

    def child(channel: socket.socket) -> int:
        channel.sendall(b"not a command\n" + messages.line(Command("end")))
        to_the_end(channel)
        return 0

    try:
        with on_terminal(), ExitStack() as stack:
            started(child, stack, monkeypatch, []).begin(START)
            until(lambda: seen)
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.SIGINT]


def test_what_children_print_goes_to_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[bytes] = []
    with on_terminal() as standard, ExitStack() as stack:
        view = started(lambda channel: to_the_end(channel) or 0, stack, monkeypatch, printed)
        view.begin(START)
        os.system("echo out; echo err >&2; cat")
        until(lambda: b"".join(printed).count(b"\n") == 2)
        view.close()
        os.write(1, b"the terminal again\n")
    assert sorted(b"".join(printed).split()) == [b"err", b"out"]
    assert standard.shown == b"the terminal again\r\n"


def test_streams_that_are_no_terminal_stay(tmp_path: Path) -> None:
    with on_terminal(), open(tmp_path / "errors", "wb") as file, ExitStack() as stack:
        os.dup2(file.fileno(), 2)
        streams = Streams(stack)
        with streams.redirected():
            os.write(1, b"away\n")
            os.write(2, b"to the file\n")
            assert os.read(0, 10) == b""
        assert streams.read() == b"away\n"
        assert streams.read() == b""
    assert (tmp_path / "errors").read_text() == "to the file\n"
