"""Who could have written a file, or put another one in its place: what root takes over must not be anybody's.

All components of a path are looked at, and those of the links in it. The file and the directories belong to trusted
users, and nobody else can write to them. In a sticky directory (``/tmp``) others can make entries and not replace
those of somebody else, so there it is the owner of the entry, also of a link, who counts.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Iterator

_MOST_LINKS = 40
"""Maximum number of symbolic links in one path (``MAXSYMLINKS`` of include/linux/namei.h)."""


def distrust(path: str, owners: Collection[int]) -> tuple[str, str] | None:
    """Why a file or directory could be the work of somebody else than root and *owners*, and a hint; None if it is not.

    Raises:
        OSError: it does not exist.
    """
    trusted = {0, *owners}
    shared = False
    for place, status in _components(os.path.join(os.getcwd(), path)):
        if status.st_uid not in trusted:
            return _of_another(path, place, status, shared)
        shared = bool(status.st_mode & stat.S_ISVTX) and stat.S_ISDIR(status.st_mode)
        if not stat.S_ISLNK(status.st_mode) and _others_write(status) and not shared:
            return _writable(path, place, status)
    return None


def _components(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """Each directory and link on the way to a file, then the file itself, with their status."""
    place, waiting, links = "/", path.split("/")[::-1], 0
    yield place, os.lstat(place)
    while waiting:
        name = waiting.pop()
        if name in ("", "."):
            continue
        if name == "..":
            place = os.path.dirname(place)
            continue
        following = os.path.join(place, name)
        status = os.lstat(following)
        yield following, status
        if not stat.S_ISLNK(status.st_mode):
            place = following
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        target = os.readlink(following)
        place = "/" if target.startswith("/") else place
        waiting += target.split("/")[::-1]


def _others_write(status: os.stat_result) -> bool:
    """Whether users other than the owner can write; a group that has nobody else in it is the owner's own."""
    if status.st_mode & stat.S_IWOTH:
        return True
    return bool(status.st_mode & stat.S_IWGRP) and status.st_gid != 0 and not _own_group(status)


def _own_group(status: os.stat_result) -> bool:
    import grp  # few files are writable by their group
    import pwd

    try:
        user, group = pwd.getpwuid(status.st_uid), grp.getgrgid(status.st_gid)
    except KeyError:
        return False
    return user.pw_gid == group.gr_gid and user.pw_name == group.gr_name and set(group.gr_mem) <= {user.pw_name}


def _of_another(path: str, place: str, status: os.stat_result, shared: bool) -> tuple[str, str]:
    hint = f"import it from a script of that user, or use a copy that belongs to root (chown root {path})"
    if stat.S_ISLNK(status.st_mode):
        what = "is a link of" if shared else "belongs to"
        return f"{place} {what} user {status.st_uid}", hint
    if place == os.path.realpath(path):
        return f"it belongs to user {status.st_uid}", hint
    return f"user {status.st_uid} can replace it: {place} belongs to that user", hint


def _writable(path: str, place: str, status: os.stat_result) -> tuple[str, str]:
    everybody = status.st_mode & stat.S_IWOTH
    who, mode = ("everybody", "o-w") if everybody else (f"group {status.st_gid}", "g-w")
    kind = "world-writable" if everybody else "group-writable"
    if place == os.path.realpath(path):
        return f"it is {kind}", f"chmod {mode} {path}"
    return f"{who} can replace it: {place} is {kind}", f"chmod {mode} {place}"
