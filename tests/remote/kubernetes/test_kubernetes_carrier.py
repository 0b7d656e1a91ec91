"""The end of an exec. ``tests/kernel/test_kubernetes.py`` carries messages to agents."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import msgspec
import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.remote import messages
from pytrace.remote.answer import Answer
from pytrace.remote.carriage import Conversation, Stopping
from pytrace.remote.controller import Controller
from pytrace.remote.hosts import State
from pytrace.remote.kubernetes import kubernetes_carrier
from pytrace.remote.kubernetes.kubernetes_api import Client
from pytrace.remote.kubernetes.kubernetes_carrier import Pipe, _Run, exit_status
from pytrace.remote.kubernetes.pods import Cluster, Deployment, Pod
from pytrace.remote.messages import Hello, Limits, Misfit, Request, Variant
from pytrace.remote.rollout import Rollout
from pytrace.remote.variants import Outcome

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
        monkeypatch.setattr(kubernetes_carrier, name, 0.01)
    made = Controller(["a", "b"], Request(protocol=1, script="x", limits=LIMITS), Answer(None), str(folder))
    rollout = Rollout(["a", "b"], [2])
    kubernetes_carrier.ask(cast("Client", access), LIMITS, made, rollout, [].append, Stopping())
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
