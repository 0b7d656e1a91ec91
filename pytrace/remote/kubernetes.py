"""Agents in the pods of a Kubernetes cluster, started by *exec*: a thread carries the messages of each.

The API of the cluster, its nodes and the objects of a run are reached through the official client.
"""

from __future__ import annotations

import os
import secrets
import select
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import TypeVar

import msgspec
import urllib3
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.stream import stream
from kubernetes.stream.ws_client import ERROR_CHANNEL, STDERR_CHANNEL, STDOUT_CHANNEL
from websocket import ABNF, WebSocket, WebSocketBadStatusException, WebSocketException
from yaml import YAMLError

from pytrace.base import typed_json
from pytrace.base.control_characters import printable_text
from pytrace.core.diagnostics import TraceError
from pytrace.remote import pods
from pytrace.remote.carriage import AGENT, TICK, Conversation, Rollout, Stopping
from pytrace.remote.controller import PREPARING, Controller
from pytrace.remote.messages import Limits
from pytrace.remote.pods import Cluster, Deployment, Pod
from pytrace.results.snapshot import SnapshotData

MARGIN = 300
"""Seconds by which the deadline of the cluster is after the end of the run: pods start, images are pulled."""
PATIENCE = 15.0
"""Seconds that a connection may take to accept or to finish a message."""
_LONGEST_RUN = 7 * 86400.0
"""Seconds: a run without an end of its own is removed by the cluster after a week."""
POLL = 1.0
"""Seconds between two looks at the pods."""
ADMITTING = 5.0
"""Seconds after which a cluster that has refused to make pods is believed: a new namespace first lacks its account."""
_WAITING_CHUNKS = 256
"""Pieces of data that wait for the controller, of at most 32 KiB each as kubelets send them."""


class Pipe:
    """An agent in a pod. A thread connects, writes and reads, so that a node that is slow holds up no other."""

    def __init__(self, node: str, events: Queue[tuple[str, int, bytes]], connect: Callable[[], WebSocket]) -> None:
        self._node, self._events, self._connect = node, events, connect
        self._lines: deque[bytes] = deque()
        self._over = Event()
        Thread(target=self._run, name=f"pytrace-{node}", daemon=True).start()

    def write(self, line: bytes) -> None:
        """Have a line written to the agent's standard input."""
        self._lines.append(line)

    def close(self) -> None:
        """End the connection, and with it the agent's standard input."""
        self._over.set()

    def _run(self) -> None:
        status = b""
        try:
            websocket = self._connect()
            try:
                status = self._carry(websocket)
            finally:
                # The client library has no types here.
                websocket.shutdown()  # type: ignore[no-untyped-call]
        except ApiException as error:
            self._put(STDERR_CHANNEL, f"exec: {api_message(error)}\n".encode())
        except (WebSocketException, OSError):
            # The connection ended, which the controller reports.
            pass
        self._put(_CLOSED, status)

    def _carry(self, websocket: WebSocket) -> bytes:
        """Returns the last message, which has the exit status."""
        websocket.settimeout(PATIENCE)
        poll = select.poll()
        assert websocket.sock is not None
        poll.register(websocket.sock, select.POLLIN)
        while not self._over.is_set():
            while self._lines:
                websocket.send(b"\0" + self._lines.popleft(), opcode=ABNF.OPCODE_BINARY)
            # What TLS has decrypted already is not seen by poll.
            pending = isinstance(websocket.sock, ssl.SSLSocket) and websocket.sock.pending()
            if not pending and not poll.poll(TICK * 1000):
                continue
            code, frame = websocket.recv_data_frame(True)
            if code == ABNF.OPCODE_CLOSE:
                break
            if code in (ABNF.OPCODE_BINARY, ABNF.OPCODE_TEXT) and len(frame.data) > 1:
                channel, data = frame.data[0], bytes(frame.data[1:])
                if channel == ERROR_CHANNEL:
                    return data
                self._put(channel, data)
        return b""

    def _put(self, channel: int, data: bytes) -> None:
        """Hand on to the controller, and wait as long as it has much to do."""
        while not self._over.is_set():
            with suppress(Full):
                self._events.put((self._node, channel, data), timeout=TICK)
                return


_CLOSED = -1
"""Beside the channels: the connection has ended."""


class _Cause(msgspec.Struct, frozen=True):
    message: str = ""


class _Details(msgspec.Struct, frozen=True):
    causes: list[_Cause] = []


class _Ended(msgspec.Struct, frozen=True):
    """The last message of an exec."""

    status: str
    details: _Details = _Details()


def exit_status(data: bytes) -> int | None:
    """The exit status in the last message of an exec; None when it has none."""
    try:
        ended = decoded(data, _Ended)
        return 0 if ended.status == "Success" else int(ended.details.causes[0].message)
    except (msgspec.DecodeError, IndexError, ValueError):
        return None


def ask(
    access: Client, limits: Limits, controller: Controller, rollout: Rollout, tell: Callable[[str], object],
    stopping: Stopping,
) -> None:  # fmt: skip
    """Ask the nodes that are *controller*'s hosts, as :func:`pytrace.remote.clustershell.ask` asks hosts.

    Raises:
        TraceError: the objects of the run, or its pods, cannot be made.
    """
    deployment = Deployment(
        identity=secrets.token_hex(4), namespace=access.namespace, image=access.cluster.image,
        nodes=tuple(controller.hosts), deadline=round(min(limits.duration, _LONGEST_RUN)) + MARGIN,
    )  # fmt: skip
    with access.deployed(deployment):
        conversation: Conversation[Pipe] = Conversation(limits.heartbeat, controller, rollout, tell, stopping, "node")
        run = _Run(controller, conversation, access, deployment)
        try:
            while not run.finished:
                run.step()
        finally:
            run.close()
    controller.finish(time.monotonic(), rollout.stopped)


class _Run:
    """The pipes of a run, between the pods and the controller."""

    def __init__(
        self, controller: Controller, conversation: Conversation[Pipe], access: Client, deployment: Deployment
    ) -> None:
        self._controller, self._conversation = controller, conversation
        self._access, self._deployment = access, deployment
        self._events: Queue[tuple[str, int, bytes]] = Queue(_WAITING_CHUNKS)
        self._pipes = conversation.connections
        self._due: set[str] = set()
        """Nodes that are to be asked as soon as their pods run."""
        self._begun = self._polled = 0.0
        self._made = 0
        """Most pods that the cluster had of the run."""
        self._begin_stage()

    @property
    def finished(self) -> bool:
        """Whether nobody has more to say, or is waited for."""
        return not (self._due or self._pipes) or self._conversation.late(time.monotonic())

    def _begin_stage(self) -> None:
        if names := self._conversation.due():
            self._due.update(names)
            self._begun = time.monotonic()

    def step(self) -> None:
        """Handle what has come, at most for a moment, and what the time asks for."""
        now = time.monotonic()
        if self._due and now - self._polled >= POLL:
            self._polled = now
            self._poll_pods(now)
        with suppress(Empty):
            self._event(*self._events.get(timeout=TICK))
            for _ in range(_WAITING_CHUNKS):
                self._event(*self._events.get_nowait())
        now = time.monotonic()
        for node in self._controller.owed():
            if node in self._pipes:
                self._say(node, self._pipes[node], self._controller.due(node, now))
        for node in self._conversation.step(now):
            self._drop(node)
        self._begin_stage()
        if self._conversation.leaving is not None:
            self._due.clear()

    def _poll_pods(self, now: float) -> None:
        """Start agents in pods that have come to run, and give up those that never will.

        Raises:
            TraceError: the cluster makes no pods at all.
        """
        found = self._access.pods(self._deployment)
        if len(found) > self._made:
            # The cluster makes some twenty pods a second: those of thousands of nodes take longer than one may.
            self._made, self._begun = len(found), now
        elif not found and now - self._begun > ADMITTING and (text := self._access.refusal(self._deployment)):
            raise refused(text, self._deployment.namespace)
        delays = {pod.node: delay(pod) for pod in found if pod.node in self._due}
        for pod in found:
            if pod.node in self._due:
                self._handle_pod(pod, now)
        if now - self._begun > PREPARING:
            for node in sorted(self._due):
                self._give_up(node, f"no pod ran on it within {PREPARING:.0f} s: {delays.get(node, '')}".rstrip(": "))

    def _handle_pod(self, pod: Pod, now: float) -> None:
        if text := failure(pod):
            self._give_up(pod.node, text)
        elif pod.runs:
            self._due.discard(pod.node)
            self._controller.connecting(pod.node, now)
            connect = partial(self._access.execute, self._deployment, pod.metadata.name)
            self._pipes[pod.node] = Pipe(pod.node, self._events, connect)

    def _give_up(self, node: str, text: str) -> None:
        self._due.discard(node)
        self._controller.complaint(node, text.encode())
        self._controller.closed(node, None)

    def _event(self, node: str, channel: int, data: bytes) -> None:
        pipe = self._pipes.get(node)
        if pipe is None:
            return
        if channel == STDERR_CHANNEL:
            self._controller.complaint(node, data)
        elif channel == _CLOSED:
            self._controller.closed(node, exit_status(data))
            self._drop(node)
        elif channel == STDOUT_CHANNEL:
            self._say(node, pipe, self._controller.output(node, data, time.monotonic()))

    def _say(self, node: str, pipe: Pipe, said: bytes | None) -> None:
        if said is None:
            self._drop(node)
        elif said:
            pipe.write(said)

    def _drop(self, node: str) -> None:
        pipe = self._pipes.pop(node, None)
        if pipe is not None:
            pipe.close()

    def close(self) -> None:
        """End all connections."""
        for node in list(self._pipes):
            self._drop(node)


# ---------------------------------------------------------------------------------------------- the API


T = TypeVar("T")

_HOPELESS = frozenset({
    "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError",
    "CreateContainerError", "RunContainerError", "CrashLoopBackOff", "ImageInspectError", "RegistryUnavailable",
    "SignatureValidationFailed",
})  # fmt: skip
"""Reasons of a waiting container for which nobody waits."""


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
                owner = jobs.create_namespaced_job(deployment.namespace, deployment.job())
            stack.callback(self._delete, jobs.delete_namespaced_job, deployment)
            with explained(f"create a DaemonSet in namespace {deployment.namespace}"):
                sets.create_namespaced_daemon_set(deployment.namespace, deployment.daemon_set(owner.metadata.uid))
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
        if waiting is not None and waiting.reason in _HOPELESS:
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
