"""Functions of places in binaries, whichever processes have them mapped."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec.structs import replace

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.abi.demangle import demangle, with_bodies
from pytrace.runtime.binaries.user_binary import Binary
from pytrace.runtime.elf import debug_files
from pytrace.runtime.elf.file import ElfFile
from pytrace.runtime.host import procfs
from pytrace.runtime.symbols.line_reading import LineReading

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator

    from pytrace.runtime.dwarf.places import Place
    from pytrace.runtime.elf.symbol_table import Symbol


class Frame(msgspec.Struct, frozen=True):
    """A function that an address lies in.

    *name* is empty when it is unknown; *offset* counts bytes from the function's start (of an inlined function: of the
    function that it was inlined into; without a name, from the start of the module as it was linked, 0 when that is not
    known). *module* is a kernel module, or the path of a binary as its process sees it.
    *file* and *line* are known where DWARF was asked for and found.
    """

    name: str
    offset: int = 0
    module: str = ""
    file: str = ""
    line: int = 0
    inlined: bool = False


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

_BINARIES = 256
"""Binaries that are remembered: a machine that builds programs runs ever new ones."""
_REASONS = 512
_PLACES = 1 << 15
"""Places whose functions are remembered, over all binaries."""


class Unreadable(dict[str, str]):
    """Reasons why names are missing, by what is missing: of as many as are said at the end several times over."""

    left_out = 0
    """Reasons that came later: a long run meets ever new programs."""

    def __setitem__(self, what: str, why: str) -> None:
        if what in self or len(self) < _REASONS:
            super().__setitem__(what, why)
        else:
            self.left_out += 1


class Images:
    """The binaries that processes run, each opened once whatever the processes call it, and what lies where in them.

    *named* returns the shown form of a symbol's name; *lines*, *fetched* and *debuginfo* are as for
    :class:`pytrace.runtime.symbols.symbolizer.Symbolizer`.
    Reasons why names are missing are put into *unreadable*, by what is missing. *reading* reads source lines.
    """

    def __init__(
        self,
        unreadable: dict[str, str],
        *,
        named: Callable[[str], str] = demangle,
        lines: bool = False,
        fetched: bool = False,
        debuginfo: Iterable[str] = (),
        reading: LineReading | None = None,
    ) -> None:
        self._reading = reading or LineReading()
        self._unreadable = unreadable
        self._named = named
        self._lines = lines
        self._fetched = lines and fetched
        self._search = debug_files.directories(debuginfo)
        self._binaries: dict[tuple[int, int, int], Binary] = {}
        self.dropped = 0
        """Binaries that were closed again to limit their number."""
        self._places: dict[tuple[Binary, str, int, bool], list[Frame]] = {}

    def binary(self, path: str, status: os.stat_result, root: str = "") -> Binary:
        """The binary at a path with its status; *root* is how absolute paths of its process are reached from here.

        Raises:
            TraceError: not an ELF file, or not readable.
        """
        stamp = (status.st_dev, status.st_ino, status.st_mtime_ns)
        binary = self._binaries.pop(stamp, None)
        if binary is None:
            try:
                binary = Binary.open(path, self._search, root)
            except OSError as error:
                raise TraceError(f"cannot read {path}: {error.strerror}") from error
            if root and self._lines:
                # It is reached through a process, which may end before the next process that runs it is looked at.
                self._open_debug(binary)
            if len(self._binaries) >= _BINARIES:
                self._binaries.pop(next(iter(self._binaries))).keep_lines()
                self._places.clear()
                self.dropped += 1
            _ = binary.elf.segments  # damage is reported here; no address is looked up in a damaged file
        self._binaries[stamp] = binary
        return binary

    def _open_debug(self, binary: Binary) -> None:
        """Open the debug information now; what is wrong with it is reported when it is asked."""
        with suppress(TraceError, OSError):
            _ = binary.debug

    def prepare(self, wanted: Iterable[tuple[Binary, int]]) -> Iterator[None]:
        """Read the source lines of addresses of binaries in short steps, binary by binary and in order of address."""
        addresses: dict[Binary, set[int]] = {}
        for binary, inside in wanted:
            addresses.setdefault(binary, set()).add(inside)
        for binary, places in addresses.items():
            # What cannot be read is reported when it is needed.
            with suppress(TraceError, OSError):
                debug = binary.debug
                if debug is not None:
                    for inside in sorted(places):
                        if not debug.knows(inside):
                            yield from debug.reading(inside)

    def forget_unknown(self) -> None:
        """Look again for functions that were not known, and for lines that servers may have."""
        self._places = {
            key: frames
            for key, frames in self._places.items()
            if frames[0].name and (frames[0].line or not self._fetched)
        }

    def keep(self) -> None:
        """Cache the source lines that were read for later runs."""
        for binary in self._binaries.values():
            binary.keep_lines()

    def frames(self, binary: Binary, module: str, inside: int, *, caller: bool = False) -> list[Frame]:
        """Functions at a virtual address of a binary that processes call *module*, inlined ones first.

        *caller*: *inside* is the last byte of a call, and the frames are those of the address that it returns to.
        """
        key = (binary, module, inside, caller)
        known = self._places.get(key)
        if known is None:
            known = self._frames(binary, module, inside)
            if caller:
                # What nothing called, as the first function of a coroutine (__start_context of glibc), is returned to
                # at its start: before that is no function.
                first = known if known[-1].name else self._frames(binary, module, inside + 1)
                known = first if first is not known and first[-1].name and not first[-1].offset else returned(known)
            remember(self._places, key, known, _PLACES)
        return known

    def _frames(self, binary: Binary, module: str, inside: int) -> list[Frame]:
        try:
            symbol = binary.covering(inside) or binary.plt_entry(inside)
            if self._lacks(binary, symbol) and self._downloaded(binary, "source lines" if symbol else "symbols"):
                symbol = binary.covering(inside) or symbol
            for text in binary.left_out:
                self._unreadable[f"more symbols of {module}"] = text
        except (TraceError, OSError) as error:
            self._unreadable[f"symbols of {module}"] = reason(error)
            symbol = None
        if symbol is None:
            return [Frame("", inside, module)]
        name = self._named(symbol.name)
        last = Frame(name, inside - symbol.address, module)
        if self._lines:
            try:
                debug = binary.debug
                if debug is not None and (debug.knows(inside) or self._reading.run(debug.reading(inside))):
                    frames = with_lines(debug.frames(inside), last, self._named)
                    problems = binary.problems
                    if problems:
                        self._unreadable[f"inlined functions of {module}"] = "; ".join(problems)
                    return frames
                if debug is None and binary.go_lines is not None:
                    return with_lines(binary.go_lines.frames(inside), last, self._named)
            except (TraceError, OSError) as error:
                # A binary of a container, or of a build that is over, may go while it is read.
                self._unreadable[f"source lines of {module}"] = reason(error)
        return [last]

    def _lacks(self, binary: Binary, symbol: Symbol | None) -> bool:
        """True if servers are asked about a place: its function has no name, or no lines where these are wanted."""
        if symbol is None:
            return binary.is_stripped
        wanted = self._fetched and not self._reading.given_up
        return wanted and binary.debug is None and binary.go_lines is None

    def _downloaded(self, binary: Binary, what: str) -> bool:
        """Ask servers for a binary's debug information, if the user waits. Returns if there is any."""
        if binary.debug_path is not None or not self._reading.download(binary.ask_servers):
            return False
        if binary.unanswered:
            self._unreadable[f"{what} of {binary.path}"] = "; ".join(binary.unanswered)
            # The next question would take as long.
            self._reading.no_downloads()
        return binary.debug_path is not None


def with_lines(places: list[Place], last: Frame, named: Callable[[str], str]) -> list[Frame]:
    """Source places for a function's frame, and the frames of what was inlined there."""
    frames = [
        Frame(
            with_bodies(named(place.function), place.written),
            last.offset,
            last.module,
            place.file,
            place.line,
            inlined=True,
        )
        for place in places[:-1]
    ]
    if not places:
        return [last]
    outer = places[-1]
    frames.append(Frame(with_bodies(last.name, outer.written), last.offset, last.module, outer.file, outer.line))
    return frames


def reason(error: TraceError | OSError) -> str:
    """Why a binary or its debug information could not be read."""
    return error.message if isinstance(error, TraceError) else f"cannot read {error.filename}: {error.strerror}"


def remember(cache: dict[_Key, _Value], key: _Key, value: _Value, most: int) -> None:
    """Put a value into a cache, which is emptied when it has *most* of them."""
    if len(cache) >= most:
        cache.clear()
    cache[key] = value


def returned(frames: list[Frame]) -> list[Frame]:
    """Frames that were looked up one byte before a return address, as frames of that address."""
    return [replace(frame, offset=frame.offset + bool(frame.name or frame.offset)) for frame in frames]


@cache
def vdso_image() -> Binary | None:
    """The vdso of this machine; None where there is none. A 32-bit process has another one, which is not read."""
    with open("/proc/self/maps", "rb") as file:
        rows = procfs.executable_mappings(file.read())
    row = next((row for row in rows if row.path == "[vdso]"), None)
    if row is None:
        return None
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        memory.seek(row.start)
        data = memory.read(row.end - row.start)
    return Binary(ElfFile(data, "[vdso]"))
