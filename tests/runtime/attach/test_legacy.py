"""pytrace.runtime.attach.legacy: definitions in files that stand for those of tracefs."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pytrace.runtime.abi import perf
from pytrace.runtime.attach import legacy
from pytrace.runtime.attach.base import CannotAttachError
from pytrace.runtime.attach.opened import Opened
from pytrace.runtime.host import fingerprints, procfs, tracefs
from tests.support.attach_requests import Kernel, kernel

MINE = f"{fingerprints.TRACER}{os.getpid()}"
GONE = 1 << 22 | 1
"""No process has that number."""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Two empty lists of definitions; each written definition appears as an event with the number 77."""
    for name in ("kprobe_events", "uprobe_events"):
        (tmp_path / name).touch()
    monkeypatch.setattr(tracefs, "root", lambda: str(tmp_path))
    write = legacy._write

    def define(path: str, text: str) -> None:
        write(path, text)
        if not text.startswith("-"):
            event = tmp_path / "events" / text.split(maxsplit=1)[0].partition(":")[2]
            event.mkdir(parents=True)
            (event / "id").write_text("77\n")

    monkeypatch.setattr(legacy, "_write", define)
    legacy.sweep.cache_clear()
    yield tmp_path
    legacy.sweep.cache_clear()


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return kernel(monkeypatch)


@pytest.mark.parametrize(("returns", "letter"), [(False, "p"), (True, "r")])
def test_a_kernel_probe(root: Path, fake: Kernel, returns: bool, letter: str) -> None:
    opened = Opened()
    legacy.open_kprobe("nf:hook+3", returns=returns, opened=opened, symbol="program_0")
    made = re.fullmatch(rf"{letter}:({MINE}/(p\d+_\d+)) nf:hook\+3\n", (root / "kprobe_events").read_text())
    assert made is not None
    assert opened.traced == {made[2]: "program_0"}
    assert fake.asked == [("open_event", (perf.EventAttr(perf.EventType.TRACEPOINT, 77, period=1),), {"cpu": 2})]
    opened.close()
    assert (root / "kprobe_events").read_text().splitlines()[1:] == [f"-:{made[1]}"]


@pytest.mark.parametrize(
    ("semaphore", "pid", "place", "where"),
    [(0, None, "/bin/app:0x10", {"cpu": 2}), (0x300, 7, "/bin/app:0x10(0x300)", {"pid": 7})],
)
def test_a_user_probe(
    root: Path, fake: Kernel, semaphore: int, pid: int | None, place: str, where: dict[str, int]
) -> None:
    opened = Opened()
    legacy.open_uprobe("/bin/app", 0x10, semaphore, returns=False, pid=pid, opened=opened)
    assert (root / "uprobe_events").read_text().split()[1] == place
    assert fake.options("open_event") == [where]
    assert opened.traced == {}
    opened.close()


def test_each_probe_has_a_name_of_its_own(root: Path, fake: Kernel) -> None:
    opened = Opened()
    for _ in range(3):
        legacy.open_kprobe("f", returns=False, opened=opened)
    names = [line.split()[0] for line in (root / "kprobe_events").read_text().splitlines()]
    assert len(set(names)) == 3
    opened.close()


def test_what_tracers_left_that_are_gone_is_removed_once(root: Path) -> None:
    path = root / "uprobe_events"
    left = f"{fingerprints.TRACER}{GONE}/p{GONE}_0"
    lines = [
        f"p:{left} /bin/app:0x10",
        f"r:{left[:-1]}1 /bin/app:0x20",
        f"p:{MINE}/p{os.getpid()}_9 /bin/app:0x30",
        f"p:other{GONE}/p{GONE}_0 /bin/app:0x40",
        f"p:{fingerprints.TRACER}{GONE}/q{GONE}_0 /bin/app:0x50",
    ]
    path.write_text("\n".join(lines) + "\n")
    legacy.sweep(str(path))
    assert path.read_text().splitlines()[len(lines) :] == [f"-:{left}", f"-:{left[:-1]}1"]
    legacy.sweep(str(path))
    assert len(path.read_text().splitlines()) == len(lines) + 2


def test_what_is_in_use_all_the_same_stays(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(_path: str, _text: str) -> None:
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(legacy, "_write", busy)
    (root / "kprobe_events").write_text(f"p:{fingerprints.TRACER}{GONE}/p{GONE}_0 f\n")
    legacy.sweep(str(root / "kprobe_events"))


# ---------------------------------------------------------------------------------------------- semaphores

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
        assert legacy._addresses(str(mapped), PAGE + 6, pid) == [place]
        assert legacy._addresses(str(mapped), 6, pid) == []
        assert legacy._addresses(str(other), PAGE + 6, pid) == []
        del word


# ---------------------------------------------------------------------------------------------- raising


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> dict[int, list[ctypes.c_uint16]]:
    """Semaphores in this process's memory, which others are said to have, too."""
    found: dict[int, list[ctypes.c_uint16]] = {}

    def addresses(path: str, offset: int, pid: int) -> list[int]:
        assert (path, offset) == ("/bin/app", 0x300)
        return [ctypes.addressof(word) for word in found.get(pid, [])]

    add = legacy._add
    monkeypatch.setattr(legacy, "_addresses", addresses)
    monkeypatch.setattr(legacy, "_add", lambda pid, *rest: pid in found and add(os.getpid(), *rest))
    monkeypatch.setattr(procfs, "process_ids", lambda: [7, 8, 9])
    return found


def test_one_process(places: dict[int, list[ctypes.c_uint16]]) -> None:
    first, second, other = ctypes.c_uint16(3), ctypes.c_uint16(0xFFFF), ctypes.c_uint16(5)
    places.update({7: [first, second], 8: [other]})
    opened = Opened()
    legacy.raise_semaphore("/bin/app", 0x300, 7, everywhere=True, opened=opened)
    assert [first.value, second.value, other.value] == [4, 0, 5]
    opened.close()
    assert [first.value, second.value, other.value] == [3, 0xFFFF, 5]


def test_all_processes_that_map_the_file(places: dict[int, list[ctypes.c_uint16]]) -> None:
    words = [ctypes.c_uint16(0) for _ in range(2)]
    places.update({7: [words[0]], 9: [words[1]]})
    opened = Opened()
    legacy.raise_semaphore("/bin/app", 0x300, None, everywhere=True, opened=opened)
    assert [word.value for word in words] == [1, 1]
    # One has ended meanwhile.
    del places[7]
    opened.close()
    assert [word.value for word in words] == [1, 0]


def test_nobody_is_named() -> None:
    with pytest.raises(CannotAttachError, match="the kernel cannot raise it") as raised:
        legacy.raise_semaphore("/bin/app", 0x300, None, everywhere=False, opened=Opened())
    assert raised.value.hints == ("use -p or --usdt-file-activation",)


@pytest.mark.parametrize(("pid", "everywhere"), [(8, False), (None, True)])
def test_nobody_maps_the_file(
    places: dict[int, list[ctypes.c_uint16]], pid: int | None, everywhere: bool
) -> None:
    opened = Opened()
    with pytest.raises(CannotAttachError, match="no process that could be reached has mapped the file"):
        legacy.raise_semaphore("/bin/app", 0x300, pid, everywhere=everywhere, opened=opened)
    assert opened.steps == []


def test_memory_that_cannot_be_written() -> None:
    assert not legacy._add(1 << 22 | 1, 0, 1), "no such process"
    assert not legacy._add(os.getpid(), 0, 1), "no such memory"


def test_a_process_that_gave_up_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ``mem`` could be opened before it ended, and is then read as empty."""
    monkeypatch.setattr(os, "pread", lambda *_: b"")
    assert not legacy._add(os.getpid(), 0, 1)
