"""Names that this machine has for numbers in output: network interfaces and namespaces, cgroups."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytrace.runtime.host.cgroups import Cgroups
    from pytrace.runtime.host.network import Interfaces, NetworkNamespaces


class HostNames:
    """Looks names up (:class:`pytrace.render.names.HostNames`); few scripts need any, so each source is loaded late.

    *namespace* is an open network namespace, that of the interfaces; without one they are those of this process.
    """

    def __init__(self, namespace: int | None = None) -> None:
        self._namespace = namespace

    def interface(self, index: int) -> str | None:
        """The name of a network interface; None where there is none."""
        return self._interfaces.name(index)

    def network_namespace(self, inode: int) -> str | None:
        """The name of a network namespace; None where it has none."""
        return self._namespaces.name(inode)

    def cgroup(self, identity: int, pattern: str) -> str:
        """``hierarchy:path`` of a cgroup id, in the hierarchies that match *pattern*."""
        return self._cgroups.paths(identity, pattern)

    @cached_property
    def _interfaces(self) -> Interfaces:
        from pytrace.runtime.host.network import Interfaces

        return Interfaces(self._namespace)

    @cached_property
    def _namespaces(self) -> NetworkNamespaces:
        from pytrace.runtime.host.network import NetworkNamespaces

        return NetworkNamespaces()

    @cached_property
    def _cgroups(self) -> Cgroups:
        from pytrace.runtime.host.cgroups import Cgroups

        return Cgroups()
