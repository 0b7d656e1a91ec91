"""Memory in known amounts: leaks, page faults, swap, limits, shared segments."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from tests.support.kernel_features import needs_program
from tests.support.tools import cannot
from tests.support.waiting import until
from tests.support.workloads.storage import MEGABYTE, call, load

_numbers = count()
_libc = ctypes.CDLL(None, use_errno=True)
_libc.shmat.restype = ctypes.c_void_p
_libc.shmat.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
_libc.shmdt.argtypes = (ctypes.c_void_p,)
_IPC_RMID = 0
_MADV_PAGEOUT = 21


# ------------------------------------------------------------------------------------------------ leaks and faults


@dataclass(frozen=True)
class Leaking:
    """A process of program ``leaks`` that has allocated what it is going to, and waits."""

    pid: int
    kept: int
    freed: int
    size: int

    @property
    def bytes(self) -> int:
        """Not freed."""
        return self.kept * self.size


@contextmanager
def leaking(programs: Path, kept: int = 10, freed: int = 20, size: int = 1000) -> Iterator[Leaking]:
    """A process that keeps some allocations (made in ``keep``) and has freed others (in ``use``)."""
    words = [str(programs / "leaks"), str(kept), str(freed), str(size)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) == kept * size
        yield Leaking(process.pid, kept, freed, size)


def touched(programs: Path, pages: int) -> int:
    """Run program ``touches``, which makes that many page faults of anonymous memory in ``touch``; its number."""
    with subprocess.Popen([programs / "touches", str(pages)], stdout=subprocess.DEVNULL) as process:
        pass
    assert process.returncode == 0
    return process.pid


# ------------------------------------------------------------------------------------------------ swap


@contextmanager
def swap(size: int = 64 * MEGABYTE) -> Iterator[str]:
    """Swap space on a zram device, or on a file of a loop device; the path of the device."""
    needs_program("mkswap")
    load("zram")
    control = Path("/sys/class/zram-control/hot_add")
    if not control.exists():
        cannot(f"this kernel ({os.uname().release}) has no zram")
    number = control.read_text().strip()
    with ExitStack() as stack:
        stack.callback(Path("/sys/class/zram-control/hot_remove").write_text, number)
        device = f"/dev/zram{number}"
        until(lambda: os.path.exists(device))
        Path(f"/sys/block/zram{number}/disksize").write_text(str(size))
        call("mkswap", device)
        call("swapon", "-p", "32000", device)
        stack.callback(call, "swapoff", device)
        yield device


def swapped_in(pages: int = 64) -> int:
    """Have pages of this process written to swap, then read them back; how many had been there.

    Needs :func:`swap`. The kernel may read several at once, so that there are fewer faults than pages.
    """
    size = pages * mmap.PAGESIZE
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        for at in range(0, size, mmap.PAGESIZE):
            memory[at] = 1 + at // mmap.PAGESIZE % 250
        before = _swapped()
        memory.madvise(_MADV_PAGEOUT)
        out = _swapped() - before
        for at in range(0, size, mmap.PAGESIZE):
            assert memory[at] == 1 + at // mmap.PAGESIZE % 250
    return out


def _swapped() -> int:
    """Pages of this process in swap."""
    match = re.search(r"^VmSwap:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert match is not None
    return int(match[1]) * 1024 // mmap.PAGESIZE


# ------------------------------------------------------------------------------------------------ limits


@contextmanager
def cgroup(controller: str = "memory") -> Iterator[Path]:
    """A new control group of a controller: of its own hierarchy (version 1), or of the unified one (version 2)."""
    name = f"pytrace-{os.getpid()}-{next(_numbers)}"
    old, unified = Path("/sys/fs/cgroup") / controller, Path("/sys/fs/cgroup")
    if (old / "cgroup.procs").exists():
        path = old / name
    elif controller in _words(unified / "cgroup.controllers"):
        (unified / "cgroup.subtree_control").write_text(f"+{controller}")
        path = unified / name
    else:
        cannot(f"this machine has no control groups of {controller}")
    path.mkdir()
    try:
        yield path
    finally:
        until(lambda: not (path / "cgroup.procs").read_text())
        path.rmdir()


def _words(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def limit(group: Path, size: int) -> None:
    """Let the processes of a group have that much memory, and no swap."""
    if (group / "memory.max").exists():
        (group / "memory.max").write_text(str(size))
        extra, text = group / "memory.swap.max", "0"
    else:
        (group / "memory.limit_in_bytes").write_text(str(size))
        extra, text = group / "memory.memsw.limit_in_bytes", str(size)
    if extra.exists():
        extra.write_text(text)


def out_of_memory(programs: Path, group: Path, size: int = 16 * MEGABYTE) -> int:
    """A process that wants four times what its group may have, and is killed for it; its number."""
    limit(group, size)
    pages = 4 * size // mmap.PAGESIZE
    words = ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$0" {pages}', str(programs / "touches")]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        pass
    assert process.returncode == -signal.SIGKILL, f"not killed: {process.returncode}"
    return process.pid


# ------------------------------------------------------------------------------------------------ shared memory


def shared_segment(size: int = 4096) -> int:
    """``shmget``, ``shmat``, ``shmdt`` and ``shmctl`` (removal) of one segment by this process; its number."""
    segment = int(_libc.shmget(0, size, 0o1600))
    assert segment >= 0, os.strerror(ctypes.get_errno())
    address = _libc.shmat(segment, None, 0)
    assert address not in (None, ctypes.c_void_p(-1).value)
    assert _libc.shmdt(address) == 0
    assert _libc.shmctl(segment, _IPC_RMID, None) == 0
    return segment


@contextmanager
def many_names(number: int) -> Iterator[list[str]]:
    """Objects of kernel caches (dentries, inodes): a folder with that many new files, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="pytrace-names-") as folder:
        names = [os.path.join(folder, str(index)) for index in range(number)]
        for name in names:
            os.close(os.open(name, os.O_CREAT | os.O_WRONLY, 0o600))
        yield names
