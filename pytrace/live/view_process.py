"""The process of a live view: forked before anything is traced, it has the terminal while the run goes on.

A process of its own, so that drawing never holds up the reading of the ring, and so that the terminal is given back
whatever happens to one of the two: the view ends when the run's end of the channel is closed, and the run restores the
terminal after a view that did not.
"""

from __future__ import annotations

import fcntl
import gc
import os
import select
import signal
import socket
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from queue import SimpleQueue
from threading import Thread
from typing import NoReturn

import msgspec

from pytrace.base.interruption import postponed
from pytrace.live import messages
from pytrace.live.messages import Command, Message, Start

PATIENCE = 5.0
"""Seconds that the view gets to give the terminal back."""
_BLOCK = 1 << 16
_LONGEST_LINE = 1 << 16
"""Bytes of a command; a view that sends more is broken."""

_MODES = "?2048l ?2004l ?7h <u ?1000l ?1003l ?1015l ?1006l ?1016l ?1049l ?25h ?1004l 0m"

_LEAVE = "".join(f"\x1b[{mode}" for mode in _MODES.split()).encode()
"""What takes back the modes that textual's driver sets, for a view that could not: size reports, paste marks, line
wrap, keyboard protocol, alternate screen, cursor, focus reports, mouse, colours."""


class SavedTerminal:
    """The state of the terminal on standard input, to be restored after the view."""

    def __init__(self) -> None:
        self._attributes = termios.tcgetattr(0)

    def restore(self, descriptor: int, *, modes: bool) -> None:
        """Restore it; *modes*: take back what the view has set by escape sequences, too, on *descriptor*."""
        if modes:
            with suppress(OSError):
                os.write(descriptor, _LEAVE)
        with suppress(termios.error):
            termios.tcsetattr(descriptor, termios.TCSADRAIN, self._attributes)


class ViewProcess:
    """The process, and the channel to it. A thread reads what it sends, and what others print to the terminal.

    Args:
        streams: of the run.
        confine: called in the process before it takes the terminal, to give up what it does not need.
        collect: called by the thread with what children of the run, and libraries, print while the view is shown.
        stack: ends the process, and restores the terminal.
    """

    def __init__(
        self, streams: Streams, confine: Callable[[], None], collect: Callable[[bytes], None], stack: ExitStack
    ) -> None:
        self.commands: SimpleQueue[Command] = SimpleQueue()
        """Commands for the run, but for ``shown`` and ``end``."""
        self.used = 0.0
        """Processor time of the view, in seconds."""
        self.states = self.lines = 0
        """How many messages of each kind it has shown."""
        self.gone = False
        """Whether the view has closed the channel."""
        self.error = ""
        """Why the view ended by itself."""
        self._collect = collect
        self._terminal = SavedTerminal()
        self._streams = streams
        self._waiting = b""
        self._shown = False
        self._thread: Thread | None = None
        self._channel, theirs = socket.socketpair()
        self.pid = os.fork()
        """Of the process."""
        if not self.pid:
            _become(theirs, confine)
        theirs.close()
        self._channel.setblocking(False)
        stack.callback(self._channel.close)
        stack.callback(self.close)

    # ---- the run's thread

    def begin(self, start: Start) -> None:
        """Have the view take the terminal."""
        self._shown = True
        self._streams.redirect()
        self._thread = Thread(target=self._read, name="pytrace-live", daemon=True)
        self._thread.start()
        self.send(start)

    def send(self, message: Message) -> None:
        """Send a message, as far as there is room; :meth:`flush` sends the rest."""
        self._waiting += messages.packed(message)
        self.flush()

    def flush(self) -> bool:
        """Send what waits. Returns whether all of it is sent."""
        while self._waiting and not self.gone:
            try:
                sent = self._channel.send(self._waiting)
            except BlockingIOError:
                return False
            except OSError:
                self.gone = True
                break
            self._waiting = self._waiting[sent:]
        return True

    @postponed()
    def close(self) -> None:
        """Have the view give the terminal back, and wait for that."""
        if not self.pid:
            return
        pid, self.pid = self.pid, 0
        if not self._shown:
            # It has not touched the terminal, and may still be importing.
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return
        with suppress(OSError):
            self._channel.shutdown(socket.SHUT_WR)
        status = _wait(pid)
        self._streams.restore()
        self._terminal.restore(0, modes=status != 0)
        if self._thread is not None:
            self._thread.join(PATIENCE)
        if status and not self.error:
            self.error = f"signal {-status}" if status < 0 else f"status {status}"

    # ---- the thread

    def _read(self) -> None:
        """Read commands until the view closes the channel, and what others print."""
        poll = select.poll()
        for descriptor in (self._channel.fileno(), self._streams.reading):
            poll.register(descriptor, select.POLLIN)
        received = b""
        while True:
            ready = {descriptor for descriptor, _ in poll.poll()}
            if self._streams.reading in ready:
                self._collect(self._streams.read())
            if self._channel.fileno() not in ready:
                continue
            try:
                data = self._channel.recv(_BLOCK)
            except BlockingIOError:
                continue
            except OSError:
                data = b""
            if not data or len(received) > _LONGEST_LINE:
                break
            *lines, received = (received + data).split(b"\n")
            for line in lines:
                self._take(line)
        if rest := self._streams.read():
            self._collect(rest)
        self.gone = True

    def _take(self, line: bytes) -> None:
        try:
            command = messages.command(line)
        except msgspec.DecodeError:
            return
        if command.do == "shown":
            self.used, self.states, self.lines = command.used, command.states, command.lines
        elif command.do == "failed":
            self.error = command.name
        elif command.do == "end":
            # As if it was typed: the run may be waiting for something, which the signal ends.
            os.kill(os.getpid(), signal.SIGINT)
        elif command.do == "stop":
            os.kill(0, signal.SIGTSTP)
        else:
            self.commands.put(command)


def _wait(pid: int) -> int:
    """Wait for the view. Returns its status; minus the number of the signal that ended it."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    # It hangs. Landlock may forbid to kill it; it ends with this process then.
    with suppress(OSError):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return -signal.SIGKILL


# ---------------------------------------------------------------------------------------------- standard streams


class Streams:
    """The standard streams of the run, which lead away from the terminal while the view has it.

    Commands of ``-c`` and ``system()``, and libraries, would write across the picture and take the keys.
    """

    def __init__(self, stack: ExitStack) -> None:
        self.reading, self._writing = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.reading, False)
        self._null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._saved = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 3) for number in range(3)]
        self._away = False
        for descriptor in (self.reading, self._writing, self._null, *self._saved):
            stack.callback(os.close, descriptor)

    @property
    def output(self) -> int:
        """The terminal, or wherever standard output went."""
        return self._saved[1]

    @property
    def errors(self) -> int:
        """The same for standard error."""
        return self._saved[2]

    def redirect(self) -> None:
        """Lead the streams that are a terminal away from it."""
        self._away = True
        for number, target in ((0, self._null), (1, self._writing), (2, self._writing)):
            if os.isatty(self._saved[number]):
                os.dup2(target, number, inheritable=True)

    def restore(self) -> None:
        """Lead them back."""
        if self._away:
            self._away = False
            for number, saved in enumerate(self._saved):
                os.dup2(saved, number, inheritable=True)

    @contextmanager
    def redirected(self) -> Iterator[None]:
        """Lead them away within: a child that is started has no terminal."""
        self.redirect()
        try:
            yield
        finally:
            self.restore()

    def read(self) -> bytes:
        """What was written to the streams; nothing if there is none."""
        try:
            return os.read(self.reading, _BLOCK)
        except BlockingIOError:
            return b""


# ---------------------------------------------------------------------------------------------- in the process


def _become(channel: socket.socket, confine: Callable[[], None]) -> NoReturn:
    """In the child: import the view while the run loads its programs, wait for the start, show it, exit."""
    status = 1
    try:
        gc.enable()
        signal.set_wakeup_fd(-1)  # the pipe of the run's event loop
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, signal.SIG_DFL)
        # Ctrl-C is a key while the view is shown, and for the run before and after it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.dup2(1, 2)
        close_others(channel.fileno())
        status = _show(channel, confine)
    except BaseException as error:  # noqa: BLE001 - nothing may go on in a copy of the run
        with suppress(OSError):
            channel.send(messages.line(Command("failed", f"{type(error).__name__}: {error}")))
    finally:
        os._exit(status)


def close_others(kept: int) -> None:
    """Close all files but the standard ones and *kept*."""
    highest = max(map(int, os.listdir("/proc/self/fd")))
    os.closerange(3, kept)
    os.closerange(kept + 1, highest + 1)


def _show(channel: socket.socket, confine: Callable[[], None]) -> int:
    from pytrace.live import app  # textual is imported in this process only

    incoming = messages.Incoming()
    first: list[Message] = []
    while not first:
        data = channel.recv(1)
        if not data:
            return 0
        first = incoming.add(data)
    start = first[0]
    assert isinstance(start, Start)
    if not start.colour:
        os.environ["NO_COLOR"] = "1"
    confine()
    channel.setblocking(False)
    return app.run(start, lambda command: channel.sendall(messages.line(command)), channel.fileno())
