"""Where semaphores of USDT probes lie in processes, for kernels that cannot raise them."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pytrace.runtime.attach import semaphores

PAGE = mmap.PAGESIZE


@pytest.fixture
def twins(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """Two files with the same inode number, on file systems of their own."""
    with ExitStack() as stack:
        files = []
        for name in ("one", "other"):
            folder = tmp_path / name
            folder.mkdir()
            command = ["mount", "-t", "tmpfs", "none", str(folder)]
            if subprocess.run(command, capture_output=True, check=False).returncode:
                pytest.skip("no file system can be mounted here")
            stack.callback(subprocess.run, ["umount", "-l", str(folder)], check=True)
            file = folder / "binary"
            file.write_bytes(bytes(2 * PAGE))
            files.append(file)
        if files[0].stat().st_ino != files[1].stat().st_ino:
            pytest.skip("inode numbers are those of this kernel's tmpfs only")
        yield files[0], files[1]


def test_a_semaphore_is_sought_in_its_own_file(twins: tuple[Path, Path]) -> None:
    mapped, other = twins
    with (
        open(mapped, "r+b") as file,
        mmap.mmap(file.fileno(), PAGE, flags=mmap.MAP_PRIVATE, offset=PAGE) as memory,
    ):
        word = ctypes.c_uint16.from_buffer(memory, 6)
        place = ctypes.addressof(word)
        pid = os.getpid()
        assert semaphores._addresses(str(mapped), PAGE + 6, pid) == [place]
        assert semaphores._addresses(str(mapped), 6, pid) == []
        assert semaphores._addresses(str(other), PAGE + 6, pid) == []
        del word
