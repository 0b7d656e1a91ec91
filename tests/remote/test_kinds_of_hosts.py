"""Compiling for the facts that hosts state, in a process that these cannot harm."""

from __future__ import annotations

from concurrent.futures import wait
from pathlib import Path

import pytest

from pytrace.core import kernel_info
from pytrace.core.manifest import CompiledScript
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source
from pytrace.remote import fleet
from pytrace.remote.fleet import CompileJob, Compiler, Program, job_outcome
from pytrace.remote.variants import Kind, Outcome, packed
from tests.runtime.load.test_remote_kernel import row, stated, task

TEXT = "t:sched:woken { @[args.pid] = count(); }"
FACTS = stated(task(8), row("pid_t pid", 8, 4))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def outcome(text: str = TEXT, facts: kernel_info.Facts = FACTS) -> Outcome:
    return of_data(packed(facts.encoded()), text)


def of_data(facts: bytes, text: str = TEXT) -> Outcome:
    return job_outcome(CompileJob(name="x", text=text, path=None, options=CompileOptions(), facts=facts))


def test_a_process_compiles_for_each_kind_once() -> None:
    """Nothing is imported from the working directory, and it is in no hurry."""
    compiler = Compiler(Program("x", Source("x", TEXT), CompileOptions()))
    kind = Kind(facts=kernel_info.facts_digest(FACTS.encoded()))
    assert compiler(kind, b"") == Outcome(wanted=True)
    assert compiler(kind, packed(FACTS.encoded())) is None
    wait(compiler._running.values())
    made = compiler(kind, b"")
    compiler.close()
    assert made is not None
    assert CompiledScript.from_bytes(made.compiled).manifest.facts[0] == FACTS.build
    assert made == outcome()


@pytest.mark.parametrize(
    ("text", "facts", "error"),
    [
        (TEXT, stated(task(8), row("pid_t tid", 8, 4)), "ERROR: tracepoint:sched:woken has no argument 'pid'\n"),
        (TEXT + " begin { print((struct task *)0); }", stated(b"x" * 50), "ERROR: type information of vmlinux "),
        (TEXT, stated(b"", machine="s390x"), "ERROR: this machine does not compile for s390x\n"),
    ],
)
def test_what_cannot_be_compiled(text: str, facts: kernel_info.Facts, error: str) -> None:
    made = outcome(text, facts)
    assert (made.compiled, made.questions) == (b"", ())
    assert error in made.error


def test_what_facts_do_not_say_is_asked_for() -> None:
    made = outcome(TEXT + " t:sched:other { @ = count(); }")
    assert (made.compiled, made.error) == (b"", "")
    assert ("tracepoints", "sched", "other") in made.questions


def test_damaged_facts() -> None:
    for data in (b"nothing", packed(b"nothing")):
        assert "facts about a kernel are damaged" in of_data(data).error


@pytest.mark.parametrize(
    ("limit", "value", "error"),
    [("COMPILER_MEMORY", 64 << 20, "failed: "), ("COMPILER_LONGEST", 0.01, "it takes more than 0.01 seconds")],
)
def test_limits_of_the_process(limit: str, value: float, error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, limit, value)
    compiler = Compiler(Program("x", Source("x", TEXT), CompileOptions()))
    made = compiler._compiled(packed(FACTS.encoded()))
    compiler.close()
    assert made.error.startswith("ERROR: compiling for the facts about this kernel failed: ")
    assert error in made.error
