"""Files for parsers that take a path: made before a parser runs, as parsers are forbidden to write files."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

NAMES = (
    "input", "second", "modules.dep", "modules.symbols", "modules.builtin", "proc/7/cgroup",
    "cache/pytrace/scripts/entry", "cache/pytrace/options/entry", "cache/pytrace/facts/entry",
)  # fmt: skip


class _Scratch:
    """A folder with the files, and their descriptors."""

    def __init__(self) -> None:
        memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
        self.folder = Path(tempfile.mkdtemp(prefix="pytrace-fuzz-", dir=memory))
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
        self.descriptors = {name: self._made(self.folder / name) for name in NAMES}

    @staticmethod
    def _made(path: Path) -> int:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


_SCRATCH = _Scratch()

FOLDER = _SCRATCH.folder


def stored(data: bytes, name: str = "input") -> str:
    """The path of a file with *data*."""
    descriptor = _SCRATCH.descriptors[name]
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, data, 0)
    return str(FOLDER / name)
