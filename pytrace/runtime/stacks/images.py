"""Functions and source lines of places in binaries, whichever processes have them mapped (`Images`).

A binary that somebody else can write is read in a limited process (`ForeignBinaries`): what it takes of memory and
time, and what becomes of who reads it, costs no more than its own names. What a user waits for is read in steps, which
stop on request (`LineReading`).
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, BinaryIO, TypeVar

import msgspec
from msgspec.structs import replace

from pytrace.base import typed_json
from pytrace.base.interruption import EndRequests
from pytrace.base.limited_process import LimitedProcess, LimitError, Limits, LostError
from pytrace.base.limited_process import inside as inside_limits
from pytrace.core.diagnostics import TraceError
from pytrace.runtime.binaries import debug_files
from pytrace.runtime.binaries.elf_file import ElfFile, Segment, address_of
from pytrace.runtime.binaries.user_binary import Binary
from pytrace.runtime.machine import foreign_files, procfs
from pytrace.runtime.machine.demangle import demangle, with_bodies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pytrace.base.limited_process import Pending
    from pytrace.runtime.binaries.elf_file import Symbol
    from pytrace.runtime.binaries.function_places import Place


_RECENT = 0.5
"""Seconds since a name was asked for, within which names are what takes long."""
TOLD_AFTER = 1.0
"""Seconds of waiting after which a message says what is being read."""
ENDING = 0.4
"""Seconds of reading after the user has asked for the end: most has been read while the run went on."""
NAMING = 30.0
"""Seconds that the end of a run looks up names: thousands of processes may have ended, and the machine be busy."""


class LineReading:
    """Runs readings in steps. Until :meth:`hurry` nobody waits: the run goes on meanwhile.

    When the user has asked for the end of the run (*requests*), readings have :data:`ENDING` seconds from then on.
    Names have limits of their own (:meth:`names_left`).
    """

    def __init__(self, requests: EndRequests | None = None) -> None:
        self.given_up = False
        """The rest is shown without source lines."""
        self.late = False
        """That is so because there was no more time."""
        self._requests = requests or EndRequests()
        self._deadline: float | None = None
        self._say: Callable[[str], None] | None = None
        self._what = ""
        self.awaited = False
        """The run is ending, and the user waits."""
        self._running = False
        self._downloading = self._no_downloads = False
        self._stop: Callable[[], bool] = bool
        self._told = False
        self._spent = 0.0
        self.names_over = ""
        """Why no more names are looked up."""
        self._end_began = self._named = 0.0
        self._asked_before = False
        self._asked: float | None = None
        self._names_told = False

    def hurry(self, say: Callable[[str], None] | None, what: str, stop: Callable[[], bool] = bool) -> None:
        """The run is ending, and the user waits; *say* is called with a message when reading *what* takes long.

        *stop* says whether the user waits for downloads no more.
        """
        self.awaited, self._say, self._what, self._stop = True, say, what, stop
        self._end_began, self._asked_before = time.monotonic(), self._requests.ending

    def names_left(self) -> bool:
        """Whether there is time to look up a name: always while the run goes on, :data:`NAMING` seconds at its end.

        A user who asks for the end while the run ends gets it at once.
        """
        if self.names_over or not self.awaited:
            return not self.names_over
        now = self._named = time.monotonic()
        if self._requests.ending and not self._asked_before:
            if self._asked is None:
                self._asked = now
            if now - self._asked >= ENDING:
                self.names_over = "you asked for the end"
        elif now - self._end_began >= NAMING:
            self.names_over = f"names were looked up for {NAMING:g} s after the end"
        elif not (self._told or self._names_told) and self._say is not None and now - self._end_began >= TOLD_AFTER:
            self._names_told = True
            self._say("looking up names of user functions; Ctrl-C prints the rest as numbers\n")
        return not self.names_over

    def name(self, what: str) -> None:
        """Set what the message says is being read."""
        self._what = what

    def give_up(self) -> bool:
        """Stop reading, as the user does not want to wait; False when they do not wait for any of this."""
        if self._downloading and not self._no_downloads:
            self._no_downloads = self.given_up = True
            return True
        if not self.awaited:
            return False
        if not self.given_up and (self._running or self._told):
            self.given_up = True
            return True
        now = time.monotonic()
        if not self.names_over and now - self._end_began >= TOLD_AFTER and now - self._named < _RECENT:
            self.names_over = "you asked for the end"
            return True
        return False

    def download(self, ask: Callable[[Callable[[], bool]], None]) -> bool:
        """Call *ask*, whose argument says whether to stop, once the user waits for the end. Returns if it was called.

        Before that nothing is downloaded: events would be lost meanwhile.
        """
        if not self.awaited or self._no_downloads or self._stop():
            return False
        self._downloading = True
        try:
            ask(lambda: self._no_downloads or self._stop())
        finally:
            self._downloading = False
            self._deadline = None  # the user waited for the download: what it brought is read, too
        return True

    def no_downloads(self) -> None:
        """Download nothing any more."""
        self._no_downloads = True

    def run(self, steps: Iterator[None]) -> bool:
        """Run a reading to its end; False when it was stopped."""
        if self._stopped():
            # What needs no reading any more is shown all the same, where there is time to look.
            return not self.late and all(False for _ in steps)
        started = time.monotonic()
        self._running = True
        try:
            for _ in steps:
                if self._stopped():
                    return False
                if self.awaited and not self._told and self._spent + time.monotonic() - started > TOLD_AFTER:
                    self._tell()
                if not self.names_left():
                    return False
        finally:
            self._running = False
            if self.awaited:
                self._spent += time.monotonic() - started
        return True

    def _stopped(self) -> bool:
        # A signal may say so at any time.
        if not self.given_up and self._requests.ending:
            now = time.monotonic()
            if self._deadline is None:
                self._deadline = now + ENDING
            self.given_up = self.late = now >= self._deadline
        return self.given_up

    def _tell(self) -> None:
        self._told = True
        if self._say is not None:
            self._say(f"reading source lines of {self._what}; Ctrl-C prints the rest without lines\n")


class SymbolFrame(msgspec.Struct, frozen=True):
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
_PLACES = 1 << 15
"""Places whose functions are remembered, over all binaries."""


class Images:
    """The binaries that processes run, each opened once whatever the processes call it, and what lies where in them.

    *named* returns the shown form of a symbol's name; *lines*, *fetched* and *debuginfo* are as for
    :class:`pytrace.runtime.stacks.symbolizer.Symbolizer`.
    Reasons why names are missing are put into *unreadable*, by what is missing. *reading* reads source lines.
    *foreign* reads binaries that others can write.
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
        foreign: ForeignBinaries | None = None,
    ) -> None:
        self._foreign = foreign
        self._reading = reading or LineReading()
        self._unreadable = unreadable
        self._named = named
        self._lines = lines
        self._fetched = lines and fetched
        self._search = debug_files.directories(debuginfo)
        self._binaries: dict[tuple[int, int, int], AnyBinary] = {}
        self._refused: dict[tuple[int, int, int], str] = {}
        """Why foreign binaries cannot be opened."""
        self._characters = 0
        self.lacking = ""
        """What servers may have of the last binary, in the limited process, which asks none."""
        self.dropped = 0
        """Binaries that were closed again to limit their number."""
        self._places: dict[tuple[AnyBinary, str, int, bool], list[SymbolFrame]] = {}

    def binary(self, path: str, status: os.stat_result | foreign_files.Status, root: str = "") -> Binary:
        """The binary at a path with its status; *root* is how absolute paths of its process are reached from here.

        Raises:
            TraceError: not an ELF file, or not readable.
        """
        binary = self._opened(path, status, root, None)
        assert isinstance(binary, Binary)
        return binary

    def any_binary(self, path: str, status: foreign_files.Status, root: str = "") -> AnyBinary:
        """The same for a file that others may have written, which a limited process reads then.

        Errors: :meth:`binary`.
        """
        return self._opened(path, status, root, self._foreign)

    def _opened(
        self, path: str, status: os.stat_result | foreign_files.Status, root: str, foreign: ForeignBinaries | None
    ) -> AnyBinary:
        stamp = (status.st_dev, status.st_ino, status.st_mtime_ns)
        binary = self._binaries.pop(stamp, None)
        if isinstance(binary, Binary) and binary.root and not root:
            # It was met in a container, whose debug files go with it; of this process they are found by our own paths.
            binary = None
        if stamp in self._refused:
            raise TraceError(self._refused[stamp])
        if binary is None:
            try:
                with foreign_files.open_regular(path) as file:
                    reached = foreign_files.status_of(file)
                    if (reached.st_dev, reached.st_ino) != stamp[:2]:
                        raise TraceError(f"{path} was replaced while it was opened")
                    if foreign is not None and not foreign_files.trusted(path, reached):
                        binary = self._open_foreign(foreign, file, path, root)
                    else:
                        binary = Binary(ElfFile(foreign_files.contents_of(file, path), path), self._search, root)
            except OSError as error:
                raise TraceError(f"cannot read {path}: {error.strerror}") from error
            if root and self._lines and isinstance(binary, Binary):
                # It is reached through a process, which may end before the next process that runs it is looked at.
                self._open_debug(binary)
            if len(self._binaries) >= _BINARIES:
                self._binaries.pop(next(iter(self._binaries))).keep_lines()
                self._places.clear()
                self.dropped += 1
            _ = binary.elf.segments  # damage is reported here; no address is looked up in a damaged file
        self._binaries[stamp] = binary
        return binary

    def _open_foreign(self, foreign: ForeignBinaries, file: BinaryIO, path: str, root: str) -> ForeignBinary:
        """One that is refused is not read again for each of its addresses. Errors: :meth:`ForeignBinaries.open`."""
        try:
            return foreign.open(file, path, root, self)
        except TraceError as error:
            status = foreign_files.status_of(file)
            remember(self._refused, (status.st_dev, status.st_ino, status.st_mtime_ns), error.message, _PLACES)
            raise

    def _open_debug(self, binary: Binary) -> None:
        """Open the debug information now; what is wrong with it is reported when it is asked."""
        with suppress(TraceError, OSError):
            _ = binary.debug

    def prepare(self, wanted: Iterable[tuple[AnyBinary, int]]) -> Iterator[None]:
        """Read the source lines of addresses of binaries in short steps, binary by binary and in order of address."""
        addresses: dict[AnyBinary, set[int]] = {}
        for binary, inside in wanted:
            addresses.setdefault(binary, set()).add(inside)
        for binary, places in addresses.items():
            if isinstance(binary, ForeignBinary):
                yield from binary.reading(sorted(places - binary.read), self._reading)
                continue
            # What cannot be read is reported when it is needed.
            with suppress(TraceError, OSError):
                debug = binary.debug
                if debug is not None:
                    for inside in sorted(places):
                        if not debug.knows(inside):
                            yield from debug.reading(inside)

    def name_ahead(self, module: str, binary: ForeignBinary, insides: Iterable[int]) -> Iterator[None]:
        """Look up addresses of a foreign binary, and calls that return there, many together: a question takes as long
        as several answers.
        """
        places = [place for inside in insides for place in ((inside, False), (inside - 1, True))]
        unknown = [place for place in places if (binary, module, *place) not in self._places]
        for start in range(0, len(unknown), _TOGETHER):
            part = unknown[start : start + _TOGETHER]
            for place, frames in zip(part, self._of_foreign(binary, module, part), strict=True):
                self._remember((binary, module, *place), frames)
            yield

    def _remember(self, key: tuple[AnyBinary, str, int, bool], frames: list[SymbolFrame]) -> None:
        self._characters += sum(len(frame.name) + len(frame.file) for frame in frames)
        if self._characters > _MOST_NAMES:
            self._places.clear()
            self._characters = 0
        remember(self._places, key, frames, _PLACES)

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

    def frames(self, binary: AnyBinary, module: str, inside: int, *, caller: bool = False) -> list[SymbolFrame]:
        """Functions at a virtual address of a binary that processes call *module*, inlined ones first.

        *caller*: *inside* is the last byte of a call, and the frames are those of the address that it returns to.
        """
        key = (binary, module, inside, caller)
        known = self._places.get(key)
        if known is None and isinstance(binary, ForeignBinary):
            (known,) = self._of_foreign(binary, module, [(inside, caller)])
            self._remember(key, known)
        elif known is None:
            assert isinstance(binary, Binary)
            known = self._frames(binary, module, inside)
            if caller:
                # What nothing called, as the first function of a coroutine (__start_context of glibc), is returned to
                # at its start: before that is no function.
                first = known if known[-1].name else self._frames(binary, module, inside + 1)
                known = first if first is not known and first[-1].name and not first[-1].offset else returned(known)
            remember(self._places, key, known, _PLACES)
        return known

    def _frames(self, binary: Binary, module: str, inside: int) -> list[SymbolFrame]:
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
            return [SymbolFrame("", inside, module)]
        name = self._named(symbol.name)
        last = SymbolFrame(name, inside - symbol.address, module)
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

    def _of_foreign(
        self, binary: ForeignBinary, module: str, places: Sequence[tuple[int, bool]]
    ) -> list[list[SymbolFrame]]:
        unread = [inside for inside, _ in places if inside not in binary.read]
        lines = self._lines and self._reading.run(binary.reading(unread, self._reading))
        named = binary.named(module, places, lines)
        what = named.lacks
        if what and not self._reading.given_up and self._reading.download(binary.ask_servers):
            if binary.unanswered:
                self._unreadable[f"{what} of {binary.path}"] = "; ".join(binary.unanswered)
                self._reading.no_downloads()
            else:
                named = binary.named(module, places, lines)
        for missing, why in named.unreadable.items():
            self._unreadable[missing] = why
        return [[SymbolFrame(row[0], row[1], module, *row[2:]) for row in rows] for rows in named.frames]

    # In the limited process, for ForeignBinaries:

    def foreign(self, elf: ElfFile, root: str) -> Binary:
        """A binary of others."""
        return Binary(elf, self._search, root)

    def read_lines(self, binary: Binary, insides: Iterable[int]) -> None:
        """Read the source lines of addresses."""
        for _ in self.prepare((binary, inside) for inside in insides):
            pass

    def named_there(self, binary: Binary, task: _Task) -> _Named:
        """The functions at places."""
        unreadable: dict[str, str] = {}
        self._unreadable, self._reading, self._places, self.lacking = unreadable, LineReading(), {}, ""
        before, self._lines = self._lines, self._lines and task.lines
        try:
            found = [self.frames(binary, task.module, inside, caller=caller) for inside, caller in task.places]
        finally:
            self._lines = before
        frames = tuple(
            tuple((_short(one.name), one.offset, _short(one.file), one.line, one.inlined) for one in row)
            for row in found
        )
        return _Named(frames=frames, lacks=self.lacking, unreadable=unreadable)

    def _lacks(self, binary: Binary, symbol: Symbol | None) -> bool:
        """True if servers are asked about a place: its function has no name, or no lines where these are wanted."""
        if symbol is None:
            return binary.is_stripped
        wanted = self._fetched and not self._reading.given_up
        return wanted and binary.debug is None and binary.go_lines is None

    def _downloaded(self, binary: Binary, what: str) -> bool:
        """Ask servers for a binary's debug information, if the user waits. Returns if there is any."""
        if inside_limits():
            self.lacking = what
            return False
        if binary.debug_path is not None or not self._reading.download(binary.ask_servers):
            return False
        if binary.unanswered:
            self._unreadable[f"{what} of {binary.path}"] = "; ".join(binary.unanswered)
            # The next question would take as long.
            self._reading.no_downloads()
        return binary.debug_path is not None


# ---------------------------------------------------------------------------------------------- foreign binaries


MEMORY = 256 << 20
"""Bytes that the process may add, beside the pages of files."""
SECONDS, LINE_SECONDS, TOTAL = 2.0, 10.0, 30.0
"""Of processor time for the names of one file, and for its source lines; and all that the run waits for them."""
OWNER_TOTAL = 10.0
"""Seconds of processor time for all files of one owner: another's are read all the same."""
PATIENCE = 10.0
"""Seconds that the disk may take."""
_STEP = 0.004
_TOGETHER = 256
_STARTED_LINES = 64

_Row = tuple[str, int, str, int, bool]
"""A frame without its module."""


_LONGEST_NAME = 1 << 14
"""Characters of a name. Templates of C++ make some of 5,000."""
_MOST_NAMES = 64 << 20
"""Characters of the names of foreign binaries that the tracer remembers."""


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


class _Task(msgspec.Struct, frozen=True, kw_only=True):
    """What the process is asked about one binary."""

    what: str
    """``open``, ``frames``, ``lines``, ``symbols``, ``detail``, ``keep``."""
    number: int
    path: str = ""
    root: str = ""
    status: foreign_files.Status | None = None
    module: str = ""
    places: tuple[tuple[int, bool], ...] = ()
    lines: bool = False
    debug_path: str = ""
    """The debug file that a server has sent."""


class _Named(msgspec.Struct, frozen=True):
    """What the process has found."""

    problem: str = ""
    """Why a binary cannot be opened."""
    segments: tuple[Segment, ...] = ()
    build_id: str = ""
    frames: tuple[tuple[_Row, ...], ...] = ()
    lacks: str = ""
    """What servers may have."""
    unreadable: dict[str, str] = {}
    detail: int = 0


class ForeignElf:
    """What is asked of a file of others without the process."""

    def __init__(self, segments: tuple[Segment, ...], build_id: str, view: foreign_files.ReadFile) -> None:
        self.segments = segments
        self.build_id = build_id
        self.view = view

    def address_at(self, offset: int) -> int | None:
        """Virtual address of a position in the file."""
        return address_of(self.segments, offset)


class ForeignBinaries:
    """The limited process that reads binaries of others. *detail* is that of ``met_binaries``."""

    def __init__(self, detail: Callable[[Binary], int]) -> None:
        self._detail = detail
        self._numbers = 0
        self._images: Images | None = None
        self._binaries: dict[int, Binary] = {}
        self._spent: dict[int, float] = {}
        """Seconds of processor time, by owner."""
        self.process = LimitedProcess(self._serve, Limits(memory=MEMORY, patience=PATIENCE, total=TOTAL))

    def open(self, file: BinaryIO, path: str, root: str, images: Images) -> ForeignBinary:
        """The binary in a file, which may be closed then.

        Raises:
            TraceError: it is none, or takes too much.
        """
        self._images = images
        self._numbers += 1
        binary = ForeignBinary(self, self._numbers, file, path, root)
        binary.open()
        return binary

    def time_for(self, owner: int, spent: float, most: float) -> float:
        """Seconds of processor time that a file of an owner may still take.

        Raises:
            LimitError: none.
        """
        left = min(most - spent, OWNER_TOTAL - self._spent.get(owner, 0.0))
        if left <= 0:
            text = f"files of user {owner}" if most - spent > 0 else "it"
            raise LimitError(f"{text} took more processor time than they may" if most > spent else
                             "it takes more processor time than a file may")  # fmt: skip
        return left

    def spend(self, owner: int, seconds: float) -> None:
        """A file of an owner took processor time."""
        self._spent[owner] = self._spent.get(owner, 0.0) + seconds

    # In the process:

    def _serve(self, request: bytes, descriptors: list[int]) -> tuple[bytes, list[int]]:
        task = typed_json.decode(request, _Task)
        images = self._images
        assert images is not None
        try:
            named = self._opened(images, task, *descriptors) if task.what == "open" else self._asked(images, task)
        except TraceError as error:
            named = _Named(problem=error.message)
        return typed_json.encode(named), []

    def _opened(self, images: Images, task: _Task, descriptor: int) -> _Named:
        assert task.status is not None
        elf = ElfFile(foreign_files.contents_of(foreign_files.reopened(descriptor, task.status), task.path), task.path)
        binary = self._binaries[task.number] = images.foreign(elf, task.root)
        if task.debug_path:
            binary.use_debug_file(task.debug_path)
        segments = elf.segments
        try:
            build_id = elf.build_id
        except TraceError:
            build_id = ""
        return _Named(segments=segments, build_id=build_id)

    def _asked(self, images: Images, task: _Task) -> _Named:
        binary = self._binaries[task.number]
        if task.what == "lines":
            images.read_lines(binary, [inside for inside, _ in task.places])
        elif task.what == "symbols":
            with suppress(TraceError, OSError):  # it is reported when it is needed
                _ = binary.tables
        elif task.what == "detail":
            return _Named(detail=self._detail(binary))
        elif task.what == "keep":
            binary.keep_lines()
        else:
            return images.named_there(binary, task)
        return _Named()


class ForeignBinary:
    """A binary of others. Each question goes to the limited process, which opens it anew if it had to be ended."""

    elf: ForeignElf

    def __init__(self, binaries: ForeignBinaries, number: int, file: BinaryIO, path: str, root: str) -> None:
        self.path = path
        self._binaries = binaries
        self._number = number
        self._root = root
        self._status = foreign_files.status_of(file)
        self._file = foreign_files.ReadFile(file.fileno(), 0, self._status.st_size)
        self._generation = 0
        self._spent = self._spent_lines = 0.0
        self._problem = self._line_problem = ""
        self._debug_path = ""
        self._has_symbols = False
        self._asked = False
        self.unanswered: list[str] = []
        self.read: set[int] = set()
        """Addresses whose source lines were read, or cannot be."""

    def open(self) -> None:
        """Have the process open it.

        Raises:
            TraceError: it is no ELF file, or takes too much.
        """
        task = _Task(
            what="open", number=self._number, path=self.path, root=self._root, status=self._status,
            debug_path=self._debug_path,
        )  # fmt: skip
        try:
            named = self._said(self._start(task))
        except (LimitError, LostError) as error:
            raise TraceError(f"{self.path} is not read: {error}") from None
        if named.problem:
            raise TraceError(named.problem)
        self._generation = self._binaries.process.generation
        self.elf = ForeignElf(named.segments, named.build_id, self._file)

    def _start(self, task: _Task, *, lines: bool = False) -> Pending:
        spent, most = (self._spent_lines, LINE_SECONDS) if lines else (self._spent, SECONDS)
        seconds = self._binaries.time_for(self._status.st_uid, spent, most)
        descriptors = [self._file.descriptor] if task.what == "open" else []
        return self._binaries.process.start(typed_json.encode(task), descriptors, seconds)

    def _said(self, pending: Pending, *, lines: bool = False) -> _Named:
        data, _ = self._binaries.process.result(pending)
        self._binaries.spend(self._status.st_uid, pending.cpu)
        if lines:
            self._spent_lines += pending.cpu
        else:
            self._spent += pending.cpu
        return typed_json.decode(data, _Named)

    def _ask(self, task: _Task) -> _Named:
        """What the process says of it. Errors: those of :meth:`LimitedProcess.call`, and :meth:`open`."""
        for attempt in range(_ATTEMPTS):
            if self._generation != self._binaries.process.generation or not self._binaries.process.running:
                self.open()
            try:
                return self._said(self._start(task))
            except LostError:
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError

    def named(self, module: str, places: Sequence[tuple[int, bool]], lines: bool) -> _Named:
        """The functions at addresses; without names if that takes too much, as is said in its *unreadable*."""
        task = _Task(
            what="frames", number=self._number, module=module, places=tuple(places),
            lines=lines and not self._line_problem,
        )  # fmt: skip
        unreadable = {f"source lines of {module}": self._line_problem} if lines and self._line_problem else {}
        if not self._problem:
            try:
                named = self._ask(task)
                if len(named.frames) == len(places):
                    return replace(named, unreadable={**unreadable, **named.unreadable})
                self._problem = "the process that read it answered something else"
            except TraceError as error:
                self._problem = error.message
            except (LimitError, LostError, msgspec.ValidationError) as error:
                self._problem = f"it is not read: {error}"
        rows: tuple[tuple[_Row, ...], ...] = tuple((("", inside + caller, "", 0, False),) for inside, caller in places)
        return _Named(frames=rows, unreadable={f"symbols of {module}": self._problem})

    def reading(self, insides: Sequence[int], reading: LineReading) -> Iterator[None]:
        """Have the process read source lines of addresses, and wait for it in short steps."""
        process = self._binaries.process
        for start in range(0, len(insides), _STARTED_LINES):
            if self._problem or self._line_problem:
                return
            part = insides[start : start + _STARTED_LINES]
            task = _Task(what="lines", number=self._number, places=tuple((inside, False) for inside in part))
            try:
                if self._generation != process.generation or not process.running:
                    self.open()
                pending = self._start(task, lines=True)
                try:
                    while not process.ready(pending, _STEP):
                        yield
                finally:
                    if not pending.over and reading.given_up:
                        process.close()
                self._said(pending, lines=True)
                self.read.update(part)
            except TraceError as error:
                self._problem = error.message
            except LostError:
                return
            except LimitError as error:
                self._line_problem = f"they are not read: {error}"

    def read_symbols(self) -> None:
        """Have the process read its symbols now, as the file may go with its container."""
        if not self._has_symbols:
            self._has_symbols = True
            with suppress(TraceError, LimitError, LostError):
                self._ask(_Task(what="symbols", number=self._number))

    def detail(self) -> int:
        """As that of ``met_binaries``."""
        with suppress(TraceError, LimitError, LostError, msgspec.ValidationError):
            return self._ask(_Task(what="detail", number=self._number)).detail
        return 0

    def ask_servers(self, stop: Callable[[], bool] = bool) -> None:
        """As :meth:`Binary.ask_servers`; only the file of a server is read in the process."""
        if self._asked or not self.elf.build_id or not os.environ.get("DEBUGINFOD_URLS"):
            return
        self._asked = True
        path, self.unanswered = debug_files.fetch(self.elf.build_id, stop)
        if path is not None and debug_files.has_build_id(path, self.elf.build_id):
            self._debug_path = path
            self._generation = 0

    def keep_lines(self) -> None:
        """Cache the source lines that were read for later runs."""
        if self._generation == self._binaries.process.generation and self._binaries.process.running and self.read:
            with suppress(TraceError, LimitError, LostError):
                self._ask(_Task(what="keep", number=self._number))


_ATTEMPTS = 2
AnyBinary = Binary | ForeignBinary


def with_lines(places: list[Place], last: SymbolFrame, named: Callable[[str], str]) -> list[SymbolFrame]:
    """Source places for a function's frame, and the frames of what was inlined there."""
    frames = [
        SymbolFrame(
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
    frames.append(SymbolFrame(with_bodies(last.name, outer.written), last.offset, last.module, outer.file, outer.line))
    return frames


def reason(error: TraceError | OSError) -> str:
    """Why a binary or its debug information could not be read."""
    return error.message if isinstance(error, TraceError) else f"cannot read {error.filename}: {error.strerror}"


def remember(cache: dict[_Key, _Value], key: _Key, value: _Value, most: int) -> None:
    """Put a value into a cache, which is emptied when it has *most* of them."""
    if len(cache) >= most:
        cache.clear()
    cache[key] = value


def returned(frames: list[SymbolFrame]) -> list[SymbolFrame]:
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
