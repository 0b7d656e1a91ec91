"""Binaries: ELF, debug information, static tracepoints, unwind tables, names; type information of kernels."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial

from elftools.common.exceptions import DWARFError, ELFError
from elftools.elf.elffile import ELFFile

from pytrace.core.diagnostics import TraceError
from pytrace.core.types import Type, parts
from pytrace.frontend.probes import usdt
from pytrace.frontend.probes.usdt import BadArgumentError
from pytrace.runtime.binaries import btf_types, debug_files, elf_file
from pytrace.runtime.binaries.btf_types import Btf, Kind, TypeReader
from pytrace.runtime.binaries.debug_info import PackageIndex
from pytrace.runtime.binaries.elf_file import ElfFile, archive_member, parse_notes
from pytrace.runtime.binaries.user_binary import UserBinaries
from pytrace.runtime.machine import demangle
from pytrace.runtime.stacks import unwind_tables
from pytrace.runtime.stacks.images import Images
from tests.fuzz.scratch import stored
from tests.fuzz.target import NOTHING, Target
from tests.support import hostile_files
from tests.support.btf_builder import BtfBuilder, small_types
from tests.support.waiting import finished


def elf(data: bytes) -> None:
    """Headers, sections, symbols, notes and links of an ELF file. Sections are those that pyelftools reads."""
    file = ElfFile(data, "fuzz")
    known = [(section.type, section.offset, section.size) for section in file.sections]
    for section in file.sections:
        file.contents(section)
        file.section(section.name)
    for segment in file.segments:
        file.file_offset(segment.address)
        file.address_at(segment.offset)
    for table in file.tables:
        for symbol in table.match("*")[:100]:
            table.covering(symbol.address)
    file.any_symbol("main")
    assert len(file.build_id) % 2 == 0
    _links = file.debug_link, file.supplement_link, file.checksum()
    if file.mini_debug_info is not None:
        _nested = file.mini_debug_info.tables
    others = _other_sections(data)
    assert others is None or others == known, (others, known)


def _other_sections(data: bytes) -> list[tuple[int, int, int]] | None:
    """Sections by pyelftools; None for files that it cannot read."""
    try:
        file = ELFFile(io.BytesIO(data))
        headers = [file._get_section_header(number) for number in range(file.num_sections())]
        return [(_number(header["sh_type"]), header["sh_offset"], header["sh_size"]) for header in headers]
    except (ELFError, ValueError, KeyError, OverflowError, MemoryError):
        return None


def _number(type_: int | str) -> int:
    from elftools.elf.enums import ENUM_SH_TYPE_BASE

    found = type_ if isinstance(type_, int) else ENUM_SH_TYPE_BASE.get(type_)
    if not isinstance(found, int):
        raise KeyError(type_)
    return found


def questions(path: str) -> Iterator[Callable[[], object]]:
    """All that a run asks of a user binary."""
    known = UserBinaries()
    images = Images({}, lines=True)
    yield lambda: known.executable(path)
    yield lambda: known.symbols(path, "*")
    yield lambda: known.cpp_symbols(path, "*")
    yield lambda: known.usdt(path, "*", "*")
    yield lambda: list(known.binary(path).function_names("w*"))
    yield lambda: known.parameters(path, "work")
    yield lambda: known.result(path, "work")
    yield lambda: known.named_type(path, "struct", "point")
    yield lambda: known.lines(path, "x.c", 4, None)
    yield lambda: known.binary(path).variable("main")
    yield lambda: debug_files.find(ElfFile.open(path), debug_files.DEFAULT_DIRECTORIES)
    yield lambda: debug_files.supplement(ElfFile.open(path), debug_files.DEFAULT_DIRECTORIES)
    for address in (0x401000, 0x401004, 0x40101C, 0):
        yield partial(known.offset, path, address)
        yield partial(known.address_at, path, address - 0x400000)
        yield partial(_frames, known, images, path, address)


def _frames(known: UserBinaries, images: Images, path: str, address: int) -> None:
    binary = known.binary(path)
    images.frames(binary, path, address)
    if binary.debug is not None:
        binary.debug.decoder.line_of(address)
        binary.debug.frames(address)


def debug_info(data: bytes) -> None:
    """Debug information: parameters, types, lines, frames; each question is asked, whatever the others answer."""
    for ask in questions(stored(data)):
        try:
            ask()
        except TraceError:
            continue


def hostile(data: bytes) -> None:
    """Hostile files beside an honest one, as a run asks about them; the first two bytes are the seed, and the rest are
    changes of one of the files, so that a small change of an input is a small change of the file.

    The files are read by other processes: another thread asks, which :mod:`tests.support.hostile_files` watches.
    """
    with hostile_files.low_limits(), ThreadPoolExecutor(1) as thread:
        thread.submit(hostile_files.attempt, int.from_bytes(data[:2]), edits=data[2:]).result()


def hostile_here(data: bytes) -> None:
    """The same, but that the files are read in this process, so that what inputs reach is seen."""
    with hostile_files.low_limits(), hostile_files.read_here(), ThreadPoolExecutor(1) as thread:
        thread.submit(hostile_files.attempt, int.from_bytes(data[:2]), edits=data[2:]).result()


def _hostile_seed(number: int) -> bytes:
    """A seed, and a change of two bytes."""
    return struct.pack(">HHBH", number, 0x2000 + 0x111 * number, 1, number)


def package_index(data: bytes) -> None:
    """The index of a package of split units (``.dwp``)."""
    index = PackageIndex(memoryview(data))
    for signature in (0, 1, int.from_bytes(data[16:24], "little")):
        index.rows(signature)


PACKAGE_ERRORS = (DWARFError, struct.error, ValueError)
"""What :mod:`pytrace.runtime.binaries.debug_info` catches of it."""


def unwind_table(data: bytes) -> None:
    """``.eh_frame``: rows are in order of address, each address once."""
    rows = list(finished(unwind_tables.compile_table(data, 0x401000)))
    addresses = [row >> 32 for row in rows]
    assert addresses == sorted(set(addresses))


def numbers(data: bytes) -> None:
    """LEB128: a number ends where the bit says, and has the value of its definition."""
    value, end = elf_file.unsigned(data, 0)
    assert value == sum((byte & 0x7F) << 7 * at for at, byte in enumerate(data[:end]))
    signed, other = elf_file.signed(data, 0)
    bits = 7 * end
    assert other == end
    assert signed == value - (value >> bits - 1 << bits)


def notes(data: bytes) -> None:
    """Notes, and arguments of static tracepoints in them."""
    for _owner, _kind, body in parse_notes(data):
        arguments(body)


def arguments(data: bytes) -> None:
    """Arguments of static tracepoints, as their notes have them."""
    text = data.decode("utf-8", "surrogateescape")
    for machine in ("x86_64", "aarch64"):
        for wanted in (frozenset[int](), None):
            usdt.argument_locations(text, machine, {"a": 1}.get, 0x401000, wanted=wanted)


ARGUMENT_WORDS = ("-4@", "8@", "%rdi", "(%rbp)", "$", "sym+4(%rip)", "[x0, 4]", "[sp]", "f@", "%ah", "4@(%rax,%rbx,8)")


def names(data: bytes) -> None:
    """Names of symbols that a compiler mangled."""
    text = data.decode("utf-8", "surrogateescape")
    found = demangle.demangle(text)
    demangle.qualified_name(found)
    demangle.mangled(text)


NAME_WORDS = ("_Z", "_ZN", "_R", "17h0123456789abcdefE", "St", "I", "E", "S_", "T_", "$LT$", "..", "Nv", "C", "p", "K")


def archive(data: bytes) -> None:
    """Members of zip archives (``base.apk!/lib.so``)."""
    place = archive_member(stored(data), "lib.so")
    assert place[0] >= 0
    assert place[1] >= 0


# ---------------------------------------------------------------------------------------------- type information


def _read_all(btf: Btf) -> None:
    reader = TypeReader(btf)
    for type_id in range(btf.first_id, min(btf.end_id, btf.first_id + 200)):
        btf.find(btf.type_name(type_id), *Kind)
        kind = btf.kind(type_id)
        if kind == Kind.FUNC:
            reader.prototype(type_id)
        elif kind in (Kind.STRUCT, Kind.UNION):
            reader.members(type_id)
        if kind not in (Kind.FUNC, Kind.FUNC_PROTO, Kind.DATASEC, Kind.DECL_TAG):
            _sized(reader.type(type_id))
    for kind in Kind:
        btf.names(kind)
    btf.strings_with_prefix("a")
    for offset in btf.string_offsets("x"):
        list(btf.with_member(offset))


def _sized(type_: Type) -> None:
    """Parts of types are read when they are asked for."""
    for part in list(parts((type_,)))[:50]:
        assert part.size >= 0
        str(part)


def btf(data: bytes) -> None:
    """Type information of a kernel, in a file that somebody names."""
    found = Btf(data)
    btf_types.check(found)
    _read_all(found)


def btf_module(data: bytes) -> None:
    """Type information of a module, on top of a kernel's."""
    found = Btf(data, "module", _base())
    btf_types.check(found)
    _read_all(found)


@cache
def _base() -> Btf:
    return Btf(small_types())


def btf_seeds() -> Iterator[bytes]:
    """Small type information, by itself and as that of a module."""
    yield small_types()
    base = _base()
    builder = BtfBuilder(base.end_id, base.end_string)
    builder.struct("own", 8, ("kernel", 3, 0))
    yield builder.build()


TARGETS = {
    "elf": Target("ELF files, with pyelftools as second opinion", elf, length=8192),
    "debug_info": Target("DWARF: types, lines, frames, split units; notes", debug_info, length=16384),
    "hostile_files": Target(
        "hostile files beside an honest one, in a limited process", hostile, NOTHING, length=256,
        guide="hostile_files_here",
        seeds=lambda: map(_hostile_seed, range(3)),
    ),
    "hostile_files_here": Target(
        "the same without a process of their own", hostile_here, NOTHING, length=256,
        seeds=lambda: map(_hostile_seed, range(10, 22)),
    ),
    "package_index": Target("indexes of DWARF packages", package_index, PACKAGE_ERRORS, length=512),
    "unwind_table": Target(".eh_frame", unwind_table, NOTHING),
    "numbers": Target("LEB128 numbers", numbers, (IndexError,), length=32),
    "notes": Target("ELF notes, USDT notes", notes, (BadArgumentError,)),
    "arguments": Target(
        "arguments of USDT probes", arguments, (BadArgumentError,), words=lambda: ARGUMENT_WORDS,
        length=256,
    ),
    "mangled_names": Target(
        "C++ and Rust names", names, NOTHING, words=lambda: NAME_WORDS, length=512
    ),
    "archive": Target("zip archives with libraries", archive, (TraceError, OSError)),
    "btf": Target("BTF of kernels", btf, seeds=btf_seeds),
    "btf_module": Target("BTF of modules", btf_module, seeds=btf_seeds),
}  # fmt: skip
