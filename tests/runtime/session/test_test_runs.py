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
from pytrace.core.probes.targets import NamedRunTarget
from pytrace.runtime.abi import bpf
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


class FakeSession:
    """A session whose programs are functions: they get the session, and give what the program returns."""

    def __init__(self, mode: str, *, as_json: bool = False, **functions: Callable[[FakeSession], int]) -> None:
        self.options = SimpleNamespace(mode=mode)
        self.functions = functions
        self.output = FakeOutput(as_json=as_json)
        self.renderer = SimpleNamespace(
            state=SimpleNamespace(errors=0, exit_code=0, exit_requested=False), resume=lambda: None
        )
        self.loaded = SimpleNamespace(run=self._run, program_fd=list(functions).index)
        self.runs: list[str] = []
        self.reported = 0

    def programs(self, kind: str) -> list[ProgramSpec]:
        return [
            ProgramSpec(name, kind, at, (Target(f"{kind}:{name}", 0, NamedRunTarget(name)),), HERE)
            for at, name in enumerate(self.functions)
        ]

    def _run(self, symbol: str) -> int:
        self.runs.append(symbol)
        return self.functions[symbol](self)

    def drain(self) -> None: ...

    def report_losses(self) -> None:
        self.reported += 1


def run(session: Any) -> int:
    return test_runs.run(session)


def good(_session: FakeSession) -> int:
    return 0


def printing(session: FakeSession) -> int:
    session.output.write(b"printed\n")
    return 0


def returning(session: FakeSession) -> int:
    printing(session)
    return 1


def failing(session: FakeSession) -> int:
    session.renderer.state.errors += 1
    return 0


def exiting(session: FakeSession) -> int:
    session.renderer.state.exit_code, session.renderer.state.exit_requested = 3, True
    return 0


@pytest.mark.parametrize("mode", ["test", "bench"])
def test_a_script_without_such_probes(mode: str) -> None:
    with pytest.raises(TraceError, match=f"the script has no {mode}: probes") as raised:
        run(FakeSession(mode))
    assert f"{mode}:NAME" in raised.value.hints[0]


# ---------------------------------------------------------------------------------------------- tests


@pytest.mark.parametrize(("function", "passed"), [(good, True), (returning, False), (failing, False), (exiting, False)])
def test_verdicts(function: Callable[[FakeSession], int], passed: bool) -> None:
    session = FakeSession("test", one=function)
    assert run(session) == (0 if passed else 1)
    assert (b"[       OK ] one (" in session.output.text) is passed
    assert (b"[  FAILED  ] one (" in session.output.text) is not passed
    assert session.reported == 1


def test_one_test_does_not_spoil_the_next() -> None:
    session = FakeSession("test", a=exiting, b=good, c=failing, d=good)
    assert run(session) == 1
    assert session.runs == ["a", "b", "c", "d"]
    lines = session.output.text.decode().splitlines()
    assert lines[0] == "[==========] Running 4 tests."
    assert "[  PASSED  ] 2 tests." in lines
    assert lines[-3:] == ["[  FAILED  ] 2 tests, listed below:", "[  FAILED  ] a", "[  FAILED  ] c"]


def test_output_is_shown_of_what_failed_only() -> None:
    session = FakeSession("test", quiet=printing, loud=returning)
    run(session)
    assert session.output.text.count(b"printed") == 1
    assert session.output.said == "held message\n"


def test_one_test_is_one() -> None:
    session = FakeSession("test", one=good)
    run(session)
    text = session.output.text.decode()
    assert text.startswith("[==========] Running 1 test.\n[ RUN      ] one\n")
    assert "FAILED" not in text


def test_tests_in_json() -> None:
    session = FakeSession("test", as_json=True, one=printing, two=returning)
    assert run(session) == 1
    first, second = map(json.loads, session.output.text.splitlines())
    assert (first["type"], list(first["data"])) == ("test_result", ["one"])
    assert (first["data"]["one"]["passed"], first["data"]["one"]["output"]) == (True, "printed\n")
    assert second["data"]["two"]["passed"] is False
    assert first["data"]["one"]["duration"] >= 0
    assert session.output.said == ""


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


def timed(session: FakeSession, monkeypatch: pytest.MonkeyPatch, each: int) -> None:
    monkeypatch.setattr(bpf, "run_statistics", lambda _: (each * len(session.runs), len(session.runs)))


def test_repeated_until_it_takes_long_enough(statistics: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    session = FakeSession("bench", b=good)
    timed(session, monkeypatch, 100_000)
    assert run(session) == 0
    # Once to see whether it returns 0, then 1, 2, 4, 8 and 16 times.
    assert len(session.runs) == 1 + 31
    lines = session.output.text.decode().splitlines()
    assert lines[1].split() == ["BENCHMARK", "AVERAGE", "ITERATIONS"]
    assert lines[3].split() == ["b", "100000", "ns", "16"]
    assert len({len(line) for line in lines}) == 1
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(statistics[0])


def test_a_benchmark_that_does_not_want_to_run(statistics: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    session = FakeSession("bench", no=lambda _: 1, yes=good)
    timed(session, monkeypatch, 10_000_000)
    assert run(session) == 0
    assert session.output.said == "benchmark no skipped: it did not return 0\n"
    assert session.runs == ["no", "yes", "yes"]
    assert "no" not in session.output.text.decode().split()


def test_a_program_that_takes_no_time_ends(statistics: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Some kernels count runs and no time; that must not go on for ever."""
    session = FakeSession("bench", b=good)
    count = 0

    def nothing(_descriptor: int) -> tuple[int, int]:
        nonlocal count
        count += 1
        return 0, 0

    monkeypatch.setattr(bpf, "run_statistics", nothing)
    session.loaded.run = lambda _: 0
    assert run(session) == 0
    assert count == 2 * 21
    assert session.output.text.decode().splitlines()[3].split() == ["b", "0", "ns", "0"]


def test_benchmarks_in_json(statistics: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    session = FakeSession("bench", as_json=True, b=good)
    timed(session, monkeypatch, 1_000_000)
    run(session)
    assert json.loads(session.output.text) == {
        "type": "benchmark_result", "data": {"b": {"average": 1_000_000, "iters": 1}},
    }  # fmt: skip


@pytest.mark.parametrize(("number", "hints"), [(errno.EPERM, 1), (errno.EINVAL, 0)])
def test_a_kernel_that_does_not_time(number: int, hints: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(bpf, "enable_statistics", refuse)
    with pytest.raises(TraceError, match=f"the kernel cannot time programs: {os.strerror(number)}") as raised:
        run(FakeSession("bench", b=good))
    assert len(raised.value.hints) == hints
