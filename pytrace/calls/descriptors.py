"""Names of the file descriptors of traced processes, kept from call to call.

A descriptor gets its name from the call that makes it, and may be another file by the time that anybody asks ``/proc``.
``/proc`` answers for those that were open before tracing began, and for what no call explained.
"""

from __future__ import annotations

import os

from pytrace.base.control_characters import printable_text

MOST_PROCESSES = 4096
MOST_NAMES = 65536


class Descriptors:
    """Files, sockets and folders of processes by number."""

    def __init__(self) -> None:
        self._files: dict[int, dict[int, str]] = {}
        self._closing: dict[int, set[int]] = {}
        """Descriptors that are closed when the process executes another program."""
        self._folders: dict[int, str] = {}

    def name(self, pid: int, number: int) -> str | None:
        """The name of a descriptor, if it is known."""
        files = self._of(pid)
        known = files.get(number)
        if known is None:
            known = _link(f"/proc/{pid}/fd/{number}")
            if known is not None and len(files) < MOST_NAMES:
                files[number] = known
        return known or None

    def folder(self, pid: int) -> str | None:
        """The current directory of a process."""
        if pid not in self._folders and len(self._folders) < MOST_PROCESSES:
            found = _link(f"/proc/{pid}/cwd")
            if found is not None:
                self._folders[pid] = found
        return self._folders.get(pid)

    def opened(self, pid: int, number: int, name: str, *, closing: bool = False) -> None:
        """A call made a descriptor; *closing*: it is closed when the process executes another program."""
        files = self._of(pid)
        if len(files) < MOST_NAMES:
            files[number] = printable_text(name)
            self.close_on_exec(pid, number, closing=closing)

    def close_on_exec(self, pid: int, number: int, *, closing: bool) -> None:
        """A descriptor is, or is no longer, closed when the process executes another program."""
        numbers = self._closing.setdefault(pid, set())
        if closing:
            numbers.add(number)
        else:
            numbers.discard(number)

    def closed(self, pid: int, number: int) -> None:
        """A call closed a descriptor."""
        self._of(pid).pop(number, None)
        self._closing.get(pid, set()).discard(number)

    def closed_range(self, pid: int, first: int, last: int) -> None:
        """A call closed all descriptors of a range."""
        for number in [number for number in self._of(pid) if first <= number <= last]:
            self.closed(pid, number)

    def moved(self, pid: int, folder: str | None) -> None:
        """A process changed its directory; without a name ``/proc`` is asked."""
        self._folders.pop(pid, None)
        if folder is not None and len(self._folders) < MOST_PROCESSES:
            self._folders[pid] = folder

    def forked(self, parent: int, child: int) -> None:
        """A process has the descriptors of its parent."""
        if child != parent and len(self._files) < MOST_PROCESSES:
            self._files[child] = dict(self._of(parent))
            self._closing[child] = set(self._closing.get(parent, ()))
            folder = self.folder(parent)
            if folder is not None:
                self._folders[child] = folder

    def executed(self, pid: int) -> None:
        """A process runs another program: some descriptors were closed."""
        for number in self._closing.pop(pid, ()):
            self._of(pid).pop(number, None)

    def ended(self, pid: int) -> None:
        """A process has ended."""
        self._files.pop(pid, None)
        self._closing.pop(pid, None)
        self._folders.pop(pid, None)

    def path(self, pid: int, folder: int | None, name: str) -> str:
        """The absolute path of a name that a call was given, by text: symbolic links stay."""
        if name.startswith("/"):
            return os.path.normpath(name)
        base = self.folder(pid) if folder is None else self.name(pid, folder)
        return os.path.normpath(os.path.join(base, name)) if base and base.startswith("/") else name

    def _of(self, pid: int) -> dict[int, str]:
        files = self._files.get(pid)
        if files is None:
            files = {}
            if len(self._files) < MOST_PROCESSES:
                self._files[pid] = files
        return files


def _link(path: str) -> str | None:
    try:
        return printable_text(os.readlink(path))
    except OSError:
        return None
