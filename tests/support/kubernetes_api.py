"""A small API server of Kubernetes: nodes, Jobs, DaemonSets, their pods, and *exec* of a command on this machine.

It validates what is created against the published schemas, runs a "pod" on each node that a DaemonSet names, and
removes what belongs to an owner that was deleted. An exec starts the command that the test gives for the node.
Rights are those of ``share/kubernetes/rights.yaml``; refusals, and what the controller of DaemonSets makes of them, are
worded as by Kubernetes 1.36.
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
import yaml

from tests.support.tls_front import TlsFront

VERSION = "1.36"
RIGHTS = Path(__file__).resolve().parents[2] / "share" / "kubernetes" / "rights.yaml"
USER = "system:serviceaccount:tracing:tracer"
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
        self.rights = {
            (verb, group, resource, role["kind"] == "ClusterRole")
            for role in yaml.safe_load_all(RIGHTS.read_text()) for rule in role["rules"]
            for verb in rule["verbs"] for group in rule["apiGroups"] for resource in rule["resources"]
        }  # fmt: skip
        """Verb, group, resource, and whether it is for the cluster or for the namespace ``tracing``."""
        self.level = "privileged"
        """Pod Security of the namespace."""
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

    def forbidden(self, verb: str, group: str, resource: str, namespace: str, name: str) -> str:
        """What is said of a request that the user may not make; empty for others."""
        if (verb, group, resource, True) in self.rights:
            return ""
        if namespace == "tracing" and (verb, group, resource, False) in self.rights:
            return ""
        kind = ".".join(filter(None, (resource.partition("/")[0], group)))
        subject = f'{kind} "{name}"' if name else kind
        where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
        return (
            f'{subject} is forbidden: User "{USER}" cannot {verb} resource "{resource}" in API group "{group}" {where}'
        )

    def refuse(self, verb: str, resource: str) -> None:
        """Take a right away."""
        self.rights = {right for right in self.rights if (right[0], right[2]) != (verb, resource)}

    def refused_pods(self, spec: Mapping[str, Any]) -> str:
        """What Pod Security says of a pod."""
        found = []
        if spec.get("hostPID"):
            found.append("host namespaces (hostPID=true)")
        if mounts := [each["name"] for each in spec["volumes"] if "hostPath" in each]:
            found.append(f"hostPath volumes (volumes {', '.join(map(json.dumps, mounts))})")
        return f'violates PodSecurity "{self.level}:latest": {", ".join(found)}' if self.level != "privileged" else ""

    def events(self, selector: str) -> list[dict[str, Any]]:
        """Events of the controller of DaemonSets."""
        wanted = dict(each.split("=") for each in selector.split(","))
        made = self.objects.get(f"{wanted['involvedObject.kind']}/{wanted['involvedObject.name']}")
        text = self.refused_pods(made["spec"]["template"]["spec"]) if made else ""
        if not made or not text or wanted["reason"] != "FailedCreate":
            return []
        name = made["metadata"]["name"]
        return [{
            "metadata": {"name": f"{name}.18"}, "involvedObject": {"kind": "DaemonSet", "name": name},
            "reason": "FailedCreate", "message": f'Error creating: pods "{name}-x2k7p" is forbidden: {text}',
        }]  # fmt: skip

    def pods(self, selector: str) -> list[dict[str, Any]]:
        found = []
        with self.lock:
            sets = [each for each in self.objects.values() if each["kind"] == "DaemonSet"]
        for each in sets:
            labels = each["spec"]["template"]["metadata"]["labels"]
            if selector not in [f"{key}={value}" for key, value in labels.items()]:
                continue
            spec = each["spec"]["template"]["spec"]
            if self.refused_pods(spec):
                continue
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
        # The controller of DaemonSets puts the one node in place of all terms; the scheduler binds the pod.
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        return {
            "metadata": {"name": f"{name}-{node}", "namespace": "tracing", "uid": str(uuid.uuid4())},
            "spec": {**spec, "affinity": affinity, "nodeName": node},
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

    def forbidden(self, verb: str) -> bool:
        """Whether the request was refused, as the user has no right to make it."""
        parts = urlsplit(self.path).path.strip("/").split("/")
        group = parts[1] if parts[0] == "apis" else ""
        parts = parts[3:] if parts[0] == "apis" else parts[2:]
        namespace = parts[1] if parts[0] == "namespaces" and len(parts) > 2 else ""
        resource, *rest = parts[2:] if namespace else parts
        text = self.api.forbidden(verb, group, "/".join([resource, *rest[1:]]), namespace, (rest or [""])[0])
        if text:
            self.fail(403, text)
        return bool(text)

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        selector = query.get("labelSelector", [""])[0]
        parts = url.path.strip("/").split("/")
        if parts[-1] == "exec":
            if not self.forbidden("get") and not self.forbidden("create"):
                self.execute(parts[-2], query)
        elif self.forbidden("list"):
            return
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
        elif parts[-1] == "events":
            items = self.api.events(query["fieldSelector"][0])
            self.answer(200, {"kind": "EventList", "apiVersion": "v1", "metadata": {}, "items": items})
        else:
            self.fail(404, f"no {self.path}")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.forbidden("create"):
            return
        try:
            self.answer(201, self.api.create(body))
        except kubernetes_validate.ValidationError as error:
            self.fail(422, f"invalid: {error}")

    def do_DELETE(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.rfile.read(length)
        if self.forbidden("delete"):
            return
        *_, kinds, name = urlsplit(self.path).path.split("/")
        if self.api.delete({"jobs": "Job", "daemonsets": "DaemonSet"}[kinds], name):
            self.answer(200, {"kind": "Status", "status": "Success"})
        else:
            self.fail(404, f"{kinds} {name} not found")

    # ---- exec: the WebSocket of RFC 6455 with a channel in the first byte of each message

    def execute(self, pod: str, query: Mapping[str, Sequence[str]]) -> None:
        asked = {key: query[key][0].lower() for key in ("container", "stdin", "stdout", "stderr", "tty")}
        assert asked == {"container": "pytrace", "stdin": "true", "stdout": "true", "stderr": "true", "tty": "false"}
        assert query["command"] == ["pytrace", "agent"]
        node = next(node for node in self.api.nodes if pod.endswith(f"-{node}"))
        words = self.api.command(node)
        assert words is not None
        key = self.headers["Sec-WebSocket-Key"] + GUID
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        # The newest that the client offers, as since Kubernetes 1.29.
        self.send_header("Sec-WebSocket-Protocol", self.headers["Sec-WebSocket-Protocol"].split(",")[0])
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


def configuration(folder: Path, server: ThreadingHTTPServer | TlsFront) -> Path:
    """The user's configuration for the server, or what is before it."""
    path = folder / "kubeconfig"
    if isinstance(server, TlsFront):
        cluster = {"server": f"https://127.0.0.1:{server.port}", "certificate-authority": str(server.certificate)}
    else:
        cluster = {"server": f"http://127.0.0.1:{server.server_port}"}
    path.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "clusters": [{"name": "here", "cluster": cluster}],
        "users": [{"name": "me", "user": {"token": "secret"}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me", "namespace": "tracing"}}],
    }))  # fmt: skip
    return path
