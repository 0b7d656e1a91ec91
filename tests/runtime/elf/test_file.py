"""pytrace.runtime.elf.file: build ids, members of archives, and what is no ELF file."""

from __future__ import annotations

import lzma
import os
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import msgspec
import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.binaries.user_binary import UserBinaries
from pytrace.runtime.elf import file as elf_file
from pytrace.runtime.elf.file import ElfFile, Segment, archive_member, attach_path, is_elf, read_file
from pytrace.runtime.live_kernel import LiveKernel
from tests.support.compile import compiled
from tests.support.small_program import built


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
    monkeypatch.setattr("pytrace.runtime.elf.file.own", lambda _: False)
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
