"""Debug files from debuginfod servers, and the cache that all clients share.

A server is asked only for what a script names (arguments by name, source lines), and only when ``DEBUGINFOD_URLS`` says
where. An answer must begin within ``DEBUGINFOD_TIMEOUT`` seconds (10 without it).

Source: ``debuginfod(8)`` for the paths of servers, ``debuginfod_find_debuginfo(3)`` for the cache and the environment.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import threading
from typing import IO

from pytrace.base import private_files
from pytrace.runtime.elf import debug_files

_WAIT = 10.0
_PIECE = 1 << 18


def fetch(build_id: str) -> tuple[str | None, list[str]]:
    """Path of the debug file of a build id, fetched from a server; and what went wrong, as sentences.

    A server that does not have the file is nothing wrong.
    """
    problems = []
    for url in os.environ.get("DEBUGINFOD_URLS", "").split():
        if not url.startswith(("http://", "https://")) or not re.fullmatch("[0-9a-f]+", build_id):
            continue
        download = _Download(f"{url.rstrip('/')}/buildid/{build_id}/debuginfo", debug_files.cached(build_id)[0])
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


class _Download:
    """One file on its way, in a thread of its own: looking up a host's name cannot be given a time limit."""

    def __init__(self, url: str, path: str) -> None:
        self._url = url
        self.path = path
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
        fresh = f"{self.path}.{os.getpid()}"
        try:
            home = os.path.expanduser("~")
            if self.path.startswith(f"{home}/") and not os.path.isdir(home):
                # Root could make the home directory of a system user, which shall have none.
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), home)
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            with open(fresh, "xb", opener=private_files.open_private) as file:
                while piece := answer.read(_PIECE):
                    file.write(piece)
                    self._progress.set()
                    if self._given_up:
                        return
            os.replace(fresh, self.path)
            self._complete = True
        finally:
            if not self._complete:
                with contextlib.suppress(OSError):
                    os.unlink(fresh)
