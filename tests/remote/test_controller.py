"""What a controller makes of what hosts say, and of those that say something else or nothing."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from pytrace.core import kernel_info, types
from pytrace.core.costs import ProbeCost, RunCost
from pytrace.core.diagnostics import TraceError
from pytrace.core.types import Stack
from pytrace.remote import controller, host_results, hosts, messages, naming
from pytrace.remote.answer import Answer
from pytrace.remote.controller import Controller
from pytrace.remote.host_results import Script
from pytrace.remote.hosts import Offset, State
from pytrace.remote.messages import (
    Attached,
    Beat,
    Clock,
    End,
    FromAgent,
    Function,
    Hello,
    Inquiry,
    Limits,
    Misfit,
    NamedPlace,
    NamedPlaces,
    NamePlaces,
    Need,
    Place,
    Refused,
    Request,
    Send,
    Snapshot,
    Stated,
    Variant,
    Warned,
)
from pytrace.remote.variants import Kind, Outcome, packed
from pytrace.results import file_form
from pytrace.results.snapshot import Frame, SnapshotData, StackTrace, Table
from pytrace.results.stored_document import Block
from tests.support import lies
from tests.support.patience import patience
from tests.support.snapshots import COUNT, STRING, map_data, run, snapshot
from tests.support.waiting import until

REQUEST = Request(protocol=1, script="x", limits=Limits(duration=5, every=1, bytes=100_000))


class Steps:
    """A clock that goes on by 100 with each look."""

    now = 1000

    def __call__(self) -> int:
        self.now += 100
        return self.now


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Controller]:
    """A controller of web1, web2 and web3, to which connections begin at 0."""
    made = Controller(["web1", "web2", "web3"], REQUEST, Answer(None), str(tmp_path), clock=Steps())
    for name in made.hosts:
        made.connecting(name, 0)
    yield made
    assert not list(tmp_path.iterdir())


def hello(name: str) -> Hello:
    return Hello(protocol=1, version="0.1", host=name, kernel="6.1", machine="x86_64", wall=0, monotonic=0)


def counted(name: str, count: int, number: int = 1) -> Snapshot:
    made = snapshot(map_data("@", STRING, COUNT, {"x": count}), of=run(f"run-{name}"))
    return Snapshot(number=number, data=file_form.to_bytes(made))


ATTACHED = Attached(probes=1, compiled_here=False)
END = End(reason="duration", status=0)


def say(to: Controller, name: str, *said: FromAgent, now: float = 1) -> bool:
    """Whether the controller wants more."""
    return to.output(name, b"".join(map(messages.encode, said)), now) is not None


def count(of: Controller) -> object:
    return of.result().maps["@"].entries.get("x", 0)


def test_the_newest_snapshot_of_each_host_counts_once(three: Controller) -> None:
    for number, name in enumerate(three.hosts, start=1):
        assert say(three, name, hello(name), ATTACHED, counted(name, 5), Warned("\x1b[31mw"))
        assert three.hosts[name].state is State.RUNNING
        assert not say(three, name, counted(name, 10 * number, 2), END)
        assert not say(three, name, counted(name, 1000, 3))
        three.closed(name, 0)
    assert count(three) == 60
    assert [host.state for host in three.hosts.values()] == [State.ANSWERED] * 3
    assert three.hosts["web1"].warnings == ["\\x1b[31mw"]
    assert three.status == 0


BUILD_ID = "ab" * 20
WAITS = End(reason="duration", status=0, details={BUILD_ID: 1})
PLACE = Place(BUILD_ID, 8)
QUESTION = messages.encode(NamePlaces((PLACE,)))


def stacks(name: str) -> Snapshot:
    trace = StackTrace((Frame("", 8, "/bin/x", BUILD_ID, address=9),))
    made = snapshot(map_data("@", Stack(True), COUNT, {trace: 1}), of=run(f"run-{name}"))
    return Snapshot(number=1, data=file_form.to_bytes(made))


def named(function: str, place: Place = PLACE) -> NamedPlaces:
    return NamedPlaces((NamedPlace(place, 0, (Function(function),)),))


def said(to: Controller, name: str, *messages_: FromAgent, now: float = 1) -> bytes | None:
    return to.output(name, b"".join(map(messages.encode, messages_)), now)


def test_one_host_is_asked_for_functions_after_its_run(three: Controller) -> None:
    """Others with the same binary wait for the answer; one that is lost meanwhile has answered all the same."""
    for name, question in (("web1", QUESTION), ("web2", b""), ("web3", b"")):
        assert said(three, name, hello(name), ATTACHED, stacks(name), WAITS) == question
    assert [host.state for host in three.hosts.values()] == [State.ANSWERED] * 3
    assert three.owed() == ["web1", "web2", "web3"]
    three.closed("web1", 1)
    assert three.due("web2", 2) == QUESTION
    assert three.silent(3) == []
    assert said(three, "web2", named("f"), now=4) is None
    assert three.due("web3", 5) is None
    assert three.owed() == []
    assert said(three, "web3", named("g"), now=6) is None
    ((_, answer),) = three.naming.names.items()
    assert (answer.functions, answer.detail) == ((Function("f"),), 1)
    assert three.hosts["web1"].state is State.ANSWERED
    ((_, count),) = three.result().maps["@"].entries.items()
    assert count == 3


def test_a_host_that_lies_about_functions_or_goes_on(three: Controller) -> None:
    """What it has counted stays, and the next one is asked; so is it after one that does not answer."""
    other = Place(BUILD_ID, 16)
    assert said(three, "web1", hello("web1"), ATTACHED, stacks("web1"), WAITS) == QUESTION
    assert said(three, "web1", named("lie", other)) is None
    assert said(three, "web2", hello("web2"), ATTACHED, stacks("web2"), WAITS) == QUESTION
    assert said(three, "web2", stacks("web2")) is None
    assert said(three, "web3", hello("web3"), ATTACHED, stacks("web3"), named("early")) is None
    assert not three.naming.names
    late = "what it said after its end is not used: "
    assert three.hosts["web1"].warnings == [f"{late}it names functions that it was not asked for"]
    assert three.hosts["web2"].warnings == [f"{late}its run was over"]
    assert [host.state for host in three.hosts.values()] == [State.ANSWERED, State.ANSWERED, State.LOST]


def test_a_host_that_does_not_answer_is_given_up(three: Controller) -> None:
    assert said(three, "web1", hello("web1"), ATTACHED, stacks("web1"), WAITS) == QUESTION
    assert said(three, "web2", hello("web2"), ATTACHED, stacks("web2"), WAITS) == b""
    for name in ("web2", "web3"):
        three.hosts[name].heard = 1000
    assert three.silent(1 + naming.ANSWERING) == []
    assert three.silent(2 + naming.ANSWERING) == ["web1"]
    assert said(three, "web1", named("late")) is None
    assert three.due("web2", 30) == QUESTION
    assert three.hosts["web1"].state is State.ANSWERED


def test_what_a_login_prints_before_the_agent_is_ignored(three: Controller) -> None:
    three.output("web1", b"Welcome to web1\n{}\n", 1)
    say(three, "web1", hello("web1"), ATTACHED, counted("web1", 2), END)
    assert three.hosts["web1"].state is State.ANSWERED
    three.output("web3", b"Welcome to ", 1)
    say(three, "web3", hello("web3"), ATTACHED, counted("web3", 2), END)
    assert three.hosts["web3"].state is State.ANSWERED
    assert three.output("web2", b"noise\n" * 20_000, 1) is None
    assert (three.hosts["web2"].state, three.hosts["web2"].text) == (
        State.FAILED, "what it prints is no message of pytrace agent"
    )  # fmt: skip


def test_what_is_printed_in_place_of_an_agent(three: Controller) -> None:
    """It is told if nothing else says why, and what a login prints as an error is no reason once the script runs."""
    for name in ("web1", "web2"):
        three.connecting(name, 0)
        three.output(name, b"motd\nThis account is \x1b[1mclosed.\n\n", 1)
    three.complaint("web2", b"sh: pytrace: not found\n")
    for name in ("web1", "web2"):
        three.closed(name, 1)
    three.connecting("web3", 0)
    three.complaint("web3", b"Authorized use only.\n")
    say(three, "web3", hello("web3"), ATTACHED, counted("web3", 4))
    three.closed("web3", 137)
    assert [host.text for host in three.hosts.values()] == [
        "the command ended with status 1; it printed: This account is \\x1b[1mclosed.",
        "sh: pytrace: not found",
        "the connection ended before the run did (the command ended with status 137)",
    ]


def test_a_host_that_floods_is_cut_off(three: Controller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "LONGEST_MESSAGE", 50_000)
    three.connecting("web1", 0)
    say(three, "web1", hello("web1"), ATTACHED)
    assert three.output("web1", b"x" * 60_000, 2) is None
    assert "a line has more than" in three.hosts["web1"].text
    say(three, "web2", hello("web2"), ATTACHED, counted("web2", 3))
    while say(three, "web2", *[Warned("w" * 1000)] * 20):
        pass
    assert three.hosts["web2"].text == "it has sent more than the 100000 bytes allowed"
    assert len(three.hosts["web2"].warnings) <= hosts.MOST_WARNINGS
    assert count(three) == 3


@pytest.mark.parametrize(
    ("said", "state", "text"),
    [
        (Refused(text="ERROR: cannot attach\nHINT: x\n", status=1), State.REFUSED, "cannot attach"),
        (Refused(text="", status=1), State.REFUSED, "it does not say why"),
        (End(reason="budget", status=0), State.CUT_SHORT, "the run ended early (budget)"),
        (End(reason="error", status=1, error="ERROR: memory\n"), State.CUT_SHORT, "memory"),
        (END, State.LOST, "it sent no results"),
    ],
)
def test_other_ends(three: Controller, said: FromAgent, state: State, text: str) -> None:
    say(three, "web1", hello("web1"), said)
    assert (three.hosts["web1"].state, three.hosts["web1"].text, three.status) == (state, text, 1)


def test_connections_that_end(three: Controller) -> None:
    three.complaint("web1", b"Warning: x\nroot@web1: Permission den")
    three.complaint("web1", b"ied (publickey).\n")
    three.closed("web1", 255)
    say(three, "web2", hello("web2"), ATTACHED, counted("web2", 4))
    three.closed("web2", 255)
    assert [(host.state, host.text) for host in three.hosts.values()][:2] == [
        (State.FAILED, "Permission denied (publickey)"),
        (State.LOST, "the connection ended before the run did (the command ended with status 255)"),
    ]
    assert count(three) == 4


def test_silence(three: Controller) -> None:
    say(three, "web1", hello("web1"), ATTACHED, counted("web1", 4), now=100)
    assert three.silent(105) == []
    assert three.silent(121) == ["web1", "web2", "web3"]
    assert three.silent(200) == []
    assert three.hosts["web1"].text == "nothing was heard of the agent for 21 s"
    assert three.hosts["web2"].text == "nothing was heard of the connection for 121 s"
    assert count(three) == 4


def test_the_end_of_waiting(three: Controller) -> None:
    say(three, "web1", hello("web1"), ATTACHED, counted("web1", 4))
    three.hosts["web1"].asked = True
    three.finish(10)
    assert [host.state for host in three.hosts.values()] == [State.SILENT, State.NOT_ASKED, State.NOT_ASKED]
    assert three.hosts["web3"].text == "not asked: interrupted"


def test_hosts_that_a_roll_out_did_not_reach(tmp_path: Path) -> None:
    made = Controller(["web1", "web2", "web3"], REQUEST, Answer(None), str(tmp_path))
    made.asking(["web1"])
    assert made.attached is None
    made.connecting("web1", 0)
    say(made, "web1", hello("web1"), ATTACHED)
    assert made.attached == 1
    made.hosts["web1"].asked = True
    made.finish(10, "web1: it is slow")
    assert [(host.state, host.text) for host in made.hosts.values()] == [
        (State.SILENT, "nothing was heard for 9 s"),
        *[(State.NOT_ASKED, "not asked: the roll-out stopped (web1: it is slow)")] * 2,
    ]
    assert made.status == 1


def test_how_a_host_is_doing(three: Controller) -> None:
    doing = msgspec.structs.replace(counted("web1", 1), lost=3, over_budget=True)
    say(three, "web1", hello("web1"), ATTACHED, now=5)
    say(three, "web1", doing, now=9)
    host = three.hosts["web1"]
    assert (host.watched, host.lost, host.over_budget) == (4, 3, True)
    cost = RunCost(5, 2, (ProbeCost("k:f", 3, 4, 5, 2),), 1, 2, 3)
    say(three, "web2", hello("web2"), ATTACHED, msgspec.structs.replace(END, losses={"lost": {"k:f": 7}}, cost=cost))
    assert (three.hosts["web2"].lost, three.hosts["web2"].over_budget) == (7, True)
    three.finish(10)


def test_results_that_do_not_fit_or_are_none(three: Controller) -> None:
    say(three, "web1", hello("web1"), ATTACHED, counted("web1", 4), END)
    say(three, "web2", hello("web2"), ATTACHED, END)
    say(three, "web3", hello("web3"), ATTACHED, Snapshot(number=1, data=b"\x89PTS\r\n\x1a\nx"), END)
    assert [host.state for host in three.hosts.values()] == [State.ANSWERED, State.LOST, State.LOST]
    assert "it sent no results" in three.hosts["web2"].text
    assert "is damaged" in three.hosts["web3"].text
    assert count(three) == 4


def test_a_host_cannot_take_the_run_of_another(three: Controller) -> None:
    """Whoever comes first: both are counted, as nobody can tell whose run it is."""
    for name, number in (("web1", 4), ("web2", 5)):
        say(three, name, hello(name), ATTACHED, counted("web1", number), END)
    assert [three.hosts[name].state for name in ("web1", "web2")] == [State.ANSWERED] * 2
    assert count(three) == 9


def test_snapshots_lie_in_a_private_folder() -> None:
    with controller.folder() as path:
        assert Path(path).stat().st_mode & 0o777 == 0o700
    assert not Path(path).exists()


def test_the_clock_is_measured_before_the_request_is_sent(three: Controller) -> None:
    """The host is 50,000 ahead; each answer is 40 on the way there, 60 back, of which the third one takes more."""
    said = three.output("web1", messages.encode(hello("web1")), 1)
    for turn in range(controller.MEASUREMENTS):
        assert said is not None
        beat = messages.to_agent(said)
        assert isinstance(beat, Beat)
        late = -20 if turn == 2 else 0
        answer = Clock(beat.sent, beat.sent + 50_040 + late, beat.sent + 50_040)
        # Answers to other beats do not count.
        said = three.output("web1", messages.encode(Clock(5, 5, 5)) + messages.encode(answer), 1)
    assert said is not None
    assert messages.to_agent(said) == REQUEST
    host = three.hosts["web1"]
    assert (host.asked, host.clock) == (True, Offset(49_980, 41))
    assert three.output("web1", messages.encode(ATTACHED), 1) == b""
    say(three, "web1", counted("web1", 1), END)
    (of_host,) = three.result().runs
    plain = file_form.from_bytes(counted("web1", 1).data, "").runs[0]
    assert (of_host.start, of_host.clock) == (max(plain.start - 49_980, 0), (49_980, 41))


def test_nobody_else_is_asked(three: Controller) -> None:
    three.hosts["web1"].asked = True
    assert three.withdraw() == {"web2", "web3"}
    assert three.output("web2", messages.encode(hello("web2")), 1) is None
    three.closed("web2", 0)
    three.finish(5)
    assert [host.state for host in three.hosts.values()] == [State.SILENT, State.NOT_ASKED, State.NOT_ASKED]


def test_the_answer_so_far_has_the_newest_snapshot_of_each_host(three: Controller) -> None:
    say(three, "web1", hello("web1"), ATTACHED, counted("web1", 5), END)
    say(three, "web2", hello("web2"), ATTACHED, counted("web2", 6))
    say(three, "web2", counted("web2", 60))
    assert three.current().maps["@"].entries == {"x": 65}
    assert three.news == 3
    # A host that sends the run of another adds to it; one that sends nonsense is left out.
    say(three, "web3", hello("web3"), ATTACHED, counted("web1", 1000))
    assert three.current().maps["@"].entries == {"x": 1065}
    assert three.current() == three.current()
    say(three, "web3", Snapshot(number=2, data=b"x"))
    assert three.current().maps["@"].entries == {"x": 65}
    # Looking changes nothing.
    say(three, "web2", END)
    three.finish(10)
    assert count(three) == 65
    assert three.result() == three.current()


def test_each_snapshot_is_checked_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that comes in the same moment as one that was checked: the times of files are that coarse."""
    checked: list[bytes] = []
    monkeypatch.setattr(host_results, "AT_ONCE", 0)
    monkeypatch.setattr(host_results, "check", lambda data, _: checked.append(data))
    made = Controller(["web1"], REQUEST, Answer(None), str(tmp_path))
    made.connecting("web1", 0)
    first, second = counted("web1", 5), counted("web1", 6)
    say(made, "web1", hello("web1"), ATTACHED, first)
    for _ in range(2):
        os.utime(made._files["web1"], (5, 5))
        made.current()
    assert checked == [first.data]
    say(made, "web1", second)
    os.utime(made._files["web1"], (5, 5))
    say(made, "web1", END)
    made.settle(wait=True)
    assert checked == [first.data, second.data]


def test_a_misfit_is_answered_with_a_variant(tmp_path: Path) -> None:
    def compiled(kind: Kind, _facts: bytes) -> Outcome:
        return Outcome(f"{sorted(kind.lacks)} {kind.cpus}".encode())

    made = Controller(["web1"], REQUEST, Answer(None), str(tmp_path), compiled)
    made.connecting("web1", 0)
    made.hosts["web1"].asked = True
    said = messages.encode(hello("web1")) + messages.encode(Misfit(lacks=("ringbuf",), cpus=100))
    line = made.output("web1", said, 1)
    assert line is not None
    assert messages.to_agent(line) == Variant(b"['ringbuf'] 128")
    assert made.output("web1", messages.encode(ATTACHED), 1) == b""


def test_facts_are_asked_for_and_do_not_count_as_results(tmp_path: Path) -> None:
    """One that states other facts than it said is lost."""
    facts = b"x" * 5000
    digest = kernel_info.facts_digest(facts)
    made = Controller(
        ["web1", "web2"], msgspec.structs.replace(REQUEST, limits=Limits(duration=5, bytes=100)), Answer(None),
        str(tmp_path), lambda _, data: Outcome(b"for it" if data else b"", wanted=not data),
    )  # fmt: skip
    misfit, inquiry = Misfit(facts=digest), Inquiry(facts=digest, whole=True)
    for name in made.hosts:
        made.connecting(name, 0)
        made.hosts[name].asked = True
    assert made.output("web1", messages.encode(hello("web1")) + messages.encode(misfit), 1) == messages.encode(inquiry)
    before = made._bytes["web1"]
    told = made.output("web1", messages.encode(Stated(facts=digest, data=packed(facts))), 1)
    assert told == messages.encode(Variant(b"for it"))
    assert made._bytes["web1"] - before == 1  # the end of the line
    say(made, "web2", hello("web2"), Stated(facts=digest))
    assert made.hosts["web2"].text == "it states facts about its kernel that it was not asked for"
    made.finish(5)


class Parts:
    """Has what is pushed only at the second time."""

    asked = 0

    def answer(self, need: Need, send: Send | None) -> bytes:
        self.asked += 1
        if need.machine == "m68k":
            raise TraceError("nothing can be pushed there")
        return b"" if self.asked == 1 else f"{need.python} {send and send.start}".encode()


def test_what_is_pushed(tmp_path: Path) -> None:
    made = Controller(["web1", "web2"], REQUEST, Answer(None), str(tmp_path), pusher=Parts())  # type: ignore[arg-type]
    for name in made.hosts:
        made.connecting(name, 0)
    need = Need(python="3.12", machine="x86_64")
    assert made.output("web1", b"Welcome\n" + messages.encode(need), 1) == b""
    assert made.owed() == ["web1"]
    assert made.due("web1", 1) == b"3.12 None"
    assert made.owed() == []
    assert made.output("web1", messages.encode(Send(start=0)), 1) == b"3.12 0"
    assert made.output("web1", messages.encode(Send(start=6)), 1) == b"3.12 6"
    said = made.output("web1", messages.encode(hello("web1")), 1)
    assert said is not None
    assert isinstance(messages.to_agent(said), Beat)
    assert made.output("web2", messages.encode(Need(python="3.12", machine="m68k")), 1) is None
    assert (made.hosts["web2"].state, made.hosts["web2"].text) == (State.FAILED, "nothing can be pushed there")


@pytest.mark.parametrize(
    "again",
    [Send(start=0), Send(start=1 << 60), Need(python="3.12", machine="x86_64"), Need(python="3.13", machine="")],
)
def test_a_host_that_asks_again_for_what_is_pushed(tmp_path: Path, again: FromAgent) -> None:
    """It need not read what it asks for: 40 bytes would take 256 KiB of the controller's memory each time."""
    made = Controller(["web1"], REQUEST, Answer(None), str(tmp_path), pusher=Parts())  # type: ignore[arg-type]
    made.connecting("web1", 0)
    made.output("web1", messages.encode(Need(python="3.12", machine="x86_64")), 1)
    assert made.due("web1", 1) == b"3.12 None"
    assert made.output("web1", messages.encode(Send(start=0)), 1) == b"3.12 0"
    assert made.output("web1", messages.encode(again), 1) is None
    assert made.hosts["web1"].text == "it asks twice for what is pushed to it"


def test_nothing_is_pushed_unless_asked_to(three: Controller) -> None:
    assert three.output("web1", messages.encode(Need(python="3.12", machine="x86_64")), 1) == b""
    assert three.hosts["web1"].need is None


# ---------------------------------------------------------------------------------------------- host results
# Results of one host: how much of them is read, and what of them the script decides.


OF = types.Record(("a",), (types.Bool(),))


def bomb(blocks: int) -> bytes:
    """A file with 16,384 rows of one boolean for each block, that is a few bytes a block."""
    writer = file_form._Writer()
    made = writer.contents(snapshot(of=run("r"), tables=(Table(OF, {"r": [(True,)] * (1 << 14)}),)))
    (block,) = made.tables[0].runs[0][1]
    one = file_form.to_bytes(snapshot(of=run("r"), tables=(Table(OF, {"r": [(True,)] * (1 << 14)}),)))
    document = lies.document_of(one)
    table = replace(made.tables[0], runs=((0, (Block(block.rows, block.size),) * blocks),))
    contents = msgspec.msgpack.encode(replace(made, tables=(table,)))
    rest = document[block.size : len(document) - len(msgspec.msgpack.encode(made))]
    return lies.file(document[: block.size] * blocks + rest + contents, len(contents))


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    """31 million rows, which took 2 GB and two minutes: of a host, and of a file that show or merge reads."""
    data = bomb(1900)
    assert len(data) < 10_000
    (tmp_path / "x.pts").write_bytes(data)
    memory, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(TraceError, match=r"would unpack \d+ bytes to 31\d{6}; 8388608 are read"):
        host_results.read(data, "web1")
    with pytest.raises(TraceError, match="would unpack"):
        file_form.read(str(tmp_path / "x.pts"))
    with pytest.raises(TraceError, match=r"has 6553\d{3} rows in \d+ bytes; 1048576 are read"):
        host_results.read(bomb(400), "web1")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 100 << 10
    assert time.process_time() - start < 5
    assert len(file_form.from_bytes(bomb(2), "x").tables[0].rows["r"]) == 1 << 15


def test_large_results_are_read_by_a_limited_process(monkeypatch: pytest.MonkeyPatch) -> None:
    data = bomb(60)
    host_results.check(data, "web1")
    with pytest.raises(TraceError, match="the snapshot 'web1' is damaged"):
        host_results.check(data[:-1], "web1")
    with pytest.raises(TraceError, match="'web1' is not a snapshot"):
        host_results.check(b"x", "web1")
    with monkeypatch.context() as patch:
        patch.setattr(host_results, "MEMORY", 32 << 20)
        with pytest.raises(TraceError, match="take more than 32 MiB"):
            host_results.check(data, "web1")
    monkeypatch.setattr(host_results, "PATIENCE", 0.01)
    with pytest.raises(TraceError, match=r"60 seconds of processor time or 0\.01 seconds to read"):
        host_results.check(data, "web1")


def test_hosts_are_heard_while_results_are_read(tmp_path: Path) -> None:
    """Those of the others count, whatever becomes of the large ones."""
    controller = Controller(["web1", "web2"], replace(lies.request(), compiled=b""), Answer(None), str(tmp_path))
    for name, data in (("web1", bomb(100)), ("web2", file_form.to_bytes(lies.honest(2)))):
        lies.begin(controller, name)
        controller.output(name, messages.encode(Snapshot(number=1, data=data)), 2)
    began = time.monotonic()
    assert controller.output("web1", lies.END, 3) == b""
    assert controller.peers["web1"].reading
    assert time.monotonic() - began < patience(1)
    controller.output("web2", lies.END, 3)
    assert controller.silent(1e9) == []

    def read() -> bool:
        controller.settle()
        return not controller._reading

    until(read)
    assert controller.owed() == ["web1", "web2"]
    assert controller.due("web1", 4) is None
    controller.finish(5)
    states = {name: host.state for name, host in controller.hosts.items()}
    assert sorted(state.value for state in states.values()) == ["answered", "lost"]
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_read_of_a_running_host_ends_it(tmp_path: Path) -> None:
    """It would be read in vain for each answer so far; those of the others are shown."""
    controller = Controller(["web1", "web2"], lies.request(), Answer(None), str(tmp_path))
    for name, data in (("web1", bomb(400)), ("web2", file_form.to_bytes(lies.honest(2)))):
        lies.begin(controller, name)
        controller.output(name, messages.encode(Snapshot(number=1, data=data)), 2)
    assert controller.current().maps["@"].entries == {"sh": 2, "own2": 1}
    assert controller.silent(3) == ["web1"]
    assert controller.hosts["web1"].state is State.LOST
    assert "1048576 are read" in controller.hosts["web1"].text
    controller.output("web2", lies.END, 3)
    assert controller.result().maps["@"].entries == {"sh": 2, "own2": 1}


@pytest.mark.parametrize("first", ["liar", "web1"])
def test_the_script_decides_about_types(tmp_path: Path, first: str) -> None:
    """A map without a key, of whoever is first, is that host's fault."""
    other = lies.honest(9)
    other.maps["@"] = replace(other.maps["@"], key=None, entries={None: 10**6})
    sent = {"liar": other, "web1": lies.honest(1), "web2": lies.honest(2)}
    controller = Controller([*sent], lies.request(), Answer(None), str(tmp_path))
    for name in sorted(sent, key=lambda name: name != first):
        lies.begin(controller, name)
        said = messages.encode(Snapshot(number=1, data=file_form.to_bytes(sent[name])))
        controller.output(name, said + lies.END, 2)
    assert controller.result().maps["@"].entries == {"sh": 3, "own1": 1, "own2": 1}
    assert controller.hosts["liar"].state is State.LOST
    assert controller.hosts["liar"].text == (
        "its results do not fit: the keys of map @ are no key, those of the script string[16]"
    )


def gateway(change: Callable[[SnapshotData], SnapshotData]) -> SnapshotData:
    script, labels = Script.of(lies.request()), frozenset({"web1", "web2"})
    return script.fitted_of_gateway(change(lies.of_gateway()), 2, "host", labels)


def test_a_gateway_speaks_for_its_hosts_only() -> None:
    assert gateway(lambda made: made).maps["@"].entries[("web1", "sh")] == 1
    data = lies.of_gateway().maps["@"]
    foreign = replace(data, entries={("web3", "sh"): 1}), replace(data, estimated=("x",))
    for other in foreign:
        with pytest.raises(TraceError, match="map @ has keys of hosts that are not behind it"):
            gateway(lambda made, other=other: replace(made, maps={**made.maps, "@": other}))  # type: ignore[misc]
    with pytest.raises(TraceError, match="4 runs of 2 hosts"):
        gateway(lambda made: replace(made, runs=made.runs * 2))
    rows = {"run-1": [("web3", 1, "")]}
    with pytest.raises(TraceError, match="table 1 has rows of hosts that are not behind it"):
        gateway(lambda made: replace(made, tables=(replace(made.tables[0], rows=rows),)))


def test_texts_of_hosts_are_short_and_few(tmp_path: Path) -> None:
    controller = Controller(["web1"], lies.request(), Answer(None), str(tmp_path))
    lies.begin(controller, "web1")
    for number in range(30):
        controller.output("web1", messages.encode(messages.Warned(f"{number}" + "w" * 900_000)), 2)
    host = controller.hosts["web1"]
    assert [len(text) for text in host.told] == [messages.LONGEST_TEXT] * hosts.MOST_WARNINGS + [16]
    assert host.told[-1] == "10 more warnings"
    error = messages.End(reason="error", status=1, error="ERROR: " + "e" * 900_000)
    controller.output("web1", messages.encode(error), 3)
    assert len(host.text) <= messages.LONGEST_TEXT


@pytest.mark.parametrize(
    ("key", "value"),
    [((1 << 32, "x"), 1), ((-1, "x"), 1), ((1, "x"), -1), ((1, "x"), 1 << 64), ((1, "x"), 1)],
)
def test_numbers_are_of_their_type(key: tuple[int, str], value: int) -> None:
    """Formats could not write the others, whosever answer they were in."""
    type_ = types.Tuple((types.Int(4, False), types.String(16)))
    data = file_form.to_bytes(snapshot(map_data("@", type_, types.Count(), {key: value})))
    if (key, value) == ((1, "x"), 1):
        assert host_results.read(data, "web1").maps["@"].entries == {key: value}
        return
    with pytest.raises(TraceError, match=r"it sends numbers that are no (uint32|count_t)"):
        host_results.read(data, "web1")
