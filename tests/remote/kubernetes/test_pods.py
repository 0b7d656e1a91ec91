"""Objects of a run in a cluster, and names of containers."""

from __future__ import annotations

import json
from typing import Any

import kubernetes_validate
import msgspec
import pytest

from pytrace.core.types import UINT64, CgroupPath, Count, Record, String, Tuple
from pytrace.remote.kubernetes import pods
from pytrace.remote.kubernetes.pods import ContainerNames, Deployment
from pytrace.results.snapshot import MapData, SnapshotData, Table

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
    kubernetes_validate.validate(pods.job(RUN), version, strict=True)
    kubernetes_validate.validate(pods.daemon_set(RUN, UID), version, strict=True)


def test_pods_have_no_privilege_but_four_capabilities() -> None:
    for made in map(json_of, (pods.job(RUN), pods.daemon_set(RUN, UID))):
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
    job, daemon_set = json_of(pods.job(RUN)), json_of(pods.daemon_set(RUN, UID))
    assert job["spec"]["parallelism"] == 0, "a pod that is evicted would end the run, one on a dead node keep it"
    assert "completions" not in job["spec"]
    assert job["spec"]["activeDeadlineSeconds"] == 60
    assert job["spec"]["ttlSecondsAfterFinished"] == 0
    (owner,) = daemon_set["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Job", job["metadata"]["name"], UID)


def test_each_node_is_a_term_of_its_own() -> None:
    affinity = json_of(pods.daemon_set(RUN, UID))["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
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
