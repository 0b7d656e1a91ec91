"""Pytrace is carried to hosts, and runs there."""

from __future__ import annotations

import gzip
import hashlib
import io
import platform
import signal
import socket
import sys
import tarfile
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
from ClusterShell.Defaults import _load_workerclass
from ClusterShell.Event import EventHandler
from ClusterShell.NodeSet import set_std_group_resolver
from ClusterShell.NodeUtils import GroupResolverConfig
from ClusterShell.Task import task_self
from ClusterShell.Worker.Exec import ExecClient, ExecWorker

from pytrace.base.interruption import interruptions
from pytrace.core.diagnostics import TraceError
from pytrace.remote import clustershell, messages, push
from pytrace.remote.answer import Answer
from pytrace.remote.carriage import LEAVE, WORKERS, Carriage, Conversation, Relayed, Rollout, Stopping
from pytrace.remote.controller import Controller
from pytrace.remote.fleet import stage_sizes
from pytrace.remote.hosts import Host, State
from pytrace.remote.messages import Beat, Code, Limits, Need, Request, Route, Send, Stop, ToAgent
from pytrace.remote.push import Archive, Pusher
from tests.support.patience import patience

# ---------------------------------------------------------------------------------------------- carriage
# How agents are started, and what they are told as time passes.


def test_become_is_sudo_without_a_password() -> None:
    assert Carriage().started == "pytrace agent"
    assert Carriage(become=True, command="x").started == "sudo -n x"


def test_other_workers_are_errors() -> None:
    with pytest.raises(TraceError, match="a worker is one of ssh, rsh, exec, not 'pdsh'"):
        Carriage(worker="pdsh")


def test_each_interruption_asks_for_the_end() -> None:
    before, asked = signal.getsignal(signal.SIGTERM), []
    with interruptions(lambda: asked.append(1)):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.raise_signal(number)
    assert len(asked) == 2
    assert signal.getsignal(signal.SIGTERM) is before


class Agent:
    """A connection that keeps what is written."""

    def __init__(self) -> None:
        self.said: list[ToAgent] = []

    def write(self, data: bytes, /) -> None:
        self.said.append(messages.to_agent(data))


def test_beats_stages_and_the_end(tmp_path: Path) -> None:
    """Three hosts in two stages: the first one runs, the second one is not asked yet when the end comes."""
    names, told, stopping = ["a", "b", "c"], [], Stopping()
    request = Request(protocol=1, script="x", limits=Limits(duration=60, heartbeat=8))
    controller = Controller(names, request, Answer(None), str(tmp_path))
    rollout = Rollout(names, stage_sizes("1,all", 3), soak=5)
    talk: Conversation[Agent] = Conversation(8, controller, rollout, told.append, stopping, "host")
    assert talk.due() == ["a"]
    talk.connections["a"] = first = Agent()
    controller.connecting("a", 100)
    assert talk.step(100) == set()
    assert first.said == [], "the request was not sent yet"
    a = controller.hosts["a"]
    a.asked, a.state, a.attached, a.watched, a.heard = True, State.RUNNING, 101, 5, 103
    assert talk.step(103) == set()
    assert [type(said) for said in first.said] == [Beat]
    assert talk.step(104) == set()
    assert len(first.said) == 1, "a beat in a quarter of the heartbeat"
    assert told == ["stage 1 of 2: attached on 1 of 1 host"]
    assert talk.due() == ["b", "c"]
    talk.connections["b"] = second = Agent()
    controller.connecting("b", 104)
    assert not talk.late(104)
    stopping.count = 1
    assert talk.step(104.5) == {"b", "c"}
    assert [type(said) for said in first.said] == [Beat, Stop]
    assert second.said == []
    assert talk.due() == ()
    assert not talk.late(104.5 + LEAVE)
    assert talk.late(104.6 + LEAVE)
    stopping.count = 2
    assert talk.late(104.6)


def test_silent_hosts_are_given_up(tmp_path: Path) -> None:
    request = Request(protocol=1, script="x", limits=Limits(duration=60))
    controller = Controller(["a"], request, Answer(None), str(tmp_path))
    talk: Conversation[Agent] = Conversation(8, controller, Rollout(["a"], [1]), lambda _: None, Stopping(), "host")
    talk.due()
    controller.connecting("a", 0)
    talk.connections["a"] = Agent()
    assert talk.step(1000) == {"a"}
    assert controller.hosts["a"].state is State.SILENT


# ---------------------------------------------------------------------------------------------- push
# What is pushed to hosts without pytrace. tests/remote/test_agent.py has the other side.


OWN = (f"3.{sys.version_info[1]}", platform.machine())


def test_an_archive_has_the_runtime_part_and_its_packages() -> None:
    made = push.archive(*OWN)
    assert made.digest == hashlib.sha256(made.data).hexdigest()
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(made.data))) as opened:
        names = opened.getnames()
    assert {"pytrace/remote/agent.py", "pytrace/runtime/session/session.py", "msgspec/__init__.py"} <= set(names)
    folders = {name.split("/")[0] for name in names}
    assert {"pytrace", "msgspec", "elftools", "pyroute2", "zstandard", "ClusterShell"} <= folders
    assert not {"llvmlite", "clang", "ply", "textual"} & folders
    assert not [name for name in names if name.startswith(("pytrace/frontend", "pytrace/codegen", "/")) or ".." in name]


def test_equal_contents_have_equal_archives() -> None:
    assert push._tar({"a": b"x", "b": b"y"}) == push._tar({"b": b"y", "a": b"x"})


NO_CODE = ("../bin/x", "/etc/x", "a-1.dist-info/RECORD", "a-1.data/x", "a/__pycache__/b.pyc", "a/")


@pytest.mark.parametrize("name", NO_CODE)
def test_what_is_no_code_is_left_out(name: str) -> None:
    assert not push._is_code(name)
    assert push._is_code("a/b.py")


def until_made(pusher: Pusher, need: Need, send: Send | None = None) -> bytes:
    end = time.monotonic() + patience(30)
    while not (said := pusher.answer(need, send)):
        assert time.monotonic() < end
        time.sleep(0.01)
    return said


def test_a_host_takes_it_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, str]] = []

    def archive(python: str, machine: str) -> Archive:
        made.append((python, machine))
        return Archive(b"x" * (push.CHUNK + 5), "digest")

    monkeypatch.setattr(push, "archive", archive)
    pusher, need = Pusher(once=True), Need(python="3.12", machine="x86_64")
    assert messages.to_agent(until_made(pusher, need)) == Code(digest="digest", size=push.CHUNK + 5, once=True)
    assert len(until_made(pusher, need, Send(start=0))) == push.CHUNK
    assert until_made(pusher, need, Send(start=push.CHUNK)) == b"xxxxx"
    assert pusher.answer(need, Send(start=1 << 60)) == b""
    assert made == [("3.12", "x86_64")]


def test_what_gateways_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """They hand it on in parts."""
    monkeypatch.setattr(push, "archive", lambda *_: Archive(b"xy", "digest"))
    pusher, need = Pusher(once=True), Need(python="3.12", machine="x86_64")
    until_made(pusher, need)
    assert pusher.forwarded(need) == messages.Archive(python="3.12", machine="x86_64", data=b"xy")
    refused = pusher.forwarded(Need(python="2.7", machine="x86_64"))
    assert refused is not None
    assert refused.error.startswith("nothing can be pushed there")
    future: Future[Archive] = Future()
    gateway = Pusher(once=False, make=lambda *_: future)
    assert gateway.answer(need, None) == b""
    future.set_result(Archive(b"xy", "digest"))
    assert messages.to_agent(gateway.answer(need, None)) == Code(digest="digest", size=2, once=False)


OTHERS = (("3.10", "x86_64"), ("3.20", "x86_64"), ("2.7", "x86_64"), ("3.12; rm", "x86_64"), ("3.12", "m68k"), ("", ""))


@pytest.mark.parametrize("kind", OTHERS)
def test_other_hosts_are_refused(kind: tuple[str, str]) -> None:
    with pytest.raises(TraceError, match=r"it needs Python 3.11 to 3.19 on x86_64 or aarch64"):
        Pusher(once=False).answer(Need(python=kind[0], machine=kind[1]), None)


def test_packages_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pip = tmp_path / "pip"
    pip.write_text("#!/bin/sh\necho 'ERROR: no such version' >&2; exit 1\n")
    pip.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(pip))
    pusher = Pusher(once=False)
    with pytest.raises(TraceError, match=r"no packages for Python 3.19 on aarch64: ERROR: no such version"):
        until_made(pusher, Need(python="3.19", machine="aarch64"))


def test_the_program_is_what_a_shell_and_clustershell_pass_on() -> None:
    text = push.bootstrap()
    assert "%" not in text, "the worker exec replaces %h"
    assert len(text) < 20_000
    compile(text, "bootstrap", "exec")


# ---------------------------------------------------------------------------------------------- rollout
# Stages of a roll-out: when the next one begins, and what stops it.


NAMES = [f"web{number}" for number in range(20)]


def test_stages_are_rising_numbers() -> None:
    assert stage_sizes("all", 400) == [400]
    assert stage_sizes("1,10,all", 400) == [1, 10, 400]
    assert stage_sizes("1,10,all", 10) == [1, 10]


ROLLOUT_OTHERS = ("", "1", "1,10", "10,1,all", "0,all", "1,1,all", "all,1", "-1,all", "1, 2,all", "²,all")


@pytest.mark.parametrize("text", ROLLOUT_OTHERS)
def test_other_stages_are_errors(text: str) -> None:
    with pytest.raises(TraceError, match="--stage takes rising numbers"):
        stage_sizes(text, 400)


def fleet() -> tuple[Rollout, dict[str, Host]]:
    return Rollout(NAMES, stage_sizes("1,4,all", 20), 10, 5), {name: Host(name) for name in NAMES}


def test_a_stage_begins_after_the_one_before_was_watched() -> None:
    rollout, hosts = fleet()
    assert rollout.due(hosts) == NAMES[:1]
    hosts["web0"].state = State.RUNNING
    hosts["web0"].watched = 9
    assert rollout.due(hosts) == ()
    hosts["web0"].watched = 10
    assert rollout.due(hosts) == NAMES[1:4]
    assert (rollout.title, rollout.over, rollout.asked) == ("stage 2 of 3: ", False, NAMES[:4])
    # A run that has ended is not waited for, and a host without agent is no harm.
    for name, state in zip(NAMES[1:4], (State.ANSWERED, State.FAILED, State.ANSWERED), strict=True):
        hosts[name].state = state
    assert rollout.due(hosts) == NAMES[4:]
    assert rollout.over
    assert rollout.due(hosts) == ()


@pytest.mark.parametrize(
    ("said", "stopped"),
    [
        ({"over_budget": True}, "web0: tracing took more than --budget"),
        ({"lost": 6}, "web0: it lost 6 events, more than 5"),
        ({"state": State.REFUSED, "text": "no such probe"}, "web0: no such probe"),
        ({"state": State.CUT_SHORT, "text": "the run ended early (bytes)"}, "web0: the run ended early (bytes)"),
        ({"state": State.LOST, "text": "gone"}, "web0: gone"),
        ({"state": State.SILENT, "text": "nothing was heard"}, "web0: nothing was heard"),
        ({"state": State.ANSWERED, "status": 3}, "web0: its script ended with status 3"),
        ({"state": State.FAILED, "text": "no route"}, "no host of stage 1 could be asked"),
    ],
)
def test_harm_stops_it(said: dict[str, object], stopped: str) -> None:
    rollout, hosts = fleet()
    rollout.due(hosts)
    host = hosts["web0"]
    host.state, host.watched = State.RUNNING, 20
    for name, value in said.items():
        setattr(host, name, value)
    assert rollout.due(hosts) == ()
    assert rollout.stopped == stopped
    assert rollout.over
    assert rollout.asked == NAMES[:1]


def test_losses_up_to_the_limit_do_not_stop_it() -> None:
    rollout, hosts = fleet()
    rollout.due(hosts)
    hosts["web0"].state, hosts["web0"].lost = State.ANSWERED, 5
    assert rollout.due(hosts) == NAMES[1:4]


def test_one_stage_has_no_title() -> None:
    rollout = Rollout(NAMES, stage_sizes("all", 20))
    assert rollout.due({name: Host(name) for name in NAMES}) == NAMES
    assert (rollout.title, rollout.over) == ("", True)


def test_each_stage_is_told_once_when_it_is_attached() -> None:
    rollout, hosts = fleet()
    assert rollout.news(0, "node") == ""
    rollout.due(hosts)
    assert rollout.news(None, "node") == "", "some may still attach"
    assert rollout.news(1, "node") == "stage 1 of 3: attached on 1 of 1 node"
    assert rollout.news(1, "node") == ""
    hosts["web0"].state = State.ANSWERED
    rollout.due(hosts)
    rollout.stopped = "harm"
    assert rollout.news(4, "node") == ""


def test_hosts_of_a_gateway_are_asked_as_they_come() -> None:
    stages = Relayed()
    stages.add(["web1", "web2"])
    assert stages.wait()
    assert (stages.due({}), stages.due({})) == (["web1", "web2"], [])
    stages.add(["web3"])
    stages.close()
    assert (stages.wait(), stages.due({}), stages.wait()) == (True, ["web3"], False)
    assert (stages.asked, stages.over, stages.news(3, "host")) == (["web1", "web2", "web3"], True, "")


# ---------------------------------------------------------------------------------------------- clustershell
# Node sets, groups and workers of ClusterShell. tests/kernel/test_fleet.py asks hosts through it.


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
