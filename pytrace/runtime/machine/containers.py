"""Containers by id or name: the cgroups that container managers make for them.

Docker, podman, containerd and CRI-O name a container's cgroup by its id (``docker-ID.scope``, ``libpod-ID.scope``,
``cri-containerd-ID.scope``, ``crio-ID.scope``, or ``ID`` alone), and Kubernetes a pod's by its UID (``pod`` and the
UID, with ``_`` in place of ``-`` under systemd). No daemon is asked: names are read from the state files of Docker and
podman.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

from pytrace.base import kernel_files
from pytrace.base.cgroups import directories, unified_mounts
from pytrace.core.diagnostics import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterator

SHORTEST = 8
"""Hexadecimal digits of an id at least; managers show 12 of 64."""

DOCKER = "/var/lib/docker/containers"
PODMAN = "/var/lib/containers/storage"

_UID = r"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}"
_IDENTITY = re.compile(rf"(?:pod|(?<![0-9a-z]))({_UID}|[0-9a-f]{{8,}})")
"""A pod's UID or a container's id in the name of a cgroup; the d of ``pod`` is no digit of it."""
_PREFIX = re.compile(r"[0-9a-f][0-9a-f_-]{7,}", re.IGNORECASE)


def cgroups(wanted: str) -> list[str]:
    """Directories of the cgroups of the container with the id, the beginning of an id, or the name *wanted*.

    Raises:
        TraceError: there is none, there are several, or its cgroup is one of version 1.
    """
    identity = plain(wanted) if _PREFIX.fullmatch(wanted) and len(plain(wanted)) >= SHORTEST else ""
    by_id = in_hierarchies(identity, unified_mounts()) if identity else {}
    if not by_id:
        # Names may look like ids.
        named = by_name(wanted)
        if named:
            identity, by_id = named, in_hierarchies(named, unified_mounts())
    if len(by_id) > 1:
        raise TraceError(
            f"{len(by_id)} containers have an id that begins with {wanted!r}", hints=("they are " + ", ".join(by_id),)
        )
    if not by_id:
        raise _missing(wanted, identity)
    return next(iter(by_id.values()))


def plain(identity: str) -> str:
    """An id without the separators of a UID."""
    return identity.lower().replace("-", "").replace("_", "")


def in_hierarchies(identity: str, mounts: list[str]) -> dict[str, list[str]]:
    """The cgroups that are named by an id that begins with *identity*, by the whole id; those in them are left out."""
    by_id: dict[str, list[str]] = {}
    for mount in mounts:
        for path in sorted(directories(mount)):
            name = os.path.basename(path)
            # The process that watches a container of podman or CRI-O is beside it.
            if "conmon" in name:
                continue
            for match in _IDENTITY.findall(name):
                whole = plain(match)
                known = by_id.get(whole, [])
                if whole.startswith(identity) and not any(path.startswith(f"{other}/") for other in known):
                    by_id.setdefault(whole, []).append(path)
    return by_id


def by_name(name: str, docker: str = DOCKER, podman: str = PODMAN) -> str:
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
        state = _json(f"{folder}/{identity}/config.v2.json")
        if isinstance(state, dict):
            yield [str(state.get("Name", "")).removeprefix("/")], identity


def _of_podman(folder: str) -> Iterator[tuple[list[str], str]]:
    for driver in ("overlay", "vfs", "btrfs"):
        state = _json(f"{folder}/{driver}-containers/containers.json")
        for item in state if isinstance(state, list) else ():
            if isinstance(item, dict):
                yield [str(name) for name in item.get("names") or ()], str(item.get("id", ""))


def _json(path: str) -> object:
    try:
        with open(path, encoding="utf-8") as file:
            content: object = json.load(file)
    except (OSError, ValueError):
        return None
    return content


def _missing(wanted: str, identity: str) -> TraceError:
    """Why there is no cgroup: it may be one of version 1, whose processes can be named."""
    pids = processes(identity) if identity else []
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
                f"--container takes {SHORTEST} or more hexadecimal digits of an id, or the UID of a Kubernetes pod",
                "names are those of the state files of Docker and podman on this machine",
            ),
        )
    hints = ("no cgroup has this id in its name: docker ps --no-trunc, podman ps or crictl ps show ids",)
    if not unified_mounts():
        hints = ("no cgroup version 2 hierarchy is mounted",)
    return TraceError(f"there is no running container {wanted!r}", hints=hints)


def processes(identity: str, proc: str = "/proc") -> list[int]:
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
        if any(plain(match).startswith(identity) for part in parts for match in _IDENTITY.findall(part)):
            pids.append(int(name))
    return sorted(pids)
