"""Messages of controllers and agents: lines of JSON, checked by type and length."""

from __future__ import annotations

import json

import pytest

from pytrace.core.costs import ProbeCost, RunCost
from pytrace.core.diagnostics import TraceError
from pytrace.remote import messages
from pytrace.remote.messages import (
    Attached,
    Beat,
    Clock,
    Code,
    End,
    FromAgent,
    Hello,
    Inquiry,
    Limits,
    Lines,
    Misfit,
    Need,
    Options,
    Refused,
    Request,
    Send,
    Snapshot,
    Stated,
    Stop,
    ToAgent,
    Variant,
    Warned,
)
from tests.support.rows import each_row

REQUEST = Request(
    protocol=1, script="a\udcff.bt", text="begin { @ = 1; }\n", compiled=b"\0\xff", parameters=("1", "x"),
    named=(("flag", None), ("n", "5")),
    options=Options(comm=("bash",), max_rate={"": 10.5}), limits=Limits(duration=1.5, budget="1%", max_memory="5M"),
)  # fmt: skip

COST = RunCost(5, 2, (ProbeCost("k:f", 3, 4, 5, 6, True),), 1, 2, 3)


@pytest.mark.parametrize(
    "message",
    [
        REQUEST, Code(digest="a", size=5, once=True), Variant(b"\xff"), Variant(), Beat(), Beat(1 << 60), Stop(),
        Inquiry(facts="0" * 64, questions=(("modules",), ("tracepoints", "sched", "*")), whole=True),
    ],
)  # fmt: skip
def test_what_a_controller_says(message: ToAgent) -> None:
    line = messages.encode(message)
    assert line.count(b"\n") == 1
    assert messages.to_agent(line) == message


@each_row(
    "message",
    [
        Hello(protocol=1, version="0.1", host="web", kernel="6.1", machine="x86_64", wall=1 << 60, monotonic=5),
        Clock(5, 1 << 60, -5),
        Misfit(lacks=("ringbuf",), cpus=256),
        Misfit(facts="a" * 64),
        Stated(facts="a" * 64, data=b"x"),
        Need(python="3.12", machine="x86_64"),
        Send(start=5),
        Refused(text="ERROR: no\nHINT: x\n", status=1),
        Attached(probes=3, compiled_here=True),
        Snapshot(number=2, data=bytes(range(256))),
        Warned("Lost 3 events"),
        End(reason="duration", status=0, losses={"lost": {"k:f": 3}}, cost=COST),
    ],
)
def test_what_an_agent_says(message: FromAgent) -> None:
    line = messages.encode(message)
    assert line.count(b"\n") == 1
    assert messages.from_agent(line) == message


def test_a_snapshot_is_in_base64_and_unknown_members_are_ignored() -> None:
    said = json.loads(messages.encode(Snapshot(number=1, data=b"\xff\xfe")))
    assert said == {"type": "snapshot", "number": 1, "data": "//4=", "lost": 0, "over_budget": False,
                    "reports": []}  # fmt: skip
    assert messages.from_agent(json.dumps(said | {"later": 5}).encode()) == Snapshot(number=1, data=b"\xff\xfe")


def changed(**members: object) -> bytes:
    return json.dumps(json.loads(messages.encode(REQUEST)) | members).encode()


@each_row(
    ("line", "error"),
    [
        (b"", "not a request: not JSON"),
        (b"\xff", "not a request: not JSON"),
        (b"[" * 100_000, "not a request: not JSON"),
        (b"5", "Expected `object`, got `int`"),
        (b'{"type": "hello"}', "Invalid value 'hello' - at `$.type`"),
        (changed(protocol="1"), "Expected `int`, got `str` - at `$.protocol`"),
        (changed(script="x" * 5000), "Expected `str` of length <= 4096 - at `$.script`"),
        (changed(compiled="?"), "Invalid base64 encoded string - at `$.compiled`"),
        (changed(limits={}), "missing required field `duration`"),
        (changed(limits={"duration": float("nan")}), "NaN is no number of JSON"),
        (changed(limits={"duration": 1e300}), "duration is 1e+300, not 0.001 to 2.592e+06 seconds"),
        (changed(text="\ud800"), "surrogates not allowed"),
        (changed(limits={"duration": 1, "heartbeat": 0}), "heartbeat is 0.0, not 1 to"),
        (changed(limits={"duration": 1, "bytes": 0}), "Expected `int` >= 1 - at `$.limits.bytes`"),
        (changed(limits={"duration": 1, "events": 1 << 70}), "at `$.limits.events`"),
        (changed(limits={"duration": 1, "budget": "much"}), "budget is a percentage, as '1%' or '1%machine'"),
        (changed(limits={"duration": 1, "over_budget": "stop"}), "over_budget is one of sample, detach"),
        (changed(limits={"duration": 1, "max_memory": "lots"}), "'lots' is not an amount of memory"),
        (changed(options={"max_rate": {"k:*": 0}}), "max_rate is hits per second"),
    ],
)
def test_other_requests_are_errors(line: bytes, error: str) -> None:
    with pytest.raises(TraceError) as raised:
        messages.to_agent(line)
    assert error in str(raised.value)


def test_an_agent_says_nothing_else() -> None:
    for line, error in (
        (b'{"type": "run"}', "not a message of pytrace agent: Invalid value 'run'"),
        (b'{"type": "end", "reason": "bored", "status": 0}', "Invalid enum value 'bored'"),
    ):
        with pytest.raises(TraceError) as raised:
            messages.from_agent(line)
        assert error in str(raised.value)


def test_lines_are_joined_and_bounded() -> None:
    lines = Lines(5)
    assert lines.add(b"a") == []
    assert lines.add(b"b\ncd\n\nef") == [b"ab", b"cd", b""]
    assert lines.add(b"ghi") == []
    assert lines.add(b"\n") == [b"efghi"]
    with pytest.raises(TraceError, match="a line has more than 5 bytes"):
        lines.add(b"123456")


@pytest.mark.parametrize(
    ("read", "longest"),
    [(messages.to_agent, messages.LONGEST_LINE), (messages.from_agent, messages.LONGEST_MESSAGE)],
)  # fmt: skip
def test_longer_lines_are_not_taken_apart(read: object, longest: int) -> None:
    assert callable(read)
    with pytest.raises(TraceError, match="has at most"):
        read(b" " * (longest + 1))
