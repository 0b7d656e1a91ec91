"""Programs of others that open what pytrace writes: npm packages of ``scripts/readers``, run by node."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import downloads
from tests.support.patience import patience

PROGRAMS = downloads.ROOT / "scripts" / "readers"


def packages() -> Path:
    """Where ``ensure_readers`` of ``scripts/setup.sh`` installs them."""
    return downloads.folder() / "readers" / "node_modules"


def _read(program: str, path: Path) -> Any:
    if shutil.which("node") is None or not packages().is_dir():
        pytest.skip("needs node and the npm packages of scripts/readers, which scripts/test installs")
    done = subprocess.run(
        ["node", str(PROGRAMS / program), str(path)],
        env={**os.environ, "NODE_PATH": str(packages())},
        capture_output=True, timeout=patience(60), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return json.loads(done.stdout)


def speedscope(path: Path) -> dict[str, Any]:
    """A file of any format that speedscope opens, as it exports it again."""
    found: dict[str, Any] = _read("speedscope.cjs", path)
    return found


def speedscope_stacks(path: Path) -> dict[str, dict[str, float]]:
    """The profiles that speedscope finds in a file by name: weights by stack, the root first, with semicolons."""
    found = speedscope(path)
    frames = [frame["name"] for frame in found["shared"]["frames"]]
    return {profile["name"]: _stacks(profile, frames) for profile in found["profiles"]}


def _stacks(profile: dict[str, Any], frames: list[str]) -> dict[str, float]:
    stacks: dict[str, float] = {}
    for numbers, weight in _samples(profile):
        name = ";".join(frames[number] for number in numbers)
        stacks[name] = stacks.get(name, 0) + weight
    return stacks


def _samples(profile: dict[str, Any]) -> Iterator[tuple[list[int], float]]:
    """Stacks and weights of a profile; in one of events the time between two is that of the stack between them."""
    if profile["type"] == "sampled":
        yield from zip(profile["samples"], profile["weights"], strict=True)
        return
    stack: list[int] = []
    last = profile["startValue"]
    for event in profile["events"]:
        if event["at"] > last:
            yield list(stack), event["at"] - last
            last = event["at"]
        if event["type"] == "O":
            stack.append(event["frame"])
        else:
            assert stack.pop() == event["frame"]


def pprof(path: Path) -> dict[str, Any]:
    """A profile as the package pprof-format decodes it."""
    found: dict[str, Any] = _read("pprof.cjs", path)
    return found


def firefox(path: Path) -> list[dict[str, Any]]:
    """A profile's threads as the Firefox Profiler's command line reads them: name, stacks with weights, markers."""
    found: list[dict[str, Any]] = _read("firefox.cjs", path)
    return found
