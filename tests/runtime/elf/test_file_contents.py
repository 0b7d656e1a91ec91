"""Contents of ELF files: mapped where nobody else can truncate them, else read."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.elf.file import ElfFile
from pytrace.runtime.elf.file_contents import ReadFile, open_contents, pieces

if TYPE_CHECKING:
    from pathlib import Path

TEXT = bytes(range(256)) * 20


@pytest.mark.parametrize("mode", [0o600, 0o666, 0o660], ids=["mapped", "of everybody", "of a group"])
@pytest.mark.parametrize(("start", "size"), [(0, None), (0, 100), (300, 1000), (5000, 1000), (9000, 10)])
def test_slices(tmp_path: Path, mode: int, start: int, size: int | None) -> None:
    path = tmp_path / "file"
    path.write_bytes(TEXT)
    path.chmod(mode)
    wanted = TEXT[start:] if size is None else TEXT[start : start + size]
    found = open_contents(str(path), start, size)
    assert isinstance(found, ReadFile) == (mode != 0o600)
    assert len(found) == len(wanted)
    for part in (slice(0, 16), slice(90, 300), slice(500, 1 << 70), slice(7, 3), slice(None)):
        assert bytes(found[part]) == wanted[part]
    assert b"".join(pieces(found)) == wanted
    found.release()


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TraceError, match="is empty"):
        open_contents(str(tmp_path / "file"))


def test_a_file_that_its_owner_truncates(tmp_path: Path) -> None:
    """A mapping would end this process by SIGBUS."""
    path = tmp_path / "file"
    shutil.copyfile(os.path.realpath(sys.executable), path)
    path.chmod(0o666)
    before = ElfFile.open(str(path))
    with ElfFile.open(str(path)) as file:
        assert isinstance(file.view, ReadFile)
        os.truncate(path, 100)
        with pytest.raises(TraceError, match="truncated"):
            _ = file.sections
        assert bytes(file.view[90:200]) == before.view[90:100]
        assert file.checksum() == before.checksum()
    before.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user")
def test_files_of_others_are_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(TEXT)
    os.chown(path, 1000, 1000)
    assert isinstance(open_contents(str(path)), ReadFile)


def test_descriptors_are_given_up(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(TEXT)
    path.chmod(0o666)
    count = len(os.listdir("/proc/self/fd"))
    found = open_contents(str(path))
    assert len(os.listdir("/proc/self/fd")) == count + 1
    del found
    assert len(os.listdir("/proc/self/fd")) == count
