"""What a controller makes of what hosts say, and of those that say something else or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytrace.fleet import controller, messages
from pytrace.fleet.answer import Answer
from pytrace.fleet.controller import Controller
from pytrace.fleet.hosts import State
from pytrace.fleet.messages import Attached, End, FromAgent, Hello, Limits, Refused, Snapshot, Warned
from pytrace.results import file_form
from tests.support.snapshots import COUNT, STRING, map_data, run, snapshot

LIMITS = Limits(duration=5, every=1, bytes=100_000)


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Controller]:
    """A controller of web1, web2 and web3, to which connections begin at 0."""
    made = Controller(["web1", "web2", "web3"], LIMITS, Answer(None), str(tmp_path))
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
    return to.output(name, b"".join(map(messages.encode, said)), now)


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


def test_what_a_login_prints_before_the_agent_is_ignored(three: Controller) -> None:
    three.output("web1", b"Welcome to web1\n{}\n", 1)
    say(three, "web1", hello("web1"), ATTACHED, counted("web1", 2), END)
    assert three.hosts["web1"].state is State.ANSWERED
    assert not three.output("web2", b"noise\n" * 20_000, 1)
    assert (three.hosts["web2"].state, three.hosts["web2"].text) == (
        State.FAILED, "what it prints is no message of pytrace agent"
    )  # fmt: skip


def test_a_host_that_floods_is_cut_off(three: Controller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "LONGEST_MESSAGE", 50_000)
    three.connecting("web1", 0)
    say(three, "web1", hello("web1"), ATTACHED)
    assert not three.output("web1", b"x" * 60_000, 2)
    assert "a line has more than" in three.hosts["web1"].text
    say(three, "web2", hello("web2"), ATTACHED, counted("web2", 3))
    while say(three, "web2", *[Warned("w" * 1000)] * 20):
        pass
    assert three.hosts["web2"].text == "it has sent more than the 100000 bytes allowed"
    assert len(three.hosts["web2"].warnings) <= controller.MOST_WARNINGS
    assert count(three) == 3


@pytest.mark.parametrize(
    ("said", "state", "text"),
    [
        (Refused(text="ERROR: cannot attach\nHINT: x\n", status=1), State.REFUSED, "cannot attach"),
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
    three._lines.pop("web3")
    three.finish(10)
    assert [host.state for host in three.hosts.values()] == [State.SILENT, State.SILENT, State.FAILED]


def test_results_that_do_not_fit_or_are_none(three: Controller) -> None:
    say(three, "web1", hello("web1"), ATTACHED, counted("web1", 4), END)
    say(three, "web2", hello("web2"), ATTACHED, counted("web1", 5), END)
    say(three, "web3", hello("web3"), ATTACHED, Snapshot(number=1, data=b"\x89PTS\r\n\x1a\nx"), END)
    assert [host.state for host in three.hosts.values()] == [State.ANSWERED, State.LOST, State.LOST]
    assert "hold the same run" in three.hosts["web2"].text
    assert "is damaged" in three.hosts["web3"].text
    assert count(three) == 4


def test_snapshots_lie_in_a_private_folder() -> None:
    with controller.folder() as path:
        assert Path(path).stat().st_mode & 0o777 == 0o700
    assert not Path(path).exists()
