"""Debug files from debuginfod servers, and the cache that all clients share.

A server is asked only for what a script names (arguments by name, source lines), and only when ``DEBUGINFOD_URLS`` says
where. An answer must begin within ``DEBUGINFOD_TIMEOUT`` seconds (10 without it), and is refused beyond
``DEBUGINFOD_MAXSIZE`` bytes (4 GiB without it). It is stored only if it is an ELF file with the wanted build id.

Source: ``debuginfod(8)`` for the paths of servers, ``debuginfod_find_debuginfo(3)`` for the cache and the environment.
"""

from __future__ import annotations

import errno
import os
import re
import threading
from typing import IO, TYPE_CHECKING

from pytrace.base import private_files, private_folders
from pytrace.runtime.elf import debug_files

if TYPE_CHECKING:
    from collections.abc import Iterator

_WAIT = 10.0
_PIECE = 1 << 18
_MOST_BYTES = 4 << 30


def fetch(build_id: str) -> tuple[str | None, list[str]]:
    """Path of the debug file of a build id, fetched from a server; and what went wrong, as sentences.

    A server that does not have the file is nothing wrong.
    """
    problems = []
    for url in os.environ.get("DEBUGINFOD_URLS", "").split():
        if not url.startswith(("http://", "https://")) or not re.fullmatch("[0-9a-f]+", build_id):
            continue
        download = _Download(url.rstrip("/"), build_id)
        if download.run():
            return download.path, []
        if download.problem:
            problems.append(f"debuginfod at {url} gave no debug information: {download.problem}")
    return None, problems


def _seconds() -> float:
    try:
        return float(os.environ.get("DEBUGINFOD_TIMEOUT", "")) or _WAIT
    except ValueError:
        return _WAIT


def _most_bytes() -> int:
    try:
        return int(os.environ.get("DEBUGINFOD_MAXSIZE", "")) or _MOST_BYTES
    except ValueError:
        return _MOST_BYTES


class _Download:
    """One file on its way, in a thread of its own: looking up a host's name cannot be given a time limit."""

    def __init__(self, server: str, build_id: str) -> None:
        self._url = f"{server}/buildid/{build_id}/debuginfo"
        self._build_id = build_id
        self.path = ""
        self.problem = ""
        self._wait = _seconds()
        self._complete = False
        self._given_up = False
        self._progress = threading.Event()

    def run(self) -> bool:
        """Whether the file is there now; waits as long as something arrives."""
        thread = threading.Thread(target=self._work, daemon=True)
        thread.start()
        while thread.is_alive():
            self._progress.clear()
            if not self._progress.wait(self._wait) and thread.is_alive():
                self._given_up = True
                self.problem = f"no answer within {self._wait:g} s (DEBUGINFOD_TIMEOUT sets another limit)"
                return False
        return self._complete

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
        places = list(debug_files.fetched(self._build_id).values())
        with private_folders.first_usable(places, create=True) as folder:
            private_files.remove_abandoned(folder)
            private_files.replace(folder, "debuginfo", self._pieces(answer), self._check)
            self.path = f"{folder.path}/debuginfo"
        self._complete = True

    def _pieces(self, answer: IO[bytes]) -> Iterator[bytes]:
        left = _most_bytes()
        while piece := answer.read(_PIECE):
            left -= len(piece)
            if left < 0:
                raise OSError(errno.EFBIG, f"the file is larger than {_most_bytes()} bytes (DEBUGINFOD_MAXSIZE)")
            yield piece
            self._progress.set()
            if self._given_up:
                raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))

    def _check(self, path: str) -> None:
        if not debug_files.has_build_id(path, self._build_id):
            raise OSError(errno.EINVAL, "the answer is no ELF file with this build id")
