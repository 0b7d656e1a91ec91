"""Processes as ``/proc`` shows them: what they have mapped, and how their files are reached from here."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress

import msgspec

from pytrace.base import kernel_files
from pytrace.core.diagnostics import TraceError
from pytrace.core.options import FORKED_ONLY

_LINE = re.compile(
    rb"(?m)^([0-9a-f]{1,16})-([0-9a-f]{1,16}) \S(?P<write>\S)(?P<execute>\S)\S "
    rb"([0-9a-f]{1,16}) ([0-9a-f]{1,3}):([0-9a-f]{1,5}) (\d{1,20})[ \t]*(.*)$"
)
"""Numbers are as long as the kernel's, of which device numbers have 12 and 20 bits (``show_vma_header_prefix``)."""

_TICKS = os.sysconf("SC_CLK_TCK")

_IN_ROOT = re.compile(r"/proc/\d+/root(?=/)")
_MOST_LINKS = 40
"""Symbolic links in one path, at most (``MAXSYMLINKS`` of include/linux/namei.h)."""


class Mapping(msgspec.Struct, frozen=True):
    """One range of an address space. *offset* is the file position of its start."""

    start: int
    end: int
    offset: int
    device: int
    inode: int
    path: str


def executable_mappings(text: bytes) -> list[Mapping]:
    """The executable rows of a ``/proc/PID/maps`` text, in order of address."""
    return _mappings(text, "execute", b"x")


def writable_mappings(text: bytes) -> list[Mapping]:
    """The writable rows of a ``/proc/PID/maps`` text, in order of address."""
    return _mappings(text, "write", b"w")


def file_mappings(text: bytes) -> list[Mapping]:
    """The rows of files of a ``/proc/PID/maps`` text, whatever their rights, in order of address."""
    rows = _mappings(text, "execute", b"x") + _mappings(text, "execute", b"-")
    return sorted((row for row in rows if row.inode), key=lambda row: row.start)


def _mappings(text: bytes, right: str, letter: bytes) -> list[Mapping]:
    mappings = []
    for match in _LINE.finditer(text):
        if match[right] == letter:
            start, end, _, _, offset, major, minor, inode, path = match.groups()
            device = os.makedev(int(major, 16), int(minor, 16))
            name = sys.intern(path.decode(errors="surrogateescape").removesuffix(" (deleted)"))
            mappings.append(Mapping(int(start, 16), int(end, 16), int(offset, 16), device, int(inode), name))
    return mappings


MOST_MAPS = 32 << 20
"""Bytes of ``/proc/PID/maps`` that are read: 300,000 usual rows. A process may have 65,530 with paths of 16 kB."""


def read_maps(pid: int) -> bytes:
    """The first :data:`MOST_MAPS` of ``/proc/PID/maps``; empty for a process that is gone or has no user memory.

    Where the first thread has ended, and others go on, the process has its memory by these alone.
    """
    try:
        if text := _maps(f"{pid}"):
            return text
        thread = live_thread(pid)
        return b"" if thread in (0, pid) else _maps(f"{pid}/task/{thread}")
    except OSError:
        return b""


def _maps(process: str) -> bytes:
    with open(f"/proc/{process}/maps", "rb") as file:
        text = file.read(_USUAL)
        if len(text) == _USUAL:
            text += file.read(MOST_MAPS - _USUAL)
    # The last row may be cut.
    return text if len(text) < MOST_MAPS else text[: text.rfind(b"\n") + 1]


_USUAL = 1 << 17
"""Bytes for which room is made at first."""


def is_cut(text: bytes) -> bool:
    """True if maps that were read are not all that the process has."""
    return len(text) > MOST_MAPS - _LONGEST_ROW


_LONGEST_ROW = 1 << 15
"""Bytes of a row, more than those of a path with all of its characters escaped."""
_EXITING = 0x4
"""``PF_EXITING`` of the kernel's flags."""


def live_thread(pid: int) -> int:
    """A thread of a process that has not ended, or begun to: the first one, if that has not; 0 where there is none."""
    try:
        threads = sorted(map(int, os.listdir(f"/proc/{pid}/task")), key=lambda thread: (thread != pid, thread))
    except (OSError, ValueError):
        return 0
    for thread in threads:
        statistics = kernel_files.statistics(f"{pid}/task/{thread}")
        if statistics and statistics.state not in kernel_files.ENDED and not statistics.flags & _EXITING:
            return thread
    return 0


def children(pid: int) -> list[int]:
    """Child processes that a process has now; empty where the kernel does not list them (``CONFIG_PROC_CHILDREN``)."""
    found: set[int] = set()
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found.update(map(int, file.read().split()))
    return sorted(found)


def has_executed(pid: int) -> bool:
    """Whether a process has executed a program since it was forked; true of one that is gone."""
    statistics = kernel_files.statistics(pid)
    return statistics is None or not statistics.flags & FORKED_ONLY


def waited_for_children(pid: int) -> bool:
    """Whether a process, which may have ended, has waited for one of its children: they had page faults."""
    statistics = kernel_files.statistics(pid)
    return statistics is not None and statistics.faults_of_children > 0


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used so far; 0 of one that is gone."""
    statistics = kernel_files.statistics(pid)
    return statistics.ticks / _TICKS if statistics else 0


def ancestors(pid: int) -> list[int]:
    """The parent of a process, its parent, and so on, as far as they are visible."""
    found: list[int] = []
    while pid and pid not in found[:-1] and (statistics := kernel_files.statistics(pid)):
        pid = statistics.parent
        found.append(pid)
    return [pid for pid in found if pid]


def process_ids() -> list[int]:
    """All processes now."""
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())


def root_prefix(pid: int) -> str:
    """The prefix by which paths of a process are reached from here; empty when it shares our mount namespace."""
    try:
        if os.readlink(f"/proc/{pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt"):
            return "" if os.readlink(f"/proc/{pid}/root") == "/" else f"/proc/{pid}/root"
    except OSError:
        other = entry(pid)
        return root_prefix(other) if other != pid else ""
    return f"/proc/{pid}/root"


def entry(pid: int) -> int:
    """The number of the entry of ``/proc`` that has a process's files, root and mapped files.

    Where the first thread has ended, and others go on, that is one of these: each has an entry, too.
    """
    return live_thread(pid) or pid


def resolved(path: str) -> tuple[str, str]:
    """A path without symbolic links, in two parts: ``/proc/PID/root`` (or empty), and the path below that.

    ``os.path.realpath`` resolves ``/proc/PID/root`` too, and returns a path of our own mount namespace.
    """
    match = _IN_ROOT.match(path)
    if match is None:
        return "", os.path.realpath(path)
    root, inside, links = match[0], "", 0
    waiting = path[match.end() :].split("/")[::-1]
    while waiting:
        part = waiting.pop()
        if part == "..":
            inside = inside.rpartition("/")[0]
        elif part not in {"", "."}:
            target = _link(f"{root}{inside}/{part}") if links < _MOST_LINKS else ""
            links += bool(target)
            inside = "" if target.startswith("/") else inside if target else f"{inside}/{part}"
            waiting += target.split("/")[::-1]
    return root, inside


def normalized(path: str) -> str:
    """A path without ``..`` and ``.``, as text (``os.path.normpath``); one below ``/proc/PID/root`` stays below it."""
    match = _IN_ROOT.match(path)
    if match is None:
        return os.path.normpath(path)
    # Two slashes at the beginning stay.
    return match[0] + os.path.normpath(path[match.end() :]).replace("//", "/", 1)


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def executable(pid: int) -> str:
    """Path of the program that a process runs, as it is reached from here; empty when it is not known."""
    try:
        return root_prefix(pid) + os.readlink(f"/proc/{entry(pid)}/exe").removesuffix(" (deleted)")
    except OSError:
        return ""


def leader(tid: int) -> int | None:
    """The process of a thread (``Tgid`` of ``/proc/TID/status``, proc(5)); None when there is no such thread."""
    try:
        with open(f"/proc/{tid}/status", encoding="utf-8", errors="replace") as status:
            return next((int(line.split()[1]) for line in status if line.startswith("Tgid:")), None)
    except OSError:
        return None


def check_exists(pid: int) -> None:
    """Refuse a process that does not exist.

    Raises:
        TraceError: there is none of that number.
    """
    if not os.path.exists(f"/proc/{pid}"):
        raise TraceError(f"there is no process {pid}")


def check_traceable(pid: int) -> None:
    """Refuse what is no process that can be traced from now on: no process, a thread, a zombie.

    Raises:
        TraceError: with what it is.
    """
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    except OSError:
        check_exists(pid)
        return
    if (leader_ := int(status.get("Tgid", pid))) != pid:
        hint = f"-p {leader_} traces its process; the predicate /tid == {pid}/ selects the thread"
        raise TraceError(f"{pid} is a thread of process {leader_}, and -p takes a process", hints=(hint,))
    # The first thread of a process whose others run on is a zombie, too (pthread_exit in main).
    if status.get("State", "").startswith("Z") and status.get("Threads") in ("0", "1"):
        hint = f"its parent, process {status.get('PPid')}, has not waited for it yet"
        raise TraceError(f"process {pid} has ended: it is a zombie", hints=(hint,))


def mapped_files(pid: int) -> list[str]:
    """Files that a process has mapped to execute, as they are reached from here."""
    prefix = root_prefix(pid)
    paths = dict.fromkeys(mapping.path for mapping in executable_mappings(read_maps(pid)) if mapping.inode)
    return [prefix + path for path in paths if path.startswith("/")]
