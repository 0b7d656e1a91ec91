"""What this machine says of itself, over the small kernel of :mod:`tests.runtime.btf.test_kernel`."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_info import FEATURES
from pytrace.runtime import kernel_answers
from pytrace.runtime.live_kernel import LiveKernel
from pytrace.runtime.load import features
from pytrace.runtime.machine import perf
from tests.runtime.btf.test_kernel import folder

__all__ = ["folder"]

FORMAT = """\
name: woken
ID: 316
format:
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:int pid;\toffset:8;\tsize:4;\tsigned:1;

print fmt: "%d", REC->pid
"""


@pytest.fixture
def kernel(folder: Path, monkeypatch: pytest.MonkeyPatch) -> LiveKernel:
    made = LiveKernel(environment={})
    monkeypatch.setattr(perf, "possible_cpus", lambda: list(range(12)))
    monkeypatch.setattr(features, "has", lambda name: name == "btf")
    text = lambda _category, event: FORMAT if event == "woken" else None  # noqa: E731
    match = lambda category, event: [(category, name) for name in ("woken", event) if "*" in event]  # noqa: E731
    parts: dict[str, Any] = {
        "_btf_path": str(folder / "vmlinux"),
        "tracepoint_files": SimpleNamespace(path="/nowhere", format=text, match=match),
        "_functions": SimpleNamespace(match=lambda pattern, _: {"": [pattern], "nf": ["nf_hook"]}),
        "kallsyms": SimpleNamespace(
            function_size=lambda name, _: 64 if name == "vfs_read" else None, withheld="",
            address=lambda name: 5 if name == "jiffies" else None, in_kernel=lambda _: True, has=lambda _: False,
        ),
    }  # fmt: skip
    made.__dict__.update(parts)
    return made


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (("tracepoints", "sched", "w*"), ("sched:woken", "sched:w*")),
        (("tracepoint_format", "sched", "none"), ()),
        (("kernel_functions", "vfs_read", ""), ("vfs_read ", "nf_hook nf")),
        (("kernel_function_size", "vfs_read", ""), ("64",)),
        (("kernel_function_size", "none", ""), ()),
        (("kernel_symbol", "jiffies"), ("1",)),
        (("kernel_symbol", "none"), ()),
        (("cgroup_id", "/nowhere"), ()),
        (("owners", "struct", "nf_hook_state", ""), ("nf",)),
        (("owners", "struct", "task", ""), ()),
        (("owners", "enumerator", "NF_HOOK_ON", ""), ("nf",)),
        (("owners", "enumerator", "BLUE", ""), ()),
        (("owners", "typedef", "none", ""), ()),
        (("owners", "function", "both", ""), ("alpha", "nf")),
        (("owners", "function", "both", "nf"), ("nf",)),
        (("owners", "function", "*_hook", ""), ("nf",)),
        (("owners", "rawtracepoint", "nf_event", ""), ("nf",)),
        (("owners", "rawtracepoint", "*", ""), ("alpha", "nf")),
        (("owners", "iterator", "*", ""), ("alpha", "nf")),
        (("raw_tracepoints", "n*"), ("named", "nameless", "nf_event")),
    ],
)
def test_answers(kernel: LiveKernel, question: tuple[str, ...], answer: tuple[str, ...]) -> None:
    facts = kernel_answers.facts(kernel, [question])
    assert facts.answers == ((question, answer),)
    assert set(facts.modules) == (set(answer) if question[0] == "owners" else set())


def test_facts_do_not_change_with_the_boot(kernel: LiveKernel, folder: Path) -> None:
    """Numbers of tracepoints do, and the order in which a script asks is that of another compilation."""
    questions = [("tracepoint_format", "sched", "woken"), ("kernel_symbol", "jiffies")]
    facts = kernel_answers.facts(kernel, questions)
    assert facts == kernel_answers.facts(kernel, questions[::-1] * 2)
    _, (_, (text,)) = facts.answers
    assert text.count("field:") == 2
    assert "ID:" not in text
    assert (facts.cpus, facts.features, facts.btf) == (16, ("btf",), (folder / "vmlinux").read_bytes())
    assert (facts.machine, facts.release) == (os.uname().machine, os.uname().release)
    assert facts.build[0] == "kernel"


def test_probes_that_patterns_match(kernel: LiveKernel) -> None:
    exact = [("tracepoints", "sched", "woken"), ("kernel_functions", "vfs_read", ""), ("owners", "iterator", "*", "")]
    assert kernel_answers.matches(kernel, exact) == ""
    wild = [*exact, ("tracepoints", "sched", "w*"), ("kernel_functions", "*", "nf")]
    matches = kernel_answers.matches(kernel, wild)
    assert matches == kernel_answers.matches(kernel, wild[::-1] * 2)
    kernel.__dict__["tracepoint_files"].match = lambda category, _: [(category, "woken")]
    assert kernel_answers.matches(kernel, wild) not in ("", matches)


@pytest.mark.parametrize("question", [("tomorrow",), ("kernel_symbol",), ("modules", "a", "b")])
def test_other_questions(kernel: LiveKernel, question: tuple[str, ...]) -> None:
    """A later controller may have them."""
    with pytest.raises(TraceError, match="does not know the question"):
        kernel_answers.facts(kernel, [question])


def test_all_features_are_stated(kernel: LiveKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "has", lambda _: True)
    assert kernel_answers.facts(kernel, []).features == FEATURES
