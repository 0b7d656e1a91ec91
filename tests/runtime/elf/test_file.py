"""pytrace.runtime.elf.file: build ids, members of archives, and what is no ELF file."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.binaries.user_binary import UserBinaries
from pytrace.runtime.elf.file import ElfFile, archive_member, attach_path, is_elf
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
