"""What a controller and ``pytrace agent`` say to each other."""

from __future__ import annotations

from collections.abc import Iterable

from pytrace.core.diagnostics import TraceError
from pytrace.remote import messages
from pytrace.remote.messages import (
    Attached,
    Beat,
    Clock,
    End,
    FromAgent,
    Hello,
    Lines,
    Misfit,
    Refused,
    Snapshot,
    Stop,
    ToAgent,
    Variant,
    Warned,
)
from tests.fuzz.target import Target
from tests.support import agents


def agent_request(data: bytes) -> None:
    """Lines of a controller. What is understood can be said again."""
    for line in Lines(2048).add(data + b"\n"):
        message = messages.to_agent(line)
        assert messages.to_agent(messages.encode(message)) == message


def agent_message(data: bytes) -> None:
    """Lines of an agent. What is understood can be said again."""
    for line in Lines(2048).add(data + b"\n"):
        message = messages.from_agent(line)
        assert messages.from_agent(messages.encode(message)) == message


def _requests() -> Iterable[bytes]:
    request = agents.request("begin { }", compiled=b"x", budget="1%", max_memory="5M")
    said: tuple[ToAgent, ...] = (request, Variant(b"x"), Beat(5), Stop())
    return map(messages.encode, said)


def _messages() -> Iterable[bytes]:
    said: tuple[FromAgent, ...] = (
        Hello(protocol=1, version="0.1", host="web", kernel="6.1", machine="x86_64", wall=5, monotonic=5),
        Clock(5, 6, 7), Misfit(lacks=("btf",), cpus=3),
        Refused(text="ERROR: no", status=1), Attached(probes=3, compiled_here=True),
        Snapshot(number=2, data=b"x"), Warned("Lost 3 events"),
        End(reason="duration", status=0, losses={"lost": {"k:f": 3}}),
    )  # fmt: skip
    return map(messages.encode, said)


WORDS = (
    '{"type":"run"', '"limits":{"duration":1', '"bytes":', "1e400", "NaN", '"type":"beat"}', '"type":"end"', "null",
)  # fmt: skip


TARGETS = {
    "agent_request": Target("requests to pytrace agent", agent_request, (TraceError,), lambda: WORDS, _requests),
    "agent_message": Target("messages of pytrace agent", agent_message, (TraceError,), lambda: WORDS, _messages),
}
