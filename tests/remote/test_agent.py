"""The part that runs on hosts: start, messages in and out, facts, gateways."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import pwd
import shlex
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from pytrace.remote import bootstrap, channels, messages
from pytrace.remote.agent import end_requests
from pytrace.remote.channels import Inbox, Outbox
from pytrace.remote.messages import (
    Ask,
    Attached,
    Beat,
    Clock,
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
    Warned,
)
from pytrace.remote.push import bootstrap as program
from pytrace.results import file_form
from pytrace.runtime.output.streams import Channel
from tests.support.agents import Agent, agent, request
from tests.support.snapshots import COUNT, STRING, map_data, run
from tests.support.snapshots import snapshot as gateway_snapshot

# ---------------------------------------------------------------------------------------------- agent
# ``pytrace agent`` before anything is traced: requests that are refused. tests/kernel/test_agents.py has the.


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (Stop(), "ERROR: the first line is no request\n"),
        (request("begin { }", protocol=99),
         ("ERROR: the controller speaks version 99 of the protocol, this pytrace (0.1.0) version 1\n"
          "HINT: install the same version of pytrace on both\n")),
        (request("", compiled=b"BPF"), "ERROR: not a compiled pytrace script\n"),
    ],
)  # fmt: skip
def test_refusals(said: Request | Stop, error: str) -> None:
    with agent() as running:
        assert running.next(Hello).protocol == messages.PROTOCOL
        running.say(said)
        assert running.next(Refused) == Refused(text=error, status=1)
        assert running.wait() == 1


def test_an_input_that_ends_before_a_request_is_the_end() -> None:
    with agent() as running:
        running.hang_up()
        running.next(Hello)
        assert running.wait() == 0


def test_beats_before_the_request_are_answered_with_the_clock() -> None:
    with agent() as running:
        running.next(Hello)
        before = time.time_ns()
        running.say(Beat(5))
        clock = running.next(Clock)
        assert clock.sent == 5
        assert before <= clock.received <= clock.answered <= time.time_ns()
        running.say(Beat(), request("begin { ", duration=1))
        running.next(Refused)
        assert not any(isinstance(message, Clock) for message in running.heard[2:])
        running.wait()


# ---------------------------------------------------------------------------------------------- bootstrap
# The program of ``--push`` on a host: with a controller that is this test, and an agent of three lines.


AGENT = "import os\ndef run(pushed):\n    os.write(1, b'agent ' + os.read(0, 99))\n    return 5\n"


def archive() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as opened:
        for name, text in (("__init__.py", ""), ("remote/__init__.py", ""), ("remote/agent.py", AGENT)):
            member = tarfile.TarInfo(f"pytrace/{name}")
            member.size = len(text)
            opened.addfile(member, io.BytesIO(text.encode()))
    return gzip.compress(file.getvalue(), mtime=0)


class Host:
    """The program, with *home* as the folder of its user."""

    def __init__(self, home: Path) -> None:
        text = program().replace("pwd.getpwuid(os.geteuid()).pw_dir", repr(str(home)))
        environment = {**os.environ, "TMPDIR": str(home)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=environment,
        )  # fmt: skip

    def heard(self) -> dict[str, object]:
        assert self.process.stdout is not None
        found: dict[str, object] = json.loads(self.process.stdout.readline())
        return found

    def say(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def offer(self, data: bytes, *, once: bool = False) -> None:
        need = self.heard()
        assert need == {"type": "need", "python": f"3.{sys.version_info[1]}", "machine": os.uname().machine}
        digest = hashlib.sha256(data).hexdigest()
        self.say(json.dumps({"type": "code", "digest": digest, "size": len(data), "once": once}).encode() + b"\n")

    def end(self, data: bytes = b"") -> tuple[int, bytes, str]:
        out, error = self.process.communicate(data)
        return self.process.returncode, out, error.decode()


@pytest.mark.parametrize("once", [False, True])
def test_it_becomes_the_agent(tmp_path: Path, once: bool) -> None:
    data = archive()
    host = Host(tmp_path)
    host.offer(data, once=once)
    assert host.heard() == {"type": "send", "start": 0}
    host.say(data)
    assert host.end(b"request") == (5, b"agent request", "")
    kept = tmp_path / ".cache" / "pytrace-push" / hashlib.sha256(data).hexdigest()
    if once:
        assert not list(tmp_path.iterdir())
        return
    assert kept.stat().st_mode & 0o077 == 0
    again = Host(tmp_path)
    again.offer(data)
    # It is there, and nothing is asked for.
    assert again.end(b"again") == (5, b"agent again", "")


def test_damaged_archives_are_not_used(tmp_path: Path) -> None:
    data = archive()
    host = Host(tmp_path)
    host.offer(data)
    host.heard()
    assert host.end(data[:-1] + b"x") == (1, b"", "what arrived of pytrace is damaged\n")
    assert not list((tmp_path / ".cache" / "pytrace-push").iterdir())


def test_a_controller_that_is_gone(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.offer(archive(), once=True)
    host.heard()
    assert host.end(b"x") == (1, b"", "the controller is gone\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("fault", ["mode", "link"])
def test_a_folder_of_others_is_not_used(tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pwd, "getpwuid", lambda _: pwd.struct_passwd(("u", "x", 0, 0, "", str(tmp_path), "")))
    (tmp_path / "elsewhere").mkdir()
    if fault == "mode":
        (tmp_path / ".cache").mkdir()
        (tmp_path / ".cache").chmod(0o777)
        with pytest.raises(SystemExit, match="can be written by others"):
            bootstrap.private(".cache", "pytrace-push")
    else:
        (tmp_path / ".cache").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(OSError, match=r"Not a directory|symbolic"):
            bootstrap.private(".cache", "pytrace-push")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_what_nobody_uses_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pwd, "getpwuid", lambda _: pwd.struct_passwd(("u", "x", 0, 0, "", str(tmp_path), "")))
    base = tmp_path / ".cache" / "pytrace-push"
    for name in ("old", "new", "digest"):
        (base / name).mkdir(parents=True)
    for folder in (tmp_path / ".cache", base):
        folder.chmod(0o700)
    os.utime(base / "old", (0, 0))
    os.utime(base / "digest", (0, 0))
    assert bootstrap.kept("digest", 5) == str(base / "digest")
    assert sorted(path.name for path in base.iterdir()) == ["digest", "new"]


# ---------------------------------------------------------------------------------------------- inbox
# Lines of a controller, read without blocking, and signals that ask for the end.


def test_lines_as_they_come() -> None:
    reading, writing = os.pipe()
    try:
        inbox = Inbox(reading)
        assert not inbox.read(0)
        os.write(writing, b"a\nb")
        assert inbox.read(1)
        os.write(writing, b"c\n")
        assert inbox.read(1)
        assert inbox.waiting == [b"a", b"bc"]
        clock = inbox.clock(Beat(5))
        assert isinstance(clock, Clock)
        assert 0 < clock.received <= clock.answered <= time.time_ns()
        assert (inbox.clock(Beat()), inbox.clock(Stop())) == (None, None)
    finally:
        os.close(writing)
    assert not inbox.read(1)
    assert inbox.over
    os.close(reading)


def test_signals_are_noted() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with end_requests() as signals:
        assert not signals.arrived
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.arrived
    assert signal.getsignal(signal.SIGTERM) == before


# ---------------------------------------------------------------------------------------------- outbox
# Messages on their way: nothing blocks, and of snapshots only the newest waits.


END = End(reason="stop", status=0)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    yield reading, writing
    for descriptor in (reading, writing):
        with suppress(OSError):
            os.close(descriptor)


def arrived(reading: int) -> bytes:
    data = b""
    with suppress(BlockingIOError):
        while part := os.read(reading, 1 << 20):
            data += part
    return data


def decoded(data: bytes) -> list[FromAgent]:
    return [messages.from_agent(line) for line in data.splitlines()]


def snapshot(number: int, size: int = 3) -> Snapshot:
    return Snapshot(number=number, data=bytes(size))


def test_the_newest_snapshot_waits_and_the_end_comes_last(pipe: tuple[int, int]) -> None:
    outbox = Outbox(Channel(pipe[1]))
    said = [snapshot(1), Warned("a"), snapshot(2), END, Warned("b")]
    for message in said:
        outbox.put(message)
    assert outbox.flush(1)
    data = arrived(pipe[0])
    assert decoded(data) == [Warned("a"), Warned("b"), snapshot(2), END]
    assert (outbox.sent, outbox.pending) == (len(data), False)


def test_a_reader_that_does_not_read_holds_up_nothing(pipe: tuple[int, int]) -> None:
    outbox = Outbox(Channel(pipe[1]))
    outbox.put(snapshot(1, 200_000))
    assert outbox.advance() > 0
    assert outbox.advance() == 0
    for number in range(2, 5):
        outbox.put(snapshot(number))
    outbox.put(END)
    assert outbox.pending
    assert not outbox.flush(0.05)
    # It reads again: the message that was begun arrives whole, and of the others the newest.
    data = b""
    while outbox.pending:
        outbox.advance()
        data += arrived(pipe[0])
    assert decoded(data) == [snapshot(1, 200_000), snapshot(4), END]


def test_a_controller_that_only_asks_gets_no_more_answers(pipe: tuple[int, int]) -> None:
    outbox = Outbox(Channel(pipe[1]))
    for number in range(channels.MOST_WAITING + 500):
        outbox.put(Clock(number, number, number))
    outbox.put(Warned("a"))
    data = b""
    while outbox.pending:
        outbox.advance()
        data += arrived(pipe[0])
    assert len(decoded(data)) == channels.MOST_WAITING + 1
    assert decoded(data)[-1] == Warned("a")


def test_without_a_reader_nothing_waits(pipe: tuple[int, int]) -> None:
    outbox = Outbox(Channel(pipe[1]))
    os.close(pipe[0])
    outbox.put(snapshot(1))
    assert outbox.pending
    outbox.advance()
    assert (outbox.broken, outbox.pending, outbox.flush(1)) == (True, False, False)


# ---------------------------------------------------------------------------------------------- gateway
# A gateway with hosts whose agents are files of messages. tests/kernel/test_fleet.py has real ones.


HELLO = Hello(protocol=1, version="0", host="x", kernel="6.1", machine="x", wall=0, monotonic=0)
ATTACHED = Attached(probes=1, compiled_here=False)
GATEWAY_END = End(reason="duration", status=0)


def results(name: str, count: int) -> Snapshot:
    made = gateway_snapshot(map_data("@", STRING, COUNT, {"x": count}), of=run(name))
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
        "a1": [HELLO, ATTACHED, results("r1", 5), GATEWAY_END], "a2": [HELLO, ATTACHED, results("r2", 7)],
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
    said: dict[str, list[FromAgent]] = {"a1": [HELLO, ATTACHED, results("r1", 5), GATEWAY_END], "a2": [HELLO]}
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
