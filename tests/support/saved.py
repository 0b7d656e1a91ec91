"""Runs of pytrace that save snapshots, and the snapshots."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytrace.results import file_form
from pytrace.results.snapshot import SnapshotData
from tests.support.patience import patience

ROOT = Path(__file__).resolve().parent.parent.parent


def read(path: Path) -> SnapshotData:
    """The snapshot in a file."""
    return file_form.read(str(path))


def start(*arguments: str | Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Start pytrace with pipes for what it prints."""
    return subprocess.Popen(
        [sys.executable, "-m", "pytrace", *map(str, arguments)], cwd=ROOT, env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


@dataclass
class Saved:
    """A run that is over: what it printed, and the snapshot that it saved."""

    stdout: str
    stderr: str
    status: int
    path: Path

    @property
    def snapshot(self) -> SnapshotData:
        return read(self.path)

    def entries(self, name: str) -> dict[Any, Any]:
        """Of a map."""
        return dict(self.snapshot.maps[name].entries)


def save(folder: Path, *arguments: str | Path, env: Mapping[str, str] | None = None, status: int = 0) -> Saved:
    """Run pytrace to its end with ``--save``."""
    path = folder / "snapshot"
    child = start("--save", path, *arguments, env=env)
    try:
        stdout, stderr = child.communicate(timeout=patience(60))
    except BaseException:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        raise
    assert child.returncode == status, stderr
    return Saved(stdout, stderr, child.returncode, path)
