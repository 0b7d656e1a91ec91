"""pytrace.runtime.session.test_runs: verdicts, reports, repetitions; programs are functions of the test."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.core.event_layout import Location
from pytrace.core.manifest import ProgramSpec, Target
from pytrace.core.probe_kinds import NamedRunTarget
from pytrace.runtime.machine import bpf
from pytrace.runtime.session import test_runs

HERE = Location("script.bt", 1, 1)


class FakeOutput:
    """Collects what is written; what comes while it is captured is handed back."""

    def __init__(self, *, as_json: bool) -> None:
        self.json = as_json
        self.descriptor = -1
        self.text = b""
        self.said = ""
        self._held: bytes | None = None

    def write(self, data: bytes) -> None:
        if self._held is None:
            self.text += data
        else:
            self._held += data

    def message(self, text: str) -> None:
        self.said += text

    def capture(self) -> None:
        self._held = b""

    def release(self) -> bytes:
        held, self._held = self._held or b"", None
        return held

    def held_messages(self) -> str:
        return "held message\n"

    def flush(self) -> None: ...


class FakeRun:
    """A run whose programs are functions: they are given the run, and return what the program does."""

    def __init__(self, mode: str, *, as_json: bool = False, **functions: Callable[[FakeRun], int]) -> None:
        self.options = SimpleNamespace(mode=mode)
        self.functions = functions
        self.output = FakeOutput(as_json=as_json)
        self.renderer = SimpleNamespace(
            state=SimpleNamespace(errors=0, exit_code=0, exit_requested=False), resume=lambda: None
        )
        self.loaded = SimpleNamespace(run=self._run, program_fd=list(functions).index)
        self.runs: list[str] = []
        self.reported = 0
        self.consumer = SimpleNamespace(drain=lambda: None)
        self.losses = SimpleNamespace(report_all=self._report)

    def programs(self, kind: str) -> list[ProgramSpec]:
        return [
            ProgramSpec(name, kind, at, (Target(f"{kind}:{name}", 0, NamedRunTarget(name)),), HERE)
            for at, name in enumerate(self.functions)
        ]

    def _run(self, symbol: str) -> int:
        self.runs.append(symbol)
        return self.functions[symbol](self)

    def _report(self) -> None:
        self.reported += 1


def run(made: Any) -> int:
    return test_runs.run(made)


def good(_made: FakeRun) -> int:
    return 0


def printing(made: FakeRun) -> int:
    made.output.write(b"printed\n")
    return 0


def returning(made: FakeRun) -> int:
    printing(made)
    return 1


def failing(made: FakeRun) -> int:
    made.renderer.state.errors += 1
    return 0


def exiting(made: FakeRun) -> int:
    made.renderer.state.exit_code, made.renderer.state.exit_requested = 3, True
    return 0


@pytest.mark.parametrize("mode", ["test", "bench"])
def test_a_script_without_such_probes(mode: str) -> None:
    with pytest.raises(TraceError, match=f"the script has no {mode}: probes") as raised:
        run(FakeRun(mode))
    assert f"{mode}:NAME" in raised.value.hints[0]


# ---------------------------------------------------------------------------------------------- tests


@pytest.mark.parametrize(("function", "passed"), [(good, True), (returning, False), (failing, False), (exiting, False)])
def test_verdicts(function: Callable[[FakeRun], int], passed: bool) -> None:
    made = FakeRun("test", one=function)
    assert run(made) == (0 if passed else 1)
    assert (b"[       OK ] one (" in made.output.text) is passed
    assert (b"[  FAILED  ] one (" in made.output.text) is not passed
    assert made.reported == 1


def test_one_test_does_not_spoil_the_next() -> None:
    made = FakeRun("test", a=exiting, b=good, c=failing, d=good)
    assert run(made) == 1
    assert made.runs == ["a", "b", "c", "d"]
    lines = made.output.text.decode().splitlines()
    assert lines[0] == "[==========] Running 4 tests."
    assert "[  PASSED  ] 2 tests." in lines
    assert lines[-3:] == ["[  FAILED  ] 2 tests, listed below:", "[  FAILED  ] a", "[  FAILED  ] c"]


def test_output_is_shown_of_what_failed_only() -> None:
    made = FakeRun("test", quiet=printing, loud=returning)
    run(made)
    assert made.output.text.count(b"printed") == 1
    assert made.output.said == "held message\n"


def test_one_test_is_one() -> None:
    made = FakeRun("test", one=good)
    run(made)
    text = made.output.text.decode()
    assert text.startswith("[==========] Running 1 test.\n[ RUN      ] one\n")
    assert "FAILED" not in text


def test_tests_in_json() -> None:
    made = FakeRun("test", as_json=True, one=printing, two=returning)
    assert run(made) == 1
    first, second = map(json.loads, made.output.text.splitlines())
    assert (first["type"], list(first["data"])) == ("test_result", ["one"])
    assert (first["data"]["one"]["passed"], first["data"]["one"]["output"]) == (True, "printed\n")
    assert second["data"]["two"]["passed"] is False
    assert first["data"]["one"]["duration"] >= 0
    assert made.output.said == ""


# ---------------------------------------------------------------------------------------------- benchmarks


@pytest.fixture
def statistics(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Descriptors that switch the kernel's statistics on; each run of a program takes 100 microseconds."""
    opened: list[int] = []

    def enable() -> int:
        opened.append(os.open(os.devnull, os.O_RDONLY))
        return opened[-1]

    monkeypatch.setattr(bpf, "enable_statistics", enable)
    return opened


def timed(made: FakeRun, monkeypatch: pytest.MonkeyPatch, each: int) -> None:
    monkeypatch.setattr(bpf, "run_statistics", lambda _: (each * len(made.runs), len(made.runs)))


def test_repeated_until_it_takes_long_enough(statistics: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    made = FakeRun("bench", b=good)
    timed(made, monkeypatch, 100_000)
    assert run(made) == 0
    # Once to see whether it returns 0, then 1, 2, 4, 8 and 16 times.
    assert len(made.runs) == 1 + 31
    lines = made.output.text.decode().splitlines()
    assert lines[1].split() == ["BENCHMARK", "AVERAGE", "ITERATIONS"]
    assert lines[3].split() == ["b", "100000", "ns", "16"]
    assert len({len(line) for line in lines}) == 1
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(statistics[0])


def test_a_benchmark_that_does_not_want_to_run(statistics: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    made = FakeRun("bench", no=lambda _: 1, yes=good)
    timed(made, monkeypatch, 10_000_000)
    assert run(made) == 0
    assert made.output.said == "benchmark no skipped: it did not return 0\n"
    assert made.runs == ["no", "yes", "yes"]
    assert "no" not in made.output.text.decode().split()


def test_a_program_that_takes_no_time_ends(statistics: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Some kernels count runs and no time; that must not go on for ever."""
    made = FakeRun("bench", b=good)
    count = 0

    def nothing(_descriptor: int) -> tuple[int, int]:
        nonlocal count
        count += 1
        return 0, 0

    monkeypatch.setattr(bpf, "run_statistics", nothing)
    made.loaded.run = lambda _: 0
    assert run(made) == 0
    assert count == 2 * 21
    assert made.output.text.decode().splitlines()[3].split() == ["b", "0", "ns", "0"]


def test_benchmarks_in_json(statistics: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    made = FakeRun("bench", as_json=True, b=good)
    timed(made, monkeypatch, 1_000_000)
    run(made)
    assert json.loads(made.output.text) == {
        "type": "benchmark_result", "data": {"b": {"average": 1_000_000, "iters": 1}},
    }  # fmt: skip


@pytest.mark.parametrize(("number", "hints"), [(errno.EPERM, 1), (errno.EINVAL, 0)])
def test_a_kernel_that_does_not_time(number: int, hints: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(bpf, "enable_statistics", refuse)
    with pytest.raises(TraceError, match=f"the kernel cannot time programs: {os.strerror(number)}") as raised:
        run(FakeRun("bench", b=good))
    assert len(raised.value.hints) == hints
