"""What an agent states of its host."""

from __future__ import annotations

import pytest

from pytrace.core import kernel_info
from pytrace.core.kernel_info import Facts
from pytrace.remote.agent import HostFacts
from pytrace.remote.messages import Inquiry
from pytrace.remote.variants import unpacked
from pytrace.runtime.load import remote_kernel


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[str, ...]]]:
    """Which questions were answered, each time."""
    times: list[list[tuple[str, ...]]] = []

    def facts(_kernel: object, questions: tuple[tuple[str, ...], ...]) -> Facts:
        times.append(sorted(questions))
        answers = tuple((question, ("\udcff",) if question == ("odd",) else ()) for question in sorted(questions))
        return Facts(machine="x86_64", release="6.1", build=("kernel",), cpus=4, features=(), answers=answers)

    monkeypatch.setattr(remote_kernel, "answer_questions", facts)
    return times


def test_facts_are_collected_once_for_all_questions(asked: list[list[tuple[str, ...]]]) -> None:
    host = HostFacts((("modules",),))
    digest = host.digest()
    stated = host.answer(Inquiry(facts=digest, whole=True))
    assert stated.facts == digest == kernel_info.facts_digest(unpacked(stated.data))
    more = host.answer(Inquiry(facts=digest, questions=(("modules",), ("kernel_symbol", "a"))))
    assert (more.facts != digest, more.data) == (True, b"")
    assert host.digest() == more.facts
    assert asked == [[("modules",)], [("kernel_symbol", "a"), ("modules",)]]


def test_a_host_that_cannot_say_is_of_no_kind() -> None:
    assert HostFacts((("odd",),)).digest() == ""
