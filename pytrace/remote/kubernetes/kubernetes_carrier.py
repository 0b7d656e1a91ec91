"""Agents in the pods of a Kubernetes cluster, started by *exec*: a thread carries the messages of each."""

from __future__ import annotations

import secrets
import select
import ssl
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, Full, Queue
from threading import Event, Thread

import msgspec
from kubernetes.client.exceptions import ApiException
from kubernetes.stream.ws_client import ERROR_CHANNEL, STDERR_CHANNEL, STDOUT_CHANNEL
from websocket import ABNF, WebSocketException

from pytrace.remote.carriage import TICK, Conversation, Stopping
from pytrace.remote.controller import PREPARING, Controller
from pytrace.remote.kubernetes.kubernetes_api import Client, WebSocket, api_message, decoded, delay, failure, refused
from pytrace.remote.kubernetes.pods import Deployment, Pod
from pytrace.remote.messages import Limits
from pytrace.remote.rollout import Rollout

MARGIN = 300
"""Seconds by which the deadline of the cluster is after the end of the run: pods start, images are pulled."""
PATIENCE = 15.0
"""Seconds that a connection may take to accept or to finish a message."""
LONGEST_RUN = 7 * 86400.0
"""Seconds: a run without an end of its own is removed by the cluster after a week."""
POLL = 1.0
"""Seconds between two looks at the pods."""
ADMITTING = 5.0
"""Seconds after which a cluster that has refused to make pods is believed: a new namespace first lacks its account."""
WAITING_CHUNKS = 256
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
                websocket.shutdown()
        except ApiException as error:
            self._put(STDERR_CHANNEL, f"exec: {api_message(error)}\n".encode())
        except (WebSocketException, OSError):
            # The connection ended, which the controller reports.
            pass
        self._put(CLOSED, status)

    def _carry(self, websocket: WebSocket) -> bytes:
        """Returns the last message, which has the exit status."""
        websocket.settimeout(PATIENCE)
        poll = select.poll()
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


CLOSED = -1
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
        nodes=tuple(controller.hosts), deadline=round(min(limits.duration, LONGEST_RUN)) + MARGIN,
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
        self._events: Queue[tuple[str, int, bytes]] = Queue(WAITING_CHUNKS)
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
            self._look(now)
        with suppress(Empty):
            self._event(*self._events.get(timeout=TICK))
            for _ in range(WAITING_CHUNKS):
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

    def _look(self, now: float) -> None:
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
                self._consider(pod, now)
        if now - self._begun > PREPARING:
            for node in sorted(self._due):
                self._give_up(node, f"no pod ran on it within {PREPARING:.0f} s: {delays.get(node, '')}".rstrip(": "))

    def _consider(self, pod: Pod, now: float) -> None:
        if text := failure(pod):
            self._give_up(pod.node, text)
        elif pod.runs:
            self._due.discard(pod.node)
            self._controller.connecting(pod.node, now)
            self._pipes[pod.node] = Pipe(pod.node, self._events, self._connecting(pod.metadata.name))

    def _connecting(self, pod: str) -> Callable[[], WebSocket]:
        return lambda: self._access.execute(self._deployment, pod)

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
        elif channel == CLOSED:
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
