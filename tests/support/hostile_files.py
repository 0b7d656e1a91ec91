"""Files that lie, of programs of another user: for each kind some, made from a seed.

:func:`attempt` asks about honest and hostile files in some order and mixture, as a run does, and is its own oracle:
what is honest has its names, memory and time are bounded, the reason for what is missing is none of Python's, and
nothing but the files of the attempt was opened, written or run.
"""

from __future__ import annotations

import os
import re
import resource
import struct
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from pytrace.base import limited_process
from pytrace.core.diagnostics import TraceError
from pytrace.runtime.binaries.elf_file import ElfFile, Section
from pytrace.runtime.binaries.user_binary import static_tracepoints
from pytrace.runtime.machine import foreign_files
from pytrace.runtime.stacks import compiled_code, images, unwind_tables
from pytrace.runtime.stacks.compiled_code import JitDump, PerfMap, Reading
from pytrace.runtime.stacks.image_places import detail
from pytrace.runtime.stacks.images import AnyBinary, ForeignBinaries, ForeignBinary, Images, SymbolFrame
from tests.fuzz.mutation import mutated
from tests.support import damage
from tests.support.compile import compiled, tool

TEXT = """\
struct point { int x; char tag[4]; struct point *next; };
extern int getpid(void);
static inline __attribute__((always_inline)) int inner(int v) { return v * 3 + getpid(); }
__attribute__((noinline)) int work(struct point *p, int n) { int r = inner(p->x); return r + n; }
__attribute__((noinline)) int other(int n) { return n * 5; }
int main(int argc, char **argv) { struct point p = {argc, "tag", 0}; return work(&p, 3) + other(argc); }
__asm__(".pushsection .note.stapsdt, \\"\\", \\"note\\"\\n.balign 4\\n.4byte 8, 5f-4f, 3\\n.asciz \\"stapsdt\\"\\n"
        "4: .8byte work\\n.8byte 0\\n.8byte 0\\n.asciz \\"prov\\"\\n.asciz \\"name\\"\\n.asciz \\"4@%edi\\"\\n5:\\n"
        ".balign 4\\n.popsection\\n");
"""
FUNCTIONS = ("main", "work", "other")
STRANGERS = 4321, 4322
"""Who the honest and the hostile files belong to."""
HUGE = (1 << 31, 1 << 32, (1 << 63) - 1, (1 << 64) - 1, 0x7FF, 0)


@cache
def honest() -> bytes:
    """A program with all that is read of one, and places for links."""
    with tempfile.TemporaryDirectory() as folder:
        path = compiled(Path(folder), "program", TEXT, "-g", "-O2", "-fno-pie", "-no-pie", "-Wl,--build-id")
        (Path(folder) / "empty").write_bytes(bytes(64))
        for section in (".gnu_debuglink", ".gnu_debugaltlink"):
            tool("objcopy", "--add-section", f"{section}={folder}/empty", path, path)
        return _with(_with(path.read_bytes(), ".gnu_debuglink", b"none\0\0\0\0abcd"), ".gnu_debugaltlink", b"none\0ab")


@cache
def addresses() -> tuple[int, ...]:
    """Some in functions, some in none."""
    table = max(ElfFile(honest(), "honest").tables, key=len)
    starts = [symbol.address for name in FUNCTIONS for symbol in table.match(name)]
    return (*(start + more for start in starts for more in (0, 1, 4)), 0x400000, 0, 1 << 62)


@cache
def truth(lines: bool) -> tuple[tuple[SymbolFrame, ...], ...]:
    """The frames of :func:`addresses`, by this process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "honest"
        path.write_bytes(honest())
        known = Images({}, lines=lines)
        binary = known.binary(str(path), path.stat())
        return tuple(tuple(known.frames(binary, "honest", address)) for address in addresses())


# ---------------------------------------------------------------------------------------------- lies


def _header(file: ElfFile, section: Section) -> int:
    """Where the header of a section is."""
    return int(struct.unpack_from("<Q", file.view[:64], 40)[0]) + 64 * file.sections.index(section)


def _with(data: bytes, name: str, contents: bytes, *, flags: int | None = None, size: int | None = None) -> bytes:
    """The file with other contents of a section, at its end."""
    file = ElfFile(data, "x")
    section = file.section(name)
    assert section is not None, name
    at, changed = _header(file, section), bytearray(data)
    if flags is not None:
        struct.pack_into("<Q", changed, at + 8, flags)
    struct.pack_into("<QQ", changed, at + 24, len(data), len(contents) if size is None else size)
    return bytes(changed) + contents


def _damaged(random: Random) -> bytes:
    data = honest()
    for _ in range(random.randrange(1, 4)):
        fields = [(at, size) for _, at, size in damage._fields(ElfFile(data, "x")) if at + size <= len(data)]
        at, size = random.choice(fields)
        value = random.choice((*HUGE, random.randrange(1 << 16))) & (1 << 8 * size) - 1
        data = data[:at] + value.to_bytes(size, "little") + data[at + size :]
        if data[:4] != b"\x7fELF" or len(data) < 64:
            break
        with suppress(TraceError):
            _ = ElfFile(data, "x").sections, ElfFile(data, "x").segments
            continue
        break
    return data


_TORN = (".debug_info", ".debug_abbrev", ".debug_line", ".debug_str", ".debug_aranges", ".debug_rnglists", ".eh_frame",
         ".symtab", ".strtab", ".dynsym", ".rela.plt", ".note.stapsdt", ".note.gnu.build-id", ".debug_line_str",
         ".gnu_debuglink", ".gnu_debugaltlink")  # fmt: skip


def _torn(random: Random) -> bytes:
    data = honest()
    for name in random.sample(_TORN, random.randrange(1, 4)):
        section = ElfFile(data, "x").section(name)
        if section is not None:
            contents = mutated(bytes(ElfFile(data, "x").contents(section)), (), random)
            data = _with(data, name, contents * random.choice((1, 1, 1, 50)))
    return data


def _bomb(random: Random) -> bytes:
    """Sections that unpack, or say that they have, much."""
    sections = (".debug_info", ".symtab", ".strtab", ".debug_str", ".debug_abbrev", ".debug_line")
    data, name = honest(), random.choice(sections)
    if random.random() < 0.5:
        size = random.choice((1 << 26, 1 << 30, 1 << 34))
        return _with(data, name, b"", size=size)
    plain = bytes(random.choice((1 << 20, 1 << 24)))
    said = random.choice((len(plain), 1 << 33, 10))
    return _with(data, name, struct.pack("<IIQQ", 1, 0, said, 1) + zlib.compress(plain), flags=1 << 11)


def _names(random: Random) -> bytes:
    """Many symbols, whose names overlap, of one address or nested ones."""
    count = random.choice((1000, 200_000))
    length = random.choice((10, 60_000, 200_000))
    strings = b"\0" + (b"_ZN" + b"1a" * length)[:length] + b"\0"
    if random.random() < 0.3:
        strings = b"\0" + b"_Z" + b"N1aI" * (length // 4) + b"\0"
    start, step = addresses()[0], random.choice((0, 0, 1))
    record = struct.Struct("<IBBHQQ")
    rows = b"".join(
        record.pack(1 + number % max(1, len(strings) - 2), 2, 0, 1, start + step * number, random.choice((0, 1 << 40)))
        for number in range(count)
    )
    return _with(_with(honest(), ".symtab", rows), ".strtab", strings)


def _number(value: int) -> bytes:
    parts = []
    while True:
        value, low = value >> 7, value & 0x7F
        parts.append(low | (0x80 if value else 0))
        if not value:
            return bytes(parts)


def _unit(body: bytes) -> bytes:
    """A unit of DWARF 4."""
    head = struct.pack("<HIB", 4, 0, 8) + body
    return struct.pack("<I", len(head)) + head


def _entries(random: Random) -> bytes:
    """Entries of functions: nested very deep, very many, that refer to themselves, of all addresses."""
    # 1: a unit; 2: a function with range and origin, which has children; 3: one that is inlined there
    attributes = b"\x11\x01\x12\x07\x00\x00", b"\x11\x01\x12\x07\x31\x13\x00\x00"
    abbreviations = (
        b"\x01\x11\x01" + attributes[0] + b"\x02\x2e\x01" + attributes[1] + b"\x03\x1d\x01" + attributes[1] + b"\0"
    )
    count = random.choice((100, 5000, 60_000))
    whole = struct.pack("<QQ", 0, 1 << 40)
    tag = random.choice((2, 3))
    nested = random.random() < 0.6
    origins = random.choice((lambda at: 11, lambda at: at, lambda at: (at * 29) % 4000, lambda at: 0xFFFFFFF0))
    body = bytearray(b"\x01" + whole + b"\x02" + whole + struct.pack("<I", origins(28)))
    for number in range(count):
        body += bytes([tag]) + whole + struct.pack("<I", origins(28 + 21 * number))
        if not nested:
            body += b"\0"
    body += bytes(count + 3 if nested else 3)
    data = _with(_with(honest(), ".debug_info", _unit(bytes(body))), ".debug_abbrev", abbreviations)
    return _with(data, ".debug_aranges", b"") if random.random() < 0.5 else data


def _lines(random: Random) -> bytes:
    """A line program with very many rows, or numbers without end."""
    opcodes = bytes((0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1))
    tables_ = b"\0" + b"x.c\0\0\0\0" * random.choice((1, 20_000)) + b"\0"
    head = struct.pack("<BBBbBB", 1, 1, 1, -5, 14, 13) + opcodes + tables_
    program = random.choice((b"\x14" * 400_000, b"\x02" + b"\x80" * 300_000 + b"\1", b"\x09\xff\xff\x01" * 50_000,
                             b"\0" + _number(1 << 40) + b"\x02", b"\0\x09\x02" + bytes(8) + b"\0\x01\x01"))  # fmt: skip
    body = struct.pack("<HI", 4, len(head)) + head + program
    return _with(honest(), ".debug_line", struct.pack("<I", len(body)) + body)


def _frames(random: Random) -> bytes:
    """Call frame information: long programs, numbers without end, very many functions."""
    cie = struct.pack("<II", 16, 0) + b"\x01\0\x01\x78\x10\x0c\x07\x08\x90\x01" + bytes(2)
    program = random.choice((b"\x41\x0e\x10" * 30_000, b"\x0e" + b"\xff" * 300_000 + b"\1", b"\x0a" * 30_000,
                             b"\x41\x0e\x10" * 300_000, b"\x0f" + _number(1 << 50), b""))  # fmt: skip
    entries = bytearray(cie)
    for number in range(random.choice((1, 10, 3000 if len(program) < 10 else 3))):
        body = struct.pack("<IQQ", len(entries) + 4, number * 4096, 1 << 20) + program
        body += bytes(-len(body) % 4)
        entries += struct.pack("<I", len(body)) + body
    return _with(honest(), ".eh_frame", bytes(entries))


def _links(random: Random) -> bytes:
    """Links to debug files: to pipes, files of the kernel, itself, files of others, and long ones."""
    target = random.choice((
        "pipe", "file", "../file", "/proc/kmsg", "/sys/kernel/tracing/trace_pipe", "/dev/zero", "hostile0", "honest",
        "canary", "../../../../etc/shadow", "a" * 4000, "\udcff", "/etc/passwd",
    ))  # fmt: skip
    name = target.encode("utf-8", "surrogateescape")
    data = _with(honest(), ".gnu_debuglink", name + bytes(4 - len(name) % 4) + b"abcd")
    data = _with(data, ".gnu_debugaltlink", name + b"\0" + bytes(20))
    file = ElfFile(data, "x")
    for section in (".symtab", ".debug_info"):  # it lacks what it has a link for
        found = file.section(section)
        if found is not None and random.random() < 0.7:
            changed = bytearray(data)
            struct.pack_into("<I", changed, _header(file, found) + 4, 1)
            struct.pack_into("<I", changed, _header(file, found), 1)
            data = bytes(changed)
    return data


def _notes(random: Random) -> bytes:
    """Very many static tracepoints, with long texts; a build id of megabytes, or that of somebody else."""
    text = random.choice((b"p\0n\0" + b"8@%rax " * 3000 + b"\0", b"p\0n\0-4@", b"\xff" * 100 + b"\0\0\0"))
    body = struct.pack("<QQQ", addresses()[0], 0, 0) + text
    note = struct.pack("<III", 8, len(body), 3) + b"stapsdt\0" + body + bytes(-len(body) % 4)
    data = _with(honest(), ".note.stapsdt", note * random.choice((1, 40, 20_000 // len(text) + 1)))
    identity = random.choice((b"", bytes(1 << 21), b"\1" * 20))
    if identity:
        data = _with(data, ".note.gnu.build-id", struct.pack("<III", 4, len(identity), 3) + b"GNU\0" + identity)
    return data


def _loads(random: Random) -> bytes:
    """Very many segments."""
    row = struct.pack("<IIQQQQQQ", 1, 5, 0, 0x400000, 0, 1 << 20, 1 << 20, 4096)
    count = random.choice((100, 4000, 60_000))
    data = bytearray(honest())
    struct.pack_into("<Q", data, 32, len(data))
    struct.pack_into("<H", data, 56, count)
    return bytes(data) + row * count


KINDS: dict[str, Callable[[Random], bytes]] = {
    "damaged": _damaged, "torn": _torn, "bomb": _bomb, "names": _names, "entries": _entries, "lines": _lines,
    "frames": _frames, "links": _links, "notes": _notes, "loads": _loads,
}  # fmt: skip
"""What is in a hostile file."""


def _map(random: Random) -> bytes:
    """A perf map."""
    long = b"400000 1 " + b"x" * 5000 + b"\n"
    lines = (b"400000 10 f\n", b"0 ffffffffffffffff g\n", long, b"zz\n", b"\n" * 100, b"4 4")
    return b"".join(random.choice(lines) for _ in range(random.choice((3, 300, 30_000))))


def _dump(random: Random) -> bytes:
    """A jitdump file."""
    order = random.choice("<>")
    times = random.choice((0, 1 << 62)), random.getrandbits(2)
    parts = [struct.pack(order + "IIIIIIQQ", 0x4A695444, 1, 40, 62, 0, 1, *times)]
    for _ in range(random.choice((1, 100, 20_000))):
        start, length = random.choice((0x400000, 0, 1 << 63)), random.choice((16, 1 << 62))
        body = struct.pack(order + "IIQQQQ", 1, 1, 0, start, length, 1) + b"name\0"
        size = 16 + len(body)
        if random.random() < 0.01:
            size = random.choice((16, 0, 0xFFFFFFFF))
        parts.append(struct.pack(order + "IIQ", random.choice((0, 0, 0, 1)), size, random.choice((0, 1 << 62))) + body)
    return b"".join(parts)


# ---------------------------------------------------------------------------------------------- the oracle


class HarmError(BaseException):
    """Something was run, written or read that is no file of the attempt."""


_FORBIDDEN = frozenset((
    "os.exec", "os.posix_spawn", "os.spawn", "os.system", "socket.connect", "socket.bind", "os.symlink",
    "subprocess.Popen", "os.chmod", "os.chown",
))  # fmt: skip
_SYSTEM = ("/usr/", "/lib", "/proc/", "/sys/kernel/notes", "/dev/null", "/etc/localtime", "/etc/ld.so.cache")
_watched: dict[int, tuple[str, ...]] = {}


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    allowed = _watched.get(threading.get_ident())
    if not allowed:
        return
    if event in _FORBIDDEN:
        raise HarmError(f"{event} {arguments!r}")
    if event != "open" or not isinstance(arguments[0], str) or not isinstance(arguments[2], int):
        return
    path, flags = arguments[0], arguments[2]
    if "/__pycache__/" in path:
        return  # a module that is imported for the first time
    if flags & os.O_PATH or not path.startswith("/"):
        return  # it is only looked for, or below a folder that is allowed
    if path.startswith("/proc/self/fd/"):
        path = os.readlink(path)
    writes = flags & (os.O_WRONLY | os.O_RDWR)
    if not path.startswith((allowed[0], "/memfd:") if writes else (*allowed, "/memfd:")):
        raise HarmError(f"opens {path!r} by {arguments!r}")


@contextmanager
def _watch(folder: str, *others: str) -> Iterator[None]:
    if not _watched:
        sys.addaudithook(_audit)
        _watched[0] = ()
    python = tuple({sys.prefix, sys.base_prefix, str(Path(__file__).parent.parent.parent)})
    _watched[threading.get_ident()] = (folder, *others, *_SYSTEM, *python)
    try:
        yield
    finally:
        del _watched[threading.get_ident()]


@contextmanager
def low_limits() -> Iterator[None]:
    """The bounds are reached soon, so that an attempt takes a second at most."""
    with ExitStack() as stack:
        for name, value in (("SECONDS", 0.5), ("LINE_SECONDS", 0.5), ("OWNER_TOTAL", 1.5), ("TOTAL", 30.0)):
            stack.enter_context(patch.object(images, name, value))
        yield


class _Here:
    """In place of a limited process: answers at once, in this one."""

    running = True
    generation = 1

    def __init__(self, serve: limited_process.Serve, *_limits: object) -> None:
        self._serve = serve

    def start(self, request: bytes, descriptors: Sequence[int] = (), seconds: float = 2.0) -> limited_process.Pending:
        """The answer, or why there is none."""
        pending, begun = limited_process.Pending(), time.thread_time()
        try:
            with patch.object(limited_process._State, "inside", True):
                pending.answer = self._serve(request, list(descriptors))
        except (MemoryError, RecursionError) as error:
            pending.error = limited_process.LimitError(type(error).__name__)
        pending.cpu = time.thread_time() - begun
        return pending

    def ready(self, _pending: limited_process.Pending, _longest: float) -> bool:
        """It is."""
        return True

    def result(self, pending: limited_process.Pending) -> tuple[bytes, list[int]]:
        """The answer to a request."""
        if pending.error is not None:
            raise pending.error
        assert pending.answer is not None
        return pending.answer

    def close(self) -> None:
        """Nothing is to be ended."""


@contextmanager
def read_here() -> Iterator[None]:
    """Files of others are read in this process: what they reach is seen.

    Bounds of the process are no part of it, nor are files that change meanwhile, which end it (``SIGBUS``).
    """
    with patch.object(images, "LimitedProcess", _Here), patch(f"{__name__}._changed", lambda *_: None):
        yield


MOST_MEMORY = 128 << 20
"""Bytes that this process may take more."""
MOST_SECONDS = 8.0
"""Seconds of processor time of this process; that of the limited one is bounded by itself."""


def edited(contents: bytes, edits: bytes) -> bytes:
    """A file with parts replaced: two bytes of place, one of length, and the part, one after another."""
    changed = bytearray(contents)
    while len(edits) > 3:
        at, length = int.from_bytes(edits[:2]) % len(changed), edits[2] % _LONGEST_EDIT + 1
        changed[at : at + length] = edits[3 : 3 + length]
        edits = edits[3 + length :]
    return bytes(changed)


_LONGEST_EDIT = 16


def attempt(seed: int, kind: str = "", edits: bytes = b"") -> str:
    """Ask about an honest file, and one to three hostile ones. Returns the kinds of lies.

    *edits*: changes of one hostile file (:func:`edited`).

    Raises:
        AssertionError: the lies changed something, or took too much.
        HarmError: something else was opened or run.
    """
    random = Random(seed)
    kinds = [kind or random.choice([*KINDS]) for _ in range(random.randrange(1, 4))]
    contents = [KINDS[each](random) for each in kinds]
    contents[0] = edited(contents[0], edits)
    lines = random.random() < 0.5
    expected = truth(lines)
    place = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(prefix="pytrace-hostile-", dir=place) as folder, ExitStack() as stack:
        paths = _written(Path(folder), [honest(), *contents])
        (Path(folder) / "map").write_bytes(_map(random))
        (Path(folder) / "dump").write_bytes(_dump(random))
        stack.enter_context(patch.dict(os.environ, {"XDG_CACHE_HOME": f"{folder}/cache"}))
        os.environ.pop("DEBUGINFOD_URLS", None)
        if os.geteuid():
            stack.enter_context(patch.object(foreign_files, "own", lambda _: False))
        stack.enter_context(patch.object(compiled_code, "READING", Reading()))
        stack.enter_context(patch.object(compiled_code, "READING", Reading()))
        memory, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        with _watch(folder):
            missing = _asked(random, paths, lines=lines, expected=expected)
            _compiled_code(folder)
        more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory << 10
        assert more < MOST_MEMORY, f"{more >> 20} MiB"
        assert time.process_time() - began < MOST_SECONDS, f"{time.process_time() - began:.1f} s"
    for what, why in missing.items():
        assert "honest" not in what, (what, why)
        assert len(why) < 4 * 4096, what
        assert not re.search(r"\b[A-Z]\w*Error: |with status", why), (what, why)
    return ", ".join(sorted({*kinds}))


def _written(folder: Path, contents: list[bytes]) -> list[Path]:
    """The files, and what links in them lead to."""
    os.mkfifo(folder / "pipe")
    (folder / "cache").mkdir(mode=0o700)
    (folder / "file").write_bytes(b"\x7fELF" + bytes(60))
    paths = [folder / "honest", *(folder / f"hostile{number}" for number in range(len(contents) - 1))]
    for path, data in zip(paths, contents, strict=True):
        path.write_bytes(data)
        if not os.geteuid():
            os.chown(path, STRANGERS[path.name != "honest"], 0)
    return paths


def _asked(
    random: Random, paths: list[Path], *, lines: bool, expected: tuple[tuple[SymbolFrame, ...], ...]
) -> dict[str, str]:
    """Ask what a run asks, in some order. Returns why names are missing."""
    missing: dict[str, str] = {}
    binaries = ForeignBinaries(detail)
    known = Images(missing, lines=lines, foreign=binaries)
    try:
        statuses = {path: foreign_files.look(str(path)) for path in paths}
        steps = [(path, at) for path in paths for at in range(len(addresses()))] + [(path, -1) for path in paths] * 2
        random.shuffle(steps)
        for path, at in steps:
            _changed(random, path)
            try:
                binary = known.any_binary(str(path), statuses[path])
            except TraceError as error:
                missing[path.name] = error.message
                continue
            if at < 0:
                _other_questions(random, known, binary, path)
                continue
            frames = known.frames(binary, path.name, addresses()[at])
            assert frames
            if path.name == "honest":
                assert tuple(frames) == expected[at], (addresses()[at], frames, missing)
        known.keep()
    finally:
        binaries.process.close()
    return missing


def _changed(random: Random, path: Path) -> None:
    """Now and then its owner changes a hostile file between two questions."""
    if path.name == "honest" or random.random() > 0.03 or not path.exists():
        return
    descriptor = os.open(path.parent / path.name, os.O_RDWR)
    try:
        os.ftruncate(descriptor, random.choice((0, 100, 4096, 1 << 33)))
        os.pwrite(descriptor, random.randbytes(100), random.randrange(8000))
    finally:
        os.close(descriptor)
    if random.random() < 0.3:
        os.unlink(path)


def _other_questions(random: Random, known: Images, binary: AnyBinary, path: Path) -> None:
    assert isinstance(binary, ForeignBinary)
    binary.elf.address_at(random.choice(HUGE))
    bytes(binary.elf.view[: random.randrange(100)])
    if random.random() < 0.5:
        detail(binary)
    if random.random() < 0.5:
        for _ in known.name_ahead(path.name, binary, addresses()):
            pass
    # What a run reads by itself: unwind tables in short steps, static tracepoints.
    with suppress(TraceError, OSError), ElfFile.open(str(path)) as file:
        static_tracepoints(file)
        section = file.section(".eh_frame")
        if section is not None and section.size <= unwind_tables.MOST_READ:
            for _ in unwind_tables.compile_table(bytes(file.contents(section)), section.address):
                pass


def _compiled_code(folder: str) -> None:
    owners = {*STRANGERS, os.geteuid(), 0}
    with patch.object(compiled_code, "_candidates", lambda pid: ([f"{folder}/map"], owners)):
        names = PerfMap(1)
        for address in (0x400000, 0, 1 << 62):
            names.find(address)
    dump = JitDump(f"{folder}/dump", owners, 0)
    for address in (0x400000, 0, 1 << 62):
        dump.find(address)
