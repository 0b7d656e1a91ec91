"""The symboliser that output uses: one object for a session."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from pytrace.base import kernel_files
from pytrace.core.diagnostics import TraceError
from pytrace.core.stack_formats import FIRST_IMAGE
from pytrace.core.types import JIT
from pytrace.runtime.binaries.debug_files import has_dwarf
from pytrace.runtime.binaries.elf_file import quoted
from pytrace.runtime.binaries.user_binary import Binary, CachedDebugInfo
from pytrace.runtime.machine import foreign_files, procfs
from pytrace.runtime.machine.demangle import demangle, short_name
from pytrace.runtime.machine.kernel_functions import KERNEL_HALF, Kallsyms
from pytrace.runtime.stacks.address_space import AddressSpace, Image, MappingRecorder
from pytrace.runtime.stacks.compiled_code import CompiledCode
from pytrace.runtime.stacks.image_places import (
    ImagePlace,
    KernelImages,
    LinkedPlace,
    MetBinaries,
    build_id,
    detail,
    is_file,
    is_generated,
    is_memory_file,
    linked,
    replaced,
)
from pytrace.runtime.stacks.images import (
    ENDING,
    ForeignBinaries,
    ForeignBinary,
    Images,
    LineReading,
    SymbolFrame,
    reason,
    remember,
    returned,
    vdso_image,
    with_lines,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from collections.abc import Mapping as Table

    from pytrace.base.interruption import EndRequests
    from pytrace.runtime.binaries.elf_file import Segment
    from pytrace.runtime.machine.procfs import Mapping
    from pytrace.runtime.stacks.images import AnyBinary
    from pytrace.runtime.stacks.python_processes import PythonFunctions


_YOUNG = 2.0
"""Seconds for which a process that compiles code is looked at so often."""
_MOST_COMPILING = 64
_PASSING = 0.1
"""Maximum seconds between two looks at the files of processes with another root."""
_SPACES = 4096
_MAPPED = 1 << 14
"""Processes whose mappings are remembered."""
_MOST_NOTICES = 50
"""Programs and libraries whose names are missing of which each is reported."""
_LONGEST_REASON = 600
_NAMED_UNKNOWN = 6
"""How many processes without known mappings are remembered for the notice at the end, and one more."""
_TRAMPOLINES = (bytes.fromhex("48c7c00f0000000f05"), bytes.fromhex("681180d2010000d4"))
"""Code that signal handlers return to: ``rt_sigreturn(2)`` in x86-64 (in libc) and arm64 (in the vdso)."""
_KERNEL_REREAD = 1.0
"""Least seconds between readings of the kernel's symbols that unknown addresses ask for."""

_REASONS = 512


def hidden(pid: int) -> bool:
    """True if a process exists whose mappings this user may not read."""
    try:
        with open(f"/proc/{pid}/maps", "rb"):
            return False
    except PermissionError:
        return True
    except OSError:
        return False


def _in_process(
    image: Image, address: int, binary: Callable[[AddressSpace, Mapping], AnyBinary | None]
) -> ImagePlace:
    """Where an address of a process lies; *binary* opens the file of a mapping."""
    mapping = image.find(address)
    if mapping is None:
        return ImagePlace("", address)
    distance = address - mapping.start
    if mapping.path == "[vdso]":
        vdso = vdso_image()
        return ImagePlace("" if vdso is None else build_id(vdso), distance)
    opened = binary(image.space, mapping) if is_file(mapping) or is_memory_file(mapping) else None
    if opened is None and not is_file(mapping):
        return ImagePlace("", 0 if is_generated(mapping) else address)
    inside = None if opened is None else opened.elf.address_at(distance + mapping.offset)
    if opened is None or inside is None:
        return ImagePlace("", distance + mapping.offset)
    return ImagePlace(build_id(opened), inside)


class Unreadable(dict[str, str]):
    """Reasons why names are missing, by what is missing: of as many as are said at the end several times over."""

    left_out = 0
    """Reasons that came later: a long run meets ever new programs."""

    def __setitem__(self, what: str, why: str) -> None:
        if what in self or len(self) < _REASONS:
            super().__setitem__(what, why)
        else:
            self.left_out += 1


class Symbolizer:
    """Functions of kernel and user addresses.

    *cache* is ``cache_user_symbols``: ``PER_PID`` keeps what a process has mapped, ``PER_PROGRAM`` shares it among all
    processes of a program (right when addresses are not randomised), ``NONE`` reads it for every address, ``AUTO`` is
    ``PER_PROGRAM`` when the kernel does not randomise addresses and ``PER_PID`` when it does. *demangled*
    shows C++ and Rust names as written, *short* without the arguments of generics; *lines* adds source lines and
    inlined functions from DWARF, *fetched* also from that of servers. *debuginfo* are the values of ``--debuginfo``;
    *vmlinux* an image of the kernel with DWARF, found by itself when empty; *python* resolves frames of Python.
    *places*: user stacks are not named here but by :meth:`linked`, so no source lines are read ahead.
    """

    def __init__(
        self,
        *,
        cache: str = "PER_PID",
        demangled: bool = True,
        short: bool = False,
        lines: bool = False,
        fetched: bool = False,
        debuginfo: Iterable[str] = (),
        vmlinux: str = "",
        requests: EndRequests | None = None,
        python: PythonFunctions | None = None,
        places: bool = False,
    ) -> None:
        self._python = python
        self._cache = _cache_mode(cache)
        self._named = short_name if demangled and short else demangle if demangled else str
        self._lines = lines
        self._unreadable = self._reasons = Unreadable()
        self._untold = Unreadable()
        self._compiled = CompiledCode(self._unreadable)
        self._of_all = False
        self._brief_until = 0.0
        self._compiling: dict[int, tuple[AddressSpace, float]] = {}
        """Whether mappings of all processes are followed."""
        self._reading = LineReading(requests)
        self._foreign = ForeignBinaries(detail)
        self._images = Images(
            self._unreadable,
            named=self._named,
            lines=lines,
            fetched=fetched,
            debuginfo=debuginfo,
            reading=self._reading,
            foreign=self._foreign,
        )
        self._met = MetBinaries(self._images)
        self._ahead = lines and not places
        self._vmlinux = vmlinux
        self._kallsyms = Kallsyms()
        self._kernel_read = 0.0
        self._kernel_debug: tuple[CachedDebugInfo, int] | None = None
        self._kernel_debug_sought = False
        self._spaces: dict[int, AddressSpace] = {}
        self._programs: dict[tuple[int, int], AddressSpace] = {}
        self._mapped: dict[tuple[int, int, int], AnyBinary] = {}  # by address space, start and inode of a mapping
        self._generated: dict[tuple[int, int, int], None] = {}
        """Mappings of files in memory that are no programs or libraries."""
        self._replaced: dict[tuple[int, int, int], Mapping | None] = {}
        """Of anonymous mappings (address space, start and end) the part of a file that each stands for."""
        self._dropped = 0
        self._recorder: MappingRecorder | None = None
        self._kernel_images = KernelImages()
        self._unknown: dict[int, None] = {}
        self._left_out = 0
        """How many addresses were asked for when there was no more time."""
        self._forgotten = 0
        """How many addresses were asked for of images that are not known (any more)."""

    # ---- kernel

    def kernel(self, address: int, *, caller: bool = False) -> list[SymbolFrame]:
        """Functions of a kernel address, inlined ones first; one frame without a name when it is unknown.

        *caller*: it is a return address from a stack; the call is just before it, perhaps at the very end of its
        function, so that the address itself would already be that of the next one.
        """
        return returned(self._kernel(address - 1)) if caller else self._kernel(address)

    def _kernel(self, address: int) -> list[SymbolFrame]:
        place = self._kallsyms.place(address)
        if place is None and address >= KERNEL_HALF and self._kallsyms.withheld:
            why = f"the kernel hides their addresses ({self._kallsyms.withheld})"
            self._unreadable["names of kernel functions"] = why
            return [SymbolFrame("")]
        if place is None and address >= KERNEL_HALF and time.monotonic() - self._kernel_read > _KERNEL_REREAD:
            # Modules and BPF programs come and go.
            self._kernel_read = time.monotonic()
            self._kallsyms = Kallsyms()
            place = self._kallsyms.place(address)
        if place is None:
            return [SymbolFrame("")]
        last = SymbolFrame(place.name, place.offset, place.module)
        if self._lines and not place.module:
            try:
                debug = self._kernel_dwarf()
                if debug is not None and self._reading.run(debug[0].reading(address - debug[1])):
                    return with_lines(debug[0].frames(address - debug[1]), last, self._named)
            except (TraceError, OSError) as error:
                self._unreadable["source lines of the kernel"] = reason(error)
        return [last]

    def _kernel_dwarf(self) -> tuple[CachedDebugInfo, int] | None:
        """DWARF of the kernel, and how far the running one was moved; None when there is no image with DWARF."""
        if not self._kernel_debug_sought:
            self._kernel_debug_sought = True
            path = self._vmlinux or _kernel_image()
            if path:
                start = self._kallsyms.address("_stext")
                image = Binary.open(path)
                linked = image.variable_address("_stext")
                if start is not None and linked is not None and has_dwarf(image.elf):
                    self._kernel_debug = CachedDebugInfo(image.elf), start - linked
        return self._kernel_debug

    def kernel_place(self, address: int) -> ImagePlace:
        """Where an address lies in the kernel or the module that :meth:`kernel` names, as it was linked."""
        return self._kernel_images.place(self._kallsyms, address)

    # ---- user

    def start(
        self, pids: Iterable[int] | None = None, *, prompt: bool = False, images: tuple[int, int] | None = None
    ) -> None:
        """Follow the mappings of processes from now on, so that those which exit can be symbolised (see `recorder`).

        *pids* limits what is read of processes that run already. *prompt*: :meth:`changes` is asked for. *images* are
        descriptors of the maps through which programs report what :class:`MappingRecorder` calls images.

        Raises:
            TraceError: the kernel refuses it; the symboliser then knows only processes that are alive.
        """
        if self._recorder is None:
            self._recorder = MappingRecorder(pids, prompt=prompt, images=images)
            self._of_all = pids is None
            self._brief_until = time.monotonic() + _YOUNG

    def attached(self) -> None:
        """The programs of the script are attached."""
        if self._recorder is not None:
            self._recorder.attached()

    def changes(self) -> list[tuple[str, int, int]]:
        """Changes since the last call that :meth:`poll` has read, see :attr:`MappingRecorder.changes`."""
        if self._recorder is None:
            return []
        changes, self._recorder.changes = self._recorder.changes, []
        return changes

    def pause(self, longest: float) -> float:
        """Seconds until :meth:`poll` is due, at most *longest*: programs of containers may run for a moment only."""
        brief = self._of_all or self._compiling or time.monotonic() < self._brief_until
        return min(longest, _PASSING) if brief else longest

    def poll(self) -> None:
        """Read the kernel's records of processes; called several times a second while a session runs."""
        if self._recorder is not None:
            self._recorder.drain()
            # These may be of processes that are not traced: why one cannot be read is said when a name of it is wanted.
            self._reasons = self._untold
            for space, mapping in self._recorder.take_fleeting():
                # Once its processes have ended, nobody can tell what it was.
                self._part(space, mapping)
            for space, mapping in self._recorder.take_passing():
                # A container may live for less than a second.
                self._binary(space, mapping)
            self._reasons = self._unreadable
            self._read_names(self._recorder.take_compiling())

    def _read_names(self, spaces: list[AddressSpace]) -> None:
        """Read what processes write about the code that they compile, as long as they are young.

        They may remove it at their end, or take it along with their container. Of older ones it is read each second.
        """
        now = time.monotonic()
        for space in spaces:
            if len(self._compiling) < _MOST_COMPILING:
                self._compiling.setdefault(id(space), (space, now + _YOUNG))
        for number, (space, until) in list(self._compiling.items()):
            self._compiled.follow(space)
            if space.ended or now > until:
                del self._compiling[number]

    def renew(self, cpu: int) -> list[int]:
        """Follow mappings on a CPU that came online. Returns the new descriptors."""
        return self._recorder.renew(cpu) if self._recorder is not None else []

    @property
    def descriptors(self) -> list[int]:
        """Descriptors that become readable when :meth:`poll` should be called soon."""
        return self._recorder.descriptors if self._recorder is not None else []

    def close(self) -> None:
        """Stop following processes; look-ups still work."""
        if self._recorder is not None:
            self._recorder.drain()
            self._recorder.close()
        self._images.keep()
        self._foreign.process.close()
        if self._kernel_debug is not None:
            self._kernel_debug[0].keep()

    def user(self, process: int, address: int, *, caller: bool = False) -> list[SymbolFrame]:
        """Functions of an address of a process, inlined ones first; one frame without a name when it is unknown.

        *process* is a process id, or the number of an image (``codegen.walkers.memory_images``). *caller* as for
        :meth:`kernel`.
        """
        if self._python is not None and self._python.has(address):
            return [self._python.frame(address)]
        if not self._reading.names_left():
            self._left_out += 1
            return [SymbolFrame("")]
        image, address = self._image(process), address - caller
        if image is None:
            self._forgotten += 1
            return [SymbolFrame("")]
        space, mapping = image.space, image.find(address)
        pid = space.pid
        if mapping is None:
            if not space.known and hidden(pid):
                self._unreadable["names of functions of other users' processes"] = (
                    "their mappings may not be read (that needs CAP_SYS_PTRACE, or root)"
                )
            elif not space.known:
                if len(self._unknown) < _NAMED_UNKNOWN:
                    self._unknown[pid] = None
            elif space.cut:
                self._unreadable[f"names of some functions of process {pid}"] = (
                    f"its list of mappings has more than {procfs.MOST_MAPS >> 20} MiB"
                )
            return [SymbolFrame("")]
        if mapping.path == "[vdso]":
            distance = address - mapping.start
            return self._in_image(vdso_image(), mapping, distance, distance, caller)
        if not is_file(mapping):
            frame = self._compiled.frame(process, space, mapping, address, caller)
            part = self._part(space, mapping) if frame.name == JIT else None
            if part is None:
                return [frame]
            mapping = part
        binary = self._binary(space, mapping)
        position = address - mapping.start + mapping.offset
        inside = None if binary is None else binary.elf.address_at(position)
        return self._in_image(binary, mapping, position, inside, caller)

    def _in_image(
        self, binary: AnyBinary | None, mapping: Mapping, position: int, inside: int | None, caller: bool
    ) -> list[SymbolFrame]:
        """Functions at a *position* in a mapped file, which is the address *inside* of the binary as it was linked."""
        if binary is None or inside is None:
            return [SymbolFrame("", position + caller, mapping.path)]
        return self._images.frames(binary, mapping.path, inside, caller=caller)

    def user_place(self, pid: int, address: int) -> ImagePlace:
        """Where an address of a process lies in the binary that :meth:`user` names, as it was linked."""
        if self._python is not None and self._python.has(address):
            return ImagePlace("", 0)
        image = self._image(pid) if self._reading.names_left() else None
        return ImagePlace("", address) if image is None else _in_process(image, address, self._binary)

    def linked(self, pid: int, address: int) -> LinkedPlace | None:
        """Where an address of a process lies in a binary with a build id, which is remembered; None elsewhere."""
        python = self._python is not None and self._python.has(address)
        image = None if python or not self._reading.names_left() else self._image(pid)
        place = None if image is None else linked(image, address, self._binary)
        if place is None:
            return None
        self._met.add(place[0].build_id, place[1])
        return place[0]

    def owner(self, process: int) -> int:
        """The process id of an image, or of a process that has images; 0 for others, and for images not known."""
        return 0 if self._recorder is None else self._recorder.owner(process)

    def origin(self, process: int, address: int) -> tuple[object, ...]:
        """What two addresses have in common that have the same name: a place in a file, or that they are one address
        of one image.
        """
        image = self._image(process) if self._reading.names_left() else None
        mapping = None if image is None else image.find(address)
        if mapping is None or image is None:
            return (address,)
        if mapping.inode or mapping.path == "[vdso]":
            return mapping.device, mapping.inode, mapping.path, address - mapping.start + mapping.offset
        return image.space.serial, process, address

    def met_binaries(self) -> MetBinaries:
        """The binaries that :meth:`linked` has met."""
        return self._met

    # ---- code that was compiled at run time

    def drained(self, moment: int) -> None:
        """All events up to a moment (monotonic, nanoseconds) were handled."""
        self._compiled.drained(moment)

    def keyed(self, periods: Table[tuple[int, int], tuple[int, int]], searched: int, *, over: bool = False) -> None:
        """When stacks in keys of maps were taken, see :meth:`CompiledCode.keyed`."""
        self._compiled.keyed(periods, searched, over=over)

    def follow_code(self, pid: int) -> bool:
        """As :meth:`CompiledCode.follow`."""
        image = self._image(pid) if self._reading.names_left() else None
        return image is not None and self._compiled.follow(image.space)

    # ---- source lines

    def prepare(self, addresses: Collection[tuple[int, int]]) -> Iterator[None]:
        """Read the source lines of user addresses (process, address) in short steps: :meth:`user` has them then.

        The binaries of a container go with it: they are opened, and their symbols read, whatever is shown.
        """
        wanted: list[tuple[AnyBinary, int]] = []
        foreign: dict[tuple[str, ForeignBinary], set[int]] = {}
        owner, mapping, binary = 0, None, None
        for count, (pid, address) in enumerate(addresses):
            if self._python is not None and self._python.has(address):
                continue
            if not count % 64:
                yield
                mapping = None  # it may have changed meanwhile
            if mapping is None or pid != owner or not mapping.start <= address < mapping.end:
                owner, (mapping, binary) = pid, self._ahead_of(pid, address)
            if mapping is not None and binary is not None and (self._ahead or isinstance(binary, ForeignBinary)):
                inside = binary.elf.address_at(address - mapping.start + mapping.offset)
                if inside is not None and self._ahead:
                    wanted.append((binary, inside))
                if inside is not None and isinstance(binary, ForeignBinary) and self._reading.awaited:
                    foreign.setdefault((mapping.path, binary), set()).add(inside)
        yield from self._images.prepare(wanted)
        for (module, binary), insides in foreign.items():
            yield from self._images.name_ahead(module, binary, sorted(insides))

    def _ahead_of(self, pid: int, address: int) -> tuple[Mapping | None, AnyBinary | None]:
        """The mapping of an address and its binary, where one of them is needed before names are shown."""
        image = self._image(pid)
        if image is None or not (self._ahead or image.space.root or self._reading.awaited):
            return None, None
        mapping = image.find(address)
        if mapping is None:
            return None, None
        mapping = self._part(image.space, mapping) or mapping
        if not (is_file(mapping) or is_memory_file(mapping)):
            return mapping, None
        binary = self._binary(image.space, mapping)
        if isinstance(binary, ForeignBinary) and not (self._ahead or self._reading.awaited):
            binary.read_symbols()
        elif isinstance(binary, Binary) and not self._ahead and image.space.root:
            with suppress(TraceError, OSError):  # it is reported when it is needed
                _ = binary.tables
        return mapping, binary

    def hurry(self, say: Callable[[str], None] | None) -> None:
        """The run is ending, and the user waits; *say* is called with a message when source lines take long."""
        if self._recorder is not None:
            self._recorder.end()
        self._reading.hurry(say, "stacks")
        self._images.forget_unknown()

    def wait_for(self, steps: Iterator[None], what: str) -> None:
        """Read to the end of *steps*; *what* is reported when that takes long."""
        self._reading.name(what)
        self._reading.run(steps)

    def give_up_lines(self) -> bool:
        """Show the rest without source lines; False when nobody is waiting for these."""
        return self._reading.give_up()

    def trampoline(self, pid: int, address: int) -> bool:
        """True if signal handlers return to that address: the frame after it was interrupted and called nothing."""
        if self._python is not None and self._python.has(address):
            return False
        image = self._image(pid)
        return image is not None and self._code(image, address).startswith(_TRAMPOLINES)

    def _code(self, image: Image, address: int) -> bytes:
        """Some bytes of machine code at an address, from the file that is mapped there; empty when there is none."""
        mapping = image.find(address)
        if mapping is None:
            return b""
        vdso = mapping.path == "[vdso]"
        part = mapping if vdso else self._part(image.space, mapping)
        if part is None:
            return b""
        mapping = part
        binary = vdso_image() if vdso else self._binary(image.space, mapping)
        if binary is None:
            return b""
        start = address - mapping.start + (0 if vdso else mapping.offset)
        return bytes(binary.elf.view[start : start + 16])

    def _image(self, process: int) -> Image | None:
        """The image of a number in stacks and symbols; None for one that was not reported, or that was long ago."""
        if self._recorder is not None:
            known = self._recorder.image(process)
            if known is not None:
                return known
        return None if process >= FIRST_IMAGE else Image(self._space(process))

    def _space(self, pid: int) -> AddressSpace:
        if self._cache == "NONE":
            return AddressSpace(pid, procfs.read_maps(pid))
        space = self._spaces.get(pid)
        if space is None:
            space = AddressSpace(pid, procfs.read_maps(pid))
            if self._cache == "PER_PROGRAM":
                space = self._shared(space)
            if len(self._spaces) >= _SPACES:
                del self._spaces[next(iter(self._spaces))]
            self._spaces[pid] = space
        return space

    def _shared(self, space: AddressSpace) -> AddressSpace:
        """The first address space that was seen of a program, in place of one that a later process has."""
        program = space.program
        if program is None:
            return space
        key = (program.device, program.inode)
        if key not in self._programs:
            remember(self._programs, key, space, _SPACES)
        return self._programs[key]

    def _binary(self, space: AddressSpace, mapping: Mapping) -> AnyBinary | None:
        if self._dropped != self._images.dropped:
            self._dropped = self._images.dropped
            self._mapped.clear()
        key = (space.serial, mapping.start, mapping.inode)
        known = self._mapped.get(key)
        if known is None and key not in self._generated:
            known = self._open_binary(space, mapping)
            if known is not None:
                remember(self._mapped, key, known, _MAPPED)
            elif is_memory_file(mapping):
                remember(self._generated, key, None, _MAPPED)
        return known

    def _part(self, space: AddressSpace, mapping: Mapping) -> Mapping | None:
        """The part of a file with code that a mapping is of, or stands for; None for one without such a file."""
        if is_file(mapping):
            return mapping
        if is_memory_file(mapping):
            return mapping if self._binary(space, mapping) is not None else None
        key = (space.serial, mapping.start, mapping.end)
        if key not in self._replaced:
            if space.ended:
                return None
            text = space.maps_text()
            if not text:
                return None
            part = None
            if any(row.start == mapping.start and not row.inode for row in procfs.executable_mappings(text)):
                part = replaced(mapping, procfs.file_mappings(text), lambda row: self._segments(space, row))
            remember(self._replaced, key, part, _MAPPED)
        return self._replaced[key]

    def _segments(self, space: AddressSpace, mapping: Mapping) -> tuple[Segment, ...]:
        binary = self._binary(space, mapping)
        return () if binary is None else binary.elf.segments

    def _open_binary(self, space: AddressSpace, mapping: Mapping) -> AnyBinary | None:
        why = "the file was removed or replaced since it was mapped"
        for path in _places(space, mapping):
            try:
                status = foreign_files.look(path)
            except TimeoutError as error:
                why = f"it is not read: {error.strerror}"
                continue
            except OSError:
                continue
            # Overlay file systems report another device for the mapping than for the path, but the same inode.
            if status.st_ino != mapping.inode:
                continue
            try:
                return self._images.any_binary(path, status, space.root)
            except TraceError as error:
                if not is_memory_file(mapping):
                    self._reasons[f"symbols of {mapping.path}"] = error.message
                return None
        if is_memory_file(mapping):
            return None
        # The first reason says most: a file system that did not answer is not asked again.
        what = f"symbols of {mapping.path}"
        if what not in self._reasons:
            self._reasons[what] = self._untold.get(what, why)
        return None

    def notices(self) -> list[str]:
        """Sentences about symbols that are missing and why, for the end of a session."""
        missing: dict[str, list[str]] = {}
        for what, why in sorted(self._unreadable.items()):
            missing.setdefault(why, []).append(what)
        notices = []
        for why, (what, *others) in missing.items():
            also = [f", {quoted(name.removeprefix('symbols of '))}" for name in others[:2]]
            also += [f" and {len(others) - 2} more"] * (len(others) > 2)
            notices.append(f"no {quoted(what)}{''.join(also)}: {quoted(why, _LONGEST_REASON)}")
        if len(notices) > _MOST_NOTICES:
            least = "at least " if self._unreadable.left_out else ""
            rest = sum(map(len, list(missing.values())[_MOST_NOTICES:]))
            notices[_MOST_NOTICES:] = [f"{least}{rest} more programs and libraries lack names"]
        if self._unknown:
            pids = ", ".join(str(pid) for pid in list(self._unknown)[: _NAMED_UNKNOWN - 1])
            more = ", …" if len(self._unknown) == _NAMED_UNKNOWN else ""
            notices.append(f"user addresses of exited processes are shown as numbers (pid {pids}{more})")
        if self._reading.late:
            notices.append(
                f"source lines were read for {ENDING:g} s after the interrupt; functions that were left have none"
            )
        if self._left_out:
            notices.append(f"{self._left_out} user addresses are shown as numbers: {self._reading.names_over}")
        if self._recorder is not None and self._recorder.lost:
            notices.append(f"{self._recorder.lost} mapping events lost; some user addresses are shown as numbers")
        if self._recorder is not None and self._recorder.without_room:
            notices.append(
                f"{self._recorder.without_room} times a process executed a program or unloaded code, and could not be "
                "followed: too many processes do that; their user addresses are shown as numbers"
            )
        if self._forgotten:
            notices.append("some user addresses are shown as numbers: the program or library was replaced since then")
        return notices


def _cache_mode(value: str) -> str:
    if value != "AUTO":
        return value
    randomised = kernel_files.read_text("/proc/sys/kernel/randomize_va_space").strip() != "0"
    return "PER_PID" if randomised else "PER_PROGRAM"


def _places(space: AddressSpace, mapping: Mapping) -> list[str]:
    """Where the file of a mapping may be reached: through the process, from here, or by the mapping itself."""
    entry = f"/proc/{procfs.entry(space.pid)}"
    return [
        space.root + mapping.path,
        mapping.path,
        f"{entry}/map_files/{mapping.start:x}-{mapping.end:x}",
        f"{entry}/exe",
    ]


def _kernel_image() -> str:
    """An image of the running kernel that may have DWARF; empty when there is none."""
    for variable in ("PYTRACE_VMLINUX", "BPFTRACE_VMLINUX"):
        if os.environ.get(variable):
            return os.environ[variable]
    release = os.uname().release
    places = (
        f"/usr/lib/debug/boot/vmlinux-{release}",
        f"/usr/lib/debug/lib/modules/{release}/vmlinux",
        f"/boot/vmlinux-{release}",
        f"/lib/modules/{release}/build/vmlinux",
    )
    return next((path for path in places if os.path.exists(path)), "")
