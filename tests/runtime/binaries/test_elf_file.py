"""ELF files: headers, sections, symbols."""

from __future__ import annotations

import lzma
import os
import struct
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.binaries import elf_file
from pytrace.runtime.binaries.elf_file import (
    CODE_TYPES,
    SHT_SYMTAB,
    ElfFile,
    Segment,
    Symbol,
    SymbolTable,
    archive_member,
    attach_path,
    defined,
    function_names,
    is_elf,
    read_file,
    signed,
    unsigned,
)
from pytrace.runtime.binaries.user_binary import UserBinaries
from pytrace.runtime.load.live_kernel import LiveKernel
from tests.support.compile import compiled
from tests.support.rows import each_row
from tests.support.small_program import built

# ---------------------------------------------------------------------------------------------- file
# pytrace.runtime.binaries.elf_file: build ids, members of archives, and what is no ELF file.


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("elf"))


def test_build_id(program: Path) -> None:
    notes = subprocess.run(["readelf", "-n", str(program)], capture_output=True, text=True, check=True).stdout
    assert f"Build ID: {ElfFile.open(str(program)).build_id}" in notes


def test_library_in_an_archive(tmp_path: Path) -> None:
    library = compiled(tmp_path, "libthing.so", "int thing(int n) { return n + 1; }\n", "-shared", "-fPIC")
    archive = tmp_path / "base.apk"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as made:
        made.writestr("AndroidManifest.xml", "x" * 100)
        made.write(library, "lib/x86_64/libthing.so")
    path = f"{archive}!/lib/x86_64/libthing.so"
    (symbol,) = UserBinaries().symbols(path, "thing")
    plain = UserBinaries().symbols(str(library), "thing")[0]
    start, size = archive_member(str(archive), "lib/x86_64/libthing.so")
    assert size == library.stat().st_size
    assert symbol.offset == plain.offset + start
    assert (
        archive.read_bytes()[symbol.offset : symbol.offset + 4] == library.read_bytes()[plain.offset : plain.offset + 4]
    )
    assert attach_path(path) == str(archive)
    assert UserBinaries().binary(path).elf.address_at(symbol.offset) == plain.address
    # What is asked about offsets inside of functions: whether an instruction starts there.
    assert LiveKernel().user_code(path, symbol.offset, symbol.size) == LiveKernel().user_code(
        str(library), plain.offset, plain.size
    )


def test_compressed_member_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "base.apk"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("lib/libx.so", b"\x7fELF" * 100)
    with pytest.raises(TraceError, match="compressed"):
        archive_member(str(archive), "lib/libx.so")
    with pytest.raises(TraceError, match="no member"):
        archive_member(str(archive), "lib/liby.so")


@pytest.mark.parametrize("content", [b"", b"#!/bin/sh\n", b"\x7fELF", b"\x7fELF\x02\x01" + b"\xff" * 80])
def test_what_is_no_elf_file_is_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "thing"
    path.write_bytes(content)
    with pytest.raises(TraceError):
        UserBinaries().symbols(str(path), "*")


def test_is_elf(program: Path, tmp_path: Path) -> None:
    assert is_elf(str(program))
    assert not is_elf(__file__)
    assert not is_elf(str(tmp_path / "missing"))


# ---------------------------------------------------------------------------------------------- too much


def one_section(path: Path, name: str, data: bytes, hole: int = 0, claimed: int = 0) -> str:
    """A file that others may change, with one section: *data* and *hole* bytes that are not there."""
    names = b"\0" + name.encode() + b"\0"
    headers = 64 + len(data) + hole
    rows = [(0,) * 10, (1, 2, 0, 0, 64, claimed or len(data) + hole, 2, 0, 1, 24),
            (0, 3, 0, 0, headers + 3 * 64, len(names), 0, 0, 1, 0)]  # fmt: skip
    head = struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, headers, 0, 64, 56, 0, 64, 3, 2)
    with path.open("wb") as file:
        file.write(b"\x7fELF\2\1\1" + bytes(9) + head + data)
        file.seek(hole, os.SEEK_CUR)
        file.write(b"".join(struct.pack("<IIQQQQIIQQ", *row) for row in rows) + names)
    path.chmod(0o666)
    return str(path)


def test_a_file_of_holes_is_not_read(tmp_path: Path) -> None:
    path = one_section(tmp_path / "file", ".symtab", b"", hole=4 << 30)
    with pytest.raises(TraceError, match="of its 4096 MiB only 0 MiB are on the disk"):
        ElfFile.open(path)


def test_a_section_that_is_not_all_in_the_file(tmp_path: Path) -> None:
    with ElfFile.open(one_section(tmp_path / "file", ".data", b"x" * 100, claimed=1 << 40)) as file:
        with pytest.raises(TraceError, match=r"its section \.data is outside the file"):
            file.contents(file.sections[1])


def test_sections_that_are_too_large_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elf_file, "most_copied", lambda: 3 << 20)
    with ElfFile.open(one_section(tmp_path / "file", "n" * 1000, b"x" * (2 << 20))) as file:
        section = file.sections[1]
        assert len(file.contents(section)) == len(file.contents(section)) == 2 << 20
        other = elf_file.Section("n" * 1000, 1, 0, 0, 65, 2 << 20, 0)
        with pytest.raises(TraceError, match="more than what a file may take") as error:
            file.contents(other)
        assert len(str(error.value)) < 1000
        assert len(file.contents(other, 100)) == 100


def test_a_small_symbol_table_that_unpacks_to_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elf_file, "_MOST_MINI", 8 << 20)
    data = lzma.compress(bytes(32 << 20), preset=0)
    with ElfFile.open(one_section(tmp_path / "file", ".gnu_debugdata", data)) as file:
        with pytest.raises(TraceError, match="it has no end in 8388608 bytes"):
            _ = file.mini_debug_info


def test_headers_that_are_too_many(tmp_path: Path) -> None:
    path = Path(one_section(tmp_path / "file", ".data", b""))
    data = bytearray(path.read_bytes())
    data[60:62] = bytes(2)  # so many that their number is the size of the first section
    data[64 + 32 : 64 + 40] = (1 << 50).to_bytes(8, "little")
    with pytest.raises(TraceError, match=f"it has {1 << 50} headers of 64 bytes"):
        _ = ElfFile(bytes(data), "made").sections


def test_texts_of_others_in_messages_are_short() -> None:
    assert elf_file.quoted("x" * 200) == "x" * 200
    shown = elf_file.quoted("a" * 100_000 + "z")
    assert (len(shown), shown[99:101], shown[-2:]) == (200, "a…", "az")


# ---------------------------------------------------------------------------------------------- files of others


class Facts(msgspec.Struct):
    """What is asked of a file here, and of which process."""

    build_id: str
    segments: tuple[Segment, ...]
    process: int


def facts(file: ElfFile) -> Facts:
    return Facts(file.build_id, file.segments, os.getpid())


def test_a_limited_process_reads_files_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same answers and errors; what takes too long is the file's fault."""
    path = tmp_path / "program"
    path.write_bytes(Path(sys.executable).resolve().read_bytes())
    here = read_file(str(path), facts, Facts)
    assert here.process == os.getpid()
    monkeypatch.setattr("pytrace.runtime.binaries.elf_file.trusted", lambda *_: False)
    there = read_file(str(path), facts, Facts)
    assert (there.build_id, there.segments) == (here.build_id, here.segments)
    assert there.process != os.getpid()
    (tmp_path / "text").write_text("no program, but long enough")
    with pytest.raises(TraceError, match="text is not an ELF file"):
        read_file(str(tmp_path / "text"), facts, Facts)
    with pytest.raises(FileNotFoundError):
        read_file(str(tmp_path / "none"), facts, Facts)

    def hangs(_file: ElfFile) -> Facts:
        while True:
            pass

    with pytest.raises(TraceError, match="program is not read: it takes more processor time than a file may"):
        read_file(str(path), hangs, Facts, seconds=0.1)
    with pytest.raises(TraceError, match="program is not read: ZeroDivisionError"):
        read_file(str(path), lambda _: Facts("", (), 1 // 0), Facts)


# ---------------------------------------------------------------------------------------------- symbol table
# pytrace.runtime.binaries.elf_file on tables made by hand, of both ELF classes.


OBJECT, FUNCTION, IFUNC = 1, 2, 10
HERE, ELSEWHERE = 3, 0

Row = tuple[str, int, int, int, int]
"""Name, address, size, type, section."""


def table(rows: Iterable[Row], *, wide: bool = True, types: frozenset[int] | None = frozenset((FUNCTION, IFUNC)),
          tail: bytes = b"") -> SymbolTable:  # fmt: skip
    strings, data = bytearray(b"\0"), b""
    for name, address, size, kind, section in rows:
        at = strings.find(name.encode("utf-8", "surrogateescape") + b"\0")
        if at < 0:
            at = len(strings)
            strings += name.encode("utf-8", "surrogateescape") + b"\0"
        if wide:
            data += struct.pack("<IBBHQQ", at, 0x10 | kind, 0, section, address, size)
        else:
            data += struct.pack("<IIIBBH", at, address, size, 0x10 | kind, 0, section)
    return SymbolTable(data + tail, bytes(strings), wide, types)


def functions(*rows: tuple[str, int, int]) -> list[Row]:
    return [(*row, FUNCTION, HERE) for row in rows]


@pytest.mark.parametrize("wide", [True, False])
def test_defined_functions_in_order_of_address(wide: bool) -> None:
    made = table(
        [
            ("later", 0x300, 4, FUNCTION, HERE),
            ("variable", 0x100, 8, OBJECT, HERE),
            ("chosen", 0x200, 16, IFUNC, HERE),
            ("imported", 0, 0, FUNCTION, ELSEWHERE),
        ],
        wide=wide,
        tail=b"half",
    )
    assert len(made) == 2
    assert made.addresses == [0x200, 0x300]
    assert made.names() == [b"chosen", b"later"]
    assert [made.symbol(index) for index in range(2)] == [
        Symbol("chosen", 0x200, 16, indirect=True),
        Symbol("later", 0x300, 4),
    ]


def test_symbols_of_all_types() -> None:
    rows = [("variable", 0x100, 8, OBJECT, HERE), ("imported", 0, 0, OBJECT, ELSEWHERE)]
    assert table(rows, types=None).match("*") == [Symbol("variable", 0x100, 8)]


def test_an_empty_table() -> None:
    made = table([])
    assert len(made) == 0
    assert made.match("*") == made.match("x") == []
    assert made.covering(0) is None


VERSIONED = functions(("malloc@@V2", 0x10, 4), ("malloc@V1", 0x20, 4), ("xmalloc", 0x30, 4), ("free", 0x40, 4))


@pytest.mark.parametrize(
    ("pattern", "addresses"),
    [
        ("malloc", [0x10, 0x20]),
        ("alloc", []),
        ("*malloc", [0x10, 0x20, 0x30]),
        ("malloc*", [0x10, 0x20]),
        ("*V2", []),
        ("free", [0x40]),
        ("fre", []),
        ("ree", []),
    ],
)
def test_patterns_do_not_see_versions(pattern: str, addresses: list[int]) -> None:
    made = table(VERSIONED)
    found = made.match(pattern)
    assert [symbol.address for symbol in found] == addresses
    assert not any("@" in symbol.name for symbol in found)


def test_strings_may_share_their_tails() -> None:
    """A linker stores ``read`` as the end of ``vfs_read``."""
    strings = b"\0vfs_read\0"
    data = b"".join(struct.pack("<IBBHQQ", at, FUNCTION, 0, HERE, 16 * at, 4) for at in (1, 5))
    made = SymbolTable(data, strings, True)
    assert made.match("read") == [Symbol("read", 80, 4)]
    assert made.match("vfs_read") == [Symbol("vfs_read", 16, 4)]


def test_names_in_any_encoding() -> None:
    made = table(functions(("größe", 0x10, 4), ("odd\udcff", 0x20, 4)))
    assert made.match("größe") == [Symbol("größe", 0x10, 4)]
    assert made.match("odd\udcff") == [Symbol("odd\udcff", 0x20, 4)]
    assert made.match("gr*e") == [Symbol("größe", 0x10, 4)]


NESTED = functions(
    ("outer", 0x100, 0x100), ("inner", 0x140, 0x10), ("label", 0x300, 0), ("next", 0x400, 0x10), ("_start", 0x500, 8)
)


@each_row(
    ("address", "name"),
    [
        (0xFF, None), (0x100, "outer"), (0x140, "inner"), (0x14F, "inner"), (0x150, "outer"), (0x1FF, "outer"),
        (0x200, None), (0x300, "label"), (0x3FF, "label"), (0x40F, "next"), (0x410, None), (0x508, None),
    ],
)  # fmt: skip
def test_the_function_that_covers_an_address(address: int, name: str | None) -> None:
    found = table(NESTED).covering(address)
    assert (found.name if found else None) == name


@pytest.mark.parametrize("order", [1, -1])
def test_of_aliases_the_plainest_name_is_taken(order: int) -> None:
    rows = functions(("__read", 0x10, 16), ("_read", 0x10, 16), ("read64", 0x10, 16), ("read", 0x10, 16))
    assert table(rows[::order]).covering(0x18) == Symbol("read", 0x10, 16)


def test_an_alias_that_is_too_short_does_not_cover() -> None:
    rows = functions(("a", 0x10, 4), ("long_name", 0x10, 16))
    for given in (rows, rows[::-1]):
        found = table(given).covering(0x18)
        assert found is not None
        assert found.name == "long_name"
        assert table(given).covering(0x12) == Symbol("a", 0x10, 4)


# ---------------------------------------------------------------------------------------------- names for listings


RESERVED = 0x0300

Record = tuple[int, int, int]
"""Place of the name among the strings, type, section."""


def records(rows: Sequence[Record], wide: bool) -> bytes:
    if wide:
        return b"".join(struct.pack("<IBBHQQ", at, 0x10 | kind, 0, owner, 16, 4) for at, kind, owner in rows)
    return b"".join(struct.pack("<IIIBBH", at, 16, 4, 0x10 | kind, 0, owner) for at, kind, owner in rows)


def image(strings: bytes, rows: Sequence[Record], *, wide: bool = True, tail: bytes = b"") -> ElfFile:
    """An ELF file of nothing but a symbol table and its strings."""
    data = records(rows, wide) + tail
    start = 64 if wide else 52
    header = (3, 62, 1, 0, 0, start + len(data) + len(strings), 0, start, 56, 0, 64 if wide else 40, 3, 2)
    section = "<IIQQQQIIQQ" if wide else "<IIIIIIIIII"
    sections = (
        (0,) * 10,
        (0, SHT_SYMTAB, 0, 0, start, len(data), 2, 0, 8, 24),
        (0, 3, 0, 0, start + len(data), len(strings), 0, 0, 1, 0),
    )
    head = b"\x7fELF" + bytes((2 if wide else 1, 1)) + bytes(10)
    head += struct.pack("<HHIQQQIHHHHHH" if wide else "<HHIIIIIHHHHHH", *header)
    body = head + data + strings + b"".join(struct.pack(section, *row) for row in sections)
    return ElfFile(body, "made")


def names(strings: bytes, rows: Sequence[Record], *, wide: bool = True, tail: bytes = b"") -> list[str]:
    """The names of the table, compared with those that a look-up of everything finds."""
    file = image(strings, rows, wide=wide, tail=tail)
    (section,) = file.symbol_sections
    found = sorted(function_names(file, section))
    (table,) = file.tables
    assert found == sorted(symbol.name for symbol in table.match("*"))
    return found


@pytest.mark.parametrize("wide", [True, False])
def test_functions_that_are_defined_here(wide: bool) -> None:
    strings = b"\0one\0data\0import\0chosen\0far\0"
    rows = [(1, FUNCTION, HERE), (5, OBJECT, HERE), (10, FUNCTION, ELSEWHERE), (17, IFUNC, HERE),
            (24, FUNCTION, RESERVED)]  # fmt: skip
    assert names(strings, rows, wide=wide, tail=b"half") == ["chosen", "far", "one"]


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize(("types", "expected"), [(CODE_TYPES, [1, 0, 0, 1, 0]), (None, [1, 1, 0, 1, 1])])
def test_the_records_that_count(wide: bool, types: frozenset[int] | None, expected: list[int]) -> None:
    rows = [(1, FUNCTION, HERE), (1, OBJECT, HERE), (1, FUNCTION, ELSEWHERE), (1, IFUNC, RESERVED), (1, 0, HERE)]
    assert list(defined(memoryview(records(rows, wide)), wide, types)) == expected


def test_names_of_an_empty_table() -> None:
    assert names(b"\0", []) == []


def test_names_come_in_any_order_and_may_repeat() -> None:
    strings = b"\0second\0first\0first\0"
    assert names(strings, [(14, FUNCTION, HERE), (8, FUNCTION, HERE), (1, FUNCTION, HERE), (8, FUNCTION, HERE)]) == [
        "first", "first", "first", "second",
    ]  # fmt: skip


def test_versions_are_removed_from_all_names_that_share_a_tail() -> None:
    strings = b"\0plain\0vfs_read@@V2@x\0free@V1\0last\0"
    at = {name: strings.index(name) for name in (b"plain", b"vfs_read", b"read", b"free", b"last")}
    rows = [(place, FUNCTION, HERE) for place in at.values()]
    assert names(strings, rows) == ["free", "last", "plain", "read", "vfs_read"]
    assert names(strings, [(at[b"read"], FUNCTION, HERE)]) == ["read"]
    assert names(strings, [(at[b"plain"], FUNCTION, HERE), (at[b"last"], FUNCTION, HERE)]) == ["last", "plain"]


def test_a_name_that_begins_in_a_version_has_none() -> None:
    strings = b"\0read@@V2\0"
    assert names(strings, [(strings.index(b"V2"), FUNCTION, HERE)]) == ["V2"]


@pytest.mark.parametrize("strings", [b"\0one\0two@V", b"\0one\0two@", b"\0one\0@", b"\0one\0tw"])
def test_strings_whose_end_is_missing(strings: bytes) -> None:
    file = image(strings, [(1, FUNCTION, HERE), (5, FUNCTION, HERE), (99, FUNCTION, HERE)])
    (section,) = file.symbol_sections
    assert "one" in function_names(file, section)


def test_listed_names_in_any_encoding() -> None:
    strings = b"\0" + "größe".encode() + b"\0odd\xff@V\0"
    assert names(strings, [(1, FUNCTION, HERE), (strings.index(b"odd"), FUNCTION, HERE)]) == ["größe", "odd\udcff"]


# ---------------------------------------------------------------------------------------------- too much


def test_symbols_beyond_a_limit_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elf_file, "MOST_SYMBOLS", 2)
    file = image(b"\0one\0two\0three\0", [(1, FUNCTION, HERE), (5, FUNCTION, HERE), (9, FUNCTION, HERE)])
    (table,) = file.tables
    assert sorted(symbol.name for symbol in table.match("*")) == ["one", "two"]
    assert table.problem == "only the first 2 symbols of made are used"
    assert sorted(function_names(file, file.symbol_sections[0])) == ["one", "two"]


@pytest.mark.parametrize(("strings", "reason"), [
    (b"\0" + b"x" * 100_000 + b"\0", "a name in it has more than 65536 bytes"),
    (b"\0" + b"x" * 2000 + b"\0", "names overlap"),
])  # fmt: skip
def test_names_that_are_mostly_the_same_text(
    strings: bytes, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of some megabytes would have names of gigabytes."""
    monkeypatch.setattr(elf_file, "_MOST_SYMBOL_NAMES", 0)
    file = image(strings, [(1 + at, FUNCTION, HERE) for at in range(1500)])
    with pytest.raises(TraceError, match=reason):
        function_names(file, file.symbol_sections[0])
    with pytest.raises(TraceError, match=reason):
        file.tables[0].names()


# ---------------------------------------------------------------------------------------------- leb128
# pytrace.runtime.binaries.elf_file: numbers, and the positions after them.


@pytest.mark.parametrize(
    ("data", "value", "end"), [(b"\x00", 0, 1), (b"\x7f", 127, 1), (b"\x80\x01", 128, 2), (b"\xe5\x8e\x26", 624485, 3)]
)
def test_unsigned_numbers(data: bytes, value: int, end: int) -> None:
    assert unsigned(b"x" + data + b"\xff", 1) == (value, end + 1)


@pytest.mark.parametrize(
    ("data", "value", "end"),
    [(b"\x02", 2, 1), (b"\x7e", -2, 1), (b"\xff\x00", 127, 2), (b"\x81\x7f", -127, 2), (b"\x80\x7f", -128, 2)],
)
def test_signed_numbers(data: bytes, value: int, end: int) -> None:
    assert signed(b"x" + data + b"\xff", 1) == (value, end + 1)
