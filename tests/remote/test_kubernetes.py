"""Pods of Kubernetes as hosts."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import kubernetes_validate
import msgspec
import pytest
from kubernetes.client.exceptions import ApiException
from websocket import WebSocketBadStatusException

from pytrace.base import typed_json
from pytrace.core.diagnostics import TraceError
from pytrace.core.types import UINT64, CgroupPath, Count, Record, String, Tuple
from pytrace.remote import kubernetes, messages, pods
from pytrace.remote.answer import Answer
from pytrace.remote.carriage import Conversation, Rollout, Stopping
from pytrace.remote.controller import Controller
from pytrace.remote.hosts import State
from pytrace.remote.kubernetes import Client, Pipe, _Run, exit_status
from pytrace.remote.messages import Hello, Limits, Misfit, Request, Variant
from pytrace.remote.pods import (
    Cluster,
    ContainerNames,
    ContainerState,
    ContainerStatus,
    Deployment,
    Metadata,
    Pod,
    PodStatus,
    Waiting,
)
from pytrace.remote.variants import Outcome
from pytrace.results.snapshot import MapData, SnapshotData, Table

# ---------------------------------------------------------------------------------------------- kubernetes api
# What pytrace makes of a cluster's answers. ``tests/kernel/test_kubernetes.py`` asks a small API server.


LABELS = {"a": {"zone": "east"}, "b": {}}


def test_labels_of_nodes() -> None:
    assert kubernetes.node_labels(LABELS, "host") == {"a": "a", "b": "b"}
    assert kubernetes.node_labels(LABELS, "zone") == {"a": "east", "b": "-"}
    with pytest.raises(TraceError, match="--by rack: no node has such a label"):
        kubernetes.node_labels(LABELS, "rack")


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
    assert kubernetes.api_message(error) == message


def test_messages_of_a_refused_exec() -> None:
    def message(body: bytes | None) -> str:
        try:
            try:
                raise WebSocketBadStatusException("Handshake status 403 -+-+- {}", 403, resp_body=body)
            except WebSocketBadStatusException as error:
                raise ApiException(status=0, reason=str(error))  # noqa: B904 (as the client does it)
        except ApiException as error:
            return kubernetes.api_message(error)

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
    assert kubernetes.decoded('{"metadata": {"name": "x"}}', Pod) == Pod(Metadata("x"))
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
    assert kubernetes.failure(made) == text


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
    assert kubernetes.delay(made) == text


def test_pods_that_are_not_made() -> None:
    text = 'Error creating: pods "x" is forbidden: violates PodSecurity "baseline:latest": host namespaces'
    error = kubernetes.refused(text, "tracing")
    assert error.message == f"cannot make pods in namespace tracing: {text[16:]}"
    assert "kubectl label namespace tracing" in error.hints[0]
    assert kubernetes.refused('pods "x" is forbidden: exceeded quota: q', "tracing").hints == ()


# ---------------------------------------------------------------------------------------------- kubernetes carrier
# The end of an exec. ``tests/kernel/test_kubernetes.py`` carries messages to agents.


LIMITS = Limits(duration=5)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b'{"status": "Success"}', 0),
        (b'{"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": "127"}]}}', 127),
        (b'{"status": "Failure", "message": "container not found"}', None),
        (b'{"status": "Failure", "details": {"causes": []}}', None),
        (b'{"status": "Failure", "details": {"causes": [{"message": "no number"}]}}', None),
        (b'{"status": "Failure", "details": 5}', None),
        (b"[]", None),
        (b"", None),
    ],
)
def test_exit_status(data: bytes, status: int | None) -> None:
    assert exit_status(data) == status


class Access:
    """A cluster whose pods never run."""

    namespace, cluster = "tracing", Cluster(image="x")

    def __init__(self, waiting: list[Pod], refusal: str = "") -> None:
        self.waiting, self.text = waiting, refusal

    @contextmanager
    def deployed(self, _deployment: Deployment) -> Iterator[None]:
        yield

    def pods(self, _deployment: Deployment) -> list[Pod]:
        return self.waiting

    def refusal(self, _deployment: Deployment) -> str:
        return self.text


def asked(access: Access, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Controller:
    for name in ("ADMITTING", "PREPARING", "POLL"):
        monkeypatch.setattr(kubernetes, name, 0.01)
    made = Controller(["a", "b"], Request(protocol=1, script="x", limits=LIMITS), Answer(None), str(folder))
    rollout = Rollout(["a", "b"], [2])
    kubernetes.ask(cast("Client", access), LIMITS, made, rollout, [].append, Stopping())
    return made


def test_pods_that_do_not_run_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}
    terms = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    full = {"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available: 1 Insufficient memory"}
    waiting = {"metadata": {"name": "x"}, "spec": {"affinity": terms}, "status": {"conditions": [full]}}
    made = asked(Access([msgspec.convert(waiting, Pod)]), tmp_path, monkeypatch)
    assert {name: host.state for name, host in made.hosts.items()} == {"a": State.FAILED, "b": State.FAILED}
    assert made.hosts["a"].text == f"no pod ran on it within 0 s: {full['message']}"
    assert made.hosts["b"].text == "no pod ran on it within 0 s"


def test_pods_that_are_not_admitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TraceError, match="cannot make pods in namespace tracing: no room"):
        asked(Access([], "Error creating: no room"), tmp_path, monkeypatch)


class Written:
    """The way to a pod."""

    def __init__(self) -> None:
        self.data: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.data.append(data)

    def close(self) -> None:
        """Nothing is open."""


def test_a_variant_is_sent_as_soon_as_it_is_there(tmp_path: Path) -> None:
    """Also while the node says nothing."""
    outcomes: list[Outcome] = []
    request = Request(protocol=1, script="x", limits=LIMITS)
    made = Controller(["a"], request, Answer(None), str(tmp_path), lambda _kind, _facts: next(iter(outcomes), None))
    conversation: Conversation[Pipe] = Conversation(60, made, Rollout(["a"], [1]), [].append, Stopping(), "node")
    deployment = Deployment(identity="x", namespace="tracing", image="x", nodes=("a",), deadline=60)
    run = _Run(made, conversation, cast("Client", Access([])), deployment)
    pipe = Written()
    made.connecting("a", time.monotonic())
    made.hosts["a"].asked = True
    run._pipes["a"] = cast("Pipe", pipe)
    hello = Hello(protocol=1, version="0", host="a", kernel="6.1", machine="x", wall=0, monotonic=0)
    made.output("a", b"".join(map(messages.encode, (hello, Misfit(lacks=("btf",))))), time.monotonic())
    answer = messages.encode(Variant(b"x"))
    run.step()
    assert answer not in pipe.data
    outcomes.append(Outcome(b"x"))
    run.step()
    run.step()
    assert pipe.data.count(answer) == 1
    run.close()
    made.finish(time.monotonic())


# ---------------------------------------------------------------------------------------------- pods
# Objects of a run in a cluster, and names of containers.


RUN = Deployment(identity="ab12", namespace="tracing", image="hub/pytrace:1", nodes=("a", "b.example"), deadline=60)
ID, UID = "0123456789abcdef" * 4, "6b1a3c9e-0000-4000-8000-00000000beef"
UNITS = UID.replace("-", "_")
"""As systemd names it."""
POD = msgspec.convert({
    "metadata": {"namespace": "shop", "name": "cart-1", "uid": UID},
    "status": {"containerStatuses": [
        {"name": "app", "containerID": f"containerd://{ID}"}, {"name": "starting"},
    ]},
}, pods.Pod)  # fmt: skip


def json_of(made: pods.Manifest) -> Any:
    return json.loads(json.dumps(made))


@pytest.mark.parametrize("version", ["1.27", "1.36"])
def test_objects_are_valid(version: str) -> None:
    kubernetes_validate.validate(RUN.job(), version, strict=True)
    kubernetes_validate.validate(RUN.daemon_set(UID), version, strict=True)


def test_pods_have_no_privilege_but_four_capabilities() -> None:
    for made in map(json_of, (RUN.job(), RUN.daemon_set(UID))):
        spec = made["spec"]["template"]["spec"]
        assert spec["automountServiceAccountToken"] is False
        for container in spec["containers"]:
            context = container["securityContext"]
            assert not context["privileged"]
            assert not context["allowPrivilegeEscalation"]
            assert context["readOnlyRootFilesystem"]
            assert context["capabilities"]["drop"] == ["ALL"]
            assert set(context["capabilities"].get("add", ())) <= {"BPF", "PERFMON", "SYS_PTRACE", "DAC_READ_SEARCH"}
            assert all(mount["readOnly"] for mount in container.get("volumeMounts", ()) if mount["name"] != "private")


def test_the_cluster_removes_what_a_killed_controller_leaves() -> None:
    job, daemon_set = json_of(RUN.job()), json_of(RUN.daemon_set(UID))
    assert job["spec"]["parallelism"] == 0, "a pod that is evicted would end the run, one on a dead node keep it"
    assert "completions" not in job["spec"]
    assert job["spec"]["activeDeadlineSeconds"] == 60
    assert job["spec"]["ttlSecondsAfterFinished"] == 0
    (owner,) = daemon_set["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Job", job["metadata"]["name"], UID)


def test_each_node_is_a_term_of_its_own() -> None:
    affinity = json_of(RUN.daemon_set(UID))["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [term["matchFields"][0]["values"] for term in terms] == [["a"], ["b.example"]]


def test_nodes_of_pods() -> None:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b.example"]}]}
    terms = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    waiting, bound = (
        msgspec.convert({"metadata": {"name": "x"}, "spec": {"affinity": terms, **more}}, pods.Pod)
        for more in ({}, {"nodeName": "a"})
    )
    assert (waiting.node, bound.node) == ("b.example", "a")
    assert POD.node == ""


@pytest.mark.parametrize(("name", "runs"), [("pytrace", True), ("istio-proxy", False)])
def test_only_the_own_container_counts(name: str, runs: bool) -> None:
    status = {"containerStatuses": [{"name": name, "ready": True}]}
    assert msgspec.convert({"metadata": {"name": "x"}, "status": status}, pods.Pod).runs is runs


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (f"unified:/kubepods.slice/kubepods-pod{UNITS}.slice/cri-containerd-{ID}.scope", "shop/cart-1/app"),
        (f"unified:/kubepods/burstable/pod{UID}/{ID}/inner", "shop/cart-1/app/inner"),
        (f"unified:/kubepods.slice/kubepods-pod{UNITS}.slice", "shop/cart-1"),
        (f"unified:/kubepods/pod{UID}/{'f' * 64}", f"shop/cart-1/{'f' * 64}"),
        ("unified:/system.slice/kubelet.service", "unified:/system.slice/kubelet.service"),
        (f"unified:/x/{'e' * 64}", f"unified:/x/{'e' * 64}"),
        ("", ""),
    ],
)
def test_paths_of_cgroups_become_names(path: str, name: str) -> None:
    names = ContainerNames()
    names.add(POD)
    assert names.name(path) == name


def test_only_paths_of_cgroups_are_named() -> None:
    names = ContainerNames()
    names.add(POD)
    path = f"unified:/kubepods/pod{UID}/{ID}"
    both = Tuple((CgroupPath(), String(128)))
    record = Record(("where", "n"), (CgroupPath(), UINT64))
    snapshot = SnapshotData(
        (),
        {"@": MapData("@", both, Count(), {(path, path): 3}), "@n": MapData("@n", String(128), Count(), {path: 1})},
        (Table(record, {"run": [(path, 5)]}),),
    )
    assert pods.shows_cgroups(snapshot)
    named = names.named(snapshot)
    assert named.maps["@"].entries == {("shop/cart-1/app", path): 3}
    assert named.maps["@n"].entries == {path: 1}
    assert named.tables[0].rows == {"run": [("shop/cart-1/app", 5)]}


def test_counts_of_two_paths_of_a_container_are_added() -> None:
    names = ContainerNames()
    names.add(POD)
    paths = [f"unified:/kubepods{between}/pod{UID}/{ID}" for between in ("", "/burstable")]
    counts = MapData("@", CgroupPath(), Count(), {paths[0]: 3, paths[1]: 4})
    assert names.named(SnapshotData((), {"@": counts})).maps["@"].entries == {"shop/cart-1/app": 7}


def test_a_snapshot_without_paths_of_cgroups() -> None:
    counts = MapData("@", String(128), Count(), {"unified:/x": 1})
    table = Table(Record(("n",), (UINT64,)), {"run": [(5,)]})
    assert not pods.shows_cgroups(SnapshotData((), {"@": counts}, (table,)))
