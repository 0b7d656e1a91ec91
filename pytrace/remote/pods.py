"""Objects of a run in a Kubernetes cluster, and the names of its containers in place of paths of cgroups.

A run is a DaemonSet with one pod on each node that is asked, whose container does nothing: the agent is started in it
by *exec*. The DaemonSet belongs to a Job with a deadline, which has no pods. When the controller ends, it deletes the
Job; when it was killed, the cluster does so after the deadline, and its garbage collector removes what belongs to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from pytrace.core.types import CgroupPath, Type
from pytrace.remote.answer import leaf_types, renamed
from pytrace.results.snapshot import SnapshotData

Manifest: TypeAlias = dict[str, object]
"""An object of the Kubernetes API, as JSON has it."""

CONTAINER = "pytrace"
LABEL = "pytrace.dev/run"
"""Label of all objects of a run."""
CAPABILITIES = ("BPF", "PERFMON", "SYS_PTRACE", "DAC_READ_SEARCH")
"""The four that tracing needs (docs/operate/privileges.md)."""
_KERNEL_FOLDERS = ("/sys/kernel/tracing", "/sys/fs/cgroup")
"""Folders of the node that the agent reads: formats of tracepoints, and names of cgroups."""


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of a Kubernetes cluster, as ``pytrace.fleet`` asks them."""

    image: str
    """Of the pods."""
    labels: str = ""
    """Of the nodes that are asked, as ``kubectl get nodes -l`` takes them; empty: all."""
    context: str | None = None
    """Of the user's configuration; None for the current one, or the cluster that this process runs in."""
    namespace: str | None = None
    """Of the pods; None for that of the context."""


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """Which pods a run has."""

    identity: str
    """Of the run; a part of names of objects."""
    namespace: str
    image: str
    nodes: tuple[str, ...]
    """Names of the nodes, which are asked."""
    deadline: int
    """Seconds after which the cluster removes everything."""
    memory: str = "512Mi"
    """Limit of each pod, maps of the kernel included."""

    @property
    def name(self) -> str:
        """The name of the Job and of the DaemonSet."""
        return f"pytrace-{self.identity}"

    def job(self) -> Manifest:
        """The Job to which the DaemonSet belongs. It has no pods; the deadline makes it fail, and then it is removed.

        With a pod it would fail as soon as that is evicted, and would not do so while that is on a node that died: then
        the pod does not finish terminating (``enactJobFinished`` of the Job controller). Without one, the controller
        stores the start, from which the deadline counts, since Kubernetes 1.24.
        """
        pod = {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "containers": [{
                "name": "deadline",
                "image": self.image,
                "resources": _resources("16Mi"),
                "securityContext": _confined(),
            }],
        }  # fmt: skip
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": self._metadata(),
            "spec": {
                "parallelism": 0,
                "activeDeadlineSeconds": self.deadline,
                "ttlSecondsAfterFinished": 0,
                "backoffLimit": 0,
                "template": {"metadata": {"labels": {LABEL: f"{self.identity}-deadline"}}, "spec": pod},
            },
        }

    def daemon_set(self, owner: str) -> Manifest:
        """The pods of the agents; *owner* is the ``uid`` of the Job. They run on cordoned and tainted nodes, too."""
        labels = {LABEL: self.identity}
        expression = {"key": "metadata.name", "operator": "In"}
        # The scheduler looks at matchFields with one value each.
        terms = [{"matchFields": [{**expression, "values": [node]}]} for node in self.nodes]
        pod = {
            "hostPID": True,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "tolerations": [{"operator": "Exists"}],
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}},
            },
            "containers": [{
                "name": CONTAINER,
                "image": self.image,
                "command": ["sleep", str(2 * self.deadline)],
                "resources": _resources(self.memory),
                "securityContext": _confined(CAPABILITIES),
                "volumeMounts": [
                    *({"name": _volume(path), "mountPath": path, "readOnly": True} for path in _KERNEL_FOLDERS),
                    {"name": "private", "mountPath": "/tmp"},
                ],
                "env": [{"name": "XDG_CACHE_HOME", "value": "/tmp/cache"}],
            }],
            "volumes": [
                *({"name": _volume(path), "hostPath": {"path": path, "type": "Directory"}} for path in _KERNEL_FOLDERS),
                {"name": "private", "emptyDir": {"sizeLimit": "256Mi"}},
            ],
        }  # fmt: skip
        owned = {"apiVersion": "batch/v1", "kind": "Job", "name": self.name, "uid": owner}
        return {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {**self._metadata(), "ownerReferences": [owned]},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        }

    def _metadata(self) -> Manifest:
        return {
            "name": self.name, "namespace": self.namespace, "labels": {LABEL: self.identity},
        }  # fmt: skip


def _resources(memory: str) -> Manifest:
    return {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"cpu": "1", "memory": memory}}


def _confined(capabilities: Iterable[str] = ()) -> Manifest:
    """No privilege but these: root is needed since capabilities of others do not survive the start of a program."""
    added = {"add": list(capabilities)} if capabilities else {}
    return {
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "runAsUser": 0,
        "capabilities": {"drop": ["ALL"], **added},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _volume(path: str) -> str:
    return path.strip("/").replace("/", "-")


# ---------------------------------------------------------------------------------------------- pods of the API


class Waiting(msgspec.Struct, frozen=True):
    """Why a container does not run yet."""

    reason: str = ""
    message: str = ""


class ContainerState(msgspec.Struct, frozen=True):
    """What a container does."""

    waiting: Waiting | None = None


class ContainerStatus(msgspec.Struct, frozen=True):
    """A container of a pod."""

    name: str
    ready: bool = False
    identity: str = msgspec.field(name="containerID", default="")
    """``containerd://ID``; empty before it was started."""
    state: ContainerState = ContainerState()


class Condition(msgspec.Struct, frozen=True):
    """A fact of a pod, of which *status* says whether it holds (``True``, ``False``, ``Unknown``)."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""


class PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    """How far a pod is."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: list[Condition] = []
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []
    ephemeral_container_statuses: list[ContainerStatus] = []


class Metadata(msgspec.Struct, frozen=True):
    """Of any object."""

    name: str
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] = {}


class FieldTerm(msgspec.Struct, frozen=True):
    """Values that a field of a node may have."""

    values: list[str] = []


class NodeTerm(msgspec.Struct, frozen=True, rename="camel"):
    """Nodes for which a pod is meant."""

    match_fields: list[FieldTerm] = []


class NodeTerms(msgspec.Struct, frozen=True, rename="camel"):
    """Nodes for which a pod is meant, in one way or another."""

    node_selector_terms: list[NodeTerm] = []


class NodeAffinity(msgspec.Struct, frozen=True):
    """Where a pod must run."""

    required: NodeTerms = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=NodeTerms())


class Affinity(msgspec.Struct, frozen=True, rename="camel"):
    """Where a pod is to run."""

    node_affinity: NodeAffinity = NodeAffinity()


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What a pod is to be."""

    node_name: str = ""
    """Empty before it was scheduled."""
    affinity: Affinity = Affinity()


class Pod(msgspec.Struct, frozen=True):
    """A pod."""

    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def node(self) -> str:
        """The node that the pod runs on, or for which the controller of a DaemonSet made it; empty if neither."""
        terms = self.spec.affinity.node_affinity.required.node_selector_terms
        wanted = [value for term in terms for field in term.match_fields for value in field.values]
        return self.spec.node_name or (wanted[0] if len(wanted) == 1 else "")

    @property
    def runs(self) -> bool:
        """Whether the container for the agent runs; a cluster may have added others."""
        return any(each.ready and each.name == CONTAINER for each in self.status.container_statuses)


# ---------------------------------------------------------------------------------------------- names of containers

_CONTAINER_ID = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_POD_UID = re.compile(r"pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})")


class ContainerNames:
    """Names of containers, by what the container runtimes call their cgroups."""

    def __init__(self) -> None:
        self._containers: dict[str, str] = {}
        self._pods: dict[str, str] = {}

    def add(self, pod: Pod) -> None:
        """Add a pod and its containers."""
        name, status = f"{pod.metadata.namespace}/{pod.metadata.name}", pod.status
        self._pods[pod.metadata.uid] = name
        for containers in (
            status.container_statuses, status.init_container_statuses, status.ephemeral_container_statuses
        ):  # fmt: skip
            for container in containers:
                if container.identity:
                    self._containers[container.identity.rpartition("/")[2]] = f"{name}/{container.name}"

    def name(self, path: str) -> str:
        """``namespace/pod/container`` in place of what a path has up to it; a path of neither stays as it is."""
        for pattern, names in ((_CONTAINER_ID, self._containers), (_POD_UID, self._pods)):
            match = pattern.search(path)
            name = names.get(match.group(match.lastindex or 0).replace("_", "-")) if match else None
            if match and name:
                _, slash, rest = path[match.end() :].partition("/")
                return f"{name}{slash}{rest}"
        return path

    def named(self, snapshot: SnapshotData) -> SnapshotData:
        """A snapshot with the names in place of paths of cgroups."""
        return renamed(snapshot, _has_paths, self._leaf)

    def _leaf(self, type_: Type | None, value: object) -> object:
        return self.name(value) if isinstance(type_, CgroupPath) and isinstance(value, str) else value


def shows_cgroups(snapshot: SnapshotData) -> bool:
    """Whether a snapshot has paths of cgroups, which stand for containers."""
    types = [type_ for data in snapshot.maps.values() for type_ in (data.key, data.value)]
    return any(map(_has_paths, [*types, *(table.type for table in snapshot.tables)]))


def _has_paths(type_: Type | None) -> bool:
    return any(isinstance(leaf, CgroupPath) for leaf in leaf_types(type_))
