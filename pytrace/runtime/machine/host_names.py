"""Names that this machine has for numbers in output: of network interfaces, network namespaces and cgroups.

Interfaces are asked for by netlink through pyroute2, which this module alone imports, and only when it is needed: that
takes a tenth of a second. Namespaces have the names of iproute2: files in ``/run/netns`` on which namespaces are
mounted (``ip-netns(8)``, ``namespaces(7)``).
"""

from __future__ import annotations

import fcntl
import fnmatch
import os
import time
from typing import TYPE_CHECKING, Any

from pytrace.base import cgroups
from pytrace.core.diagnostics import TraceError, similar
from pytrace.runtime.machine import fingerprints

if TYPE_CHECKING:
    from collections.abc import Callable


class HostNames:
    """Looks names up (:class:`pytrace.render.names.HostNames`).

    *namespace* is an open network namespace, that of the interfaces; without one they are those of this process.
    """

    def __init__(self, namespace: int | None = None) -> None:
        self._interfaces = Interfaces(namespace)
        self._namespaces = NetworkNamespaces()
        self._cgroups = CgroupPaths()

    def interface(self, index: int) -> str | None:
        """The name of a network interface; None where there is none."""
        return self._interfaces.name(index)

    def network_namespace(self, inode: int) -> str | None:
        """The name of a network namespace; None where it has none."""
        return self._namespaces.name(inode)

    def cgroup(self, identity: int, pattern: str) -> str:
        """``hierarchy:path`` of a cgroup id, in the hierarchies that match *pattern*."""
        return self._cgroups.paths(identity, pattern)


# ---------------------------------------------------------------------------------------------- network

_NAMESPACES = "/run/netns"
_NS_GET_NSTYPE = 0xB703
"""``include/uapi/linux/nsfs.h``."""
CLONE_NEWNET = 0x40000000
"""The type of network namespaces (``clone(2)``)."""
AGAIN = 1.0
"""Seconds after which a number without a name is looked up again."""


class Interfaces:
    """Names of the interfaces of one network namespace, by index.

    A name once seen is kept: what was traced of an interface may be printed when that is gone.

    Args:
        namespace: descriptor of the namespace, which stays open meanwhile; None for that of this process.
        clock: seconds that only grow.
    """

    def __init__(self, namespace: int | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._namespace = namespace
        self._clock = clock
        self._known: dict[int, str] = {}
        self._due = float("-inf")

    def name(self, index: int) -> str | None:
        """The name of an interface; None when there is none with this index, or netlink cannot be used."""
        if index not in self._known and self._clock() >= self._due:
            self._known |= self._read()
            self._due = self._clock() + AGAIN
        return self._known.get(index)

    def number(self, name: str) -> int | None:
        """The index of the interface of that name; None when there is none."""
        return next((index for index, known in self._read().items() if known == name), None)

    def _read(self) -> dict[int, str]:
        try:
            from pyroute2.netlink.exceptions import NetlinkError
        except ImportError:  # a light installation shows numbers
            return {}

        # The socket is made in a child process of pyroute2, which finds the namespace by this path.
        path = None if self._namespace is None else f"/proc/{os.getpid()}/fd/{self._namespace}"
        try:
            with _route(path) as route:
                return {int(link["index"]): str(link.get_attr("IFLA_IFNAME")) for link in route.get_links()}
        except (OSError, NetlinkError):
            return {}


def _route(path: str | None) -> Any:
    """A netlink socket of the namespace of that file, or of this process's."""
    from pyroute2 import IPRoute, NetNS

    if path is None:
        return IPRoute()
    try:
        return IPRoute(netns=path)
    except TypeError:  # before pyroute2 0.9
        return NetNS(path, flags=0)


class NetworkNamespaces:
    """Names of network namespaces, by inode number."""

    def __init__(self, directory: str = _NAMESPACES, clock: Callable[[], float] = time.monotonic) -> None:
        self._directory = directory
        self._clock = clock
        self._known: dict[int, str] = {}
        self._changed = 0
        self._due = float("-inf")

    def name(self, inode: int) -> str | None:
        """The name of a namespace; None when it has none."""
        known = self._known.get(inode)
        # The kernel reuses the number of a namespace that is gone.
        if known is not None and fingerprints.inode(f"{self._directory}/{known}") == inode:
            return known
        changed = self._stamp()
        if known is not None or changed != self._changed or self._clock() >= self._due:
            latest = reversed(network_namespaces(self._directory))
            self._known = {fingerprints.inode(f"{self._directory}/{name}"): name for name in latest}
            # A name appears in the directory just before the namespace is mounted on it: hence the second look.
            self._changed, self._due = changed, self._clock() + AGAIN
        return self._known.get(inode)

    def _stamp(self) -> int:
        try:
            return os.stat(self._directory).st_mtime_ns
        except OSError:
            return 0


def network_namespaces(directory: str = _NAMESPACES) -> list[str]:
    """Names of all network namespaces that have one, in order."""
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def open_network_namespace(name: str, directory: str = _NAMESPACES) -> int:
    """Open a network namespace by its name, its inode number, or the path of its file (``/proc/PID/ns/net``).

    Returns:
        A descriptor, for the caller to close.

    Raises:
        TraceError: there is none of this name, it may not be opened, or it is something else.
    """
    path = name if "/" in name else f"{directory}/{name}"
    if name.isascii() and name.isdigit() and not os.path.exists(path):
        path = _by_number(int(name), directory)
    try:
        if name in ("", ".", ".."):
            raise FileNotFoundError
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise TraceError(f"there is no network namespace {name!r}", hints=_known_namespaces(name, directory)) from None
    except OSError as error:
        raise TraceError(f"cannot open the network namespace {name!r}: {error.strerror}") from None
    if not _is_network(descriptor):
        os.close(descriptor)
        forms = "--netns takes a name in /run/netns or a path like /proc/PID/ns/net"
        raise TraceError(f"{path} is not a network namespace", hints=(forms, *_known_namespaces(name, directory)))
    return descriptor


def _by_number(number: int, directory: str) -> str:
    """The path of the namespace with an inode number: one with a name, or that of a process."""
    named = (f"{directory}/{name}" for name in network_namespaces(directory))
    running = (f"/proc/{entry}/ns/net" for entry in os.listdir("/proc") if entry.isdigit())
    return next((path for path in (*named, *running) if fingerprints.inode(path) == number), f"{directory}/{number}")


def _is_network(descriptor: int) -> bool:
    try:
        return fcntl.ioctl(descriptor, _NS_GET_NSTYPE) == CLONE_NEWNET
    except OSError:
        return False


def _known_namespaces(name: str, directory: str) -> tuple[str, ...]:
    known = network_namespaces(directory)
    if not known:
        return ("no network namespace has a name here; ip netns add NAME makes one",)
    near = similar(name, known)
    return (f"did you mean {' or '.join(near)}?",) if near else (f"known network namespaces: {', '.join(known)}",)


# ---------------------------------------------------------------------------------------------- cgroups

class CgroupPaths:
    """Finds the path of a cgroup in each mounted hierarchy; an id is the inode of the cgroup's directory."""

    def __init__(self, table: str = cgroups.MOUNTS) -> None:
        self._table = table
        self._roots: tuple[tuple[str, str], ...] | None = None
        self._known: dict[tuple[str, int], str] = {}

    def paths(self, identity: int, pattern: str = "") -> str:
        """``hierarchy:path`` of a cgroup in each hierarchy whose name matches the ``*`` *pattern*, separated by commas.

        The unified hierarchy comes first under the name ``unified``, then those of version 1 by name. The text is
        empty for a cgroup that no hierarchy has (it was removed).
        """
        paths = []
        for name, root in self._hierarchies():
            if not pattern or fnmatch.fnmatchcase(name, pattern.replace("[", "[[]").replace("?", "[?]")):
                path = self._path(root, identity)
                if path:
                    paths.append(f"{name}:{path}")
        return ",".join(paths)

    def _hierarchies(self) -> tuple[tuple[str, str], ...]:
        if self._roots is None:
            mounted = cgroups.hierarchies(self._table)
            unified = [("unified", mount.point) for mount in mounted if mount.unified]
            named = [(os.path.basename(mount.point), mount.point) for mount in mounted if not mount.unified]
            self._roots = (*unified, *sorted(named))
        return self._roots

    def _path(self, root: str, identity: int) -> str:
        known = self._known.get((root, identity))
        if known is not None and fingerprints.inode(root + known) == identity:
            return known
        # One walk serves all ids: every directory that it passes is remembered, in place of those that are gone.
        self._known = {key: path for key, path in self._known.items() if key[0] != root}
        result = ""
        for path in cgroups.directories(root):
            relative, number = path.removeprefix(root.rstrip("/")) or "/", fingerprints.inode(path)
            self._known[root, number] = relative
            if number == identity:
                result = relative
        return result
