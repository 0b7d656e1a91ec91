"""pytrace.runtime.dwarf.sections: contents by name, decompressed, joined and divided."""

from __future__ import annotations

import ctypes
import random
import struct
import zlib
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import zstandard

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.dwarf.sections import FileSections, SectionParts, ViewStream
from pytrace.runtime.elf.file import SHF_COMPRESSED, SHF_GROUP, SHT_NOBITS, ElfFile, Section

TEXT = b"debug information" * 10


def file(*rows: tuple[str, bytes, int], wide: bool = True, kind: int = 1) -> Any:
    """A file with sections: name, contents, flags."""
    sections = tuple(
        Section(name, kind, flags, 0, number, len(data), 0) for number, (name, data, flags) in enumerate(rows)
    )
    return SimpleNamespace(
        path="/bin/app", wide=wide, sections=sections, contents=lambda section: memoryview(rows[section.offset][1]),
        check_size=partial(ElfFile.check_size, SimpleNamespace(path="/bin/app", _copied={})),
    )


def chdr(method: int, size: int, data: bytes, *, wide: bool = True) -> bytes:
    """A compressed section with its header."""
    return struct.pack("<IIQQ" if wide else "<III", *((method, 0, size, 1) if wide else (method, size, 1))) + data


@pytest.mark.parametrize("wide", [True, False])
def test_compressed_by_the_standard(wide: bool) -> None:
    data = chdr(1, len(TEXT), zlib.compress(TEXT), wide=wide)
    found = FileSections(file((".debug_info", data, SHF_COMPRESSED), wide=wide)).section("info")
    assert bytes(found.data) == TEXT
    assert found.size == len(TEXT)


def test_compressed_in_the_older_form() -> None:
    data = b"ZLIB" + len(TEXT).to_bytes(8, "big") + zlib.compress(TEXT)
    assert bytes(FileSections(file((".zdebug_info", data, 0))).section("info").data) == TEXT
    # Without the mark it is as it is.
    assert bytes(FileSections(file((".zdebug_info", TEXT, 0))).section("info").data) == TEXT


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


@pytest.mark.parametrize("data", [zstd(TEXT), zstd(TEXT[:9]) + zstd(TEXT[9:])], ids=["one frame", "two frames"])
def test_compressed_with_zstd(data: bytes) -> None:
    data = chdr(2, len(TEXT), data)
    assert bytes(FileSections(file((".debug_info", data, SHF_COMPRESSED))).section("info").data) == TEXT


def test_zstd_needs_no_library_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, *_: object) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    data = chdr(2, len(TEXT), zstd(TEXT))
    assert bytes(FileSections(file((".debug_info", data, SHF_COMPRESSED))).section("info").data) == TEXT


@pytest.mark.parametrize(
    ("name", "data", "flags"),
    [
        (".debug_info", chdr(1, 5, zlib.compress(TEXT)), SHF_COMPRESSED),
        (".debug_info", chdr(2, 5, zstd(TEXT)), SHF_COMPRESSED),
        (".zdebug_info", b"ZLIB" + (5).to_bytes(8, "big") + zlib.compress(TEXT), 0),
    ],
)
def test_no_more_than_the_header_says(name: str, data: bytes, flags: int) -> None:
    assert bytes(FileSections(file((name, data, flags))).section("info").data) == TEXT[:5]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (chdr(1, 9, b"damaged"), "incorrect header check"),
        (chdr(2, 9, b"damaged"), "[Uu]nknown frame"),
        (chdr(9, 9, b""), "the method has the number 9"),
    ],
)
def test_damage_names_file_and_section(data: bytes, reason: str) -> None:
    section = FileSections(file((".debug_line", data, SHF_COMPRESSED))).section("line")
    with pytest.raises(TraceError, match=rf"^/bin/app: \.debug_line cannot be decompressed: .*{reason}"):
        _ = section.data


@pytest.mark.parametrize(
    ("size", "reason"),
    [(64 << 20, r"cannot be 67108864 of debug information"), (1 << 40, r"not read: its 1048576 MiB are more than")],
)
@pytest.mark.parametrize("method", [1, 2])
def test_what_would_fill_memory_is_refused(method: int, size: int, reason: str) -> None:
    """Nothing is unpacked for it, and the next question costs nothing."""
    zeros = bytes(64 << 20)
    data = chdr(method, size, zlib.compress(zeros, 9) if method == 1 else zstd(zeros))
    asked: list[int] = []
    bomb = file((".debug_info", data, SHF_COMPRESSED))
    contents = bomb.contents
    bomb.contents = lambda section: (asked.append(1), contents(section))[1]
    section = FileSections(bomb).section("info")
    for _ in range(3):
        with pytest.raises(TraceError, match=reason):
            _ = section.data
    assert len(asked) == 1


def test_much_is_unpacked_in_pieces() -> None:
    text = random.Random(1).randbytes(1 << 20) + TEXT * 10_000
    for data in (chdr(1, len(text), zlib.compress(text)), chdr(2, len(text), zstd(text))):
        assert bytes(FileSections(file((".debug_info", data, SHF_COMPRESSED))).section("info").data) == text


def test_what_is_not_there_is_empty() -> None:
    assert FileSections(file()).section("info").size == 0
    assert FileSections(file((".debug_info", TEXT, 0), kind=SHT_NOBITS)).section("info").size == 0


def test_sections_of_split_files_have_names_of_their_own() -> None:
    both = file((".debug_info", b"own", 0), (".debug_info.dwo", b"split", 0), (".debug_cu_index", b"index", 0))
    assert bytes(FileSections(both).section("info").data) == b"own"
    split = FileSections(both, split=True)
    assert bytes(split.section("info").data) == b"split"
    assert bytes(split.index("cu_index").data) == b"index"
    assert split.section("info") is split.section("info")


def test_sections_of_one_name_are_joined_those_of_groups_last() -> None:
    parts = file((".debug_types", b"A", SHF_GROUP), (".debug_types", b"b", 0), (".debug_types", b"C", SHF_GROUP))
    assert bytes(FileSections(parts).section("types").data) == b"bAC"


@pytest.mark.parametrize(("wide", "size"), [(True, 8), (False, 4)])
def test_addresses(wide: bool, size: int) -> None:
    assert FileSections(file(wide=wide)).address_size == size


def test_parts_of_a_package() -> None:
    rows = (".debug_info", b"0123456789", 0), (".debug_str", b"shared", 0), (".debug_line", b"x", 0)
    whole = FileSections(file(*rows))
    parts = SectionParts(whole, {"info": (2, 3)}, frozenset({"info", "line"}))
    assert bytes(parts.section("info").data) == b"234"
    assert bytes(parts.section("str").data) == b"shared"
    assert parts.section("line").size == 0, "the unit has none of it"
    assert (parts.path, parts.address_size) == ("/bin/app", 8)


def test_a_view_reads_like_a_file() -> None:
    stream = ViewStream(memoryview(b"0123456789"))
    assert (stream.read(3), stream.tell(), stream.read(0)) == (b"012", 3, b"")
    assert (stream.seek(2, 1), stream.read(2)) == (5, b"56")
    assert (stream.seek(-3, 2), stream.read()) == (7, b"789")
    assert (stream.read(5), stream.tell()) == (b"", 10)
    assert (stream.seek(20), stream.read(1)) == (20, b"")
    with pytest.raises(ValueError, match="there is nothing at -1"):
        stream.seek(-1)
