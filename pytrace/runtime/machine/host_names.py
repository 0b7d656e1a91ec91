"""Names that this machine has for numbers in output: network interfaces and namespaces, cgroups."""

from __future__ import annotations

from pytrace.runtime.machine.cgroup_paths import CgroupPaths
from pytrace.runtime.machine.network import Interfaces, NetworkNamespaces


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
