"""Messages between a run and its live view, which is a process of its own.

What the run sends is pickled, as it trusts its own data; the view handles text of traced programs, so what it sends
back is JSON that is checked against :class:`Command`.
"""

from __future__ import annotations

import pickle
import struct
from typing import Literal

import msgspec

from pytrace.core.failures import UnderWay
from pytrace.results.snapshot import SnapshotData

_LENGTH = struct.Struct("=I")


class Start(msgspec.Struct, frozen=True):
    """The probes are attached: the view takes the terminal."""

    title: str
    unicode: bool
    colour: bool
    places: str = ""
    """Where the output goes that is not in the log; empty if all of it is."""
    own: tuple[int, ...] = ()
    """Processes of pytrace itself, which are left out of what is shown."""
    asks: bool = False
    """Whether questions about processes are answered."""


class Meters(msgspec.Struct, frozen=True):
    """What the footer shows. Times are seconds, shares are those of one processor."""

    elapsed: float
    hits: float
    """Hits of all probes per second."""
    lost: int
    """Events and updates that were lost so far."""
    losing: float
    """The same, per second of the last interval."""
    own: float
    """Share of the run's process."""
    programs: float | None
    """Share of the BPF programs; None where the kernel does not time them."""
    interval: float
    """Time until the next snapshot."""
    answered: str = ""
    """Of many hosts: who answered. Hits and times of programs are known there only."""


class State(msgspec.Struct, frozen=True):
    """The run at one moment: the entries of its maps, of large ones the greatest, and how many others there are."""

    snapshot: SnapshotData
    others: dict[str, int]
    """Keys that each map has besides those in the snapshot."""
    meters: Meters
    calls: tuple[UnderWay, ...] | None = None
    """Calls that have not returned, the oldest first; None of a run that follows none."""
    younger_calls: int = 0
    """How many there are besides, some of which may have been left without a return."""


class Lines(msgspec.Struct, frozen=True):
    """What the run has printed; *dropped* bytes before it are missing."""

    data: bytes
    dropped: int = 0


class Notice(msgspec.Struct, frozen=True):
    """The result of a command, as a sentence."""

    text: str
    error: bool = False


Question = Literal["threads", "files", "sockets", "calls", "flame"]
"""What can be asked about a process."""


class Answer(msgspec.Struct, frozen=True):
    """What is known of a process: rows of a table, or stacks of functions; or why it is not."""

    question: Question
    pid: int
    start: int
    rows: list[tuple[str, ...]] = []
    stacks: list[tuple[tuple[str, ...], int]] = []
    """Functions from the root, and samples."""
    note: str = ""
    error: str = ""
    begun: bool = False
    """Not the answer yet: a process has begun to look for it."""
    own: tuple[int, ...] = ()
    """Processes of pytrace that work on it, which are no news."""


Message = Start | State | Lines | Notice | Answer


class Command(msgspec.Struct, frozen=True):
    """A request: ``shown`` says what is on the screen now, ``failed`` why the view ends, ``stop`` is Ctrl-Z.

    ``ask`` is a question about a process.
    """

    do: Literal["shown", "end", "stop", "clear", "save", "report", "failed", "ask"]
    name: str = ""
    """Of ``clear`` the maps, with spaces between them, empty for all aggregations; of ``failed`` the error; of ``ask``
    a :data:`Question`."""
    pid: int = 0
    """Of ``ask``: the process."""
    start: int = 0
    """When it was started, in ticks since boot: another one may get its number."""
    states: int = 0
    lines: int = 0
    """Of ``shown``: how many messages of each kind have been shown, or kept for the end of a pause."""
    used: float = 0.0
    """Processor time of the view so far."""


def packed(message: Message) -> bytes:
    """A message with its length before it."""
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(data)) + data


class Incoming:
    """Messages of the run, as their bytes arrive."""

    def __init__(self) -> None:
        self._data = bytearray()

    def add(self, data: bytes) -> list[Message]:
        """Take bytes; returns the messages that are complete."""
        self._data += data
        found: list[Message] = []
        while len(self._data) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._data)[0]
            if len(self._data) < end:
                break
            found.append(pickle.loads(bytes(self._data[_LENGTH.size : end])))
            del self._data[:end]
        return found


_ENCODE = msgspec.json.Encoder().encode
_DECODE = msgspec.json.Decoder(Command).decode


def line(command: Command) -> bytes:
    """A command as a line of JSON."""
    return _ENCODE(command) + b"\n"


def command(data: bytes) -> Command:
    """The command of a line.

    Raises:
        msgspec.DecodeError: it is none.
    """
    return _DECODE(data)
