"""Separate files with the symbols and DWARF of a stripped binary, on this machine or from debuginfod servers.

A server is asked only for what a script names (functions, arguments by name, source lines) and for the user stacks that
a run prints at its end, and only when ``DEBUGINFOD_URLS`` says where. An answer must begin within
``DEBUGINFOD_TIMEOUT`` seconds (10 without it), and is refused beyond ``DEBUGINFOD_MAXSIZE`` bytes (4 GiB without it).
It is stored only if it is an ELF file with the wanted build id.

Source: ``debuginfod(8)`` for the paths of servers, ``debuginfod_find_debuginfo(3)`` for the cache and the environment.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import re
import stat
import threading
import time
from functools import cache
from typing import IO, TYPE_CHECKING

from pytrace.base import private_files, terminal
from pytrace.core.diagnostics import TraceError
from pytrace.runtime.binaries.elf_file import SHT_NOBITS, ElfFile, is_elf
from pytrace.runtime.machine.procfs import normalized, resolved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


DEFAULT_DIRECTORIES = ("", ".debug", "/usr/lib/debug")


def directories(options: Iterable[str]) -> tuple[str, ...]:
    """Search directories of ``--debuginfo`` values (``DIR[:DIR]``); the built-in ones when there is none."""
    named = [part for option in options for part in option.split(":")]
    return tuple(named) if named else DEFAULT_DIRECTORIES


def find(binary: ElfFile, search: Iterable[str], root: str = "") -> str | None:
    """Path of the debug file of a binary, by build id or debug link; None when there is none.

    A directory is absolute, or relative to the binary's; one that starts with ``+`` also accepts a file by the CRC32 of
    the debug link, where the others insist on an equal build id (if the binary has one). *root* (``/proc/PID/root``) is
    put before absolute directories first, as those of a container are meant before our own.
    """
    caches = fetched(binary.build_id)
    for path, by_checksum in candidates(binary, search, root):
        if path in caches and not _is_private(caches[path]):
            continue
        if is_elf(path) and _belongs(binary, path, by_checksum):
            return path
    return None


def has_dwarf(file: ElfFile) -> bool:
    """True if a file has DWARF with functions and lines, and pyelftools, which reads it, is here."""
    return _has_decoder() and any(
        section.name in (".debug_info", ".zdebug_info") and section.type != SHT_NOBITS for section in file.sections
    )


@cache
def _has_decoder() -> bool:
    """Light installations lack it: they have the names of symbol tables."""
    return importlib.util.find_spec("elftools") is not None


def supplement(binary: ElfFile, search: Iterable[str], root: str = "") -> tuple[str, str | None] | None:
    """Name and path of the file with what ``dwz -m`` found in several debug files; no path when it is not there.

    None for a file that has no such link (``.gnu_debugaltlink``, ``.debug_sup``). The build id must be equal.
    """
    link = binary.supplement_link
    if link is None:
        return None
    name, build_id = link
    folder = os.path.dirname("".join(resolved(binary.path)))
    places = [f"{root}{name}" if os.path.isabs(name) else os.path.join(folder, name)]
    for entry in search:
        directory = entry.removeprefix("+")
        inside = f"{root}{directory}" if os.path.isabs(directory) else os.path.join(folder, directory)
        places += [
            f"{inside}/.build-id/{build_id[:2]}/{build_id[2:]}.debug",
            f"{inside}/.dwz/{os.path.basename(name)}",
            f"{inside}/{os.path.basename(name)}",
        ]
    return name, next((path for path in places if has_build_id(path, build_id)), None)


def candidates(binary: ElfFile, search: Iterable[str], root: str = "") -> Iterator[tuple[str, bool]]:
    """Where the debug file of a binary may be.

    Args:
        binary: the stripped file.
        search: directories as for :func:`find`.
        root: as for :func:`find`.

    Returns:
        Paths in the order in which they are tried, and for each whether an equal checksum is enough there.
    """
    reached, inside = resolved(binary.path)
    mirrored, name = os.path.split(inside)
    folder = reached + mirrored
    build_id, link = binary.build_id, binary.debug_link
    # What a link names is there under that name; without one by the custom of objcopy's users.
    names = list(dict.fromkeys([*((link[0],) if link is not None else ()), f"{name}.debug"]))
    by_id = f".build-id/{build_id[:2]}/{build_id[2:]}.debug"
    for entry in search:
        by_checksum = entry.startswith("+")
        directory = entry.removeprefix("+")
        absolute = os.path.isabs(directory)
        for base in dict.fromkeys((f"{root}{directory}", directory)) if absolute else (f"{folder}/{directory}",):
            places = [f"{base}{mirrored}", base] if absolute else [base]
            by_build_id = [by_id] if build_id else []
            for path in (*(f"{base}/{one}" for one in by_build_id), *(f"{at}/{one}" for at in places for one in names)):
                yield normalized(path), by_checksum
    for path in fetched(build_id):
        yield path, False


def fetched(build_id: str) -> dict[str, tuple[str, ...]]:
    """Where clients of debuginfod may have the debug file of a build id, as paths, and the directory of each as
    :func:`pytrace.base.private_files.first_usable` takes it. A new file is put into the first usable one.

    Source: ``debuginfod_find_debuginfo(3)``.
    """
    if not build_id:
        return {}
    named = os.environ.get("DEBUGINFOD_CACHE_PATH", "")
    if named.startswith("/"):
        places: list[tuple[str, ...]] = [(named.rstrip("/"),)]
    else:
        home = private_files.home_directory()
        places = [(base, "debuginfod_client") for base in private_files.user_bases()]
        # The place before elfutils 0.183, which is still used where it exists.
        places += [(f"{home}/.debuginfod_client_cache",)] if home else []
    if os.geteuid() == 0:
        places.append((private_files.SYSTEM_BASE, "pytrace", "debuginfo"))
    return {"/".join((*place, build_id, "debuginfo")): (*place, build_id) for place in places}


def of_build_id(build_id: str, search: Iterable[str]) -> Iterator[str]:
    """Debug files that a build id may have: in absolute directories to search, and in caches of debuginfod."""
    for folder in search:
        if os.path.isabs(folder):
            yield os.path.join(folder, ".build-id", build_id[:2], f"{build_id[2:]}.debug")
    yield from (path for path, place in fetched(build_id).items() if _is_private(place))


def _is_private(place: tuple[str, ...]) -> bool:
    """True if nobody but root and the user can have put the debug file into a directory of a cache.

    The same then holds for all that leads there, so that its path names the same file when it is opened.
    """
    try:
        with private_files.first_usable([place]) as folder:
            status = os.stat("debuginfo", dir_fd=folder.descriptor, follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and private_files.private(status)


def has_build_id(path: str, build_id: str) -> bool:
    """True if a file is an ELF file with a build id; any ELF file will do for an empty one."""
    try:
        with ElfFile.open(path) as file:
            return not build_id or file.build_id == build_id
    except (OSError, TraceError):
        return False


def _belongs(binary: ElfFile, path: str, by_checksum: bool) -> bool:
    if resolved(path) == resolved(binary.path):
        return False
    try:
        with ElfFile.open(path) as file:
            if binary.build_id and file.build_id == binary.build_id:
                return True
            # A link without build ids on either side has nothing but its checksum.
            if by_checksum or not binary.build_id:
                return binary.debug_link is not None and file.checksum() == binary.debug_link[1]
    except (OSError, TraceError):
        return False
    return False


# ---------------------------------------------------------------------------------------------- debuginfod


_WAIT = 10
_LOOK_EVERY = 0.1
"""Seconds between two looks at whether the user still waits."""
_PIECE = 1 << 18
_MOST_BYTES = 4 << 30


def fetch(build_id: str, stop: Callable[[], bool] = bool) -> tuple[str | None, list[str]]:
    """Path of the debug file of a build id, fetched from a server; and what went wrong, as sentences.

    A server that does not have the file is nothing wrong. It is given up when *stop* returns True.
    """
    problems = []
    for url in os.environ.get("DEBUGINFOD_URLS", "").split():
        if not url.startswith(("http://", "https://")) or not re.fullmatch("[0-9a-f]+", build_id):
            continue
        download = _Download(url.rstrip("/"), build_id, stop)
        if download.run():
            return download.path, []
        if download.problem:
            problems.append(f"debuginfod at {url} gave no debug information: {download.problem}")
    return None, problems


def _setting(variable: str, default: int) -> float:
    try:
        return float(os.environ.get(variable, "")) or default
    except ValueError:
        return default


class _Download:
    """One file on its way, in a thread of its own: looking up a host's name cannot be given a time limit."""

    def __init__(self, server: str, build_id: str, stop: Callable[[], bool]) -> None:
        self._url = f"{server}/buildid/{build_id}/debuginfo"
        self._build_id = build_id
        self.path = ""
        self.problem = ""
        self._stop = stop
        self._wait = _setting("DEBUGINFOD_TIMEOUT", _WAIT)
        self._complete = False
        self._given_up = False
        self._progress = threading.Event()

    def run(self) -> bool:
        """True if the file is there now; waits as long as something arrives."""
        server = self._url.split("/")[2]
        with terminal.step(f"downloading debug information from {server}", unit="MB") as self._step:
            return self._watch()

    def _watch(self) -> bool:
        thread = threading.Thread(target=self._work, daemon=True)
        thread.start()
        deadline = time.monotonic() + self._wait
        while thread.is_alive():
            if self._stop():
                return self._give_up("the user did not wait for it")
            if self._progress.wait(_LOOK_EVERY):
                self._progress.clear()
                deadline = time.monotonic() + self._wait
            elif time.monotonic() > deadline and thread.is_alive():
                return self._give_up(f"no answer within {self._wait:g} s (DEBUGINFOD_TIMEOUT sets another limit)")
        return self._complete

    def _give_up(self, problem: str) -> bool:
        self._given_up, self.problem = True, problem
        return False

    def _work(self) -> None:
        from http.client import HTTPException
        from urllib.error import HTTPError, URLError
        from urllib.request import Request, urlopen

        try:
            with urlopen(Request(self._url, headers={"User-Agent": "pytrace"}), timeout=self._wait) as answer:
                self._store(answer)
        except HTTPError as error:
            self.problem = "" if error.code == 404 else f"status {error.code}"
        except URLError as error:
            self.problem = str(error.reason)
        except (OSError, HTTPException) as error:
            self.problem = str(error) or type(error).__name__
        finally:
            self._progress.set()

    def _store(self, answer: IO[bytes]) -> None:
        self._step.total = int(getattr(answer, "length", None) or 0)
        places = list(fetched(self._build_id).values())
        with private_files.first_usable(places, create=True) as folder:
            folder.remove_abandoned()
            folder.replace("debuginfo", self._pieces(answer), self._check)
            self.path = f"{folder.path}/debuginfo"
        self._complete = True

    def _pieces(self, answer: IO[bytes]) -> Iterator[bytes]:
        left = most = int(_setting("DEBUGINFOD_MAXSIZE", _MOST_BYTES))
        while piece := answer.read(_PIECE):
            left -= len(piece)
            if left < 0:
                raise OSError(errno.EFBIG, f"the file is larger than {most} bytes (DEBUGINFOD_MAXSIZE)")
            yield piece
            self._step.done += len(piece)
            self._progress.set()
            if self._given_up:
                raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))

    def _check(self, path: str) -> None:
        if not has_build_id(path, self._build_id):
            raise OSError(errno.EINVAL, "the answer is no ELF file with this build id")
