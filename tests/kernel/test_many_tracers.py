"""Many tracers on the same probes, started and killed at any moment: right counts, and nothing stays behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytrace.runtime.machine import tracefs
from tests.support.crowd import ROUNDS
from tests.support.machine import need
from tests.support.patience import patience
from tests.support.running import ROOT
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("no_leaks")


def crowd(tmp_path: Path, limit: float | None, *words: str) -> Any:
    """The result of ``python -m tests.support.crowd``, with a cache and temporary files of its own."""
    places = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    command = [sys.executable, "-m", "tests.support.crowd", *words]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=limit, check=False, cwd=ROOT,
        env={**os.environ, **places},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


SOAK = pytest.mark.soak
"""Takes minutes, on a busy machine more: those cases have no deadline."""


@pytest.mark.parametrize(("number", "limit"), [(20, patience(60)), pytest.param(100, None, marks=SOAK)])
def test_tracers_at_once(tmp_path: Path, number: int, limit: float | None) -> None:
    need("uprobe", "usdt", "syscalls")
    result = crowd(tmp_path, limit, "at-once", str(number))
    # The semaphore was raised for all of them, and lowered by the last one only.
    assert result["outputs"] == {f"@guarded:{ROUNDS}@user:{ROUNDS}": number}
    assert result["statuses"] == {"0": number}


@pytest.mark.parametrize(
    ("number", "every", "limit"), [(50, 0.1, patience(60)), pytest.param(600, 1, None, marks=SOAK)]
)
def test_tracers_killed_at_any_moment(tmp_path: Path, number: int, every: float, limit: float | None) -> None:
    """One is started in each period while another is killed: as it compiles, loads, attaches, traces, or prints."""
    need("uprobe", "usdt", "syscalls")
    result = crowd(tmp_path, limit, "churn", str(number), str(every), "1")
    assert sum(result["statuses"].values()) == number
    # Some end by the request before the kill.
    assert set(result["statuses"]) <= {"-9", "-2", "0", "130"}
    until(lambda: not _commands())
    events = Path(tracefs.root()) / "uprobe_events"
    assert "pytrace_" not in (events.read_text() if events.exists() else "")
    assert not list((tmp_path / "tmp").iterdir())
    # A half-written entry of the cache is one that is not read: the next run works, and clears it away.
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and path.stat().st_size == 0]


def _commands() -> list[str]:
    """Commands of killed tracers."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes()
        except OSError:
            continue
        if text == b"sleep\x00600\x00":
            found.append(str(path))
    return found
