"""pytrace.runtime.attach.python: links at the places of an interpreter, and refusals."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import pytest

from pytrace.core.probes.targets import PythonTarget
from pytrace.runtime.attach import python
from pytrace.runtime.attach.base import Attached, Failure, Outcome
from pytrace.runtime.attach.opened import Opened
from pytrace.runtime.python.eval_loop import EvalLoop
from tests.support.attach_requests import PROGRAM, Kernel, job, kernel, spec, target

LOOP = EvalLoop((16, 32), (48,), 6)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    monkeypatch.setattr(python, "_interpreter", lambda _pid: ("/python", LOOP))
    return kernel(monkeypatch)


def attached(kind: str = "python", *, multi: str = "uprobe_multi", **options: Any) -> list[Outcome]:
    opened = Opened()
    place = target(PythonTarget(("a.py",), "f"), 0)
    found = python.attach(job(spec("p", kind, (place,), multi=multi), **options), opened)
    opened.close()
    return found


@pytest.mark.parametrize(
    ("kind", "options", "offsets", "pid"),
    [
        ("python", {"pids": (7,)}, [16, 32], 7),
        ("python", {"child": 8}, [16, 32], 8),
        ("pythonret", {"pids": (7,), "follow": True}, [48], 0),
    ],
)
def test_links(fake: Kernel, kind: str, options: dict[str, Any], offsets: list[int], pid: int) -> None:
    (outcome,) = attached(kind, **options)
    assert isinstance(outcome, Attached)
    ((program, path, places),) = fake.arguments("link_uprobe_multi")
    assert (program, path, list(places)) == (PROGRAM, "/python", offsets)
    (told,) = fake.options("link_uprobe_multi")
    assert (told["pid"], told["cookies"]) == (pid, [0] * len(offsets))


def test_needs_a_process(fake: Kernel) -> None:
    (outcome,) = attached()
    assert isinstance(outcome, Failure)
    assert outcome.reason == "it needs a process"


def test_processes_without_an_interpreter() -> None:
    with subprocess.Popen(["sleep", "100"]) as process:
        try:
            (outcome,) = attached(pids=(process.pid,))
        finally:
            process.kill()
    assert isinstance(outcome, Failure)
    assert "runs no CPython that is known" in outcome.reason
    (outcome,) = attached(pids=(process.pid,))
    assert isinstance(outcome, Failure)
    assert outcome.reason == f"there is no process {process.pid}"


def test_the_interpreter_of_this_process() -> None:
    path, _ = python._interpreter(os.getpid())
    assert os.path.isfile(path)
