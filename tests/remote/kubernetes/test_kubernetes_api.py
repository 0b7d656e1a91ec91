"""What pytrace makes of a cluster's answers. ``tests/kernel/test_kubernetes.py`` asks a small API server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from kubernetes.client.exceptions import ApiException
from websocket import WebSocketBadStatusException

from pytrace.base import typed_json
from pytrace.core.diagnostics import TraceError
from pytrace.remote.kubernetes import kubernetes_api
from pytrace.remote.kubernetes.kubernetes_api import Client
from pytrace.remote.kubernetes.pods import Cluster, ContainerState, ContainerStatus, Metadata, Pod, PodStatus, Waiting

LABELS = {"a": {"zone": "east"}, "b": {}}


def test_labels_of_nodes() -> None:
    assert kubernetes_api.node_labels(LABELS, "host") == {"a": "a", "b": "b"}
    assert kubernetes_api.node_labels(LABELS, "zone") == {"a": "east", "b": "-"}
    with pytest.raises(TraceError, match="--by rack: no node has such a label"):
        kubernetes_api.node_labels(LABELS, "rack")


def test_no_cluster_is_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
    for name in ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(TraceError, match="no Kubernetes cluster: "):
        Client(Cluster(image="x"))
    (tmp_path / "config").write_text("clusters: [")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    with pytest.raises(TraceError, match="no Kubernetes cluster: "):
        Client(Cluster(image="x", context="other"))


@pytest.mark.parametrize(
    ("body", "reason", "message"),
    [
        ('{"message": "nodes is forbidden"}', "Forbidden", "nodes is forbidden"),
        ('{"message": 5}', "Forbidden", "Forbidden"),
        ("<html>", "Bad Gateway\nx", "Bad Gateway"),
        (None, None, "status 500"),
    ],
)
def test_messages_of_the_api(body: str | None, reason: str | None, message: str) -> None:
    error = ApiException(status=500, reason=reason)
    error.body = body
    assert kubernetes_api.api_message(error) == message


def test_messages_of_a_refused_exec() -> None:
    def message(body: bytes | None) -> str:
        try:
            try:
                raise WebSocketBadStatusException("Handshake status 403 -+-+- {}", 403, resp_body=body)
            except WebSocketBadStatusException as error:
                raise ApiException(status=0, reason=str(error))  # noqa: B904 (as the client does it)
        except ApiException as error:
            return kubernetes_api.api_message(error)

    assert message(b'{"message": "pods is forbidden"}') == "pods is forbidden"
    assert message(None) == "status 403"


def test_answers_are_decoded_by_one_thread_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[str] = []

    @contextmanager
    def lock() -> Iterator[None]:
        held.append("taken")
        yield
        held.append("released")

    monkeypatch.setattr(typed_json, "DECODING", lock())
    assert kubernetes_api.decoded('{"metadata": {"name": "x"}}', Pod) == Pod(Metadata("x"))
    assert held == ["taken", "released"]


def pod(phase: str, reason: str = "", waiting: str | None = None) -> Pod:
    state = ContainerState(None if waiting is None else Waiting(waiting, "why\x07"))
    status = PodStatus(phase, reason, container_statuses=[ContainerStatus("pytrace", state=state)])
    return Pod(Metadata("x"), status=status)


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (pod("Pending"), ""),
        (pod("Pending", waiting="ContainerCreating"), ""),
        (pod("Pending", waiting="ImagePullBackOff"), "the pod does not start: ImagePullBackOff: why\\x07"),
        (pod("Running"), ""),
        (pod("Failed", "Evicted"), "the pod ended: Evicted"),
        (pod("Failed"), "the pod ended: Failed"),
    ],
)
def test_pods_that_will_not_run(made: Pod, text: str) -> None:
    assert kubernetes_api.failure(made) == text


FULL = "0/2 nodes are available: 1 Insufficient memory."


@pytest.mark.parametrize(
    ("status", "text"),
    [
        ({"conditions": [{"type": "PodScheduled", "status": "False", "message": FULL}]}, FULL),
        ({"conditions": [{"type": "PodScheduled", "status": "True"}]}, "the node has not taken up the pod"),
        (
            {"containerStatuses": [{"name": "x", "state": {"waiting": {"reason": "PodInitializing"}}}]},
            "PodInitializing",
        ),
        ({"containerStatuses": [{"name": "x", "state": {"running": {}}}]}, ""),
    ],
)
def test_what_pods_wait_for(status: object, text: str) -> None:
    made = msgspec.convert({"metadata": {"name": "x"}, "status": status}, Pod)
    assert kubernetes_api.delay(made) == text


def test_pods_that_are_not_made() -> None:
    text = 'Error creating: pods "x" is forbidden: violates PodSecurity "baseline:latest": host namespaces'
    error = kubernetes_api.refused(text, "tracing")
    assert error.message == f"cannot make pods in namespace tracing: {text[16:]}"
    assert "kubectl label namespace tracing" in error.hints[0]
    assert kubernetes_api.refused('pods "x" is forbidden: exceeded quota: q', "tracing").hints == ()
