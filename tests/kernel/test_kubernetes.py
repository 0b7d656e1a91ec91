"""``pytrace fleet --kubernetes`` against a small API server: pods are agents on this machine, and trace it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.agents import ROOT, call
from tests.support.kubernetes_api import Api, configuration
from tests.support.patience import patience
from tests.support.tls_front import TlsFront

pytestmark = pytest.mark.usefixtures("no_leaks")

AGENT = [sys.executable, "-m", "pytrace", "agent"]
SCRIPT = f"tracepoint:syscalls:sys_enter_getppid /pid == {os.getpid()}/ {{ @[cgroup_path(cgroup)] = count(); }}"
NODES = {
    "node-a": {"zone": "east", "role": "web"},
    "node-b": {"zone": "west", "role": "web"},
    "without-image": {"zone": "west", "role": "web"},
    "without-pytrace": {"role": "web"},
    "database": {"role": "db"},
}


def command(node: str) -> Sequence[str] | None:
    if node == "without-image":
        return None
    if node == "without-pytrace":
        return ("sh", "-c", "echo 'exec: pytrace: not found' >&2; exit 127")
    return AGENT


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.api = Api(NODES, command)
        self.server = self.api.serve()
        self.front = TlsFront(self.server.server_port, folder)
        self.environment = {**os.environ, "KUBECONFIG": str(configuration(folder, self.front))}

    def start(self, *words: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "pytrace", "fleet", "--kubernetes", "--image", "hub/pytrace:1", *words]
        return subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment, cwd=ROOT
        )

    def attached(self, process: subprocess.Popen[str]) -> str:
        assert process.stderr is not None
        return next(line for line in process.stderr if "attached on" in line)

    def close(self) -> None:
        self.front.close()
        self.server.shutdown()
        self.server.server_close()
        for process in self.api.processes:
            process.kill()
            process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    running = Cluster(tmp_path)
    yield running
    running.close()


def ended(cluster: Cluster) -> bool:
    """Whether all agents end by themselves."""
    end = time.monotonic() + patience(20)
    while time.monotonic() < end and any(process.poll() is None for process in cluster.api.processes):
        time.sleep(0.05)
    return all(process.poll() is not None for process in cluster.api.processes)


def test_nodes_answer_like_one_and_faults_are_told_by_node(cluster: Cluster) -> None:
    cluster.api.others = [{
        "metadata": {"name": "me", "namespace": "tests", "uid": "6b1a3c9e-0000-4000-8000-00000000beef"},
        "spec": {"containers": []}, "status": {"phase": "Running"},
    }]  # fmt: skip
    process = cluster.start("--nodes", "role=web", "--by", "zone", "-e", SCRIPT, "--duration", "3", "-f", "json")
    assert cluster.attached(process) == "attached on 2 of 4 nodes\n"
    call(321)
    output, errors = process.communicate(timeout=patience(60))
    (counted,) = [json.loads(line)["data"]["@"] for line in output.splitlines() if '"map"' in line]
    assert {key.split(",")[0]: count for key, count in counted.items()} == {"east": 321, "west": 321}
    assert process.returncode == 1
    assert "without-image: the pod does not start: ErrImagePull: no such image\\x1b[2J\n" in errors
    assert "without-pytrace: exec: pytrace: not found\n" in errors
    assert "2 of 4 nodes answered; 2 failed\n" in errors.replace("hosts", "nodes")
    assert cluster.api.objects == {}, "nothing is left"
    assert [made["kind"] for made in cluster.api.created] == ["Job", "DaemonSet"]
    assert {made["metadata"]["namespace"] for made in cluster.api.created} == {"tracing"}
    assert ended(cluster)


def test_interrupted_and_killed_controllers(cluster: Cluster) -> None:
    nodes = ("--nodes", "zone=east")
    process = cluster.start(*nodes, "-e", SCRIPT)
    cluster.attached(process)
    call(7)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=patience(60))
    assert process.returncode == 0, errors
    assert re.search(r"^@\[.*\]: 7$", output, re.MULTILINE)
    assert cluster.api.objects == {}
    process = cluster.start(*nodes, "-e", SCRIPT)
    cluster.attached(process)
    process.kill()
    process.communicate(timeout=patience(60))
    assert ended(cluster), "the input of the agent has ended"
    (job,) = [made for made in cluster.api.objects.values() if made["kind"] == "Job"]
    assert job["spec"]["activeDeadlineSeconds"] > 0
    assert job["spec"]["ttlSecondsAfterFinished"] == 0
    # What the cluster does after the deadline.
    cluster.api.delete("Job", job["metadata"]["name"])
    assert cluster.api.objects == {}


USER = "system:serviceaccount:tracing:tracer"
NAMESPACE = 'in the namespace "tracing"'


@pytest.mark.parametrize(
    ("verb", "resource", "group", "action", "where"),
    [
        ("list", "nodes", "", "list nodes", "at the cluster scope"),
        ("create", "jobs", "batch", "create a Job in namespace tracing", NAMESPACE),
        ("create", "daemonsets", "apps", "create a DaemonSet in namespace tracing", NAMESPACE),
    ],
)
def test_what_the_cluster_refuses(
    verb: str, resource: str, group: str, action: str, where: str, cluster: Cluster
) -> None:
    cluster.api.refuse(verb, resource)
    process = cluster.start("-e", SCRIPT, "--duration", "1")
    _, errors = process.communicate(timeout=patience(60))
    subject = f"{resource}.{group}" if group else resource
    refusal = (
        f'{subject} is forbidden: User "{USER}" cannot {verb} resource "{resource}" in API group "{group}" {where}'
    )
    assert (process.returncode, errors) == (1, f"ERROR: cannot {action}: {refusal}\n")
    assert cluster.api.objects == {}


@pytest.mark.parametrize("verb", ["get", "create"])
def test_exec_is_refused(verb: str, cluster: Cluster) -> None:
    cluster.api.refuse(verb, "pods/exec")
    process = cluster.start("--nodes", "zone=east", "-e", SCRIPT, "--duration", "1")
    _, errors = process.communicate(timeout=patience(60))
    refusal = f'is forbidden: User "{USER}" cannot {verb} resource "pods/exec" in API group "" {NAMESPACE}'
    assert re.search(rf'^node-a: exec: pods "pytrace-\w+-node-a" {re.escape(refusal)}$', errors, re.MULTILINE), errors
    assert process.returncode == 1
    assert cluster.api.objects == {}


def test_a_namespace_that_does_not_admit_the_pods(cluster: Cluster) -> None:
    cluster.api.level = "baseline"
    process = cluster.start("-e", SCRIPT, "--duration", "1")
    _, errors = process.communicate(timeout=patience(60))
    assert process.returncode == 1
    error, hint = errors.splitlines()
    assert error.startswith("ERROR: cannot make pods in namespace tracing: pods ")
    assert 'violates PodSecurity "baseline:latest": host namespaces (hostPID=true), hostPath volumes' in error
    assert "kubectl label namespace tracing pod-security.kubernetes.io/enforce=privileged" in hint
    assert cluster.api.objects == {}
