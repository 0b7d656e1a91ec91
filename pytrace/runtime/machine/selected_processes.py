"""Values of the options that select processes: users, cgroups, containers and network namespaces by name.

A container has the cgroups that its manager makes. Docker, podman, containerd and CRI-O name them by its id
(``docker-ID.scope``, ``libpod-ID.scope``, ``cri-containerd-ID.scope``, ``crio-ID.scope``, or ``ID`` alone), and
Kubernetes a pod's by its UID (``pod`` and the UID, with ``_`` in place of ``-`` under systemd). No daemon is asked:
names are read from the state files of Docker and podman.
"""

from __future__ import annotations

import json
import os
import pwd
import re
from typing import TYPE_CHECKING, TypeVar

from pytrace.base import kernel_files
from pytrace.base.cgroups import directories, mounts
from pytrace.core.diagnostics import TraceError, did_you_mean
from pytrace.core.options import COMM_SIZE
from pytrace.runtime.machine.host_names import open_network_namespace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MOST_FILTER_VALUES = 64
"""Maximum number of values of a filter other than ``-p``."""
T = TypeVar("T")

_UID_MAX = 0xFFFFFFFE
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
    if size >= COMM_SIZE:
        short = os.fsencode(name)[: COMM_SIZE - 1].decode(errors="replace")
        raise TraceError(
            f"{option} {name!r} is {size} bytes long: the kernel keeps {COMM_SIZE - 1} of a name",
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
        if number > _UID_MAX:
            raise TraceError(f"--uid {text} is out of range (0 to {_UID_MAX})")
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
          # few runs select containers; its imports take milliseconds

        selected += [_placed(directory) for directory in container_cgroups(identity)]
    return _distinct(selected, "--cgroup")


def _unified_mounts() -> list[str]:
    """Where the hierarchy of version 2 is mounted."""
    return [mount.point for mount in mounts() if mount.unified]


def _cgroup(path: str) -> tuple[int, int]:
    points = _unified_mounts()
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
    for mount in sorted(map(os.path.realpath, _unified_mounts()), key=len, reverse=True):
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
    descriptor = open_network_namespace(name)
    try:
        return os.fstat(descriptor).st_ino
    finally:
        os.close(descriptor)


def _distinct(values: Iterable[T], option: str) -> tuple[T, ...]:
    distinct = tuple(dict.fromkeys(values))
    if len(distinct) > _MOST_FILTER_VALUES:
        raise TraceError(f"{option} takes {_MOST_FILTER_VALUES} values at most, not {len(distinct)}")
    return distinct


# ---------------------------------------------------------------------------------------------- containers

_SHORTEST_ID = 8
"""Hexadecimal digits of an id at least; managers show 12 of 64."""

_DOCKER = "/var/lib/docker/containers"
_PODMAN = "/var/lib/containers/storage"

_POD_UID = r"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}"
_IDENTITY = rf"(?:pod|(?<![0-9a-z]))({_POD_UID}|[0-9a-f]{{8,}})"
"""A pod's UID or a container's id in the name of a cgroup; the d of ``pod`` is no digit of it."""
_ID_PREFIX = r"[0-9a-f][0-9a-f_-]{7,}"


def container_cgroups(wanted: str) -> list[str]:
    """Directories of the cgroups of the container with the id, the beginning of an id, or the name *wanted*.

    Raises:
        TraceError: there is none, there are several, or its cgroup is one of version 1.
    """
    digits = _without_separators(wanted)
    identity = digits if re.fullmatch(_ID_PREFIX, wanted, re.IGNORECASE) and len(digits) >= _SHORTEST_ID else ""
    by_id = _cgroups_by_id(identity, _unified_mounts()) if identity else {}
    if not by_id:
        # Names may look like ids.
        named = container_by_name(wanted)
        if named:
            identity, by_id = named, _cgroups_by_id(named, _unified_mounts())
    if len(by_id) > 1:
        raise TraceError(
            f"{len(by_id)} containers have an id that begins with {wanted!r}", hints=("they are " + ", ".join(by_id),)
        )
    if not by_id:
        raise _no_container(wanted, identity)
    return next(iter(by_id.values()))


def _without_separators(identity: str) -> str:
    """An id without the separators of a UID."""
    return identity.lower().replace("-", "").replace("_", "")


def _cgroups_by_id(identity: str, mounts: list[str]) -> dict[str, list[str]]:
    """The cgroups that are named by an id that begins with *identity*, by the whole id; those in them are left out."""
    by_id: dict[str, list[str]] = {}
    for mount in mounts:
        for path in sorted(directories(mount)):
            name = os.path.basename(path)
            # The process that watches a container of podman or CRI-O is beside it.
            if "conmon" in name:
                continue
            for match in re.findall(_IDENTITY, name):
                whole = _without_separators(match)
                known = by_id.get(whole, [])
                if whole.startswith(identity) and not any(path.startswith(f"{other}/") for other in known):
                    by_id.setdefault(whole, []).append(path)
    return by_id


def container_by_name(name: str, docker: str = _DOCKER, podman: str = _PODMAN) -> str:
    """The id of the container *name*, by the state files of Docker and podman; empty when they have none."""
    for names, identity in (*_of_docker(docker), *_of_podman(podman)):
        if name in names:
            return identity
    return ""


def _of_docker(folder: str) -> Iterator[tuple[list[str], str]]:
    try:
        identities = os.listdir(folder)
    except OSError:
        return
    for identity in identities:
        state = _state(f"{folder}/{identity}/config.v2.json")
        if isinstance(state, dict):
            yield [str(state.get("Name", "")).removeprefix("/")], identity


def _of_podman(folder: str) -> Iterator[tuple[list[str], str]]:
    for driver in ("overlay", "vfs", "btrfs"):
        state = _state(f"{folder}/{driver}-containers/containers.json")
        for item in state if isinstance(state, list) else ():
            if isinstance(item, dict):
                yield [str(name) for name in item.get("names") or ()], str(item.get("id", ""))


def _state(path: str) -> object:
    try:
        with open(path, encoding="utf-8") as file:
            content: object = json.load(file)
    except (OSError, ValueError):
        return None
    return content


def _no_container(wanted: str, identity: str) -> TraceError:
    """Why there is no cgroup: it may be one of version 1, whose processes can be named."""
    pids = container_processes(identity) if identity else []
    if pids:
        some = ",".join(str(pid) for pid in pids[:64])
        return TraceError(
            f"the cgroup of container {wanted!r} is one of version 1, which programs cannot compare",
            hints=(f"-p {some} --follow traces its processes, and what they start",),
        )
    if not identity:
        return TraceError(
            f"there is no container {wanted!r}",
            hints=(
                f"--container takes {_SHORTEST_ID} or more hexadecimal digits of an id, or the UID of a Kubernetes pod",
                "names are those of the state files of Docker and podman on this machine",
            ),
        )
    hints = ("no cgroup has this id in its name: docker ps --no-trunc, podman ps or crictl ps show ids",)
    if not _unified_mounts():
        hints = ("no cgroup version 2 hierarchy is mounted",)
    return TraceError(f"there is no running container {wanted!r}", hints=hints)


def container_processes(identity: str, proc: str = "/proc") -> list[int]:
    """Processes in a cgroup, of any version, that is named by an id that begins with *identity*."""
    pids = []
    for name in os.listdir(proc):
        if not name.isdigit():
            continue
        try:
            with open(f"{proc}/{name}/cgroup", encoding="utf-8", errors="surrogateescape", newline="") as file:
                lines = kernel_files.lines(file.read())
        except OSError:
            continue
        parts = (part for line in lines for part in line.split("/")[1:] if "conmon" not in part)
        identities = (_without_separators(match) for part in parts for match in re.findall(_IDENTITY, part))
        if any(known.startswith(identity) for known in identities):
            pids.append(int(name))
    return sorted(pids)
