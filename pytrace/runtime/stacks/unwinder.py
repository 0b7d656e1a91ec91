"""The live side of unwinding by tables: fills the maps that ``pytrace.codegen.walkers.user_stacks`` describes.

Tables of a binary are loaded once, whatever number of processes has it mapped. A process has a *slice* of the array
of ranges; when its mappings change it gets a new slice, and its entry in the hash of processes is switched in one step,
so that a program always sees a whole one.

Processes are selected (``-p``, ``-c``), and read before tracing starts, or programs ask for them (:class:`Requests`);
these are read in short steps between the handling of events.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections import deque
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import msgspec

from pytrace.core.diagnostics import InternalError, TraceError
from pytrace.runtime.binaries.elf_file import Segment, quoted, read_file
from pytrace.runtime.machine import bpf, procfs
from pytrace.runtime.stacks import unwind_tables
from pytrace.runtime.stacks.image_places import is_file, is_generated, is_memory_file, replaced
from pytrace.runtime.stacks.images import remember, vdso_image

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from pytrace.core.manifest import Manifest, UnwindMaps
    from pytrace.runtime.binaries.elf_file import ElfFile
    from pytrace.runtime.load.loaded_script import LoadedScript
    from pytrace.runtime.machine.procfs import Mapping


_RANGE = struct.Struct("=QQQII")
_SPACE = struct.Struct("=HHIQ")
_MOST_REQUESTED = 256
"""Processes that wait for their tables at most; programs ask again for others."""
_SMALLEST_SLICE = 16
_VDSO = (0, -1)
_MOST_RANGES = 4096
"""Ranges of one process; programs find one in 13 steps."""
_PRUNE = 256
"""Processes after which it is looked which have ended."""

Identity = tuple[int, int]
"""Device and inode of a file."""


class _Array:
    """A BPF array that is mapped into this process's memory."""

    def __init__(self, descriptor: int, stack: ExitStack) -> None:
        _, _, _, self.size, self.entries = bpf.map_info(descriptor)
        length = -(-self.size * self.entries // mmap.PAGESIZE) * mmap.PAGESIZE
        self._memory = mmap.mmap(descriptor, length, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        stack.callback(self._memory.close)

    def write(self, index: int, data: bytes) -> None:
        """Set elements from *index* on."""
        self._memory[index * self.size : index * self.size + len(data)] = data


class _Slices:
    """Allocates slices of an array, in powers of two. A freed slice is reused after all others of its size."""

    def __init__(self, entries: int) -> None:
        self._entries = entries
        self._next = 0
        self._free: dict[int, deque[int]] = {}

    def take(self, count: int) -> int | None:
        """Start of a slice of at least *count* elements; None when there is no room."""
        size = _slice_size(count)
        free = self._free.get(size)
        # A program may still read the slice that was freed last.
        if free is not None and len(free) > 1:
            return free.popleft()
        if self._next + size > self._entries:
            return free.popleft() if free else None
        start, self._next = self._next, self._next + size
        return start

    def free(self, start: int, count: int) -> None:
        """Free a slice."""
        self._free.setdefault(_slice_size(count), deque()).append(start)


def _slice_size(count: int) -> int:
    return max(_SMALLEST_SLICE, 1 << (count - 1).bit_length())


_MOST_SEGMENTS = 4096
"""Files whose segments are remembered."""


class Unwound:
    """Processes that ``dw_ustack`` of a run unwinds, known before maps are made: those of -p, -c and --dwarf-pid.

    Raises:
        TraceError: there is no such process.
    """

    def __init__(self, manifest: Manifest, pids: Iterable[int]) -> None:
        self._manifest = manifest
        self.pids = sorted(pids)
        for number in self.pids:
            if not os.path.exists(f"/proc/{number}"):
                raise TraceError(f"there is no process {number}")

    def entries(self) -> dict[str, int]:
        """Sizes of maps: room for the tables of all files that are mapped now, and as much as usual for later ones."""
        files: dict[Identity, str] = {}
        for pid in self.pids:
            root = procfs.root_prefix(pid)
            for item in _code(procfs.read_maps(pid)):
                if is_file(item):
                    files[item.device, item.inode] = root + item.path
        rows = sum(_most_rows(path) for path in files.values())
        maps = _maps(self._manifest)
        return {maps.rows: maps.room + rows} if rows > maps.room // 2 else {}

    def start(
        self, loaded: LoadedScript, stack: ExitStack, message: Callable[[str], None], tell: Callable[[str], None]
    ) -> Unwinder:
        """Read the tables. *message* is called with warnings, *tell* with what is chosen for each binary."""
        if not self.pids and _maps(self._manifest).selected:
            message("dw_ustack has no process to unwind: give one with -p, -c or --dwarf-pid")
        unwinder = Unwinder(loaded, stack, message, tell)
        for pid in self.pids:
            unwinder.add(pid)
        return unwinder


def _maps(manifest: Manifest) -> UnwindMaps:
    if manifest.unwind is None:
        raise InternalError("there is nothing to unwind: the script has no maps of unwind tables")
    return manifest.unwind


_ROW_BYTES = 3
"""Fewest bytes of ``.eh_frame`` that make a row: a step and a new distance."""


def _most_rows(path: str) -> int:
    """More rows than a file has."""
    with suppress(TraceError, OSError):
        return read_file(path, _Segments.of, _Segments).size // _ROW_BYTES
    return 0


class _Segments(msgspec.Struct, frozen=True):
    """What is asked of a file before its table is read."""

    segments: tuple[Segment, ...]
    size: int
    """Of ``.eh_frame``."""

    @classmethod
    def of(cls, file: ElfFile) -> _Segments:
        section = file.section(".eh_frame")
        return cls(file.segments, 0 if section is None else section.size)


class Unwinder:
    """Tables and address spaces of the processes whose stacks are unwound.

    :meth:`add` takes a process in. *message* is called with a text when something has to be left out, *tell* with how
    the stacks of each binary are unwound.
    """

    def __init__(
        self, loaded: LoadedScript, stack: ExitStack, message: Callable[[str], None], tell: Callable[[str], None]
    ) -> None:
        maps = _maps(loaded.manifest)
        self._spaces = loaded.map_fd(maps.spaces)
        self._ranges = _Array(loaded.map_fd(maps.ranges), stack)
        self._rows = _Array(loaded.map_fd(maps.rows), stack)
        self._slices = _Slices(self._ranges.entries)
        self._reader = unwind_tables.TableReader()
        stack.callback(self._reader.close)
        self._message = message
        self._tell = tell
        self._chooses = bool(maps.requests)
        self._requested: dict[int, Iterator[None]] = {}
        """Reading of the tables of processes that programs asked for, in order of turns."""
        self._loading: set[Identity] = set()
        self._prune_at = _PRUNE
        self._binaries: dict[Identity, _Loaded] = {}
        self._segments: dict[Identity, tuple[Segment, ...]] = {}
        """Of files that are mapped near code in anonymous memory."""
        self._filled = 0
        self._full = False
        self._processes: dict[int, tuple[int, int]] = {}
        self._puts = 0
        """How many lists of ranges were written; the entry of a process has the number of its own."""
        self._known: dict[int, tuple[int, int]] = {}
        """Address space, and digest of the mappings, of each process that was read."""

    def __contains__(self, pid: int) -> bool:
        return pid in self._known

    def add(self, pid: int) -> None:
        """Read what a process has mapped now; again when that has changed."""
        for _ in self._add(pid, 0):
            self._step()  # it may wait for a binary that is being read for another process

    def request(self, pid: int, space: int) -> None:
        """A program has met a process whose tables it lacks; *space* is the address of its ``struct mm_struct``."""
        if len(self._requested) < _MOST_REQUESTED and pid not in self._requested:
            self._requested[pid] = self._add(pid, space)

    @property
    def waiting(self) -> bool:
        """Whether requested tables wait to be read."""
        return bool(self._requested)

    def work(self, until: float) -> None:
        """Read requested tables until a moment of the monotonic clock."""
        while self._requested and time.monotonic() < until:
            self._step()

    def _step(self) -> None:
        """A step for the process whose turn it is: those with small binaries do not wait for those with large ones."""
        if self._requested:
            pid = next(iter(self._requested))
            steps = self._requested.pop(pid)
            if next(steps, True) is None:
                self._requested[pid] = steps

    def _add(self, pid: int, space: int) -> Iterator[None]:
        """Read the mappings of a process, and the tables of its binaries, in steps."""
        text = procfs.read_maps(pid)
        known = space, hash(text)
        if not text or known == self._known.get(pid):
            return
        root, code = procfs.root_prefix(pid), self._code(pid, text)
        self._known[pid] = known
        unread = [item for item in code if _has_file(item) and _identity(item) not in self._binaries]

        def put() -> None:
            # Another reading may have come in between, with newer mappings.
            if self._known.get(pid) == known:
                self._put(pid, space, [self._range(item) for item in code])

        if unread:
            # Until its tables are read, frames in a binary are found by frame pointers.
            put()
        fresh = False
        for item in sorted(unread, key=lambda item: item.end - item.start):
            for _ in self._read(item, root, pid):
                if fresh:
                    # The table of a large library takes seconds: those that were read are used meanwhile.
                    put()
                    fresh = False
                yield
            fresh = True
        put()

    def _code(self, pid: int, text: bytes) -> list[Mapping]:
        """Mappings of code; for anonymous memory that stands for a part of a file that part."""
        code = list(_code(text))
        if all(item.inode or not is_generated(item) for item in code):
            return code
        files = procfs.file_mappings(text)
        return [replaced(item, files, lambda row: self._segments_of(pid, row)) or item for item in code]

    def _segments_of(self, pid: int, mapping: Mapping) -> tuple[Segment, ...]:
        key = _identity(mapping)
        if key not in self._segments:
            segments: tuple[Segment, ...] = ()
            with suppress(OSError, TraceError):
                segments = read_file(procfs.root_prefix(pid) + mapping.path, _Segments.of, _Segments).segments
            remember(self._segments, key, segments, _MOST_SEGMENTS)
        return self._segments[key]

    def inherit(self, pid: int, parent: int) -> None:
        """A known process forked: the new one has the same mappings."""
        if parent in self and pid not in self:
            self.add(pid)

    def remove(self, pid: int) -> None:
        """A process has ended; its number may be used again."""
        self._known.pop(pid, None)
        self._forget(pid)

    def _forget(self, pid: int) -> None:
        known = self._processes.pop(pid, None)
        if known is not None:
            bpf.map_delete(self._spaces, struct.pack("=I", pid))
            self._slices.free(*known)

    def update(self, changes: Iterable[tuple[str, int, int]]) -> None:
        """Update the tables by the events in ``MappingRecorder.changes``."""
        mapped: dict[int, None] = {}
        for what, pid, parent in changes:
            if what == "map":
                mapped[pid] = None
            elif what == "fork":
                self.inherit(pid, parent)
            elif what == "exit":
                self.remove(pid)
        for pid in mapped:
            if pid in self:
                self.add(pid)

    def _prune(self) -> None:
        """Forget processes that have ended."""
        for pid in [pid for pid in self._known if not os.path.exists(f"/proc/{pid}")]:
            self.remove(pid)
        self._prune_at = len(self._known) + _PRUNE

    def _put(self, pid: int, space: int, rows: list[bytes]) -> None:
        if len(self._known) >= self._prune_at:
            self._prune()
        if not rows:
            # The program before execve may have had tables.
            self._forget(pid)
            return
        start = self._slices.take(len(rows)) if len(rows) <= _MOST_RANGES else None
        if start is None:
            self._overflow("too many mappings of processes")
            return
        self._ranges.write(start, b"".join(rows))
        self._puts += 1
        entry = _SPACE.pack(start, len(rows), self._puts & 0xFFFFFFFF, space)
        try:
            bpf.map_update(self._spaces, struct.pack("=I", pid), entry)
        except OSError as error:
            self._slices.free(start, len(rows))
            self._overflow(f"process {pid}: {error.strerror}")
            return
        before = self._processes.get(pid)
        self._processes[pid] = start, len(rows)
        if before is not None:
            self._slices.free(*before)

    def _read(self, mapping: Mapping, root: str, pid: int) -> Iterator[None]:
        """Read the table of the binary of a mapping in steps."""
        key = _identity(mapping)
        while key in self._loading:
            yield
        if key in self._binaries:
            return
        self._loading.add(key)
        try:
            binary = yield from self._load(mapping, root, pid)
        finally:
            self._loading.discard(key)
        if binary is not None:
            self._binaries[key] = binary

    def _range(self, mapping: Mapping) -> bytes:
        """The entry of one mapping, with the table of its binary if that has been read."""
        binary = self._binaries.get(_identity(mapping)) if _has_file(mapping) else None
        address = binary.address_at(mapping.offset) if binary is not None and binary.count else None
        if binary is None or address is None:
            return _RANGE.pack(mapping.start, mapping.end, 0, 0, 0)
        bias = mapping.start - address & (1 << 64) - 1
        return _RANGE.pack(mapping.start, mapping.end, bias, binary.first, binary.count)

    def _load(self, mapping: Mapping, root: str, pid: int) -> Generator[None, None, _Loaded | None]:
        """Put the table of a mapped file into the array of rows; None when the process is gone, and its files with it.

        Another process may have the same file mapped.
        """
        if not mapping.inode:
            image = vdso_image()
            if image is None:
                return _Loaded((), 0, 0)
            return self._fill((yield from unwind_tables.table(image.elf)), image.elf.segments, mapping.path)
        # The file under the mapping is the right one even when another has its name by now.
        for path in (f"/proc/{procfs.entry(pid)}/map_files/{mapping.start:x}-{mapping.end:x}", root + mapping.path):
            with suppress(OSError):
                return (yield from self._of_file(path, mapping.path))
        return None

    def _of_file(self, path: str, name: str) -> Generator[None, None, _Loaded]:
        """As :meth:`_load`, of the file at *path*; one that is damaged has no tables."""
        with suppress(TraceError):
            found = yield from self._reader.read(path, self._rows.entries - self._filled)
            if found.left_out.startswith("it has"):
                self._overflow(f"{name} {found.left_out.removeprefix('it ')}")
            elif found.left_out:
                self._leave_out(name, found.left_out)
            return self._fill(found.rows, found.segments, name)
        return _Loaded((), 0, 0)

    def _leave_out(self, name: str, why: str) -> None:
        """Say that a file's table is not used."""
        if self._chooses:
            self._tell(f"ustack of {quoted(name)}: frame pointers; of its unwind table {why}\n")
        else:
            self._message(f"dw_ustack: stacks in {quoted(name)} will be truncated; of its unwind table {why}")

    def _fill(self, rows: array[int], segments: Sequence[Segment], name: str) -> _Loaded:
        first, count = self._filled, len(rows)
        if first + count > self._rows.entries:
            self._overflow(f"{name} has {count} rows")
            return _Loaded((), 0, 0)
        if self._chooses and segments:
            way = f"unwind tables, {count} rows" if count else "frame pointers"
            if name.endswith("/libjvm.so"):
                way += "; functions that it compiles need -XX:+PreserveFramePointer"
            self._tell(f"ustack of {quoted(name)}: {way}\n")
        self._rows.write(first, rows.tobytes())
        self._filled += count
        return _Loaded(segments, first, count)

    def _overflow(self, what: str) -> None:
        if not self._full:
            self._full = True
            if self._chooses:
                self._tell(f"unwind tables are full ({what}): stacks of others follow frame pointers\n")
            else:
                self._message(f"dw_ustack: unwind tables are full ({what}); some stacks will be truncated")


class _Loaded:
    """Where a binary's rows are."""

    def __init__(self, segments: Sequence[Segment], first: int, count: int) -> None:
        self._segments = sorted(segments, key=lambda segment: not segment.executable)
        self.first = first
        self.count = count

    def address_at(self, offset: int) -> int | None:
        """Virtual address in the file of a mapping's start, which is a page's and may lie before its segment."""
        for segment in self._segments:
            start = segment.offset & -mmap.PAGESIZE
            if segment.executable and start <= offset < segment.offset + segment.file_size:
                return segment.address + offset - segment.offset
        return None


def _has_file(mapping: Mapping) -> bool:
    return is_file(mapping) or is_memory_file(mapping) or mapping.path == "[vdso]"


def _identity(mapping: Mapping) -> Identity:
    return (mapping.device, mapping.inode) if mapping.inode else _VDSO


def _code(text: bytes) -> Iterable[Mapping]:
    """Mappings of code; the one that return addresses of functions with uretprobes point to is left out."""
    return (item for item in procfs.executable_mappings(text) if item.path != "[uprobes]")
