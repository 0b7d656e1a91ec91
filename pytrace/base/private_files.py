"""Directories of trusted files: each component of their path is opened and checked separately.

Cached data is trusted (compiled programs run in the kernel), and written with the privileges of the process. Under
``sudo -E`` the environment may name a directory of another user, who can replace anything below it by a symbolic link
at any moment. So a path is never passed to the kernel as a whole. Its components are opened one by one, relative to
the descriptor of the previous one (``O_NOFOLLOW``), and checked on the open descriptor:

- the parents of a base (``/``, ``/home`` …) belong to root or the effective user, and nobody else can write to them,
  unless they are sticky (``/tmp``); a link there is followed if it belongs to root or the effective user;
- the base and the directories below it belong to the effective user, are not links, and nobody else can write to them.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import pwd
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

import msgspec

from pytrace.base.interruption import held

SYSTEM_BASE = "/var/cache"
"""Root's cache if the environment names a directory that does not belong to root."""

NOTES: dict[str, None] = {}
"""Messages for ``-v`` about files and directories that were not used or were removed, in order."""

_MOST_LINKS = 40
"""Maximum number of symbolic links in one path (``MAXSYMLINKS`` of include/linux/namei.h)."""

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_COMPONENT = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class UnusableError(OSError):
    """A directory whose contents cannot be trusted, or whose parent does not exist; the message says why."""


class Folder(msgspec.Struct, frozen=True):
    """An open private directory. *path* is for messages; files are accessed through *descriptor* (``dir_fd``)."""

    descriptor: int
    path: str

    def __enter__(self) -> Self:
        return self

    def __exit__(self, type_: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        os.close(self.descriptor)

    def open(self, name: str, *, create: bool = False) -> Folder:
        """Open a private directory in this one.

        Raises:
            OSError: it does not exist or cannot be created; UnusableError: other users could modify its contents.
        """
        if create:
            _make(name, self.descriptor)
        path = f"{self.path}/{name}"
        try:
            descriptor = os.open(name, _FOLDER, dir_fd=self.descriptor)
        except NotADirectoryError:  # also a link, with O_DIRECTORY
            raise UnusableError(f"{path} is a link or no directory") from None
        return _checked(Folder(descriptor, path))

    def replace(self, name: str, parts: Iterable[bytes], check: Callable[[str], object] = len) -> None:
        """Create or replace a file atomically.

        *check* is called with the path of the new file before it gets its name, and raises an error for a wrong one.

        Raises:
            OSError: it cannot be written.
        """
        fresh = temporary_name()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with held():
            try:
                with open(os.open(fresh, flags, 0o600, dir_fd=self.descriptor), "wb") as file:
                    file.writelines(parts)
                check(f"{self.path}/{fresh}")
                os.replace(fresh, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(fresh, dir_fd=self.descriptor)
                raise

    def discard(self, name: str, reason: str) -> None:
        """Remove an entry, whatever its type, and report that with ``-v``."""
        try:
            self._remove(name)
        except FileNotFoundError:
            return
        except OSError as error:
            note(f"cached file {self.path}/{name} is not used: {reason} (it cannot be removed: {error.strerror})")
            return
        note(f"cached file {self.path}/{name} was removed: {reason}")

    def _remove(self, name: str) -> None:
        try:
            os.unlink(name, dir_fd=self.descriptor)
        except IsADirectoryError:
            import shutil

            # Does not follow links on its way down, as the platform has directory descriptors.
            shutil.rmtree(name, dir_fd=self.descriptor)

    def remove_abandoned(self) -> None:
        """Remove old temporary files, whose writers were killed."""
        before = time.time() - _ABANDONED
        with os.scandir(self.descriptor) as entries:
            temporary = [entry for entry in entries if entry.name.startswith(_TEMPORARY)]
        for entry in temporary:
            with contextlib.suppress(OSError):
                if entry.stat(follow_symlinks=False).st_mtime < before:
                    self._remove(entry.name)


def note(text: str) -> None:
    """Add a message for ``-v``, unless it has been added already."""
    NOTES[text] = None


# ---------------------------------------------------------------------------------------------- the cache


def cache_folder(*below: str, create: bool = False) -> Folder:
    """Open a directory below ``pytrace`` in the user's cache.

    The base is ``$XDG_CACHE_HOME``, else ``$HOME/.cache``. If that does not belong to root, root uses
    :data:`SYSTEM_BASE`.

    Raises:
        OSError: there is no trusted directory, and with *create* none can be created.
    """
    return first_usable([(base, "pytrace", *below) for base in cache_bases()], create=create)


def first_usable(places: Sequence[tuple[str, ...]], *, create: bool = False) -> Folder:
    """Open the first trusted directory of *places*, each of which consists of a base and the components below it.

    Raises:
        UnusableError: no directory can be trusted.
        OSError: none exists, and with *create* none can be created.
    """
    refused: OSError = FileNotFoundError(errno.ENOENT, "no cache directory is named")
    for base, *below in places:
        try:
            return open_below(base, *below, create=create)
        except UnusableError as error:
            note(f"cache directory {base} is not used: {error}")
            refused = error
    raise refused


def cache_bases() -> list[str]:
    """Base directories of caches, in order of preference."""
    return [*user_bases(), SYSTEM_BASE] if os.geteuid() == 0 else user_bases()


def user_bases() -> list[str]:
    """The base directory of caches that the environment names, if any."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    # Relative paths are to be ignored (XDG Base Directory Specification).
    if named.startswith("/"):
        return [named]
    home = home_directory()
    return [f"{home}/.cache"] if home else []


def home_directory() -> str:
    """The home directory by the environment, or else by the user database; empty if there is none."""
    home = os.environ.get("HOME") or ""
    if not home:
        try:
            home = pwd.getpwuid(os.getuid()).pw_dir
        except KeyError:
            return ""
    # Daemons have / as their home.
    return home.rstrip("/") if home.startswith("/") else ""


# ---------------------------------------------------------------------------------------------- opening


def open_below(base: str, *below: str, create: bool = False) -> Folder:
    """Open the private directory *below* an absolute *base*, which is private itself; its parents are not created.

    Raises:
        UnusableError: other users could modify its contents, or the parent of *base* does not exist.
        OSError: it does not exist, and with *create* cannot be created.
    """
    parent, name = os.path.split(base.rstrip("/"))
    if name in ("", ".", ".."):
        raise UnusableError(f"{base} is no name of a directory")
    try:
        folder = Folder(_open_parent(parent), parent.rstrip("/"))
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise UnusableError(f"{parent}: {os.strerror(error.errno or 0)}") from None
    for part in (name, *below):
        with folder:
            folder = folder.open(part, create=create)
    return folder


def _open_parent(path: str) -> int:
    """Descriptor of the directory at an absolute path that only root and the user can redirect."""
    waiting = path.split("/")[::-1]
    links = 0
    with ExitStack() as opened:
        current, place = _component("/", None, opened), "/"
        root = current
        _check_parent(os.fstat(root), "/")
        while waiting:
            name = waiting.pop()
            if name in ("", "."):
                continue
            # The path has no links in it, so that .. is its parent.
            next_place = os.path.normpath(os.path.join(place, name))
            descriptor = _component(name, current, opened)
            status = os.fstat(descriptor)
            if stat.S_ISLNK(status.st_mode):
                links += 1
                target = _target(descriptor, status, next_place, links)
                current, place = (root, "/") if target.startswith("/") else (current, place)
                waiting += target.split("/")[::-1]
            else:
                _check_parent(status, next_place)
                current, place = descriptor, next_place
        return os.dup(current)


def _component(name: str, folder: int | None, opened: ExitStack) -> int:
    descriptor = os.open(name, _COMPONENT, dir_fd=folder)
    opened.callback(os.close, descriptor)
    return descriptor


def _target(link: int, status: os.stat_result, place: str, links: int) -> str:
    """Target of a symbolic link among the parents of a base."""
    if status.st_uid not in (0, os.geteuid()):
        raise UnusableError(f"{place} is a link of user {status.st_uid}")
    if links > _MOST_LINKS:
        raise UnusableError(f"{place}: {os.strerror(errno.ELOOP)}")
    return os.readlink("", dir_fd=link)


def _check_parent(status: os.stat_result, place: str) -> None:
    if not stat.S_ISDIR(status.st_mode):
        raise UnusableError(f"{place} is no directory")
    if status.st_uid not in (0, os.geteuid()):
        raise UnusableError(f"{place} belongs to user {status.st_uid}")
    # In a sticky directory only the owner of an entry can replace it.
    if status.st_mode & _OTHERS_WRITE and not status.st_mode & stat.S_ISVTX:
        raise UnusableError(f"other users can write to {place} (mode {stat.S_IMODE(status.st_mode):o})")


def private(status: os.stat_result) -> bool:
    """Whether a file or directory belongs to the user, and nobody else can write to it."""
    return status.st_uid == os.geteuid() and not status.st_mode & _OTHERS_WRITE


def _checked(folder: Folder) -> Folder:
    status = os.fstat(folder.descriptor)
    if private(status):
        return folder
    os.close(folder.descriptor)
    if status.st_uid != os.geteuid():
        raise UnusableError(f"{folder.path} belongs to user {status.st_uid}")
    raise UnusableError(f"other users can write to {folder.path} (mode {stat.S_IMODE(status.st_mode):o})")


def _make(name: str, folder: int) -> None:
    try:
        os.mkdir(name, 0o700, dir_fd=folder)
    except FileExistsError:
        return


# -------------------------------------------------------------------------------------------------------- private files

# Files that are cached between runs: compiled programs, indexes, tables.
#
# There is a directory for each kind of file (`pytrace.base.private_files.cache_folder`). A file contains a digest
# of its content and name; one that is damaged, or that another user could have written, is removed and created again.
# Files are replaced atomically. They are not synced to disk: after a power failure, the digest detects lost content.


_MAGIC = b"PTCACHE1"
_DIGEST = 32

_TEMPORARY = ".new-"
_ABANDONED = 3600
"""Age in seconds at which a temporary file is removed: its writer was killed."""

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LIMITS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors of this process or machine, not of a file."""


def digest(*pieces: bytes | memoryview, size: int = 12) -> str:
    """Hexadecimal BLAKE2b digest of *pieces* one after the other, 2 * *size* characters long."""
    state = hashlib.blake2b(digest_size=size)
    for piece in pieces:
        state.update(piece)
    return state.hexdigest()


def directory(kind: str) -> str:
    """The path of the directory of a kind of files, for messages and tests."""
    try:
        with cache_folder(kind) as folder:
            return folder.path
    except OSError:
        return f"{next(iter(cache_bases()), '')}/pytrace/{kind}"


def read(kind: str, name: str) -> bytes | None:
    """Contents that :func:`write` stored; None if there is no file that is intact and trusted."""
    try:
        with cache_folder(kind) as folder:
            return _read(folder, kind, name)
    except OSError:
        return None


def _read(folder: Folder, kind: str, name: str) -> bytes | None:
    try:
        with open(os.open(name, _FLAGS, dir_fd=folder.descriptor), "rb") as file:
            status = os.fstat(file.fileno())
            trusted = private(status) and stat.S_ISREG(status.st_mode)
            data = file.read() if trusted else b""
    except FileNotFoundError:
        return None
    except OSError as error:
        # A link (ELOOP), a directory, a socket (ENXIO), another user's (EACCES), a bad sector (EIO).
        if error.errno not in _LIMITS:
            folder.discard(name, error.strerror or str(error))
        return None
    head, body = data[: len(_MAGIC) + _DIGEST], data[len(_MAGIC) + _DIGEST :]
    if head == _head(kind, name, body):
        return body
    folder.discard(name, "it is damaged" if trusted else "it is not a regular file of this user alone")
    return None


def _head(kind: str, name: str, body: bytes) -> bytes:
    hasher = hashlib.blake2b(f"{kind}/{name}\0".encode(errors="surrogateescape"), digest_size=_DIGEST)
    hasher.update(body)
    return _MAGIC + hasher.digest()


def write(kind: str, name: str, *parts: bytes) -> bool:
    """Store bytes for later runs, atomically. Returns False if that is not possible, which only costs time."""
    try:
        with cache_folder(kind, create=True) as folder:
            body = b"".join(parts)
            folder.replace(name, (_head(kind, name, body), body))
            folder.remove_abandoned()
    except OSError:
        return False
    return True


def temporary_name() -> str:
    """A name for a new entry, which :meth:`Folder.remove_abandoned` removes if its writer was killed."""
    return f"{_TEMPORARY}{os.urandom(8).hex()}"


def trim(kind: str, most: int, prefix: str = "") -> None:
    """Remove the oldest files of a kind whose names begin with *prefix*, except for the newest *most*."""
    with contextlib.suppress(OSError), cache_folder(kind) as folder:
        with os.scandir(folder.descriptor) as entries:
            matching = [entry for entry in entries if entry.name.startswith(prefix) and entry.name[0] != "."]
        if len(matching) > most:
            matching.sort(key=lambda entry: entry.stat(follow_symlinks=False).st_mtime_ns)
            for entry in matching[: len(matching) - most]:
                with contextlib.suppress(FileNotFoundError):  # another process may remove it at the same time
                    os.unlink(entry.name, dir_fd=folder.descriptor)
