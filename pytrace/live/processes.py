"""Processes as ``/proc`` describes them: of the rows of the live view, and of one that is looked at.

What they say of themselves (names, command lines, paths) is bounded here, and escaped where it is shown.
"""

from __future__ import annotations

import os
import pwd
import re
import socket
import sys
import time
from collections.abc import Iterator

import msgspec

from pytrace.base import kernel_files
from pytrace.results.findings import readable

MOST = 4096
"""Processes that are remembered."""
_FRESH = 1.0
"""Seconds after which a process is read again."""
_LONGEST = 4096
"""Bytes of a command line that are read."""
_MOST_ITEMS = 2000
"""Threads, files or sockets of a process that are listed."""
_MOST_BYTES = 8 << 20
"""Bytes of a table of sockets that are read."""
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")

STATES = {
    "R": "running", "S": "sleeping", "D": "in disk wait", "T": "stopped", "t": "held by a debugger", "Z": "zombie",
    "I": "idle", "X": "ended",
}  # fmt: skip
"""Words for the states of proc(5)."""


class Process(msgspec.Struct, frozen=True, array_like=True):
    """A process at one moment."""

    pid: int
    name: str
    state: str
    """A letter of :data:`STATES`."""
    parent: int
    uid: int
    memory: int
    """Resident, in bytes."""
    threads: int
    start: int
    """Ticks since boot; tells it from another one that gets the same number later."""
    command: str
    """Its command line; of kernel threads their name in brackets."""
    cpu: float = 0.0
    """Seconds of processor time so far."""


def read(pid: int, root: str = "/proc") -> Process | None:
    """A process; None if there is none (any more)."""
    folder = f"{root}/{pid}"
    found = kernel_files.statistics(pid, root)
    try:
        with open(f"{folder}/status", "rb") as file:
            status = file.read(_LONGEST)
        with open(f"{folder}/cmdline", "rb") as file:
            command = file.read(_LONGEST)
    except OSError:
        return None
    uid = re.search(rb"^Uid:\s+(\d+)", status, re.MULTILINE)
    if found is None or uid is None:
        return None
    words = command.rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "surrogateescape") or f"[{found.name}]"
    return Process(
        pid, found.name, found.state, found.parent, int(uid[1]), found.pages * _PAGE, found.threads, found.start, words,
        found.ticks / _TICKS,
    )  # fmt: skip


class Processes:
    """Reads processes as rows show them, each at most once a second."""

    def __init__(self, root: str = "/proc") -> None:
        self._root = root
        self._known: dict[int, tuple[float, Process | None]] = {}
        self._users: dict[int, str] = {}

    def known(self, pid: int) -> Process | None:
        """A process as of the last second; None if it has ended."""
        now = time.monotonic()
        found = self._known.get(pid)
        if found is None or now - found[0] > _FRESH:
            if len(self._known) >= MOST:
                self._known.clear()
            found = self._known[pid] = (now, read(pid, self._root))
        return found[1]

    def ended(self, pid: int) -> bool:
        """Whether a process has ended; faster than reading it."""
        return not os.path.exists(f"{self._root}/{pid}")

    def user_name(self, uid: int) -> str:
        """The name of a user, or the number."""
        if uid not in self._users:
            try:
                self._users[uid] = pwd.getpwuid(uid).pw_name
            except (KeyError, OSError):
                self._users[uid] = str(uid)
        return self._users[uid]


_TABLES = 1 << 17
"""Bytes of a table of the machine that are read: a line for each of a thousand CPUs."""


def _head(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(_TABLES)


class Machine:
    """How busy the whole machine is."""

    def __init__(self, root: str = "/proc") -> None:
        self._root = root
        self._times: dict[bytes, tuple[int, int]] = {}
        self._load = self._memory = self._swap = ""
        self._busy = ""
        self.cores: list[tuple[str, float]] = []
        """Numbers of the CPUs, and how busy each was, 0 … 1."""
        self.look()

    def look(self) -> None:
        """Read it again; the share of CPUs is that since the last time."""
        try:
            texts = [_head(f"{self._root}/{name}") for name in ("stat", "meminfo", "loadavg")]
        except OSError:
            return  # what is not known is not shown
        cores = []
        for line in texts[0].split(b"\n"):
            name, *words = line.split() or [b""]
            if not name.startswith(b"cpu"):
                break
            numbers = [int(word) for word in words[:8]]
            idle, total = sum(numbers[3:5]), sum(numbers)
            before = self._times.get(name)
            self._times[name] = idle, total
            if before is None or total <= before[1]:
                continue
            busy = 1 - (idle - before[0]) / (total - before[1])
            if name == b"cpu":
                self._busy = f"CPUs {100 * busy:.0f} %"
            else:
                cores.append((name[3:].decode(), min(max(busy, 0.0), 1.0)))
        self.cores = cores
        memory = {line.partition(b":")[0]: line.split()[1] for line in texts[1].splitlines() if len(line.split()) > 1}
        whole, free = (int(memory.get(name, 0)) << 10 for name in (b"MemTotal", b"MemAvailable"))
        self._memory = f"memory {readable(whole - free, 'bytes')} of {readable(whole, 'bytes')}"
        swap, unused = (int(memory.get(name, 0)) << 10 for name in (b"SwapTotal", b"SwapFree"))
        self._swap = f"swap {readable(swap - unused, 'bytes')} of {readable(swap, 'bytes')}" if swap else ""
        self._load = f"load {texts[2].split()[0].decode()}"

    @property
    def text(self) -> str:
        """For the first line of the view."""
        return ", ".join(filter(None, (self._busy, self._memory, self._swap, self._load)))


# ---------------------------------------------------------------------------------------------- one process
# Rows of words: threads, files, sockets. They are read with the privileges of whoever asks.


def threads(pid: int, seconds: float = 0.5, root: str = "/proc") -> list[tuple[str, ...]]:
    """Thread, state, share of a CPU in the last *seconds*, CPU time, name; the busiest first.

    Raises:
        OSError: there is no such process, or it may not be read.
    """
    before = dict(_thread_times(pid, root))
    began = time.monotonic()
    time.sleep(seconds)
    rows = []
    passed = time.monotonic() - began
    for tid, (ticks, state, name) in _thread_times(pid, root):
        share = 100 * (ticks - before.get(tid, (ticks, "", ""))[0]) / _TICKS / passed
        words = (str(tid), STATES.get(state, state), f"{share:.0f} %", f"{ticks / _TICKS:.2f} s", name)
        rows.append((ticks, share, words))
    rows.sort(key=lambda row: (-row[1], -row[0]))
    return [row[2] for row in rows]


def _thread_times(pid: int, root: str) -> Iterator[tuple[int, tuple[int, str, str]]]:
    for tid in sorted(map(int, os.listdir(f"{root}/{pid}/task")))[:_MOST_ITEMS]:
        process = read(tid, f"{root}/{pid}/task")
        if process is not None:
            yield tid, (round(process.cpu * _TICKS), process.state, process.name)


def files(pid: int, root: str = "/proc") -> list[tuple[str, ...]]:
    """Descriptor, how it is open, position, path.

    Raises:
        OSError: there is no such process, or it may not be read.
    """
    rows: list[tuple[str, ...]] = []
    for number, path in _descriptors(pid, root):
        if path.startswith("socket:["):
            continue
        position, mode = "", ""
        try:
            with open(f"{root}/{pid}/fdinfo/{number}", "rb") as file:
                info = dict(line.split(b":", 1) for line in file.read(_LONGEST).splitlines() if b":" in line)
            position = info.get(b"pos", b"").decode().strip()
            mode = ("read", "write", "both", "")[int(info.get(b"flags", b"3").strip() or b"3", 8) & 3]
        except (OSError, ValueError):
            pass  # closed meanwhile
        rows.append((str(number), mode, position, path))
    return rows


def _descriptors(pid: int, root: str) -> Iterator[tuple[int, str]]:
    folder = f"{root}/{pid}/fd"
    for number in sorted(map(int, os.listdir(folder)))[:_MOST_ITEMS]:
        try:
            yield number, os.readlink(f"{folder}/{number}")
        except OSError:
            continue


_TCP_STATES = (
    "", "ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT1", "FIN_WAIT2", "TIME_WAIT", "CLOSE", "CLOSE_WAIT",
    "LAST_ACK", "LISTEN", "CLOSING", "NEW_SYN_RECV",
)  # fmt: skip


def sockets(pid: int, root: str = "/proc") -> list[tuple[str, ...]]:
    """Descriptor, protocol, state, own address, other address; of local sockets their path.

    Raises:
        OSError: there is no such process, or it may not be read.
    """
    inodes = {path[8:-1]: number for number, path in _descriptors(pid, root) if path.startswith("socket:[")}
    rows: dict[int, tuple[str, ...]] = {}
    for protocol in ("tcp", "tcp6", "udp", "udp6"):
        for fields in _table(f"{root}/{pid}/net/{protocol}"):
            if len(fields) > 9 and fields[9] in inodes:
                number = int(fields[3], 16)
                state = _TCP_STATES[number] if protocol[:3] == "tcp" and number < len(_TCP_STATES) else ""
                rows[inodes[fields[9]]] = (protocol[:3].upper(), state, _address(fields[1]), _address(fields[2]))
    for fields in _table(f"{root}/{pid}/net/unix"):
        if len(fields) > 6 and fields[6] in inodes:
            state = "LISTEN" if fields[3] == "00010000" else ""
            rows[inodes[fields[6]]] = ("unix", state, " ".join(fields[7:]), "")
    others = {number: ("socket", "", "", "") for number in inodes.values() if number not in rows}
    return [(str(number), *row) for number, row in sorted({**rows, **others}.items())]


def _table(path: str) -> Iterator[list[str]]:
    try:
        with open(path, "rb") as file:
            data = file.read(_MOST_BYTES)
    except OSError:
        return
    for line in data.decode("utf-8", "surrogateescape").split("\n")[1:]:
        yield line.split()


def _address(text: str) -> str:
    """``0100007F:1F90`` as ``127.0.0.1:8080``: words of the host's byte order."""
    words, _, port = text.partition(":")
    data = b"".join(int(words[place : place + 8], 16).to_bytes(4, sys.byteorder) for place in range(0, len(words), 8))
    if len(data) == 4:
        host = socket.inet_ntop(socket.AF_INET, data)
    else:
        host = f"[{socket.inet_ntop(socket.AF_INET6, data)}]"
    return f"{host}:{int(port, 16) or '*'}"
