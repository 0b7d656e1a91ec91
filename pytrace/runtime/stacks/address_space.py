"""Executable mappings of processes, from ``/proc`` or as the kernel reports them, also of processes that have ended.

``/proc/PID/maps`` is gone when a process is; a process that lives for milliseconds is often gone before its first
stack is printed. The kernel reports each executable mapping, ``execve``, fork and exit to a perf event that asks for
it; an event on each CPU carries these records and nothing else. Source: ``perf_event_open(2)``.

An address belongs to a mapping of a time: a process executes another program, or unloads a library, and other code
comes to the same addresses. So stacks and symbols have more than a process id where that has happened: the number of an
:class:`Image` (``codegen.walkers.memory_images``), whose beginning programs report through the same events, in the
order of the kernel's records. Mappings have a begin and an end in the clock of the records, ``CLOCK_MONOTONIC``.
"""

from __future__ import annotations

import copy
import itertools
import mmap
import os
import re
import struct
import sys
import time
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from pytrace.base import kernel_files
from pytrace.core.diagnostics import TraceError
from pytrace.core.stack_formats import FIRST_IMAGE, REPORT_SIZE, ImageChange
from pytrace.runtime.machine import bpf, perf, procfs
from pytrace.runtime.machine.procfs import Mapping
from pytrace.runtime.machine.syscalls import file_facts
from pytrace.runtime.stacks.compiled_code import JitDump, PerfMap
from pytrace.runtime.stacks.image_places import is_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


_RECHECK = 1.0
"""Seconds after which a process is asked again whether it still runs the same program."""
_REREAD, _SHARE = 0.05, 20
"""Least seconds between two readings of a process's maps that a failed look-up asks for, and multiple of the time that
the last one took: a process with very many mappings costs a twentieth of this one's time."""
_AT_ONCE = 1 << 20
"""Bytes of maps from which on they are parsed at once: the texts of all processes are kept until one is asked about,
and that of a hostile process has 32 MB."""
_SERIALS = itertools.count()
KEPT_PAST, KEPT_PAST_ENDED = 1 << 16, 1 << 19
"""Mappings of one process that are remembered after their end, the last ones; those of all processes that ended."""
_OF_THE_KERNEL = ("[vdso]", "[vsyscall]")
NEVER = 1 << 63
"""The end of what has not ended."""


JIT_DUMP_NAME = re.compile(r"(?:^|/)jit-\d+\.dump$")
"""The name of the file in a process's mappings."""


class _Past(msgspec.Struct, frozen=True, gc=False):
    """A mapping that is gone."""

    mapping: Mapping
    begin: int
    end: int


def _origin(row: Mapping) -> tuple[object, ...]:
    """What is the same for mappings in which an address has the same name: file and position, or that it has none."""
    if not row.inode:
        return (row.path,)
    return row.device, row.inode, row.offset - row.start


def _compiles(row: Mapping) -> bool:
    """True if code in a mapping may have names that the process wrote."""
    return not is_file(row) and row.path not in _OF_THE_KERNEL


def _piece(row: Mapping, start: int, end: int) -> Mapping:
    return replace(row, start=start, end=end, offset=row.offset + (start - row.start if row.inode else 0))


class AddressSpace:
    """Executable mappings of one program of a process.

    Rows are read from ``/proc``, or are added by :meth:`add` as the kernel reports them (:class:`MappingRecorder`), and
    stay when the process ends. *previous* is the address space before the last ``execve``. *exact*: programs report
    what is unmapped, so what has been mapped is known for any time.
    """

    __slots__ = (
        "_begin",
        "_begins",
        "_checked_at",
        "_dump_path",
        "_identity",
        "_jit_dump",
        "_longest",
        "_past",
        "_past_starts",
        "_read_at",
        "_rest",
        "_rows",
        "_starts",
        "_unread",
        "cut",
        "ended",
        "exact",
        "past",
        "perf_map",
        "pid",
        "previous",
        "root",
        "serial",
    )

    def __init__(self, pid: int, text: bytes | None = None) -> None:
        self.pid = pid
        self.exact = False
        self.serial = next(_SERIALS)
        """Never the same for two programs, also when one process ran both or the number was given again."""
        self.root = procfs.root_prefix(pid)
        self.previous: AddressSpace | None = None
        self.ended = False
        # Of a process that begins there is nothing to read until it compiles code: most never do, and looking for its
        # file takes longer than all else here, at each fork on the machine.
        self.perf_map = PerfMap(pid) if text is not None else None
        """Names of code that the process compiled; None where no such code is known, also after the end."""
        self._begin = time.monotonic_ns()
        self._jit_dump: JitDump | None = None
        self._dump_path = ""
        """The jitdump file that the process has mapped."""
        self.cut = False
        """True if it has more mappings than are read."""
        self._starts: list[int] = []
        self._rows: list[Mapping] = []
        self._begins: dict[int, int] = {}
        """When rows were mapped, by their starts; rows that were there before they were looked at are missing."""
        self._past: dict[int, list[_Past]] = {}
        """Rows that are gone, by their starts, in the order in which they went."""
        self._past_starts: list[int] = []
        self._longest = 0
        self.past = 0
        """Number of the rows that are gone."""
        self._identity = _identity(pid)
        self._read_at = self._checked_at = time.monotonic()
        self._rest = _REREAD
        """Seconds until maps are read again at the earliest."""
        self._unread = text
        if text is not None and len(text) > _AT_ONCE:
            self._parse()

    @property
    def known(self) -> bool:
        """True if anything is known about the process's memory."""
        self._parse()
        return bool(self._rows or self._past)

    def find(self, address: int) -> Mapping | None:
        """The mapping that holds an address; maps are read again when none does."""
        self._parse()
        now = time.monotonic()
        if not self.ended and now - self._checked_at > _RECHECK:
            self._check(now)
        mapping = self._find(address)
        if mapping is None and not self.ended and (not self._rows or now - self._read_at > self._rest):
            self.read()
            mapping = self._find(address)
        if mapping is None and self.previous is not None:
            mapping = self.previous._find(address)
        return mapping

    def find_within(self, address: int, since: int, until: int) -> list[Mapping]:
        """The mappings of different origin that held an address at some moment after *since* and before *until*."""
        self._parse()
        found: list[Mapping] = []
        live = self._find(address)
        if live is not None and self._begins.get(live.start, 0) <= until:
            found.append(live)
        at = bisect_right(self._past_starts, address)
        while at > 0 and self._past_starts[at - 1] > address - self._longest:
            at -= 1
            gone = self._past[self._past_starts[at]]
            for past in gone[bisect_right(gone, since, key=lambda row: row.end) :]:
                if past.begin > until:
                    break
                if address < past.mapping.end:
                    found.append(past.mapping)
        return list({_origin(row): row for row in found}.values()) if len(found) > 1 else found

    @property
    def jit_dump(self) -> JitDump | None:
        """The jitdump file whose marker the process has mapped."""
        self._parse()
        if self._jit_dump is None and self._dump_path and self.perf_map is not None:
            self._jit_dump = JitDump(self.root + self._dump_path, self.perf_map.owners, self._begin)
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
            self.cut = procfs.is_cut(text)
            self._put(procfs.executable_mappings(text))

    def _put(self, rows: Iterable[Mapping]) -> None:
        self._rows = sorted(rows, key=lambda row: row.start)
        self._starts = [row.start for row in self._rows]
        for row in self._rows:
            self._look_for_names(row)

    def _look_for_names(self, row: Mapping) -> None:
        if row.path.endswith(".dump") and not self._dump_path and JIT_DUMP_NAME.search(row.path):
            self._dump_path = row.path
        if self.perf_map is None and (self._dump_path or _compiles(row)):
            self.perf_map = PerfMap(self.pid)

    def _overlapped(self, start: int, end: int) -> tuple[int, int]:
        """Rows in an area: the number of the first one, and of the first one after it."""
        first = bisect_right(self._starts, start) - 1
        if first < 0 or self._rows[first].end <= start:
            first += 1
        return first, bisect_left(self._starts, end, lo=first)

    def _replace(self, first: int, last: int, rows: list[Mapping]) -> None:
        """Put rows in place of others. The lists are new ones, as forked processes have the old ones."""
        self._rows = [*self._rows[:first], *rows, *self._rows[last:]]
        self._starts = [*self._starts[:first], *(row.start for row in rows), *self._starts[last:]]

    def maps_text(self) -> bytes:
        """``/proc/PID/maps`` now; empty if the process is gone, and for some time after the last reading."""
        now = time.monotonic()
        if now - self._read_at < self._rest and self._rest > _REREAD:
            return b""
        text = procfs.read_maps(self.pid)
        self._read_at = time.monotonic()
        self._rest = max(_REREAD, _SHARE * (self._read_at - now))
        return text

    def read(self) -> None:
        """Read ``/proc/PID/maps`` now; what is known stays when the process is gone."""
        text = self.maps_text()
        if text:
            self._unread = text
            self._parse()

    def reread(self, lasts: Callable[[], bool]) -> bool:
        """Add what is mapped now and was not known, if the image *lasts* after that; not a moment after the last time.

        What is gone is ended by reports only.
        """
        if time.monotonic() - self._read_at < self._rest:
            return False
        text = self.maps_text()
        if not text or not lasts():
            return False
        self._parse()
        for row in procfs.executable_mappings(text):
            first, last = self._overlapped(row.start, row.end)
            if first == last:
                self._replace(first, last, [row])
                self._look_for_names(row)
        return True

    def _check(self, now: float) -> None:
        """A process may have called ``execve``, or ended and left its number to another one."""
        self._checked_at = now
        identity = _identity(self.pid)
        if identity and identity != self._identity:
            self._identity = identity
            self.start_program()
            self.read()

    # ---- as the kernel reports it

    def add(self, row: Mapping, when: int = 0) -> None:
        """A new mapping; it replaces what it overlaps."""
        self._parse()
        old = self._find(row.start)
        if old is not None and old.end >= row.end and _origin(old) == _origin(row) and old.path == row.path:
            return  # mprotect(2) of a part, or of all
        if self.exact:
            self.unmap(row.start, row.end, when)
        self._replace(*self._overlapped(row.start, row.end), [row])
        self._look_for_names(row)
        if when:
            self._begins[row.start] = when

    def unmap(self, start: int, end: int, when: int, since: int = NEVER) -> None:
        """Nothing is mapped from *start* to *end* any more, except what was mapped later than *since*."""
        self._parse()
        kept: list[Mapping] = []
        first, last = self._overlapped(start, end)
        for row in self._rows[first:last]:
            begin = self._begins.get(row.start, 0)
            if begin > since:
                kept.append(row)
                continue
            self._begins.pop(row.start, None)
            self._bury(_Past(_piece(row, max(row.start, start), min(row.end, end)), begin, when))
            for part in ((row.start, start), (end, row.end)):
                if part[0] < part[1]:
                    kept.append(_piece(row, *part))
                    self._begins[part[0]] = begin
        if kept != self._rows[first:last]:
            self._replace(first, last, kept)

    def move(self, start: int, length: int, target: int, new_length: int, when: int) -> None:
        """``mremap(2)``: *length* bytes from *start* on are at *target* now, and *new_length* bytes long."""
        self._parse()
        moved = [
            replace(_piece(row, max(row.start, start), min(row.end, start + length)))
            for row in self._rows[slice(*self._overlapped(start, start + length))]
        ]  # fmt: skip
        self.unmap(start, start + length, when)
        self.unmap(target, target + new_length, when)
        for row in moved:
            at = row.start - start + target
            end = min(row.end - start + target, target + new_length)
            if end == at + row.end - row.start and row.end == start + length:
                end = target + new_length
            if at < end:
                self.add(replace(row, start=at, end=end), when)

    def _bury(self, past: _Past) -> None:
        start = past.mapping.start
        if start not in self._past:
            self._past[start] = []
            insort(self._past_starts, start)
        self._past[start].append(past)
        self._longest = max(self._longest, past.mapping.end - start)
        self.past += 1
        if self.past > KEPT_PAST:
            self._forget_past()

    def _forget_past(self) -> None:
        """Forget the half of the rows that went first."""
        ends = sorted(past.end for rows in self._past.values() for past in rows)
        before = ends[len(ends) // 2]
        rows_left = {start: [past for past in rows if past.end > before] for start, rows in self._past.items()}
        self._past = {start: rows for start, rows in rows_left.items() if rows}
        self._past_starts = sorted(self._past)
        self.past = sum(map(len, self._past.values()))
        lengths = (past.mapping.end - past.mapping.start for rows in self._past.values() for past in rows)
        self._longest = max(lengths, default=0)

    def start_program(self) -> None:
        """``execve``: the mappings so far belong to the program before."""
        self._parse()
        before = copy.copy(self)
        self.root = procfs.root_prefix(self.pid) or self.root
        before.previous = None
        before.end()
        self.previous = before
        self._jit_dump, self._dump_path = None, ""
        self.serial = next(_SERIALS)
        self._unread = None
        self._put(())

    def program_after(self, when: int) -> AddressSpace:
        """The address space of the next program of the process, which begins at *when*: nothing is mapped yet."""
        after = copy.copy(self)
        # A container is a process of the host until it has made its namespace, before its program begins.
        after.root = procfs.root_prefix(self.pid) or self.root
        after.serial = next(_SERIALS)
        after.previous = after._jit_dump = after._unread = None
        after._dump_path, after.past, after._rest, after.cut = "", 0, _REREAD, False
        after.ended = False
        after._starts, after._rows, after._begins = [], [], {}
        after._past, after._past_starts, after._longest = {}, [], 0
        after._begin = when
        after._read_at = after._checked_at = 0.0
        return after

    def fork(self, pid: int) -> AddressSpace:
        """The address space of a new child process."""
        self._parse()
        child = AddressSpace(pid)
        # Nobody changes these lists: what is mapped later makes others.
        child._rows, child._starts, child._dump_path = self._rows, self._starts, self._dump_path
        if self._dump_path or any(map(_compiles, self._rows)):
            child.perf_map = PerfMap(pid)
        return child

    def end(self) -> None:
        """The program is over. What only a running one needs is forgotten: thousands that ended are remembered."""
        self.ended = True
        self._identity = None
        past = (row.mapping for rows in self._past.values() for row in rows)
        if self._unread is None and self._jit_dump is None and not any(map(_compiles, (*self._rows, *past))):
            self.perf_map = None

    @property
    def program(self) -> Mapping | None:
        """The first mapped file, which is the program's own."""
        self._parse()
        return next((row for row in self._rows if row.inode), None)


class Image(msgspec.Struct, eq=False):
    """A program and the code that it has mapped, as stacks and symbols name it: see ``codegen.walkers.memory_images``.

    It lasts from *since* to *until*. *others* are the images of earlier processes of the same number; *unsure*: the
    tracer could not tell it from the next one.
    """

    space: AddressSpace
    since: int = 0
    until: int = NEVER
    unsure: bool = False
    others: tuple[Image, ...] = ()
    reread: Callable[[Image], bool] | None = None
    """Reads what is mapped now, if the image lasts; True if it does."""

    def find(self, address: int) -> Mapping | None:
        """The mapping that held an address; None if there was none, or if it is not known which of several."""
        if not self.space.exact:
            return self.space.find(address)
        if self.unsure:
            return None
        found = self.space.find_within(address, self.since, self.until)
        if not found and self.reread is not None and self.reread(self):
            found = self.space.find_within(address, self.since, self.until)
        for other in self.others:
            found += other.space.find_within(address, other.since, other.until)
        if len(found) > 1 and len({_origin(row) for row in found}) > 1:
            return None
        return found[0] if found else None


def _identity(pid: int) -> tuple[int, int, int] | None:
    """Device and inode of the program of a process, and its start time; None when the process is gone."""
    try:
        # Its file system may not answer.
        facts = file_facts(path=f"/proc/{procfs.entry(pid)}/exe")
    except OSError:
        return None
    statistics = kernel_files.statistics(pid)
    return (facts.device, facts.inode, statistics.start) if statistics else None


# ---------------------------------------------------------------------------------------------- records of the kernel


_SAMPLE_TIME = 1 << 2
_SAMPLE_RAW = 1 << 10
_MMAP, _COMM, _TASK, _WATERMARK, _SAMPLE_ID_ALL, _MMAP2, _COMM_EXEC, _USE_CLOCKID = (
    1 << bit for bit in (8, 9, 13, 14, 18, 23, 24, 25)
)
_CLOCKID = 92
"""Offset of ``clockid`` in ``struct perf_event_attr``."""
_RECORD_LOST, _RECORD_COMM, _RECORD_EXIT, _RECORD_FORK, _RECORD_SAMPLE, _RECORD_MMAP2 = 2, 3, 4, 7, 9, 10
_MISC_EXEC = 1 << 13
_PROT_EXEC = 4
_HEAD, _TAIL = 1024, 1032
"""Offsets of ``data_head`` and ``data_tail`` in ``struct perf_event_mmap_page``."""
_LEAST_PAGES, _MOST_PAGES, _ALL_PAGES = 64, 512, 4096
"""Pages of a ring, and of all together: 10,000 records a second (a build that starts 1,000 processes) fill 64 pages
within a third of a second, and on a busy machine the tracer may have to wait longer for a processor."""
_WAKE = 16 * mmap.PAGESIZE
"""Bytes of records that wake the reader."""
KEPT_ENDED = 1 << 13
"""How many ended processes are remembered, with their images: 2 kB for one that a shell has started."""
_SWEPT = 1 << 10
"""Ended processes that are forgotten before the images of all of them are, and running ones before their ends are
looked for."""
_KEPT_OTHERS = 8
"""How many earlier processes of a number are remembered."""
_KEPT_IMAGES = 1 << 15
"""How many images are remembered: the last ones."""
_MEMORY_FILE = "/memfd:"
_MOST_FLEETING = 256
"""Mappings that are looked at after one reading of records, as long as their processes run."""
_LOOK = 1.0
"""Least seconds between two looks at what processes have mapped after records were lost."""


class _SidebandAttr(perf.EventAttr, frozen=True):
    """``struct perf_event_attr`` of an event that counts nothing and reports mappings and tasks."""

    watermark: int = _WAKE
    sample: int = _SAMPLE_TIME

    def pack(self) -> bytes:
        flags = _MMAP | _COMM | _TASK | _WATERMARK | _SAMPLE_ID_ALL | _MMAP2 | _COMM_EXEC | _USE_CLOCKID
        head = struct.pack(
            "=IIQQQQQI", self.type, perf.ATTR_SIZE, self.config, 0, self.sample, 0, flags, self.watermark
        )  # fmt: skip
        clock = struct.pack("=i", time.CLOCK_MONOTONIC)
        return (head.ljust(_CLOCKID, b"\0") + clock).ljust(perf.ATTR_SIZE, b"\0")


class MappingRecorder:
    """Keeps an :class:`AddressSpace` for each process; :meth:`drain` reads what the kernel has reported since."""

    def __init__(
        self, pids: Iterable[int] | None = None, *, prompt: bool = False, images: tuple[int, int] | None = None
    ) -> None:
        """Start recording; what runs already is read from ``/proc`` (only *pids* when given).

        *prompt*: each record wakes the reader, and :attr:`changes` lists the events. *images* are descriptors of the
        maps of images, and of the array of perf events through which programs report them; None if they do not.

        Raises:
            TraceError: the kernel refuses the events.
        """
        self.spaces: OrderedDict[int, AddressSpace] = OrderedDict()
        self.lost = 0
        self.without_room = 0
        """How often a process got no image, as there were too many."""
        self._table, self._reports = images or (-1, -1)
        self._exact = images is not None
        self._images: OrderedDict[int, Image] = OrderedDict()
        self._first: dict[int, Image] = {}
        """By process, the image in which it has no other number than its own; it knows those of earlier processes."""
        self._latest: dict[int, Image] = {}
        self._executed: dict[int, tuple[int, AddressSpace]] = {}
        """Processes that execute another program, since when, and its mappings; the report of its image comes last."""
        self._attached = NEVER
        self._looked_at_loss, self._looked = 0, 0.0
        self._over = False
        self._unknown: set[int] = set()
        """Processes that were looked for after the end."""
        self.changes: list[tuple[str, int, int]] = []
        """Events (``map``, ``fork``, ``exec``, ``exit``), processes, and the parents of forked ones.

        Empty unless *prompt*.
        """
        self._fleeting: list[tuple[AddressSpace, Mapping]] = []
        self._compiling: dict[int, AddressSpace] = {}
        self._passing: list[tuple[AddressSpace, Mapping]] = []
        self._prompt = prompt
        self._ended: OrderedDict[int, int] = OrderedDict()
        """Processes that ended, and how many mappings of each are remembered that had gone before."""
        self._past_of_ended = 0
        self._forgotten = 0
        """Processes that were forgotten since images were looked through."""
        self._most_running = _SWEPT
        """Processes that seem to run at which it is looked for ends that were not reported."""
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
                space = self._begin(pid, AddressSpace(pid, text), 0)
                if _MEMORY_FILE.encode() in text:
                    self._fleeting += [(space, row) for row in space.mappings if row.path.startswith(_MEMORY_FILE)]
        del self._fleeting[_MOST_FLEETING:]

    def _open(self, cpu: int) -> int:
        attr = _SidebandAttr(perf.EventType.SOFTWARE, perf.SOFTWARE_DUMMY)
        if self._exact:
            attr = replace(attr, config=perf.SOFTWARE_BPF_OUTPUT, sample=_SAMPLE_TIME | _SAMPLE_RAW)
        if self._prompt:
            attr = replace(attr, watermark=1)
        descriptor = perf.open_event(attr, cpu=cpu)
        try:
            self._rings[cpu] = (descriptor, _mapped(descriptor))
        except OSError:
            os.close(descriptor)
            raise
        if self._exact:
            bpf.map_update(self._reports, struct.pack("=I", cpu), struct.pack("=i", descriptor))
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
                self._map(body, when)
            elif kind == _RECORD_FORK:
                self._fork(body, when)
            elif kind == _RECORD_SAMPLE:
                self._report(body, when)
            elif kind == _RECORD_EXIT:
                self._exit(body)
            elif kind == _RECORD_COMM and misc & _MISC_EXEC:
                self._exec(body, when)
            elif kind == _RECORD_LOST:
                self.lost += int(struct.unpack_from("=QQ", body)[1])

    def _note(self, what: str, pid: int, parent: int = 0) -> None:
        if self._prompt:
            self.changes.append((what, pid, parent))

    def _begin(self, pid: int, space: AddressSpace, when: int) -> AddressSpace:
        """A process begins, or is met first."""
        space.exact = self._exact
        self.spaces[pid] = space
        if len(self.spaces) - len(self._ended) > self._most_running:
            self._find_ended(pid)
        image = Image(space, when, reread=self._reread)
        before = self._first.get(pid)
        if before is not None:
            others = (*before.others, before)
            latest = self._latest[pid]
            latest.until = before.until = min(before.until, when)
            before.others = ()
            image.others = others[-_KEPT_OTHERS:]
        self._executed.pop(pid, None)
        self._first[pid] = self._latest[pid] = image
        return space

    def _map(self, body: bytes, when: int) -> None:
        pid, _, start, length, offset, major, minor, inode, _, protection, _ = struct.unpack_from("=IIQQQIIQQII", body)
        if not protection & _PROT_EXEC:
            return
        self._note("map", pid)
        name = body[64 : body.index(b"\0", 64)].decode(errors="surrogateescape")
        # Thousands of processes have mapped the same files: their names are in memory once.
        path = "" if name == "//anon" else sys.intern(name.removesuffix(" (deleted)"))
        space = self.spaces.get(pid)
        if space is None:
            space = self._begin(pid, AddressSpace(pid), when)
        row = Mapping(start, start + length, offset, os.makedev(major, minor), inode, path)
        over = not inode and any(old.inode for old in space.find_within(start, 0, NEVER))
        space.add(row, when)
        if (over or path.startswith(_MEMORY_FILE)) and len(self._fleeting) < _MOST_FLEETING:
            self._fleeting.append((space, row))
        elif space.root and inode and len(self._passing) < _MOST_FLEETING:
            self._passing.append((space, row))
        if _compiles(row) and len(self._compiling) < _MOST_FLEETING:
            self._compiling[pid] = space

    def take_compiling(self) -> list[AddressSpace]:
        """Processes that have mapped memory for code without a file since the last call."""
        taken = list(self._compiling.values())
        self._compiling.clear()
        return taken

    def take_passing(self) -> list[tuple[AddressSpace, Mapping]]:
        """Files that processes with another root have mapped since the last call: they are reached while these run."""
        taken, self._passing = self._passing, []
        return taken

    def take_fleeting(self) -> list[tuple[AddressSpace, Mapping]]:
        """Mappings since the last call of which only ``/proc`` can tell what they are: of files by ``memfd_create(2)``,
        and of anonymous memory where a file was mapped.
        """
        taken, self._fleeting = self._fleeting, []
        return taken[:_MOST_FLEETING]

    def _fork(self, body: bytes, when: int) -> None:
        pid, parent = struct.unpack_from("=II", body)
        if pid == parent:
            # A new thread.
            return
        self._note("fork", pid, parent)
        known = self.spaces.get(parent)
        self._begin(pid, known.fork(pid) if known is not None else AddressSpace(pid), when)
        self._past_of_ended -= self._ended.pop(pid, 0)

    def _exec(self, body: bytes, when: int) -> None:
        (pid,) = struct.unpack_from("=I", body)
        self._note("exec", pid)
        space = self.spaces.get(pid)
        if space is None:
            return
        if not self._exact:
            space.start_program()
            return
        self._settle(pid)
        # Until its image is reported stacks are those of the program before.
        program = self.spaces[pid] = space.program_after(when)
        space.end()
        self._executed[pid] = when, program

    # ---- images

    def attached(self) -> None:
        """From now on programs report images."""
        self._attached = time.monotonic_ns()

    def image(self, process: int) -> Image | None:
        """The image of a process, or of its number in stacks and symbols; None if it is not known."""
        found = self._image(process)
        if found is None and process in self._unknown:
            return None
        if found is None and not self._over:
            # It may have begun since the last poll.
            self.drain()
            found = self._image(process)
        if found is None and process >= FIRST_IMAGE and self.lost != self._looked_at_loss:
            self._look()
            found = self._image(process)
        if found is None and process < FIRST_IMAGE and self._exact:
            text = procfs.read_maps(process)
            if not self._over:
                self.drain()
            if text and process not in self._first:
                self._begin(process, AddressSpace(process, text), 0)
            found = self._image(process)
        if found is None and self._over:
            self._unknown.add(process)
        return found

    def end(self) -> None:
        """Nothing is traced any more: each process that is not known is looked for once, not for each address."""
        self.drain()
        self._over = True

    def _image(self, process: int) -> Image | None:
        if process >= FIRST_IMAGE:
            return self._images.get(process)
        self._settle(process)
        return self._first.get(process)

    def owner(self, process: int) -> int:
        """The process id of an image, or of a process that has images; 0 for others, and for images not known."""
        if process >= FIRST_IMAGE:
            image = self.image(process)
            return 0 if image is None else image.space.pid
        first = self._first.get(process)
        return 0 if first is None or self._latest[process] is first else process

    def _settle(self, process: int) -> None:
        """A program that was executed before images were reported has the number of its process."""
        when, space = self._executed.get(process, (NEVER, None))
        if space is not None and when < self._attached:
            del self._executed[process]
            self._first[process] = self._latest[process] = Image(space, when, reread=self._reread)

    def _reread(self, image: Image) -> bool:
        """Read what is mapped now, if *image* is the latest of its process."""
        pid, space = image.space.pid, image.space

        def lasts() -> bool:
            self.drain()
            return self._latest.get(pid) is image and not space.ended and image.until == NEVER

        return lasts() and space.reread(lasts)

    def _report(self, body: bytes, when: int) -> None:
        if len(body) < 12 + REPORT_SIZE:
            return
        words = struct.unpack_from("=QIIQQQQQ", body, 12)
        change, number, pid, begun, start, length, result, new_length = words
        if pid not in self.spaces:
            self._begin(pid, AddressSpace(pid), 0)
        if not number:
            # From now on its numbers stand for more than one program.
            self.without_room += 1
            self._latest[pid].unsure = True
            self._executed.pop(pid, None)
            return
        if change == ImageChange.EXEC:
            self._start_image(pid, number, when)
            return
        space, latest = self.spaces[pid], self._latest[pid]
        # What is mapped over code is there before the call returns, and nobody runs it.
        until = begun if change == ImageChange.MAP else when
        if change == ImageChange.UNMAP:
            space.unmap(start, start + length, when, begun)
        elif change == ImageChange.MAP:
            space.unmap(result, result + length, when, begun)
        elif change == ImageChange.MOVE:
            space.move(start, length, result, new_length, when)
            self._fleeting += [(space, row) for row in space.find_within(result, when, NEVER) if not row.inode]
        else:
            latest.unsure = True
        latest.until = until
        self._add(pid, number, Image(space, when, reread=self._reread))

    def _start_image(self, pid: int, number: int, when: int) -> None:
        """A process has executed another program."""
        begun, space = self._executed.pop(pid, (0, None))
        if space is None:
            # The record of it was lost.
            before = self.spaces[pid]
            begun, space = when, before.program_after(when)
            before.end()
            self.spaces[pid] = space
        latest = self._latest.get(pid)
        if latest is not None:
            latest.until = min(latest.until, when)
        self._add(pid, number, Image(space, begun, reread=self._reread))

    def _add(self, pid: int, number: int, image: Image) -> None:
        self._images[number] = self._latest[pid] = image
        while len(self._images) > _KEPT_IMAGES:
            self._images.popitem(last=False)

    def _look(self) -> None:
        """Records were lost: images that were not reported are found in the map, with what processes have mapped."""
        now = time.monotonic()
        if now - self._looked < _LOOK:
            return
        self._looked, self._looked_at_loss = now, self.lost
        key: bytes | None = None
        while (key := bpf.map_next_key(self._table, key, 4)) is not None:
            value = bpf.map_lookup(self._table, key, 8)
            number, pid = struct.unpack("=II", value) if value else (0, 0)
            if not number or number in self._images:
                continue
            moment, text = time.monotonic_ns(), procfs.read_maps(pid)
            if bpf.map_lookup(self._table, key, 8) != value:
                continue
            if pid in self.spaces:
                self.spaces[pid].end()
            space = AddressSpace(pid, text)
            space.exact = True
            self.spaces[pid] = space
            self._executed.pop(pid, None)
            if pid in self._latest:
                self._latest[pid].until = min(self._latest[pid].until, moment)
            self._add(pid, number, Image(space, moment, reread=self._reread))

    def _exit(self, body: bytes) -> None:
        pid, _, thread, _ = struct.unpack_from("=IIII", body)
        if thread == pid:
            self._note("exit", pid)
        if thread == pid and pid in self.spaces:
            self._end(pid)

    def _end(self, pid: int) -> None:
        """A process has ended. It is remembered until that many others have."""
        self.spaces[pid].end()
        self._past_of_ended += self.spaces[pid].past - self._ended.pop(pid, 0)
        self._ended[pid] = self.spaces[pid].past
        while len(self._ended) > KEPT_ENDED or self._past_of_ended > KEPT_PAST_ENDED:
            oldest, past = self._ended.popitem(last=False)
            self._past_of_ended -= past
            for table in (self.spaces, self._first, self._latest, self._executed):
                table.pop(oldest, None)
            self._forgotten += 1
        if self._forgotten >= _SWEPT:
            self._forgotten = 0
            for number, image in list(self._images.items()):
                if image.space.ended and image.space.pid not in self.spaces:
                    del self._images[number]

    def _find_ended(self, begun: int) -> None:
        """Records of the ends of processes may be lost: such processes would be remembered for ever."""
        for pid in list(self.spaces):
            if pid not in self._ended and pid != begun and not os.path.exists(f"/proc/{pid}"):
                self._end(pid)
        self._most_running = 2 * (len(self.spaces) - len(self._ended)) + _SWEPT


def _mapped(event: int) -> mmap.mmap:
    """The ring of an event, as large as may be locked (``perf_event_mlock_kb``)."""
    pages = _MOST_PAGES
    while pages > _LEAST_PAGES and pages * (os.cpu_count() or 1) > _ALL_PAGES:
        pages //= 2
    while True:
        try:
            return mmap.mmap(event, (1 + pages) * mmap.PAGESIZE)
        except OSError:
            if pages <= _LEAST_PAGES:
                raise
            pages //= 2


def _records(ring: mmap.mmap) -> Iterator[tuple[int, int, int, bytes]]:
    """``(time, type, misc, body)`` of the records in a ring, which are given back to the kernel."""
    (head,) = struct.unpack_from("=Q", ring, _HEAD)
    (tail,) = struct.unpack_from("=Q", ring, _TAIL)
    base, size = mmap.PAGESIZE, len(ring) - mmap.PAGESIZE
    while tail < head:
        at = tail % size
        kind, misc, length = struct.unpack_from("=IHH", ring, base + at)
        if at + length <= size:
            body = ring[base + at + 8 : base + at + length]
        else:
            # A record may run over the end of the ring.
            whole = ring[base + at : base + size] + ring[base : base + at + length - size]
            body = whole[8:]
        # With sample_id_all every record but a sample ends with the sampled fields, here the time alone.
        yield struct.unpack_from("=Q", body, 0 if kind == _RECORD_SAMPLE else len(body) - 8)[0], kind, misc, body
        tail += length
    struct.pack_into("=Q", ring, _TAIL, head)
