"""Names of functions that hosts could not name, from files of this machine with the same build ids.

Hosts name the functions of stacks by what they have. Where that is nothing (stripped binaries), a frame is a place:
build id, and address in what was linked. Such places are looked up here, once for each: in the binary of the same path,
in debug files, and in the cache of debuginfod. Its servers are asked for the final answer only, as hosts wait for this
machine before. Build ids and paths are what hosts say: files are only read.
"""

from __future__ import annotations

import os
import re
import stat
import threading
from collections.abc import Callable, Iterable

from pytrace.core.diagnostics import TraceError
from pytrace.core.types import Array, Record, Stack, StackMode, Tuple, Type
from pytrace.remote.answer import renamed
from pytrace.results.snapshot import SnapshotData
from pytrace.results.values import Frame, StackTrace
from pytrace.runtime.binaries.user_binary import Binary
from pytrace.runtime.elf import debug_files
from pytrace.runtime.symbols.images import Images
from pytrace.runtime.symbols.line_reading import LineReading

AS_PLACES = frozenset({StackMode.RAW, StackMode.BUILD_ID})
"""Modes of stacks that the script has chosen to have without names."""
_BUILD_ID = re.compile(r"[0-9a-f]{8,64}", re.ASCII)


class StackNames:
    """Names the functions of snapshots of hosts."""

    def __init__(self, debuginfo: Iterable[str] = ()) -> None:
        """*debuginfo*: directories with debug files, instead of ``/usr/lib/debug``."""
        self._search = [folder.removeprefix("+") for folder in debug_files.directories(debuginfo)]
        self._reading = LineReading()
        self._images = Images({}, lines=False, debuginfo=debuginfo, reading=self._reading)
        self._binaries: dict[tuple[str, str], Binary | None] = {}
        self._lock = threading.Lock()
        """As answers so far are made in other threads."""

    def final(self, snapshot: SnapshotData, stop: Callable[[], bool]) -> SnapshotData:
        """The final answer, named: servers of ``DEBUGINFOD_URLS`` are asked, until one fails or *stop* says so."""
        if not os.environ.get("DEBUGINFOD_URLS"):
            return snapshot
        with self._lock:
            self._reading.hurry(None, "stacks", stop)
            self._images.forget_unknown()
            self._binaries = {key: binary for key, binary in self._binaries.items() if binary is not None}
        return self.named(snapshot)

    def named(self, snapshot: SnapshotData) -> SnapshotData:
        """A snapshot in which functions have names, as far as files with their build ids are here."""
        with self._lock:
            return renamed(snapshot, _has_stacks, self._leaf)

    def _leaf(self, type_: Type | None, value: object) -> object:
        if isinstance(value, StackTrace) and _has_stacks(type_):
            return value._replace(frames=tuple(frame for place in value.frames for frame in self._frames(place)))
        return value

    def _frames(self, place: Frame) -> tuple[Frame, ...]:
        """The functions of a frame; itself where it has a name, or none is known."""
        if place.function or not (place.address and _BUILD_ID.fullmatch(place.build_id)):
            return (place,)
        key = place.build_id, place.module
        if key not in self._binaries:
            self._binaries[key] = self._binary(*key)
        binary = self._binaries[key]
        found = [] if binary is None else self._images.frames(binary, place.module, place.address)
        if not found or not found[0].name:
            return (place,)
        return tuple(
            Frame(
                one.name, one.offset, one.module, place.build_id, one.file, one.line, one.inlined, place.address
            )
            for one in found
        )  # fmt: skip

    def _binary(self, build_id: str, path: str) -> Binary | None:
        """A file with a build id: the binary itself if it is here, or else its debug file."""
        for candidate in (path, *debug_files.of_build_id(build_id, self._search)):
            if _is_file(candidate) and debug_files.has_build_id(candidate, build_id):
                return self._opened(candidate)
        downloaded: list[str] = []
        self._reading.download(lambda stop: downloaded.extend(self._fetch(build_id, stop)))
        return self._opened(downloaded[0]) if downloaded else None

    def _fetch(self, build_id: str, stop: Callable[[], bool]) -> list[str]:
        """The path of the debug file of a build id from a server, if one has it."""
        path, problems = debug_files.fetch(build_id, stop)
        if problems:
            # The next question would take as long.
            self._reading.no_downloads()
        return [] if path is None else [path]

    def _opened(self, path: str) -> Binary | None:
        try:
            return self._images.binary(path, os.stat(path))
        except (TraceError, OSError):
            return None


def _is_file(path: str) -> bool:
    try:
        return os.path.isabs(path) and stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def _has_stacks(type_: Type | None) -> bool:
    match type_:
        case Stack():
            return type_.user and type_.mode not in AS_PLACES
        case Tuple() | Record():
            return any(map(_has_stacks, type_.members))
        case Array():
            return _has_stacks(type_.element)
        case _:
            return False
