"""Who is asked by a fleet. tests/interface/test_fleet.py asks hosts and nodes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import pytrace
from pytrace.core.diagnostics import TraceError
from pytrace.interface import asked_hosts
from pytrace.remote.carriage import Carriage
from tests.support.kubernetes_api import Api, configuration


def test_node_sets() -> None:
    asked = asked_hosts.of_node_set("web[1-3]", "host", Carriage())
    assert asked.names == ["web1", "web2", "web3"]
    assert asked.label is not None
    assert asked.label("web2") == "web2"
    assert asked.fold(asked.names) == "web[1-3]"
    assert asked_hosts.of_node_set(["b", "a"], None, Carriage()).label is None


def test_nodes_of_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api({"b": {"zone": "east"}, "a": {}}, lambda _: None)
    server = api.serve()
    monkeypatch.setenv("KUBECONFIG", str(configuration(tmp_path, server)))
    cluster = pytrace.Cluster(image="hub/pytrace:1")
    try:
        asked = asked_hosts.of_cluster(cluster, "zone", "")
        assert asked.names == ["a", "b"]
        assert asked.label is not None
        assert list(map(asked.label, asked.names)) == ["-", "east"]
        assert asked.fold(asked.names) == "a,b"
        with pytest.raises(TraceError, match="no node of the cluster has the labels 'zone=west'"):
            asked_hosts.of_cluster(pytrace.Cluster(image="x", labels="zone=west"), None, "")
        with pytest.raises(TraceError, match="--by rack: no node has such a label"):
            asked_hosts.of_cluster(cluster, "rack", "")
    finally:
        server.shutdown()
        server.server_close()


def test_what_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("clustershell", "kubernetes.kubernetes_api"):
        monkeypatch.setitem(sys.modules, f"pytrace.remote.{name}", None)
        monkeypatch.delattr(f"pytrace.remote.{name}", raising=False)
    with pytest.raises(TraceError, match="asking hosts needs ClusterShell"):
        asked_hosts.of_node_set("a", None, Carriage())
    with pytest.raises(TraceError, match="asking a cluster needs the Kubernetes client"):
        asked_hosts.of_cluster(pytrace.Cluster(image="x"), None, "")
