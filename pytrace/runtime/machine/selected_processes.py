"""Values of the options that select processes: users, cgroups and network namespaces by name."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING, TypeVar

from pytrace.base.cgroups import mounts, unified_mounts
from pytrace.core.diagnostics import TraceError, did_you_mean
from pytrace.core.options.process_filters import COMM, MOST

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")

UID_MAX = 0xFFFFFFFE
"""The highest user id: one more means none."""


def comms(names: Iterable[str], option: str = "--comm") -> tuple[str, ...]:
    """Names of threads, checked.

    Raises:
        TraceError: a name is empty or longer than the kernel keeps.
    """
    return _distinct((_comm(name, option) for name in names), option)


def _comm(name: str, option: str) -> str:
    size = len(os.fsencode(name))
    if not name:
        raise TraceError(f"{option} needs the name of a command, not an empty text")
    if size >= COMM:
        short = os.fsencode(name)[: COMM - 1].decode(errors="replace")
        raise TraceError(
            f"{option} {name!r} is {size} bytes long: the kernel keeps {COMM - 1} of a name",
            hints=(f"the name that such a program has is {short!r}",),
        )
    return name


def uids(texts: Iterable[str]) -> tuple[int, ...]:
    """Numbers of users, given by name or number.

    Raises:
        TraceError: there is no such user.
    """
    return _distinct((_uid(text) for text in texts), "--uid")


def _uid(text: str) -> int:
    if text.isascii() and text.isdigit():
        number = int(text)
        if number > UID_MAX:
            raise TraceError(f"--uid {text} is out of range (0 to {UID_MAX})")
        return number
    try:
        return pwd.getpwnam(text).pw_uid
    except (KeyError, ValueError):
        near = did_you_mean(text, [entry.pw_name for entry in pwd.getpwall()])
        raise TraceError(f"there is no user {text!r}", hints=(*near, "--uid takes a name or a number")) from None


def cgroups(paths: Iterable[str], identities: Iterable[str] = ()) -> tuple[tuple[int, int], ...]:
    """Depths and ids of the cgroups at *paths*, and of the containers *identities*.

    Raises:
        TraceError: there is no such cgroup or container, or it is not in the unified hierarchy.
    """
    selected = [_cgroup(path) for path in paths]
    for identity in identities:
        from pytrace.runtime.machine import containers  # few runs select containers; its imports take milliseconds

        selected += [_placed(directory) for directory in containers.cgroups(identity)]
    return _distinct(selected, "--cgroup")


def _cgroup(path: str) -> tuple[int, int]:
    points = unified_mounts()
    if not points:
        raise TraceError(
            "--cgroup needs a mounted cgroup version 2 hierarchy, and there is none",
            hints=("mount -t cgroup2 none DIRECTORY mounts it; cgroups of version 1 cannot be compared",),
        )
    inside = path.startswith(tuple(f"{mount.rstrip('/')}/" for mount in points)) or path in points
    places = [path] if inside else [os.path.join(mount, path.strip("/")) for mount in points]
    for place in places:
        if os.path.isdir(place):
            return _placed(place)
    if not inside and os.path.isdir(path):
        raise TraceError(
            f"{path!r} is not a cgroup of version 2", hints=("version 2 is mounted at " + ", ".join(points),)
        )
    raise TraceError(f"there is no cgroup {path!r}", hints=_near(places[0], path))


def _placed(directory: str) -> tuple[int, int]:
    """Depth below the root of the hierarchy and id (inode) of the cgroup *directory*."""
    directory = os.path.realpath(directory)
    for mount in sorted(map(os.path.realpath, unified_mounts()), key=len, reverse=True):
        if directory == mount or directory.startswith(f"{mount.rstrip('/')}/"):
            depth = len([part for part in directory[len(mount) :].split("/") if part])
            return depth + _depth_of_mount(mount), os.stat(directory).st_ino
    raise TraceError(f"{directory!r} is not a cgroup of version 2")


def _depth_of_mount(mount: str) -> int:
    """How deep the root of a mount is in the hierarchy: in a container it may be a cgroup below the root."""
    for known in mounts():
        if known.unified and known.point == mount:
            # A cgroup namespace shows its own root as / (cgroup_namespaces(7)), whose depth is unknown.
            return len([part for part in known.root.split("/") if part and part != ".."])
    return 0


def _near(place: str, path: str) -> tuple[str, ...]:
    """Names like the first part of *place* that does not exist."""
    folder, name = os.path.split(place.rstrip("/"))
    while folder and not os.path.isdir(folder):
        folder, name = os.path.split(folder)
    try:
        names = [entry.name for entry in os.scandir(folder) if entry.is_dir()]
    except OSError:
        names = []
    near = did_you_mean(name, names)
    return (*near, f"{path!r} is looked for in {folder}", "systemd-cgls and cgroup_path() show cgroups")


def namespace(name: str) -> int:
    """Inode number of the network namespace *name* (a name of ``ip netns``, or a path).

    Raises:
        TraceError: there is no such namespace.
    """
    from pytrace.runtime.machine.network import open_namespace

    descriptor = open_namespace(name)
    try:
        return os.fstat(descriptor).st_ino
    finally:
        os.close(descriptor)


def _distinct(values: Iterable[T], option: str) -> tuple[T, ...]:
    distinct = tuple(dict.fromkeys(values))
    if len(distinct) > MOST:
        raise TraceError(f"{option} takes {MOST} values at most, not {len(distinct)}")
    return distinct
