"""Mounts in a mount namespace of their own: nobody else sees them."""

from __future__ import annotations

import ctypes
import os
import tempfile
from dataclasses import dataclass

from tests.support.workloads.processes import child

_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNS = 0x20000
_MS_REC_PRIVATE = (1 << 18) | (1 << 14)


@dataclass(frozen=True)
class Mounts:
    """A process that mounted and unmounted a tmpfs on *folder*, *times* times, then failed once with ENOENT (2)."""

    pid: int
    folder: str
    times: int


def mounts(times: int = 2) -> Mounts:
    """Mount and unmount; before them the process makes one more call that only makes all mounts private."""
    with tempfile.TemporaryDirectory(prefix="pytrace-mount-") as folder:

        def work() -> int:
            name = folder.encode()
            steps = [_libc.unshare(_CLONE_NEWNS), _libc.mount(b"none", b"/", None, _MS_REC_PRIVATE, None)]
            for _ in range(times):
                steps += [_libc.mount(b"pytrace", name, b"tmpfs", 0, b"size=64k"), _libc.umount2(name, 0)]
            refused = _libc.mount(b"pytrace", name + b"/nowhere", b"tmpfs", 0, None)
            return int(any(steps) or refused != -1)

        ended = child(work)
        assert ended.code == 0, os.strerror(ctypes.get_errno())
        return Mounts(ended.pid, folder, times)
