"""Functions of user stacks of hosts, by files of this machine and what hosts were asked for (:mod:`.naming`).

Each place, by build id and address, is named once: by the binary of the same path, debug files, and the cache of
debuginfod; of the final answer also by what a host has said that knew more, and by servers. Answers before that have
no source lines, as reading these takes long. Build ids and paths are what hosts say: files are only read.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

from pytrace.core.config import Config
from pytrace.core.diagnostics import TraceError
from pytrace.core.types import Type
from pytrace.remote.answer import renamed
from pytrace.remote.messages import NamedPlace, Place
from pytrace.remote.naming import has_stacks, place_of, places
from pytrace.results.snapshot import Frame, SnapshotData, StackTrace
from pytrace.runtime.binaries.user_binary import Binary
from pytrace.runtime.elf import debug_files
from pytrace.runtime.machine.demangle import demangle, short_name
from pytrace.runtime.symbols.images import Images
from pytrace.runtime.symbols.line_reading import LineReading
from pytrace.runtime.symbols.met_binaries import Detail, detail

Names = Mapping[Place, NamedPlace]
"""What hosts have said (:attr:`pytrace.remote.naming.Naming.names`)."""
NONE: Names = MappingProxyType({})


class _Files:
    """Files of this machine by build id."""

    def __init__(
        self, debuginfo: Iterable[str], named: Callable[[str], str], *, lines: bool, fetched: bool = False
    ) -> None:
        self._search = [folder.removeprefix("+") for folder in debug_files.directories(debuginfo)]
        self.reading = LineReading()
        self.images = Images(
            {}, named=named, lines=lines, fetched=fetched, debuginfo=debuginfo, reading=self.reading
        )
        self._binaries: dict[tuple[str, str], tuple[Binary, Detail] | None] = {}
        self._fetched: dict[str, Binary | None] = {}

    def binary(self, build_id: str, path: str) -> tuple[Binary | None, Detail]:
        """A file with a build id, and how much it says: the binary itself if it is here, or else its debug file."""
        key = build_id, path
        if key not in self._binaries:
            binary = self._binary(build_id, path)
            self._binaries[key] = None if binary is None else (binary, detail(binary))
        return self._binaries[key] or (None, Detail.NOTHING)

    def _binary(self, build_id: str, path: str) -> Binary | None:
        for candidate in (path, *debug_files.of_build_id(build_id, self._search)):
            if _is_file(candidate) and debug_files.has_build_id(candidate, build_id):
                return self._opened(candidate)
        return None

    def fetched(self, build_id: str) -> Binary | None:
        """The debug file of a build id from a server, if one has it, and the user waits for that."""
        if build_id not in self._fetched:
            downloaded: list[str] = []
            asked = self.reading.download(lambda stop: downloaded.extend(self._fetch(build_id, stop)))
            if not asked:
                return None
            self._fetched[build_id] = self._opened(downloaded[0]) if downloaded else None
        return self._fetched[build_id]

    def _fetch(self, build_id: str, stop: Callable[[], bool]) -> list[str]:
        path, problems = debug_files.fetch(build_id, stop)
        if problems:
            # The next question would take as long.
            self.reading.no_downloads()
        return [] if path is None else [path]

    def _opened(self, path: str) -> Binary | None:
        try:
            return self.images.binary(path, os.stat(path))
        except (TraceError, OSError):
            return None

    def prepare(self, frames: Iterable[Frame]) -> Iterator[None]:
        """Read the source lines of places in short steps."""
        wanted = []
        for frame in frames:
            place = place_of(frame)
            binary = None if place is None else self.binary(place.build_id, frame.module)[0]
            if binary is not None and place is not None:
                wanted.append((binary, place.address))
        yield from self.images.prepare(wanted)


class StackNames:
    """Names the functions of snapshots of hosts."""

    def __init__(self, debuginfo: Iterable[str] = (), config: Config | None = None) -> None:
        """*debuginfo*: directories with debug files, instead of ``/usr/lib/debug``; *config*: of the script."""
        config, debuginfo = config or Config(), tuple(debuginfo)
        named: Callable[[str], str] = str
        if config.cpp_demangle:
            named = short_name if config.short_generics else demangle
        self._so_far = _Files(debuginfo, named, lines=False)
        self._whole = _Files(debuginfo, named, lines=config.show_debug_info, fetched=config.debuginfod_lines)
        self._looked = _Files(debuginfo, str, lines=False)
        """For :meth:`detail`, which another thread asks."""
        self._lock = threading.Lock()
        """As answers so far are made in several threads."""

    def detail(self, build_id: str, path: str) -> int:
        """How much this machine knows of a binary (:class:`Detail`); nothing is downloaded, no symbols are read."""
        return self._looked.binary(build_id, path)[1]

    def named(self, snapshot: SnapshotData, names: Names = NONE) -> SnapshotData:
        """The answer so far, in which functions have names, as far as files with their build ids are here."""
        with self._lock:
            return _named(snapshot, self._so_far, names)

    def final(self, snapshot: SnapshotData, stop: Callable[[], bool], names: Names = NONE) -> SnapshotData:
        """The final answer, named with lines: servers of ``DEBUGINFOD_URLS`` are asked, until one fails.

        When *stop* says so, nothing more is downloaded, and functions that are left have no lines.
        """
        files = self._whole
        with self._lock:
            if os.environ.get("DEBUGINFOD_URLS"):
                files.reading.hurry(None, "stacks", stop)
            for _ in files.prepare(places(snapshot)):
                if stop():
                    files.reading.given_up = True
                    break
            named = _named(snapshot, files, names)
            files.images.keep()
            return named


def _named(snapshot: SnapshotData, files: _Files, names: Names) -> SnapshotData:
    known: dict[Frame, tuple[Frame, ...]] = {}

    def functions(frame: Frame) -> tuple[Frame, ...]:
        if frame not in known:
            place = place_of(frame)
            known[frame] = (frame,) if place is None else _functions(frame, place, files, names)
        return known[frame]

    def leaf(type_: Type | None, value: object) -> object:
        if isinstance(value, StackTrace) and has_stacks(type_):
            return value._replace(frames=tuple(one for frame in value.frames for one in functions(frame)))
        return value

    return renamed(snapshot, has_stacks, leaf)


def _functions(frame: Frame, place: Place, files: _Files, names: Names) -> tuple[Frame, ...]:
    """The functions of a place, by whoever knows most of its binary; the place itself where none is known."""
    binary, own = files.binary(place.build_id, frame.module)
    said = names.get(place)
    if said is not None and said.functions and said.detail > own:
        return tuple(
            _frame(frame, place, one.name, one.offset, one.file, one.line, one.inlined) for one in said.functions
        )
    found = [] if binary is None else files.images.frames(binary, frame.module, place.address)
    if binary is None and (fetched := files.fetched(place.build_id)) is not None:
        found = files.images.frames(fetched, frame.module, place.address)
    if not found or not found[0].name:
        return (frame._replace(offset=frame.address),)
    return tuple(_frame(frame, place, one.name, one.offset, one.file, one.line, one.inlined) for one in found)


def _frame(frame: Frame, place: Place, name: str, offset: int, file: str, line: int, inlined: bool) -> Frame:
    """A function of a place, which is that of an address or of the byte before."""
    start = offset + frame.address - place.address
    return Frame(name, start, frame.module, frame.build_id, file, line, inlined, frame.address)


def _is_file(path: str) -> bool:
    try:
        return os.path.isabs(path) and stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False
