"""Many hosts from Python."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pytrace
from pytrace.core.diagnostics import TraceError
from pytrace.remote.carriage import Carriage
from pytrace.remote.fleet import Fleet, of_node_set
from pytrace.remote.fleet import of_cluster as hosts_of_cluster
from tests.support.kubernetes_api import Api, configuration

# ---------------------------------------------------------------------------------------------- fleet
# Many hosts from Python, with agents that are programs of the test. tests/kernel/test_fleet.py has real ones.


ROOT = Path(__file__).resolve().parents[2]

AGENT = '''
import sys
sys.path.insert(0, {root!r})
from pytrace.remote import messages as m
from pytrace.results import file_form
from tests.support.snapshots import COUNT, STRING, map_data, run, snapshot

def say(*said):
    sys.stdout.buffer.write(b"".join(map(m.encode, said)))
    sys.stdout.flush()

def counted(count):
    data = snapshot(map_data("@", STRING, COUNT, {{"x": count}}), of=run(sys.argv[1]))
    return m.Snapshot(number=count, data=file_form.to_bytes(data))

say(m.Hello(protocol=1, version="0", host="h", kernel="6.1", machine="x", wall=0, monotonic=0))
for line in sys.stdin.buffer:
    message = m.to_agent(line)
    if isinstance(message, m.Beat):
        say(m.Clock(message.sent, message.sent, message.sent))
    elif isinstance(message, m.Request):
        say(m.Attached(probes=1, compiled_here=True), m.Warned("w"), counted(2))
        if sys.argv[1].endswith("9"):
            say(m.End(reason="duration", status=0))
        elif sys.argv[1].endswith("3"):
            say(m.End(reason="error", status=1, error="ERROR: no"))
    else:
        say(counted(5), m.End(reason="stop", status=0))
'''


@pytest.fixture
def command(tmp_path: Path) -> str:
    path = tmp_path / "agent.py"
    path.write_text(AGENT.format(root=str(ROOT)))
    return f"{sys.executable} {path} %h"


def asked(command: str, nodes: str = "a[1-3]") -> Fleet:
    return pytrace.fleet("begin { @ = 1; }", nodes, worker="exec", agent=command, compile_there=True)


def until_all_said(fleet: Fleet, snapshot: pytrace.Snapshot) -> bool:
    """Whether all three have said 2; then they are told to stop."""
    return snapshot.maps.get("@") is not None and snapshot.to_dict("@")["x"] == 6


def test_answers_come_as_snapshots(command: str) -> None:
    fleet = asked(command)
    with fleet:
        for snapshot in fleet:
            if not fleet.ended and until_all_said(fleet, snapshot):
                fleet.stop()
    assert snapshot.to_dict("@") == {"x": 12}
    assert fleet.snapshot().to_dict("@") == {"x": 12}
    assert fleet.snapshot().losses == {"hosts without an answer": {"cut short": 1}}
    assert not fleet.complete
    assert fleet.summary == "2 of 3 hosts answered; 1 cut short"
    report = fleet.hosts["a3"]
    assert (report.state, report.reason, report.status, report.kernel, report.warnings) == (
        "cut short", "no", 1, "6.1", ("w",)
    )  # fmt: skip
    assert report.clock is not None
    with pytest.raises(RuntimeError, match="asked once"):
        fleet.__enter__()


def test_asyncio(command: str) -> None:
    async def ask() -> tuple[int, Fleet]:
        number = 0
        async with asked(command) as fleet:
            async for snapshot in fleet:
                number += 1
                if not fleet.ended and until_all_said(fleet, snapshot):
                    fleet.stop()
                    fleet.stop()  # results are waited for all the same
        return number, fleet

    number, fleet = asyncio.run(ask())
    assert number >= 2
    assert fleet.snapshot().to_dict("@") == {"x": 12}


def test_a_stage_begins_when_the_runs_of_the_one_before_have_ended(command: str) -> None:
    fleet = pytrace.fleet("begin { @ = 1; }", ["a9", "b9", "c9", "d9"], worker="exec", agent=command,
                          compile_there=True, stage="1,2,all", soak=3600)  # fmt: skip
    assert fleet.run().to_dict("@") == {"x": 8}
    assert fleet.complete


def test_leaving_the_block_ends_the_runs(command: str) -> None:
    with asked(command, "a[1-2]") as fleet:
        next(snapshot for snapshot in fleet if snapshot.runs)
    assert fleet.ended
    assert {report.state for report in fleet.hosts.values()} <= {"answered", "not asked"}


def test_an_error_in_the_block_does_not_wait_for_results(command: str) -> None:
    fleet = asked(command, "a[1-2]")
    with pytest.raises(KeyError), fleet:
        raise KeyError
    assert fleet.ended


@pytest.fixture
def cluster(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """Two nodes, in whose pods the program of the test runs, and one whose pod does not start."""
    words = command.split()[:-1]
    api = Api(
        {"a9": {"zone": "east"}, "b1": {"zone": "west"}, "c1": {"zone": "west"}},
        lambda node: None if node == "c1" else [*words, node],
    )
    server = api.serve()
    monkeypatch.setenv("KUBECONFIG", str(configuration(tmp_path, server)))
    yield api
    server.shutdown()
    server.server_close()
    for process in api.processes:
        process.wait()


def of_cluster(**arguments: Any) -> Fleet:
    return pytrace.fleet("begin { @ = 1; }", pytrace.Cluster(image="hub/pytrace:1"), compile_there=True, **arguments)


def test_nodes_of_a_cluster(cluster: Api) -> None:
    told: list[str] = []
    fleet = of_cluster(by="zone", tell=told.append)
    with fleet:
        for snapshot in fleet:
            if not fleet.ended and "@" in snapshot.maps and len(snapshot.to_dict("@")) == 2 and told:
                fleet.stop()
    assert fleet.snapshot().to_dict("@") == {("east", "x"): 2, ("west", "x"): 5}
    assert fleet.summary == "2 of 3 hosts answered; 1 failed"
    assert told == ["attached on 2 of 3 nodes"]
    assert fleet.report() == [
        "WARNING: a9,b1: w", "c1: the pod does not start: ErrImagePull: no such image\\x1b[2J",
    ]  # fmt: skip
    assert cluster.objects == {}, "nothing is left"


def test_nodes_of_a_cluster_with_asyncio(cluster: Api) -> None:
    async def ask() -> Fleet:
        async with of_cluster() as fleet:
            async for snapshot in fleet:
                if not fleet.ended and snapshot.maps and snapshot.to_dict("@").get("x") == 4:
                    fleet.stop()
        return fleet

    assert asyncio.run(ask()).snapshot().to_dict("@") == {"x": 7}
    cluster.refuse("create", "jobs")
    with pytest.raises(pytrace.TraceError, match=r"in namespace tracing: jobs\.batch is forbidden"):
        of_cluster().run()
    cluster.refuse("list", "nodes")
    with pytest.raises(pytrace.TraceError, match="cannot list nodes"):
        of_cluster()
    with pytest.raises(pytrace.TraceError, match="push and become are for hosts"):
        of_cluster(push="keep")


def test_arguments(command: str) -> None:
    for arguments, error, text in (
        ({"own_threads": False}, TypeError, "fleet.. takes no argument 'own_threads'"),
        ({"pid": 5}, TypeError, "fleet.. takes no argument 'pid'"),
        ({"pidd": 5}, TypeError, "unexpected keyword argument 'pidd'"),
        ({"worker": "pdsh"}, pytrace.TraceError, "a worker is one of"),
        ({"stage": "5"}, pytrace.TraceError, "--stage takes"),
        ({"every": 0.0}, ValueError, "every is 0.0"),
        ({"by": "nowhere"}, pytrace.TraceError, "--by nowhere"),
    ):
        with pytest.raises(error, match=text):  # type: ignore[arg-type]
            pytrace.fleet("begin { }", ["a"], **arguments)  # type: ignore[arg-type]
    with pytest.raises(pytrace.ScriptError):
        pytrace.fleet("begin { @ = ; }", "a")
    with pytest.raises(RuntimeError, match="not asked yet"):
        asked(command).snapshot()


# ---------------------------------------------------------------------------------------------- asked hosts
# Who is asked by a fleet.


def test_node_sets() -> None:
    asked = of_node_set("web[1-3]", "host", Carriage())
    assert asked.names == ["web1", "web2", "web3"]
    assert asked.label is not None
    assert asked.label("web2") == "web2"
    assert asked.fold(asked.names) == "web[1-3]"
    assert of_node_set(["b", "a"], None, Carriage()).label is None


def test_asked_hosts_nodes_of_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api({"b": {"zone": "east"}, "a": {}}, lambda _: None)
    server = api.serve()
    monkeypatch.setenv("KUBECONFIG", str(configuration(tmp_path, server)))
    cluster = pytrace.Cluster(image="hub/pytrace:1")
    try:
        asked = hosts_of_cluster(cluster, "zone", "")
        assert asked.names == ["a", "b"]
        assert asked.label is not None
        assert list(map(asked.label, asked.names)) == ["-", "east"]
        assert asked.fold(asked.names) == "a,b"
        with pytest.raises(TraceError, match="no node of the cluster has the labels 'zone=west'"):
            hosts_of_cluster(pytrace.Cluster(image="x", labels="zone=west"), None, "")
        with pytest.raises(TraceError, match="--by rack: no node has such a label"):
            hosts_of_cluster(cluster, "rack", "")
    finally:
        server.shutdown()
        server.server_close()


def test_what_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("clustershell", "kubernetes"):
        monkeypatch.setitem(sys.modules, f"pytrace.remote.{name}", None)
        monkeypatch.delattr(f"pytrace.remote.{name}", raising=False)
    with pytest.raises(TraceError, match="asking hosts needs ClusterShell"):
        of_node_set("a", None, Carriage())
    with pytest.raises(TraceError, match="asking a cluster needs the Kubernetes client"):
        hosts_of_cluster(pytrace.Cluster(image="x"), None, "")
