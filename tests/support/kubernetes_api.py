"""A small API server of Kubernetes: nodes, Jobs, DaemonSets, their pods, and *exec* of a command on this machine.

It validates what is created against the published schemas, runs a "pod" on each node that a DaemonSet names, and
removes what belongs to an owner that was deleted. An exec starts the command that the test gives for the node.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import struct
import subprocess
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import kubernetes_validate

VERSION = "1.33"
GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Api:
    """The state of the cluster; :meth:`serve` listens on the loopback interface."""

    def __init__(self, nodes: Mapping[str, Mapping[str, str]], command: Callable[[str], Sequence[str] | None]) -> None:
        """*nodes*: labels by name. *command* is what an exec on a node runs; None: its pod does not start."""
        self.nodes, self.command = nodes, command
        self.objects: dict[str, dict[str, Any]] = {}
        """What was created and not removed, by ``kind/name``."""
        self.created: list[dict[str, Any]] = []
        self.others: list[dict[str, Any]] = []
        """Pods of other people."""
        self.forbidden: set[str] = set()
        """Kinds that may not be created or listed."""
        self.processes: list[subprocess.Popen[bytes]] = []
        self.lock = threading.Lock()

    def serve(self) -> ThreadingHTTPServer:
        api = self

        class Bound(Handler):
            pass

        Bound.api = api
        server = Server(("127.0.0.1", 0), Bound)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    def create(self, body: dict[str, Any]) -> dict[str, Any]:
        kubernetes_validate.validate(body, VERSION, strict=True)
        body = json.loads(json.dumps(body))
        body["metadata"]["uid"] = str(uuid.uuid4())
        with self.lock:
            self.created.append(body)
            self.objects[f"{body['kind']}/{body['metadata']['name']}"] = body
        return body

    def delete(self, kind: str, name: str) -> bool:
        with self.lock:
            gone = self.objects.pop(f"{kind}/{name}", None)
            if gone is None:
                return False
            for key, other in list(self.objects.items()):
                owners = other["metadata"].get("ownerReferences", ())
                if any(owner["uid"] == gone["metadata"]["uid"] for owner in owners):
                    del self.objects[key]
        return True

    def pods(self, selector: str) -> list[dict[str, Any]]:
        found = []
        with self.lock:
            sets = [each for each in self.objects.values() if each["kind"] == "DaemonSet"]
        for each in sets:
            labels = each["spec"]["template"]["metadata"]["labels"]
            if selector not in [f"{key}={value}" for key, value in labels.items()]:
                continue
            spec = each["spec"]["template"]["spec"]
            terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            for term in terms["nodeSelectorTerms"]:
                (node,) = term["matchFields"][0]["values"]
                if node in self.nodes:
                    found.append(self.pod(each["metadata"]["name"], node, spec))
        return found

    def pod(self, name: str, node: str, spec: Mapping[str, Any]) -> dict[str, Any]:
        starts = self.command(node) is not None
        waiting = {"waiting": {"reason": "ErrImagePull", "message": "no such image\x1b[2J"}}
        container = {
            "name": "pytrace", "ready": starts, "restartCount": 0, "image": "x", "imageID": "",
            "state": {"running": {}} if starts else waiting,
        }  # fmt: skip
        return {
            "metadata": {"name": f"{name}-{node}", "namespace": "tracing", "uid": str(uuid.uuid4())},
            "spec": {**spec, "nodeName": node},
            "status": {"phase": "Running" if starts else "Pending", "containerStatuses": [container]},
        }


class Server(ThreadingHTTPServer):
    """Says nothing of clients that were killed."""

    def handle_error(self, *_: object) -> None:
        """Say nothing."""


class Handler(BaseHTTPRequestHandler):
    """The paths that pytrace asks for."""

    api: Api
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def answer(self, status: int, body: Mapping[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def fail(self, status: int, message: str) -> None:
        self.answer(status, {"kind": "Status", "status": "Failure", "message": message, "code": status})

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        selector = query.get("labelSelector", [""])[0]
        parts = url.path.strip("/").split("/")
        if parts[-1] in self.api.forbidden:
            self.fail(403, f'{parts[-1]} is forbidden: User "eve" cannot list resource')
        elif parts[-1] == "exec":
            self.execute(parts[-2], query["command"])
        elif parts[-1] == "nodes":
            wanted = dict([selector.split("=")]) if selector else {}
            items = [
                {"metadata": {"name": name, "labels": dict(labels)}, "status": {}}
                for name, labels in self.api.nodes.items()
                if wanted.items() <= labels.items()
            ]
            self.answer(200, {"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": items})
        elif parts[-1] == "pods":
            items = self.api.pods(selector) if selector else self.api.others
            self.answer(200, {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})
        else:
            self.fail(404, f"no {self.path}")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.split("?")[0].rsplit("/", 1)[1] in self.api.forbidden:
            self.fail(403, f"{body['kind']} is forbidden")
            return
        try:
            self.answer(201, self.api.create(body))
        except kubernetes_validate.ValidationError as error:
            self.fail(422, f"invalid: {error}")

    def do_DELETE(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.rfile.read(length)
        *_, kinds, name = urlsplit(self.path).path.split("/")
        if self.api.delete({"jobs": "Job", "daemonsets": "DaemonSet"}[kinds], name):
            self.answer(200, {"kind": "Status", "status": "Success"})
        else:
            self.fail(404, f"{kinds} {name} not found")

    # ---- exec: the WebSocket of RFC 6455 with a channel in the first byte of each message

    def execute(self, pod: str, _command: Sequence[str]) -> None:
        node = next(node for node in self.api.nodes if pod.endswith(f"-{node}"))
        words = self.api.command(node)
        assert words is not None
        key = self.headers["Sec-WebSocket-Key"] + GUID
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.send_header("Sec-WebSocket-Protocol", "v4.channel.k8s.io")
        self.end_headers()
        self.close_connection = True
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.api.processes.append(process)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        sending = threading.Lock()
        readers = [
            threading.Thread(target=self.forward, args=(stream.fileno(), channel, sending), daemon=True)
            for stream, channel in ((process.stdout, 1), (process.stderr, 2))
        ]
        for reader in readers:
            reader.start()
        threading.Thread(target=self.receive, args=(process.stdin.fileno(), process), daemon=True).start()
        status = process.wait()
        for reader in readers:
            reader.join()
        failed = {"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": str(status)}]}}
        self.send(3, json.dumps(failed if status else {"status": "Success"}).encode(), sending)
        with sending:
            self.connection.sendall(b"\x88\x02\x03\xe8")

    def forward(self, descriptor: int, channel: int, sending: threading.Lock) -> None:
        while data := os.read(descriptor, 32768):
            self.send(channel, data, sending)

    def send(self, channel: int, data: bytes, sending: threading.Lock) -> None:
        payload = bytes([channel]) + data
        size = len(payload)
        head = bytes([0x82, size]) if size < 126 else b"\x82\x7e" + struct.pack(">H", size)
        with sending:
            try:
                self.connection.sendall(head + payload)
            except OSError:
                pass

    def receive(self, descriptor: int, process: subprocess.Popen[bytes]) -> None:
        try:
            while True:
                first, second = self.exactly(2)
                size = second & 127
                if size == 126:
                    (size,) = struct.unpack(">H", self.exactly(2))
                elif size == 127:
                    (size,) = struct.unpack(">Q", self.exactly(8))
                mask = self.exactly(4)
                data = bytes(byte ^ mask[at % 4] for at, byte in enumerate(self.exactly(size)))
                if first & 15 == 8:
                    break
                if first & 15 in (1, 2) and data[0] == 0:
                    os.write(descriptor, data[1:])
        except (OSError, EOFError):
            pass
        finally:
            assert process.stdin is not None
            process.stdin.close()

    def exactly(self, size: int) -> bytes:
        data = self.rfile.read(size)
        if len(data) < size:
            raise EOFError
        return data


def configuration(folder: Path, server: ThreadingHTTPServer) -> Path:
    """The user's configuration for the server."""
    host, port = server.server_address[:2]
    path = folder / "kubeconfig"
    path.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "clusters": [{"name": "here", "cluster": {"server": f"http://{host!s}:{port}"}}],
        "users": [{"name": "me", "user": {"token": "secret"}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me", "namespace": "tracing"}}],
    }))  # fmt: skip
    return path
