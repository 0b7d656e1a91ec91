"""Who is asked by a fleet, and what carries messages there: hosts of a node set, or nodes of a Kubernetes cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from pytrace.base import extras
from pytrace.core.diagnostics import TraceError
from pytrace.remote.carriage import AGENT, Carriage, Rollout, Stopping
from pytrace.remote.controller import Controller, Tree
from pytrace.remote.hosts import Folded
from pytrace.remote.messages import Limits, Relay, Route
from pytrace.remote.pods import Cluster
from pytrace.results.snapshot import SnapshotData

Nodes: TypeAlias = str | Iterable[str] | Cluster
"""A node set of ClusterShell, names of hosts, or the nodes of a cluster."""


class AskedHosts(msgspec.Struct, frozen=True):
    """The hosts, and what carries messages to them."""

    names: list[str]
    label: Callable[[str], str] | None
    """The label of a host, which keys begin with; None: answers are merged."""
    fold: Folded
    ask: Callable[[Limits, Controller, Rollout, Callable[[str], object], Stopping], None]
    tree: Callable[[Relay], Tree] | None = None
    """The gateways, told what this has."""
    rounds: int = 1
    """Runs one after another, as not all hosts are asked at a time."""
    named: Callable[[SnapshotData], SnapshotData] | None = None
    """Of :class:`pytrace.remote.answer.Answer`."""


def of_node_set(nodes: str | Iterable[str], by: str | None, carriage: Carriage, topology: str = "") -> AskedHosts:
    """The hosts of a node set, through ClusterShell, and the gateways of the *topology*.

    Raises:
        TraceError: it is invalid, or ClusterShell is not installed.
    """
    try:
        from pytrace.remote import clustershell  # an extra
    except ImportError as error:
        hints = (extras.hint("fleet"),)
        raise TraceError(f"asking hosts needs ClusterShell: {error}", hints=hints) from None
    names = clustershell.names(nodes if isinstance(nodes, str) else ",".join(nodes))
    label = clustershell.label(by, names)
    routes = clustershell.routes(names, topology)

    def tree(relay: Relay) -> Tree:
        return Tree(routes, replace(
            relay, command=carriage.command, program=carriage.program, become=carriage.become, worker=carriage.worker,
            fanout=carriage.fanout, ssh_options=carriage.ssh_options, by=by or "",
            labels=None if label is None else {name: label(name) for name in names},
        ))  # fmt: skip

    through = {name for route in routes for name in route.names}
    most = max(len(set(names) - through), *(len(route.hosts) for route in _every(routes)), 1)
    rounds = -(-most // carriage.fanout)
    return AskedHosts(names, label, clustershell.fold, partial(clustershell.ask, carriage), tree, rounds)


def _every(routes: Iterable[Route]) -> Iterator[Route]:
    for route in routes:
        yield route
        yield from _every(route.routes)


def of_cluster(cluster: Cluster, by: str | None, command: str) -> AskedHosts:
    """The nodes of a Kubernetes cluster. *command* starts an agent in a pod.

    Raises:
        TraceError: there are none, the cluster refuses, or the client of Kubernetes is not installed.
    """
    try:
        from pytrace.remote import kubernetes  # an extra
    except ImportError as error:
        hints = (extras.hint("kubernetes"),)
        raise TraceError(f"asking a cluster needs the Kubernetes client: {error}", hints=hints) from None
    access = kubernetes.Client(cluster, command or AGENT)
    labels = access.nodes()
    label = None if by is None else kubernetes.node_labels(labels, by).__getitem__
    return AskedHosts(sorted(labels), label, ",".join, partial(kubernetes.ask, access), named=access.named)
