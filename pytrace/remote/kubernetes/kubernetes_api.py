"""The API of a Kubernetes cluster, through the official client: nodes, the objects of a run, and *exec* in its pods."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Protocol, TypeVar

import msgspec
import urllib3
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.stream import stream
from websocket import WebSocketBadStatusException
from yaml import YAMLError

from pytrace.base import typed_json
from pytrace.base.control_characters import printable_text
from pytrace.core.diagnostics import TraceError
from pytrace.remote.carriage import AGENT
from pytrace.remote.kubernetes import pods
from pytrace.remote.kubernetes.pods import Cluster, Deployment, Pod
from pytrace.results.snapshot import SnapshotData

T = TypeVar("T")

HOPELESS = frozenset({
    "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError",
    "CreateContainerError", "RunContainerError", "CrashLoopBackOff", "ImageInspectError", "RegistryUnavailable",
    "SignatureValidationFailed",
})  # fmt: skip
"""Reasons of a waiting container for which nobody waits."""


class WebSocket(Protocol):
    """What is used of ``websocket.WebSocket``, below the client's: that one collects what comes, however much it is."""

    sock: socket.socket

    def settimeout(self, timeout: float) -> None:
        """Seconds that sending or receiving may take."""

    def send(self, payload: bytes, opcode: int) -> int:
        """Send a message."""

    def recv_data_frame(self, control_frame: bool) -> tuple[int, _Frame]:
        """The next message, and its kind."""

    def shutdown(self) -> None:
        """End the connection."""


class _Frame(Protocol):
    data: bytes


class _Node(msgspec.Struct):
    metadata: pods.Metadata


class _Nodes(msgspec.Struct):
    items: list[_Node] | None = None


class _Pods(msgspec.Struct):
    items: list[Pod] | None = None


class _Event(msgspec.Struct):
    message: str = ""


class _Events(msgspec.Struct):
    items: list[_Event] | None = None


class _Status(msgspec.Struct):
    """An error of the API."""

    message: str = ""


class Client:
    """The API of a cluster. *command* starts an agent in a pod.

    Raises:
        TraceError: there is no usable configuration.
    """

    def __init__(self, cluster: Cluster, command: str = AGENT) -> None:
        self.cluster, self._command = cluster, command
        self._configuration = client.Configuration()
        try:
            try:
                config.load_kube_config(_files(), cluster.context, self._configuration)
            except config.ConfigException:
                if cluster.context is not None:
                    raise
                config.load_incluster_config(client_configuration=self._configuration)
        except (config.ConfigException, YAMLError, OSError) as error:
            hints = ("kubectl config get-contexts lists the contexts; --context NAME chooses one",)
            raise TraceError(f"no Kubernetes cluster: {' '.join(str(error).split())}", hints=hints) from None
        self._configuration.retries = False
        self.namespace = cluster.namespace or _namespace(cluster.context)
        self._api = self.api()

    def api(self) -> client.ApiClient:
        """An API client, for one thread."""
        return client.ApiClient(self._configuration)

    def nodes(self) -> dict[str, dict[str, str]]:
        """Labels of the selected nodes, by name.

        Raises:
            TraceError: there are none, or the cluster does not tell.
        """
        with explained("list nodes"):
            response = client.CoreV1Api(self._api).list_node(label_selector=self.cluster.labels, _preload_content=False)
            listed = decoded(response.data, _Nodes)
        labels = {node.metadata.name: node.metadata.labels for node in listed.items or ()}
        if not labels:
            raise TraceError(f"no node of the cluster has the labels {self.cluster.labels!r}")
        return labels

    def names(self) -> pods.ContainerNames:
        """Names of all containers of the cluster, as of now."""
        found = pods.ContainerNames()
        with explained("list pods"):
            response = client.CoreV1Api(self._api).list_pod_for_all_namespaces(_preload_content=False)
            listed = decoded(response.data, _Pods)
        for pod in listed.items or ():
            found.add(pod)
        return found

    def named(self, snapshot: SnapshotData) -> SnapshotData:
        """A snapshot with names of containers in place of paths of cgroups; without such, no pods are listed."""
        return self.names().named(snapshot) if pods.shows_cgroups(snapshot) else snapshot

    @contextmanager
    def deployed(self, deployment: Deployment) -> Iterator[None]:
        """The objects of the run, for the time of the ``with`` block."""
        jobs, sets = client.BatchV1Api(self._api), client.AppsV1Api(self._api)
        with ExitStack() as stack:
            with explained(f"create a Job in namespace {deployment.namespace}"):
                owner = jobs.create_namespaced_job(deployment.namespace, pods.job(deployment))
            stack.callback(self._delete, jobs.delete_namespaced_job, deployment)
            with explained(f"create a DaemonSet in namespace {deployment.namespace}"):
                sets.create_namespaced_daemon_set(deployment.namespace, pods.daemon_set(deployment, owner.metadata.uid))
            # Its own deletion, too: the garbage collector takes its time.
            stack.callback(self._delete, sets.delete_namespaced_daemon_set, deployment)
            yield

    @staticmethod
    def _delete(delete: Callable[..., object], deployment: Deployment) -> None:
        with explained(f"remove {deployment.name} (the cluster does so after its deadline)"):
            try:
                delete(deployment.name, deployment.namespace, propagation_policy="Background")
            except ApiException as error:
                if error.status != 404:
                    raise

    def pods(self, deployment: Deployment) -> list[Pod]:
        """The pods of a run."""
        with explained("list pods"):
            response = client.CoreV1Api(self._api).list_namespaced_pod(
                deployment.namespace, label_selector=f"{pods.LABEL}={deployment.identity}", _preload_content=False
            )
            return decoded(response.data, _Pods).items or []

    def refusal(self, deployment: Deployment) -> str:
        """Why the cluster makes no pods of a run, by its events; empty if they say nothing, or may not be listed.

        What is not admitted (Pod Security, quotas) are the pods: the DaemonSet is.
        """
        selector = f"involvedObject.kind=DaemonSet,involvedObject.name={deployment.name},reason=FailedCreate"
        with suppress(TraceError), explained("list events"):
            response = client.CoreV1Api(self._api).list_namespaced_event(
                deployment.namespace, field_selector=selector, _preload_content=False
            )
            if events := decoded(response.data, _Events).items:
                return printable_text(events[-1].message)
        return ""

    def execute(self, deployment: Deployment, pod: str) -> WebSocket:
        """Start an agent in a pod. Returns the WebSocket.

        ``stream`` replaces a method of the API client for the time of a call: each thread has a client of its own.

        Raises:
            ApiException: it cannot be.
        """
        api = client.CoreV1Api(self.api())
        opened = stream(
            api.connect_get_namespaced_pod_exec, pod, deployment.namespace, container=pods.CONTAINER,
            command=self._command.split(), stdin=True, stdout=True, stderr=True, tty=False,
            _preload_content=False, binary=True,
        )  # fmt: skip
        websocket: WebSocket = opened.sock
        return websocket


def _files() -> str:
    """The user's configuration. The client reads the variable when it is imported, which a program may do early."""
    return os.environ.get("KUBECONFIG", "~/.kube/config")


def _namespace(context: str | None) -> str:
    """The namespace of a context of the user's configuration."""
    try:
        contexts, current = config.list_kube_config_contexts(_files())
    except config.ConfigException:
        return "default"
    chosen = next((each for each in contexts if each["name"] == context), current)
    return str(chosen["context"].get("namespace") or "default")


@contextmanager
def explained(action: str) -> Iterator[None]:
    """Errors of the API in the ``with`` block as a :class:`TraceError` that says what could not be done."""
    try:
        yield
    except ApiException as error:
        raise TraceError(f"cannot {action}: {api_message(error)}") from None
    except (urllib3.exceptions.HTTPError, msgspec.DecodeError) as error:
        raise TraceError(f"cannot {action}: {printable_text(str(error))}") from None


def decoded(data: bytes | str, wanted: type[T]) -> T:
    """An object of the API, of which only what *wanted* has is kept.

    Raises:
        msgspec.DecodeError: it is another.
    """
    with typed_json.DECODING:
        return msgspec.json.decode(data, type=wanted)


def api_message(error: ApiException) -> str:
    """What the API server says of an error, also of a connection for *exec*, for which the client keeps no answer."""
    refused = error.__context__
    handshake = isinstance(refused, WebSocketBadStatusException)
    with suppress(msgspec.DecodeError):
        if message := decoded((refused.resp_body if handshake else error.body) or "", _Status).message:
            return printable_text(message)
    if handshake:
        return f"status {refused.status_code}"
    reason = str(error.reason or "").strip() or f"status {error.status}"
    return printable_text(reason.splitlines()[0])


def refused(text: str, namespace: str) -> TraceError:
    """The error for pods that the cluster does not make, by what it says of it."""
    level = f"kubectl label namespace {namespace} pod-security.kubernetes.io/enforce=privileged"
    hints = (f"pods with hostPID need a namespace of the level privileged: {level}",) if "PodSecurity" in text else ()
    return TraceError(
        f"cannot make pods in namespace {namespace}: {text.removeprefix('Error creating: ')}", hints=hints
    )


def failure(pod: Pod) -> str:
    """Why a pod will not run; empty while it may."""
    status = pod.status
    if status.phase in ("Failed", "Succeeded"):
        return printable_text(f"the pod ended: {status.reason or status.phase} {status.message}".rstrip())
    for container in status.container_statuses:
        waiting = container.state.waiting
        if waiting is not None and waiting.reason in HOPELESS:
            return printable_text(f"the pod does not start: {waiting.reason}: {waiting.message}".rstrip(": "))
    return ""


def delay(pod: Pod) -> str:
    """What a pod waits for; empty if that is not known."""
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return printable_text(condition.message)
    if not pod.status.container_statuses:
        return "the node has not taken up the pod"
    waits = [each.state.waiting for each in pod.status.container_statuses if each.state.waiting]
    return printable_text(f"{waits[0].reason}: {waits[0].message}".rstrip(": ")) if waits else ""


def node_labels(labels: Mapping[str, Mapping[str, str]], by: str) -> dict[str, str]:
    """For ``--by``: the name of each node (``host``), or the value of a label; ``-`` for nodes without it.

    Raises:
        TraceError: no node has such a label.
    """
    if by == "host":
        return {node: node for node in labels}
    found = {node: own.get(by, "-") for node, own in labels.items()}
    if set(found.values()) == {"-"}:
        raise TraceError(f"--by {by}: no node has such a label", hints=("--by host, or a label of the nodes",))
    return found
