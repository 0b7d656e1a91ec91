"""Node sets, groups and workers of ClusterShell. tests/kernel/test_fleet.py asks hosts through it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from ClusterShell.Defaults import _load_workerclass
from ClusterShell.Event import EventHandler
from ClusterShell.NodeSet import set_std_group_resolver
from ClusterShell.NodeUtils import GroupResolverConfig
from ClusterShell.Task import task_self
from ClusterShell.Worker.Exec import ExecClient, ExecWorker

from pytrace.core.diagnostics import TraceError
from pytrace.remote import clustershell
from pytrace.remote.carriage import WORKERS
from pytrace.remote.messages import Route

GROUPS = """
[Main]
default: zone
[zone]
map: case $GROUP in a) echo web[1-2];; b) echo web[3-4],db1;; esac
all: echo web[1-4],db1
list: echo a b
"""


@pytest.fixture
def groups(tmp_path: Path) -> Iterator[None]:
    (tmp_path / "groups.conf").write_text(GROUPS)
    set_std_group_resolver(GroupResolverConfig(str(tmp_path / "groups.conf")))
    yield
    set_std_group_resolver(None)


def test_names_and_node_sets(groups: None) -> None:
    assert clustershell.names("web[001-003],db") == ["db", "web001", "web002", "web003"]
    assert clustershell.names("@a") == ["web1", "web2"]
    assert clustershell.fold(["web3", "db", "web1", "web2"]) == "db,web[1-3]"


def test_labels_are_groups(groups: None) -> None:
    assert clustershell.labels(["web1", "db1", "other"], "zone") == {"web1": "a", "db1": "b", "other": "-"}


@pytest.mark.parametrize("text", ["web[1-", "", "@nowhere:x"])
def test_other_hosts_are_errors(text: str, groups: None) -> None:
    with pytest.raises(TraceError, match="--hosts"):
        clustershell.names(text)


def test_labels_of_answers(groups: None) -> None:
    assert clustershell.label(None, ["web1"]) is None
    for by, expected in (("host", "web1"), ("zone", "a")):
        label = clustershell.label(by, ["web1"])
        assert label is not None
        assert label("web1") == expected


def test_there_is_no_such_source(groups: None) -> None:
    with pytest.raises(TraceError, match="--by rack:"):
        clustershell.labels(["web1"], "rack")


@pytest.mark.parametrize("worker", WORKERS)
def test_workers_have_a_process_for_each_host(worker: str) -> None:
    made = clustershell._reading_worker(_load_workerclass(worker))
    assert issubclass(made, ExecWorker)
    assert issubclass(made.SHELL_CLASS, ExecClient)
    for name in ("_handle_read", "_flush_read", "_read"):
        assert hasattr(ExecClient, name), "what is overridden is there in this release"


def test_the_status_of_a_command_by_rsh(tmp_path: Path) -> None:
    """ClusterShell has the command print it, as rsh returns 0 for any; it is no part of what the agent said."""
    said: list[bytes] = []

    class Handler(EventHandler):  # type: ignore[misc]
        def data(self, _worker: object, _node: str, _stream: str, data: bytes) -> None:
            said.append(data)

        def ev_hup(self, _worker: object, _node: str, rc: int) -> None:
            said.append(b"%d" % rc)

    rsh = tmp_path / "rsh"
    rsh.write_text('#!/bin/sh\nshift\nsh -c "$*"\n')
    rsh.chmod(0o755)
    task = task_self()
    task.set_info("rsh_path", str(rsh))
    worker = clustershell._reading_worker(_load_workerclass("rsh"))
    task.schedule(worker("a1", handler=Handler(), command="echo x; sh -c 'exit 7'", timeout=None))
    task.resume()
    assert (b"".join(said[:-1]), said[-1]) == (b"x\n", b"7")


def test_routes_of_a_topology(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = socket.gethostname().partition(".")[0]
    folder = tmp_path / "clustershell"
    folder.mkdir()
    path = folder / "topology.conf"
    path.write_text(f"[routes]\n{here}: g[1-2]\ng1: s1,a[1-3]\ng2: b[1-3]\ns1: c[1-4]\n")
    wanted = (
        Route(gateway="g1", hosts=("a1", "a3", "s1"), routes=(Route(gateway="s1", hosts=("c1", "c2")),)),
        Route(gateway="g2", hosts=("b1",)),
    )  # fmt: skip
    hosts = ["z9", "c2", "a1", "a3", "s1", "g1", "b1", "c1"]
    assert clustershell.routes(hosts, str(path)) == wanted
    assert clustershell.routes(["z9", "g1"], str(path)) == ()
    # The file of ClusterShell's configuration.
    monkeypatch.setenv("CLUSTERSHELL_CFGDIR", str(folder))
    assert clustershell.routes(hosts) == wanted
    assert clustershell.routes(hosts, "none") == ()


WRONG = (
    ("[routes]\nelsewhere: a1\n", "is not a valid root node"), ("x", "Invalid configuration file"),
    ("[routes]\na: b\nb: a\n", "Loop detected"), ("[routes]\na[: b\n", "a["),
)  # fmt: skip


@pytest.mark.parametrize(("text", "error"), WRONG)
def test_wrong_topologies(text: str, error: str, tmp_path: Path) -> None:
    (tmp_path / "t").write_text(text)
    with pytest.raises(TraceError) as caught:
        clustershell.routes(["a1"], str(tmp_path / "t"))
    assert error in caught.value.message
    with pytest.raises(TraceError, match="cannot read the topology"):
        clustershell.routes(["a1"], str(tmp_path / "nowhere"))
