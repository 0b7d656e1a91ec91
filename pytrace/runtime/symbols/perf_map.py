"""``/tmp/perf-PID.map``: names that just-in-time compilers write for their code (Node, Java, Python's perf support).

Each line is the start and size of a function in hexadecimal, and its name. Later lines replace earlier ones for the
same code. Source: ``tools/perf/Documentation/jit-interface.txt`` of the kernel.
"""

from __future__ import annotations

import os
import re
import stat
from bisect import bisect_right

from pytrace.runtime.host import fingerprints

_LINE = re.compile(rb"(?m)^(?:0x)?([0-9a-fA-F]+) +(?:0x)?([0-9a-fA-F]+) +(.+)$")


class PerfMap:
    """The map file of one process, read again when it has grown and a look-up failed."""

    def __init__(self, pid: int) -> None:
        self._paths = _candidates(pid)
        self._stamp: tuple[int, int] | None = None
        self._rows: list[tuple[int, int, str]] = []
        self._starts: list[int] = []

    def find(self, address: int) -> tuple[str, int] | None:
        """Name of the function at an address, and how far into it the address is."""
        found = self._find(address)
        if found is None and self._read():
            found = self._find(address)
        return found

    def _find(self, address: int) -> tuple[str, int] | None:
        at = bisect_right(self._starts, address) - 1
        if at < 0:
            return None
        start, size, name = self._rows[at]
        return (name, address - start) if address < start + size else None

    def _read(self) -> bool:
        """Read the file when it changed; whether there is anything new."""
        for path in self._paths:
            try:
                with open(path, "rb", opener=_open) as file:
                    status = os.fstat(file.fileno())
                    if not stat.S_ISREG(status.st_mode):
                        continue
                    stamp = (status.st_size, status.st_mtime_ns)
                    if stamp == self._stamp:
                        return False
                    text = file.read()
            except OSError:
                continue
            self._stamp = stamp
            latest = {int(start, 16): (int(size, 16), name) for start, size, name in _LINE.findall(text)}
            self._rows = [(start, latest[start][0], _text(latest[start][1])) for start in sorted(latest)]
            self._starts = [row[0] for row in self._rows]
            return True
        return False


def _open(path: str, flags: int) -> int:
    # Anybody may put something under this name: neither a pipe that nobody writes to nor a link leads us astray.
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)


def _text(name: bytes) -> str:
    return name.strip().decode(errors="surrogateescape")


def _candidates(pid: int) -> list[str]:
    """Where the file may be: a process in a container writes it there, under the number that it has there."""
    inner = pid
    for line in fingerprints.read_text(f"/proc/{pid}/status").splitlines():
        if line.startswith("NSpid:"):
            inner = int(line.split()[-1])
    return list(dict.fromkeys((f"/proc/{pid}/root/tmp/perf-{inner}.map", f"/tmp/perf-{pid}.map")))
