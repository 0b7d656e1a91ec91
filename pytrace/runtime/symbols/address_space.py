"""Executable mappings of processes, from ``/proc`` or as the kernel reports them, also of processes that have ended.

``/proc/PID/maps`` is gone when a process is; a process that lives for milliseconds is often gone before its first
stack is printed. The kernel reports each executable mapping, ``execve``, fork and exit to a perf event that asks for
it; a dummy event on each CPU carries these records and nothing else. Source: ``perf_event_open(2)``.
"""

from __future__ import annotations

import itertools
import mmap
import os
import struct
import time
from bisect import bisect_right
from collections import OrderedDict
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.abi import perf
from pytrace.runtime.host import procfs
from pytrace.runtime.host.procfs import Mapping
from pytrace.runtime.symbols.jit_dump import NAME, JitDump
from pytrace.runtime.symbols.perf_map import PerfMap

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytrace.runtime.host.procfs import Mapping

_RECHECK = 1.0
"""Seconds after which a process is asked again whether it still runs the same program."""
_REREAD = 0.05
"""Least seconds between two readings of a process's maps that a failed look-up asks for."""
_SERIALS = itertools.count()


class AddressSpace:
    """Executable mappings of one process.

    Rows are read from ``/proc``, or are added by :meth:`add` as the kernel reports them (:class:`MappingRecorder`), and
    stay when the process ends. *previous* is the address space before the last ``execve``.
    """

    def __init__(self, pid: int, text: bytes | None = None) -> None:
        self.pid = pid
        self.serial = next(_SERIALS)
        """Never the same for two programs, also when one process ran both or the number was given again."""
        self.root = procfs.root_prefix(pid)
        self.previous: AddressSpace | None = None
        self.ended = False
        self.perf_map = PerfMap(pid)
        self._begin = time.monotonic_ns()
        self._jit_dump: JitDump | None = None
        self._searched: list[Mapping] | None = None
        self._starts: list[int] = []
        self._rows: list[Mapping] = []
        self._unread = text
        self._identity = _identity(pid)
        self._read_at = self._checked_at = time.monotonic()

    @property
    def known(self) -> bool:
        """True if anything is known about the process's memory."""
        self._parse()
        return bool(self._rows)

    def find(self, address: int) -> Mapping | None:
        """The mapping that holds an address; maps are read again when none does."""
        self._parse()
        now = time.monotonic()
        if not self.ended and now - self._checked_at > _RECHECK:
            self._check(now)
        mapping = self._find(address)
        if mapping is None and not self.ended and (not self._rows or now - self._read_at > _REREAD):
            self.read()
            mapping = self._find(address)
        if mapping is None and self.previous is not None:
            mapping = self.previous._find(address)
        return mapping

    @property
    def jit_dump(self) -> JitDump | None:
        """The jitdump file whose marker the process has mapped."""
        if self._jit_dump is None and self._searched is not self._rows:
            self._searched = self._rows
            path = next((row.path for row in self._rows if NAME.search(row.path)), None)
            if path is not None:
                self._jit_dump = JitDump(self.root + path, self.perf_map.owners, self._begin)
        return self._jit_dump

    @property
    def mappings(self) -> list[Mapping]:
        """The mappings, in order of address."""
        self._parse()
        return self._rows

    def _find(self, address: int) -> Mapping | None:
        self._parse()
        at = bisect_right(self._starts, address) - 1
        return self._rows[at] if at >= 0 and address < self._rows[at].end else None

    def _parse(self) -> None:
        if self._unread is not None:
            text, self._unread = self._unread, None
            self._put(procfs.executable_mappings(text))

    def _put(self, rows: Iterable[Mapping]) -> None:
        self._rows = sorted(rows, key=lambda row: row.start)
        self._starts = [row.start for row in self._rows]

    def read(self) -> None:
        """Read ``/proc/PID/maps`` now; what is known stays when the process is gone."""
        self._read_at = time.monotonic()
        text = procfs.read_maps(self.pid)
        if text:
            self._unread = None
            self._put(procfs.executable_mappings(text))

    def _check(self, now: float) -> None:
        """A process may have called ``execve``, or ended and left its number to another one."""
        self._checked_at = now
        identity = _identity(self.pid)
        if identity and identity != self._identity:
            self._identity = identity
            self.start_program()
            self.read()

    # ---- as the kernel reports it

    def add(self, row: Mapping) -> None:
        """A new mapping; it replaces what it overlaps."""
        self._parse()
        kept = [old for old in self._rows if old.end <= row.start or old.start >= row.end]
        self._put([*kept, row])

    def start_program(self) -> None:
        """``execve``: the mappings so far belong to the program before."""
        self._parse()
        before = AddressSpace.__new__(AddressSpace)
        before.__dict__.update(self.__dict__)
        before.previous = None
        before.ended = True
        self.previous = before
        self._jit_dump = self._searched = None
        self.serial = next(_SERIALS)
        self._unread = None
        self._put(())

    def fork(self, pid: int) -> AddressSpace:
        """The address space of a new child process."""
        self._parse()
        child = AddressSpace(pid)
        child._put(self._rows)
        return child

    @property
    def program(self) -> Mapping | None:
        """The first mapped file, which is the program's own."""
        self._parse()
        return next((row for row in self._rows if row.inode), None)


def _identity(pid: int) -> tuple[int, int, str] | None:
    """Device and inode of the program of a process, and its start time; None when the process is gone."""
    try:
        status = os.stat(f"/proc/{pid}/exe")
        with open(f"/proc/{pid}/stat", "rb") as file:
            started = file.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return None
    return status.st_dev, status.st_ino, started


# ---------------------------------------------------------------------------------------------- records of the kernel


_SAMPLE_TIME = 1 << 2
_MMAP, _COMM, _TASK, _WATERMARK, _SAMPLE_ID_ALL, _MMAP2, _COMM_EXEC, _USE_CLOCKID = (
    1 << bit for bit in (8, 9, 13, 14, 18, 23, 24, 25)
)
_CLOCKID = 92
"""Offset of ``clockid`` in ``struct perf_event_attr``."""
_RECORD_LOST, _RECORD_COMM, _RECORD_EXIT, _RECORD_FORK, _RECORD_MMAP2 = 2, 3, 4, 7, 10
_MISC_EXEC = 1 << 13
_PROT_EXEC = 4
_HEAD, _TAIL = 1024, 1032
"""Offsets of ``data_head`` and ``data_tail`` in ``struct perf_event_mmap_page``."""
_PAGES = 64
KEPT_ENDED = 4096
"""How many ended processes are remembered."""


class _SidebandAttr(perf.EventAttr, frozen=True):
    """``struct perf_event_attr`` of an event that counts nothing and reports mappings and tasks."""

    watermark: int = _PAGES * mmap.PAGESIZE // 4
    """Bytes of records that wake the reader."""

    def pack(self) -> bytes:
        flags = _MMAP | _COMM | _TASK | _WATERMARK | _SAMPLE_ID_ALL | _MMAP2 | _COMM_EXEC | _USE_CLOCKID
        head = struct.pack(
            "=IIQQQQQI", self.type, perf.ATTR_SIZE, self.config, 0, _SAMPLE_TIME, 0, flags, self.watermark
        )  # fmt: skip
        clock = struct.pack("=i", time.CLOCK_MONOTONIC)
        return (head.ljust(_CLOCKID, b"\0") + clock).ljust(perf.ATTR_SIZE, b"\0")


class MappingRecorder:
    """Keeps an :class:`AddressSpace` for each process; :meth:`drain` reads what the kernel has reported since."""

    def __init__(self, pids: Iterable[int] | None = None, *, prompt: bool = False) -> None:
        """Start recording; what runs already is read from ``/proc`` (only *pids* when given).

        *prompt*: each record wakes the reader, and :attr:`changes` lists the events.

        Raises:
            TraceError: the kernel refuses the events.
        """
        self.spaces: OrderedDict[int, AddressSpace] = OrderedDict()
        self.lost = 0
        self.changes: list[tuple[str, int, int]] = []
        """Events (``map``, ``fork``, ``exec``, ``exit``), processes, and the parents of forked ones.

        Empty unless *prompt*.
        """
        self._prompt = prompt
        self._ended: OrderedDict[int, None] = OrderedDict()
        self._rings: dict[int, tuple[int, mmap.mmap]] = {}
        """Descriptor and ring by CPU."""
        self._early: list[tuple[int, int, int, bytes]] = []
        try:
            for cpu in perf.online_cpus():
                self._open(cpu)
        except OSError as error:
            self.close()
            raise TraceError(f"cannot record mappings of processes: {error.strerror}") from error
        # Events are on before the snapshot is taken, so nothing falls between the two.
        for pid in procfs.process_ids() if pids is None else pids:
            text = procfs.read_maps(pid)
            if text:
                self.spaces[pid] = AddressSpace(pid, text)

    def _open(self, cpu: int) -> int:
        attr = _SidebandAttr(perf.EventType.SOFTWARE, perf.SOFTWARE_DUMMY)
        if self._prompt:
            attr = replace(attr, watermark=1)
        descriptor = perf.open_event(attr, cpu=cpu)
        try:
            self._rings[cpu] = (descriptor, mmap.mmap(descriptor, (1 + _PAGES) * mmap.PAGESIZE))
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def _close(self, cpu: int) -> None:
        descriptor, ring = self._rings.pop(cpu)
        ring.close()
        os.close(descriptor)

    def renew(self, cpu: int) -> list[int]:
        """Record on a CPU that came online; the kernel ended what was recorded on it before. Returns its descriptor.

        It returns none if the kernel refuses: then processes that start there are known once they are looked up.
        """
        self.drain()
        if cpu in self._rings:
            self._close(cpu)
        try:
            return [self._open(cpu)]
        except OSError:
            return []

    @property
    def descriptors(self) -> list[int]:
        """Descriptors that become readable when there are records to drain."""
        return [descriptor for descriptor, _ in self._rings.values()]

    def close(self) -> None:
        """Stop recording; what is known stays."""
        for cpu in list(self._rings):
            self._close(cpu)

    def drain(self) -> None:
        """Read all records up to now, in the order of their times."""
        # While one ring is read a process may be forked there and start to run where the next ring is read: what is
        # newer than this moment waits for what came before it, and once only, should a namespace move our clock.
        until = max(time.monotonic_ns(), *(row[0] for row in self._early), 0)
        rows, self._early = self._early, []
        for _, ring in self._rings.values():
            rows += _records(ring)
        rows.sort(key=lambda row: row[0])
        for when, kind, misc, body in rows:
            if when > until:
                self._early.append((when, kind, misc, body))
                continue
            if kind == _RECORD_MMAP2:
                self._map(body)
            elif kind == _RECORD_FORK:
                self._fork(body)
            elif kind == _RECORD_EXIT:
                self._exit(body)
            elif kind == _RECORD_COMM and misc & _MISC_EXEC:
                self._exec(body)
            elif kind == _RECORD_LOST:
                self.lost += int(struct.unpack_from("=QQ", body)[1])

    def _note(self, what: str, pid: int, parent: int = 0) -> None:
        if self._prompt:
            self.changes.append((what, pid, parent))

    def _map(self, body: bytes) -> None:
        pid, _, start, length, offset, major, minor, inode, _, protection, _ = struct.unpack_from("=IIQQQIIQQII", body)
        if not protection & _PROT_EXEC:
            return
        self._note("map", pid)
        name = body[64 : body.index(b"\0", 64)].decode(errors="surrogateescape")
        path = "" if name == "//anon" else name.removesuffix(" (deleted)")
        space = self.spaces.get(pid)
        if space is None:
            space = self.spaces[pid] = AddressSpace(pid)
        space.add(Mapping(start, start + length, offset, os.makedev(major, minor), inode, path))

    def _fork(self, body: bytes) -> None:
        pid, parent = struct.unpack_from("=II", body)
        if pid == parent:
            # A new thread.
            return
        self._note("fork", pid, parent)
        known = self.spaces.get(parent)
        self.spaces[pid] = known.fork(pid) if known is not None else AddressSpace(pid)
        self._ended.pop(pid, None)

    def _exec(self, body: bytes) -> None:
        (pid,) = struct.unpack_from("=I", body)
        self._note("exec", pid)
        space = self.spaces.get(pid)
        if space is not None:
            space.start_program()

    def _exit(self, body: bytes) -> None:
        pid, _, thread, _ = struct.unpack_from("=IIII", body)
        if thread == pid:
            self._note("exit", pid)
        space = self.spaces.get(pid)
        if space is None or thread != pid:
            return
        space.ended = True
        self._ended[pid] = None
        while len(self._ended) > KEPT_ENDED:
            oldest, _ = self._ended.popitem(last=False)
            self.spaces.pop(oldest, None)


def _records(ring: mmap.mmap) -> Iterator[tuple[int, int, int, bytes]]:
    """``(time, type, misc, body)`` of the records in a ring, which are given back to the kernel."""
    (head,) = struct.unpack_from("=Q", ring, _HEAD)
    (tail,) = struct.unpack_from("=Q", ring, _TAIL)
    base, size = mmap.PAGESIZE, _PAGES * mmap.PAGESIZE
    while tail < head:
        at = tail % size
        kind, misc, length = struct.unpack_from("=IHH", ring, base + at)
        if at + length <= size:
            body = ring[base + at + 8 : base + at + length]
        else:
            # A record may run over the end of the ring.
            whole = ring[base + at : base + size] + ring[base : base + at + length - size]
            body = whole[8:]
        # With sample_id_all every record ends with the sampled fields, here the time alone.
        yield struct.unpack_from("=Q", body, len(body) - 8)[0], kind, misc, body
        tail += length
    struct.pack_into("=Q", ring, _TAIL, head)
