"""pytrace.runtime.attach.semaphores: where semaphores of USDT probes lie in processes, raising and lowering them."""

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
from pytrace.runtime.attach.base import CannotAttachError
from pytrace.runtime.attach.opened import Opened
from pytrace.runtime.host import procfs

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


@pytest.mark.kernel
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


# ---------------------------------------------------------------------------------------------- raising


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> dict[int, list[ctypes.c_uint16]]:
    """Semaphores in this process's memory, which others are said to have, too."""
    found: dict[int, list[ctypes.c_uint16]] = {}

    def addresses(path: str, offset: int, pid: int) -> list[int]:
        assert (path, offset) == ("/bin/app", 0x300)
        return [ctypes.addressof(word) for word in found.get(pid, [])]

    add = semaphores._add
    monkeypatch.setattr(semaphores, "_addresses", addresses)
    monkeypatch.setattr(semaphores, "_add", lambda pid, *rest: pid in found and add(os.getpid(), *rest))
    monkeypatch.setattr(procfs, "process_ids", lambda: [7, 8, 9])
    return found


def test_one_process(places: dict[int, list[ctypes.c_uint16]]) -> None:
    first, second, other = ctypes.c_uint16(3), ctypes.c_uint16(0xFFFF), ctypes.c_uint16(5)
    places.update({7: [first, second], 8: [other]})
    opened = Opened()
    semaphores.raise_by_hand("/bin/app", 0x300, 7, everywhere=True, opened=opened)
    assert [first.value, second.value, other.value] == [4, 0, 5]
    opened.close()
    assert [first.value, second.value, other.value] == [3, 0xFFFF, 5]


def test_all_processes_that_map_the_file(places: dict[int, list[ctypes.c_uint16]]) -> None:
    words = [ctypes.c_uint16(0) for _ in range(2)]
    places.update({7: [words[0]], 9: [words[1]]})
    opened = Opened()
    semaphores.raise_by_hand("/bin/app", 0x300, None, everywhere=True, opened=opened)
    assert [word.value for word in words] == [1, 1]
    # One has ended meanwhile.
    del places[7]
    opened.close()
    assert [word.value for word in words] == [1, 0]


def test_nobody_is_named() -> None:
    with pytest.raises(CannotAttachError, match="the kernel cannot raise it") as raised:
        semaphores.raise_by_hand("/bin/app", 0x300, None, everywhere=False, opened=Opened())
    assert raised.value.hints == ("use -p or --usdt-file-activation",)


@pytest.mark.parametrize(("pid", "everywhere"), [(8, False), (None, True)])
def test_nobody_maps_the_file(
    places: dict[int, list[ctypes.c_uint16]], pid: int | None, everywhere: bool
) -> None:
    opened = Opened()
    with pytest.raises(CannotAttachError, match="no process that could be reached has mapped the file"):
        semaphores.raise_by_hand("/bin/app", 0x300, pid, everywhere=everywhere, opened=opened)
    assert opened.steps == []


def test_memory_that_cannot_be_written() -> None:
    assert not semaphores._add(1 << 22 | 1, 0, 1), "no such process"
    assert not semaphores._add(os.getpid(), 0, 1), "no such memory"


def test_a_process_that_gave_up_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ``mem`` could be opened before it ended, and is then read as empty."""
    monkeypatch.setattr(os, "pread", lambda *_: b"")
    assert not semaphores._add(os.getpid(), 0, 1)
