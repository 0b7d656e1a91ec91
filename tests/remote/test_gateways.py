"""Gateways, as the controller sees them: what it says to them, and what it makes of what they say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytrace.core import kernel_info
from pytrace.core.types import Stack
from pytrace.remote import controller, messages
from pytrace.remote.answer import Answer, labelled
from pytrace.remote.controller import MEASUREMENTS, Controller, Tree, depth
from pytrace.remote.hosts import Offset, State
from pytrace.remote.messages import (
    Archive,
    Ask,
    Attached,
    Beat,
    Clock,
    End,
    FromAgent,
    Function,
    Hello,
    HostReport,
    Inquiry,
    Misfit,
    NamedPlace,
    NamedPlaces,
    Need,
    Place,
    Refused,
    Relay,
    Reports,
    Request,
    Route,
    Snapshot,
    Stated,
    ToAgent,
    Variant,
)
from pytrace.remote.variants import Kind, Outcome, packed
from pytrace.results import file_form
from pytrace.results.snapshot import Frame, StackTrace
from tests.support.snapshots import COUNT, STRING, map_data, run, snapshot

REQUEST = Request(protocol=1, script="x", limits=messages.Limits(duration=5, every=1, bytes=1000))
ROUTES = (
    Route(gateway="g1", hosts=("a1", "a2"), routes=(Route(gateway="g2", hosts=("b1",)),)),
    Route(gateway="g3", hosts=("c1",)),
)  # fmt: skip
GATEWAY = "gateway g1"
NAMES = ("a1", "a2", "b1", "c1", "g1")


class Pusher:
    """Has what is pushed at the second time."""

    asked = 0

    def forwarded(self, need: Need) -> Archive | None:
        self.asked += 1
        return Archive(python=need.python, machine=need.machine, data=b"x") if self.asked > 1 else None


def compiled(kind: Kind, facts: bytes) -> Outcome:
    """The names of the features that a kind lacks, or its facts."""
    if kind.facts and not facts:
        return Outcome(wanted=True)
    return Outcome(facts or b"".join(map(str.encode, kind.lacks)))


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Controller]:
    """A controller of five hosts, of which one is a gateway as well; its clock goes on by 10 with each look."""
    labels = {name: f"L-{name}" for name in NAMES}
    relay = Relay(protocol=1, request=REQUEST, route=Route(gateway=""), command="x", by="zone", labels=labels,
                  most_keys=100, push="once")  # fmt: skip
    tree = Tree(ROUTES, relay)
    ticks = iter(range(10, 1 << 20, 10))
    controller = Controller(
        NAMES, REQUEST, Answer(labels.__getitem__, "zone"), str(tmp_path),
        compiled, Pusher(), lambda: next(ticks), tree,
    )  # type: ignore[arg-type]  # fmt: skip
    yield controller
    assert not list(tmp_path.iterdir())


def say(to: Controller, *said: FromAgent, now: float = 1, name: str = GATEWAY) -> list[ToAgent]:
    """What the controller answers to messages; nothing when it wants no more."""
    answer = to.output(name, b"".join(map(messages.encode, said)), now)
    return [messages.to_agent(line) for line in (answer or b"").splitlines()]


def begin(controller: Controller, name: str = GATEWAY) -> list[ToAgent]:
    """Connect, and answer beats until the request comes."""
    controller.connecting(name, 0)
    hello = Hello(protocol=1, version="0.1", host=name, kernel="6.1", machine="x86_64", wall=0, monotonic=0)
    answer = say(controller, hello, name=name)
    for _ in range(MEASUREMENTS):
        (beat,) = answer
        assert isinstance(beat, Beat)
        answer = say(controller, Clock(beat.sent, beat.sent + 105, beat.sent + 105), name=name)
    return answer


def counted(name: str, count: int, *reports: HostReport, label: str = "L-a1") -> Snapshot:
    made = labelled(snapshot(map_data("@", STRING, COUNT, {"x": count}), of=run(f"run-{name}")), "zone", label)
    return Snapshot(number=1, data=file_form.to_bytes(made), reports=reports)


ATTACHED = Attached(probes=0, compiled_here=False)


def test_one_request_for_the_hosts_of_a_gateway(made: Controller) -> None:
    assert (depth(ROUTES), depth(()), made.levels) == (2, 0, 2)
    assert made.asking(["a1", "c1", "g1"]) == [GATEWAY, "gateway g3", "g1"]
    assert made.asking(["b1"]) == []
    assert [made.node(name) for name in (GATEWAY, "g1")] == ["g1", "g1"]
    (relay,) = begin(made)
    assert isinstance(relay, Relay)
    assert (relay.request, relay.route, relay.push, relay.by) == (REQUEST, ROUTES[0], "once", "zone")
    assert relay.labels == {"a1": "L-a1", "a2": "L-a2", "b1": "L-b1"}
    # Hosts are named as they are due, so that stages hold behind gateways.
    assert say(made, ATTACHED) == [Ask(("a1", "b1"))]
    made.asking(["a2"])
    assert made.owed() == [GATEWAY]
    assert made.due(GATEWAY, 1) == messages.encode(Ask(("a2",)))
    assert made.owed() == []
    made.finish(5)


def test_questions_of_its_hosts(made: Controller) -> None:
    made.asking(["a1"])
    begin(made)
    say(made, ATTACHED)
    assert say(made, Misfit(lacks=("ringbuf",), cpus=4)) == [Variant(b"ringbuf", ("ringbuf",), 4)]
    data = packed(b"x")
    digest = kernel_info.facts_digest(b"x")
    inquiry = Inquiry(facts=digest, whole=True)
    assert say(made, Misfit(facts=digest)) == [inquiry]
    # It is not asked again while it asks its host.
    assert say(made, Misfit(lacks=("btf",))) == [Variant(b"btf", ("btf",), 0)]
    assert say(made, Stated(facts=digest, data=data)) == [Variant(data, (), 0, digest)]
    assert made.owed() == []
    need = Need(python="3.12", machine="x86_64")
    assert say(made, need) == []
    assert made.owed() == [GATEWAY]
    assert made.due(GATEWAY, 1) == messages.encode(Archive(python="3.12", machine="x86_64", data=b"x"))
    made.finish(5)


@pytest.mark.parametrize(
    "again", [Misfit(lacks=("ringbuf",), cpus=4), Misfit(lacks=("ringbuf", "nonsense"), cpus=3),
              Need(python="3.12", machine="x86_64")],
)  # fmt: skip
def test_it_asks_once_about_each_kind_of_host(made: Controller, again: FromAgent) -> None:
    """What it does not read waits in the memory of the controller: files of megabytes for questions of some bytes."""
    made.asking(["a1"])
    begin(made)
    say(made, ATTACHED, Misfit(lacks=("ringbuf",), cpus=4), Need(python="3.12", machine="x86_64"))
    made.due(GATEWAY, 1)
    assert made.output(GATEWAY, messages.encode(again), 1) is None
    assert "it asks too much" in made.hosts["a1"].text
    made.finish(5)


def test_what_it_says_of_its_hosts(made: Controller) -> None:
    made.asking(["a1", "a2", "c1"])
    begin(made)
    say(made, ATTACHED)
    running = HostReport(name="a1", state="running", watched=3.0, clock=(1000, 7), unheard=2.0)
    foreign = HostReport(name="c1", state="refused", text="no")
    refused = HostReport(name="a2", state="refused", text="no \x1b", status=1)
    say(made, Reports((running, refused, foreign, HostReport(name="b1", state="lost"))), now=9)
    states = {name: host.state for name, host in made.hosts.items()}
    assert states == {"a1": State.RUNNING, "a2": State.REFUSED, "b1": State.NOT_ASKED, "c1": State.WAITING,
                      "g1": State.NOT_ASKED}  # fmt: skip
    assert (made.hosts["a1"].watched, made.hosts["a1"].heard) == (3.0, 7)
    own = made.peers[GATEWAY].clock
    assert own is not None
    assert made.hosts["a1"].clock == Offset(1000 + own.ahead, 7 + own.error)
    assert made.hosts["a2"].text == "no \\x1b"
    # Labels were put on at the gateway.
    say(made, counted("a1", 5, HostReport(name="a1", state="answered")))
    assert made.hosts["a1"].state is State.ANSWERED
    assert made.current().maps["@"].entries == {("L-a1", "x"): 5}
    assert say(made, End(reason="exit", status=0)) == []
    assert made.result().maps["@"].entries == {("L-a1", "x"): 5}
    made.finish(9)


@pytest.mark.parametrize(
    ("said", "asked", "state", "text"),
    [
        ([], False, State.FAILED, "its gateway g1: the connection ended"),
        ([ATTACHED, counted("a1", 5)], True, State.SILENT,
         "its gateway g1: the connection ended before the run did (the connection ended)"),
        ([Refused(text="ERROR: a gateway needs ClusterShell\n", status=1)], True, State.FAILED,
         "its gateway g1: a gateway needs ClusterShell"),
        ([ATTACHED, counted("a1", 5), End(reason="signal", status=0)], True, State.SILENT,
         "its gateway g1: the run ended early (signal)"),
    ],
)  # fmt: skip
def test_hosts_of_a_gateway_that_is_gone(
    made: Controller, said: list[FromAgent], asked: bool, state: State, text: str
) -> None:
    made.asking(["a1", "b1"])
    if asked:
        begin(made)
    for message in said:
        say(made, message, now=3)
    made.closed(GATEWAY, None)
    assert {(made.hosts[name].state, made.hosts[name].text) for name in ("a1", "b1")} == {(state, text)}
    assert made.hosts["a2"].state is State.NOT_ASKED
    # Others behind it are not asked in vain.
    assert made.asking(["a2"]) == []
    assert made.hosts["a2"].state is State.FAILED
    made.finish(9)
    assert made.result().maps.keys() == ({"@"} if len(said) > 1 else set())


def test_the_end_before_it_is_asked(made: Controller) -> None:
    made.asking(["a1", "g1"])
    made.connecting(GATEWAY, 0)
    assert made.withdraw() == {GATEWAY, "g1"}
    made.finish(1)
    assert {host.state for host in made.hosts.values()} == {State.NOT_ASKED}


def test_it_is_silent_or_floods(made: Controller) -> None:
    made.asking(["a1", "c1"])
    for name in (GATEWAY, "gateway g3"):
        begin(made, name)
        say(made, ATTACHED, name=name)
    assert made.silent(20) == [GATEWAY, "gateway g3"]
    assert made.hosts["a1"].text == "its gateway g1: nothing was heard of the agent for 19 s"


def test_hosts_do_not_speak_for_others(made: Controller) -> None:
    made.asking(["g1", "c1"])
    made.connecting("g1", 0)
    hello = Hello(protocol=1, version="0.1", host="g1", kernel="6.1", machine="x86_64", wall=0, monotonic=0)
    say(made, hello, Reports((HostReport(name="c1", state="lost"),)), name="g1")
    assert (made.hosts["g1"].state, made.hosts["c1"].state) == (State.LOST, State.WAITING)


def test_results_that_do_not_fit(made: Controller) -> None:
    made.asking(["a1", "c1"])
    for name, host in ((GATEWAY, "a1"), ("gateway g3", "c1")):
        begin(made, name)
        say(made, ATTACHED, name=name)
        answered = counted(f"run-{host}", 1, HostReport(name=host, state="answered"), label="L-a1")
        say(made, answered, End(reason="exit", status=0), name=name)
    assert (made.hosts["a1"].state, made.hosts["c1"].state) == (State.ANSWERED, State.LOST)
    assert made.hosts["c1"].text.startswith("its gateway: its results do not fit: map @")
    assert made.status == 1


def test_functions_that_its_hosts_have_named(made: Controller, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of stacks in its results are taken, also if it is lost after it has sent them; up to a limit."""
    monkeypatch.setattr(controller, "MOST_NAMED", 2)
    own, other = Place("ab" * 20, 8), Place("cd" * 20, 8)
    trace = StackTrace((Frame("", 8, "/bin/x", "ab" * 20, address=9),))
    results = labelled(snapshot(map_data("@", Stack(True), COUNT, {trace: 1}), of=run("run-g1")), "zone", "L-a1")
    begin(made)
    made.asking(["a1"])
    said = [NamedPlaces((NamedPlace(place, 2, (Function("f"),)),)) for place in (other, own, Place("ab" * 20, 9))]
    say(made, ATTACHED, *said, Snapshot(number=1, data=file_form.to_bytes(results)))
    made.closed(GATEWAY, 1)
    assert [(place, one.detail, one.functions) for place, one in made.naming.names.items()] == [
        (own, 2, (Function("f"),))
    ]  # fmt: skip
