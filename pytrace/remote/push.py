"""What ``--push`` sends to hosts without pytrace: its runtime part, and the packages that it needs there."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.metadata import distribution
from pathlib import Path, PurePath

import msgspec

from pytrace.core.diagnostics import TraceError
from pytrace.remote import messages
from pytrace.remote.messages import Code, Need, Send

PACKAGES = ("msgspec", "pyelftools", "pyroute2", "zstandard")
"""What the run of a compiled script imports; not the compiler."""
_OF_GATEWAYS = ("ClusterShell",)
"""What gateways import: Python only, so it is that of this machine everywhere."""
LEFT_OUT = frozenset({"cli", "codegen", "frontend", "multitools", "stdlib", "tools", "pipeline.py", "__main__.py"})
"""Of the package, what only compiles, or is for people."""
CHUNK = 1 << 18
_LONGEST_DOWNLOAD = 100
"""Seconds, after which no host would wait any longer."""

_PYTHON = re.compile(r"3\.1[1-9]", re.ASCII)
_MACHINES = ("x86_64", "aarch64")
"""Hosts say what they have: these are few enough that an archive is made for each, at once with those that others ask
for, so that no host that lies leaves nothing for others.
"""

ROOT = Path(__file__).resolve().parents[1]


class Archive(msgspec.Struct, frozen=True):
    """A compressed tar file; equal contents have equal digests."""

    data: bytes
    digest: str


class Pusher:
    """Answers hosts that lack pytrace. Archives are made in threads, as other Pythons' packages are downloaded."""

    def __init__(self, *, once: bool, make: Callable[[str, str], Future[Archive]] | None = None) -> None:
        """*make* has the archives of a gateway, which come from its controller."""
        self._once = once
        self._archives: dict[tuple[str, str], Future[Archive]] = {}
        self._threads = ThreadPoolExecutor(len(_MACHINES) * 9)
        self._make = make or self._make_in_thread

    def _make_in_thread(self, python: str, machine: str) -> Future[Archive]:
        return self._threads.submit(archive, python, machine)

    def _archive(self, need: Need) -> Archive | None:
        """The archive for a host; None while it is being made.

        Raises:
            TraceError: there is none for its Python and architecture.
        """
        kind = need.python, need.machine
        if kind not in self._archives:
            if not _PYTHON.fullmatch(need.python) or need.machine not in _MACHINES:
                raise TraceError("nothing can be pushed there: it needs Python 3.11 to 3.19 on x86_64 or aarch64")
            self._archives[kind] = self._make(*kind)
        future = self._archives[kind]
        return future.result() if future.done() else None

    def answer(self, need: Need, send: Send | None) -> bytes:
        """What to say to a host; nothing while its archive is being made.

        Raises:
            TraceError: there is no archive for its Python and architecture.
        """
        made = self._archive(need)
        if made is None:
            return b""
        if send is None:
            return messages.encode(Code(digest=made.digest, size=len(made.data), once=self._once))
        return made.data[send.start : send.start + CHUNK]

    def forwarded(self, need: Need) -> messages.Archive | None:
        """The answer to a gateway that has hosts of this kind; None while the archive is being made."""
        try:
            made = self._archive(need)
        except TraceError as error:
            return messages.Archive(python=need.python, machine=need.machine, error=error.message)
        if made is None:
            return None
        return messages.Archive(python=need.python, machine=need.machine, data=made.data)


def archive(python: str, machine: str) -> Archive:
    """The archive for a version of Python and an architecture.

    Raises:
        TraceError: a package cannot be had for them.
    """
    with tempfile.TemporaryDirectory(prefix="pytrace-push-") as folder:
        target = Path(folder)
        files = dict(_package_files()) | dict(_distribution_files(_OF_GATEWAYS))
        if (python, machine) == (f"{sys.version_info[0]}.{sys.version_info[1]}", platform.machine()):
            files.update(_distribution_files(PACKAGES))
        else:
            _download(python, machine, target)
            for wheel in sorted(target.glob("*.whl")):
                files.update(_wheel_files(wheel))
        data = gzip.compress(_tar(files), 6, mtime=0)
    return Archive(data, hashlib.sha256(data).hexdigest())


def _package_files() -> Iterator[tuple[str, bytes]]:
    """The runtime part of this package."""
    for path in ROOT.rglob("*"):
        parts = path.relative_to(ROOT).parts
        if parts[0] not in LEFT_OUT and "web" not in parts and path.suffix in (".py", ".json"):
            yield str(PurePath("pytrace", *parts)), path.read_bytes()


def _distribution_files(packages: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """The packages as they are installed here."""
    for name in packages:
        for file in distribution(name).files or ():
            if _is_code(str(file)):
                yield str(file), Path(os.fspath(file.locate())).read_bytes()


def _wheel_files(wheel: Path) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(wheel) as opened:
        for name in opened.namelist():
            if _is_code(name):
                yield name, opened.read(name)


def _is_code(name: str) -> bool:
    """Whether a file of a package is code: nothing outside of its folder, no cache, no description."""
    parts = PurePath(name).parts
    return (
        not name.startswith("/") and ".." not in parts and "__pycache__" not in parts
        and not parts[0].endswith((".dist-info", ".data")) and not name.endswith("/")
    )  # fmt: skip


def _download(python: str, machine: str, target: Path) -> None:
    """Download wheels of the installed versions with pip.

    Raises:
        TraceError: there are none.
    """
    wanted = [f"{name}=={distribution(name).version}" for name in PACKAGES]
    platforms = [word for glibc in ("2014", "_2_17", "_2_28") for word in ("--platform", f"manylinux{glibc}_{machine}")]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:",
               "--disable-pip-version-check", "--dest", str(target), "--implementation", "cp",
               "--python-version", python, *platforms, *wanted]  # fmt: skip
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=_LONGEST_DOWNLOAD
        )
    except subprocess.TimeoutExpired:
        why = f"pip took more than {_LONGEST_DOWNLOAD} seconds"
        raise TraceError(f"no packages for Python {python} on {machine}: {why}") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["pip failed"]
        raise TraceError(f"no packages for Python {python} on {machine}: {lines[-1]}")


def _tar(files: dict[str, bytes]) -> bytes:
    """A tar file in which nothing says when and by whom it was made."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as opened:
        for name, data in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o644
            opened.addfile(member, io.BytesIO(data))
    return file.getvalue()


def bootstrap() -> str:
    """The text of the program that is started on hosts."""
    return (ROOT / "remote" / "bootstrap.py").read_text()
