"""What a controller and ``pytrace agent`` say to each other."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from msgspec.structs import replace

from pytrace.core import kernel_info
from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_info import Facts
from pytrace.remote import messages
from pytrace.remote.messages import (
    Attached,
    Beat,
    Clock,
    End,
    FromAgent,
    Hello,
    Inquiry,
    Lines,
    Misfit,
    Refused,
    Snapshot,
    Stated,
    Stop,
    ToAgent,
    Variant,
    Warned,
)
from pytrace.runtime.load.remote_kernel import RemoteKernel
from tests.fuzz.target import Target
from tests.runtime.machine.test_kernel_symbols import FORMAT
from tests.support import agents, lies


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


def lying_hosts(data: bytes) -> None:
    """Honest hosts beside some that lie; the first eight bytes are the seed, and one liar says the rest before its lie.

    The controller keeps files in its folder: another thread follows it, which :mod:`tests.support.lies` watches.
    """
    with lies.low_bounds(), ThreadPoolExecutor(1) as thread:
        thread.submit(lies.attempt, int.from_bytes(data[:8]), data=data[8:]).result()


def facts_of_hosts(data: bytes) -> None:
    """What a host states of its kernel, but for its type information: all that it says can be asked for."""
    facts = kernel_info.decoded_facts(data)
    assert kernel_info.decoded_facts(facts.encoded()) == facts
    kernel = RemoteKernel(replace(facts, btf=b"", modules={}))
    for question, _ in facts.answers:
        kind, *arguments = question
        if (method := QUERIES.get(kind)) and len(arguments) == method[1]:
            getattr(kernel, method[0])(*arguments)


QUERIES = {
    "cgroup_id": ("cgroup_id", 1), "kernel_functions": ("kernel_functions", 2),
    "kernel_function_size": ("kernel_function_size", 2), "kernel_symbol": ("kernel_symbol", 1),
    "module_state": ("module_state", 1), "modules": ("modules", 0), "sleepable_function": ("sleepable_function", 1),
    "tracepoint_format": ("tracepoint_fields", 2), "tracepoints": ("tracepoints", 2),
    "unloaded_modules": ("unloaded_modules", 1), "untraceable_reason": ("untraceable_reason", 1),
}  # fmt: skip
"""The methods that ask questions, and the number of their arguments."""


def _facts() -> Iterable[bytes]:
    questions = [(kind, *("ab"[:count])) for kind, (_, count) in QUERIES.items() if kind != "tracepoint_format"]
    answers = (*((question, ("1",)) for question in questions), (("tracepoint_format", "a", "b"), (FORMAT,)))
    return [Facts(
        machine="x86_64", release="6.1", build=("kernel",), cpus=4, features=("btf",), btf=b"x", modules={"nf": b"y"},
        answers=tuple(sorted(answers)),
    ).encoded()]  # fmt: skip


def _requests() -> Iterable[bytes]:
    request = agents.request("begin { }", compiled=b"x", budget="1%", max_memory="5M")
    inquiry = Inquiry(facts="a" * 64, questions=(("modules",),), whole=True)
    said: tuple[ToAgent, ...] = (request, Variant(b"x"), inquiry, Beat(5), Stop())
    return map(messages.encode, said)


def _messages() -> Iterable[bytes]:
    said: tuple[FromAgent, ...] = (
        Hello(protocol=1, version="0.1", host="web", kernel="6.1", machine="x86_64", wall=5, monotonic=5),
        Clock(5, 6, 7), Misfit(lacks=("btf",), cpus=3), Misfit(facts="a" * 64), Stated(facts="a" * 64, data=b"x"),
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
    "lying_hosts": Target(
        "a controller with honest hosts and such that lie", lying_hosts, (), lambda: WORDS,
        lambda: (bytes([number]) * 8 + line for number, line in enumerate(_messages())),
    ),
    "facts_of_hosts": Target("facts that hosts state", facts_of_hosts, (TraceError,), seeds=_facts),
}
