"""Stages of a roll-out: when the next one begins, and what stops it."""

from __future__ import annotations

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.remote.hosts import Host, State
from pytrace.remote.rollout import Relayed, Rollout, stages

NAMES = [f"web{number}" for number in range(20)]


def test_stages_are_rising_numbers() -> None:
    assert stages("all", 400) == [400]
    assert stages("1,10,all", 400) == [1, 10, 400]
    assert stages("1,10,all", 10) == [1, 10]


OTHERS = ("", "1", "1,10", "10,1,all", "0,all", "1,1,all", "all,1", "-1,all", "1, 2,all", "²,all")


@pytest.mark.parametrize("text", OTHERS)
def test_other_stages_are_errors(text: str) -> None:
    with pytest.raises(TraceError, match="--stage takes rising numbers"):
        stages(text, 400)


def fleet() -> tuple[Rollout, dict[str, Host]]:
    return Rollout(NAMES, stages("1,4,all", 20), 10, 5), {name: Host(name) for name in NAMES}


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
    rollout = Rollout(NAMES, stages("all", 20))
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
