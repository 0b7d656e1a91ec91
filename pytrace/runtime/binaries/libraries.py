"""From the target of a uprobe or USDT attach point to files: paths, programs, libraries, globs, ``*``.

Source of the library cache's format: ``sysdeps/generic/dl-cache.h`` of glibc.
"""

from __future__ import annotations

import glob
import os
import struct
from typing import TYPE_CHECKING

from pytrace.runtime.elf.file import attach_path, is_elf
from pytrace.runtime.machine import fingerprints, procfs
from pytrace.runtime.machine.foreign_files import is_regular, look, open_regular

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytrace.runtime.machine.fingerprints import Fact

LIBRARY_CACHE = "/etc/ld.so.cache"
_MOST_CACHE = 16 << 20
"""Bytes that are read of a loader's cache, which may be that of a container. Most have some ten thousand."""
_LONGEST_PATH = 4096
_CACHE_MAGIC = b"glibc-ld.so.cache1.1"
_LIBRARY_DIRECTORIES = ("/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib")
_FLAGS = {"x86_64": 0x0300, "aarch64": 0x0A00, "s390x": 0x0400, "ppc64le": 0x0500, "riscv64": 0x1000}
"""High byte of a cache entry's flags for the libraries of this machine's own word size."""


class Libraries:
    """Finds binaries by the names that attach points use."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def find(self, target: str, pid: int | None, command: str = "") -> list[str]:
        """Paths that a target names, best first and each file once; empty when there is none.

        An empty *target* is the program that *pid* runs, ``*`` everything that *pid* (or any process) has mapped to
        execute, and the program that *command* will run. Paths of a process in another mount namespace go through
        ``/proc/PID/root``.
        """
        prefix = procfs.root_prefix(pid) if pid is not None else ""
        if target == "":
            program = procfs.executable(pid) if pid is not None else ""
            return [program] if program else []
        if target == "*":
            return self._mapped(pid, self.find(command, None)[:1] if command.strip("*") else [])
        if "!/" in target:
            path = _reached(prefix, target)
            return [path] if is_regular(attach_path(path)) else []
        if "*" in target:
            return _distinct(self._glob(target, prefix))
        if "/" in target:
            if pid is not None and target == f"/proc/{pid}/exe":
                target = f"/proc/{procfs.entry(pid)}/exe"
            path = _reached(prefix, target) if target.startswith("/") else target
            return [path] if is_regular(path) else []
        return _distinct([*self._program(target, prefix), *self._library(target, pid, prefix)])

    def dependencies(self, target: str, pid: int | None) -> list[Fact]:
        """Facts that the result of :meth:`find` depends on, beside the files themselves."""
        if target == "*" or "*" in target:
            # Processes and directories change without a trace that is cheap to check.
            return [("never",)]
        if pid is not None:
            return [fingerprints.process_fact(pid)]
        if "/" in target:
            return [fingerprints.file_fact(attach_path(target))]
        return [
            fingerprints.environment_fact("PATH"),
            fingerprints.environment_fact("LD_LIBRARY_PATH"),
            fingerprints.file_fact(LIBRARY_CACHE),
            # What comes first may be there tomorrow.
            *(fingerprints.file_fact(f"{folder}/{target}") for folder in self._path()),
            *(fingerprints.file_fact(folder) for folder in self._library_path()),
        ]

    def _mapped(self, pid: int | None, also: list[str]) -> list[str]:
        pids = [pid] if pid is not None else procfs.process_ids()
        paths = dict.fromkeys([*also, *(path for number in pids for path in procfs.mapped_files(number))])
        # A path through another process is gone with that one; the same file may have a path of its own here.
        lasting_first = sorted(paths, key=lambda path: path.startswith("/proc/"))
        return [path for path in _distinct(lasting_first) if is_elf(path)]

    def _glob(self, target: str, prefix: str) -> list[str]:
        if "/" in target:
            patterns = [prefix + target if target.startswith("/") else target]
        else:
            patterns = [f"{prefix}{folder}/{target}" for folder in self._path()]
            patterns += [f"{prefix}{folder}/{target}" for folder in _LIBRARY_DIRECTORIES]
        # `[` and `?` stand for themselves in attach points.
        escaped = ("*".join(glob.escape(part) for part in pattern.split("*")) for pattern in patterns)
        return [
            path for pattern in escaped for path in sorted(glob.glob(pattern)) if is_regular(path) and is_elf(path)
        ]

    def _path(self) -> list[str]:
        return [folder for folder in self._environment.get("PATH", os.defpath).split(":") if folder]

    def _library_path(self) -> list[str]:
        return [folder for folder in self._environment.get("LD_LIBRARY_PATH", "").split(":") if folder]

    def _program(self, name: str, prefix: str) -> list[str]:
        paths = (_reached(prefix, f"{folder}/{name}") for folder in self._path())
        return [path for path in paths if is_regular(path) and os.access(path, os.X_OK)]

    def _library(self, name: str, pid: int | None, prefix: str) -> list[str]:
        """Libraries called ``name`` or ``name.so…``: those that the process has mapped, then the loader's cache."""
        paths: list[str] = []
        if pid is not None:
            paths += [path for path in procfs.mapped_files(pid) if _is_library(os.path.basename(path), name)]
        for soname, path in library_cache(prefix + LIBRARY_CACHE):
            if _is_library(soname, name):
                paths.append(_reached(prefix, path))
        if not paths:
            for folder in (*self._library_path(), *_LIBRARY_DIRECTORIES):
                paths += sorted(path for path in glob.glob(f"{glob.escape(prefix + folder)}/{glob.escape(name)}*")
                                if _is_library(os.path.basename(path), name))  # fmt: skip
        return [path for path in paths if is_elf(path)]


def _reached(prefix: str, path: str) -> str:
    """A path of a process in another mount namespace without links, which would lead to files of our own."""
    if not prefix:
        return path
    file, separator, member = path.partition("!/")
    root, inside = procfs.resolved(prefix + file)
    return f"{root}{inside}{separator}{member}"


def _is_library(soname: str, name: str) -> bool:
    return soname == name or soname.startswith(f"{name}.so")


def _distinct(paths: Iterable[str]) -> list[str]:
    """Paths without those that lead to a file already named."""
    seen: set[tuple[int, int]] = set()
    distinct = []
    for path in paths:
        try:
            status = look(path)
        except OSError:
            continue
        key = (status.st_dev, status.st_ino)
        if key not in seen:
            seen.add(key)
            distinct.append(path)
    return distinct


def library_cache(path: str = LIBRARY_CACHE) -> list[tuple[str, str]]:
    """``(soname, path)`` of this machine's libraries in the loader's cache; empty without one (musl)."""
    try:
        with open_regular(path) as file:
            data = file.read(_MOST_CACHE)
    except OSError:
        return []
    start = data.find(_CACHE_MAGIC)
    if start < 0:
        return []
    try:
        return _cache_rows(data, start)
    except (struct.error, ValueError):
        # A damaged one, perhaps of a container: the loader ignores it, too.
        return []


def _cache_rows(data: bytes, start: int) -> list[tuple[str, str]]:
    (count,) = struct.unpack_from("=I", data, start + len(_CACHE_MAGIC))
    wanted = _FLAGS.get(os.uname().machine)
    rows = []
    for number in range(count):
        flags, key, value = struct.unpack_from("=iII", data, start + 48 + 24 * number)
        if wanted is None or flags & 0xFF00 == wanted:
            rows.append((_text(data, start + key), _text(data, start + value)))
    return rows


def _text(data: bytes, at: int) -> str:
    # Texts of a hostile one may overlap, and each be nearly all of it.
    return data[at : data.index(b"\0", at, at + _LONGEST_PATH)].decode(errors="surrogateescape")
