"""A gateway with hosts whose agents are files of messages. tests/kernel/test_fleet.py has real ones."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from pytrace.remote import messages
from pytrace.remote.messages import (
    Ask,
    Attached,
    End,
    FromAgent,
    Hello,
    Limits,
    Refused,
    Relay,
    Reports,
    Request,
    Route,
    Snapshot,
    Stop,
)
from pytrace.results import file_form
from tests.support.agents import Agent, agent
from tests.support.snapshots import COUNT, STRING, map_data, run, snapshot

HELLO = Hello(protocol=1, version="0", host="x", kernel="6.1", machine="x", wall=0, monotonic=0)
ATTACHED = Attached(probes=1, compiled_here=False)
END = End(reason="duration", status=0)


def results(name: str, count: int) -> Snapshot:
    made = snapshot(map_data("@", STRING, COUNT, {"x": count}), of=run(name))
    return Snapshot(number=1, data=file_form.to_bytes(made))


def relay(folder: Path, said: dict[str, list[FromAgent]], **limits: float) -> Relay:
    """A request for hosts that say what is in a file, and end."""
    for name, lines in said.items():
        (folder / name).write_bytes(b"".join(map(messages.encode, lines)))
    bounds = Limits(duration=60, every=0.2, **limits)  # type: ignore[arg-type]
    return Relay(
        protocol=1, request=Request(protocol=1, script="x", limits=bounds), by="host",
        route=Route(gateway="g1", hosts=tuple(said)), labels={name: name for name in said}, most_keys=100,
        worker="exec", command=f"cat {shlex.quote(str(folder))}/%h; exit 3",
    )  # fmt: skip


def states(running: Agent) -> dict[str, str]:
    """What was said last of each host."""
    return {
        report.name: report.state
        for message in running.heard if isinstance(message, (Reports, Snapshot)) for report in message.reports
    }  # fmt: skip


def test_results_are_merged_and_hosts_reported(tmp_path: Path) -> None:
    said: dict[str, list[FromAgent]] = {
        "a1": [HELLO, ATTACHED, results("r1", 5), END], "a2": [HELLO, ATTACHED, results("r2", 7)],
        "a3": [HELLO, Refused(text="ERROR: no\n", status=1)], "a4": [],
    }  # fmt: skip
    with agent() as running:
        running.say(relay(tmp_path, said))
        running.next(Attached)
        running.say(Ask(("a1", "elsewhere")))
        while states(running).get("a1") != "answered":
            running.next(Snapshot)
        assert states(running) == {"a1": "answered"}
        running.say(Ask(("a2", "a3", "a4")))
        end, status = running.end()
    assert (end.reason, end.status, status) == ("exit", 0, 0)
    assert states(running) == {"a1": "answered", "a2": "lost", "a3": "refused", "a4": "failed"}
    assert running.last().maps["@"].entries == {("a1", "x"): 5, ("a2", "x"): 7}
    (reports,) = [message.reports for message in running.heard if isinstance(message, Snapshot)][-1:]
    assert {report.name: report.text for report in reports} == {
        "a1": "", "a2": "the connection ended before the run did (the command ended with status 3)", "a3": "no",
        "a4": "the command ended with status 3",
    }  # fmt: skip


HOST = """
import json, sys
first, *rest, last = open(sys.argv[1]).read().splitlines(keepends=True)
sys.stdout.write(first)
sys.stdout.flush()
for line in sys.stdin:
    said = json.loads(line)
    if said["type"] == "beat":
        print(json.dumps({"type": "clock", "sent": said["sent"], "received": 1, "answered": 1}), flush=True)
    if said["type"] == "run":
        print(*rest, sep="", end="", flush=True)
    if said["type"] == "stop":
        break
print(last, end="", flush=True)
"""
"""An agent that answers beats, says what it has to when it is asked, and the last line of it at the end."""


@pytest.mark.parametrize("reason", ["stop", "input", "heartbeat"])
def test_the_controller_ends_it_or_is_gone(reason: str, tmp_path: Path) -> None:
    (tmp_path / "host").write_text(HOST)
    command = f"{sys.executable} -S {shlex.quote(str(tmp_path))}/host {tmp_path}/%h"
    said: dict[str, list[FromAgent]] = {"a1": [HELLO, ATTACHED, results("r1", 5), END], "a2": [HELLO]}
    with agent() as running:
        heartbeat = 1.0 if reason == "heartbeat" else 600.0
        running.say(replace(relay(tmp_path, said, heartbeat=heartbeat), command=command))
        running.next(Attached)
        running.say(Ask(("a1",)))
        if reason != "heartbeat":
            running.next(Reports)
        if reason == "stop":
            running.say(Stop())
        elif reason == "input":
            running.hang_up()
        last, status = running.end()
    assert (last.reason, status) == (reason, 0)
    if reason != "heartbeat":
        assert states(running) == {"a1": "answered"}
        assert running.last().maps["@"].entries == {("a1", "x"): 5}


def test_other_requests_are_refused(tmp_path: Path) -> None:
    with agent() as running:
        running.say(replace(relay(tmp_path, {"a1": []}), protocol=99))
        assert "version 99 of the protocol" in running.next(Refused).text
        assert running.wait() == 1
