"""User binaries: functions, source lines, parameters, stubs of linkage tables, static tracepoints; and the files that
targets of uprobe and USDT attach points name: paths, programs, libraries, globs, ``*``.

Source: the processor supplements of the ELF ABI for linkage tables;
https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation for the notes that ``<sys/sdt.h>`` leaves;
``sysdeps/generic/dl-cache.h`` of glibc for the library cache's format.
"""

from __future__ import annotations

import glob
import os
import struct
import time
from bisect import bisect_right
from contextlib import contextmanager
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from pytrace.base.limited_process import LimitError, limited_block
from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_info import IndirectFunction, UsdtProbe, UserParameter, UserSymbol
from pytrace.core.text import matching, name_pattern
from pytrace.core.types import Struct
from pytrace.runtime.binaries import debug_files, go_binaries
from pytrace.runtime.binaries.elf_file import (
    EM_AARCH64,
    EM_X86_64,
    MOST_NOTES,
    ElfFile,
    Symbol,
    attach_path,
    check_strings,
    function_names,
    is_elf,
)
from pytrace.runtime.binaries.function_places import Place, Places
from pytrace.runtime.binaries.go_binaries import GoLines
from pytrace.runtime.binaries.indirect_functions import IndirectFunctions
from pytrace.runtime.machine import fingerprints, foreign_files, procfs
from pytrace.runtime.machine.demangle import demangle, mangled, qualified_name
from pytrace.runtime.machine.foreign_files import is_regular, look, open_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pytrace.core.types import Type
    from pytrace.runtime.binaries.debug_info import DebugInfo
    from pytrace.runtime.binaries.elf_file import SymbolTable
    from pytrace.runtime.machine.fingerprints import Fact


_LIBRARY_CACHE = "/etc/ld.so.cache"
_MOST_CACHE = 16 << 20
"""Bytes that are read of a loader's cache, which may be that of a container. Most have some ten thousand."""
_LONGEST_PATH = 4096
_CACHE_MAGIC = b"glibc-ld.so.cache1.1"
_LIBRARY_DIRECTORIES = ("/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib")
_FLAGS = {"x86_64": 0x0300, "aarch64": 0x0A00, "s390x": 0x0400, "ppc64le": 0x0500, "riscv64": 0x1000}
"""High byte of a cache entry's flags for the libraries of this machine's own word size."""


class Libraries:
    """Finds binaries by the names that attach points use."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def find(self, target: str, pid: int | None, command: str = "") -> list[str]:
        """Paths that a target names, best first and each file once; empty when there is none.

        An empty *target* is the program that *pid* runs, ``*`` everything that *pid* (or any process) has mapped to
        execute, and the program that *command* will run. Paths of a process in another mount namespace go through
        ``/proc/PID/root``.
        """
        prefix = procfs.root_prefix(pid) if pid is not None else ""
        if target == "":
            program = procfs.executable(pid) if pid is not None else ""
            return [program] if program else []
        if target == "*":
            return self._mapped(pid, self.find(command, None)[:1] if command.strip("*") else [])
        if "!/" in target:
            path = _reached(prefix, target)
            return [path] if is_regular(attach_path(path)) else []
        if "*" in target:
            return _distinct(self._glob(target, prefix))
        if "/" in target:
            if pid is not None and target == f"/proc/{pid}/exe":
                target = f"/proc/{procfs.entry(pid)}/exe"
            path = _reached(prefix, target) if target.startswith("/") else target
            return [path] if is_regular(path) else []
        return _distinct([*self._program(target, prefix), *self._library(target, pid, prefix)])

    def dependencies(self, target: str, pid: int | None) -> list[Fact]:
        """Facts that the result of :meth:`find` depends on, beside the files themselves."""
        if target == "*" or "*" in target:
            # Processes and directories change without a trace that is cheap to check.
            return [("never",)]
        if pid is not None:
            # Names of the working directory stay names of ours.
            own = [fingerprints.path_fact(".")] if "/" in target and not os.path.isabs(target) else []
            return [fingerprints.process_fact(pid), *own]
        if "/" in target:
            return [fingerprints.file_fact(attach_path(target))]
        return [
            fingerprints.environment_fact("PATH"),
            fingerprints.environment_fact("LD_LIBRARY_PATH"),
            fingerprints.file_fact(_LIBRARY_CACHE),
            # What comes first may be there tomorrow.
            *(fingerprints.file_fact(f"{folder}/{target}") for folder in self._path()),
            *(fingerprints.file_fact(folder) for folder in self._library_path()),
        ]

    def _mapped(self, pid: int | None, also: list[str]) -> list[str]:
        pids = [pid] if pid is not None else procfs.process_ids()
        paths = dict.fromkeys([*also, *(path for number in pids for path in procfs.mapped_files(number))])
        # A path through another process is gone with that one; the same file may have a path of its own here.
        lasting_first = sorted(paths, key=lambda path: path.startswith("/proc/"))
        return [path for path in _distinct(lasting_first) if is_elf(path)]

    def _glob(self, target: str, prefix: str) -> list[str]:
        if "/" in target:
            patterns = [prefix + target if target.startswith("/") else target]
        else:
            patterns = [f"{prefix}{folder}/{target}" for folder in self._path()]
            patterns += [f"{prefix}{folder}/{target}" for folder in _LIBRARY_DIRECTORIES]
        # `[` and `?` stand for themselves in attach points.
        escaped = ("*".join(glob.escape(part) for part in pattern.split("*")) for pattern in patterns)
        return [
            path for pattern in escaped for path in sorted(glob.glob(pattern)) if is_regular(path) and is_elf(path)
        ]

    def _path(self) -> list[str]:
        return [folder for folder in self._environment.get("PATH", os.defpath).split(":") if folder]

    def _library_path(self) -> list[str]:
        return [folder for folder in self._environment.get("LD_LIBRARY_PATH", "").split(":") if folder]

    def _program(self, name: str, prefix: str) -> list[str]:
        paths = (_reached(prefix, f"{folder}/{name}") for folder in self._path())
        return [path for path in paths if is_regular(path) and os.access(path, os.X_OK)]

    def _library(self, name: str, pid: int | None, prefix: str) -> list[str]:
        """Libraries called ``name`` or ``name.so…``: those that the process has mapped, then the loader's cache."""
        paths: list[str] = []
        if pid is not None:
            paths += [path for path in procfs.mapped_files(pid) if _is_library(os.path.basename(path), name)]
        for soname, path in library_cache(prefix + _LIBRARY_CACHE):
            if _is_library(soname, name):
                paths.append(_reached(prefix, path))
        if not paths:
            for folder in (*self._library_path(), *_LIBRARY_DIRECTORIES):
                paths += sorted(path for path in glob.glob(f"{glob.escape(prefix + folder)}/{glob.escape(name)}*")
                                if _is_library(os.path.basename(path), name))  # fmt: skip
        return [path for path in paths if is_elf(path)]


def _reached(prefix: str, path: str) -> str:
    """A path of a process in another mount namespace without links, which would lead to files of our own."""
    if not prefix:
        return path
    file, separator, member = path.partition("!/")
    root, inside = procfs.resolved(prefix + file)
    return f"{root}{inside}{separator}{member}"


def _is_library(soname: str, name: str) -> bool:
    return soname == name or soname.startswith(f"{name}.so")


def _distinct(paths: Iterable[str]) -> list[str]:
    """Paths without those that lead to a file already named."""
    seen: set[tuple[int, int]] = set()
    distinct = []
    for path in paths:
        try:
            status = look(path)
        except OSError:
            continue
        key = (status.st_dev, status.st_ino)
        if key not in seen:
            seen.add(key)
            distinct.append(path)
    return distinct


def library_cache(path: str = _LIBRARY_CACHE) -> list[tuple[str, str]]:
    """``(soname, path)`` of this machine's libraries in the loader's cache; empty without one (musl)."""
    try:
        with open_regular(path) as file:
            data = file.read(_MOST_CACHE)
    except OSError:
        return []
    start = data.find(_CACHE_MAGIC)
    if start < 0:
        return []
    try:
        return _cache_rows(data, start)
    except (struct.error, ValueError):
        # A damaged one, perhaps of a container: the loader ignores it, too.
        return []


def _cache_rows(data: bytes, start: int) -> list[tuple[str, str]]:
    (count,) = struct.unpack_from("=I", data, start + len(_CACHE_MAGIC))
    wanted = _FLAGS.get(os.uname().machine)
    rows = []
    for number in range(count):
        flags, key, value = struct.unpack_from("=iII", data, start + 48 + 24 * number)
        if wanted is None or flags & 0xFF00 == wanted:
            rows.append((_text(data, start + key), _text(data, start + value)))
    return rows


def _text(data: bytes, at: int) -> str:
    # Texts of a hostile one may overlap, and each be nearly all of it.
    return data[at : data.index(b"\0", at, at + _LONGEST_PATH)].decode(errors="surrogateescape")


class CachedDebugInfo:
    """Functions and lines of addresses of a file, and what decodes the rest of its DWARF.

    The modules that decode DWARF are imported when something is asked that former runs have not cached: that takes
    longer than looking up some thousand cached addresses.

    *beside*, *search* and *root* are as for :class:`pytrace.runtime.binaries.debug_info.DebugInfo`. The file is open,
    as it may be that of a process that ends.
    """

    def __init__(self, file: ElfFile, beside: Iterable[str] = (), search: Iterable[str] = (), root: str = "") -> None:
        self._elf = file
        self._others = (tuple(beside), tuple(search), root)
        self._places = Places(_stamp(self._elf))
        self._decoder: DebugInfo | None = None

    @property
    def decoder(self) -> DebugInfo:
        """The decoder of the DWARF, for questions other than those about the places of stacks."""
        if self._decoder is None:
            from pytrace.runtime.binaries.debug_info import DebugInfo  # pyelftools takes milliseconds

            self._decoder = DebugInfo(self._elf, self._places, *self._others)
        return self._decoder

    def knows(self, address: int) -> bool:
        """True if :meth:`frames` has nothing to read for an address."""
        return self._places.knows(address)

    def frames(self, address: int) -> list[Place]:
        """The functions of an address, see :meth:`pytrace.runtime.binaries.debug_info.DebugInfo.frames`."""
        places = self._places.find(address)
        return self.decoder.frames(address) if places is None else places

    def reading(self, address: int) -> Iterator[None]:
        """Read what :meth:`frames` needs for an address, in steps of some milliseconds."""
        if not self._places.knows(address):
            yield from self.decoder.reading(address)

    def keep(self) -> None:
        """Cache what was read for stacks for later runs."""
        self._places.keep()

    @property
    def problems(self) -> list[str]:
        """Files with parts of the debug information that were asked for and are not there, as sentences."""
        return [] if self._decoder is None else self._decoder.problems

    @property
    def files(self) -> list[str]:
        """Other files that answers depend on, also those that are not there."""
        return [] if self._decoder is None else self._decoder.files


def _stamp(elf: ElfFile) -> tuple[str, ...] | None:
    """Values that identify a file and its build; None for one that is gone or no file of its own."""
    try:
        status = os.stat(elf.path)
    except OSError:
        return None
    # Of containers many share what they run, each under another path and inode.
    identity = elf.build_id or f"{status.st_dev} {status.st_ino}"
    # The owner, too: a build id is easily given to another file, whose lines would be taken for those of a library.
    return identity, str(status.st_size), str(status.st_mtime_ns), str(status.st_uid)


class Binary:
    """One user binary with everything that belongs to it: its debug file, mini debug info and DWARF."""

    def __init__(self, elf: ElfFile, debug_directories: Iterable[str] = (), root: str = "") -> None:
        self.path = elf.path
        self.elf = elf
        self._search = tuple(debug_directories)
        self.root = root
        self._asked = False
        self._unanswered: list[str] = []
        self._gone: dict[str, None] = {}

    @classmethod
    def open(cls, path: str, debug_directories: Iterable[str] = (), root: str = "") -> Binary:
        """The binary at a path; *root* is how absolute paths of its process are reached from here."""
        return cls(ElfFile.open(path), debug_directories, root)

    @cached_property
    def debug_path(self) -> str | None:
        """Path of the separate debug file."""
        return debug_files.find(self.elf, self._search, self.root)

    @cached_property
    def tables(self) -> tuple[SymbolTable, ...]:
        """Symbol tables, the most complete first."""
        tables = [table for file in self._with_symbols() for table in file.tables]
        if self._go is not None:
            tables.append(self._go)
        return tuple(sorted(tables, key=len, reverse=True))

    @property
    def left_out(self) -> list[str]:
        """Which symbols of tables that were read, and static tracepoints, are not used, as sentences."""
        notes = self.elf.section(NOTES)
        found = [table.problem for table in self.__dict__.get("tables", ()) if table.problem]
        if notes is not None and notes.size > MOST_NOTES:
            found.append(f"only the first {MOST_NOTES >> 20} MiB of the static tracepoints of {self.path} are used")
        return found

    @cached_property
    def _go(self) -> SymbolTable | None:
        """The functions of a Go program without a symbol table."""
        return go_binaries.functions(self.elf) if self.is_stripped else None

    @property
    def is_stripped(self) -> bool:
        """True if the file itself has no symbol table but that of the dynamic linker."""
        return all(section.name != ".symtab" for section in self.elf.sections)

    @cached_property
    def go_code(self) -> range:
        """The addresses of code of Go."""
        return go_binaries.code(self.elf)

    @cached_property
    def go_lines(self) -> GoLines | None:
        """Source lines of a Go program, for where there is no DWARF."""
        return GoLines.read(self.elf)

    def _with_symbols(self) -> list[ElfFile]:
        """The files with the symbol tables of this binary."""
        other = None
        if self.is_stripped:
            other = self._debug_file() or self.elf.mini_debug_info
        return [self.elf] if other is None else [self.elf, other]

    def _debug_file(self) -> ElfFile | None:
        """The separate debug file; None when there is none."""
        return None if self.debug_path is None else self._opened(self.debug_path)

    def _opened(self, path: str) -> ElfFile | None:
        """A file that was found before; None when it is gone, as all files below the root of a process that ended."""
        try:
            return ElfFile.open(path)
        except OSError as error:
            self._gone[f"{path} cannot be read: {error.strerror}"] = None
            return None

    def functions(self, pattern: str) -> list[Symbol]:
        """Functions by ``*`` pattern in order of address, without repetition."""
        by_place: dict[tuple[str, int], Symbol] = {}
        for table in self.tables:
            for symbol in table.match(pattern):
                by_place.setdefault((symbol.name, symbol.address), symbol)
        return sorted(by_place.values(), key=lambda symbol: (symbol.address, symbol.name))

    def function_names(self, pattern: str) -> list[str]:
        """Names of functions by ``*`` pattern, sorted, each once."""
        tables = ((file, section) for file in self._with_symbols() for section in file.symbol_sections)
        names = {name for table in tables for name in matching(pattern, function_names(*table))}
        if self._go is not None:
            names.update(matching(pattern, [name.decode(errors="surrogateescape") for name in self._go.names()]))
        return sorted(names)

    def covering(self, address: int) -> Symbol | None:
        """The function at a virtual address of the file."""
        for table in self.tables:
            symbol = table.covering(address)
            if symbol is not None:
                return symbol
        return None

    def function_start(self, address: int) -> int | None:
        """Where the function at a virtual address starts."""
        symbol = self.covering(address)
        return symbol.address if symbol is not None else None

    def plt_entry(self, address: int) -> Symbol | None:
        """The stub that calls another library, as ``NAME@plt``."""
        starts, symbols = self._stubs
        at = bisect_right(starts, address) - 1
        return symbols[at] if at >= 0 and address < starts[at] + symbols[at].size else None

    @cached_property
    def _stubs(self) -> tuple[list[int], list[Symbol]]:
        """Where stubs start, in order, and the stubs."""
        decoded = _decoded_stubs(self.elf, self._resolved) if self.elf.machine == EM_X86_64 and self.elf.wide else []
        found = {stub.address: stub for stub in (*stubs(self.elf), *decoded)}
        return sorted(found), [found[address] for address in sorted(found)]

    def _resolved(self, address: int) -> str:
        """The function that a resolver (IFUNC) is for: its symbol has the same name."""
        symbol = self.covering(address)
        return symbol.name if symbol is not None and symbol.address == address else ""

    def address_of(self, name: str) -> int | None:
        """Virtual address of a function."""
        symbols = self.functions(name)
        return symbols[0].address if symbols else None

    def variable(self, name: str) -> Symbol | None:
        """Any symbol, variables included."""
        symbol = self.elf.any_symbol(name)
        other = self._debug_file() if symbol is None else None
        return symbol if other is None else other.any_symbol(name)

    def variable_address(self, name: str) -> int | None:
        """Virtual address of any symbol, variables included."""
        symbol = self.variable(name)
        return None if symbol is None else symbol.address

    @property
    def _opened_debug(self) -> CachedDebugInfo | None:
        """The DWARF as far as :attr:`debug` was asked for."""
        debug: CachedDebugInfo | None = self.__dict__.get("debug")
        return debug

    def keep_lines(self) -> None:
        """Cache the source lines that were read for stacks for later runs."""
        if self._opened_debug is not None:
            self._opened_debug.keep()

    @cached_property
    def debug(self) -> CachedDebugInfo | None:
        """DWARF of the binary or of its debug file; None when there is none."""
        own = self.path if debug_files.has_dwarf(self.elf) else None
        for path in (own, self.debug_path):
            # What is no file of its own: a member of an archive, the image of the vdso, a file that went since.
            if path is None or not foreign_files.is_regular(path):
                continue
            file = self._opened(path)
            if file is None:
                continue
            replaced = path == own and file.build_id != self.elf.build_id
            if debug_files.has_dwarf(file) and not replaced:
                return CachedDebugInfo(file, (self.path,), self._search, self.root)
            file.close()
        return None

    def ask_servers(self, stop: Callable[[], bool] = bool) -> None:
        """Fetch DWARF that is not on this machine from debuginfod servers, where there are any; once.

        It is given up when *stop* returns True.
        """
        if self._asked or self.debug is not None or not self.elf.build_id:
            return
        self._asked = True
        if not os.environ.get("DEBUGINFOD_URLS"):
            return
        path, self._unanswered = debug_files.fetch(self.elf.build_id, stop)
        if path is not None and debug_files.has_build_id(path, self.elf.build_id):
            self.use_debug_file(path)

    def use_debug_file(self, path: str) -> None:
        """Take symbols and DWARF from a file that has the build id."""
        self.debug_path = path
        self.__dict__.pop("debug", None)
        self.__dict__.pop("tables", None)

    @cached_property
    def indirect(self) -> IndirectFunctions:
        """The functions that stand for its IFUNC symbols."""
        return IndirectFunctions(self)

    @property
    def unanswered(self) -> list[str]:
        """What servers answered instead of the debug file, as sentences."""
        return self._unanswered

    @property
    def problems(self) -> list[str]:
        """Which files with debug information former questions missed, as sentences."""
        missed = [*(f"{self.path}: {text}" for text in self._unanswered), *self._gone, *self.left_out]
        return [*missed, *(self._opened_debug.problems if self._opened_debug is not None else ())]

    @property
    def files(self) -> list[str]:
        """Other files that former answers depend on, also such that are not there."""
        looked = "debug_path" in self.__dict__
        paths = [path for path, _ in debug_files.candidates(self.elf, self._search, self.root)] if looked else []
        return [*paths, *(self._opened_debug.files if self._opened_debug is not None else ())]


_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")

MOST_MEMORY = 2 << 30
"""Bytes that a question about such a file may add: a table of 256 MiB with nine million symbols takes 600 MB."""
FILE_SECONDS, ALL_SECONDS = 60.0, 180.0
"""Seconds of processor time for questions about one file that others can write, before probes are attached; and about
all of them. A binary of a gigabyte with debug information takes some 20."""


def _bounded(
    ask: Callable[Concatenate[UserBinaries, str, _Arguments], _Answer]
) -> Callable[Concatenate[UserBinaries, str, _Arguments], _Answer]:
    """Ask within :meth:`UserBinaries.limits`."""

    @wraps(ask)
    def bounded(self: UserBinaries, path: str, /, *arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Answer:
        with self.limits(path):
            return ask(self, path, *arguments, **named)

    return bounded


class UserBinaries:
    """Binaries by path, each opened once (again when the file was replaced); *environment* has the path of commands."""

    def __init__(self, debug_options: Iterable[str] = (), environment: Mapping[str, str] = os.environ) -> None:
        self.libraries = Libraries(environment)
        self._search = debug_files.directories(debug_options)
        self._opened: dict[str, tuple[tuple[int, int, int], Binary]] = {}
        self._one_of_many: set[str] = set()
        """Paths that a pattern has selected: servers are not asked for the symbols of each."""
        self._spent: dict[str, float] = {}
        """Seconds of processor time that files took which others can write."""

    @contextmanager
    def limits(self, path: str) -> Iterator[None]:
        """Bound what a question about a file takes, if others can write it.

        Raises:
            TraceError: it takes more.
        """
        try:
            trusted = foreign_files.trusted(path, foreign_files.look(attach_path(path)))
        except OSError:
            trusted = path not in self._spent
        if trusted:
            yield
            return
        spent, begun = self._spent.get(path, 0.0), time.process_time()
        left = min(FILE_SECONDS - spent, ALL_SECONDS - sum(self._spent.values()))
        try:
            if left <= 0:
                raise LimitError
            with limited_block(left, MOST_MEMORY):
                yield
        except LimitError:
            raise TraceError(
                f"{path} is not read: others can write it, and it takes more than {FILE_SECONDS:g} seconds of "
                f"processor time (all such files {ALL_SECONDS:g}) or {MOST_MEMORY >> 20} MiB of memory"
            ) from None
        finally:
            self._spent[path] = spent + time.process_time() - begun

    def binary(self, path: str) -> Binary:
        """The binary at a path, also when the file went since it was opened.

        Raises:
            TraceError: not an ELF file, or not readable.
        """
        known = self._opened.get(path)
        try:
            status = foreign_files.look(attach_path(path))
            stamp = (status.st_dev, status.st_ino, status.st_mtime_ns)
            if known is None or known[0] != stamp:
                known = self._opened[path] = (stamp, Binary.open(path, self._search))
        except OSError as error:
            if known is None:
                raise TraceError(f"cannot read {path}: {error.strerror}") from error
        return known[1]

    @_bounded
    def can_open(self, path: str) -> bool:
        """True if there is (or was, when it was opened) an ELF file at a path, which is one of those of a pattern."""
        self._one_of_many.add(path)
        try:
            self.binary(path)
        except TraceError:
            return False
        return True

    @_bounded
    def symbols(self, path: str, pattern: str) -> list[UserSymbol]:
        """Functions of a binary by ``*`` pattern; servers are asked for one of a stripped binary that was named."""
        binary = self.binary(path)
        functions = binary.functions(pattern)
        if not functions and "*" not in pattern and path not in self._one_of_many and binary.is_stripped:
            binary.ask_servers()
            functions = binary.functions(pattern)
        return [placed for symbol in functions if (placed := _placed(binary, symbol))]

    @_bounded
    def function_names(self, path: str, pattern: str) -> list[str]:
        """Names of functions by ``*`` pattern, sorted, each once."""
        return self.binary(path).function_names(pattern)

    @_bounded
    def variable(self, path: str, name: str) -> Symbol | None:
        """Any symbol, variables included."""
        return self.binary(path).variable(name)

    @_bounded
    def cpp_symbols(self, path: str, pattern: str) -> list[tuple[UserSymbol, str]]:
        """Functions whose demangled name a ``*`` pattern accepts, with that name; by ``_Z…`` their symbols.

        The unlikely part of a function (``.cold``) is jumped into, so it is found only if *pattern* names it.
        """
        binary = self.binary(path)
        accepts = name_pattern(pattern).fullmatch
        whole, symbol_names = "(" in pattern, pattern.startswith(("_Z", "_R"))
        symbols = []
        for symbol in binary.functions("_Z*") + binary.functions("_R*"):
            if not mangled(symbol.name) or (".cold" in symbol.name and ".cold" not in pattern):
                continue
            text = demangle(symbol.name)
            if accepts(symbol.name if symbol_names else text if whole else qualified_name(text)):
                placed = _placed(binary, symbol)
                if placed is not None:
                    symbols.append((placed, text))
        return symbols

    @_bounded
    def implementations(self, path: str, function: UserSymbol, pid: int | None) -> IndirectFunction:
        """The functions that stand for an IFUNC symbol, in process *pid* (None for any process)."""
        binary = self.binary(path)
        indirect = binary.indirect
        symbol = Symbol(function.name, function.address, function.size, indirect=True)
        chosen = indirect.chosen(symbol, pid)
        functions = []
        for address in chosen.addresses:
            offset = binary.elf.file_offset(address)
            if offset is not None:
                functions.append(UserSymbol(function.name, address, offset, indirect.size(address)))
        return IndirectFunction(tuple(functions), chosen.reason, indirect.also(symbol, chosen) if functions else ())

    def executable(self, path: str) -> bool:
        """True if a file is an ELF program or library."""
        return is_elf(path)

    @_bounded
    def offset(self, path: str, address: int) -> int | None:
        """File offset of a virtual address."""
        return self.binary(path).elf.file_offset(address)

    @_bounded
    def address_at(self, path: str, offset: int) -> int | None:
        """Virtual address of a file offset."""
        return self.binary(path).elf.address_at(offset)

    @_bounded
    def usdt(self, path: str, provider: str, name: str) -> list[UsdtProbe]:
        """Static tracepoints by ``*`` patterns."""
        first, second = name_pattern(provider or "*").fullmatch, name_pattern(name).fullmatch
        return [row for row in static_tracepoints(self.binary(path).elf) if first(row.provider) and second(row.name)]

    @_bounded
    def parameters(self, path: str, symbol: str, address: int | None = None) -> tuple[UserParameter, ...] | None:
        """Parameters of a function from DWARF; None without DWARF or without that function.

        *address* says which, where several functions have the name.
        """
        binary = self.binary(path)
        binary.ask_servers()
        if binary.debug is None:
            return None
        return binary.debug.decoder.parameters(symbol, binary.address_of(symbol) if address is None else address)

    @_bounded
    def named_type(self, path: str, kind: str, name: str) -> Type | None:
        """The ``struct``, ``union`` or ``enum`` of that name from DWARF; None without DWARF or without that type."""
        binary = self.binary(path)
        binary.ask_servers()
        return binary.debug.decoder.named_type(kind, name) if binary.debug is not None else None

    @_bounded
    def result(self, path: str, symbol: str, address: int | None = None) -> Type | None:
        """Type of a function's result from DWARF, as for :meth:`parameters`."""
        binary = self.binary(path)
        if binary.debug is None:
            return None
        return binary.debug.decoder.result(symbol, binary.address_of(symbol) if address is None else address)

    @_bounded
    def goid(self, path: str, offset: int) -> int | None:
        """Where in ``runtime.g`` the number of a goroutine is; None if no code of Go is at a file offset."""
        binary = self.binary(path)
        if (binary.elf.address_at(offset) or 0) not in binary.go_code:
            return None
        goroutine = binary.debug.decoder.named_type("struct", "runtime.g") if binary.debug is not None else None
        member = goroutine.find("goid") if isinstance(goroutine, Struct) else None
        return member.offset if member is not None else go_binaries.goroutine_number(binary.elf)

    @_bounded
    def go_results(self, path: str, symbol: str) -> tuple[UserParameter, ...]:
        """The results of a function of Go when it returns, from DWARF; empty where there are none."""
        binary = self.binary(path)
        if binary.debug is None:
            return ()
        return binary.debug.decoder.go_results(symbol, binary.address_of(symbol))

    def problems(self, path: str) -> list[str]:
        """Which files with debug information former questions about a binary missed, as sentences."""
        return self.binary(path).problems

    def all_problems(self) -> list[str]:
        """The same for all binaries that were opened."""
        return [text for _, binary in self._opened.values() for text in binary.problems]

    def files(self, path: str) -> list[str]:
        """The files that former answers about a binary depend on, also such that are not there."""
        return [attach_path(path), *self.binary(path).files]

    @_bounded
    def lines(self, path: str, file: str, line: int, column: int | None) -> list[UserSymbol]:
        """Code addresses of a source line.

        Args:
            path: the binary.
            file: the source file, by the end of its path.
            line: counted from 1.
            column: None for any.

        Returns:
            Places named by the functions that they are in (empty where none is known); nothing without DWARF.
        """
        binary = self.binary(path)
        binary.ask_servers()
        if binary.debug is None:
            return []
        places = []
        for address in binary.debug.decoder.addresses(file, line, column, binary.function_start):
            symbol = binary.covering(address)
            offset = binary.elf.file_offset(address)
            if offset is not None:
                places.append(UserSymbol(symbol.name if symbol else "", address, offset, 0))
        return places


def _placed(binary: Binary, symbol: Symbol) -> UserSymbol | None:
    """A function with its file offset; None when it has no code in the file."""
    offset = binary.elf.file_offset(symbol.address)
    if offset is None:
        return None
    go = symbol.address in binary.go_code
    return UserSymbol(symbol.name, symbol.address, offset, symbol.size, go, symbol.indirect)


# ---------------------------------------------------------------------------------------------- linkage tables


_STUB = 16
_MOST_RELOCATIONS = 1 << 22
_HEADERS = {EM_X86_64: 16, EM_AARCH64: 32}
"""Bytes before the first stub of ``.plt``; ``.plt.sec`` (stubs with landing pads) has none."""


def stubs(file: ElfFile) -> list[Symbol]:
    """The stubs of a 64-bit binary for the machines in :data:`_HEADERS`; empty for others."""
    header = _HEADERS.get(file.machine)
    relocations, symbols = file.section(".rela.plt"), file.section(".dynsym")
    table = file.section(".plt.sec")
    landing = table is not None
    if table is None:
        table = file.section(".plt")
    if header is None or not file.wide or relocations is None or symbols is None or table is None:
        return []
    if landing:
        header = 0
    strings = bytes(file.contents(file.linked(symbols)))
    check_strings(file, strings)
    entries = bytes(file.contents(symbols))
    stub_symbols = []
    rows = file.contents(relocations, _MOST_RELOCATIONS * 24)
    for position, (_, info, _) in enumerate(struct.iter_unpack("<QQq", rows[: len(rows) // 24 * 24])):
        number = info >> 32
        address = table.address + header + position * _STUB
        if not number or address + _STUB > table.address + table.size or number * 24 + 4 > len(entries):
            # IFUNC relocations have no symbol.
            continue
        (at,) = struct.unpack_from("<I", entries, number * 24)
        name = strings[at : strings.find(b"\0", at)].decode(errors="surrogateescape")
        stub_symbols.append(Symbol(f"{name}@plt", address, _STUB))
    return stub_symbols


_GLOBAL_DATA, _JUMP_SLOT, _RELATIVE_FUNCTION = 6, 7, 37
"""``R_X86_64_GLOB_DAT``, ``R_X86_64_JUMP_SLOT``, ``R_X86_64_IRELATIVE``."""
_JUMP, _JUMP_SIZE = b"\xff\x25", 6
"""``jmp *slot(%rip)``."""
_LANDING = b"\xf3\x0f\x1e\xfa"
"""``endbr64``."""


def _decoded_stubs(file: ElfFile, resolved: Callable[[int], str]) -> list[Symbol]:
    """The stubs of an x86-64 binary by the slots that they jump through: also those of functions whose address is
    taken (``.plt.got``), and of static programs. *resolved* is the name of a function by its resolver's address.
    """
    tables = [section for name in (".plt.got", ".plt", ".plt.sec") if (section := file.section(name)) is not None]
    if not tables:
        return []
    names = _slot_names(file, resolved)
    found = []
    for table in tables:
        code = bytes(file.contents(table))
        starts = []
        at = code.find(_JUMP)
        while 0 <= at <= len(code) - _JUMP_SIZE:
            (distance,) = struct.unpack_from("<i", code, at + len(_JUMP))
            name = names.get(table.address + at + _JUMP_SIZE + distance)
            landing = code.rfind(_LANDING, max(0, at - len(_LANDING) - 1), at)
            starts.append((landing if landing >= 0 else at, name))
            at = code.find(_JUMP, at + _JUMP_SIZE)
        for number, (start, name) in enumerate(starts):
            end = starts[number + 1][0] if number + 1 < len(starts) else len(code)
            if name:
                found.append(Symbol(f"{name}@plt", table.address + start, min(_STUB, end - start)))
    return found


def _slot_names(file: ElfFile, resolved: Callable[[int], str]) -> dict[int, str]:
    """The functions whose addresses the dynamic linker writes to slots, by the addresses of these."""
    symbols, names = file.section(".dynsym"), dict[int, str]()
    strings = bytes(file.contents(file.linked(symbols))) if symbols is not None else b""
    check_strings(file, strings)
    entries = bytes(file.contents(symbols)) if symbols is not None else b""
    for section in (file.section(".rela.plt"), file.section(".rela.dyn")):
        rows = file.contents(section, _MOST_RELOCATIONS * 24) if section is not None else memoryview(b"")
        for slot, info, addend in struct.iter_unpack("<QQq", rows[: len(rows) // 24 * 24]):
            kind, number = info & 0xFFFFFFFF, info >> 32
            if kind == _RELATIVE_FUNCTION:
                names[slot] = resolved(addend)
            elif kind in (_GLOBAL_DATA, _JUMP_SLOT) and number * 24 + 4 <= len(entries):
                (at,) = struct.unpack_from("<I", entries, number * 24)
                names[slot] = strings[at : strings.find(b"\0", at)].decode(errors="surrogateescape")
    return names


# ---------------------------------------------------------------------------------------------- static tracepoints


NOTES = ".note.stapsdt"
_NOTE_TYPE = 3


def static_tracepoints(file: ElfFile) -> list[UsdtProbe]:
    """All static tracepoints of a binary in file order, one for each place."""
    section = file.section(NOTES)
    if section is None:
        return []
    base = file.section(".stapsdt.base")
    addresses = struct.Struct("<QQQ" if file.wide else "<III")
    probes = []
    for owner, kind, body in file.notes(section):
        if owner != b"stapsdt" or kind != _NOTE_TYPE or len(body) < addresses.size:
            continue
        address, link_base, semaphore = addresses.unpack_from(body)
        moved = base.address - link_base if base is not None and link_base else 0
        texts = body[addresses.size :].split(b"\0")
        provider, name, arguments = (text.decode(errors="replace") for text in (*texts, b"", b"", b"")[:3])
        offset = file.file_offset(address + moved)
        if offset is None:
            # The code was dropped (split debug file): nothing is there to attach to.
            continue
        counter = _data_offset(file, semaphore + moved) if semaphore else 0
        probes.append(UsdtProbe(file.path, provider, name, address + moved, offset, counter, arguments))
    return probes


def _data_offset(file: ElfFile, address: int) -> int:
    """File offset of a semaphore; it lies in ``.probes``, whose segment is writable data."""
    return file.file_offset(address) or 0
